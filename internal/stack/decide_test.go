package stack

import (
	"fmt"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"pgregory.net/rapid"
)

// world runs the loop against a pretend cloud whose runs may fail.
type world struct {
	o        Observation
	seq      int
	content  int             // what the cloud looks like; a plan is stale once it moved
	made     map[string]int  // plan digest → content it was made against
	seen     map[string]bool // plan digests that a person could have approved
	approved map[string]bool // plan digests that a person did approve
	applied  map[string]bool
	answered map[string]bool // requests that a run answered
	exists   bool            // the truth about the cloud
	targeted bool            // what the spec targets is not everything
	partial  map[string]bool // plans of what the spec targets, and of no more
	gone     bool
}

func newWorld(t *rapid.T) *world {
	w := &world{made: map[string]int{}, seen: map[string]bool{}, approved: map[string]bool{}, applied: map[string]bool{}, answered: map[string]bool{}, partial: map[string]bool{}}
	w.targeted = rapid.IntRange(0, 3).Draw(t, "targeted") == 0
	var retries *int
	if rapid.Bool().Draw(t, "limited") {
		n := rapid.IntRange(0, 2).Draw(t, "retries")
		retries = &n
	}
	w.o = Observation{
		Now:        time.Unix(1e9, 0),
		PlanInputs: PlanInputs{Revision: "main@sha1:0", Source: "s0", Inputs: "i0", Shape: "f0", Engine: "tofu 1"},
		Spec: Spec{
			Mode:           rapid.SampledFrom([]Mode{Auto, Manual, PlanOnly, DriftOnly}).Draw(t, "mode"),
			CheckDrift:     rapid.Bool().Draw(t, "checkDrift"),
			Interval:       time.Hour,
			RetryEvery:     time.Minute,
			RetryMax:       time.Hour,
			Backoff:        rapid.SampledFrom([]Backoff{Static, Exponential}).Draw(t, "backoff"),
			DestroyLast:    rapid.Bool().Draw(t, "destroyLast"),
			ApproveDestroy: rapid.IntRange(0, 3).Draw(t, "approveDestroy") == 0,
			Health:         rapid.SampledFrom([]string{"", "", "h0"}).Draw(t, "health"),
			Reviews:        rapid.SampledFrom([]string{"", "", "w0"}).Draw(t, "reviews"),
			MaxRetries:     retries,
			Outputs:        rapid.SampledFrom([]string{"", "o0"}).Draw(t, "outputs"),
		},
	}
	if w.o.Spec.Script = rapid.IntRange(0, 2).Draw(t, "script") == 0; w.o.Spec.Script {
		w.o.Spec.Mode = rapid.SampledFrom([]Mode{Auto, Manual}).Draw(t, "scriptMode")
		w.o.Spec.CheckDrift, w.o.Spec.ReportDrift = true, rapid.Bool().Draw(t, "reportDrift")
		w.o.Spec.NoDestroyScript = rapid.IntRange(0, 5).Draw(t, "noDestroyScript") == 0
	}
	return w
}

