package stack

import "time"

// Status is what earlier reconciles stored of a stack. A dialect keeps it in the
// status of the object; losing it costs a plan, never the truth: see Checkpoint. Its
// JSON has no groups, so that every release reads it.
type Status struct {
	Plans
	Resources
	StoredState
	Failure
	Answers
	Recovery

	AfterApply *AfterApply `json:"afterApply,omitempty"` // nil of a stack without steps

	LastRun   string `json:"lastRun,omitempty"` // the last run folded in
	LastWrite string `json:"wrote,omitempty"`   // the last run that changed resources, or may have
	Uses      string `json:"uses,omitempty"`    // digest of the modules and providers that the stack uses, which are in a record; empty if they are not known
}

// Plans are the pending plan, and what is known of the plans before it.
type Plans struct {
	Pending  *Plan    `json:"pending,omitempty"` // a plan with changes that was not applied yet
	PlanNote string   `json:"note,omitempty"`    // why the pending plan replaced an earlier one, or why there is none any more
	Review   *Verdict `json:"review,omitempty"`  // what the reviewers said of the pending plan

	Approving

	Planned   PlanInputs `json:"planned,omitzero"` // of the last plan that came to an end
	PlannedAt time.Time  `json:"plannedAt,omitzero"`

	SourceChangedAt time.Time  `json:"movedAt,omitzero"` // when a plan of another source than the one before was made
	PlanNames       []PlanName `json:"named,omitempty"`  // names given to plans, newest last
}

// Resources are what a stack applied, and whether it is still so.
type Resources struct {
	Applied   *Plan     `json:"applied,omitempty"`
	AppliedAt time.Time `json:"appliedAt,omitzero"`
	Created   bool      `json:"built,omitempty"`     // resources may exist
	Destroyed bool      `json:"destroyed,omitempty"` // the last apply destroyed everything
	Unapplied bool      `json:"unapplied,omitempty"` // the script ran for that plan and succeeded, and nothing changed in the state
	Snapshot  string    `json:"snapshot,omitempty"`  // key of the record that a destroy is made from

	SnapshotPlace string `json:"snapshotPlace,omitempty"` // of the state, as that record names it: see LastState; earlier releases never say so

	DestroyScript bool `json:"destroyScript,omitempty"` // that record has a script that destroys the resources; earlier releases never say so

	BeforeDeletion *PlanInputs `json:"beforeDeletion,omitempty"` // what the last plan before the deletion was made from; nil of a stack that is not deleted

	Drift      *Drift          `json:"drift,omitempty"`     // nil when none is known
	DriftFree  bool            `json:"clean,omitempty"`     // a check since the last apply found no drift
	Tolerated  *ToleratedDrift `json:"tolerated,omitempty"` // attributes that drifted and may; nil if none did at the last check
	Recurrence *Recurrence     `json:"circle,omitempty"`    // applies after which the same changes came back
	Healthy    string          `json:"healthy,omitempty"`   // what passed its health checks: see HealthKey
	Untracked  *Untracked      `json:"gap,omitempty"`       // resources that were created, and that the state does not have

	FailingCheckBlocks *FailingCheckBlocks `json:"failingCheckBlocks,omitempty"` // nil when none is known
}

// StoredState is the state of a stack, its outputs and its lock.
type StoredState struct {
	State         string  `json:"state,omitempty"`    // digest of the newest state known
	KnownState    StateID `json:"known,omitzero"`     // of a state that we keep: which version was seen last
	AcceptedState string  `json:"accepted,omitempty"` // what a person accepted last, of what should not have been there

	LastState LastState `json:"lastState,omitzero"` // where the state was last, and what it had

	Outputs   []string `json:"outputs,omitempty"`   // names, sorted
	Published string   `json:"published,omitempty"` // what was published: see Publication

	Lock       *Lock  `json:"lock,omitempty"`     // a state lock of another holder
	BrokenLock string `json:"unlocked,omitempty"` // the last lock that was broken

	UnbrokenLock string `json:"unbroken,omitempty"` // the lock that the last run was to break, and that is still held
}

