// Package approvals finds out who approved and who rejected plans of stacks, and who asked for
// what they do. It believes no annotation that the API server is not known to have stamped, and
// decides nothing: what follows is decided by package stack.
//
// Start reading at Verifier.Verify.
package approvals

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Stamps says which stamps of the API server may be believed.
type Stamps interface {
	// Epoch returns the epoch of the stamps that the API server puts on objects now. An
	// error says in words for the user why no stamp can be believed, and what to do.
	Epoch(ctx context.Context) (string, error)
}

// Verifier finds out who approved a plan, and who asked for what it does.
type Verifier struct {
	Blobs  records.Blobs
	Stamps Stamps // nil believes no stamps
	Live   client.Client
}

// Subject is the stack whose approvals are meant, as a pass has it.
type Subject struct {
	ID      string // the UID of the object
	Dialect dialect.Dialect
	Object  client.Object
	Asked   dialect.Stack // what the object asks for, as it had it when the pass began

	// Observed is what the pass observes. What is found out is noted in its spec and its status.
	Observed *stack.Observation

	// Known is what is remembered of the record of the approvals; it points to nil before that
	// was read.
	Known **stack.Approvers
}

// again is after what time a plan is reconciled once more whose approvals could not be
// verified. No object changes when the API server begins to stamp.
const again = time.Minute

// Verify finds who decided about the pending plan. Where a policy asks for certain users, it
// finds the approvals that can be believed, too, and keeps when it saw each of them first. It
// asks the API server for nothing where no user has decided and no policy wants to know. It
// returns when to try again what could not be verified; zero if all could.
func (v *Verifier) Verify(ctx context.Context, of Subject) (recheck time.Duration, err error) {
	o := of.Observed
	if o.Spec.RejectedBy != "" && o.Status.Pending.Is(o.Spec.Rejected) {
		o.Spec.RejectedBy, _ = v.Author(ctx, of, kube.DecidedBy)
	}
	v.decided(ctx, of)
	wanted, overrides := stack.Restricted(*o) || stack.ConfirmsSteps(*o), stack.WantsOverride(*o)
	known, err := v.known(ctx, of, wanted || overrides)
	if err != nil {
		return 0, err
	}
	was := o.Status.Approving
	o.Status.Approving = stack.Approving{Overridable: stack.Overridable(*o) != nil}
	if !wanted && !overrides && len(known.Seen)+len(known.Overrides) == 0 {
		return recheck, nil
	}
	epoch, err := v.Epoch(ctx)
	if err != nil {
		if wanted {
			o.Status.Unverified = err.Error()
		}
		if overrides {
			o.Status.Unproven = err.Error()
		}
		if wanted || overrides {
			recheck = again
		}
		o.Status.Approvals = was.Approvals // they are not counted, and their times are in the record
		return recheck, nil
	}
	if epoch != o.Spec.Stamped {
		o.Spec.Approvals, o.Spec.Changes, o.Spec.Overrides = nil, nil, nil // users may have written them
	}
	now := known.WithStamps(o.Status, o.Spec, o.Now)
	if err := v.keep(ctx, of, now); err != nil {
		return 0, err
	}
	o.Status.Approvals = now.Seen
	if wanted || overrides {
		c := of.Asked.Configuration
		o.Status.Requesters = now.RequestersOf(*o, stack.External{Source: c.Source != nil, Inputs: input.Outside(c)})
	}
	if overrides {
		recheck = v.overrides(ctx, of, now.Overrides)
	}
	return recheck, nil
}

// decided notes who approved or rejected the pending plan, once the API server is known to have
// recorded that user. It asks about no plan and user that is noted already.
func (v *Verifier) decided(ctx context.Context, of Subject) {
	m, by := &of.Observed.Status, of.Object.GetAnnotations()[kube.DecidedBy]
	if by == "" || !of.Observed.Spec.Decides(m.Pending) || stack.Verified(*m, of.Observed.Spec, by) {
		return
	}
	if who, unknown := v.Author(ctx, of, kube.DecidedBy); unknown == "" {
		m.Decider = &stack.Decider{Plan: m.Pending.Name, By: who}
	}
}

