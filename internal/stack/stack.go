// Package stack is the core: what a stack is, what may be known about it, and
// what to do next. It performs no I/O and never reads the clock; everything it
// needs arrives in an Observation.
//
// Start reading at rules.go: the list of rules is the specification.
package stack

import (
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
)

// Mode says how far a stack may go without a person.
type Mode string

const (
	Auto      Mode = "auto"      // apply every plan
	Manual    Mode = "manual"    // apply only a plan that a person approved
	PlanOnly  Mode = "planOnly"  // plan, never apply
	DriftOnly Mode = "driftOnly" // check drift, never plan or apply
)

// Backoff says how the pause between retries grows.
type Backoff string

const (
	Static      Backoff = "Static"
	Exponential Backoff = "Exponential"
)

// Spec is what the user asked for, as far as the next decision depends on it.
// How a run is carried out (module, variables, backend) is the Configuration's.
type Spec struct {
	Mode            Mode
	Force           bool // apply whatever is planned, in every mode; plan again at each interval
	Suspended       bool
	Rejected        string // the name of a plan that a person rejected; only said, since a plan that is not approved is not applied
	Cancel          string // the run that a person wants to be cancelled
	RejectedBy      string // that person, if known; only said
	RejectedFor     string // why, in that person's words; only said
	Approved        string // the name of a plan, or what Plan.Approvable says of it; empty if none
	Destroy         bool   // plans destroy everything
	DestroyLast     bool   // destroy the resources when the object is deleted
	Retain          bool   // a person said that the resources stay when the object is deleted
	CheckDrift      bool   // check drift at each interval; otherwise replan
	Interval        time.Duration
	RetryEvery      time.Duration
	RetryMax        time.Duration // cap of an exponential backoff
	Backoff         Backoff
	MaxRetries      *int // nil means no limit
	Unlock          Unlock
	IgnoreUntracked string            // the run whose untracked resources a person has dealt with
	Repair          *Repair           // how a person wants untracked resources to be imported
	Outputs         string            // digest of how outputs are to be published; empty publishes none
	Health          string            // digest of the health checks; empty if there are none
	Reviews         string            // digest of the reviewers that are asked about plans; empty if there are none
	Policies        string            // digest of those of them that are policies: they judge the destroy of a deleted stack, too
	Webhooks        bool              // some of them are webhooks
	Approvers       bool              // a policy says who approves what it holds
	ApprovalRules   []policy.Approval // how each of these policies says so; none where that is not known
	Times           policy.Times
	Drift           policy.Drift    // which attributes may drift
	Approvals       []policy.Given  // of plans, as the stamps on the object say, without times
	Changes         []policy.Change // of what plans are made from, the newest last, likewise
	Stamped         string          // the epoch of these stamps: they may be forged unless it is that of the API server
	Confirms        string          // another way to approve a plan, which a stack that is automatic stays with: the name of the plan, and any other words
	Overrides       []policy.Given  // of windows and freezes, for a plan, as the stamps on the object say, without times
	OverridesWindow string          // what asks for that: the name of the plan, and any other words
	AdoptState      bool            // a state that a former stack of the same name left is continued
	Preview         string          // a request for a preview of a destroy
	AcceptsDrift    string          // the drift that a user accepted: see AcceptedDrift
	Rerun           string          // a request for the steps after an apply: see namesSteps
	RollsBack       bool            // what fails its health checks is rolled back
	OwnBackend      bool            // the module says where the state is
	RollBack        string          // a request for a rollback, or for the end of one: see RollbackRequest
	AcceptState     string          // the state that a person says may stand where another was expected: see AcceptedState

	BreakGlass string   // the break-glass session that a person asks for; empty if none
	Command    *Command // what that person wants to be run in it

	Script          bool // it is applied by a script, and a plan is only for a person to see
	ReportDrift     bool // of such a stack: drift is only shown; otherwise the script is run again at each interval
	NoDestroyScript bool // of such a stack: the object has no script that destroys the resources

	Words Words // what the kind of the stack calls its fields, for messages

	ApproveDestroy bool   // a deleted stack is destroyed only by a plan that a person approved
	Spread         uint64 // any number that is the stack's own: spreads looks over the interval
}

// Repair is a request to import the untracked resources of a run, in a plan like any
// other.
type Repair struct {
	Run    string            `json:"run"`
	IDs    map[string]string `json:"ids,omitempty"`    // by address, where the events of the run have none, or not the one to import by
	Absent []string          `json:"absent,omitempty"` // addresses of what does not exist after all
	Plan   string            `json:"plan,omitempty"`   // the name of the plan to carry out, once it was seen
}

// Unlock says which foreign state lock may be broken.
type Unlock struct {
	Auto bool   // any lock whose holder is unknown
	ID   string // exactly this lock
}

