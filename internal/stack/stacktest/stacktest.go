// Package stacktest makes observations for tests of what is decided, and lists
// what there is to be explained. It is for tests only.
package stacktest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Observation draws from small domains so that coincidences are common.
func Observation(t *rapid.T) stack.Observation {
	rarely := func(name string) bool { return rapid.IntRange(0, 7).Draw(t, name) == 0 }
	often := func(name string) bool { return !rarely(name) }
	ago := func(name string) time.Time {
		return time.Unix(1e9-int64(rapid.SampledFrom([]int{10, 10, 7200}).Draw(t, name)), 0)
	}
	inputs := func(name string) stack.PlanInputs {
		return stack.PlanInputs{Revision: "r", Source: rapid.SampledFrom([]string{"s1", "s1", "s1", "s2"}).Draw(t, name)}
	}
	one := 1
	o := stack.Observation{
		Now: time.Unix(1e9, 0), PlanInputs: inputs("inputs"), Deleting: rapid.IntRange(0, 3).Draw(t, "deleting") == 0, CheckedAt: ago("checked"), Unwritten: rarely("unwritten"),
		Spec: stack.Spec{
			Mode: rapid.SampledFrom([]stack.Mode{stack.Auto, stack.Manual, stack.PlanOnly, stack.DriftOnly}).Draw(t, "mode"), Force: rarely("force"),
			Suspended: rarely("suspended"), Destroy: rarely("destroy"), DestroyLast: rapid.Bool().Draw(t, "destroyLast"),
			CheckDrift: often("checkDrift"), Approved: rapid.SampledFrom([]string{"", "p1"}).Draw(t, "approved"),
			Interval: time.Hour, RetryEvery: time.Minute, RetryMax: time.Hour,
			Outputs: rapid.SampledFrom([]string{"", "o"}).Draw(t, "outputs"), Unlock: stack.Unlock{Auto: rapid.Bool().Draw(t, "unlock")},
		},
		Status: stack.Status{
			Plans:       stack.Plans{Planned: inputs("planned"), PlannedAt: ago("plannedAt")},
			Resources:   stack.Resources{AppliedAt: ago("appliedAt"), Created: rapid.Bool().Draw(t, "built"), Destroyed: rarely("destroyed")},
			StoredState: stack.StoredState{State: "st", Published: rapid.SampledFrom([]string{"", stack.Publication("o", "st")}).Draw(t, "published")},
		},
	}
	if rarely("limit") {
		o.Spec.MaxRetries = &one
	}
	if rapid.Bool().Draw(t, "pending") {
		o.Status.Pending = &stack.Plan{Name: rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "plan"), Digest: "d", PlanInputs: inputs("pendingInputs")}
		if rarely("drift") {
			o.Status.Drift = &stack.Drift{}
			if rapid.Bool().Draw(t, "drift is accepted") {
				o.Spec.AcceptsDrift = stack.AcceptedDrift{Plan: "d", Until: o.Now.Add(time.Hour)}.String()
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "failed") == 0 {
		o.Status.Failures = rapid.IntRange(1, 3).Draw(t, "failures")
		o.Status.Permanent = rarely("permanent")
		o.Status.FailedAt, o.Status.FailedFor = ago("failedAt"), inputs("failedFor")
		if rapid.Bool().Draw(t, "lock") {
			o.Status.Lock = &stack.Lock{ID: "l"}
		} else if rapid.Bool().Draw(t, "missing") {
			expected := stack.ExpectedState{Last: stack.LastState{Place: "p", In: "one place", Lineage: "l", Resources: 2}, Place: "q", In: "another place"}
			o.Status.Missing = expected.Check(stack.StateFacts{})
			if rapid.Bool().Draw(t, "accepted") {
				o.Spec.AcceptState = expected.Token() + "@t3"
			}
		}
	}
	if rarely("blocked") {
		o.Blocked = &stack.Blocked{Kind: fault.Missing, Reason: stack.SourceNotReady}
	}
	if rarely("waiting") {
		o.Waiting = &stack.Blocked{Kind: fault.Later, Reason: stack.DependencyNotReady}
	}
	if rarely("unmet") {
		o.Unmet = &stack.Blocked{Kind: fault.Later, Reason: stack.PrerequisiteMissing}
	}
	if rarely("applied") {
		o.Status.Applied = &stack.Plan{PlanInputs: inputs("appliedInputs")}
	}
	if rarely("untracked") {
		o.Status.Untracked = &stack.Untracked{Run: "g", Source: rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "untrackedSource"), Objects: []stack.UntrackedResource{{Address: "a"}}}
	}
	o.OtherDestroy = rarely("other destroy")
	if rarely("steps") {
		drawSteps(t, &o)
	}
	if rarely("dependents") {
		o.Dependents = []string{"b"}
	}
	if rarely("run") {
		o.Run = &stack.Run{ID: "r", Kind: rapid.SampledFrom([]stack.RunKind{stack.PlanRun, stack.CheckRun, stack.ApplyRun, stack.DestroyRun, stack.PreviewRun, stack.HealthRun, stack.BreakGlassRun, stack.ScriptRun}).Draw(t, "kind")}
	}
	if rarely("request") {
		o.Replan = "t1"
	}
	if rarely("cancel") {
		o.Spec.Cancel = "r"
		if rapid.Bool().Draw(t, "cancelled") {
			o.Status.Cancelled = &stack.Cancellation{Run: "r0", Ended: o.Now, Kind: stack.ApplyRun, For: o.PlanInputs, Outcome: stack.Interrupted}
		}
	}
	if rarely("rejected") {
		o.Spec.Rejected = "p1"
	}
	if rapid.IntRange(0, 3).Draw(t, "script") == 0 {
		o.Spec.Script, o.Spec.CheckDrift, o.Spec.Destroy = true, true, false
		if rapid.Bool().Draw(t, "script long ago") {
			long := o.Now.Add(-2 * time.Hour)
			o.Status.PlannedAt, o.Status.AppliedAt, o.CheckedAt = long, long, long
		}
		o.Spec.ReportDrift, o.Spec.NoDestroyScript = rapid.Bool().Draw(t, "reportDrift"), rapid.Bool().Draw(t, "noDestroyScript")
	}
	drawWorstDay(t, &o, rarely, ago)
	if rapid.IntRange(0, 5).Draw(t, "revisions") == 0 {
		drawRevisions(t, &o)
	}
	if rarely("obstacle") {
		drawObstacle(t, &o)
	}
	if rarely("at rest") {
		rest(&o)
	}
	return o
}