// Answers are what came of the requests of users.
type Answers struct {
	HandledReplan string `json:"handled,omitempty"`   // the last request for a plan that was answered
	Previewed     string `json:"previewed,omitempty"` // the last preview that was asked for
	Preview       *Plan  `json:"preview,omitempty"`   // what a destroy would destroy; nil if nothing
	NoPreview     string `json:"noPreview,omitempty"` // why the preview could not be made

	Cancelled *Cancellation `json:"cancelled,omitempty"` // of the run that goes on, or of the last one

	Decider *Decider `json:"decider,omitempty"` // of the last approval or rejection whose user was verified

	CancelledBefore *Cancellation `json:"cancelledBefore,omitempty"` // the one before that, while that is of a preview or of a break-glass command

	BreakGlass  *BreakGlass    `json:"glass,omitempty"`  // the break-glass session, or the last one
	LastCommand *CommandResult `json:"byHand,omitempty"` // the last command of such a session
}

// Drift is a difference between the resources and what was applied.
type Drift struct {
	At      time.Time `json:"at"`
	Changes Changes   `json:"changes"`
}

// Untracked are the resources that an interrupted apply created, or may have
// created, and that the state does not have. Another apply would create them a
// second time, so it needs an approval.
type Untracked struct {
	Run     string              `json:"run"`
	At      time.Time           `json:"at"`
	Source  string              `json:"source"` // digest of the module; another one may import what is missing
	Objects []UntrackedResource `json:"objects"`
	More    int                 `json:"more,omitempty"`    // how many there are besides: the status of an object has room for some of them
	Lost    bool                `json:"lost,omitempty"`    // the run was lost with its machine, and may have created more than its events tell: what its plan creates
	Apart   bool                `json:"apart,omitempty"`   // the state is kept elsewhere: what it holds was not compared, and it may hold all of these
	Rescued bool                `json:"rescued,omitempty"` // the newest state could not be stored there, and is kept
}

// Less are the untracked resources that are still missing, nil if none are.
func (u Untracked) Less(missing []UntrackedResource) *Untracked {
	if len(missing) == 0 {
		return nil
	}
	u.Objects = missing
	return &u
}

// UntrackedResource is one of them.
type UntrackedResource struct {
	Address  string `json:"address"`
	ID       string `json:"id,omitempty"`
	Finished bool   `json:"finished,omitempty"` // its creation ended; else it may exist
}

// Recurrence counts applies in a row of the same changes to the same addresses,
// from the same inputs.
type Recurrence struct {
	Key     string `json:"key"`
	Applies int    `json:"applies"`
	Example string `json:"example,omitempty"`
}

// Lock is a state lock that a run met and that is not ours.
type Lock struct {
	ID    string    `json:"id"`
	Who   string    `json:"who,omitempty"`
	Since string    `json:"since,omitempty"` // as its holder wrote it
	Seen  time.Time `json:"seen"`
}

