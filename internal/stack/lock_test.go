package stack

import "testing"

// What was allowed once is not allowed for ever: the field stays in the spec
// after the lock that it meant.
func TestNoLockIsBrokenTwice(t *testing.T) {
	const dead = "f00d"
	for name, tt := range map[string]struct {
		allowed Unlock
		broken  string // the lock that was broken before
		want    string // the lock that is broken now
	}{
		"none may be":                          {Unlock{}, "", ""},
		"any may be":                           {Unlock{Auto: true}, "", dead},
		"this one may be":                      {Unlock{ID: dead}, "", dead},
		"another may be":                       {Unlock{ID: "beef"}, "", ""},
		"any may be, and this one was already": {Unlock{Auto: true}, dead, ""},
		"this one may be, and was already":     {Unlock{ID: dead}, dead, ""},
		"any may be, and another one was":      {Unlock{Auto: true}, "beef", dead},
	} {
		t.Run(name, func(t *testing.T) {
			o := calmly(Spec{Mode: Auto, Unlock: tt.allowed}, Status{
				StoredState: StoredState{Lock: &Lock{ID: dead, Seen: calm}, BrokenLock: tt.broken},
				Failure:     Failure{Failures: 1, FailedAt: calm, FailedFor: calmBasis, FailedKind: PlanRun},
			})
			got := ""
			if a, starts := Decide(o).Action.(Start); starts {
				got = a.Unlock
			}
			if got != tt.want {
				t.Errorf("the lock that is broken is %q, want %q", got, tt.want)
			}
		})
	}
}
