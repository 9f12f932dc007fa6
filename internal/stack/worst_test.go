package stack

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	calmBasis = PlanInputs{Revision: "main@sha1:0", Source: "s", Engine: "tofu"}
	calm      = time.Unix(1e9, 0)
)

func calmly(spec Spec, m Status) Observation {
	spec.Interval, spec.RetryEvery, spec.RetryMax = time.Hour, time.Minute, time.Hour
	return Observation{Now: calm, Spec: spec, Status: m, PlanInputs: calmBasis}
}

// A module whose plan always has changes is applied three times.
func TestCirclesEnd(t *testing.T) {
	o := calmly(Spec{Mode: Auto, CheckDrift: true}, Status{})
	applies := 0
	for seq := range 60 {
		id := fmt.Sprint("run", seq)
		switch a := Decide(o).Action.(type) {
		case Start:
			p := &Plan{Name: "p" + id, Digest: "d" + id, PlanInputs: o.PlanInputs, Changes: Changes{Change: 1}, Drift: a.Kind == CheckRun, Addresses: "x", Example: "x.y: tags"}
			o.Status = o.Status.Record(Run{ID: id, Kind: a.Kind, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: p, Exists: applies > 0, At: o.Now})
			o.CheckedAt = o.Now
		case Apply:
			applies++
			o.Status = o.Status.Record(Run{ID: id, Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs, Plan: &a.Plan}, State: id, At: o.Now})
		case Wait:
			o.Now = o.Now.Add(max(a.For, time.Second))
		}
	}
	d := Decide(o)
	if applies != recurrences || d.Reason != NotConverging || d.Ready != Stalled {
		t.Fatalf("%d applies, then %s; want %d, then %s", applies, d.Reason, recurrences, NotConverging)
	}
	if !strings.Contains(d.Message, "x.y: tags") {
		t.Errorf("message %q does not name the address and attribute", d.Message)
	}
	t.Run("a look that finds nothing ends it", func(t *testing.T) {
		o := o
		o.Status = o.Status.Record(Run{ID: "calm", Kind: CheckRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs}, Exists: true, At: o.Now})
		if d := Decide(o); !d.Reason.Settled() || o.Status.Recurrence != nil {
			t.Errorf("Decide() = %s with %+v, want it settled", d.Reason, o.Status.Recurrence)
		}
	})
	t.Run("a change of the module is a new start", func(t *testing.T) {
		o := o
		o.PlanInputs.Source = "s2"
		if d := Decide(o); d.Reason != Planning {
			t.Errorf("Decide() = %s, want a plan", d.Reason)
		}
	})
	t.Run("a request tries again", func(t *testing.T) {
		o := o
		o.Replan = "t1"
		p := *o.Status.Pending
		p.Digest = "after the request"
		o.Status = o.Status.Record(Run{ID: "asked", Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs, Replan: "t1"}, Plan: &p, Exists: true, At: o.Now})
		if d := Decide(o); d.Reason != Applying {
			t.Errorf("Decide() = %s, want an apply", d.Reason)
		}
	})
	t.Run("a person who names the plan is obeyed", func(t *testing.T) {
		o := o
		o.Spec.Mode, o.Spec.Approved = Manual, o.Status.Pending.Name
		if d := Decide(o); d.Reason != Applying {
			t.Errorf("Decide() = %s, want an apply", d.Reason)
		}
	})
}

