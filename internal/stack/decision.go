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
	// Start begins a run that applies nothing: a plan, a drift check, a preview,
	// a health check, or a command of a break-glass session.
	Start struct {
		Kind    RunKind
		Why     string
		Unlock  string // a foreign lock to break first
		Destroy bool   // plan to destroy everything, from the record of the last apply
	}
	// Apply applies exactly this plan.
	Apply struct{ Plan Plan }
	// RunScript runs the script of the stack.
	RunScript struct {
		Plan   *Plan // that was made before, and lets it run; nil if none is needed
		Why    string
		Unlock string // a foreign lock to break first
	}
	// Destroy destroys the resources of the stack, from the record of the last apply.
	Destroy struct{ Unlock string }
	// Cancel stops the run that is going on.
	Cancel struct{ Run string }
	// Publish writes the outputs of the newest state where they are wanted.
	Publish struct{ State string }
	// Renew renews the record that a destroy is made from, with the script of now.
	Renew struct{}
	// RollBack has what is asked for give way to what an earlier apply was made from.
	RollBack struct{ Rollback Rollback }
	// Review asks the reviewers of the stack what they think of this plan.
	Review struct{ Plan Plan }
	// Finish releases a deleted object. Retained says that its resources stay
	// where they are, which is written down.
	Finish struct{ Retained bool }
)

func (Wait) action()      {}
func (Start) action()     {}
func (Apply) action()     {}
func (RunScript) action() {}
func (Destroy) action()   {}
func (Cancel) action()    {}
func (Publish) action()   {}
func (Renew) action()     {}
func (RollBack) action()  {}
func (Review) action()    {}
func (Finish) action()    {}

// Readiness is what a decision says about the stack as a whole.
type Readiness string

const (
	Ready       Readiness = "Ready"
	Reconciling Readiness = "Reconciling" // on its way; no person is needed
	Held        Readiness = "Held"        // works as asked, and waits for a person
	Stalled     Readiness = "Stalled"     // a person must do something
)

// Reason is the stable name of a situation. Dialects translate it.
type Reason string

// The reasons. They are part of the interface: one that gets another name is still
// read under the former one, by ParseReason.
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
	DestroyFailed      Reason = "DestroyFailed"
	NoDestroyScript    Reason = "NoDestroyScript"
	RunCancelled       Reason = "RunCancelled"
	StateIncomplete    Reason = "StateIncomplete"
	AwaitingApproval   Reason = "AwaitingApproval"
	PlanRejected       Reason = "PlanRejected"
	PlanOnlyHeld       Reason = "PlanOnly"
	DriftFound         Reason = "DriftFound"
	Publishing         Reason = "Publishing"
	SourceDebounced    Reason = "SourceDebounced"
	NotConverging      Reason = "NotConverging"
	StateTampered      Reason = "StateTampered"
	StateRegressed     Reason = "StateRegressed"
	StateMissing       Reason = "StateMissing"
	StateShared        Reason = "StateShared"
	StateNotAdopted    Reason = "StateNotAdopted"
	Reviewing          Reason = "Reviewing"
	ReviewRefused      Reason = "ReviewRefused"
	ApplyWithheld      Reason = "ApplyWithheld" // by the times of a policy
	Previewing         Reason = "Previewing"
	CheckingHealth     Reason = "CheckingHealth"
	BreakGlassSession  Reason = "BreakGlassSession"
	StatusUnreadable   Reason = "StatusUnreadable"

	PrerequisiteMissing Reason = "PrerequisiteMissing"
	RunningSteps        Reason = "RunningSteps"
	StepsFailed         Reason = "StepsFailed"
	RolledBack          Reason = "RolledBack"
	StepsHeld           Reason = "StepsHeld" // until a user asks for steps that no user approved

	// Settled, each with what is known of the stack.
	Applied        Reason = "Applied"
	Unchanged      Reason = "Unchanged"
	NoDrift        Reason = "NoDrift"
	OutputsWritten Reason = "OutputsWritten"
	Destroyed      Reason = "Destroyed"
	NothingLeft    Reason = "NothingLeft"
)

// ParseReason reads the name of a situation from an object or a record. It knows
// the names that some of them had before release 1.
func ParseReason(text string) Reason {
	switch text {
	case "GlassBroken":
		return BreakGlassSession
	case "StateWentBack":
		return StateRegressed
	case "ChangesComing":
		return SourceDebounced
	default:
		return Reason(text)
	}
}

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
	Answers string // the request of a user that the run answers which the action starts; empty if it answers none
}
