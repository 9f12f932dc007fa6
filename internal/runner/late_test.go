package runner

import (
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// A run whose supervisor does not end it is killed, but not while it may have time: one that
// changes something only after it was cancelled, and not for a clock that was set.
func TestLateRuns(t *testing.T) {
	const more = 10 * time.Minute
	begun := time.Unix(1_900_000_000, 0)
	at := func(kind stack.RunKind, phase Phase, limit, grace time.Duration) Report {
		r := Report{ID: "r", Stack: "s", Kind: kind, Phase: phase, Since: begun, Grace: grace}
		if limit > 0 {
			r.Until = begun.Add(limit)
		}
		return r
	}
	for name, tt := range map[string]struct {
		report   Report
		cancel   bool // at once
		well, is time.Duration
	}{
		"a plan":                         {report: at(stack.PlanRun, Planning, time.Hour, time.Minute), well: 4 * time.Hour, is: 4*time.Hour + more + time.Second},
		"a plan that is unpacked":        {report: at(stack.PlanRun, Unpacking, 0, 0), well: 4 * time.Hour, is: 4*time.Hour + more + time.Second},
		"a plan that was cancelled":      {report: at(stack.PlanRun, Planning, time.Hour, time.Minute), cancel: true, well: more, is: more + time.Minute + time.Second},
		"an apply":                       {report: at(stack.ApplyRun, Applying, time.Hour, time.Minute), well: 10000 * time.Hour},
		"an apply that was cancelled":    {report: at(stack.ApplyRun, Applying, time.Hour, time.Hour), cancel: true, well: 3 * time.Hour, is: 3*time.Hour + more + time.Second},
		"an apply of an earlier release": {report: at(stack.ApplyRun, Applying, time.Hour, 0), cancel: true, well: 2*time.Hour + DefaultGrace, is: 2*time.Hour + DefaultGrace + more + time.Second},
		"steps after an apply":           {report: at(stack.StepsRun, RunningSteps, 10*time.Minute, time.Minute), well: 20 * 24 * time.Hour},
		"steps that were cancelled":      {report: at(stack.StepsRun, RunningSteps, 10*time.Minute, time.Minute), cancel: true, well: more, is: more + time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var l lateRuns
			now := time.Unix(5000, 0) // of this process, which agrees with no other clock
			if tt.cancel {
				l.cancelled("s", "r", now)
			}
			see := func(after time.Duration) string {
				return l.see([]Report{tt.report}, now.Add(after), more)["s"]
			}
			if why := see(0) + see(tt.well); why != "" || l.killed("s", "r") != "" {
				t.Errorf("after %s: %q", tt.well, why)
			}
			if tt.is == 0 {
				return
			}
			if why := see(tt.is); why == "" || l.killed("s", "r") != why {
				t.Errorf("after %s: %q, and %q is told of it", tt.is, why, l.killed("s", "r"))
			}
			if why := l.killed("s", "next"); why != "" {
				t.Errorf("of the next run of the stack it is told: %q", why)
			}
			tt.report.Since, tt.report.Until = begun.Add(time.Hour), begun.Add(2*time.Hour) // it has gone on
			if why := see(tt.is); (why != "") != tt.cancel {
				t.Errorf("in its next phase: %q", why)
			}
			tt.report.Phase = Done
			if why := see(tt.is); why != "" || l.killed("s", "r") != "" {
				t.Errorf("after its end: %q", why)
			}
		})
	}
}

// A run that begins while the others are listed stays cancelled.
func TestALateRunStaysCancelled(t *testing.T) {
	var l lateRuns
	now := time.Unix(5000, 0)
	l.cancelled("s", "r", now)
	if late := l.see(nil, now.Add(time.Second), time.Minute); len(late) > 0 {
		t.Errorf("see() = %v", late)
	}
	r := Report{ID: "r", Stack: "s", Kind: stack.PlanRun, Phase: Planning, Grace: time.Second}
	if late := l.see([]Report{r}, now.Add(time.Hour), time.Minute); late["s"] == "" {
		t.Error("a run that was cancelled an hour ago has time")
	}
	if l.see(nil, now.Add(2*time.Hour), time.Minute); len(l.seen) > 0 {
		t.Errorf("runs that are gone are remembered: %v", l.seen)
	}
}