// Run is one run of the stack as it is seen now.
type Run struct {
	ID         string
	Kind       RunKind
	Cause      Cause
	Plan       *Plan // the plan it applies, or the plan it made if that has changes
	Done       bool
	Outcome    Outcome
	Step       string // the engine command that decided the outcome
	Message    string
	Awaits     string // what it waits for, as the room for its pod or a node that answers; empty if nothing does
	Why        string // a name for what ended it, if neither the engine nor a person did
	Permanent  bool   // no run of the same would end otherwise
	Lock       *Lock
	Changes    Changes             // of a destroy: what it destroyed and forgot
	Untracked  []UntrackedResource // what it created that the state does not have
	Lost       bool                // it was lost with its machine, and may have created what Untracked has without an ID
	Apart      bool                // its state is kept elsewhere, and was not compared with Untracked
	Rescued    bool                // its state could not be stored, and is kept
	State      string              // digest of the newest state that was acknowledged, or planned against
	KnownState StateID             // the same of a state that we keep; zero if there is none
	LastState  LastState           // what was read of the state during the run, wherever it is; zero if nothing was
	Tolerated  *ToleratedDrift     // of a plan or a drift check: attributes that drifted and may. Plan is nil if nothing else changes.
	Missing    *MissingState       // the place of the state did not have the last known one, so that the run wrote nothing
	Exists     bool                // that state holds something
	Moved      bool                // it changed that state, or may have
	Untouched  bool                // it ended before it could change anything
	Outputs    []string            // names of the outputs in that state; nil if unknown
	Steps      []StepResult        // of a run of the steps after an apply: how each went, so far
	Blocks     *CheckBlocks        // results of the check blocks; nil if they were not evaluated
	Broke      string              // the lock that it broke
	Since      time.Time
	Until      time.Time // when it is interrupted at the latest; zero if unknown
	At         time.Time // when it ended
}

// Cause is why a run was started; it travels with the run.
type Cause struct {
	PlanInputs PlanInputs `json:"basis"`
	Pod        string     `json:"pod,omitempty"`      // digest of what its pod is made of: see Configuration.PodShape
	Replan     string     `json:"request,omitempty"`  // the request it answers
	Plan       *Plan      `json:"plan,omitempty"`     // the plan it applies
	Snapshot   string     `json:"snapshot,omitempty"` // key of the record of what it is made from
	Destroy    bool       `json:"destroy,omitempty"`
	Whole      bool       `json:"whole,omitempty"`   // it is of all resources: nothing is targeted
	Unlock     string     `json:"unlock,omitempty"`  // the foreign lock that it breaks first
	Preview    string     `json:"preview,omitempty"` // the request for a preview that it answers
	Health     string     `json:"health,omitempty"`  // what is asked for its health: see HealthKey
	Command    *Command   `json:"command,omitempty"` // what a person wants to be run
	Instead    string     `json:"instead,omitempty"` // why what was applied last stands in for what is asked for
	Why        string     `json:"why,omitempty"`

	Steps *StepsCause `json:"steps,omitempty"` // after an apply; nil if there are none

	Place string `json:"place,omitempty"` // of its state: see LastState; earlier releases never say so

	DestroyScript bool `json:"destroyScript,omitempty"` // the record of Snapshot has a script that destroys the resources
}

// DestroysAll reports whether nothing is left once the run has succeeded: resources that are not
// targeted stay, and the deletion of the stack destroys them. It is false of each run that an
// earlier release started.
func (c Cause) DestroysAll() bool { return c.Destroy && c.Whole }