// act carries out a decision the way the controller does.
func (w *world) act(t *rapid.T) Decision {
	d := Decide(w.o)
	w.check(t, d)
	w.seq++
	id := fmt.Sprintf("run%d", w.seq)
	w.attempts(t, d)
	cause := Cause{PlanInputs: w.o.PlanInputs, Destroy: w.o.Spec.Destroy, DestroyScript: !w.o.Spec.NoDestroyScript, Replan: d.Answers, Whole: w.o.Deleting || !w.targeted}
	switch a := d.Action.(type) {
	case Wait:
		w.o.Now = w.o.Now.Add(a.For)
	case Start:
		cause.Destroy = cause.Destroy || a.Destroy || a.Kind == PreviewRun
		if a.Kind == PreviewRun {
			cause.Preview = w.o.Spec.Preview
		}
		if a.Kind == HealthRun {
			cause.Health = HealthKey(w.o.Spec.Health, w.o.Status.LastWrite)
		}
		cause.Unlock = a.Unlock
		w.o.Run = &Run{ID: id, Kind: a.Kind, Cause: cause, Broke: a.Unlock}
	case Review:
		v := Verdict{Plan: a.Plan.Digest, By: w.o.Spec.Reviews, Message: "no", At: w.o.Now}
		*rapid.SampledFrom([]*bool{&v.Passed, &v.Held, &v.Refused, new(bool)}).Draw(t, "verdict") = true
		w.o.Status.Review = &v
	case Apply:
		w.passed(t, &a.Plan)
		cause.Plan, cause.Destroy, cause.Whole = &a.Plan, a.Plan.Destroy, !w.targeted || w.o.Deleting && a.Plan.Whole
		w.o.Run = &Run{ID: id, Kind: ApplyRun, Cause: cause}
	case RunScript:
		w.passed(t, a.Plan)
		cause.Plan, cause.Unlock = a.Plan, a.Unlock
		w.o.Run = &Run{ID: id, Kind: ScriptRun, Cause: cause, Broke: a.Unlock}
	case Destroy:
		w.o.Run = &Run{ID: id, Kind: DestroyRun, Cause: Cause{Destroy: true, Whole: true, Replan: d.Answers, Unlock: a.Unlock}, Broke: a.Unlock}
	case Cancel:
		w.o.Run.Done, w.o.Run.Outcome, w.o.Run.At = true, Interrupted, w.o.Now
		w.record(t)
	case Publish:
		w.o.Status.Published = Publication(w.o.Spec.Outputs, a.State)
	case Renew:
		w.o.OtherDestroy = false
	case Finish:
		w.gone = true
	default:
		t.Fatalf("unknown action %T", a)
	}
	return d
}

// passed checks that the reviewers let a plan pass.
func (w *world) passed(t *rapid.T, p *Plan) {
	if r := w.o.Status.Review; w.o.Spec.Reviews != "" && !w.o.Deleting && (p == nil || r == nil || r.Plan != p.Digest || !r.Passed && !(r.Held && (w.o.named() || w.o.repaired()))) {
		t.Fatalf("applies a plan that its reviewers did not let pass")
	}
}

// finish ends the run that goes on.
func (w *world) finish(t *rapid.T, mayFail bool) {
	r := w.o.Run
	if r == nil {
		return
	}
	w.o.Now = w.o.Now.Add(time.Second)
	r.Done, r.At, r.Outcome = true, w.o.Now, Succeeded
	if mayFail {
		r.Outcome = rapid.SampledFrom([]Outcome{Succeeded, Succeeded, Succeeded, Failed, Killed, TimedOut, Interrupted, Locked}).Draw(t, "outcome")
	}
	if (r.Kind == ApplyRun || r.Kind == ScriptRun && r.Cause.Plan != nil) && w.made[r.Cause.Plan.Digest] != w.content {
		r.Outcome = Stale
	}
	r.Untouched = r.Kind.Writes() && r.Outcome != Succeeded && rapid.Bool().Draw(t, "untouched")
	switch r.Kind {
	case PlanRun, CheckRun, PreviewRun:
		w.finishPlan(t, r)
	case ApplyRun:
		w.finishApply(t, r)
	case ScriptRun:
		if !r.Untouched { // also one that is stale may have made something before
			w.content++
			w.exists, r.State = true, fmt.Sprintf("state%d", w.content)
		}
	case DestroyRun:
		if r.Outcome == Succeeded {
			w.exists = false
			w.content++
		}
	}
	if r.Outcome != Succeeded {
		r.Message = "ended: " + string(r.Outcome)
	}
	if r.Outcome == Locked {
		r.Lock = &Lock{ID: fmt.Sprintf("lock%d", w.seq)}
		if r.Broke != "" && rapid.Bool().Draw(t, "the lock stays") {
			r.Lock.ID, r.Broke = r.Broke, ""
		}
	}
	if r.Kind == CheckRun && r.Outcome == Succeeded {
		w.o.CheckedAt = w.o.Now
	}
	w.record(t)
}