// Untracked resources are imported by a plan that a person requested, saw and named.
func TestRepair(t *testing.T) {
	gap := &Untracked{Run: "apply-1", Source: "s", Objects: []UntrackedResource{{Address: "x.a", ID: "1", Finished: true}, {Address: "x.b"}, {Address: "x.c", ID: "3"}}}
	plan := &Plan{Name: "p", Digest: "d", PlanInputs: calmBasis}
	asked := &Repair{Run: "apply-1", IDs: map[string]string{"x.b": "2"}, Absent: []string{"x.c"}}
	for name, tt := range map[string]struct {
		mode    Mode
		repair  *Repair
		pending *Plan
		want    Reason
	}{
		"nobody asked":             {Auto, nil, nil, StateIncomplete},
		"somebody asked":           {Auto, asked, nil, Planning},
		"it was planned":           {Auto, asked, plan, AwaitingApproval},
		"it was seen and named":    {Auto, &Repair{Run: "apply-1", Plan: "p"}, plan, Applying},
		"by its digest":            {PlanOnly, &Repair{Run: "apply-1", Plan: "d"}, plan, Applying},
		"another plan was named":   {Manual, &Repair{Run: "apply-1", Plan: "q"}, plan, AwaitingApproval},
		"of the gap of another":    {Auto, &Repair{Run: "apply-0", Plan: "p"}, nil, StateIncomplete},
		"a watched stack is safe":  {DriftOnly, &Repair{Run: "apply-1", Plan: "p"}, plan, AwaitingApproval},
		"nothing named is nothing": {Auto, &Repair{Run: "apply-1"}, plan, AwaitingApproval},
	} {
		t.Run(name, func(t *testing.T) {
			o := calmly(Spec{Mode: tt.mode, Repair: tt.repair}, Status{Resources: Resources{Untracked: gap, Created: true}, Plans: Plans{Pending: tt.pending}})
			if tt.pending != nil {
				o.Status.Planned = calmBasis
			}
			if d := Decide(o); d.Reason != tt.want {
				t.Errorf("Decide() = %s by %q, want %s", d.Reason, d.Rule, tt.want)
			}
		})
	}
	got := calmly(Spec{Repair: asked}, Status{Resources: Resources{Untracked: gap}}).Imports()
	want := []UntrackedResource{{Address: "x.a", ID: "1", Finished: true}, {Address: "x.b", ID: "2"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Imports() = %v, want %v", got, want)
	}
	if got := calmly(Spec{Repair: &Repair{Run: "other"}}, Status{Resources: Resources{Untracked: gap}}).Imports(); got != nil {
		t.Errorf("Imports() of another run's repair = %v, want none", got)
	}
}

// Thirty commits in ten seconds are at most two plans more.
func TestCommitsAreCoalesced(t *testing.T) {
	o := calmly(Spec{Mode: Manual}, Status{})
	plans, seq := 0, 0
	run := func() {
		plans++
		seq++
		p := &Plan{Name: fmt.Sprint("p", seq), Digest: fmt.Sprint("d", seq), PlanInputs: o.PlanInputs}
		o.Now = o.Now.Add(200 * time.Millisecond)
		o.Status = o.Status.Record(Run{ID: fmt.Sprint("r", seq), Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: p, At: o.Now})
	}
	decide := func() {
		if _, ok := Decide(o).Action.(Start); ok {
			run()
		}
	}
	decide() // the first plan of the stack
	o.Now, plans = o.Now.Add(time.Hour), 0
	for c := range 30 {
		o.PlanInputs.Source = fmt.Sprint("commit", c)
		decide()
		o.Now = o.Now.Add(time.Second / 3)
	}
	if d := Decide(o); d.Reason != SourceDebounced || d.Action == (Wait{}) {
		t.Errorf("Decide() = %+v, want a bounded wait", d)
	}
	o.Now = o.Now.Add(debounce)
	decide()
	if plans > 2 || o.Status.Planned.Source != "commit29" {
		t.Errorf("%d plans, the last of %s; want two, the last of commit29", plans, o.Status.Planned.Source)
	}
	o.PlanInputs.Source, o.Replan = "commit30", "t1"
	if d := Decide(o); d.Reason != Planning {
		t.Errorf("Decide() = %s, want a request to be answered at once", d.Reason)
	}
}

// The drift checks of stacks that were applied together are spread, each within its
// interval.
func TestChecksAreSpread(t *testing.T) {
	seen := map[time.Duration]int{}
	for i := range uint64(1000) {
		s := Spec{Interval: time.Hour, Spread: i * 0x9E3779B97F4A7C15}
		first := s.firstCheck()
		if first <= s.Interval/2-time.Second || first > s.Interval {
			t.Fatalf("firstLook() = %v, want it in the second half of the hour", first)
		}
		seen[first.Truncate(time.Minute)]++
	}
	for at, n := range seen {
		if n > 1000/10 {
			t.Errorf("%d of 1000 are looked at in minute %v", n, at)
		}
	}
	if got := (Spec{Interval: 30 * time.Second, Spread: 65535}).firstCheck(); got != 30*time.Second {
		t.Errorf("firstLook() of a short interval = %v, want all of it", got)
	}
	o := calmly(Spec{Mode: Auto, CheckDrift: true, Spread: 65535}, Status{Resources: Resources{AppliedAt: calm}, Plans: Plans{Planned: calmBasis}})
	if o.untilCheck() > time.Hour*51/100 {
		t.Errorf("due after an apply in %v, want about half the interval", o.untilCheck())
	}
	o.CheckedAt = calm.Add(time.Minute)
	if got := o.untilCheck(); got != time.Hour+time.Minute {
		t.Errorf("due after a look in %v, want an interval after it", got)
	}
}

// A user who corrects the pod of a run does not wait for the next retry: the pod is no input
// of a plan, so that nothing else shows the correction.
func TestACorrectedPodIsTriedAtOnce(t *testing.T) {
	retries := 1
	for name, tt := range map[string]struct {
		spec     Spec
		status   Status
		kind     RunKind
		failures int
		deleting bool
		waits    Reason
	}{
		"after a failure":         {spec: Spec{Mode: Auto}, kind: PlanRun, failures: 1, waits: RetryLater},
		"after the last retry":    {spec: Spec{Mode: Auto, MaxRetries: &retries}, kind: PlanRun, failures: 2, waits: RetryLimitReached},
		"of a script":             {spec: Spec{Mode: Auto, Script: true}, kind: ScriptRun, failures: 1, waits: RetryLater},
		"of a stack that is gone": {spec: Spec{Mode: Auto, DestroyLast: true}, status: Status{Resources: Resources{Created: true}}, kind: DestroyRun, failures: 1, deleting: true, waits: DestroyFailed},
	} {
		t.Run(name, func(t *testing.T) {
			o := calmly(tt.spec, tt.status)
			o.Deleting, o.Pod = tt.deleting, "a wrong image"
			for n := range tt.failures {
				o.Status = o.Status.Record(Run{ID: fmt.Sprint(n), Kind: tt.kind, Done: true, Outcome: Failed, Message: "no such image", Cause: Cause{PlanInputs: o.PlanInputs, Pod: o.Pod}, Untouched: true, At: calm})
			}
			if d := Decide(o); d.Reason != tt.waits {
				t.Fatalf("Decide() = %+v, want %s", d, tt.waits)
			}
			o.Pod = "" // as of a spec that cannot be read
			if d := Decide(o); d.Reason != tt.waits {
				t.Errorf("Decide() = %+v while the pod is not known, want %s", d, tt.waits)
			}
			o.Pod = "the right image"
			if d := Decide(o); d.Reason == tt.waits {
				t.Errorf("Decide() = %+v of another pod, want a run", d)
			}
			failed := o.Status.Record(Run{ID: "again", Kind: tt.kind, Done: true, Outcome: Failed, Cause: Cause{PlanInputs: o.PlanInputs, Pod: o.Pod}, Untouched: true, At: calm})
			if failed.Failures != 1 || failed.FailedPod != o.Pod {
				t.Errorf("the failure of another pod is number %d, want 1", failed.Failures)
			}
		})
	}
	former := Status{Failure: Failure{Failures: 1, FailedAt: calm, FailedFor: calmBasis, FailedKind: PlanRun}}
	o := calmly(Spec{Mode: Auto}, former)
	if o.Pod = "any"; Decide(o).Reason != RetryLater {
		t.Errorf("Decide() = %+v of a failure of an earlier release, want %s", Decide(o), RetryLater)
	}
}

// A preview changes nothing but itself.
func TestPreviewStandsAlone(t *testing.T) {
	m := Status{Plans: Plans{Planned: calmBasis, Pending: &Plan{Digest: "d"}}, Resources: Resources{Created: true}, Failure: Failure{Failures: 2, FailedFor: calmBasis}}
	for _, outcome := range []Outcome{Succeeded, Failed, Killed, Locked} {
		got := m.Record(Run{ID: "1", Kind: PreviewRun, Done: true, Outcome: outcome, Message: "m", Plan: &Plan{Digest: "e", Destroy: true}, Cause: Cause{Preview: "t", Replan: "r"}})
		if got.Previewed != "t" || (got.Preview != nil) != (outcome == Succeeded) || (got.NoPreview != "") == (outcome == Succeeded) {
			t.Errorf("%s: previewed %q, %v, %q", outcome, got.Previewed, got.Preview, got.NoPreview)
		}
		got.Previewed, got.Preview, got.NoPreview, got.LastRun = "", nil, "", ""
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
			t.Errorf("%s: memory\n%+v\nwant\n%+v", outcome, got, m)
		}
	}
}

