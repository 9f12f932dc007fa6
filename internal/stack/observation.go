package stack

import (
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
)

// Observation is everything that Decide may look at.
type Observation struct {
	Now          time.Time
	Spec         Spec
	Status       Status
	Deleting     bool
	Dependents   []string        // stacks that depend on this one and still exist
	PlanInputs   PlanInputs      // what a plan would be made from now; of a destroy of a deleted stack once one has failed, or is pending
	Pod          string          // digest of what the pod of a run would be made of now; empty if runs have none, or it is not known
	Corrected    bool            // a deleted stack is destroyed from PlanInputs as they are now, and not from the record of the last apply
	Blocked      *Blocked        // why PlanInputs cannot be known; nil when it is
	Waiting      *Blocked        // the first dependency that is not ready
	Unmet        *Blocked        // what the prerequisites lack; nil if all are met, or there are none
	Run          *Run            // the run that goes on
	Replan       string          // the newest request of a person
	CheckedAt    time.Time       // the last drift check
	DriftedAt    time.Time       // the last drift check that found drift; zero if that is not known
	BudgetUntil  time.Time       // until when a due drift check waits for a budget; zero if it does not
	SourceAt     time.Time       // since when the source has what a plan would be made from; zero if that is not known
	Spent        policy.Withheld // why the pending plan destroys more than policies allow in an hour; zero if it does not
	OtherDestroy bool            // PlanInputs differ from those of the last apply in the script that destroys, and in nothing else
	Steps        *Steps          // that follow an apply; nil if there are none, or they are not known
	Unwritten    bool            // the published outputs are missing or not what was written

	// What a pass met on its way.
	Unreadable string   // why the status in the object cannot be read; empty if it can
	Unsettled  *Blocked // why a run that ended could not be taken over, or a run could not be read
	Obstacle   *Blocked // what came in the way of the action that was decided
	Queued     string   // what the run that was decided waits for; empty if it started
	Asking     bool     // the reviewers are being asked about the pending plan
}

// Blocked is something that must change before a plan can be made.
type Blocked struct {
	Kind    fault.Kind
	Reason  Reason
	Message string
	After   time.Duration // when to look again; zero means the retry interval
}

// AwaitsInput reports whether an input does not exist yet. A stack that is a
// dependency may be about to publish it.
func (b Blocked) AwaitsInput() bool { return b.Kind == fault.Missing && b.Reason == InputsFailed }

func (o Observation) running() bool { return o.Run != nil && !o.Run.Done }

// requested reports whether a person asked for something that was not answered.
func (o Observation) requested() bool {
	return o.Replan != "" && o.Replan != o.Status.HandledReplan
}

// answers is the request that a answers, empty if it answers none. A request ends the
// pause after a failure, so every run answers it that starts while it is open,
// whatever comes of the run: one request is one attempt. A preview and a command of a
// session answer requests of their own.
func answers(o Observation, a Action) string {
	if !o.requested() {
		return ""
	}
	switch a := a.(type) {
	case Start:
		if a.Kind != PreviewRun && a.Kind != BreakGlassRun && a.Kind != StepsRun {
			return o.Replan
		}
	case Apply, RunScript, Destroy:
		return o.Replan
	case Wait, Cancel, Publish, Renew, RollBack, Review, Finish:
	}
	return ""
}

// changed names what changed since the last plan.
func changed(o Observation) string {
	switch parts := o.Status.Planned.Differs(o.PlanInputs); {
	case o.Status.Rollback != nil && !o.Status.Rollback.To.is(o.Status.Planned):
		return "rollback to " + o.PlanInputs.Revision
	case o.Status.Planned == PlanInputs{} && o.Status.PlanNote != "":
		return o.Status.PlanNote
	case o.Status.Planned == PlanInputs{}:
		return "first plan"
	default:
		return join(parts) + " changed"
	}
}

// Publication names one way of publishing one state.
func Publication(outputs, state string) string { return outputs + "/" + state }

// masked marks a publication in which every output counts as sensitive, since it is
// not known which are.
const masked = "/masked"

// PublishedMasked is a publication that is to be repeated once it is known which
// outputs are sensitive.
func PublishedMasked(publication string) string { return publication + masked }

// PublishAgain is what was published, changed so that a publication of
// PublishedMasked is repeated.
func PublishAgain(published string) string {
	if strings.HasSuffix(published, masked) {
		return masked
	}
	return published
}

// unpublished reports whether outputs are wanted that were not written yet.
func (o Observation) unpublished() bool {
	m := o.Status
	if o.Spec.Outputs == "" || m.State == "" || m.Destroyed || o.Spec.Destroy {
		return false
	}
	return o.Unwritten || strings.TrimSuffix(m.Published, masked) != Publication(o.Spec.Outputs, m.State)
}

// OpenUntracked are the untracked resources that a person still has to deal with,
// nil if there are none.
func (m Status) OpenUntracked(s Spec) *Untracked {
	if u := m.Untracked; u != nil && s.IgnoreUntracked != u.Run {
		return u
	}
	return nil
}

func (o Observation) untracked() *Untracked { return o.Status.OpenUntracked(o.Spec) }

// repairing reports whether a person asked for the untracked resources to be
// imported.
func (o Observation) repairing() bool {
	u, r := o.untracked(), o.Spec.Repair
	return u != nil && r != nil && r.Run == u.Run
}

// Imports returns what a repair plan imports: the untracked resources, less those
// that do not exist.
func (o Observation) Imports() []UntrackedResource {
	if !o.repairing() {
		return nil
	}
	var out []UntrackedResource
	for _, u := range o.Status.Untracked.Objects {
		if slices.Contains(o.Spec.Repair.Absent, u.Address) {
			continue
		}
		if id := o.Spec.Repair.IDs[u.Address]; id != "" {
			u.ID = id
		}
		out = append(out, u)
	}
	return out
}

// breaksLock reports whether the lock that was met is to be broken now. One that the last
// run could not break is tried again as anything else that failed is.
func breaksLock(o Observation) bool {
	m := o.Status
	return m.breakable(o.Spec.Unlock) && (m.UnbrokenLock != m.Lock.ID || o.untilRetry() == 0 && (o.Deleting || !o.exhausted()))
}

// breakable reports whether the user allows the lock that was met to be broken.
func (m Status) breakable(u Unlock) bool {
	l := m.Lock
	return l != nil && l.ID != "" && l.ID != m.BrokenLock && (u.Auto || u.ID == l.ID)
}
