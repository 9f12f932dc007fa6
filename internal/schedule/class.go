package schedule

import (
	"slices"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Class is how urgent a run is.
type Class int

// The classes, most urgent first.
const (
	Apply    Class = iota // applies and destroys: half done, or of an object that is being deleted
	Person                // a person waits for it
	Spec                  // the object was changed
	Upstream              // something that the object is made from was changed, or an attempt is made again
	Drift                 // a drift check, which no person waits for
	classes
)

// Classes lists the classes, most urgent first.
func Classes() []Class { return []Class{Apply, Person, Spec, Upstream, Drift} }

// ClassNamed finds a class by its name.
func ClassNamed(name string) (Class, bool) {
	c := Class(slices.IndexFunc(Classes(), func(c Class) bool { return c.String() == name }))
	return c, c >= 0
}

// String names the class for people and metrics.
func (c Class) String() string {
	return [classes]string{"apply", "person", "spec", "upstream", "drift"}[c]
}

// MarshalText implements encoding.TextMarshaler. Controllers of different releases, whose
// classes may have other numbers, send each other names.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A class that only a later release
// knows counts as the least urgent one: its run may wait for longer, but it does run.
func (c *Class) UnmarshalText(name []byte) error {
	known, ok := ClassNamed(string(name))
	if !ok {
		known = classes - 1
	}
	*c = known
	return nil
}

// ClassOf says how urgent a run of a stack is.
func ClassOf(kind stack.RunKind, cause stack.Cause, o stack.Observation) Class {
	m := o.Status
	tried := m.Planned
	if m.Failures > 0 {
		tried = m.FailedFor
	}
	unknown := tried == stack.PlanInputs{} // what was tried before
	switch differs := tried.Differs(o.PlanInputs); {
	case kind == stack.BreakGlassRun, kind == stack.PreviewRun, cause.Replan != "",
		cause.Unlock != "" && cause.Unlock == o.Spec.Unlock.ID:
		return Person
	case kind.Writes() && !(kind == stack.ScriptRun && cause.Plan == nil), o.Deleting:
		return Apply
	case kind == stack.HealthRun, kind == stack.StepsRun:
		return Spec // it ends what a change of the object began
	case unknown && m.Applied == nil && m.PlanNote == "", !unknown && slices.Contains(differs, "spec"):
		return Spec // the object is new, or another
	case len(differs) > 0, m.Failures > 0:
		return Upstream
	default:
		return Drift
	}
}
