package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// removals takes care of what deleted stacks leave: runs, locks and records.
type removals struct {
	blobs        records.Blobs
	dialects     dialect.Registry // with those left out
	leftOut      dialect.Registry
	events       Events
	live         client.Client
	log          *slog.Logger
	now          func() time.Time
	queue        Queue
	runner       runner.Runner
	store        states.Store
	index        *index
	auditor      *auditor
	dependencies *dependencies
	records      *records.Store
	settler      *settler
	states       *states.Keeper
	release      func(ctx context.Context, id string) error // gives back what inputs handed out
	shards       *shards
	wakes        *wakeQueues
	leads        func() bool                     // whether this controller sweeps what belongs to no single stack
	ours         func(ctx context.Context) error // whether the API server is the one of the stacks whose records are here
}

// abandoned takes over stacks whose object is gone although they were not
// released: its finalizer was removed by force. A run that goes on comes to its
// end, its state is stored, and what is left is written down. It returns when
// to try again, zero if there is no need. The object with the UID alive exists. Stacks of
// other controllers are left alone.
func (rm *removals) abandoned(ctx context.Context, of objectRef, alive string) (time.Duration, error) {
	var again time.Duration
	var errs []error
	for _, e := range rm.index.all(of) {
		if e.id == alive {
			continue
		}
		leave, ours := rm.shards.enter(e.id)
		if !ours {
			continue
		}
		wait, err := rm.abandon(ctx, e)
		leave()
		again = max(again, wait)
		errs = append(errs, err)
	}
	return again, errors.Join(errs...)
}

// former is abandoned for a name whose object is another controller's. It asks the server
// which object has the name: the cache may be older than what is remembered here.
func (rm *removals) former(ctx context.Context, of objectRef) (time.Duration, error) {
	obj := of.dialect.New()
	if err := rm.live.Get(ctx, of.key, obj); client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	return rm.abandoned(ctx, of, string(obj.GetUID()))
}

func (rm *removals) abandon(ctx context.Context, e *entry) (time.Duration, error) {
	id, key := e.id, e.key
	report, err := rm.runner.Current(id)
	if err != nil {
		return 0, err
	}
	if report != nil && report.Phase != runner.Done {
		rm.queue.Withdraw(id)
		return runInterval, nil
	}
	rm.queue.Leave(id)
	r := kube.Retained{Stack: key.String(), Kind: rm.dialects.Word(e.dialect), UID: id, At: rm.now(), Why: kube.WhyRemoved}
	if report != nil {
		if err := rm.salvage(ctx, e, report, &r); err != nil {
			return 0, fmt.Errorf("keeping what the run %s of the removed stack %s left: %w", report.ID, key, err)
		}
	}
	if err := rm.release(ctx, id); err != nil {
		return 0, fmt.Errorf("giving credentials of the removed stack %s back: %w", key, err)
	}
	left, err := rm.blobs.List(ctx, record.Stack(id))
	if err != nil {
		return 0, err
	}
	if len(left) > 0 { // else it was released, and nothing is left to be said
		var existed time.Time
		if report != nil {
			existed = report.Started
		}
		if r.Origin, err = rm.origin(ctx, e, existed, false); err != nil {
			return 0, err
		}
		state, err := rm.records.Get(ctx, record.State(id))
		if err != nil && fault.Of(err) != fault.Missing {
			return 0, err
		}
		if err := rm.keepRetained(ctx, &r, state); err != nil {
			return 0, err
		}
		if err := rm.keepLastRun(ctx, e, r.Origin); err != nil {
			return 0, err
		}
		if err := rm.auditor.record(ctx, remains(e), audit.Entry{What: audit.Orphaned, Why: r.Why}, ""); err != nil {
			return 0, err
		}
		rm.log.Warn("a stack was removed by force: its resources and its records stay", "stack", key.String(), "uid", id, "resources", len(r.Resources))
	}
	rm.index.drop(id)
	return 0, nil
}

