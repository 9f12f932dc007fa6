package stack

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
)

var (
	verdictNow = time.Unix(1e9, 0)
	holdsIt    = policy.Finding{Policy: "ClusterPolicy/production", Rule: "maxDestroys", Effect: policy.Hold, Message: "the plan destroys 3 resources, 0 are allowed: a, b, c"}
	deniesIt   = policy.Finding{Policy: "ClusterPolicy/production", Rule: "protected", Effect: policy.Deny, Message: "the plan destroys 1 protected resource: db"}
	allowsIt   = policy.Finding{Policy: "ClusterPolicy/production", Rule: "safe", Effect: policy.Allow, Message: "nothing is destroyed"}
)

// judgedBy is the verdict of policies about the plan d.
func judgedBy(findings ...policy.Finding) Verdict {
	v := Verdict{Plan: "d", By: "w", At: verdictNow, Findings: findings, Digest: policy.Digest(findings)}
	switch effect := policy.Combine(findings); effect {
	case policy.Deny:
		v.Refused, v.Message = true, policy.Text(policy.Deny, findings)
	case policy.Hold:
		v.Held, v.Message = true, policy.Text(policy.Hold, findings)
	default:
		v.Passed, v.Allowed = true, effect == policy.Allow
	}
	return v
}

// judged is a stack whose pending plan p1 policies judge.
func judged(mode Mode, approved string, findings ...policy.Finding) Observation {
	inputs := PlanInputs{Revision: "main@sha1:1", Source: "s"}
	o := Observation{
		Now: verdictNow, PlanInputs: inputs,
		Spec: Spec{Mode: mode, Approved: approved, Reviews: "w", Policies: "w", Interval: time.Hour, RetryEvery: time.Minute, Words: Words{Approved: "approvePlan"}},
		Status: Status{Plans: Plans{
			Planned: inputs, PlannedAt: verdictNow, PlanNames: []PlanName{{"p1", "d"}},
			Pending: &Plan{Name: "p1", Digest: "d", PlanInputs: inputs, Changes: Changes{Destroy: 3}, At: verdictNow},
		}},
	}
	o.Status = Reviewed(o.Status, judgedBy(findings...), approved)
	return o
}

// A message names who has a say, and no one else.
func TestWhoReviewsAPlan(t *testing.T) {
	for want, o := range map[string]Observation{
		"webhooks":              {Spec: Spec{Reviews: "w", Webhooks: true}},
		"policies":              {Spec: Spec{Reviews: "p", Policies: "p"}},
		"policies and webhooks": {Spec: Spec{Reviews: "b", Policies: "p", Webhooks: true}},
	} {
		o.Status.Pending = &Plan{Name: "p1"}
		if got := asking(o, Wait{}).Message; got != "Asking the "+want+" about p1" {
			t.Errorf("the message is %q, want that it names the %s", got, want)
		}
	}
	deleting := Observation{Spec: Spec{Reviews: "b", Policies: "p", Webhooks: true}, Deleting: true}
	if got := ReviewedBy(deleting); got != "policies" {
		t.Errorf("a deletion is reviewed by %s", got)
	}
}