// Record folds a finished run into the status. Folding the same run twice changes
// nothing, so a crash between recording and forgetting is harmless.
func (m Status) Record(r Run) Status {
	if !r.Done || r.ID == m.LastRun {
		return m
	}
	if r.Kind != CheckRun || r.Outcome != Succeeded {
		// A drift check that ended well is the same however often it is
		// folded, so it leaves its name out and costs no write.
		m.LastRun = r.ID
	}
	if r.KnownState != (StateID{}) {
		m.KnownState = r.KnownState
	}
	m.Answers, m.LastState = m.endOf(r), m.lastStateOf(r)
	switch r.Kind {
	case PreviewRun:
		return m.previewed(r)
	case BreakGlassRun:
		return m.withCommand(r)
	case StepsRun:
		return stepped(m, r)
	}
	if r.Cause.Replan != "" {
		m.HandledReplan, m.Recurrence = r.Cause.Replan, nil
	}
	m.UnbrokenLock = ""
	if r.Broke != "" {
		m.BrokenLock = r.Broke
	} else if r.Lock != nil && r.Lock.ID == r.Cause.Unlock {
		m.UnbrokenLock = r.Cause.Unlock
	}
	if r.Kind.Writes() && (r.Outcome == Succeeded || len(r.Untracked) > 0) {
		m.LastWrite = r.ID
	}
	if r.Outcome == Interrupted && !r.Kind.Writes() {
		return m // a plan was cancelled: nothing happened, nothing failed
	}
	if r.Outcome == Stale {
		m.Pending, m.PlanNote = nil, "the state changed after the plan was made"
		m.Planned = PlanInputs{}
		if r.Kind == ScriptRun {
			m = attempted(m, r) // it may have made something before the apply that the plan did not allow
		}
		return m
	}
	if r.Outcome != Succeeded {
		return m.fail(r)
	}
	m.Lock = nil
	if m.endsFailures(r) {
		m = m.clear()
	}
	if r.Outputs != nil {
		m.Outputs = r.Outputs
	}
	m.FailingCheckBlocks = m.FailingCheckBlocks.evaluated(r.Blocks, r.At)
	switch r.Kind {
	case PlanRun, CheckRun:
		return m.planned(r)
	case HealthRun:
		m.Healthy, m.Revisions = r.Cause.Health, proven(m, r)
	case ApplyRun:
		return m.applied(r)
	case ScriptRun:
		return afterScript(m, r)
	case DestroyRun:
		m.Pending, m.Applied, m.Drift, m.Created, m.Destroyed, m.State = nil, nil, nil, false, true, ""
		m.Unapplied, m.Tolerated, m.Recovery = false, nil, Recovery{AnsweredRollback: m.AnsweredRollback}
		m.AppliedAt, m.Recurrence, m.FailingCheckBlocks = r.At, nil, nil
	}
	return m
}

func (m Status) planned(r Run) Status {
	if r.Kind == PlanRun || m.Planned != r.Cause.PlanInputs {
		// A drift check that found nothing leaves no trace here: identical status, no write.
		if was := m.Planned.Source; was != "" && was != r.Cause.PlanInputs.Source {
			m.SourceChangedAt = r.At
		}
		m.Planned, m.PlannedAt = r.Cause.PlanInputs, r.At
	}
	if r.Exists {
		m.Created = true
		if m.Snapshot == "" || followsState(m, r) {
			m = withRecord(m, r)
		}
	}
	if r.Plan == nil {
		return m.unchanged(r)
	}
	p := *r.Plan
	p.Whole = r.Cause.DestroysAll()
	if m.Pending != nil && m.Pending.Digest == p.Digest && m.Pending.PlanInputs == p.PlanInputs && m.Pending.Whole == p.Whole && (m.Drift != nil) == p.Drift {
		return m // the same plan again
	}
	if m.Pending == nil || m.Pending.Digest != p.Digest {
		m.PlanNote = m.replaced(p)
		m.PlanNames = remember(m.PlanNames, PlanName{p.Name, p.Digest})
	} else {
		p.Name, p.Verdict = m.Pending.Name, m.Pending.Verdict // its verdict is that of the same changes
		p.Steps = m.Pending.Steps                             // approvals by its name may be of these
	}
	if r := m.Review; r != nil && m.Pending == nil && r.Plan == p.Digest {
		m.Review = nil // it was forgotten with the plan under which name the verdict was shown
	}
	m.Pending = &p
	m.Drift, m.DriftFree, m.Tolerated = nil, false, nil
	if p.Drift {
		m.Drift = &Drift{At: r.At, Changes: p.Changes}
	}
	return m
}

// unchanged folds a plan without changes.
func (m Status) unchanged(r Run) Status {
	m.Pending, m.PlanNote, m.Drift, m.Recurrence, m.Review = nil, "", nil, nil, nil
	m.DriftFree = m.DriftFree || r.Kind == CheckRun
	m.Tolerated, m.Revisions, m.Rollback = r.Tolerated, confirmed(m, r), reached(m, r)
	if r.State != "" {
		m.State = r.State
	}
	if r.Cause.DestroysAll() {
		m.Created, m.Destroyed, m.Published, m.FailingCheckBlocks = false, true, "", nil
	}
	return m
}

