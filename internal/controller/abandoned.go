package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// abandoned looks after stacks whose object is gone although they were not let
// go: somebody took the finalizer off by force. A run that goes on comes to its
// end, its state is stored, and what is left is written down. It returns when
// to look again, zero if there is no need. The object with the UID alive is there.
func (c *Stacks) abandoned(ctx context.Context, key types.NamespacedName, alive string) (time.Duration, error) {
	var again time.Duration
	var errs []error
	for _, e := range c.index.named(key) {
		if e.id == alive {
			continue
		}
		wait, err := c.abandon(ctx, e.id, key)
		again = max(again, wait)
		errs = append(errs, err)
	}
	return again, errors.Join(errs...)
}

func (c *Stacks) abandon(ctx context.Context, id string, key types.NamespacedName) (time.Duration, error) {
	report, err := c.Runner.Current(id)
	if err != nil {
		return 0, err
	}
	if report != nil && report.Phase != runner.Done {
		c.Queue.Withdraw(id)
		return runLook, nil
	}
	c.Queue.Leave(id)
	if report != nil && key.Name == "" { // found by its records alone
		key.Namespace, key.Name, _ = strings.Cut(report.Name, "/")
	}
	r := kube.Retained{Stack: key.String(), UID: id, At: c.Now(), Why: "the object was removed although Terrier had not let it go"}
	if report != nil {
		if err := c.salvage(ctx, id, key, report, &r); err != nil {
			return 0, fmt.Errorf("keeping what the run %s of the removed stack %s left: %w", report.ID, key, err)
		}
	}
	left, err := c.Blobs.List(ctx, record.Stack(id))
	if err != nil {
		return 0, err
	}
	if len(left) > 0 { // else it was let go, and nothing is left to be said
		state, err := c.get(ctx, record.State(id))
		if err != nil && fault.Of(err) != fault.Missing {
			return 0, err
		}
		if err := c.keepRetained(ctx, &r, state); err != nil {
			return 0, err
		}
		if err := c.record(ctx, c.remains(id, key), audit.Entry{What: audit.Orphaned, Why: r.Why}, ""); err != nil {
			return 0, err
		}
		c.Log.Warn("a stack was removed by force; what it built stays, and its records are kept", "stack", key.String(), "uid", id, "resources", len(r.Resources))
	}
	c.index.drop(id)
	return 0, nil
}

// remains is a pass over what is left of a stack whose object is gone.
func (c *Stacks) remains(id string, key types.NamespacedName) *pass {
	obj := c.Dialect.New()
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	return &pass{id: id, obj: obj, entry: &entry{id: id, key: key}}
}

// salvage stores the state of the last run of a stack that is gone, and frees
// its lock.
func (c *Stacks) salvage(ctx context.Context, id string, key types.NamespacedName, report *runner.Report, r *kube.Retained) error {
	var n note
	if err := json.Unmarshal(report.Note, &n); err != nil {
		return fmt.Errorf("reading its note: %w", err)
	}
	r.State = n.State
	p := c.remains(id, key)
	p.o.Deleting = true // its namespace may be going, too: then our own copy has to do
	if report.Kind.Writes() {
		// What somebody else stored meanwhile is not replaced; our own copy stays
		// in the record.
		if err := c.flush(ctx, p, report, n); err != nil && fault.Reason(err, "") != kube.StateConflict {
			return err
		}
		if n.State != nil {
			if err := c.States.Unlock(ctx, *n.State, report.ID); err != nil {
				return err
			}
		}
	}
	run := stack.Run{}
	if err := c.findUntracked(ctx, p, report, n, &run); err != nil {
		return err
	}
	if len(run.Untracked) > 0 {
		r.Untracked = &stack.Untracked{Run: report.ID, At: report.Finished, Objects: run.Untracked, Apart: run.Apart, Rescued: run.Rescued}
	}
	if err := c.keepRecords(ctx, p, report); err != nil {
		return err
	}
	return c.Runner.Forget(id, report.ID)
}

// sweepGone writes down stacks that went while nobody looked, and drops the
// records of those that have been gone for long. That an object is not in a
// list is no reason to drop anything at once: the list may be wrong.
func (c *Stacks) sweepGone(ctx context.Context) error {
	keys, err := c.Blobs.List(ctx, record.Stacks)
	if err != nil {
		return err
	}
	retained, err := c.retained(ctx)
	if err != nil {
		return err
	}
	alive, err := c.alive(ctx) // after the records: a stack that is new by now has none among them
	if err != nil {
		return err
	}
	for _, k := range keys {
		id, _ := record.StackOf(k)
		if _, known := retained[id]; known || alive[id] {
			continue
		}
		var key types.NamespacedName
		if e := c.index.find(id); e != nil {
			key = e.key
		}
		if _, err := c.abandon(ctx, id, key); err != nil {
			return err
		}
		retained[id] = kube.Retained{At: c.Now()}
	}
	for id, r := range retained {
		switch {
		case alive[id]:
			err = c.dropOthers(ctx, record.Retained(id, "")) // a backup was restored
		case c.Now().Sub(r.At) > kube.RetainedFor:
			err = errors.Join(c.dropRecords(ctx, id), c.dropOthers(ctx, record.Retained(id, "")))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// alive is the set of the stacks that exist.
func (c *Stacks) alive(ctx context.Context) (map[string]bool, error) {
	gvk, err := apiutil.GVKForObject(c.Dialect.New(), c.Live.Scheme())
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	out := map[string]bool{}
	for {
		if err := c.Live.List(ctx, list, client.Limit(500), client.Continue(list.Continue)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			out[string(list.Items[i].UID)] = true
		}
		if list.Continue == "" {
			return out, nil
		}
	}
}

// retained reads the records of all stacks that are gone.
func (c *Stacks) retained(ctx context.Context) (map[string]kube.Retained, error) {
	keys, err := c.Blobs.List(ctx, record.AllRetained())
	if err != nil {
		return nil, err
	}
	out := map[string]kube.Retained{}
	for _, k := range keys {
		if _, file, _ := record.RetainedOf(k); file != record.RetainedFile {
			continue
		}
		r, err := record.At[kube.Retained](k).Read(ctx, c.Blobs)
		if err != nil {
			return nil, err
		}
		out[r.UID] = r
	}
	return out, nil
}
