package stack

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// history is a stack whose applies are made and checked one after another.
type history struct {
	o       Observation
	engine  string
	inputs  string
	follows bool // the inputs follow from what is applied, as those of a stack that reads what its own apply made
	seq     int
}

func rolling(spec Spec) *history {
	spec.CheckDrift, spec.Health = true, "h"
	return &history{o: calmly(spec, Status{}), engine: "tofu"}
}

func (h *history) run(kind RunKind, outcome Outcome, cause Cause, change func(*Run)) {
	h.seq++
	h.o.Now = h.o.Now.Add(time.Second)
	cause.PlanInputs, cause.Place, cause.Whole = h.o.PlanInputs, "place", true
	cause.Snapshot = "record of " + h.o.PlanInputs.Source
	r := Run{ID: fmt.Sprint(kind, h.seq), Kind: kind, Done: true, Outcome: outcome, Cause: cause, At: h.o.Now, Exists: true}
	if change != nil {
		change(&r)
	}
	h.o.Status = h.o.Status.Record(r)
}

// asks is what the object asks for from now on, as the observer finds it.
func (h *history) asks(source string) {
	asked := PlanInputs{Revision: "main@sha1:" + source, Source: source, Inputs: h.inputs, Engine: h.engine}
	if a := h.o.Status.Applied; h.follows && a != nil {
		asked.Inputs = a.PlanInputs.Source
	}
	h.o.Status = WithRollback(h.o.Status, h.o.Spec, asked)
	h.o.PlanInputs = asked
	if b := h.o.Status.Rollback; b != nil {
		h.o.PlanInputs = b.Inputs(asked.Engine)
	}
}

func (h *history) plans(c Changes) *Plan {
	p := &Plan{Name: fmt.Sprint("p", h.seq), Digest: fmt.Sprint("d", h.seq), PlanInputs: h.o.PlanInputs, Changes: c}
	h.run(PlanRun, Succeeded, Cause{}, func(r *Run) { r.Plan = p })
	return p
}

func (h *history) applies(source string) {
	h.asks(source)
	p := h.plans(Changes{Change: 1})
	h.run(ApplyRun, Succeeded, Cause{Plan: p}, func(r *Run) { r.State = fmt.Sprint("st", h.seq) })
}

func (h *history) checks(outcome Outcome) {
	h.run(HealthRun, outcome, Cause{Health: HealthKey("h", h.o.Status.LastWrite)}, func(r *Run) {
		if outcome != Succeeded {
			r.Message = "no answer"
		}
	})
}

// begins carries out a rollback as the controller does.
func (h *history) begins(t *testing.T) Rollback {
	t.Helper()
	a, ok := Decide(h.o).Action.(RollBack)
	if !ok {
		t.Fatalf("Decide() = %+v, want a rollback", Decide(h.o))
	}
	h.o.Status = BeginRollback(h.o.Status, a.Rollback, h.o.Spec.RollBack)
	h.asks(a.Rollback.From.Source)
	return a.Rollback
}

// A good apply, a bad one, and the good one again.
func TestABadApplyIsRolledBack(t *testing.T) {
	h := rolling(Spec{Mode: Auto, RollsBack: true})
	h.applies("good")
	h.checks(Succeeded)
	h.applies("bad")
	h.checks(Failed)
	b := h.begins(t)
	if b.From.Source != "bad" || b.To.PlanInputs.Source != "good" || b.To.Snapshot != "record of good" || b.Why != "no answer" {
		t.Fatalf("rolls back %+v", b)
	}
	d := Decide(h.o)
	if a, ok := d.Action.(Start); !ok || a.Kind != PlanRun || a.Why != "rollback to main@sha1:good" {
		t.Fatalf("Decide() = %+v, want a plan of the good inputs", d)
	}
	p := h.plans(Changes{Change: 1})
	if a, ok := Decide(h.o).Action.(Apply); !ok || a.Plan.Digest != p.Digest || p.PlanInputs.Source != "good" {
		t.Fatalf("Decide() = %+v, want the plan applied", Decide(h.o))
	}
	h.run(ApplyRun, Succeeded, Cause{Plan: p}, nil)
	h.checks(Succeeded)
	d = Decide(h.o)
	if d.Reason != RolledBack || d.Ready != Stalled || !strings.Contains(d.Message, "from main@sha1:bad to main@sha1:good") || !strings.Contains(d.Message, "no answer") {
		t.Fatalf("Decide() = %+v, want it to say what was rolled back", d)
	}
	if got := h.o.Recheck(d); got != h.o.Spec.Interval {
		t.Errorf("drift is checked every %v, want %v", got, h.o.Spec.Interval)
	}
	if keys := h.o.Status.Snapshots(); len(keys) != 2 || keys[0] != "record of good" || keys[1] != "record of good" {
		t.Errorf("keeps the records %q, want those of the good apply", keys)
	}
}