// remains is a pass over what is left of a stack whose object is gone.
func remains(e *entry) *pass {
	obj := e.dialect.New()
	obj.SetNamespace(e.key.Namespace)
	obj.SetName(e.key.Name)
	return &pass{dialect: e.dialect, id: e.id, obj: obj, entry: e}
}

// salvage stores the state of the last run of a stack that is gone, and frees
// its lock.
func (rm *removals) salvage(ctx context.Context, e *entry, report *runner.Report, r *kube.Retained) error {
	var n note
	if err := json.Unmarshal(report.Note, &n); err != nil {
		return fmt.Errorf("reading its note: %w", err)
	}
	r.State = n.State
	p := remains(e)
	p.o.Deleting = true // its namespace may be going, too: then our own copy has to do
	if report.Kind.Writes() {
		// A state that something else stored meanwhile is not replaced; the copy in the
		// records stays.
		if err := rm.states.Flush(ctx, p.subject(), report, n.State); err != nil && fault.Reason(err, "") != kube.StateConflict {
			return err
		}
		if n.State != nil {
			if err := rm.store.Unlock(ctx, *n.State, report.ID); err != nil {
				return err
			}
		}
	}
	run := stack.Run{}
	if err := rm.settler.findUntracked(ctx, p, report, n, &run); err != nil {
		return err
	}
	if len(run.Untracked) > 0 {
		r.Untracked = &stack.Untracked{Run: report.ID, At: report.Finished, Objects: run.Untracked, Lost: run.Lost, Apart: run.Apart, Rescued: run.Rescued}
	}
	if err := rm.settler.keepForgotten(ctx, p, report, n); err != nil {
		return err
	}
	if err := rm.settler.keepRecords(ctx, p, report); err != nil {
		return err
	}
	return rm.runner.Forget(e.id, report.ID)
}

// sweepGone writes down stacks of all dialects that went while no controller ran,
// and drops the records of those that have been gone for long. That an object is
// not in a list is no reason to drop anything at once: the list may be wrong. Records
// are dropped if a stack was in no list for 30 days, if the list comes from the cluster
// that the records belong to, and if it holds any stack at all.
func (rm *removals) sweepGone(ctx context.Context) error {
	keys, err := rm.blobs.List(ctx, record.Stacks)
	if err != nil {
		return err
	}
	retained, err := rm.retained(ctx)
	if err != nil {
		return err
	}
	alive, err := rm.alive(ctx) // after the records: a stack that is new by now has none among them
	if err != nil {
		return err
	}
	var errs []error // of one stack are none of the others
	tried := map[string]bool{}
	for _, k := range keys {
		id, _ := record.StackOf(k)
		if _, known := retained[id]; known || alive[id] || tried[id] {
			continue
		}
		tried[id] = true
		switch ours, err := rm.abandonFound(ctx, id); {
		case err != nil:
			errs = append(errs, fmt.Errorf("writing down the stack %s, which is gone: %w", id, err))
		case ours:
			retained[id] = kube.Retained{At: rm.now()}
		}
	}
	for id, r := range retained {
		leave, ours := rm.shards.enter(id)
		if !ours {
			continue
		}
		leave() // nothing works on a stack that is gone
		switch {
		case alive[id]:
			err = rm.records.DropOthers(ctx, record.Retained(id, ""), record.Retained(id, record.ForgottenFile)) // a backup was restored
		case len(alive) > 0 && rm.now().Sub(r.At) > kube.RetainedFor:
			err = errors.Join(rm.records.Drop(ctx, id), rm.records.DropOthers(ctx, record.Retained(id, "")))
		default:
			err = nil
		}
		errs = append(errs, err)
	}
	if len(alive) > 0 && (rm.leads == nil || rm.leads()) {
		errs = append(errs, rm.sweepGoneRuns(ctx))
	}
	return errors.Join(errs...)
}