func (w *world) finishPlan(t *rapid.T, r *Run) {
	if r.Outcome != Succeeded {
		return
	}
	r.Exists, r.State = w.exists, fmt.Sprintf("state%d", w.content)
	if rapid.Bool().Draw(t, "changes") || (r.Kind == PlanRun && !w.exists && !r.Cause.Destroy) {
		digest := fmt.Sprintf("%v/%d/%v/%v", r.Cause.PlanInputs, w.content, r.Cause.Destroy, r.Cause.Whole)
		m := w.o.Status
		r.Plan = &Plan{
			Name:   m.NameFor("plan-"+r.Cause.PlanInputs.Revision, "plan-"+r.Cause.PlanInputs.Revision+"-"+digest, digest, w.o.Spec.Approved),
			Digest: digest, PlanInputs: r.Cause.PlanInputs, Changes: Changes{Add: 1}, Destroy: r.Cause.Destroy, Drift: r.Kind == CheckRun, At: r.At,
			Addresses: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "addresses"),
		}
		w.made[digest], w.partial[digest] = w.content, !r.Cause.Whole
	} else if r.Cause.Destroy && r.Cause.Whole && r.Kind != PreviewRun {
		w.exists = false
	}
}

func (w *world) finishApply(t *rapid.T, r *Run) {
	if r.Outcome == Stale || r.Untouched {
		return
	}
	if w.applied[r.Cause.Plan.Digest] {
		t.Fatalf("applies plan %s twice", r.Cause.Plan.Digest)
	}
	w.applied[r.Cause.Plan.Digest] = true
	w.content++
	w.exists = !(r.Cause.Plan.Destroy && !w.partial[r.Cause.Plan.Digest] && r.Outcome == Succeeded)
	r.State = fmt.Sprintf("state%d", w.content)
}

// attempts checks that one request is one attempt: a run that starts although the
// pause after a failure is not over, or although no retry is left, answers a request
// that no run has answered.
func (w *world) attempts(t *rapid.T, d Decision) {
	unlock := ""
	switch a := d.Action.(type) {
	case Start:
		if a.Kind == PreviewRun || a.Kind == BreakGlassRun {
			return
		}
		unlock = a.Unlock
	case RunScript:
		unlock = a.Unlock
	case Destroy:
		unlock = a.Unlock
	case Apply:
	default:
		if d.Answers != "" {
			t.Fatalf("%T answers the request %s", d.Action, d.Answers)
		}
		return
	}
	if d.Answers != "" && w.answered[d.Answers] {
		t.Fatalf("the request %s is answered twice, by %+v", d.Answers, d)
	}
	w.answered[d.Answers] = d.Answers != ""
	unasked := w.o
	unasked.Replan = ""
	if unlock != "" && unlock != unasked.Status.UnbrokenLock {
		return // a lock that was not tried before is broken at once
	}
	if d.Answers == "" && !unasked.unhealthy() && (unasked.untilRetry() > 0 || !unasked.Deleting && unasked.exhausted()) {
		t.Fatalf("starts %+v during the pause after a failure, and answers no request", d)
	}
}

func (w *world) record(t *rapid.T) {
	r := *w.o.Run
	w.o.Status = w.o.Status.Record(r)
	if r.Cause.Replan != "" && r.Kind != PreviewRun && w.o.Status.HandledReplan != r.Cause.Replan {
		t.Fatalf("the run %s answers %s, and the status has %q as answered", r.ID, r.Cause.Replan, w.o.Status.HandledReplan)
	}
	w.o.Run = nil
	if p := w.o.Status.Pending; p != nil {
		w.seen[p.Digest] = true
	}
}