// A destroy that needs an approval waits for it.
func TestDestroyCanBeApproved(t *testing.T) {
	o := calmly(Spec{Mode: Auto, DestroyLast: true, ApproveDestroy: true}, Status{Resources: Resources{Created: true}, Plans: Plans{Planned: calmBasis, Pending: &Plan{Name: "build", Digest: "b", PlanInputs: calmBasis}}})
	o.Deleting, o.PlanInputs = true, PlanInputs{}
	d := Decide(o)
	if a, ok := d.Action.(Start); !ok || !a.Destroy || a.Kind != PlanRun {
		t.Fatalf("Decide() = %+v, want a plan of the destroy", d)
	}
	p := &Plan{Name: "p", Digest: "d", PlanInputs: calmBasis, Destroy: true, Changes: Changes{Destroy: 3}}
	o.Status = o.Status.Record(Run{ID: "1", Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis, Destroy: true, Whole: true}, Plan: p, Exists: true, At: calm})
	if d := Decide(o); d.Reason != AwaitingApproval || d.Ready != Held || !strings.Contains(d.Message, "3 resources") {
		t.Fatalf("Decide() = %+v, want it to wait for approval", d)
	}
	o.Spec.Mode, o.Spec.Approved = Manual, "build"
	if d := Decide(o); d.Reason != AwaitingApproval {
		t.Fatalf("Decide() = %+v, want the approval of another plan not to count", d)
	}
	o.Spec.Approved = "p"
	d = Decide(o)
	if a, ok := d.Action.(Apply); !ok || a.Plan.Digest != "d" {
		t.Fatalf("Decide() = %+v, want exactly this plan to be applied", d)
	}
	o.Status = o.Status.Record(Run{ID: "2", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis, Plan: p, Destroy: true, Whole: true}, At: calm})
	if d := Decide(o); d.Action != (Finish{}) {
		t.Errorf("Decide() = %+v, want it let go with nothing left", d)
	}
}