// abandonFound takes over a stack that was found by its records alone, or by what is
// remembered of it, if it is one of this controller's.
func (rm *removals) abandonFound(ctx context.Context, id string) (ours bool, err error) {
	leave, ours := rm.shards.enter(id)
	if !ours {
		return false, nil
	}
	defer leave()
	e := rm.index.find(id)
	if e == nil {
		report, err := rm.runner.Current(id)
		switch {
		case err != nil:
			return true, err
		case report != nil && report.Name != "":
			e = rm.index.makeFormer(id, startedFor(rm.dialects, *report))
		default:
			e = &entry{id: id, objectRef: objectRef{dialect: rm.dialects.Found("")}}
		}
	}
	wait, err := rm.abandon(ctx, e)
	if wait > 0 && e.key.Name != "" {
		rm.wakes.late(e.objectRef) // which looks again until its run has ended
	}
	return true, err
}

// alive is the set of the stacks that exist, of all dialects. A kind that is left out has
// none if the cluster does not know it. Otherwise its list is needed: a stack with records
// would be taken for a deleted one.
func (rm *removals) alive(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for _, d := range rm.dialects.All() {
		list, gvk := &metav1.PartialObjectMetadataList{}, d.Kind()
		gvk.Kind += "List"
		list.SetGroupVersionKind(gvk)
		for {
			if err := rm.live.List(ctx, list, client.Limit(500), client.Continue(list.Continue)); err != nil {
				if left := rm.leftOut.Of(dialect.KindOf(d)) != nil; left && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)) {
					break
				} else if left {
					return nil, fmt.Errorf("stacks of %s may have records, although --kinds leaves them out: let the controller list them: %w", d.Kind().Group, err)
				}
				return nil, err
			}
			for i := range list.Items {
				out[string(list.Items[i].UID)] = true
			}
			if list.Continue == "" {
				break
			}
		}
	}
	return out, nil
}

// retained reads the records of all stacks that are gone. One that does not open stays: it is not
// known for how long its stack has been gone, but that it is.
func (rm *removals) retained(ctx context.Context) (map[string]kube.Retained, error) {
	keys, err := rm.blobs.List(ctx, record.AllRetained())
	if err != nil {
		return nil, err
	}
	out := map[string]kube.Retained{}
	for _, k := range keys {
		id, file, _ := record.RetainedOf(k)
		if file != record.RetainedFile {
			continue
		}
		r, err := record.At[kube.Retained](k).Read(ctx, rm.blobs)
		if unopened(err) {
			rm.log.Warn("record of a stack that is gone not read", "uid", id, "err", err)
			r, err = kube.Retained{At: rm.now()}, nil
		}
		if err != nil {
			return nil, err
		}
		out[id] = r
	}
	return out, nil
}

// sweep removes what belongs to no stack, if the records are those of this cluster.
func (rm *removals) sweep(ctx context.Context) error {
	pruned := rm.records.Archives.Prune(rm.now())
	if err := rm.ours(ctx); err != nil {
		return errors.Join(pruned, err)
	}
	err := errors.Join(pruned, rm.sweepGone(ctx))
	if rm.leads == nil || rm.leads() {
		err = errors.Join(err, rm.records.Sweep(ctx, rm.sourceOf))
	}
	return err
}

// sweepEvery is how often records without a stack are removed.
const sweepEvery = 6 * time.Hour

// run writes down stacks that are gone, and removes archives that no record of an
// apply needs, again and again until ctx ends. Archives are shared by all stacks,
// so that no single stack can tell.
func (rm *removals) run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	if rm.shards != nil { // it has none yet
		select {
		case <-rm.shards.changed():
			rm.shards.settle(ctx)
		case <-ctx.Done():
		}
	}
	for {
		if err := rm.sweep(ctx); err != nil && ctx.Err() == nil {
			rm.log.Warn("records not swept", "err", err) // tried again in time
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-rm.shards.changed():
			rm.shards.settle(ctx)
		}
	}
}
