package stack

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is different between two statuses is one transition each, or none.
func TestTransitions(t *testing.T) {
	plan := &Plan{Name: "plan-1", Digest: "sha256:1", Changes: Changes{Add: 1}}
	drift := &Plan{Name: "plan-2", Digest: "sha256:2", Drift: true}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	run := func(kind RunKind, outcome Outcome) *Run {
		return &Run{ID: "run-1", Kind: kind, Done: true, Outcome: outcome, Step: "plan", At: now}
	}
	made := func(p *Plan) *Run { r := run(PlanRun, Succeeded); r.Plan = p; return r }
	applied := func(outcome Outcome) *Run { r := run(ApplyRun, outcome); r.Cause.Plan = plan; return r }
	broke, hand := run(PlanRun, Succeeded), run(BreakGlassRun, Succeeded)
	broke.Broke, hand.Cause.Command = "lock", &Command{ID: "c1", Args: []string{"state", "list"}}
	failing := Status{Failure: Failure{Failures: 2, FailedKind: PlanRun, FailedStep: "plan"}, LastRun: "run-0"}
	lock := func(minutes int) *Lock {
		return &Lock{ID: "l", Since: now.Format(time.RFC3339), Seen: now.Add(time.Duration(minutes) * time.Minute)}
	}
	refused := &Verdict{Plan: plan.Digest, Refused: true, Message: "no"}
	session := &BreakGlass{Session: "s1", Until: now.Add(time.Hour)}
	for name, tt := range map[string]struct {
		was   Status
		ended *Run
		is    func(*Status) // what else is different
		want  []Change
		again bool // each of them but RunEnded is one of a series
	}{
		"nothing happened":                     {was: failing},
		"a drift check that found nothing":     {ended: run(CheckRun, Succeeded), want: []Change{RunEnded}},
		"a plan without changes":               {ended: run(PlanRun, Succeeded), want: []Change{RunEnded}},
		"a plan":                               {ended: made(plan), want: []Change{RunEnded, PlanMade}},
		"the same plan again":                  {was: Status{Plans: Plans{Pending: plan}}, ended: made(plan), want: []Change{RunEnded, PlanMade}, again: true},
		"another plan":                         {was: Status{Plans: Plans{Pending: plan}}, ended: made(drift), want: []Change{RunEnded, PlanMade}},
		"drift that went away":                 {was: Status{Plans: Plans{Pending: drift}, Resources: Resources{Drift: &Drift{}}}, ended: run(CheckRun, Succeeded), want: []Change{RunEnded, DriftResolved}},
		"an apply":                             {was: Status{Plans: Plans{Pending: plan}}, ended: applied(Succeeded), want: []Change{RunEnded, PlanApplied}},
		"an apply that fails":                  {was: Status{Plans: Plans{Pending: plan}}, ended: applied(Failed), want: []Change{RunEnded, AttemptFailed}},
		"an apply that remediates drift":       {was: Status{Plans: Plans{Pending: drift}, Resources: Resources{Drift: &Drift{}}}, ended: applied(Succeeded), want: []Change{RunEnded, PlanApplied, DriftResolved}},
		"a stale plan":                         {was: Status{Plans: Plans{Pending: plan}}, ended: applied(Stale), want: []Change{RunEnded, PlanStale}},
		"a destroy":                            {was: Status{Resources: Resources{Created: true}}, ended: run(DestroyRun, Succeeded), want: []Change{RunEnded, StackDestroyed}},
		"a failure":                            {ended: run(PlanRun, Failed), want: []Change{RunEnded, AttemptFailed}},
		"the next failure":                     {was: failing, ended: run(PlanRun, Failed), want: []Change{RunEnded, AttemptFailed}, again: true},
		"a failure of another step":            {was: failing, ended: &Run{ID: "run-1", Kind: PlanRun, Done: true, Outcome: Failed, Step: "init"}, want: []Change{RunEnded, AttemptFailed}},
		"a success after failures":             {was: failing, ended: run(PlanRun, Succeeded), want: []Change{RunEnded, StackRecovered}},
		"a plan that was cancelled":            {ended: run(PlanRun, Interrupted), want: []Change{RunEnded}},
		"a preview":                            {ended: &Run{ID: "run-1", Kind: PreviewRun, Done: true, Outcome: Succeeded, Plan: plan}, want: []Change{RunEnded}},
		"a command":                            {ended: hand, want: []Change{RunEnded, CommandEnded}},
		"a command that could not be run":      {is: func(m *Status) { m.LastCommand = &CommandResult{Run: "glass-1-refused"} }, want: []Change{CommandEnded}},
		"a broken lock":                        {ended: broke, want: []Change{RunEnded, LockBroken}},
		"a run that is known already":          {was: Status{LastRun: "run-1"}, ended: applied(Succeeded)},
		"a run that met a lock before it ran":  {is: func(m *Status) { m.Failures, m.Lock = 1, lock(1) }, want: []Change{AttemptFailed}},
		"… and met it again":                   {was: Status{Failure: Failure{Failures: 1}, StoredState: StoredState{Lock: lock(1)}}, is: func(m *Status) { m.Failures, m.Lock = 2, lock(2) }, want: []Change{AttemptFailed}, again: true},
		"a lock that is old by now":            {was: Status{StoredState: StoredState{Lock: lock(1)}}, is: func(m *Status) { m.Lock = lock(11) }, want: []Change{LockHeld}},
		"a lock that was old before":           {was: Status{StoredState: StoredState{Lock: lock(11)}}, is: func(m *Status) { m.Lock = lock(20) }},
		"a lock that does not say how old":     {is: func(m *Status) { m.Lock = &Lock{ID: "l"} }, want: []Change{LockHeld}},
		"untracked resources":                  {is: func(m *Status) { m.Untracked = &Untracked{Run: "run-1"} }, want: []Change{UntrackedFound}},
		"fewer untracked resources":            {was: Status{Resources: Resources{Untracked: &Untracked{Run: "run-1", Apart: true}}}, is: func(m *Status) { m.Untracked = &Untracked{Run: "run-1"} }},
		"a check block that fails":             {ended: evaluated(CheckRun, "check.a"), want: []Change{RunEnded, ChecksFailed}},
		"a check block that still fails":       {was: failingBlocks("check.a"), ended: evaluated(CheckRun, "check.a"), want: []Change{RunEnded}},
		"another check block that fails":       {was: failingBlocks("check.a"), ended: evaluated(CheckRun, "check.a", "check.b"), want: []Change{RunEnded, ChecksFailed}},
		"one of two check blocks that passes":  {was: failingBlocks("check.a", "check.b"), ended: evaluated(CheckRun, "check.b"), want: []Change{RunEnded}},
		"a check block that passes again":      {was: failingBlocks("check.a"), ended: evaluated(CheckRun), want: []Change{RunEnded, ChecksPassed}},
		"a check block that was not evaluated": {was: failingBlocks("check.a"), ended: run(CheckRun, Succeeded), want: []Change{RunEnded}},
		"a destroyed check block":              {was: failingBlocks("check.a"), ended: run(DestroyRun, Succeeded), want: []Change{RunEnded, StackDestroyed}},
		"a verdict":                            {was: Status{Plans: Plans{Pending: plan}}, is: func(m *Status) { m.Review = refused }, want: []Change{PlanReviewed}},
		"the same verdict":                     {was: Status{Plans: Plans{Pending: plan, Review: refused}}, is: func(m *Status) { v := *refused; v.At = now; m.Review = &v }},
		"the same verdict for another reason":  {was: Status{Plans: Plans{Pending: plan, Review: refused}}, is: func(m *Status) { v := *refused; v.Message = "not yet"; m.Review = &v }, want: []Change{PlanReviewed}, again: true},
		"a break-glass session":                {is: func(m *Status) { m.BreakGlass = session }, want: []Change{BreakGlassStarted}},
		"a break-glass session after another":  {was: Status{Answers: Answers{BreakGlass: &BreakGlass{Session: "s0"}}}, is: func(m *Status) { m.BreakGlass = session }, want: []Change{BreakGlassStarted}},
		"the end of a break-glass session":     {was: Status{Answers: Answers{BreakGlass: session}}, is: func(m *Status) { m.BreakGlass = nil }, want: []Change{BreakGlassEnded}},
		"a break-glass session that is known":  {was: Status{Answers: Answers{BreakGlass: session}}},
		"drift that a new plan does not tell":  {was: Status{Plans: Plans{Pending: drift}, Resources: Resources{Drift: &Drift{}}}, ended: made(plan), want: []Change{RunEnded, PlanMade, DriftResolved}},
		"an apply after applies that failed":   {was: Status{Plans: Plans{Pending: plan}, Failure: Failure{Failures: 2, FailedKind: ApplyRun}}, ended: applied(Succeeded), want: []Change{RunEnded, PlanApplied, StackRecovered}},
		"a failure that leaves untracked ones": {was: Status{Plans: Plans{Pending: plan}}, ended: leaves(applied(Failed)), want: []Change{RunEnded, AttemptFailed, UntrackedFound}},
	} {
		t.Run(name, func(t *testing.T) {
			is := tt.was
			if tt.ended != nil {
				is = is.Record(*tt.ended)
			}
			if tt.is != nil {
				tt.is(&is)
			}
			var got []Change
			for _, tr := range Transitions(tt.was, is, tt.ended) {
				got = append(got, tr.Change)
				if series := tt.again && tr.Change != RunEnded; tr.Repeated != series {
					t.Errorf("%s is repeated: %v, want %v", tr.Change, tr.Repeated, series)
				}
				if (tr.Run != nil) != (tt.ended != nil) && tr.Change != DriftResolved && tr.Change != UntrackedFound {
					t.Errorf("%s has the run %v", tr.Change, tr.Run)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Transitions() (-want +got):\n%s", diff)
			}
		})
	}
}

func leaves(r *Run) *Run {
	r.Untracked = []UntrackedResource{{Address: "x.a"}}
	return r
}

func TestHowDriftIsResolved(t *testing.T) {
	was := Status{Resources: Resources{Drift: &Drift{}}, LastWrite: "apply-1"}
	for want, is := range map[Resolution]Status{
		WentAway: {LastWrite: "apply-1"}, Remediated: {LastWrite: "apply-2"}, Replaced: {LastWrite: "apply-1", Plans: Plans{Pending: &Plan{}}},
	} {
		if got := Transitions(was, is, nil); len(got) != 1 || got[0].How != want {
			t.Errorf("Transitions() = %+v, want drift that is %s", got, want)
		}
	}
}

// Each request is told once, when it is new.
func TestRequestsSince(t *testing.T) {
	before := Requests{Generation: 3, Approved: "plan-1"}
	for name, tt := range map[string]struct {
		before *Requests
		is     Requests
		want   []Request
	}{
		"nothing is new":                        {&before, before, nil},
		"the stack is new":                      {nil, Requests{Generation: 1, Replan: "now"}, []Request{AskedToCreate}},
		"the stack is new, and approved":        {nil, Requests{Generation: 1, Approved: "plan-1"}, []Request{AskedToCreate, AskedToApprove}},
		"another plan is approved":              {&before, Requests{Generation: 4, Approved: "plan-2"}, []Request{AskedToApprove}},
		"… and more is changed":                 {&before, Requests{Generation: 5, Approved: "plan-2"}, []Request{AskedToApprove, AskedToChange}},
		"an approval is withdrawn":              {&before, Requests{Generation: 4}, nil},
		"a plan is rejected":                    {&before, Requests{Generation: 3, Approved: "plan-1", Rejected: "plan-2"}, []Request{AskedToReject}},
		"it is suspended":                       {&before, Requests{Generation: 4, Approved: "plan-1", Suspended: true}, []Request{AskedToSuspend}},
		"it is resumed":                         {&Requests{Generation: 4, Suspended: true}, Requests{Generation: 5}, []Request{AskedToResume}},
		"a plan is asked for":                   {&before, Requests{Generation: 3, Approved: "plan-1", Replan: "now"}, []Request{AskedToReplan}},
		"untracked resources are to be ignored": {&before, Requests{Generation: 3, Approved: "plan-1", Ignored: "apply-1"}, []Request{AskedToIgnoreUntracked}},
		"a repair is asked for":                 {&before, Requests{Generation: 3, Approved: "plan-1", Repair: "sha256:r"}, []Request{AskedToRepair}},
		"a state is accepted":                   {&before, Requests{Generation: 3, Approved: "plan-1", Accepted: "sha256:s"}, []Request{AskedToAcceptState}},
		"steps are to run again":                {&before, Requests{Generation: 3, Approved: "plan-1", Rerun: "0123@now"}, []Request{AskedToRerunSteps}},
		"a former state is adopted":             {&before, Requests{Generation: 3, Approved: "plan-1", Adopted: true}, []Request{AskedToAdoptState}},
		"it is deleted":                         {&before, Requests{Generation: 4, Approved: "plan-1", Deleting: true}, []Request{AskedToDelete}},
		"the spec is changed":                   {&before, Requests{Generation: 4, Approved: "plan-1"}, []Request{AskedToChange}},
	} {
		if diff := cmp.Diff(tt.want, tt.is.Since(tt.before)); diff != "" {
			t.Errorf("%s: Since() (-want +got):\n%s", name, diff)
		}
	}
}

// A repair is known by its digest, so that the record holds no address.
func TestRequestsOfAnObject(t *testing.T) {
	repair := &Repair{Run: "apply-1"}
	o := Observation{Replan: "now", Deleting: true, Spec: Spec{Approved: "p", IgnoreUntracked: "apply-0", Repair: repair}}
	want := Requests{Generation: 7, Approved: "p", Replan: "now", Ignored: "apply-0", Repair: Digest(repair), Deleting: true}
	if got := RequestsOf(o, 7); got != want {
		t.Errorf("RequestsOf() = %+v, want %+v", got, want)
	}
}
