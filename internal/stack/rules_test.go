package stack

import (
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"pgregory.net/rapid"
)

// Every rule is reached by some observation; a rule that nothing reaches is dead.
func TestEveryRuleFires(t *testing.T) {
	hits := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 200 {
			hits[Decide(drawObservation(t)).Rule]++
		}
	})
	for _, name := range Rules() {
		if hits[name] == 0 {
			t.Errorf("nothing reaches %q", name)
		}
	}
}

// drawObservation draws from small domains so that coincidences are common.
func drawObservation(t *rapid.T) Observation {
	rarely := func(name string) bool { return rapid.IntRange(0, 7).Draw(t, name) == 0 }
	often := func(name string) bool { return !rarely(name) }
	ago := func(name string) time.Time {
		return time.Unix(1e9-int64(rapid.SampledFrom([]int{10, 10, 7200}).Draw(t, name)), 0)
	}
	basis := func(name string) Basis {
		return Basis{Revision: "r", Source: rapid.SampledFrom([]string{"s1", "s1", "s1", "s2"}).Draw(t, name)}
	}
	one := 1
	o := Observation{
		Now: time.Unix(1e9, 0), Basis: basis("basis"), Deleting: rarely("deleting"), CheckedAt: ago("checked"), Unwritten: rarely("unwritten"),
		Spec: Spec{
			Mode: rapid.SampledFrom([]Mode{Auto, Manual, PlanOnly, DriftOnly}).Draw(t, "mode"), Force: rarely("force"),
			Suspended: rarely("suspended"), Destroy: rarely("destroy"), DestroyLast: rapid.Bool().Draw(t, "destroyLast"),
			CheckDrift: often("checkDrift"), Approved: rapid.SampledFrom([]string{"", "p1"}).Draw(t, "approved"),
			Interval: time.Hour, RetryEvery: time.Minute, RetryMax: time.Hour,
			Outputs: rapid.SampledFrom([]string{"", "o"}).Draw(t, "outputs"), Unlock: Unlock{Auto: rarely("unlock")},
		},
		Memory: Memory{
			Planned: basis("planned"), PlannedAt: ago("plannedAt"), AppliedAt: ago("appliedAt"),
			Built: rapid.Bool().Draw(t, "built"), State: "st", Destroyed: rarely("destroyed"),
			Published: rapid.SampledFrom([]string{"", Publication("o", "st")}).Draw(t, "published"),
		},
	}
	if rarely("limit") {
		o.Spec.MaxRetries = &one
	}
	if rapid.Bool().Draw(t, "pending") {
		o.Memory.Pending = &Plan{Name: rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "plan"), Digest: "d", Basis: basis("pendingBasis")}
		if rarely("drift") {
			o.Memory.Drift = &Drift{}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "failed") == 0 {
		o.Memory.Failures = rapid.IntRange(1, 3).Draw(t, "failures")
		o.Memory.FailedAt, o.Memory.FailedFor = ago("failedAt"), basis("failedFor")
		if rarely("lock") {
			o.Memory.Lock = &Lock{ID: "l"}
		}
	}
	if rarely("blocked") {
		o.Blocked = &Blocked{Kind: fault.Missing, Reason: SourceNotReady}
	}
	if rarely("waiting") {
		o.Waiting = &Blocked{Kind: fault.Later, Reason: DependencyNotReady}
	}
	if rarely("gap") {
		o.Memory.Gap = &Gap{Run: "g", Source: rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "gapSource"), Objects: []Unrecorded{{Address: "a"}}}
	}
	if rarely("dependents") {
		o.Dependents = []string{"b"}
	}
	if rarely("run") {
		o.Run = &Run{ID: "r", Kind: rapid.SampledFrom([]RunKind{PlanRun, CheckRun, ApplyRun, DestroyRun}).Draw(t, "kind")}
	}
	if rarely("request") {
		o.Request = "t1"
	}
	return o
}

// What is blocked waits as long as its kind of failure says.
func TestBlocked(t *testing.T) {
	for name, tt := range map[string]struct {
		kind  fault.Kind
		ready Readiness
		wait  time.Duration
	}{
		"an invalid spec waits for an edit":   {fault.Invalid, Stalled, 0},
		"a denied source is asked again":      {fault.Denied, Stalled, time.Minute},
		"a missing source is looked for":      {fault.Missing, Reconciling, time.Minute},
		"a broken one is tried again as well": {fault.Broken, Reconciling, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observation{Spec: Spec{RetryEvery: time.Minute}, Blocked: &Blocked{Kind: tt.kind, Reason: SourceFailed, Message: "m"}}
			d := Decide(o)
			if d.Ready != tt.ready || d.Action != (Wait{tt.wait}) || d.Reason != SourceFailed || d.Message != "m" {
				t.Errorf("Decide() = %+v, want %s and a wait of %v", d, tt.ready, tt.wait)
			}
		})
	}
}

// What somebody does not want is said; what somebody approves is applied.
func TestRejected(t *testing.T) {
	basis := Basis{Source: "s"}
	plan := &Plan{Name: "p1", Digest: "d", Basis: basis}
	o := Observation{Now: time.Unix(1e9, 0), Basis: basis, Spec: Spec{Mode: Manual, Rejected: "p1"}, Memory: Memory{Planned: basis, Pending: plan}}
	if d := Decide(o); d.Reason != AwaitingApproval || !strings.Contains(d.Message, "was rejected") {
		t.Errorf("Decide() = %s %q, want to be told of the rejection", d.Reason, d.Message)
	}
	o.Spec.Approved = "p1"
	if d := Decide(o); d.Reason != Applying {
		t.Errorf("Decide() = %s, want the approval to count", d.Reason)
	}
}