// replaced says why p takes the place of the pending plan.
func (m Status) replaced(p Plan) string {
	if m.Pending == nil {
		return m.PlanNote
	}
	parts := m.Pending.PlanInputs.Differs(p.PlanInputs)
	if len(parts) == 0 {
		return "the plan " + m.Pending.Name + " was replaced: its changes are no longer the same"
	}
	return "the plan " + m.Pending.Name + " was replaced: " + join(parts) + " changed"
}

func (m Status) applied(r Run) Status {
	m.Applied, m.AppliedAt, m.State, m.Unapplied = r.Cause.Plan, r.At, r.State, false
	m.AfterApply = appliedSteps(m, r)
	if !r.Cause.Destroy {
		m.Untracked = nil // the approval was given with it in view; a destroy reaches only what is in the state
	}
	m = m.countApply(r.Cause.Plan)
	m.Review = nil
	m.Created, m.Destroyed = true, false
	m.Pending, m.PlanNote, m.Drift, m.DriftFree, m.Tolerated = nil, "", nil, false, nil
	m = withRecord(m, r)
	m.Revisions, m.Rollback = revised(m, r), reached(m, r)
	if r.Cause.DestroysAll() {
		m.Created, m.Destroyed, m.Published, m.FailingCheckBlocks, m.Rollback = false, true, "", nil, nil
	}
	return m
}

// afterScript folds a script that succeeded, which is all that is done about its inputs. It
// counts as the apply of a plan, also if none was made before.
func afterScript(m Status, r Run) Status {
	p := Plan{Run: r.ID, PlanInputs: r.Cause.PlanInputs, Changes: r.Changes, At: r.At}
	idle := r.Cause.Plan != nil && r.Changes.None() && !r.Moved
	if r.Cause.Plan != nil {
		p = *r.Cause.Plan
	}
	r.Cause.Plan = &p
	if was := m.Planned.Source; was != "" && was != r.Cause.PlanInputs.Source {
		m.SourceChangedAt = r.At
	}
	m.Planned, m.PlannedAt = r.Cause.PlanInputs, r.At
	m = m.applied(r)
	m.Unapplied = idle
	return m
}

// countApply counts an apply of p: how often in a row the same changes were made.
func (m Status) countApply(p *Plan) Status {
	key := p.RecurrenceKey()
	switch {
	case key == "":
		m.Recurrence = nil
	case m.Recurrence != nil && m.Recurrence.Key == key:
		m.Recurrence = &Recurrence{Key: key, Applies: m.Recurrence.Applies + 1, Example: p.Example}
	default:
		m.Recurrence = &Recurrence{Key: key, Applies: 1, Example: p.Example}
	}
	return m
}

// RecurrenceKey names what a plan changes and what it is made from; empty if unknown.
func (p *Plan) RecurrenceKey() string {
	if p == nil || p.Addresses == "" || p.Destroy {
		return ""
	}
	return Digest([]any{p.PlanInputs.Source, p.PlanInputs.Inputs, p.PlanInputs.Shape, p.PlanInputs.Engine, p.Addresses})
}

// previewed folds a preview, which says something and changes nothing.
func (m Status) previewed(r Run) Status {
	m.Previewed, m.Preview, m.NoPreview = r.Cause.Preview, r.Plan, ""
	if r.Outcome != Succeeded {
		m.Preview, m.NoPreview = nil, r.Message
	}
	return m
}

func join(parts []string) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return parts[0]
	}
	out := parts[0]
	for _, p := range parts[1 : len(parts)-1] {
		out += ", " + p
	}
	return out + " and " + parts[len(parts)-1]
}