func TestVerdictsOfPolicies(t *testing.T) {
	two := holdsIt
	two.Approval = &policy.Approval{Count: 2, Groups: []string{"platform"}}
	dry, broken := holdsIt, policy.Failed("ClusterPolicy/production", "spec", "it does not compile")
	dry.DryRun = true
	for name, tt := range map[string]struct {
		o      Observation
		reason Reason
		says   string
	}{
		"nothing is found":               {judged(Auto, "auto"), Applying, ""},
		"a hold in automatic mode":       {judged(Auto, "auto", holdsIt), AwaitingApproval, `Plan generated: held by ClusterPolicy/production: maxDestroys: the plan destroys 3 resources, 0 are allowed: a, b, c. To approve it, annotate it with terrier.dev/confirm=p1.`},
		"a hold that asks for two users": {judged(Auto, "auto", two), AwaitingApproval, "It needs 2 approvals by a member of platform. To approve it"},
		"a denial":                       {judged(Manual, "p1", deniesIt), ReviewRefused, "denied by ClusterPolicy/production: protected: the plan destroys 1 protected resource: db. The plan p1"},
		"a denial before a hold":         {judged(Auto, "auto", holdsIt, deniesIt), ReviewRefused, "denied by"},
		"a dry run":                      {judged(Auto, "auto", dry), Applying, ""},
		"a policy that cannot be asked":  {judged(Auto, "auto", broken), AwaitingApproval, "could not be evaluated: spec: it does not compile"},
		"what a policy allows":           {judged(Manual, "", allowsIt), Applying, ""},
		"what another one holds":         {judged(Manual, "", allowsIt, holdsIt), AwaitingApproval, "held by"},
		"planOnly stays planOnly":        {judged(PlanOnly, "", allowsIt), PlanOnlyHeld, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if d := Decide(tt.o); d.Reason != tt.reason || !strings.Contains(d.Message, tt.says) {
				t.Errorf("Decide() = %s: %s, want %s: %s", d.Reason, d.Message, tt.reason, tt.says)
			}
		})
	}
	rejected := judged(Manual, "", allowsIt)
	rejected.Spec.Rejected = "p1"
	if d := Decide(rejected); d.Reason != PlanRejected {
		t.Errorf("Decide() = %s of a plan that is allowed and was rejected, want the rejection to count", d.Reason)
	}
	forced := judged(Auto, "auto", holdsIt)
	forced.Spec.Force = true
	if d := Decide(forced); d.Reason != AwaitingApproval {
		t.Errorf("Decide() = %s of a forced stack, want the hold to count", d.Reason)
	}
}

// stamped is the status m of a stack whose stamps the API server is known to have written.
func stamped(m Status, s Spec, now time.Time, requesters ...string) Status {
	m.Approvals = Approvers{Seen: m.Approvals}.WithStamps(m, s, now).Seen
	m.Requesters = policy.Requesters{Users: requesters}
	return m
}

// A policy that asks for certain users is satisfied by what the API server stamped, and an
// approval counts from when it was seen first.
func TestWhoApprovesAHeldPlan(t *testing.T) {
	two := holdsIt
	two.Approval = &policy.Approval{Count: 2, Groups: []string{"ops"}, NotRequester: true, Expires: policy.Duration(time.Hour)}
	ann := policy.Given{Plan: "p1", By: "ann", Groups: []string{"ops"}}
	bob := policy.Given{Plan: "p1", By: "bob", Groups: []string{"dev", "ops"}}
	for name, tt := range map[string]struct {
		given []policy.Given
		say   string // empty: it is applied
	}{
		"two of the group":       {[]policy.Given{ann, bob}, ""},
		"one of the group":       {[]policy.Given{ann}, "needs 2 approvals by a member of ops, not by the user who requested the change, at most 1h old, has 1: of ann"},
		"the same user twice":    {[]policy.Given{ann, ann}, "has 1: of ann"},
		"no stamp":               {nil, "the approval of an unnamed user does not count"},
		"one of another group":   {[]policy.Given{ann, {Plan: "p1", By: "eve", Groups: []string{"dev"}}}, "the approval of eve does not count: this user is not among those who may approve it"},
		"who requested it":       {[]policy.Given{ann, {Plan: "p1", By: "zoe", Groups: []string{"ops"}}}, "the approval of zoe does not count: zoe requested the change"},
		"one of another plan":    {[]policy.Given{ann, {Plan: "p0", By: "bob", Groups: []string{"ops"}}}, "has 1: of ann"},
		"one by digest":          {[]policy.Given{ann, {Plan: judged(Auto, "p1", two).Status.Pending.Approvable(), By: "bob", Groups: []string{"ops"}}}, ""},
		"the digest of the plan": {[]policy.Given{ann, {Plan: "d", By: "bob", Groups: []string{"ops"}}}, "has 1: of ann"},
	} {
		t.Run(name, func(t *testing.T) {
			o := judged(Auto, "", two)
			o.Spec.Approved, o.Spec.Approvals = "p1", tt.given
			o.Status = stamped(o.Status, o.Spec, o.Now, "zoe")
			d := Decide(o)
			if applies := d.Reason == Applying; applies != (tt.say == "") || !strings.Contains(d.Message, tt.say) {
				t.Errorf("Decide() = %s: %s, want %q", d.Reason, d.Message, tt.say)
			}
		})
	}
	o := judged(Auto, "", two)
	o.Spec.Approved, o.Spec.Approvals = "p1", []policy.Given{ann}
	o.Status = stamped(o.Status, o.Spec, o.Now)
	o.Now = o.Now.Add(time.Hour)
	o.Spec.Approvals = []policy.Given{ann, bob}
	o.Status = stamped(o.Status, o.Spec, o.Now, "zoe")
	if d := Decide(o); d.Reason != AwaitingApproval || !strings.Contains(d.Message, "the approval of ann does not count: approvals count for 1h") {
		t.Errorf("Decide() = %s: %s an hour later, want the first approval to have expired", d.Reason, d.Message)
	}
	other := o.Status
	other.Pending, other.Review = nil, nil
	if m := stamped(other, o.Spec, o.Now.Add(time.Hour)); len(m.Approvals) != 2 || !m.Approvals[0].At.Equal(verdictNow) {
		t.Errorf("while no plan is pending the approvals are %v, want the times at which they were seen first", m.Approvals)
	}
	o.Spec.Rejected, o.Spec.Approvals = "p1", nil
	o.Status = Reviewed(o.Status, judgedBy(holdsIt), "")
	o.Spec.Approved = o.Status.Pending.Name
	o.Spec.Rejected = o.Status.Pending.Name
	o.Status = stamped(o.Status, o.Spec, o.Now)
	if d := Decide(o); d.Reason == Applying {
		t.Errorf("Decide() = %s: %s of a plan that was rejected after it was approved", d.Reason, d.Message)
	}
	if m := stamped(Status{}, o.Spec, o.Now); m.Approvals != nil {
		t.Errorf("a stack without a plan that is held keeps the approvals %v", m.Approvals)
	}
}

