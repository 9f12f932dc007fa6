package stack

import (
	"slices"
	"strings"
)

// PlanName remembers which digest bears a plan's name, so that no name is given
// to two plans: an approval of a name must never reach another plan.
type PlanName struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// namesKept bounds Status.PlanNames. A plan has one for each verdict about it.
const namesKept = 12

// NameFor returns the name under which p is shown and approved: base, unless
// base was borne by another plan or is approved already, in which case the
// longer form keeps an old approval from reaching a new plan.
func (m Status) NameFor(base, long, digest string, approved ...string) string {
	for _, n := range m.PlanNames {
		if n.Digest == digest {
			return n.Name
		}
	}
	// A longer form tells that another plan had base, although that plan is forgotten.
	taken := slices.ContainsFunc(m.PlanNames, func(n PlanName) bool { return n.Name == base || strings.HasPrefix(n.Name, base+"-") })
	if taken || slices.Contains(approved, base) {
		return long
	}
	return base
}

func remember(names []PlanName, n PlanName) []PlanName {
	if slices.Contains(names, n) {
		return names
	}
	names = append(slices.Clone(names), n)
	return names[max(0, len(names)-namesKept):]
}
