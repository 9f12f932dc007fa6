package stack

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
)

// Who approved the pending plan, and who asked for what it does. A policy may want certain
// users to approve, and the user who asked for a change to be none of them.

// Approving is what the status says of approvals, for users: it is found out in each pass.
type Approving struct {
	Approvals  []policy.Given    `json:"approvals,omitempty"`  // of plans that are or were held, and when each was seen first
	Overrides  []policy.Given    `json:"overrides,omitempty"`  // of windows and freezes, of the pending plan: each by a user who may, and when it was seen first
	Unverified string            `json:"unverified,omitempty"` // why no stamp can be believed; empty if the stamps can
	Requesters policy.Requesters `json:"requesters,omitzero"`  // of the pending plan, if a policy wants to know

	Overridable bool `json:"overridable,omitempty"` // users may have the pending plan applied although windows or freezes withhold it now

	Powerless []string `json:"powerless,omitempty"` // users who want to override a window and lack the right
	Unproven  string   `json:"unproven,omitempty"`  // why it is not known who overrides a window; empty if it is
}

// Approvers is what a controller keeps of the approvals and changes of a stack, out of reach
// of users who may write the status.
type Approvers struct {
	Seen      []policy.Given `json:"seen,omitempty"`      // approvals of plans that are or were held, and when each was seen first
	Overrides []policy.Given `json:"overrides,omitempty"` // of windows and freezes, likewise

	// What the last plan was made from that was applied or had no changes, and which change of
	// the object was the newest then.
	Inputs PlanInputs `json:"inputs,omitzero"`
	Epoch  string     `json:"epoch,omitempty"` // of the number
	Number int        `json:"number,omitempty"`
}

// External says which parts of what a plan is made from come from outside of the object.
type External struct {
	Source bool // the module is in a source
	Inputs bool // Secrets, ConfigMaps, outputs, a Vault or the metadata of the object are read
}

// RequestersOf are the users who changed the object since the last apply, and whether others
// may have asked for what a plan of these inputs does: those who changed the source or what
// the stack reads, and those whose changes the API server did not stamp. A user who changes
// the object in between, and changes it back, is one of them and takes the place of none.
func (a Approvers) RequestersOf(o Observation, of External) policy.Requesters {
	if o.Deleting {
		return policy.Requesters{Unknown: "Kubernetes does not record who deletes an object"}
	}
	var r policy.Requesters
	since, gap := 0, a.Epoch != o.Spec.Stamped || a.Epoch == ""
	if !gap {
		since = max(1, a.Number) // the object was there, and the number 1 is that of its creation
	}
	for i, c := range o.Spec.Changes {
		gap = gap || i == 0 && c.Number > since+1
		if c.Number > since && !slices.Contains(r.Users, c.By) {
			r.Users = append(r.Users, c.By)
		}
	}
	was, is := a.Inputs, o.PlanInputs
	switch {
	case of.Source && was.Source != is.Source && is.Source != "":
		r.Unknown = "the source changed"
	case of.Inputs && was.Inputs != is.Inputs:
		r.Unknown = "a Secret, a ConfigMap, an output, a label or an annotation that the stack reads may have changed"
	case was.Engine != is.Engine && was.Engine != "":
		r.Unknown = "the engine changed"
	case gap && was != (PlanInputs{}):
		r.Unknown = "the API server has not recorded all changes since the last apply"
	case gap && len(o.Spec.Changes) > 0 && o.Spec.Changes[0].Number > 1:
		r.Unknown = "the API server has not kept all changes of the object"
	}
	return r
}

// Settled is a once a run has ended after which the resources are as the inputs of the run
// want them. The epoch and the number are those of the object when the run began.
func (a Approvers) Settled(r Run, epoch string, number int) Approvers {
	if r.Outcome != Succeeded {
		return a
	}
	if applies := r.Kind.Applies() || (r.Kind == PlanRun || r.Kind == CheckRun) && r.Plan == nil; !applies {
		return a
	}
	a.Inputs, a.Epoch, a.Number = r.Cause.PlanInputs, epoch, number
	return a
}

// seenMost bounds how many approvals are kept: twice as many as the API server does.
const seenMost = 42