// PlanInputs is everything that a plan is made from and that is known before it is
// made. An approval of a plan says nothing about a plan of other inputs.
type PlanInputs struct {
	Revision string `json:"revision,omitempty"` // for people: main@sha1:…
	Source   string `json:"source,omitempty"`   // digest of the module tree
	Inputs   string `json:"inputs,omitempty"`   // digest of the resolved variables, credentials and files
	Shape    string `json:"shape,omitempty"`    // digest of the parts of the spec that shape a plan
	Engine   string `json:"engine,omitempty"`   // tofu 1.12.6
}

// Differs names the parts in which b and c differ, for messages.
func (b PlanInputs) Differs(c PlanInputs) []string {
	var parts []string
	for _, p := range []struct {
		name string
		same bool
	}{
		{"source", b.Source == c.Source},
		{"inputs", b.Inputs == c.Inputs},
		{"spec", b.Shape == c.Shape},
		{"engine", b.Engine == c.Engine},
	} {
		if !p.same {
			parts = append(parts, p.name)
		}
	}
	return parts
}

// same reports whether b and c ask the same question; the revision is only a
// name for the source.
func (b PlanInputs) same(c PlanInputs) bool { return len(b.Differs(c)) == 0 }

// Plan identifies one saved plan. Two plans with one digest are one plan.
type Plan struct {
	Name       string     `json:"name"`   // what people approve: plan-main-b8e362c206
	Digest     string     `json:"digest"` // covers the plan inputs, lock file, backend, state and changes
	Run        string     `json:"run"`    // the run that made it
	PlanInputs PlanInputs `json:"basis"`
	Changes    Changes    `json:"changes"`
	Destroy    bool       `json:"destroy,omitempty"`
	Whole      bool       `json:"whole,omitempty"`   // with Destroy: of all resources; earlier releases never say so
	Drift      bool       `json:"drift,omitempty"`   // found by a drift check
	Lineage    string     `json:"lineage,omitempty"` // of the state that it was made against
	Serial     uint64     `json:"serial,omitempty"`
	At         time.Time  `json:"at"`

	Verdict string `json:"verdict,omitempty"` // digest of what policies found in it, under which it got its name; see Approvable

	Steps string `json:"steps,omitempty"` // digest of the steps after an apply when it was made; empty if there were none

	Addresses string `json:"addresses,omitempty"` // digest of the addresses and actions that it changes
	Example   string `json:"example,omitempty"`   // the first of them and its attribute, for messages

	Tolerated *ToleratedDrift `json:"tolerated,omitempty"` // attributes that may drift, and that it resets with its other changes; nil if none
}

// Changes counts what a plan would do.
type Changes struct {
	Add     int `json:"add,omitempty"`
	Change  int `json:"change,omitempty"`
	Destroy int `json:"destroy,omitempty"`
	Import  int `json:"import,omitempty"`
	Forget  int `json:"forget,omitempty"`
	Move    int `json:"move,omitempty"`    // moved to another address and otherwise the same
	Outputs int `json:"outputs,omitempty"` // output values that would change
}

// Plus is what both do together.
func (c Changes) Plus(o Changes) Changes {
	return Changes{Add: c.Add + o.Add, Change: c.Change + o.Change, Destroy: c.Destroy + o.Destroy, Import: c.Import + o.Import,
		Forget: c.Forget + o.Forget, Move: c.Move + o.Move, Outputs: c.Outputs + o.Outputs}
}

// None reports whether applying would change nothing at all.
func (c Changes) None() bool { return c == Changes{} }

// RunKind is what a run does.
type RunKind string

// The kinds of run.
const (
	PlanRun       RunKind = "plan"    // make a plan
	CheckRun      RunKind = "check"   // make a plan only to see whether there is drift
	ApplyRun      RunKind = "apply"   // apply a saved plan
	DestroyRun    RunKind = "destroy" // destroy everything in the state
	PreviewRun    RunKind = "preview" // plan a destroy only to show it
	HealthRun     RunKind = "health"  // ask what was applied whether it works
	BreakGlassRun RunKind = "glass"   // a command of a break-glass session
	ScriptRun     RunKind = "script"  // run the script of a stack that is applied by one
	StepsRun      RunKind = "steps"   // what follows an apply
)

// Writes reports whether a run of this kind may change resources.
func (k RunKind) Writes() bool {
	return k == ApplyRun || k == DestroyRun || k == BreakGlassRun || k == ScriptRun
}

// Applies reports whether a run of this kind applies a stack: a plan, or by its script.
func (k RunKind) Applies() bool { return k == ApplyRun || k == ScriptRun }

// Outcome is how a run ended.
type Outcome string

// The outcomes. Succeeded is the only one after which the result counts.
const (
	Succeeded   Outcome = "Succeeded"
	Failed      Outcome = "Failed"      // the engine said no
	Stale       Outcome = "Stale"       // the saved plan no longer fits the state; nothing was done
	Locked      Outcome = "Locked"      // another holder has the state lock
	TimedOut    Outcome = "TimedOut"    // interrupted at its deadline
	Interrupted Outcome = "Interrupted" // asked to stop, and stopped
	Killed      Outcome = "Killed"      // the engine or its supervisor died
)