// An approval is of a plan and a verdict. If the verdict changes, the plan has another name.
func TestAnApprovalIsOfAVerdict(t *testing.T) {
	o := judged(Auto, "auto", holdsIt)
	if got := o.Status.Pending.Name; got != "p1" {
		t.Fatalf("the plan is called %s after its first verdict, want p1", got)
	}
	o.Spec.Mode, o.Spec.Approved = Manual, "p1"
	if d := Decide(o); d.Reason != Applying {
		t.Fatalf("Decide() = %s: %s, want the approved plan to be applied", d.Reason, d.Message)
	}

	stricter := holdsIt
	stricter.Message = "the plan destroys 3 resources, 1 is allowed: a, b, c"
	changed := o
	changed.Status = Reviewed(o.Status, judgedBy(stricter), "p1")
	is := changed.Status.Pending
	if is.Name == "p1" || !strings.HasPrefix(is.Name, "p1-") || is.Digest != "d" {
		t.Fatalf("the plan is called %s, want another name and the same digest", is.Name)
	}
	if d := Decide(changed); d.Reason != AwaitingApproval || !strings.Contains(d.Message, `ApprovePlan is "p1", which is not this plan.`) && !strings.Contains(d.Message, `approvePlan is "p1", which is not this plan.`) {
		t.Errorf("Decide() = %s: %s, want the old approval not to count", d.Reason, d.Message)
	}
	for _, approved := range []string{is.Name, is.Approvable()} {
		changed.Spec.Approved = approved
		if d := Decide(changed); d.Reason != Applying {
			t.Errorf("Decide() = %s with the approval %s, want it to count", d.Reason, approved)
		}
	}
	for _, approved := range []string{"d", o.Status.Pending.Approvable()} {
		changed.Spec.Approved = approved
		if d := Decide(changed); d.Reason != AwaitingApproval {
			t.Errorf("Decide() = %s with the approval %s of another verdict", d.Reason, approved)
		}
	}

	again := Reviewed(changed.Status, judgedBy(holdsIt), "")
	if again.Pending.Name != "p1" {
		t.Errorf("the plan is called %s under its first verdict, want p1", again.Pending.Name)
	}
	gone := Reviewed(again, judgedBy(), "p1")
	if gone.Pending.Name == "p1" || gone.Pending.Approvable() != "d" {
		t.Errorf("the plan is called %s once no policy says anything of it, want another name: p1 was approved under a verdict", gone.Pending.Name)
	}
}

