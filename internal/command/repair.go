package command

import (
	"context"
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// ReasonNothingUntracked is the reason of a repair of a stack without untracked
// resources.
const ReasonNothingUntracked = "NoUntrackedResources"

// RepairAnswers are what a user knows of untracked resources.
type RepairAnswers struct {
	IDs    map[string]string `json:"ids,omitempty"`    // to import them by, by address
	Absent []string          `json:"absent,omitempty"` // addresses of resources that do not exist
}

// PlanRepair requests a plan that imports the untracked resources, and returns the
// request, which Answered waits for. If none of them exists, it requests an
// ordinary plan.
func (s *Stacks) PlanRepair(ctx context.Context, key query.Key, a RepairAnswers) (request string, err error) {
	request = s.request()
	_, err = s.edit(ctx, key, func(o *query.Object) error {
		if err := repairable(key, o.Spec, o.Status); err != nil {
			return err
		}
		r, err := repairOf(o.Stack, a)
		if err != nil {
			return err
		}
		if len(r.Absent) == o.Status.Untracked.Count() {
			o.View.IgnoreUntracked = r.Run
		} else {
			o.View.Repair = &r
		}
		o.View.Replan = request
		return nil
	})
	return request, err
}

func repairable(key query.Key, spec stack.Spec, m stack.Status) error {
	switch {
	case m.Untracked == nil || spec.IgnoreUntracked == m.Untracked.Run:
		return fault.New(fault.Conflict, ReasonNothingUntracked, fmt.Errorf("the stack %s has no untracked resources to repair", key))
	case spec.Suspended:
		return fault.New(fault.Invalid, "Suspended", fmt.Errorf("the stack %s is suspended", key))
	case spec.Mode == stack.DriftOnly:
		return fault.New(fault.Invalid, query.ReasonNotManual, fmt.Errorf("the stack %s imports nothing while approvePlan is disable: then it only detects drift", key))
	default:
		return nil
	}
}

// repairOf adds the answers to earlier ones about the same untracked resources.
func repairOf(asked dialect.Stack, a RepairAnswers) (stack.Repair, error) {
	g := asked.Status.Untracked
	r := stack.Repair{Run: g.Run, IDs: map[string]string{}}
	if old := asked.Spec.Repair; old != nil && old.Run == g.Run {
		r.Absent = slices.Clone(old.Absent)
		for address, id := range old.IDs {
			r.IDs[address] = id
		}
	}
	listed := func(address string) error {
		if g.More > 0 || slices.ContainsFunc(g.Objects, func(u stack.UntrackedResource) bool { return u.Address == address }) {
			return nil
		}
		return fault.New(fault.Invalid, "Usage", fmt.Errorf("%q is not an untracked resource", address))
	}
	for address, id := range a.IDs {
		if err := listed(address); err != nil {
			return r, err
		}
		r.IDs[address] = id
		r.Absent = slices.DeleteFunc(r.Absent, func(s string) bool { return s == address })
	}
	for _, address := range a.Absent {
		if err := listed(address); err != nil {
			return r, err
		}
		delete(r.IDs, address)
		if !slices.Contains(r.Absent, address) {
			r.Absent = append(r.Absent, address)
		}
	}
	for _, u := range g.Objects {
		if u.ID == "" && r.IDs[u.Address] == "" && !slices.Contains(r.Absent, u.Address) {
			return r, fault.New(fault.Invalid, "RepairUnclear", fmt.Errorf("%s may exist, and the ID to import it by is not known", u.Address))
		}
	}
	return r, nil
}

// Repair applies exactly the repair plan seen: if another plan is pending by now, it
// is a Conflict and nothing changes.
func (s *Stacks) Repair(ctx context.Context, key query.Key, seen query.PlanInfo) error {
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		if err := repairable(key, o.Spec, o.Status); err != nil {
			return err
		}
		if o.Spec.Repair == nil || o.Spec.Repair.Run != o.Status.Untracked.Run {
			return fault.New(fault.Conflict, query.ReasonNoPlan, fmt.Errorf("the stack %s has no repair plan", key))
		}
		if err := isPending(o, seen); err != nil {
			return err
		}
		r := *o.Spec.Repair
		r.Plan = seen.Name
		o.View.Repair = &r
		return nil
	})
	return err
}

// PreviewDestroy requests a plan of a destroy, waits for it, and returns it as a
// document, which cannot be approved. Without resources to destroy there is no
// document.
func (s *Stacks) PreviewDestroy(ctx context.Context, key query.Key) (query.PlanDocument, error) {
	request := s.request()
	o, err := s.edit(ctx, key, func(o *query.Object) error {
		if o.Deleting() {
			return fault.New(fault.Conflict, "Deleting", fmt.Errorf("the stack %s is being deleted", key))
		}
		if o.View.Suspended {
			return fault.New(fault.Invalid, "Suspended", fmt.Errorf("the stack %s is suspended", key))
		}
		o.View.Preview = request
		return nil
	})
	if err != nil {
		return query.PlanDocument{}, err
	}
	id := o.ID()
	waiting, stuck := untilStalled(ctx)
	defer stuck.end()
	for seen, err := range s.Changes(waiting, key.Filter()) {
		stuck.moves()
		if waiting.Err() != nil {
			break
		}
		if err != nil {
			return query.PlanDocument{}, err
		}
		m := seen.Status
		switch {
		case seen.Gone:
			return query.PlanDocument{}, fault.New(fault.Missing, access.ReasonNotFound, fmt.Errorf("the stack %s was deleted", key))
		case m.Previewed != request:
			if now := query.View(seen.Object); cannotAnswer(now) || now.Suspended && now.Run == nil {
				stuck.at(stalled(now, "cannot plan a destroy"))
			}
		case m.NoPreview != "":
			return query.PlanDocument{}, fault.New(fault.Broken, "PreviewFailed", fmt.Errorf("a destroy of %s could not be planned: %s", key, m.NoPreview))
		case m.Preview == nil:
			return query.PlanDocument{}, nil
		default:
			return s.Document(ctx, id, *query.PlanInfoOf(m.Preview))
		}
	}
	if err := stuck.stalled(); err != nil {
		return query.PlanDocument{}, err
	}
	return query.PlanDocument{}, Unanswered(ctx, key)
}
