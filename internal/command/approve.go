package command

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Approve approves exactly the plan seen: if another plan is pending by now, it is
// a Conflict and nothing changes. The comment, if there is one, stays on the
// object. Approving a plan that is approved or applied already changes nothing and
// is no failure. It returns the stack as it is then.
func (s *Stacks) Approve(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error) {
	if err := checkComment(comment); err != nil {
		return query.Stack{}, err
	}
	if o, err := s.Read(ctx, key); err == nil && approved(o, seen) && !lacksApprovals(o) {
		return query.View(o), nil
	}
	o, err := s.edit(ctx, key, func(o *query.Object) error {
		if err := approvable(o); err != nil {
			return err
		}
		if err := isPending(o, seen); err != nil {
			return err
		}
		s.approve(o, seen)
		o.View.Comment = comment
		return nil
	})
	if err != nil {
		return query.Stack{}, err
	}
	return query.View(o), nil
}

// OverrideWindow has exactly the plan seen applied although policies withhold it now, by their
// windows and freezes. Where the plan needs an approval it is approved as well. Policies say
// whether a user may do so; a user without update on terraforms/windows is Denied. It returns the
// stack as it is then.
func (s *Stacks) OverrideWindow(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error) {
	if err := checkComment(comment); err != nil {
		return query.Stack{}, err
	}
	o, err := s.Read(ctx, key)
	if err != nil {
		return query.Stack{}, err
	}
	may, err := kube.SelfAllowed(ctx, s.Kube, kube.Right{Verb: "update", Subresource: "windows", Resource: dialect.ResourceOf(o.Dialect), Object: client.ObjectKeyFromObject(o.Object)})
	if err != nil {
		return query.Stack{}, access.Fault(err, "stack "+key.String())
	}
	if !may {
		return query.Stack{}, fault.New(fault.Denied, access.ReasonAccessDenied, fmt.Errorf("you may not have plans of the stack %s applied outside of the windows of policies: that needs update on terraforms/windows in the namespace %s", key, key.Namespace))
	}
	o, err = s.edit(ctx, key, func(o *query.Object) error {
		if err := isPending(o, seen); err != nil {
			return err
		}
		why := query.View(o).Undecidable
		switch {
		case query.Denied(o) != "":
			return approvable(o)
		case why != "" && (o.Spec.Mode == stack.PlanOnly || o.Spec.Mode == stack.DriftOnly):
			return cannotDecide(o.Key(), why)
		case why == "" && (!approved(o, seen) || lacksApprovals(o)):
			s.approve(o, seen)
		}
		o.View.OverrideWindow = seen.Name + " " + s.request()
		o.View.Comment = comment
		return nil
	})
	if err != nil {
		return query.Stack{}, err
	}
	return query.View(o), nil
}

// approve writes the approval of the plan seen into what is asked of a stack.
func (s *Stacks) approve(o *query.Object, seen query.PlanInfo) {
	switch {
	case o.Spec.Mode == stack.Auto && !o.Spec.Script, // which it stays
		approved(o, seen): // by another user, and a policy asks for more
		o.View.Confirm = seen.Name + " " + s.request()
	default:
		o.View.Approved = seen.Name
	}
	if o.View.Rejected == seen.Name {
		o.View.Rejected = ""
	}
}

// lacksApprovals reports whether a policy holds the pending plan until certain users have
// approved it.
func lacksApprovals(o *query.Object) bool {
	m := o.Status
	return m.Pending != nil && m.Review != nil && m.Review.Held && policy.Restricted(m.Review.Findings)
}

// approved reports whether exactly the plan seen was approved before. Only a digest
// can say so: an earlier plan may have had the same name.
func approved(o *query.Object, seen query.PlanInfo) bool {
	m := o.Status
	if seen.Digest == "" || o.Deleting() {
		return false
	}
	if p := m.Pending; p != nil && p.Digest == seen.Digest && p.Name == seen.Name {
		return p.Is(o.View.Approved) || o.Spec.Approves(p)
	}
	return m.Applied != nil && m.Applied.Digest == seen.Digest && m.Applied.Name == seen.Name
}

// Reject withdraws an approval of the plan seen that was not acted upon yet, and
// notes on the object that the plan was rejected. The plan stays until another one
// replaces it. If a run applies the plan by now, or has applied it, that is a Conflict;
// the object and the audit log have the rejection all the same.
func (s *Stacks) Reject(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error) {
	if err := checkComment(comment); err != nil {
		return query.Stack{}, err
	}
	var late error
	o, err := s.edit(ctx, key, func(o *query.Object) error {
		if late = tooLate(o, seen); late == nil {
			if err := approvable(o); err != nil {
				return err
			}
			if err := isPending(o, seen); err != nil {
				return err
			}
		}
		if a := o.View.Approved; seen.Is(a) || o.Status.Pending.Is(a) {
			o.View.Approved = ""
		}
		if a := o.Spec.Confirmed(); seen.Is(a) || o.Status.Pending.Is(a) {
			o.View.Confirm = ""
		}
		o.View.OverrideWindow = ""
		o.View.Rejected, o.View.Comment = seen.Name, comment
		return nil
	})
	if err == nil {
		err = late
	}
	if err != nil {
		return query.Stack{}, err
	}
	return query.View(o), nil
}