// An approval that came before the first verdict does not count for a plan that is held. It
// counts for one in which nothing is found, or only a warning.
func TestApprovedBeforeTheVerdict(t *testing.T) {
	if o := judged(Manual, "p1", holdsIt); Decide(o).Reason != AwaitingApproval || o.Status.Pending.Name == "p1" {
		t.Errorf("Decide() = %s of %s, want another approval", Decide(o).Reason, o.Status.Pending.Name)
	}
	warns := holdsIt
	warns.Effect = policy.Warn
	for _, findings := range [][]policy.Finding{nil, {warns}} {
		if o := judged(Manual, "p1", findings...); Decide(o).Reason != Applying {
			t.Errorf("Decide() = %s with %v, want the approval to count", Decide(o).Reason, findings)
		}
	}
}

// The same plan again keeps its name and its verdict; after its verdict was forgotten it is
// judged again.
func TestThePlanAgain(t *testing.T) {
	o := judged(Manual, "p1", holdsIt)
	name := o.Status.Pending.Name
	again := *o.Status.Pending
	again.Name, again.Verdict, again.PlanInputs.Revision = "p1", "", "main@sha1:2"
	run := Run{ID: "plan-2", Kind: PlanRun, Cause: Cause{PlanInputs: again.PlanInputs}, Plan: &again, Done: true, Outcome: Succeeded, At: verdictNow.Add(time.Minute)}
	m := o.Status.Record(run)
	if m.Pending.Name != name || m.Pending.Verdict == "" {
		t.Errorf("the plan is called %s, want %s with its verdict", m.Pending.Name, name)
	}
	lost := o.Status
	lost.Pending = nil
	if m := lost.Record(run); m.Review != nil || m.Pending.Verdict != "" {
		t.Errorf("the verdict %+v is that of a plan that was forgotten", m.Review)
	}
}

// A policy that could not be evaluated is asked again after the check interval.
func TestABrokenPolicyIsAskedAgain(t *testing.T) {
	o := judged(Auto, "auto", policy.Failed("ClusterPolicy/p", "r", "it took longer than 5s"))
	if d := Decide(o); d.Action != (Wait{time.Hour}) {
		t.Errorf("Decide() = %+v, want a wait of an hour", d)
	}
	o.Now = o.Now.Add(time.Hour)
	if _, asks := Decide(o).Action.(Review); !asks {
		t.Errorf("Decide() = %+v, want the policies to be asked", Decide(o))
	}
}

// A deleted stack that policies judge is destroyed by a plan that they pass.
func TestPoliciesJudgeADeletion(t *testing.T) {
	o := judged(Auto, "auto", holdsIt)
	o.Deleting, o.Spec.DestroyLast, o.Status.Created = true, true, true
	o.Status.Pending.Destroy, o.Status.Pending.Whole = true, true
	if d := Decide(o); d.Reason != AwaitingApproval || !strings.HasPrefix(d.Message, `Deletion in progress: the plan p1 would destroy 3 resources. It is held by ClusterPolicy/production`) {
		t.Errorf("Decide() = %s: %s, want the deletion to wait", d.Reason, d.Message)
	}
	for _, mode := range []Mode{Auto, Manual, PlanOnly, DriftOnly} {
		approved := o
		approved.Spec.Mode, approved.Spec.Approved = mode, "p1"
		if _, applies := Decide(approved).Action.(Apply); !applies {
			t.Errorf("Decide() = %+v in the mode %s, want the approved destroy", Decide(approved), mode)
		}
	}
	unplanned := o
	unplanned.Status.Pending, unplanned.Status.Review = nil, nil
	if a, plans := Decide(unplanned).Action.(Start); !plans || !a.Destroy {
		t.Errorf("Decide() = %+v, want the destroy to be planned", Decide(unplanned))
	}
	unjudged := o
	unjudged.Status.Review = nil
	if _, asks := Decide(unjudged).Action.(Review); !asks {
		t.Errorf("Decide() = %+v, want the policies to be asked", Decide(unjudged))
	}
	denied := o
	denied.Status = Reviewed(denied.Status, judgedBy(deniesIt), "")
	if d := Decide(denied); d.Reason != ReviewRefused || !strings.Contains(d.Message, "terrier.dev/deletion=retain") {
		t.Errorf("Decide() = %s: %s, want the way out", d.Reason, d.Message)
	}
	locked := denied
	locked.Status.Lock, locked.Spec.Unlock.Auto = &Lock{ID: "l1"}, true
	if a, plans := Decide(locked).Action.(Start); !plans || !a.Destroy || a.Unlock != "l1" {
		t.Errorf("Decide() = %+v with a lock that may be broken, want a plan and no destroy", Decide(locked))
	}
	passed := o
	passed.Status = Reviewed(passed.Status, judgedBy(), "")
	if _, applies := Decide(passed).Action.(Apply); !applies {
		t.Errorf("Decide() = %+v, want the destroy that policies passed", Decide(passed))
	}
	kept := o
	kept.Spec.DestroyLast = false
	if _, ends := Decide(kept).Action.(Finish); !ends {
		t.Errorf("Decide() = %+v, want the object to go with terrier.dev/deletion=retain", Decide(kept))
	}
}