// Retained resources are reported.
func TestRetainedIsSaid(t *testing.T) {
	for name, tt := range map[string]struct {
		memory Status
		want   Finish
	}{
		"nothing was built":         {Status{}, Finish{}},
		"something was":             {Status{Resources: Resources{Created: true}}, Finish{Retained: true}},
		"something may have been":   {Status{Resources: Resources{Untracked: &Untracked{Run: "r", Objects: []UntrackedResource{{Address: "a"}}}}}, Finish{Retained: true}},
		"everything was taken down": {Status{Resources: Resources{Destroyed: true}}, Finish{}},
	} {
		o := calmly(Spec{}, tt.memory)
		o.Deleting = true
		if d := Decide(o); d.Action != tt.want {
			t.Errorf("%s: Decide() = %+v, want %+v", name, d.Action, tt.want)
		}
	}
}

// P6: whatever a stack waits for, the clock ends the wait, or a person or an event
// that the reason names does; and the interval of its checks does not change from
// one check to the next.
func TestEveryWaitHasAnEnd(t *testing.T) {
	// Nothing but a person or a change of something that is watched helps here.
	somebody := map[Reason]bool{
		Suspended: true, SpecInvalid: true, AwaitingApproval: true, PlanRejected: true, RunCancelled: true, PlanOnlyHeld: true, StateIncomplete: true,
		RetryLimitReached: true, Destroyed: true, NothingLeft: true,
		// The end of a run wakes the stack, and each run has a deadline.
		Planning: true, Checking: true, Applying: true, Destroying: true, Previewing: true, CheckingHealth: true,
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if w.gone {
				return
			}
			o := w.o
			d := Decide(o)
			if a, ok := d.Action.(Wait); ok && a.For == 0 && !w.o.running() && !somebody[d.Reason] {
				t.Fatalf("waits for ever under %s: %s", d.Reason, d.Message)
			}
			if d.Message == "" {
				t.Fatalf("%s says nothing", d.Reason)
			}
			before := o.Recheck(d)
			o.Now = o.Now.Add(time.Second)
			if again := Decide(o); again.Reason == d.Reason && again.Rule == d.Rule && o.Recheck(again) != before {
				t.Fatalf("%s is looked at every %v, and a second later every %v", d.Reason, before, o.Recheck(again))
			}
			w.act(t)
			w.finish(t, true)
		}
	})
}

