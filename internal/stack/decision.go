package stack

import "time"

// Action is the one thing to do next.
//
//sumtype:decl
type Action interface{ action() }

// The actions.
type (
	// Wait does nothing for a while. Zero means until something changes.
	Wait struct{ For time.Duration }
	// Start begins a run that applies nothing: a plan, a look for drift, a preview,
	// a look at the health of what was applied, or a command of a person.
	Start struct {
		Kind    RunKind
		Why     string
		Unlock  string // a foreign lock to break first
		Destroy bool   // plan to take everything down, from the record of the last apply
	}
	// Apply applies exactly this plan.
	Apply struct{ Plan Plan }
	// Destroy takes down what the stack built, from the record of the last apply.
	Destroy struct{ Unlock string }
	// Cancel stops the run that is going on.
	Cancel struct{ Run string }
	// Publish writes the outputs of the newest state where they are wanted.
	Publish struct{ State string }
	// Review asks the webhooks of the stack what they think of this plan.
	Review struct{ Plan Plan }
	// Finish lets a deleted object go. Retained says that what it built is left
	// where it is, which is written down.
	Finish struct{ Retained bool }
)

func (Wait) action()    {}
func (Start) action()   {}
func (Apply) action()   {}
func (Destroy) action() {}
func (Cancel) action()  {}
func (Publish) action() {}
func (Review) action()  {}
func (Finish) action()  {}

// Readiness is what a decision says about the stack as a whole.
type Readiness string

// The readinesses.
const (
	Ready       Readiness = "Ready"
	Reconciling Readiness = "Reconciling" // on its way; nobody is needed
	Held        Readiness = "Held"        // works as asked, and waits for a person
	Stalled     Readiness = "Stalled"     // somebody must do something
)

// Reason is the stable name of a situation. Dialects translate it.
type Reason string

// The reasons. They are part of the interface and never change.
const (
	Queued             Reason = "Queued" // of no rule: what a rule decided waits for its turn, or for memory
	Planning           Reason = "Planning"
	Checking           Reason = "Checking"
	Applying           Reason = "Applying"
	Destroying         Reason = "Destroying"
	Cancelling         Reason = "Cancelling"
	Deleting           Reason = "Deleting"
	DeletionBlocked    Reason = "DeletionBlocked"
	Suspended          Reason = "Suspended"
	SpecInvalid        Reason = "SpecInvalid"
	SourceNotReady     Reason = "SourceNotReady"
	SourceDenied       Reason = "SourceDenied"
	SourceFailed       Reason = "SourceFailed"
	InputsFailed       Reason = "InputsFailed"
	ModuleInvalid      Reason = "ModuleInvalid"
	EngineMissing      Reason = "EngineMissing"
	StateFailed        Reason = "StateFailed"
	OutputsFailed      Reason = "OutputsFailed"
	StartFailed        Reason = "StartFailed"
	DependencyNotReady Reason = "DependencyNotReady"
	LockedByOther      Reason = "LockedByOther"
	Unlocking          Reason = "Unlocking"
	RetryLater         Reason = "RetryLater"
	RetryLimitReached  Reason = "RetryLimitReached"
	StateIncomplete    Reason = "StateIncomplete"
	AwaitingApproval   Reason = "AwaitingApproval"
	PlanOnlyHeld       Reason = "PlanOnly"
	DriftFound         Reason = "DriftFound"
	Publishing         Reason = "Publishing"
	ChangesComing      Reason = "ChangesComing"
	NotConverging      Reason = "NotConverging"
	StateTampered      Reason = "StateTampered"
	StateWentBack      Reason = "StateWentBack"
	StateShared        Reason = "StateShared"
	StateNotAdopted    Reason = "StateNotAdopted"
	Reviewing          Reason = "Reviewing"
	ReviewRefused      Reason = "ReviewRefused"
	Previewing         Reason = "Previewing"
	CheckingHealth     Reason = "CheckingHealth"
	GlassBroken        Reason = "GlassBroken"
	StatusUnreadable   Reason = "StatusUnreadable"

	// At rest, each with what is known of the stack.
	Applied        Reason = "Applied"
	Unchanged      Reason = "Unchanged"
	NoDrift        Reason = "NoDrift"
	OutputsWritten Reason = "OutputsWritten"
	Destroyed      Reason = "Destroyed"
	NothingLeft    Reason = "NothingLeft"
)

// Settled reports whether r says that there is nothing to do.
func (r Reason) Settled() bool {
	switch r {
	case Applied, Unchanged, NoDrift, OutputsWritten, Destroyed, NothingLeft:
		return true
	default:
		return false
	}
}

// Decision is an action and how to explain it to the user.
type Decision struct {
	Action  Action
	Ready   Readiness
	Reason  Reason
	Message string
	Rule    string // the name of the rule that fired
}