// What is not rolled back by itself.
func TestWhatIsNotRolledBack(t *testing.T) {
	for name, tt := range map[string]struct {
		spec   Spec
		before func(*history)
		then   func(*history)
	}{
		"without the annotation":              {Spec{Mode: Auto}, nil, nil},
		"a stack that only plans":             {Spec{Mode: PlanOnly, RollsBack: true}, nil, nil},
		"a stack that is applied by a script": {Spec{Mode: Auto, RollsBack: true, Script: true}, nil, nil},
		"a module that names its backend":     {Spec{Mode: Auto, RollsBack: true, OwnBackend: true}, nil, nil},
		"checks that were killed": {Spec{Mode: Auto, RollsBack: true}, nil, func(h *history) {
			h.o.Status.Failure = Failure{}
			h.checks(Killed)
		}},
		"checks that ran out of their time": {Spec{Mode: Auto, RollsBack: true}, nil, func(h *history) {
			h.o.Status.Failure = Failure{}
			h.checks(TimedOut)
		}},
		"other checks than those that failed": {Spec{Mode: Auto, RollsBack: true}, nil, func(h *history) { h.o.Spec.Health = "others" }},
		"nothing that was healthy":            {Spec{Mode: Auto, RollsBack: true}, func(h *history) { h.o.Status.Revisions[0].Healthy = false }, nil},
		"a state that was elsewhere":          {Spec{Mode: Auto, RollsBack: true}, func(h *history) { h.o.Status.Revisions[0].Place = "another" }, nil},
		"what another commit has replaced":    {Spec{Mode: Auto, RollsBack: true}, nil, func(h *history) { h.asks("next") }},
		"a suspended stack":                   {Spec{Mode: Auto, RollsBack: true}, nil, func(h *history) { h.o.Spec.Suspended = true }},
		"what worked before": {Spec{Mode: Auto, RollsBack: true}, nil, func(h *history) {
			h.o.Status.Failure = Failure{}
			h.checks(Succeeded)
			h.applies("bad") // drift was remediated
			h.checks(Failed)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := rolling(tt.spec)
			h.applies("good")
			h.checks(Succeeded)
			if tt.before != nil {
				tt.before(h)
			}
			h.applies("bad")
			h.checks(Failed)
			if tt.then != nil {
				tt.then(h)
			}
			if a, ok := Decide(h.o).Action.(RollBack); ok {
				t.Errorf("Decide() rolls back to %+v, want it not to", a)
			}
		})
	}
}

// A stack that works no more says why it is not rolled back.
func TestWhyItIsNotRolledBackIsSaid(t *testing.T) {
	h := rolling(Spec{Mode: Auto, RollsBack: true})
	h.applies("bad")
	h.checks(Failed)
	if d := Decide(h.o); !strings.Contains(d.Message, "It is not rolled back: no earlier apply is known") {
		t.Errorf("Decide() = %+v, want it to say why nothing is rolled back", d)
	}
}