// check holds in every world, whatever happens.
func (w *world) check(t *rapid.T, d Decision) {
	if d.Rule == "" || d.Reason == "" || d.Ready == "" {
		t.Fatalf("an unexplained decision: %+v", d)
	}
	if _, ok := d.Action.(Cancel); w.o.running() && !d.waits() && !ok {
		t.Fatalf("disturbs a run with %T", d.Action)
	}
	switch a := d.Action.(type) {
	case RunScript:
		w.checkScript(t, a)
	case Apply:
		switch {
		case w.o.Spec.Script:
			t.Fatalf("applies a saved plan of a stack that is applied by its script")
		case w.o.Deleting && !a.Plan.Destroy:
			t.Fatalf("builds while deleting")
		case w.o.Deleting && w.partial[a.Plan.Digest]:
			t.Fatalf("destroys the targets of a deleted stack, and no more")
		case w.o.Deleting:
			if !w.approved[a.Plan.Digest] {
				t.Fatalf("takes down what somebody wanted to see first")
			}
		case w.o.Spec.Mode != Auto && !w.o.Spec.Force && !w.approved[a.Plan.Digest]:
			t.Fatalf("applies %s in mode %s, which nobody approved", a.Plan.Digest, w.o.Spec.Mode)
		case w.o.Spec.Mode != Auto && w.o.Spec.Mode != Manual && !w.o.Spec.Force:
			t.Fatalf("applies in mode %s", w.o.Spec.Mode)
		case !a.Plan.PlanInputs.same(w.o.PlanInputs):
			t.Fatalf("applies a plan of something else")
		case w.o.Spec.Suspended:
			t.Fatalf("applies while suspended")
		}
	case Start:
		if w.o.Deleting && a.Destroy && a.Kind == PlanRun {
			break
		}
		if w.o.Spec.Suspended || w.o.Deleting || w.o.Blocked != nil || w.o.Waiting != nil {
			t.Fatalf("starts a %s that it must not", a.Kind)
		}
		if w.o.Spec.Mode == DriftOnly && !w.o.Spec.Force && a.Kind == PlanRun && a.Unlock == "" {
			t.Fatalf("plans a stack that is only watched")
		}
	case Finish:
		if w.o.Spec.DestroyLast && w.exists {
			t.Fatalf("lets go of a stack that still exists")
		}
		if len(w.o.Dependents) > 0 {
			t.Fatalf("lets go of a stack that others depend on")
		}
	}
	if d.Reason.Settled() && w.o.Status.Failures > 0 {
		t.Fatalf("calls a failure settled")
	}
}

// checkScript holds of every run of a script.
func (w *world) checkScript(t *rapid.T, a RunScript) {
	switch {
	case !w.o.Spec.Script:
		t.Fatalf("runs a script of a stack that has none")
	case w.o.Deleting, w.o.Spec.Suspended, w.o.Blocked != nil, w.o.Waiting != nil:
		t.Fatalf("runs a script that it must not")
	case a.Plan == nil && w.o.Spec.Mode != Auto:
		t.Fatalf("runs a script in mode %s without a plan", w.o.Spec.Mode)
	case a.Plan != nil && w.o.Spec.Mode != Auto && !w.approved[a.Plan.Digest]:
		t.Fatalf("runs a script by the plan %s, which nobody approved", a.Plan.Digest)
	case a.Plan != nil && !a.Plan.PlanInputs.same(w.o.PlanInputs):
		t.Fatalf("runs a script by a plan of something else")
	}
}

func TestDecideIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		step := func(t *rapid.T) {
			if !w.gone {
				w.act(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"act":     step,
			"finish":  func(t *rapid.T) { w.finish(t, true) },
			"advance": func(t *rapid.T) { w.finish(t, true); step(t) },
			"calm":    func(t *rapid.T) { step(t); w.finish(t, false); step(t) },
			"push": func(t *rapid.T) {
				w.seq++
				w.o.PlanInputs.Source = fmt.Sprint("s", w.seq)
				w.o.PlanInputs.Revision = fmt.Sprint("main@sha1:", w.seq)
			},
			"back":   func(t *rapid.T) { w.o.PlanInputs.Source, w.o.PlanInputs.Revision = "s0", "main@sha1:0" },
			"inputs": func(t *rapid.T) { w.o.PlanInputs.Inputs = fmt.Sprint("i", rapid.IntRange(0, 2).Draw(t, "inputs")) },
			"destroy": func(t *rapid.T) {
				if w.o.Spec.Script {
					return // such a stack has no such field, nor the next one
				}
				w.o.Spec.Destroy = !w.o.Spec.Destroy
				w.o.PlanInputs.Shape = fmt.Sprint("f", w.o.Spec.Destroy)
			},
			"force": func(t *rapid.T) { w.o.Spec.Force = !w.o.Spec.Force && !w.o.Spec.Script },
			"mode": func(t *rapid.T) {
				w.o.Spec.Mode = rapid.SampledFrom([]Mode{Auto, Manual, PlanOnly, DriftOnly}).Draw(t, "mode")
				if w.o.Spec.Script && w.o.Spec.Mode != Auto {
					w.o.Spec.Mode = Manual
				}
			},
			"preview": func(*rapid.T) { w.seq++; w.o.Spec.Preview = fmt.Sprint("v", w.seq) },
			"ask":     func(t *rapid.T) { w.seq++; w.o.Replan = fmt.Sprint("t", w.seq) },
			"suspend": func(t *rapid.T) { w.o.Spec.Suspended = !w.o.Spec.Suspended },
			"block":   func(t *rapid.T) { w.o.Blocked = toggle(w.o.Blocked, SourceNotReady) },
			"deps":    func(t *rapid.T) { w.o.Waiting = toggle(w.o.Waiting, DependencyNotReady) },
			"unlock":  func(t *rapid.T) { w.o.Spec.Unlock.Auto = !w.o.Spec.Unlock.Auto },
			"drift":   func(t *rapid.T) { w.content++ },
			"approve": func(t *rapid.T) {
				if p := w.o.Status.Pending; p != nil {
					w.o.Spec.Approved = rapid.SampledFrom([]string{p.Name, p.Digest}).Draw(t, "by")
					w.approved[p.Digest] = true
				}
			},
			"delete":     func(t *rapid.T) { w.o.Deleting = true },
			"dependents": func(t *rapid.T) { w.o.Dependents = rapid.SampledFrom([][]string{nil, {"a"}}).Draw(t, "dependents") },
			"pass":       func(t *rapid.T) { w.o.Now = w.o.Now.Add(time.Hour) },
			"":           func(t *rapid.T) { w.check(t, Decide(w.o)) },
		})
	})
}

func toggle(b *Blocked, reason Reason) *Blocked {
	if b != nil {
		return nil
	}
	return &Blocked{Kind: fault.Missing, Reason: reason, Message: "not there"}
}

// Without events from outside every stack settles in a few steps, or says that it
// waits for a user.
func TestDecideSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 30).Draw(t, "storm") {
			w.act(t)
			if w.gone {
				return
			}
			w.finish(t, true)
			if rapid.IntRange(0, 9).Draw(t, "moves") == 0 {
				w.content++
			}
		}
		w.o.Deleting = rapid.Bool().Draw(t, "deleting")
		var last Decision
		for range 40 {
			last = w.act(t)
			w.finish(t, false)
			if w.gone {
				return
			}
			if last.waits() && (!w.o.Deleting || last.Ready == Held || last.Reason == NoDestroyScript) && last.Ready != Reconciling {
				return
			}
		}
		t.Fatalf("did not settle: %+v\n%+v", last, w.o)
	})
}

