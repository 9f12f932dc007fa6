package stack

import (
	"testing"
	"time"
)

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

// A lock that the engine could not break is tried again after the pause, and not at
// once, again and again.
func TestLockThatCannotBeBrokenIsTriedAfterThePause(t *testing.T) {
	o := calmly(Spec{Mode: Auto, Unlock: Unlock{Auto: true}}, Status{})
	attempts := 0
	for range 10 {
		switch a := Decide(o).Action.(type) {
		case Start:
			attempts++
			o.Status = o.Status.Record(Run{
				ID: string(rune('a' + attempts)), Kind: PlanRun, Cause: Cause{PlanInputs: calmBasis, Unlock: a.Unlock}, Done: true,
				Outcome: Locked, Lock: &Lock{ID: "f00d"}, At: o.Now,
			})
		case Wait:
			if attempts != 2 || a.For != time.Minute {
				t.Fatalf("waits %v after %d attempts, want a minute after the plan that met the lock and the one that could not break it", a.For, attempts)
			}
			o.Now = o.Now.Add(a.For)
			if again, ok := Decide(o).Action.(Start); !ok || again.Unlock != "f00d" {
				t.Errorf("after the pause Decide() = %+v, want the lock to be broken", Decide(o).Action)
			}
			return
		}
	}
	t.Errorf("%d attempts without a pause", attempts)
}