// A rollback ends with another commit, or when a user ends it, and with nothing else.
func TestARollbackEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*history)
		wants  string // what is planned from now on
	}{
		"nothing changes":               {func(h *history) { h.asks("bad") }, "good"},
		"another engine":                {func(h *history) { h.engine = "tofu 2"; h.asks("bad") }, "good"},
		"a request for a plan":          {func(h *history) { h.o.Replan = "t1"; h.asks("bad") }, "good"},
		"another commit":                {func(h *history) { h.asks("next") }, "next"},
		"a revert":                      {func(h *history) { h.asks("good") }, "good"},
		"a user ends it":                {func(h *history) { h.o.Spec.RollBack = RollbackRequest(EndRollback, calm, ""); h.asks("bad") }, "bad"},
		"a request of before ends none": {func(h *history) { h.o.Status.AnsweredRollback = "end@x"; h.o.Spec.RollBack = "end@x"; h.asks("bad") }, "good"},
	} {
		t.Run(name, func(t *testing.T) {
			h := rolledBack(t, Spec{Mode: Auto})
			h.applies("bad") // the good one
			h.checks(Succeeded)
			tt.change(h)
			if got := h.o.PlanInputs.Source; got != tt.wants {
				t.Errorf("plans are made from %q, want %q", got, tt.wants)
			}
			if d := Decide(h.o); tt.wants != "good" && d.Reason != Planning && d.Reason != SourceDebounced {
				t.Errorf("Decide() = %+v, want a plan", d)
			}
		})
	}
}

// A rollback that destroys something waits for a user who approves exactly its plan.
func TestARollbackThatDestroysNeedsAnApproval(t *testing.T) {
	for name, mode := range map[string]Spec{
		"automatic": {Mode: Auto}, "manual": {Mode: Manual}, "forced": {Mode: Auto, Force: true},
	} {
		t.Run(name, func(t *testing.T) {
			mode.RollsBack = true
			h := rolling(mode)
			h.applies("good")
			h.checks(Succeeded)
			h.applies("bad")
			h.checks(Failed)
			h.begins(t)
			p := h.plans(Changes{Add: 1, Destroy: 2})
			d := Decide(h.o)
			if d.Reason != AwaitingApproval || d.Ready != Held || !strings.Contains(d.Message, "destroys 2 resources") || !strings.Contains(d.Message, "no answer") {
				t.Fatalf("Decide() = %+v, want it to wait for an approval, and say why", d)
			}
			if !h.o.Spec.AwaitsApproval(h.o.Status) {
				t.Error("AwaitsApproval() = false, want true")
			}
			if h.o.Spec.Mode == Manual {
				h.o.Spec.Approved = p.Name
			} else {
				h.o.Spec.Confirms = p.Name + " ada"
			}
			if a, ok := Decide(h.o).Action.(Apply); !ok || a.Plan.Digest != p.Digest {
				t.Fatalf("Decide() = %+v once it is approved, want it applied", Decide(h.o))
			}
			h.run(ApplyRun, Succeeded, Cause{Plan: p}, nil)
			h.checks(Succeeded)
			h.run(CheckRun, Succeeded, Cause{}, func(r *Run) {
				r.Plan = &Plan{Name: "drift", Digest: "drift", PlanInputs: h.o.PlanInputs, Drift: true, Changes: Changes{Destroy: 1}}
			})
			if Returning(h.o.Status) {
				t.Error("drift after the rollback counts as the rollback, want it remediated as ever")
			}
		})
	}
}

