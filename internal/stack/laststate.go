package stack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/plural"
)

// What is known of the state of a stack outlives the place that has it: a user names another
// place, or a bucket is emptied. A run that begins from an empty state would then create every
// resource a second time, and a destroy would find nothing and succeed.

// LastState is the last known state of a stack. The zero value says that none is known.
type LastState struct {
	Place     string `json:"place,omitempty"` // identifies where it was; two places have two texts
	In        string `json:"in,omitempty"`    // the same place, for people
	Managed   bool   `json:"managed,omitempty"`
	Lineage   string `json:"lineage,omitempty"`
	Serial    uint64 `json:"serial,omitempty"`
	Resources int    `json:"resources,omitempty"`
	Content   string `json:"content,omitempty"`   // see StateFacts
	Uncounted bool   `json:"uncounted,omitempty"` // it has resources, as far as is known, and they were not counted
	Encrypted bool   `json:"encrypted,omitempty"` // see StateFacts
}

// LastStateIn is what the facts of a state say, which was found in a place.
func LastStateIn(place, in string, managed bool, f StateFacts) LastState {
	return LastState{Place: place, In: in, Managed: managed, Lineage: f.Lineage, Serial: f.Serial, Resources: f.Resources, Content: f.Content, Uncounted: f.Sealed, Encrypted: f.Encrypted}
}

// Holds reports whether resources would be created a second time without the state.
func (l LastState) Holds() bool { return l.Resources > 0 || l.Uncounted }

// ContinuedBy reports whether a state that was found is the last known one, or one that was
// made of it. A state that continues it may have no resources: they were destroyed. One that an
// engine pushed into an empty place has another lineage, and the same resources.
func (l LastState) ContinuedBy(found StateFacts) bool {
	switch {
	case !l.Holds(), found.Lineage == l.Lineage && found.Lineage != "" && found.Serial >= l.Serial:
		return true
	case l.Content != "" && !found.Sealed:
		return found.Content == l.Content
	case found.Sealed: // its lineage and serial are in the clear, and are not those of the last one
		return l.Lineage == ""
	default: // it is not known which resources it had
		return found.Resources > 0 && found.Resources >= l.Resources && found.Lineage != l.Lineage
	}
}

// String is l for messages.
func (l LastState) String() string {
	if l.Lineage == "" {
		return "resources that were not counted"
	}
	return fmt.Sprintf("%s, serial %d of the lineage %s", resources(l.Resources, l.Uncounted), l.Serial, l.Lineage)
}

func resources(n int, uncounted bool) string {
	switch {
	case uncounted:
		return "resources that cannot be counted"
	default:
		return plural.Count(n, "resource")
	}
}

// ExpectedState is what a run has to find before it may write.
type ExpectedState struct {
	Last    LastState `json:"last"`
	Place   string    `json:"place,omitempty"` // of the run; see LastState
	In      string    `json:"in,omitempty"`
	Managed bool      `json:"managed,omitempty"`
}

// Token names exactly this situation. A user who accepts it accepts neither another place
// nor the loss of a later state.
func (e ExpectedState) Token() string {
	return "missing-" + Digest([]any{e.Last.Place, e.Last.Lineage, e.Last.Serial, e.Place})[len("sha256:"):][:12]
}

// Check compares the state that was found with the expected one. It returns nil if that is
// there.
func (e ExpectedState) Check(found StateFacts) *MissingState {
	if e.Last.ContinuedBy(found) {
		return nil
	}
	return &MissingState{ExpectedState: e, Found: LastStateIn(e.Place, e.In, e.Managed, found)}
}

// MissingState says that the place of a state does not have the last known state.
type MissingState struct {
	ExpectedState
	Found LastState `json:"found,omitzero"` // what is there; zero but for its place if nothing is
}

// String says what is wrong, for the log of a run.
func (m MissingState) String() string {
	was := m.Last.In
	if was == "" {
		was = "the place of the last apply"
	}
	if m.Last.Place == m.Place {
		return fmt.Sprintf("%s had the state of the stack, with %s, and now has %s. A run would create every resource again, so no run that writes begins",
			m.In, m.Last, m.found())
	}
	return fmt.Sprintf("the place of the state changed: the last known state is in %s, with %s, and %s has %s. A run would create every resource again, so no run that writes begins",
		was, m.Last, m.In, m.found())
}

func (m MissingState) found() string {
	if m.Found.Lineage == "" {
		return "no state"
	}
	return fmt.Sprintf("another one (%s)", m.Found)
}

// WaysOut names the commands that end the situation of a stack.
func (m MissingState) WaysOut(w Words, engine string, deleting bool) string {
	name, _, _ := strings.Cut(engine, " ")
	if name == "" {
		name = "tofu"
	}
	var b strings.Builder
	if m.Last.Place == m.Place {
		b.WriteString("Restore the state there")
	} else {
		b.WriteString("Move the state first: ")
		if m.Last.Managed {
			fmt.Fprintf(&b, "terrier state pull %s --version %d -o old.tfstate", w.Argument, m.Last.Serial)
		} else {
			fmt.Fprintf(&b, "with the backend of before, %s init && %[1]s state pull > old.tfstate", name)
		}
		if m.Managed {
			fmt.Fprintf(&b, "; then terrier state push %s old.tfstate", w.Argument)
		} else {
			fmt.Fprintf(&b, "; then, with the backend of now, %s init && %[1]s state push old.tfstate", name)
		}
	}
	fmt.Fprintf(&b, "; then terrier replan %s.", w.Argument)
	if m.Last.Place != m.Place {
		fmt.Fprintf(&b, " Or go back: set %s as before.", w.StateBack)
	}
	if deleting {
		b.WriteString(" Or retain the resources: annotate the stack with terrier.dev/deletion=retain.")
	}
	if m.Managed {
		fmt.Fprintf(&b, " To continue with what is there on purpose: terrier state accept %s --reason TEXT.", w.Argument)
	} else {
		fmt.Fprintf(&b, " To continue with what is there on purpose: terrier state accept %s --reason TEXT, or annotate the stack with terrier.dev/accept-state=%s.", w.Argument, m.Token())
	}
	return b.String()
}

