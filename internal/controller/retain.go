package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// retain records the resources that stay when a stack is released, and reports how
// many of them its runs forgot. Origin is that of the stack. Whole says that the resources in the state stay, too:
// without it, the state was destroyed.
func (rm *removals) retain(ctx context.Context, p *pass, origin kube.Origin, whole bool) (forgotten int, err error) {
	left, err := forgottenBefore(ctx, rm.blobs, p.id)
	if err != nil {
		return 0, err
	}
	switch {
	case whole:
		err = rm.retainState(ctx, p, origin)
	case len(left.Resources) > 0 || len(left.GivenUp) > 0:
		r := kube.Retained{
			Stack: left.Stack, Kind: left.Kind, UID: p.id, At: p.o.Now, Origin: origin,
			Why: "its runs forgot the resources, as the configuration asks (destroy = false), and did not destroy them",
		}
		if len(left.Resources) == 0 {
			r.Why = "a user gave up its former state, so that its resources were not destroyed"
		}
		if err = rm.keepRetained(ctx, &r, nil); err == nil && len(left.Resources) > 0 {
			rm.events.Event(p.obj, warning, "ResourcesRetained", fmt.Sprintf(
				"The stack is deleted. Resources that its runs forgot and did not destroy: %d. To list them with their IDs: terrier retained show %s -n %s",
				len(left.Resources), p.o.Spec.Words.Argument, p.obj.GetNamespace()))
		}
	}
	return len(left.Resources), err
}

// retainState records the resources in the state of a stack that is released.
func (rm *removals) retainState(ctx context.Context, p *pass, origin kube.Origin) error {
	r := kube.Retained{
		Stack: client.ObjectKeyFromObject(p.obj).String(), Kind: rm.dialects.Word(p.dialect), UID: p.id, At: p.o.Now, Untracked: p.o.Status.Untracked, Origin: origin,
		Why: "destroyResourcesOnDeletion is not set",
	}
	if p.o.Spec.Retain {
		r.Why = "terrier.dev/deletion is retain"
	}
	_, ref, _ := states.Backend(p.st.Configuration, p.obj.GetNamespace())
	r.State = ref
	state, err := rm.lastState(ctx, p, ref)
	if err != nil {
		return err
	}
	if err := rm.keepRetained(ctx, &r, state); err != nil {
		return err
	}
	how := "its state is not kept here"
	if len(state) > 0 {
		how = fmt.Sprintf("resources in the state: %d", len(r.Resources))
	}
	if r.Sealed {
		how = "its state is encrypted, so they are not known"
	}
	if n := len(r.Forgotten); n > 0 {
		how += fmt.Sprintf(", forgotten by its runs: %d", n)
	}
	rm.events.Event(p.obj, warning, "ResourcesRetained", fmt.Sprintf("The resources of the stack are retained (%s): %s", how, r.Why))
	return nil
}

// lastState is our copy of the state or, of a stack that only upstream ran, the
// one that is there; nil if there is neither. It stays where it is in any case,
// so that one that cannot be read holds up no deletion.
func (rm *removals) lastState(ctx context.Context, p *pass, ref *kube.StateRef) ([]byte, error) {
	state, err := rm.records.Get(ctx, record.State(p.id))
	if fault.Of(err) != fault.Missing {
		return state, err
	}
	if ref == nil {
		return nil, nil
	}
	found, err := rm.store.Load(ctx, *ref)
	if err != nil {
		rm.log.Warn("state of a stack that goes not read", "stack", client.ObjectKeyFromObject(p.obj).String(), "err", err)
		return nil, nil
	}
	if found.Owner != "" && found.Owner != p.obj.GetName() {
		return nil, nil // it is another stack's
	}
	return found.State, nil
}

// keepRetained keeps the record, with the resources that runs forgot, and the state if
// it is known.
func (rm *removals) keepRetained(ctx context.Context, r *kube.Retained, state []byte) error {
	left, err := forgottenBefore(ctx, rm.blobs, r.UID)
	if err != nil {
		return err
	}
	r.Forgotten, r.GivenUp = left.Resources, left.GivenUp
	if len(state) > 0 {
		facts, err := stack.ReadState(state)
		if err == nil {
			r.Sealed = facts.Sealed
			r.Resources, err = addresses(state)
		}
		if err != nil {
			return err
		}
		if err := rm.records.Put(ctx, record.Retained(r.UID, record.RetainedStateFile), state); err != nil {
			return err
		}
	}
	return record.At[kube.Retained](record.Retained(r.UID, record.RetainedFile)).Write(ctx, rm.blobs, *r)
}