// A foreign write of the state during an apply is compared at once, and once.
func TestAStateThatWasNotStoredIsLookedAt(t *testing.T) {
	for name, edit := range map[string]func(*Spec){
		"by a look for drift": func(s *Spec) { s.CheckDrift = true },
		"by a plan":           func(*Spec) {},
	} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Mode: Auto, Interval: time.Hour}
			edit(&spec)
			o := calmly(spec, Status{Plans: Plans{Planned: calmBasis, PlannedAt: calm.Add(-time.Minute)}, Resources: Resources{AppliedAt: calm.Add(-time.Second), Created: true}, StoredState: StoredState{KnownState: StateID{Lineage: "l", Serial: 2, Digest: "d", Unstored: true}}})
			o.CheckedAt = calm.Add(-time.Hour / 2)
			d := Decide(o)
			a, ok := d.Action.(Start)
			if !ok {
				t.Fatalf("Decide() = %+v, want a run", d)
			}
			if o.CheckedAt = o.Now; a.Kind == PlanRun {
				o.Status.PlannedAt = o.Now
			}
			if d := Decide(o); !d.waits() {
				t.Errorf("Decide() after it = %+v, want it to rest", d)
			}
		})
	}
}

// Of a state that is kept elsewhere it is said what is known of it, and no more.
func TestUntrackedOfAStateElsewhereSaysWhatIsKnown(t *testing.T) {
	objects := []UntrackedResource{{Address: "x.a", ID: "i-1", Finished: true}, {Address: "x.b"}}
	for name, tt := range map[string]struct {
		apart, rescued bool
		says           []string
		never          []string
	}{
		"a state that we keep":         {false, false, []string{"the state does not track"}, []string{"backend", "state list", "--rescued"}},
		"a state elsewhere":            {true, false, []string{"may or may not track", "state list", "If it tracks all that exist", "ignore-untracked=a1"}, []string{"does not track", "--rescued"}},
		"one that the backend refused": {true, true, []string{"may or may not track", "state pull --rescued a1", "state push"}, []string{"does not track"}},
		"one of a lost machine":        {false, false, []string{"The machine of run a1 was lost", "does not track", "ignore-untracked=a1"}, []string{"backend", "--rescued"}},
	} {
		t.Run(name, func(t *testing.T) {
			lost := name == "one of a lost machine"
			o := calmly(Spec{Mode: Auto}, Status{}.Record(Run{ID: "a1", Kind: ApplyRun, Done: true, Outcome: Killed, Cause: Cause{PlanInputs: calmBasis}, Untracked: objects, Lost: lost, Apart: tt.apart, Rescued: tt.rescued, At: calm}))
			d := Decide(o)
			if d.Reason != StateIncomplete || d.Ready != Stalled {
				t.Fatalf("Decide() = %+v, want it to wait for a person", d)
			}
			for _, want := range append(tt.says, `x.a with id "i-1"`, "x.b may exist", "terrier repair", "import {") {
				if !strings.Contains(d.Message, want) {
					t.Errorf("it says %q, want %q in it", d.Message, want)
				}
			}
			for _, not := range tt.never {
				if strings.Contains(d.Message, not) {
					t.Errorf("it says %q, which holds %q", d.Message, not)
				}
			}
		})
	}
}