// GivenUp is a last known state in whose place a user accepted what is there. Its resources
// may still exist, and the stack does not manage them any more.
type GivenUp struct {
	LastState
	At    time.Time `json:"at"`
	Why   string    `json:"why,omitempty"` // the reason of the user
	Now   string    `json:"now,omitempty"` // where the stack began, for people
	Token string    `json:"token"`         // of the situation that the user accepted
}

// GiveUp is what a user gives up who accepts the situation.
func (e ExpectedState) GiveUp(why string, at time.Time) GivenUp {
	return GivenUp{LastState: e.Last, At: at.UTC().Truncate(time.Second), Why: why, Now: e.In, Token: e.Token()}
}

// String is the state for lists: what it had, and where it was.
func (g GivenUp) String() string {
	if g.In == "" {
		return g.LastState.String() + ", in the place of the last apply"
	}
	return g.LastState.String() + ", in " + g.In
}

// Accepts reports whether a user accepted the situation that a token names.
func (s Spec) Accepts(token string) bool {
	return s.AcceptState != "" && AcceptedState(s.AcceptState) == token
}

// acceptedMissing reports whether a user accepted what the last run found in the place of the
// last known state.
func acceptedMissing(o Observation) bool {
	return o.Status.Missing != nil && o.Spec.Accepts(o.Status.Missing.Token())
}

// missesState reports whether the last run did not find the last known state, and nothing is
// new since: no request, no change of what a run would be made from, no user who accepts it.
func missesState(o Observation) bool {
	switch {
	case o.Status.Missing == nil || o.requested() || acceptedMissing(o):
		return false
	case o.Deleting:
		return !o.Corrected || o.Status.FailedFor.same(o.PlanInputs)
	default:
		return o.Status.FailedFor.same(o.PlanInputs)
	}
}

// missingState says what is missing, and how to go on.
func missingState(o Observation) Decision {
	m := o.Status.Missing
	return Decision{Action: Wait{}, Ready: Stalled, Reason: StateMissing,
		Message: sentence(m.String()) + ". " + m.WaysOut(o.Spec.Words, o.Status.FailedFor.Engine, o.Deleting)}
}

func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// followsState reports whether a plan that found nothing to change was made where a user has
// moved the state. The record of the last apply names the former place, and a destroy would be
// made there.
func followsState(m Status, r Run) bool {
	return r.Plan == nil && !r.Cause.Destroy && r.Cause.Snapshot != "" && r.Cause.Place != "" && m.SnapshotPlace != r.Cause.Place &&
		(m.SnapshotPlace != "" || r.Kind == PlanRun)
}

// withRecord is the status once a destroy is made from the record of r.
func withRecord(m Status, r Run) Status {
	m.Snapshot, m.SnapshotPlace, m.DestroyScript = r.Cause.Snapshot, r.Cause.Place, r.Cause.DestroyScript
	return m
}

// RecordFits reports whether a record of inputs can take the place of the record of the last
// apply, which was lost: the resources are as these inputs want them, but for drift, and their
// state is in that place.
func RecordFits(m Status, now PlanInputs, place string) bool {
	at := cmp.Or(m.SnapshotPlace, m.LastState.Place)
	return m.Created && m.Failures == 0 && m.Planned.same(now) && (m.Pending == nil || m.Pending.Drift) && at != "" && at == place
}

// WithRecordAgain is the status once the record of the last apply was written again, from the
// inputs of now. The record is also that of the apply to which a rollback may return.
func WithRecordAgain(m Status, now PlanInputs, key string, destroyScript bool) Status {
	m.Revisions = slices.Clone(m.Revisions)
	for i, r := range m.Revisions {
		if r.Snapshot == m.Snapshot && r.PlanInputs.alike(now) {
			m.Revisions[i].Snapshot = key
		}
	}
	m.Snapshot, m.DestroyScript = key, destroyScript
	return m
}

// lastStateOf is the last known state after a run that ended.
func (m StoredState) lastStateOf(r Run) LastState {
	switch now := r.LastState; {
	case r.Kind == BreakGlassRun && now != (LastState{}) && m.LastState.Holds() && now.Lineage != m.LastState.Lineage && now.Resources < m.LastState.Resources:
		return m.LastState // a command that only looked is no reason to forget it
	case now != (LastState{}) && (r.Kind.Writes() || now.Holds()):
		return now
	case r.Kind == DestroyRun && r.Outcome == Succeeded, r.Kind == ApplyRun && r.Cause.DestroysAll() && r.Outcome == Succeeded:
		return LastState{}
	default:
		return m.LastState
	}
}

// ReadPulled reads what a state says of itself that an engine has pulled. One that is not
// there is printed as nothing, or as a state without a lineage.
func ReadPulled(state []byte) (StateFacts, error) {
	if len(bytes.TrimSpace(state)) == 0 {
		return StateFacts{}, nil
	}
	var s struct {
		Lineage string `json:"lineage"`
	}
	if err := json.Unmarshal(state, &s); err == nil && s.Lineage == "" {
		return StateFacts{}, nil
	}
	return ReadState(state)
}