// tooLate says that a run applies the plan seen, or has applied it; nil if neither. The
// controller writes the run into the status before it starts.
func tooLate(o *query.Object, seen query.PlanInfo) error {
	s := query.View(o)
	switch {
	case s.Undecidable != "" && !seen.Is(s.Approved):
		return nil // no plan needs an approval
	case s.Pending == seen.Name && s.Run != nil && stack.RunKind(s.Run.Kind).Applies():
		return fault.New(fault.Conflict, query.ReasonTooLate, fmt.Errorf("the run %s applies the plan %s already: your rejection came too late; it is noted on the stack and in the audit log", s.Run.ID, seen.Name))
	case s.Pending != seen.Name && s.Applied != nil && s.Applied.Name == seen.Name && (seen.Digest == "" || s.Applied.Digest == seen.Digest):
		return fault.New(fault.Conflict, query.ReasonWasApplied, fmt.Errorf("%s: your rejection came too late; it is noted on the stack and in the audit log", s.AppliedText()))
	default:
		return nil
	}
}

// commentBytes bounds a comment: it stays on the object.
const commentBytes = 2000

func checkComment(comment string) error {
	if len(comment) > commentBytes {
		return fault.New(fault.Invalid, "CommentTooLong", fmt.Errorf("the comment has %d bytes, and may have %d", len(comment), commentBytes))
	}
	return nil
}

// approvable refuses an approval where the object has chosen another mode: it does
// not hold for one plan only.
func approvable(o *query.Object) error {
	if why := query.Denied(o); why != "" {
		return fault.New(fault.Invalid, query.ReasonDenied, fmt.Errorf("the stack %s cannot have its plan approved: %s", o.Key(), why))
	}
	why := query.View(o).Undecidable
	if why == "" {
		return nil
	}
	return cannotDecide(o.Key(), why)
}

func cannotDecide(key query.Key, why string) error {
	return fault.New(fault.Invalid, query.ReasonNotManual, fmt.Errorf("plans of the stack %s cannot be approved or rejected: %s", key, why))
}

// isPending checks that the pending plan is the one that the user saw. The digest
// counts where both sides know it.
func isPending(o *query.Object, seen query.PlanInfo) error {
	name := o.View.Pending
	if name == "" {
		return fault.New(fault.Conflict, query.ReasonNoPlan, fmt.Errorf("the stack %s has no pending plan", o.Key()))
	}
	if name != seen.Name {
		return fault.New(fault.Conflict, query.ReasonPlanChanged, fmt.Errorf("the pending plan is %s, not %s", name, seen.Name))
	}
	p := o.Status.Pending
	if p != nil && p.Name == name && seen.Digest != "" && p.Digest != seen.Digest {
		return fault.New(fault.Conflict, query.ReasonPlanChanged, fmt.Errorf("the plan %s was replaced by one of the same name since it was shown", name))
	}
	return nil
}

// Pending returns the pending plan, which has to be the one called name unless name
// is empty. If no plan is pending it returns the plan called name if that was applied
// last: it was decided about already.
func Pending(s query.Stack, name string) (query.PlanInfo, error) {
	switch {
	case s.Pending == "" && name != "" && s.Applied != nil && (name == s.Applied.Name || name == s.Applied.Digest):
		return *s.Applied, nil
	case s.Pending == "" && s.Undecidable != "":
		return query.PlanInfo{}, cannotDecide(s.Key(), s.Undecidable)
	case s.Pending == "" && s.Applied != nil:
		return query.PlanInfo{}, fault.New(fault.Missing, query.ReasonNoPlan, fmt.Errorf("the stack %s has no pending plan: %s", s.Key(), s.AppliedText()))
	case s.Pending == "":
		return query.PlanInfo{}, fault.New(fault.Missing, query.ReasonNoPlan, fmt.Errorf("the stack %s has no pending plan", s.Key()))
	case name != "" && name != s.Pending && (s.Plan == nil || !s.Plan.Is(name)):
		return query.PlanInfo{}, fault.New(fault.Conflict, query.ReasonPlanChanged, fmt.Errorf("the pending plan is %s, not %s", s.Pending, name))
	case s.Plan == nil:
		return query.PlanInfo{Name: s.Pending}, nil
	default:
		return *s.Plan, nil
	}
}

// Replan requests a new plan and returns the request, which Answered waits for. It
// covers all earlier requests that were not answered yet.
func (s *Stacks) Replan(ctx context.Context, key query.Key) (request string, err error) {
	request = s.request()
	_, err = s.edit(ctx, key, func(o *query.Object) error {
		if o.View.Suspended {
			return fault.New(fault.Invalid, "Suspended", fmt.Errorf("the stack %s is suspended", key))
		}
		o.View.Replan = request
		return nil
	})
	return request, err
}

// Suspend stops reconciling a stack; a run that goes on ends first.
func (s *Stacks) Suspend(ctx context.Context, key query.Key) error {
	return s.setSuspended(ctx, key, true)
}

// Resume reconciles a stack again.
func (s *Stacks) Resume(ctx context.Context, key query.Key) error {
	return s.setSuspended(ctx, key, false)
}

func (s *Stacks) setSuspended(ctx context.Context, key query.Key, to bool) error {
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		o.View.Suspended = to
		return nil
	})
	return err
}

// Unlock allows Terrier to break the foreign state lock called id. It must be the
// lock that blocks the stack now.
func (s *Stacks) Unlock(ctx context.Context, key query.Key, id string) error {
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		switch held := o.View.Lock; {
		case held == "":
			return fault.New(fault.Conflict, "NoLock", fmt.Errorf("no lock blocks the stack %s", key))
		case held != id:
			return fault.New(fault.Conflict, "LockChanged", fmt.Errorf("the lock that blocks the stack %s is %s, not %s", key, held, id))
		}
		o.View.Unlock, o.View.Replan = id, s.request()
		return nil
	})
	return err
}