// A user rolls back from exactly what the user saw.
func TestAUserRollsBack(t *testing.T) {
	h := rolling(Spec{Mode: Auto})
	h.o.Spec.Health = ""
	h.applies("one")
	h.applies("two")
	request := RollbackRequest(h.o.PlanInputs.Token(), calm, "it is slow")
	if token, why, ok := ReadRollbackRequest(request); !ok || why != "it is slow" || token != h.o.PlanInputs.Token() {
		t.Fatalf("ReadRollbackRequest(%q) = %q, %q, %v", request, token, why, ok)
	}
	for _, wrong := range []string{"", "x", "two", "two@now", "end", h.o.PlanInputs.Token()} {
		if _, _, ok := ReadRollbackRequest(wrong); ok {
			t.Errorf("ReadRollbackRequest(%q) = true, want false", wrong)
		}
	}
	later := *h
	h.o.Spec.RollBack = request
	b := h.begins(t)
	if b.To.PlanInputs.Source != "one" || b.Request != request || b.Why != "it is slow" {
		t.Fatalf("rolls back %+v, want the apply before", b)
	}
	p := h.plans(Changes{Change: 1})
	h.run(ApplyRun, Succeeded, Cause{Plan: p}, nil)
	if d := Decide(h.o); d.Reason != RolledBack || d.Ready != Held || !strings.Contains(d.Message, "on request: it is slow") {
		t.Errorf("Decide() = %+v, want it rolled back", d)
	}
	later.applies("three")
	later.o.Spec.RollBack = request
	if a, ok := Decide(later.o).Action.(RollBack); ok {
		t.Errorf("a request to leave an earlier commit rolls back %+v, want nothing", a)
	}
}

// Whatever commits come, whichever of them work, and however often the status is lost: one change
// leads to one rollback at most, and to two where the inputs follow from what is applied; a rollback
// returns to what worked, and what it left is not applied again before something else is asked for.
func TestRollbacksDoNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := rolling(Spec{Mode: Auto, RollsBack: true})
		h.follows = rapid.Bool().Draw(t, "the inputs follow from what is applied")
		most := 1
		if h.follows {
			most = 2
		}
		worked, rollbacks := map[string]bool{}, 0
		asked := "c0"
		for range rapid.IntRange(1, 120).Draw(t, "passes") {
			if rapid.IntRange(0, 9).Draw(t, "commit") == 0 {
				asked = rapid.SampledFrom([]string{"c0", "c1", "c2", "c3"}).Draw(t, "source")
				rollbacks = 0
				h.o.Now = h.o.Now.Add(time.Minute) // it is not debounced
			}
			if rapid.IntRange(0, 19).Draw(t, "status lost") == 0 {
				h.o.Status = Status{}.Restored(h.o.Status.Checkpoint())
			}
			h.asks(asked)
			switch a := Decide(h.o).Action.(type) {
			case RollBack:
				if rollbacks++; rollbacks > most {
					t.Fatalf("rolled back %d times for one commit: %+v", rollbacks, a)
				}
				if to := a.Rollback.To.PlanInputs.Source; !worked[to] {
					t.Fatalf("rolls back to %q, which never worked", to)
				}
				h.o.Status = BeginRollback(h.o.Status, a.Rollback, "")
			case Start:
				switch {
				case a.Kind == HealthRun && rapid.Bool().Draw(t, "works"):
					h.checks(Succeeded)
					worked[h.o.PlanInputs.Source] = true
					if last, known := h.o.Status.lastRevision(); known {
						worked[last.PlanInputs.Source] = true // the plan of the newer one had no changes
						worked[last.Same.Source] = true       // nor had that of these
					}
				case a.Kind == HealthRun:
					h.checks(Failed)
				case a.Kind == PlanRun && rapid.Bool().Draw(t, "changes"):
					h.plans(Changes{Change: 1})
				default:
					h.run(a.Kind, Succeeded, Cause{}, nil)
					h.o.CheckedAt = h.o.Now
					if last, known := h.o.Status.lastRevision(); known && last.Healthy && last.is(h.o.PlanInputs) {
						worked[h.o.PlanInputs.Source] = true // nothing is different
					}
				}
			case Apply:
				if b := h.o.Status.Rollback; b != nil && a.Plan.PlanInputs.alike(b.From) {
					t.Fatalf("applies %+v, which was rolled back", b.From)
				}
				h.run(ApplyRun, Succeeded, Cause{Plan: &a.Plan}, nil)
			case Wait:
				h.o.Now = h.o.Now.Add(max(a.For, time.Second))
			}
			if n := len(h.o.Status.Revisions); n > 2 {
				t.Fatalf("%d revisions are kept, want two at most", n)
			}
		}
	})
}