// rest clears what comes before the rules of a stack to which nothing happens: with
// many ways to be busy, few stacks would be drawn that are not.
func rest(o *stack.Observation) {
	o.Deleting, o.Spec.Suspended, o.Replan, o.Queued, o.Unreadable = false, false, "", "", ""
	o.Run, o.Blocked, o.Waiting, o.Unmet, o.Unsettled, o.Obstacle = nil, nil, nil, nil, nil, nil
	o.Status.Pending, o.Status.Untracked, o.Status.Failure = nil, nil, stack.Failure{}
	o.Status.Planned = o.PlanInputs
}

// drawSteps adds steps that follow an apply.
func drawSteps(t *rapid.T, o *stack.Observation) {
	o.Steps = &stack.Steps{Digest: "sha256:5", Outputs: "o"}
	o.Status.Applied = &stack.Plan{PlanInputs: o.PlanInputs}
	if rapid.Bool().Draw(t, "steps ran") {
		key := stack.StepsKey(*o.Steps, o.Status)
		o.Status.AfterApply = &stack.AfterApply{Approved: rapid.SampledFrom([]string{"", "sha256:5"}).Draw(t, "approved steps")}
		switch rapid.IntRange(0, 2).Draw(t, "steps ended") {
		case 0:
			o.Status.AfterApply.Done = key
		case 1:
			o.Status.AfterApply.Failed, o.Status.AfterApply.Message = key, "m"
		}
	}
	o.Spec.Rerun = rapid.SampledFrom([]string{"", "5@1"}).Draw(t, "rerun")
}

// drawObstacle adds what a pass may meet on its way.
func drawObstacle(t *rapid.T, o *stack.Observation) {
	switch rapid.IntRange(0, 3).Draw(t, "obstacle is") {
	case 0:
		o.Unreadable = "it is no JSON"
	case 1:
		o.Unsettled = &stack.Blocked{Kind: fault.Later, Reason: stack.StateFailed}
	case 2:
		o.Obstacle = &stack.Blocked{Kind: fault.Denied, Reason: stack.StateShared}
	default:
		o.Asking = true
	}
}