// overrides finds the users who want the pending plan to be applied outside of windows, and who
// may. They are asked about each time, so that a right that was revoked does not count. It returns
// when to ask again, if the API server did not answer.
func (v *Verifier) overrides(ctx context.Context, of Subject, given []policy.Given) (recheck time.Duration) {
	m := &of.Observed.Status
	if len(of.Observed.Spec.Overrides) == 0 {
		m.Unproven = "the API server did not record the user of the annotation " + kube.OverrideWindow + ". Write it again, with other words behind the name of the plan"
		return 0
	}
	right := kube.Right{Verb: "update", Subresource: "windows", Resource: dialect.ResourceOf(of.Dialect), Object: client.ObjectKeyFromObject(of.Object)}
	for _, g := range given {
		if !m.Pending.Is(g.Plan) {
			continue
		}
		may, err := kube.Allowed(ctx, v.Live, g.By, g.Groups, right)
		if err != nil {
			m.Overrides, m.Powerless, m.Unproven = nil, nil, err.Error()
			return again
		}
		if may {
			m.Overrides = append(m.Overrides, g)
		} else {
			m.Powerless = append(m.Powerless, g.By)
		}
	}
	return 0
}

// Author is the user whom a stamp on the object names, or why it is not known who it was. A stamp
// counts if it is of the epoch of now.
func (v *Verifier) Author(ctx context.Context, of Subject, stamp string) (who, unknown string) {
	epoch, err := v.Epoch(ctx)
	switch {
	case err != nil:
		return "", err.Error()
	case epoch != of.Asked.Spec.Stamped || of.Object.GetAnnotations()[stamp] == "":
		return "", "the API server did not record the user, or an operator has changed the policy of the records since"
	default:
		return of.Object.GetAnnotations()[stamp], ""
	}
}

// Epoch is Stamps.Epoch.
func (v *Verifier) Epoch(ctx context.Context) (string, error) {
	if v.Stamps == nil {
		return "", errors.New("this controller cannot ask the API server whether it records users")
	}
	return v.Stamps.Epoch(ctx)
}

// known is what was kept of the approvals of a stack. A stack of which the status has none, and
// that no policy holds, costs no read.
func (v *Verifier) known(ctx context.Context, of Subject, wanted bool) (stack.Approvers, error) {
	if *of.Known != nil {
		return **of.Known, nil
	}
	if !wanted && len(of.Observed.Status.Approvals) == 0 {
		return stack.Approvers{}, nil
	}
	a, err := record.Approvers(of.ID).Read(ctx, v.Blobs)
	if err != nil && fault.Of(err) != fault.Missing {
		return a, fmt.Errorf("reading the approvals that were seen: %w", err)
	}
	*of.Known = &a
	return a, nil
}

// keep writes what is kept, if it is another thing than before.
func (v *Verifier) keep(ctx context.Context, of Subject, now stack.Approvers) error {
	if *of.Known != nil && (*of.Known).Same(now) {
		return nil
	}
	if err := record.Approvers(of.ID).Write(ctx, v.Blobs, now); err != nil {
		return fmt.Errorf("keeping the approvals that were seen: %w", err)
	}
	*of.Known = &now
	return nil
}

// Settled keeps which changes of the object an apply had, by the epoch of their stamps and the
// number of the newest of them, for policies that want to know who requested the next one.
func (v *Verifier) Settled(ctx context.Context, of Subject, run stack.Run, epoch string, newest int) error {
	was, err := v.known(ctx, of, true)
	if err != nil {
		return err
	}
	if now := was.Settled(run, epoch, newest); !now.Same(was) {
		return v.keep(ctx, of, now)
	}
	return nil
}

// NewestChange is the number of the newest change of an object that the API server stamped, 0
// if it stamped none.
func NewestChange(s stack.Spec) int {
	if len(s.Changes) == 0 {
		return 0
	}
	return s.Changes[len(s.Changes)-1].Number
}

// Users are the users who approved a plan, for the audit log.
func Users(given []policy.Given) []string {
	var all []string
	for _, g := range given {
		if g.By != "" {
			all = append(all, g.By)
		}
	}
	return all
}