// A stack that reads what its own apply made has other inputs once it is rolled back. They end the
// first rollback, and the second one lasts.
func TestInputsThatFollowFromAnApplyDoNotFlap(t *testing.T) {
	h := rolling(Spec{Mode: Auto, RollsBack: true})
	apply := func(source, inputs string) {
		h.inputs = inputs
		h.applies(source)
	}
	apply("good", "of good")
	h.checks(Succeeded)
	apply("bad", "of bad")
	h.checks(Failed)
	if b := h.begins(t); b.Lasting {
		t.Errorf("the first rollback is %+v, want that other inputs end it", b)
	}
	apply("bad", "of bad") // the good one
	h.inputs = "of good"
	if h.asks("bad"); h.o.Status.Rollback != nil || h.o.PlanInputs.Source != "bad" {
		t.Fatalf("with other inputs it is rolled back by %+v", h.o.Status.Rollback)
	}
	apply("bad", "of good")
	h.checks(Failed)
	if b := h.begins(t); !b.Lasting || b.To.PlanInputs.Source != "good" {
		t.Fatalf("the second rollback is %+v, want one to good that lasts", b)
	}
	h.inputs = "of something else"
	if h.asks("bad"); h.o.PlanInputs.Source != "good" {
		t.Errorf("it plans %q, want good", h.o.PlanInputs.Source)
	}
	h.applies("bad")
	h.checks(Succeeded)
	if d := Decide(h.o); d.Reason != RolledBack || !strings.Contains(d.Message, "when the source or the spec changes, since other inputs did not help") {
		t.Errorf("Decide() = %+v, want it to say what ends the rollback", d)
	}
	if h.asks("better"); h.o.PlanInputs.Source != "better" {
		t.Errorf("after another commit it plans %q", h.o.PlanInputs.Source)
	}
}

// rolledBack is a stack whose rollback began, and whose good revision is not applied yet.
func rolledBack(t *testing.T, spec Spec) *history {
	t.Helper()
	spec.RollsBack = true
	h := rolling(spec)
	h.applies("good")
	h.checks(Succeeded)
	h.applies("bad")
	h.checks(Failed)
	h.begins(t)
	return h
}

// A rollback whose apply fails is retried as every apply, stops where the user says, and is not
// rolled back any further.
func TestARollbackThatFails(t *testing.T) {
	retries := 1
	h := rolledBack(t, Spec{Mode: Auto, MaxRetries: &retries})
	for range 2 {
		if a, ok := Decide(h.o).Action.(Start); !ok || a.Kind != PlanRun {
			t.Fatalf("Decide() = %+v, want a plan", Decide(h.o))
		}
		p := h.plans(Changes{Change: 1})
		if a, ok := Decide(h.o).Action.(Apply); !ok || a.Plan.PlanInputs.Source != "good" {
			t.Fatalf("Decide() = %+v, want the good inputs applied", Decide(h.o))
		}
		h.run(ApplyRun, Failed, Cause{Plan: p}, func(r *Run) { r.Message = "no quota." })
		h.o.Now = h.o.Now.Add(time.Hour)
		h.asks("bad")
	}
	d := Decide(h.o)
	if d.Reason != RetryLimitReached || d.Ready != Stalled || !strings.HasPrefix(d.Message, "no quota. This was a rollback from main@sha1:bad to main@sha1:good, since") || !strings.HasSuffix(d.Message, "--end") {
		t.Errorf("Decide() = %+v, want it to stop, and to say what failed", d)
	}
	if h.o.Status.Rollback == nil || len(h.o.Status.Revisions) != 2 {
		t.Errorf("the status has %+v, want the rollback and both applies", h.o.Status.Recovery)
	}
}

