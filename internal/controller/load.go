package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/stack"
)

// loader begins passes.
type loader struct {
	blobs  records.Blobs
	cache  client.Client
	events Events
	live   client.Client
	now    func() time.Time
	queue  Queue
	index  *index

	policies Policies
}

// load begins a pass: it reads the object, finds its entry and decodes both. Outside
// of this process it writes nothing, except the event that a status was lost. A pass with
// an error is one whose object was read and whose records were not. There is no pass if
// there is nothing to be decided about the object: it is gone, or it was released and the
// finalizer of another controller holds it.
func (ld *loader) load(ctx context.Context, of objectRef) (*pass, error) {
	obj, cached, err := ld.readObject(ctx, of)
	if err != nil {
		return nil, err
	}
	id := string(obj.GetUID())
	if !obj.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(obj, of.dialect.Finalizer()) {
		ld.queue.Leave(id)
		return nil, nil
	}
	p := &pass{dialect: of.dialect, obj: obj, stale: cached, id: id, entry: ld.index.make(id, of)}
	p.entry.created.Store(obj.GetCreationTimestamp().Unix())
	return p, ld.decode(ctx, p)
}

// When a record is read again that could not be. Nothing else wakes its stack.
const (
	unreadableRecheck = time.Minute      // once an operator has done something
	failedRecheck     = 20 * time.Second // what was in the way may pass
)

// cannotRead has the pass say that a record beside the status cannot be read, and decide
// nothing. Users see it, and what helps.
func (p *pass) cannotRead(err error) {
	if fault.Of(err) == fault.Later { // an operator has to do something, and the error says what
		p.recheckIn(unreadableRecheck)
	} else {
		p.recheckIn(failedRecheck)
		err = fault.New(fault.Later, fault.Reason(err, ""), fmt.Errorf("%w. If that does not pass, restore the record from a backup", err))
	}
	p.unreadable, p.o.Unreadable = err, err.Error()
}

// decode begins the observation with what the object says.
func (ld *loader) decode(ctx context.Context, p *pass) error {
	var err error
	p.st, err = p.dialect.Decode(p.obj)
	lacks := ld.completeStatus(ctx, p)
	p.restoreVerdict()
	p.o = stack.Observation{
		Now: ld.now(), Spec: p.st.Spec, Status: p.st.Status, Replan: p.st.Replan,
		Deleting: !p.obj.GetDeletionTimestamp().IsZero(),
	}
	if lacks != nil {
		p.cannotRead(lacks)
		return nil
	}
	switch unjudged := ld.judging(ctx, p); fault.Of(unjudged) {
	case fault.None:
		err = cmp.Or(err, p.policies.Invalid)
	case fault.Invalid, fault.Denied:
		err = unjudged
	default: // it is not known which policies judge the stack, or what they judge; Later: not yet
		return unjudged
	}
	switch fault.Of(err) {
	case fault.None:
		p.o.Status = p.o.Status.WithoutOldFailure(p.o.Spec)
	case fault.Invalid, fault.Denied:
		p.o.Blocked = blockedBy(err, stack.SpecInvalid)
	default:
		p.unreadable, p.o.Unreadable = err, err.Error()
		return nil
	}
	if err := ld.restoreStatus(ctx, p); err != nil {
		p.cannotRead(err)
	}
	return nil
}

// restoreVerdict gives the status the newest verdict, if it was not written: see more.
func (p *pass) restoreVerdict() {
	p.reviewed = p.st.Status.Review
	if is, ok := stack.Repeated(p.st.Status, p.entry.verdict); ok {
		p.st.Status = is
	} else {
		p.entry.verdict = nil
	}
}

// judging finds the policies that judge the stack, which is decoded. Policies join the reviewers
// that the object names.
func (ld *loader) judging(ctx context.Context, p *pass) error {
	set, err := ld.policies.For(ctx, p.obj)
	if err != nil {
		return fmt.Errorf("reading the policies: %w", err)
	}
	p.policies = set
	p.o.Spec.Policies, p.o.Spec.Times, p.o.Spec.Drift = set.Digest, set.Times, set.Drift
	p.o.Spec.Approvers, p.o.Spec.ApprovalRules = len(set.Approvals) > 0, set.Approvals
	p.o.Spec.Webhooks = p.o.Spec.Reviews != ""
	p.o.Spec.Reviews = review.Digest(p.o.Spec.Reviews, set.Digest)
	return nil
}