// A deletion whose destroy fails goes on at once when a user corrects what it is made
// from, and only then.
func TestCorrectedDeletion(t *testing.T) {
	before, applied := PlanInputs{Source: "s2"}, PlanInputs{Source: "s1"}
	m := Status{Plans: Plans{Planned: before}}.WithDeletion()
	for name, tt := range map[string]struct {
		now  PlanInputs
		want bool
	}{
		"what was planned and not applied is no correction": {before, false},
		"what was applied is none":                          {applied, false},
		"another engine is none":                            {PlanInputs{Source: "s2", Engine: "tofu 2"}, false},
		"another source is one":                             {PlanInputs{Source: "s3"}, true},
		"other inputs are one":                              {PlanInputs{Source: "s1", Inputs: "i"}, true},
	} {
		if got := m.Corrects(tt.now, applied); got != tt.want {
			t.Errorf("%s: Corrects() = %v, want %v", name, got, tt.want)
		}
	}
	former := Status{Failure: Failure{Failures: 1, FailedFor: applied, FailedKind: DestroyRun}}.WithDeletion()
	if former.Corrects(before, applied) {
		t.Error("a plan of an earlier release that was never approved counts as a correction")
	}
	failed := Status{Failure: Failure{Failures: 1, FailedFor: before, FailedKind: ApplyRun}}.WithDeletion()
	if failed.Corrects(before, applied) || !failed.Corrects(PlanInputs{Source: "s3"}, applied) {
		t.Error("after an apply that failed, only what is not that is a correction")
	}
	if again := m.WithDeletion(); *again.BeforeDeletion != before {
		t.Errorf("a later pass of the deletion remembers %+v", again.BeforeDeletion)
	}

	o := calmly(Spec{Mode: Auto, DestroyLast: true}, Status{Resources: Resources{Created: true}})
	o.Deleting, o.PlanInputs = true, applied
	o.Status = o.Status.Record(Run{ID: "1", Kind: DestroyRun, Done: true, Outcome: Failed, Message: "it is protected", Cause: Cause{PlanInputs: applied, Destroy: true}, At: calm})
	if d := Decide(o); d.Reason != DestroyFailed || !strings.Contains(d.Message, "it is protected\n") || !strings.Contains(d.Message, "terrier.dev/deletion=retain") {
		t.Errorf("Decide() = %+v, want the pause and the ways out", d)
	}
	o.PlanInputs, o.Corrected = PlanInputs{Source: "s3", Revision: "main@sha1:3"}, true
	if d := Decide(o); d.Action != (Destroy{}) || !strings.Contains(d.Message, "main@sha1:3") {
		t.Errorf("Decide() of a correction = %+v, want a destroy from it", d)
	}
	o.Spec.ApproveDestroy = true
	o.Status.Pending = &Plan{Name: "p", Digest: "d", PlanInputs: applied, Destroy: true, Whole: true}
	if a, ok := Decide(o).Action.(Start); !ok || !a.Destroy {
		t.Errorf("Decide() of a correction that needs an approval = %+v, want another plan", Decide(o))
	}
}

// A run that a user cancelled is interrupted, says how long its engine may take, and is
// not begun again by itself.
func TestCancel(t *testing.T) {
	for _, kind := range []RunKind{PlanRun, ApplyRun, DestroyRun} {
		o := calmly(Spec{Mode: Auto, DestroyLast: true, Cancel: "r1"}, Status{Resources: Resources{Created: true}, Plans: Plans{Planned: calmBasis}})
		o.Deleting = kind == DestroyRun
		o.Run = &Run{ID: "r1", Kind: kind, Cause: Cause{PlanInputs: calmBasis}}
		if d := Decide(o); d.Action != (Cancel{"r1"}) || d.Reason != Cancelling {
			t.Errorf("%s: Decide() = %+v, want the run to be cancelled", kind, d)
		}
		o.Status.Cancelled = o.Status.Cancelled.Asked("r1", Author{Name: "ann"}, calm, time.Minute).Asked("r1", Author{Name: "bob"}, calm.Add(time.Second), time.Minute)
		if d := Decide(o); !strings.Contains(d.Message, "by ann") || !strings.Contains(d.Message, calm.Add(time.Minute).UTC().Format(time.RFC3339)) {
			t.Errorf("%s: the message is %q, want the first interrupt and the end of its grace", kind, d.Message)
		}
		run := *o.Run
		run.Done, run.Outcome, run.At, o.Run = true, Interrupted, calm.Add(time.Second), nil
		o.Status, o.Now = o.Status.Record(run), calm.Add(24*time.Hour)
		if d := Decide(o); d.Reason != RunCancelled || d.Ready != Held || d.Action != (Wait{}) || !strings.Contains(d.Message, "terrier replan") {
			t.Errorf("%s: Decide() = %+v, want it not to be repeated", kind, d)
		}
		asked := o
		asked.Replan = "t1"
		if d := Decide(asked); d.waits() || d.Answers != "t1" {
			t.Errorf("%s: Decide() of a request = %+v, want a run", kind, d)
		}
		if kind == DestroyRun {
			continue
		}
		deleted := o
		deleted.Deleting = true
		deleted.Status = deleted.Status.WithDeletion()
		if d := Decide(deleted); d.Action != (Destroy{}) {
			t.Errorf("%s: Decide() of a deletion = %+v, want it not to be held up", kind, d)
		}
		previewed := o
		previewed.Spec.Preview = "t1"
		if d := Decide(previewed); d.Action != (Start{Kind: PreviewRun, Why: "a preview of a destroy was requested"}) {
			t.Errorf("%s: Decide() of a preview = %+v, want it to be made", kind, d)
		}
		for _, other := range []RunKind{PreviewRun, BreakGlassRun} {
			after := o
			after.Status = after.Status.Record(Run{ID: "other", Kind: other, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis}, At: after.Now})
			if d := Decide(after); d.Reason != RunCancelled {
				t.Errorf("%s: Decide() after a %s = %+v, want it not to be repeated", kind, other, d)
			}
			for _, outcome := range []Outcome{Interrupted, Succeeded} {
				after := o
				after.Status.Answers = after.Status.Cancelling(Run{ID: "other", Kind: other}, Author{Name: "bob"}, after.Now, time.Minute)
				after.Status = after.Status.Record(Run{ID: "other", Kind: other, Done: true, Outcome: outcome, Cause: Cause{PlanInputs: calmBasis}, At: after.Now})
				if d := Decide(after); d.Reason != RunCancelled || after.Status.Cancelled.Run != "r1" {
					t.Errorf("%s: Decide() after a %s that was cancelled and ended %s = %+v, want the cancelled run not to be repeated", kind, other, outcome, d)
				}
			}
		}
		changed := o
		changed.PlanInputs.Source = "s9"
		if d := Decide(changed); d.Reason != Planning {
			t.Errorf("%s: Decide() of a change = %+v, want a plan", kind, d)
		}
	}
	o := calmly(Spec{Mode: Auto, Cancel: "r1"}, Status{})
	o.Status.Cancelled = o.Status.Cancelled.Asked("r1", Author{}, calm, time.Minute)
	o.Status = o.Status.Record(Run{ID: "r1", Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: calmBasis}, At: calm})
	if d := Decide(o); o.Status.Cancelled != nil || d.Reason == RunCancelled {
		t.Errorf("Decide() after a run that succeeded all the same = %+v", d)
	}
}