// addresses lists the managed resources in a state.
func addresses(state []byte) ([]string, error) {
	var s struct {
		Resources []struct {
			Module, Mode, Type, Name string
		} `json:"resources"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	var out []string
	for _, r := range s.Resources {
		if r.Mode != "managed" {
			continue
		}
		address := r.Type + "." + r.Name
		if r.Module != "" {
			address = r.Module + "." + address
		}
		out = append(out, address)
	}
	return out, nil
}

// relieve removes the finalizers that tofu-controller put on the dependencies of a
// stack that goes. Terrier does not need them, but tofu-controller, should it come
// back, would wait for ever for a stack that is gone.
func (rm *removals) relieve(ctx context.Context, p *pass) error {
	name := p.obj.GetName()
	for _, ref := range p.st.Configuration.DependsOn {
		d, key := rm.dependencies.dialectOf(ref, p.dialect), keyOf(ref, p.obj)
		if err := rm.dependencies.referrals.check(ctx, p.dialect, p.obj, stackReferent(objectRef{d, key})); fault.Of(err) == fault.Denied {
			continue
		} else if err != nil {
			return err
		}
		dep := d.New()
		if err := rm.live.Get(ctx, key, dep); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("reading the dependency %s: %w", key, err)
		}
		before := dep.DeepCopyObject().(client.Object)
		if !controllerutil.RemoveFinalizer(dep, d.DependencyFinalizer()+name) {
			continue
		}
		// Upstream leaves out the namespace of the dependant, so that another one of
		// the same name may need the same finalizer.
		others, err := rm.dependencies.dependents(ctx, d, dep)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(others, func(o string) bool { return strings.HasSuffix(o, "/"+name) }) {
			continue
		}
		err = rm.live.Patch(ctx, dep, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing the dependency %s: %w", key, err)
		}
	}
	return nil
}

// keepLastRun keeps the report and the log of the last run of a stack that goes, which is its
// destroy if it had one: the other records go with the stack, and a user may want to see what
// was destroyed. What does not open holds up no deletion.
func (rm *removals) keepLastRun(ctx context.Context, e *entry, origin kube.Origin) error {
	id, of := e.id, e.key
	if of.Name == "" {
		return nil // only its records were found
	}
	last, name, err := rm.lastRun(ctx, id)
	if err != nil || name == "" {
		return err // a pass before this one may have kept it, and dropped the others
	}
	kind := rm.dialects.Word(e.dialect)
	to := func(file string) string { return record.Gone(kind, of.Namespace, of.Name, id, file) }
	log, err := rm.blobs.Get(ctx, record.Run(id, name, runner.FileLog))
	if err == nil {
		err = errors.Join(rm.blobs.Put(ctx, to(runner.FileLog), log), log.Close())
	}
	if err != nil && !unopened(err) {
		return fmt.Errorf("keeping the log of the last run: %w", err)
	}
	last.Gone, last.Note = rm.now(), nil
	return record.At[goneRun](to(record.ReportFile)).Write(ctx, rm.blobs, goneRun{last, origin})
}

// goneRun is the report of the last run of a deleted stack, with the origin of that stack.
type goneRun struct {
	runner.Report
	kube.Origin
}

// origin says in which namespace a stack was that goes or is gone. Existed and here are as
// kube.OriginOf takes them. A controller that may not list namespaces leaves the decision to
// those who read the record: they compare times.
func (rm *removals) origin(ctx context.Context, e *entry, existed time.Time, here bool) (kube.Origin, error) {
	created := e.createdAt()
	if e.key.Namespace == "" {
		return kube.Origin{StackCreated: created}, nil // only its records were found
	}
	n, err := kube.FindNamespace(ctx, rm.live, e.key.Namespace)
	if err != nil && fault.Of(err) != fault.Denied {
		return kube.Origin{}, fmt.Errorf("recording the namespace of a stack that goes: %w", err)
	}
	return kube.OriginOf(n, created, existed, here), nil
}

// lastRun is the report of the last run of a stack, and the name under which it is kept; that
// is empty if none is.
func (rm *removals) lastRun(ctx context.Context, id string) (last runner.Report, name string, err error) {
	keys, err := rm.blobs.List(ctx, record.Runs(id))
	if err != nil {
		return last, "", err
	}
	for _, k := range keys {
		run, file, _ := record.RunOf(id, k)
		if file != record.ReportFile {
			continue
		}
		r, err := record.At[runner.Report](k).Read(ctx, rm.blobs)
		if unopened(err) {
			continue
		}
		if err != nil {
			return last, "", fmt.Errorf("reading the last run: %w", err)
		}
		if name == "" || r.Started.After(last.Started) {
			last, name = r, run
		}
	}
	return last, name, nil
}

// unopened reports whether a record is missing, or is there and cannot be opened.
func unopened(err error) bool {
	reason := fault.Reason(err, "")
	return fault.Of(err) == fault.Missing || reason == blob.Damaged || reason == blob.KeyUnknown
}

// sweepGoneRuns removes the last runs of stacks that were deleted long ago.
func (rm *removals) sweepGoneRuns(ctx context.Context) error {
	keys, err := rm.blobs.List(ctx, record.AllGone())
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range keys {
		files, ok := record.IsGoneReport(k)
		if !ok {
			continue
		}
		r, err := record.At[runner.Report](k).Read(ctx, rm.blobs)
		switch {
		case unopened(err):
		case err != nil:
			errs = append(errs, err)
		case rm.now().Sub(r.Gone) > kube.RetainedFor:
			errs = append(errs, rm.dropGoneRun(ctx, files, k))
		}
	}
	return errors.Join(errs...)
}

// dropGoneRun removes the report last: without it nothing finds the other files.
func (rm *removals) dropGoneRun(ctx context.Context, files, report string) error {
	if err := rm.records.DropOthers(ctx, files, report); err != nil {
		return err
	}
	return rm.blobs.Delete(ctx, report)
}