// Outside of the times of policies nothing is changed: no plan is applied, no script runs,
// and nothing is destroyed. All else goes on.
func TestTimesOfPolicies(t *testing.T) {
	until := verdictNow.Add(3 * time.Hour)
	closed := policy.Times{Freezes: []policy.Freeze{{Policy: "ClusterPolicy/f", From: verdictNow.Add(-time.Hour), To: until, Reason: "release"}}}
	o := judged(Auto, "auto")
	o.Spec.Times = closed
	d := Decide(o)
	if d.Reason != ApplyWithheld || d.Ready != Held || d.Action != (Wait{3 * time.Hour}) ||
		!strings.Contains(d.Message, "The plan p1 (0 to add, 0 to change, 3 to destroy) is not applied yet: ClusterPolicy/f: freezes: nothing is applied from") || !strings.HasSuffix(d.Message, "Terrier continues at "+until.UTC().Format(time.RFC3339)+".") {
		t.Errorf("Decide() = %+v, want the apply to wait", d)
	}
	script := o
	script.Spec.Script, script.Spec.Reviews, script.Spec.Policies, script.Status = true, "", "", Status{}
	if d := Decide(script); d.Reason != ApplyWithheld {
		t.Errorf("Decide() = %+v, want the script to wait", d)
	}
	gone := o
	gone.Deleting, gone.Spec.DestroyLast, gone.Status.Created, gone.Spec.Policies, gone.Status.Pending = true, true, true, "", nil
	if d := Decide(gone); d.Reason != ApplyWithheld {
		t.Errorf("Decide() = %+v, want the destroy to wait", d)
	}
	gone.Spec.DestroyLast = false
	if _, ends := Decide(gone).Action.(Finish); !ends {
		t.Errorf("Decide() = %+v, want an object to go that retains its resources", Decide(gone))
	}
	newer := o
	newer.PlanInputs.Source = "s2"
	if a, plans := Decide(newer).Action.(Start); !plans || a.Kind != PlanRun {
		t.Errorf("Decide() = %+v, want a plan of the new source", Decide(newer))
	}
	o.Now = until
	if d := Decide(o); d.Reason != Applying {
		t.Errorf("Decide() = %+v after the freeze, want the apply", d)
	}
	o.Spent = policy.Withheld{Policy: "ClusterPolicy/h", Rule: policy.MaxDestroysPerHour, Until: until.Add(time.Minute), Why: "w"}
	if d := Decide(o); d.Reason != ApplyWithheld || d.Action != (Wait{time.Minute}) {
		t.Errorf("Decide() = %+v, want the end of the hour", d)
	}
	never := judged(Auto, "auto")
	never.Spec.Times.Windows = []policy.Windows{{Policy: "p"}}
	if d := Decide(never); d.Reason != ApplyWithheld || d.Action != (Wait{}) {
		t.Errorf("Decide() = %+v, want a wait without an end", d)
	}
}

// A plan that is older than a policy lets it be is made again. If it is the same, its
// approval counts.
func TestAnOldPlanIsMadeAgain(t *testing.T) {
	o := judged(Manual, "p1")
	o.Spec.Times.PlanAge = []policy.Age{{Policy: "ClusterPolicy/a", Age: time.Hour}}
	o.Now = verdictNow.Add(2 * time.Hour)
	d := Decide(o)
	if a, plans := d.Action.(Start); !plans || a.Kind != PlanRun || !strings.Contains(a.Why, "older than 1h") {
		t.Fatalf("Decide() = %+v, want the plan to be made again", d)
	}
	same := *o.Status.Pending
	o.Status = o.Status.Record(Run{ID: "plan-2", Kind: PlanRun, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: &same, Done: true, Outcome: Succeeded, At: o.Now})
	if d := Decide(o); d.Reason != Applying {
		t.Errorf("Decide() = %+v, want the plan that was confirmed to be applied", d)
	}
	waits := judged(Manual, "")
	waits.Spec.Times, waits.Now = o.Spec.Times, o.Now
	if d := Decide(waits); d.Reason != AwaitingApproval {
		t.Errorf("Decide() = %+v, want a plan without an approval to stay", d)
	}
}