// A drift check that finds nothing changes neither the status nor the conditions.
func TestQuietCheckLeavesNoTrace(t *testing.T) {
	o := Observation{
		Now: time.Unix(1e9, 0), PlanInputs: PlanInputs{Revision: "main@sha1:0", Source: "s", Engine: "tofu"},
		Spec: Spec{Mode: Auto, CheckDrift: true, Interval: time.Hour, RetryEvery: time.Minute},
	}
	p := Plan{Name: "p", Digest: "d", PlanInputs: o.PlanInputs}
	o.Status = Status{}.Record(Run{ID: "1", Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: &p, At: o.Now})
	o.Status = o.Status.Record(Run{ID: "2", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs, Plan: &p}, State: "s1", At: o.Now})
	look := func(id string) (before, during, after Decision) {
		o.Now = o.Now.Add(time.Hour)
		before = Decide(o)
		if a, ok := before.Action.(Start); !ok || a.Kind != CheckRun {
			t.Fatalf("Decide() = %+v, want a check", before)
		}
		o.Run = &Run{ID: id, Kind: CheckRun, Cause: Cause{PlanInputs: o.PlanInputs}, State: "s1", Exists: true}
		during = Decide(o)
		o.Run.Done, o.Run.Outcome, o.Run.At = true, Succeeded, o.Now
		o.Status, o.CheckedAt, o.Run = o.Status.Record(*o.Run), o.Now, nil
		return before, during, Decide(o)
	}
	look("3") // the first check may say "No drift"
	memory := o.Status
	before, during, after := look("4")
	if got, want := fmt.Sprintf("%+v", o.Status), fmt.Sprintf("%+v", memory); got != want {
		t.Errorf("memory after a quiet check\n%s\nwant\n%s", got, want)
	}
	for _, d := range []Decision{before, during} {
		if d.Ready != after.Ready || d.Reason != after.Reason || d.Message != after.Message {
			t.Errorf("shown while checking: %+v, want %+v", d, after)
		}
	}
}

// An old approval never reaches a new plan, even of the same revision.
func TestNamesAreNotGivenTwice(t *testing.T) {
	var m Status
	m.PlanNames = remember(m.PlanNames, PlanName{"plan-main-abc", "d1"})
	for name, tt := range map[string]struct{ digest, approved, want string }{
		"the same plan keeps its name":                 {"d1", "", "plan-main-abc"},
		"another plan of the revision gets its own":    {"d2", "", "long"},
		"a name that is approved already is not given": {"d2", "plan-main-abc", "long"},
	} {
		if got := m.NameFor("plan-main-abc", "long", tt.digest, tt.approved); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := (Status{}).NameFor("plan-main-abc", "long", "d2", "plan-main-abc"); got != "long" {
		t.Errorf("after the memory is lost: %q, want long", got)
	}
	for i := range 2 * namesKept { // inputs that keep changing, without an approval
		digest := fmt.Sprintf("e%d", i)
		name := m.NameFor("plan-main-abc", "plan-main-abc-"+digest, digest, "")
		if name == "plan-main-abc" {
			t.Fatalf("after %d other plans the name of the first is given once more: who saw that one would approve this", i+1)
		}
		m.PlanNames = remember(m.PlanNames, PlanName{name, digest})
	}
}

func TestRetryAfter(t *testing.T) {
	s := Spec{RetryEvery: 15 * time.Second, RetryMax: time.Hour, Backoff: Exponential}
	for n, want := range map[int]time.Duration{1: 15 * time.Second, 2: 30 * time.Second, 5: 4 * time.Minute, 9: time.Hour, 100000: time.Hour} {
		if got := s.retryAfter(n); got != want {
			t.Errorf("retryAfter(%d) = %v, want %v", n, got, want)
		}
	}
	s.Backoff = Static
	if got := s.retryAfter(50); got != 15*time.Second {
		t.Errorf("static retryAfter(50) = %v, want 15s", got)
	}
}

// The list of rules is documentation; keep it honest.
func TestRulesAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range Rules() {
		if n == "" || seen[n] {
			t.Errorf("bad rule name %q", n)
		}
		seen[n] = true
	}
}