// An apply that failed half-way may have replaced anything, although the good apply is the last one
// that succeeded: a rollback from it that destroys something needs an approval as well.
func TestARollbackOfAFailedApplyNeedsAnApproval(t *testing.T) {
	h := rolling(Spec{Mode: Auto})
	h.applies("good")
	h.checks(Succeeded)
	h.asks("bad")
	h.run(ApplyRun, Failed, Cause{Plan: h.plans(Changes{Add: 1, Destroy: 1})}, func(r *Run) { r.Message = "half-way" })
	h.o.Spec.RollBack = RollbackRequest(h.o.PlanInputs.Token(), calm, "")
	if b := h.begins(t); b.To.PlanInputs.Source != "good" {
		t.Fatalf("rolls back %+v", b)
	}
	p := h.plans(Changes{Destroy: 1})
	if d := Decide(h.o); d.Reason != AwaitingApproval || !strings.Contains(d.Message, "destroys 1 resource") {
		t.Fatalf("Decide() = %+v, want it to wait for an approval", d)
	}
	h.o.Spec.Confirms = p.Name
	if a, ok := Decide(h.o).Action.(Apply); !ok || a.Plan.Digest != p.Digest {
		t.Errorf("Decide() = %+v once it is approved, want it applied", Decide(h.o))
	}
}

// A user ends a rollback to what cannot be planned any more: the checks are made again before
// anything is rolled back again.
func TestTheEndOfARollbackIsNotAnotherOne(t *testing.T) {
	h := rolledBack(t, Spec{Mode: Auto})
	h.o.Spec.RollBack = RollbackRequest(EndRollback, calm, "")
	h.asks("bad")
	if a, ok := Decide(h.o).Action.(RollBack); ok || h.o.Status.Rollback != nil {
		t.Fatalf("Decide() rolls back again: %+v", a)
	}
	h.checks(Failed)
	h.begins(t)
}

// What a rollback returned to may fail its checks as well: it stays, and says so.
func TestARollbackIsNotRolledBack(t *testing.T) {
	h := rolledBack(t, Spec{Mode: Auto})
	h.applies("bad") // the good one
	h.checks(Failed)
	h.o.Now = h.o.Now.Add(time.Second)
	d := Decide(h.o)
	if _, ok := d.Action.(RollBack); ok || !strings.Contains(d.Message, "It was rolled back to this from main@sha1:bad, so it is not rolled back again") {
		t.Errorf("Decide() = %+v, want it to stay", d)
	}
}

// A rollback is no reason to keep a deleted stack: it is destroyed from what was applied last, and
// what the object asks for, which is not that, corrects nothing.
func TestARolledBackStackIsDeleted(t *testing.T) {
	for name, then := range map[string]func(*history){
		"before its plan": func(*history) {},
		"after a failed apply": func(h *history) {
			h.run(ApplyRun, Failed, Cause{Plan: h.plans(Changes{Destroy: 1})}, nil)
		},
		"after its apply": func(h *history) { h.applies("bad") },
	} {
		t.Run(name, func(t *testing.T) {
			h := rolledBack(t, Spec{Mode: Auto, DestroyLast: true, ApproveDestroy: true})
			then(h)
			asked := h.o.Status.Rollback.From
			h.o.Deleting, h.o.Status = true, h.o.Status.WithDeletion()
			h.o.PlanInputs = PlanInputs{}
			if h.o.Status.Corrects(asked, PlanInputs{Source: "good"}) {
				t.Error("what the object asked for when it was deleted counts as a correction")
			}
			if a, ok := Decide(h.o).Action.(Start); !ok || !a.Destroy {
				t.Fatalf("Decide() = %+v, want a plan of the destroy", Decide(h.o))
			}
			h.run(PlanRun, Succeeded, Cause{Destroy: true}, func(r *Run) {
				r.Plan = &Plan{Name: "destroy", Digest: "destroy", PlanInputs: h.o.PlanInputs, Destroy: true, Changes: Changes{Destroy: 3}}
			})
			if d := Decide(h.o); Returning(h.o.Status) || d.Reason != AwaitingApproval || strings.Contains(d.Message, "olling back") {
				t.Errorf("Decide() = %+v, want it to wait for the approval of the destroy, and of nothing else", d)
			}
			h.o.Spec.Confirms = "destroy"
			if a, ok := Decide(h.o).Action.(Apply); !ok || !a.Plan.Destroy {
				t.Errorf("Decide() = %+v once it is approved, want it destroyed", Decide(h.o))
			}
		})
	}
}