// A status that an earlier release wrote has no findings, and its verdicts count as before.
func TestEarlierVerdicts(t *testing.T) {
	var m Status
	old := `{"pending":{"name":"p1","digest":"d","run":"r","basis":{"source":"s"},"changes":{},"at":"2001-09-09T01:46:40Z"},
		"review":{"plan":"d","by":"w","held":true,"message":"look","at":"2001-09-09T01:46:40Z"},"planned":{"source":"s"}}`
	if err := json.Unmarshal([]byte(old), &m); err != nil {
		t.Fatal(err)
	}
	o := Observation{Now: verdictNow, Status: m, PlanInputs: PlanInputs{Source: "s"}, Spec: Spec{Mode: Auto, Reviews: "w", Interval: time.Hour}}
	if d := Decide(o); d.Reason != AwaitingApproval || !strings.Contains(d.Message, "The webhooks hold it: look") {
		t.Errorf("Decide() = %s: %s, want the hold", d.Reason, d.Message)
	}
	o.Spec.Mode, o.Spec.Approved = Manual, "d"
	if d := Decide(o); d.Reason != Applying {
		t.Errorf("Decide() = %s: %s, want the approval by digest to count", d.Reason, d.Message)
	}
}

// A verdict repeats another one if only the reviewers and the time differ. One after which they
// are asked again repeats none.
func TestVerdictsThatRepeat(t *testing.T) {
	at := time.Unix(1e9, 0)
	held := Verdict{Plan: "d", By: "1", Held: true, Digest: "v", At: at, Findings: []policy.Finding{{Policy: "p", Effect: policy.Hold, Message: "m"}}}
	with := func(change func(*Verdict)) *Verdict {
		v := held
		v.By, v.At = "2", at.Add(time.Hour)
		change(&v)
		return &v
	}
	for name, tt := range map[string]struct {
		v    *Verdict
		want bool
	}{
		"the same later":  {with(func(*Verdict) {}), true},
		"another plan":    {with(func(v *Verdict) { v.Plan = "e" }), false},
		"another outcome": {with(func(v *Verdict) { v.Held, v.Passed = false, true }), false},
		"another digest":  {with(func(v *Verdict) { v.Digest = "w" }), false},
		"another finding": {with(func(v *Verdict) { v.Findings = []policy.Finding{{Policy: "p", Effect: policy.Hold, Message: "n"}} }), false},
		"more findings":   {with(func(v *Verdict) { v.More = 1 }), false},
		"a refusal":       {with(func(v *Verdict) { v.Held, v.Refused = false, true }), false},
		"no answer":       {with(func(v *Verdict) { v.Held = false }), false},
		"what may pass": {with(func(v *Verdict) {
			v.Findings = []policy.Finding{{Policy: "p", Effect: policy.Hold, Message: "m", Error: true}}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			before := Status{Plans: Plans{Pending: &Plan{Digest: "d", Name: "n", Verdict: "v"}}}
			before.Review = &held
			if got := tt.v.Repeats(&held); got != tt.want {
				t.Errorf("Repeats() = %v, want %v", got, tt.want)
			}
			if is, ok := Repeated(before, tt.v); ok != tt.want || (is.Review == tt.v) != tt.want || before.Review != &held {
				t.Errorf("Repeated() = %+v, %v, want %v", is.Review, ok, tt.want)
			}
		})
	}
	if held.Repeats(nil) {
		t.Error("the first verdict holds the plan, and repeats none")
	}
	if v := (Verdict{Plan: "d", By: "1", Passed: true, At: at}); !v.Repeats(nil) {
		t.Error("the first verdict has nothing against the plan, and is written")
	}
	if v := (Verdict{Plan: "d", By: "1", Passed: true, Allowed: true, Digest: "v", At: at}); v.Repeats(nil) {
		t.Error("the first verdict allows the plan, and is not written")
	}
	if _, ok := Repeated(Status{}, &held); ok {
		t.Error("without a pending plan a verdict is taken over")
	}
}