// drawWorstDay adds what few stacks have.
func drawWorstDay(t *rapid.T, o *stack.Observation, rarely func(string) bool, ago func(string) time.Time) {
	o.Spec.ApproveDestroy = rapid.Bool().Draw(t, "approveDestroy")
	if rarely("preview") {
		o.Spec.Preview = "t2"
	}
	if rarely("reviews") {
		o.Spec.Reviews = "w"
		if rapid.Bool().Draw(t, "reviewed") {
			o.Status.Review = &stack.Verdict{Plan: "d", By: "w", Passed: rapid.Bool().Draw(t, "passed"), Held: rapid.Bool().Draw(t, "held"), Refused: rapid.Bool().Draw(t, "refused"), At: ago("reviewedAt")}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "policies") == 0 {
		drawPolicies(t, o, rarely)
	}
	if rarely("glass") {
		o.Spec.BreakGlass = "g1"
		o.Status.BreakGlass = &stack.BreakGlass{Session: "g1", Until: ago("sessionUntil").Add(time.Minute)}
		if rapid.Bool().Draw(t, "command") {
			o.Spec.Command = &stack.Command{ID: "c1", Session: "g1", Args: []string{"state", "list"}}
		}
	}
	if rarely("health") {
		o.Spec.Health, o.Status.LastWrite = "h", "apply-1"
		if o.Status.Failures > 0 && rapid.Bool().Draw(t, "unwell") {
			drawIll(t, o)
		}
	}
	if rarely("moved") {
		o.Status.SourceChangedAt = ago("movedAt").Add(5 * time.Second)
	}
	if p := o.Status.Pending; p != nil {
		p.Destroy = rapid.Bool().Draw(t, "ending")
		p.Whole = p.Destroy && !rarely("ending of targets")
		if rarely("circle") {
			p.Addresses, p.Destroy, p.Whole = "a", false, false
			o.Status.Recurrence = &stack.Recurrence{Key: p.RecurrenceKey(), Applies: 3}
		}
	}
	if g := o.Status.Untracked; g != nil && rapid.Bool().Draw(t, "repair") {
		o.Spec.Repair = &stack.Repair{Run: g.Run, Plan: rapid.SampledFrom([]string{"", "p1"}).Draw(t, "repairPlan")}
	}
}

// drawPolicies has policies judge the stack, and say when it is applied.
func drawPolicies(t *rapid.T, o *stack.Observation, rarely func(string) bool) {
	o.Spec.Policies, o.Spec.Reviews = "w", "w"
	if o.Deleting && o.Spec.DestroyLast && rapid.Bool().Draw(t, "planned destroy") {
		o.Status.Created = true
		o.Status.Pending = &stack.Plan{Name: "p1", Digest: "d", PlanInputs: o.PlanInputs, Destroy: true, Whole: true}
	}
	if rapid.Bool().Draw(t, "judged") {
		held := rapid.Bool().Draw(t, "held by a policy")
		o.Status.Review = &stack.Verdict{Plan: "d", By: "w", Held: held, Passed: !held && rapid.Bool().Draw(t, "passed by policies"), At: o.Now}
		o.Status.Review.Refused = !held && !o.Status.Review.Passed
		o.Status.Review.Allowed = o.Status.Review.Passed && rapid.Bool().Draw(t, "allowed")
	}
	o.Asking = o.Asking || rapid.Bool().Draw(t, "asking policies")
	if rapid.IntRange(0, 3).Draw(t, "frozen") == 0 {
		o.Spec.Times.Freezes = []policy.Freeze{{Policy: "p", From: o.Now.Add(-time.Hour), To: o.Now.Add(time.Hour)}}
	}
	if rarely("old plans") {
		o.Spec.Times = policy.Times{PlanAge: []policy.Age{{Policy: "p", Age: time.Second}}}
	}
}

// drawIll makes a health check the last that failed, of something that was built.
func drawIll(t *rapid.T, o *stack.Observation) {
	m := &o.Status
	m.FailedKind, m.Lock = stack.HealthRun, nil // it meets none
	m.Created, m.Destroyed, m.Planned = true, false, o.PlanInputs
	if rapid.Bool().Draw(t, "too often") {
		few := 0
		o.Spec.MaxRetries, m.FailedFor = &few, o.PlanInputs
	}
	if rapid.Bool().Draw(t, "looked") {
		return
	}
	long := o.Now.Add(-2 * time.Hour)
	m.PlannedAt, m.AppliedAt, o.CheckedAt = long, long, long
}

// drawRevisions adds applies that the stack can be rolled back to, and perhaps a rollback.
func drawRevisions(t *rapid.T, o *stack.Observation) {
	m := &o.Status
	m.Applied, m.Created, m.Destroyed = &stack.Plan{Name: "p0", PlanInputs: o.PlanInputs}, true, false
	before := stack.Revision{PlanInputs: stack.PlanInputs{Revision: "r0", Source: "s0"}, Plan: "p9", Healthy: rapid.Bool().Draw(t, "was healthy"), Snapshot: "k0", Place: m.SnapshotPlace}
	switch rapid.IntRange(0, 3).Draw(t, "rollback") {
	case 0:
		o.Spec.RollBack = stack.RollbackRequest(o.PlanInputs.Token(), o.Now, "")
	case 1:
		m.Rollback = &stack.Rollback{From: before.PlanInputs, To: stack.Revision{PlanInputs: o.PlanInputs, Plan: "p0"}, At: o.Now, Why: "m"}
	default:
		o.Spec.RollsBack, o.Spec.Health, o.Spec.Destroy = true, "h", false
		m.LastWrite, m.Healthy = "w", ""
		m.Lock, m.Failure = nil, stack.Failure{Failures: 1, FailedKind: stack.HealthRun, FailedFor: o.PlanInputs, FailedHealth: stack.HealthKey(o.Spec.Health, m.LastWrite)}
	}
	m.Revisions = []stack.Revision{before, {PlanInputs: o.PlanInputs, Plan: "p0", Run: m.LastWrite, Snapshot: "k1", Place: m.SnapshotPlace}}
}

// Reasons reads all constants of type Reason from the source of the core, which
// is in the directory dir.
func Reasons(t testing.TB, dir string) []stack.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "decision.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []stack.Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		for _, v := range spec.Values {
			text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, stack.Reason(text))
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("found %d reasons in the source, which cannot be all", len(out))
	}
	return out
}
