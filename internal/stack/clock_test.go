package stack

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// F24: after any change of the clock no wait is longer than two of its kind, a
// finished drift check is not due again at once, and one check or one failure by the
// current clock corrects all times.
func TestClockJumps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jump := func(label string) time.Time {
			return calm.Add(time.Duration(rapid.Int64Range(-1e5, 1e5).Draw(t, label)) * time.Second)
		}
		every := time.Duration(rapid.Int64Range(1, 7200).Draw(t, "interval")) * time.Second
		retry := time.Duration(rapid.Int64Range(1, 600).Draw(t, "retry")) * time.Second
		o := calmly(Spec{Mode: Auto, CheckDrift: true, Spread: rapid.Uint64().Draw(t, "spread")},
			Status{Plans: Plans{PlannedAt: jump("planned"), SourceChangedAt: jump("moved")}, Resources: Resources{AppliedAt: jump("applied")}, Failure: Failure{Failures: 1, FailedAt: jump("failed"), FailedFor: calmBasis}})
		o.Spec.Interval, o.Spec.RetryEvery, o.CheckedAt = every, retry, jump("checked")
		for what, got := range map[string]struct{ wait, kind time.Duration }{
			"the next look": {o.untilCheck(), every}, "the next attempt": {o.untilRetry(), retry}, "the next plan": {o.untilDebounced(), debounce},
		} {
			if got.wait < 0 || got.wait > 2*got.kind {
				t.Fatalf("%s comes after %v, want at most twice %v", what, got.wait, got.kind)
			}
		}
		o.CheckedAt = o.Now
		if due := o.untilCheck(); due < every/2-time.Second || due > 2*every {
			t.Fatalf("after a look the next one is due in %v, want about %v", due, every)
		}
		o.Status.FailedAt = o.Now
		if left := o.untilRetry(); left != retry {
			t.Fatalf("after a failure the next attempt comes in %v, want %v", left, retry)
		}
	})
}

// F24: a clock that is set back by a second right after a drift check does not make
// the check due again.
func TestClockSetBackALittle(t *testing.T) {
	o := calmly(Spec{Mode: Auto, CheckDrift: true}, Status{Plans: Plans{PlannedAt: calm.Add(-time.Hour)}})
	o.CheckedAt = o.Now
	o.Now = o.Now.Add(-time.Second)
	if got := o.untilCheck(); got != time.Hour+time.Second {
		t.Errorf("due in %v, want an hour after the look", got)
	}
}