// The status is lost before the checks are known to have failed: they are made again.
func TestABadApplyIsRolledBackWithoutItsStatus(t *testing.T) {
	h := rolling(Spec{Mode: Auto, RollsBack: true})
	h.applies("good")
	h.checks(Succeeded)
	h.applies("bad")
	h.checks(Failed)
	h.o.Status = Status{}.Restored(h.o.Status.Checkpoint())
	h.asks("bad")
	if a, ok := Decide(h.o).Action.(Start); !ok || a.Kind != PlanRun {
		t.Fatalf("Decide() = %+v, want a plan", Decide(h.o))
	}
	h.run(PlanRun, Succeeded, Cause{}, func(r *Run) { r.Exists = true })
	if a, ok := Decide(h.o).Action.(Start); !ok || a.Kind != HealthRun {
		t.Fatalf("Decide() = %+v, want the health checks", Decide(h.o))
	}
	h.checks(Failed)
	if b := h.begins(t); b.To.PlanInputs.Source != "good" {
		t.Fatalf("rolls back %+v", b)
	}
	p := h.plans(Changes{Destroy: 1})
	h.o.Status = Status{}.Restored(h.o.Status.Checkpoint())
	h.asks("bad")
	if h.o.PlanInputs.Source != "good" {
		t.Fatalf("it plans %q, want good", h.o.PlanInputs.Source)
	}
	h.run(PlanRun, Succeeded, Cause{}, func(r *Run) { r.Plan, r.Exists = p, true })
	if d := Decide(h.o); d.Reason != AwaitingApproval {
		t.Errorf("Decide() = %+v, want a plan that destroys to wait all the same", d)
	}
}

// A request that names something else than what is asked for came too late. It never counts, also
// not once that is asked for again.
func TestARequestThatCameTooLate(t *testing.T) {
	for name, request := range map[string]func(*history) string{
		"for a rollback": func(h *history) string { return RollbackRequest(h.o.PlanInputs.Token(), calm, "") },
		"for the end":    func(*history) string { return RollbackRequest(EndRollback, calm, "") },
	} {
		t.Run(name, func(t *testing.T) {
			h := rolling(Spec{Mode: Auto, RollsBack: true})
			h.applies("one")
			h.checks(Succeeded)
			h.applies("two")
			h.o.Spec.RollBack = request(h)
			h.applies("three")
			h.applies("two")
			h.asks("two")
			if a, ok := Decide(h.o).Action.(RollBack); ok {
				t.Errorf("Decide() rolls back %+v, want nothing", a)
			}
			h.checks(Failed)
			b := h.begins(t)
			if h.asks("two"); h.o.Status.Rollback == nil {
				t.Errorf("the rollback %+v ended by a request of before", b)
			}
		})
	}
}

// The checkpoint of a status has what a stack was rolled back from.
func TestARollbackSurvivesTheStatus(t *testing.T) {
	h := rolling(Spec{Mode: Auto, RollsBack: true})
	h.applies("good")
	h.checks(Succeeded)
	h.applies("bad")
	h.checks(Failed)
	before := h.o.Status.Checkpoint()
	b := h.begins(t)
	kept := h.o.Status.Checkpoint()
	if kept.Same(before) || !kept.Same(h.o.Status.Checkpoint()) {
		t.Error("Same() does not tell a checkpoint with a rollback from one without")
	}
	restored := Status{}.Restored(kept)
	if restored.Rollback == nil || restored.Rollback.From != b.From || len(restored.Revisions) != 2 {
		t.Errorf("Restored() = %+v, want the rollback and the applies", restored.Recovery)
	}
}