// Nothing is created behind an apply that was cut short unless a person said so
// of exactly this plan, and a deleted stack does not lose what it may have left.
func TestUntrackedResourcesBlockCreates(t *testing.T) {
	basis := PlanInputs{Revision: "main@sha1:0", Source: "s", Engine: "tofu"}
	gap := &Untracked{Run: "apply-1", Source: "s", Objects: []UntrackedResource{{Address: "x.y", ID: "i-1", Finished: true}}}
	plan := &Plan{Name: "p", Digest: "d", PlanInputs: basis}
	for name, tt := range map[string]struct {
		spec    Spec
		memory  Status
		delete  bool
		request string
		want    Reason
	}{
		"no plan is made by itself":                  {Spec{Mode: Auto}, Status{Resources: Resources{Untracked: gap, Created: true}}, false, "", StateIncomplete},
		"a person may ask for one":                   {Spec{Mode: Auto}, Status{Resources: Resources{Untracked: gap, Created: true}}, false, "t1", Planning},
		"it is not applied by itself":                {Spec{Mode: Auto}, Status{Resources: Resources{Untracked: gap, Created: true}, Plans: Plans{Pending: plan, Planned: basis}}, false, "", AwaitingApproval},
		"not even by force":                          {Spec{Mode: Auto, Force: true}, Status{Resources: Resources{Untracked: gap, Created: true}, Plans: Plans{Pending: plan, Planned: basis}}, false, "", AwaitingApproval},
		"a named approval lets it through":           {Spec{Mode: Manual, Approved: "p"}, Status{Resources: Resources{Untracked: gap, Created: true}, Plans: Plans{Pending: plan, Planned: basis}}, false, "", Applying},
		"what was dealt with by hand is no obstacle": {Spec{Mode: Auto, IgnoreUntracked: "apply-1"}, Status{Resources: Resources{Untracked: gap, Created: true}}, false, "", Planning},
		"the finalizer stays":                        {Spec{Mode: Auto, DestroyLast: true}, Status{Resources: Resources{Untracked: gap}}, true, "", StateIncomplete},
		"until it was dealt with":                    {Spec{Mode: Auto, DestroyLast: true, IgnoreUntracked: "apply-1"}, Status{Resources: Resources{Untracked: gap}}, true, "", Deleting},
		"what the state knows is taken down at once": {Spec{Mode: Auto, DestroyLast: true}, Status{Resources: Resources{Untracked: gap, Created: true}}, true, "", Destroying},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Interval, tt.spec.RetryEvery = time.Hour, time.Minute
			o := Observation{Now: time.Unix(1e9, 0), Spec: tt.spec, Status: tt.memory, PlanInputs: basis, Deleting: tt.delete, Replan: tt.request}
			if d := Decide(o); d.Reason != tt.want {
				t.Errorf("Decide() = %s by %q, want %s", d.Reason, d.Rule, tt.want)
			}
		})
	}
}

// One request is one attempt, of whatever kind: a person who asks while a stack fails
// gets one run for each request, and the pause after a failure is kept otherwise.
func TestNoRequestIsAnsweredTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.o.Spec.DestroyLast = true
		advance := func(t *rapid.T) {
			if w.gone {
				return
			}
			w.finish(t, true)
			w.act(t)
		}
		for range rapid.IntRange(2, 8).Draw(t, "begin") {
			advance(t)
		}
		w.o.Deleting = rapid.Bool().Draw(t, "deleted")
		for range rapid.IntRange(2, 8).Draw(t, "requests") {
			w.seq++
			w.o.Replan = fmt.Sprint("t", w.seq)
			w.o.Spec.Unlock.Auto = rapid.Bool().Draw(t, "unlock")
			for range rapid.IntRange(1, 5).Draw(t, "steps") {
				advance(t) // checks each attempt
			}
		}
	})
}