// A run of the deletion that a user cancelled is not begun again by itself, be it the
// destroy, the plan of it or its apply.
func TestCancelledRunsOfADeletion(t *testing.T) {
	for _, kind := range []RunKind{PlanRun, ApplyRun, DestroyRun} {
		o := calmly(Spec{Mode: Auto, DestroyLast: true, ApproveDestroy: kind != DestroyRun}, Status{Resources: Resources{Created: true}, Plans: Plans{Planned: calmBasis}})
		o.Deleting, o.Status = true, o.Status.WithDeletion()
		o.Status.Cancelled = o.Status.Cancelled.Asked("r1", Author{Name: "ann"}, calm, time.Minute)
		o.Status = o.Status.Record(Run{ID: "r1", Kind: kind, Done: true, Outcome: Interrupted, Cause: Cause{PlanInputs: calmBasis, Destroy: true}, At: calm}).WithDeletion()
		if d := Decide(o); d.Reason != RunCancelled || !d.waits() {
			t.Errorf("%s: Decide() = %+v, want it not to be repeated", kind, d)
		}
	}
}

// The deletion of a stack cancels what was under way for it, and not its own plan.
func TestADeletionCancelsOtherPlans(t *testing.T) {
	for name, tt := range map[string]struct {
		run  Run
		want Action
	}{
		"a plan":              {Run{Kind: PlanRun}, Cancel{"r1"}},
		"a drift check":       {Run{Kind: CheckRun}, Cancel{"r1"}},
		"a preview":           {Run{Kind: PreviewRun, Cause: Cause{Destroy: true}}, Cancel{"r1"}},
		"a plan of a destroy": {Run{Kind: PlanRun, Cause: Cause{Destroy: true}}, Wait{}},
		"an apply":            {Run{Kind: ApplyRun}, Wait{}},
	} {
		o := calmly(Spec{Mode: Auto, DestroyLast: true, ApproveDestroy: true}, Status{Resources: Resources{Created: true}})
		o.Deleting, o.Run = true, &tt.run
		o.Run.ID = "r1"
		if d := Decide(o); d.Action != tt.want {
			t.Errorf("%s: Decide() = %+v, want %+v", name, d, tt.want)
		}
		o.Spec.Cancel = "r1"
		if d := Decide(o); d.Action != (Cancel{"r1"}) {
			t.Errorf("%s: Decide() of a request to cancel it = %+v, want that", name, d)
		}
	}
}