// WithStamps keeps when the approvals of a spec were seen first, also if another plan is
// pending meanwhile: a stamp has no time. Approvals of a plan that no policy holds are not kept,
// and those of steps after an apply only where a policy says who approves.
func (a Approvers) WithStamps(m Status, s Spec, now time.Time) Approvers {
	held := m.Pending != nil && m.Review != nil && m.Review.Held && m.Review.Plan == m.Pending.Digest
	steps := ""
	if known := KnownSteps(m); known != nil && s.Approvers {
		steps = ShortSteps(known.Approvable())
	}
	a.Seen = seenAt(a.Seen, s.Approvals, now, func(name string) bool {
		return held && m.Pending.Is(name) || steps != "" && name == steps
	})
	a.Overrides = seenAt(a.Overrides, s.Overrides, now, m.Pending.Is)
	return a
}

// seenAt are what users gave, with the times at which it was seen before. The others were seen
// now if they are to be kept.
func seenAt(before, given []policy.Given, now time.Time, keep func(plan string) bool) []policy.Given {
	var kept []policy.Given
	for _, g := range given {
		i := slices.IndexFunc(before, func(seen policy.Given) bool { return seen.Plan == g.Plan && seen.By == g.By })
		switch {
		case i >= 0:
			g.At = before[i].At
		case keep(g.Plan):
			g.At = now.UTC().Truncate(time.Second)
		default:
			continue
		}
		kept = append(kept, g)
	}
	return kept[max(0, len(kept)-seenMost):]
}

// Same reports whether a says what b says.
func (a Approvers) Same(b Approvers) bool {
	same := func(x, y policy.Given) bool {
		return x.Plan == y.Plan && x.By == y.By && x.At.Equal(y.At) && slices.Equal(x.Groups, y.Groups)
	}
	return a.Inputs == b.Inputs && a.Epoch == b.Epoch && a.Number == b.Number &&
		slices.EqualFunc(a.Seen, b.Seen, same) && slices.EqualFunc(a.Overrides, b.Overrides, same)
}

// Restricted reports whether a policy holds the pending plan until certain users have
// approved it.
func Restricted(o Observation) bool {
	v := o.held()
	return v != nil && policy.Restricted(v.Findings)
}

// Lacks says which approvals the pending plan lacks that a policy asks for; empty if none, and
// if no policy holds it.
func Lacks(o Observation) []policy.Lack {
	v := o.held()
	if v == nil {
		return nil
	}
	return policy.Lacks(v.Findings, Given(o), o.Status.Requesters, o.Now)
}

// lacks is Lacks as a sentence.
func lacks(o Observation) string {
	v := o.held()
	if v == nil {
		return ""
	}
	return policy.Missing(v.Findings, Given(o), o.Status.Requesters, o.Now)
}

// Given are the approvals of the pending plan. Where the stamps are not believed, it is not
// known whose they are, so that a policy that asks for certain users is not satisfied.
func Given(o Observation) []policy.Given {
	p := o.Status.Pending
	if o.Status.Unverified != "" {
		return nil
	}
	var stamped []policy.Given
	for _, g := range o.Status.Approvals {
		if p.Is(g.Plan) {
			stamped = append(stamped, g)
		}
	}
	switch {
	case !o.named() && !o.repaired():
		return nil
	case o.named() && len(stamped) > 0:
		return stamped
	case p.Is(o.Spec.Rejected): // after the approval, which the API server removed then
		return nil
	default:
		return []policy.Given{{Plan: p.Name}}
	}
}

// ApprovedNames are what approves a plan, or has it applied outside of windows, now or once the
// object names the plan again. A plan that gets a name gets none of these.
func (s Spec) ApprovedNames() []string {
	names := []string{s.Approved, s.Confirmed(), s.overridden()}
	for _, g := range slices.Concat(s.Approvals, s.Overrides) {
		names = append(names, g.Plan)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// approving is the command by which the pending plan is approved, in the words of the kind. A
// stack that applies plans by itself goes on to do so after it.
func approving(o Observation) string {
	if name := o.Status.Pending.Name; o.Spec.Mode == Auto && !o.Spec.Script {
		return "annotate it with terrier.dev/confirm=" + name
	}
	return fmt.Sprintf("set %s: %q", o.Spec.Words.Approved, o.Status.Pending.Name)
}

// approvingNext is the sentence for the next user who approves a plan that another one has
// approved, empty if no approval can be verified.
func approvingNext(o Observation) string {
	if o.Status.Unverified != "" {
		return " No approval can be verified: " + strings.TrimRight(o.Status.Unverified, ". ") + "."
	}
	if o.Spec.Words.Argument == "" || !o.named() {
		return ""
	}
	return " The next user runs: terrier approve " + o.Spec.Words.Argument + " " + o.Status.Pending.Name
}
