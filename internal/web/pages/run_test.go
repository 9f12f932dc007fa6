package pages

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// noted is what the controller writes down of a run.
func noted(t *testing.T, c stack.Cause, waited time.Duration) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(note{c, waited})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// history is a stack with runs of all kinds.
func history(t *testing.T) *planned {
	basis := stack.PlanInputs{Revision: "main@sha1:4f1c9ab2d7e0c5a1", Engine: "tofu 1.12.6"}
	steps := []runner.Step{{Name: "init", Wall: 2 * time.Second, CPU: time.Second, MaxRSS: 80 << 20}, {Name: "plan", Wall: 9 * time.Second, CPU: 4 * time.Second, MaxRSS: 300 << 20},
		{Name: "show", Wall: time.Second}, {Name: "show", Wall: time.Second}, {Name: "provider registry.example/t/world", CPU: 3 * time.Second, MaxRSS: 120 << 20}}
	p := &planned{estate: town()}
	p.reports = []query.Report{
		{ID: "plan-1", Kind: stack.PlanRun, Phase: runner.Done, Level: 3, Started: now.Add(-2 * time.Hour), Finished: now.Add(-2*time.Hour + 14*time.Second), Outcome: stack.Succeeded, Changes: stack.Changes{Add: 2}, Steps: steps, Note: noted(t, stack.Cause{PlanInputs: basis, Why: "the source changed"}, 0),
			Diagnostics: []plan.Diagnostic{{Severity: "warning", Summary: "Deprecated argument " + hostile, Detail: "Use\n\n  another", File: "main.tf", Line: 12, Snippet: "a = 1\nb = \"" + hostile + "\"", Address: "world_thing.a"}}},
		{ID: "apply-7", Kind: stack.ApplyRun, Phase: runner.Done, Started: now.Add(-time.Hour), Finished: now.Add(-50 * time.Minute), Outcome: stack.Failed, Message: hostile + long, Step: "apply", Exit: 1, InitSkipped: true, Steps: []runner.Step{{Name: "apply", Wall: time.Minute, Exit: 1}},
			Note: noted(t, stack.Cause{PlanInputs: basis, Why: "plan plan-main-1", Plan: &stack.Plan{Name: "plan-main-1", Digest: "sha256:x", Run: "plan-0", Changes: stack.Changes{Add: 1}}}, 12*time.Second), Diagnostics: []plan.Diagnostic{{Severity: "error", Summary: "the provider says no"}}},
		{ID: "plan-8", Kind: stack.PlanRun, Phase: runner.Planning, Since: now.Add(-12 * time.Second), Until: now.Add(50 * time.Minute), Started: now.Add(-20 * time.Second), Steps: steps[:1], Note: noted(t, stack.Cause{Why: "requested", Replan: now.Format(time.RFC3339Nano)}, 0)},
		{ID: "health-2", Kind: stack.HealthRun, Started: now.Add(-3 * time.Hour), Finished: now.Add(-3*time.Hour + time.Second), Outcome: stack.Failed, Step: "health", Health: []runner.Health{{Name: "front", OK: true}, {Name: hostile, Message: "503"}}, Note: json.RawMessage(`"no cause"`)},
		{ID: "check-3", Kind: stack.CheckRun, Started: now.Add(-4 * time.Hour), Finished: now.Add(-4*time.Hour + time.Second), Outcome: stack.Succeeded},
		{ID: "killed-1", Kind: stack.ApplyRun, Phase: runner.Starting, Started: now.Add(-5 * time.Hour), Finished: now.Add(-5*time.Hour + time.Second), Outcome: stack.Killed},
	}
	return p
}

func runVisit(t *testing.T, p *planned, address string) *Visit {
	t.Helper()
	v := visitor(t, p.estate, address)
	v.Backend.Stacks = p
	if parts := strings.Split(v.Path, "/"); len(parts) > 5 {
		v.Names["run"] = parts[5]
	}
	return v
}

func TestRunsKeepTheRules(t *testing.T) {
	p := history(t)
	for _, r := range p.reports {
		for _, name := range []string{"apps/checkout", "net/watch", "apps/cart", "apps/hostile"} {
			v := runVisit(t, p, "/stacks/"+name+"/runs/"+r.ID)
			page, err := Run(v)
			if err != nil {
				t.Fatal(err)
			}
			parse(t, v, page)
			if got, want := page.Live.Every > 0, r.Finished.IsZero(); got != want {
				t.Errorf("%s is looked at again: %v, want %v", r.ID, got, want)
			}
		}
	}
}

// waysOf are the stages of a run, each with its state.
func waysOf(t *testing.T, p *planned, stack, run string) string {
	t.Helper()
	v := runVisit(t, p, "/stacks/"+stack+"/runs/"+run)
	page, err := Run(v)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range page.Data.(runPage).Stages {
		out = append(out, s.ID+" "+s.State)
	}
	return strings.Join(out, ", ")
}

func TestTheWayOfARun(t *testing.T) {
	for name, tt := range map[string]struct{ stack, run, want string }{
		"a pending plan":            {"apps/checkout", "plan-1", "cause done, step-prepare done, step-init done, step-plan done, step-show done, outcome done, approval waits, apply later"},
		"a plan that is only shown": {"net/watch", "plan-1", "cause done, step-prepare done, step-init done, step-plan done, step-show done, outcome done, approval skipped"},
		"a plan that was applied":   {"apps/cart", "plan-1", "cause done, step-prepare done, step-init done, step-plan done, step-show done, outcome done, approval done, apply done"},
		"a plan that was replaced":  {"net/dns", "plan-1", "cause done, step-prepare done, step-init done, step-plan done, step-show done, outcome done, approval skipped"},
		"an apply that failed":      {"apps/checkout", "apply-7", "approval done, queued done, step-prepare done, step-init skipped, step-apply failed, outcome failed"},
		"a run that goes on":        {"apps/checkout", "plan-8", "cause done, step-prepare done, step-init done, step-plan now, step-show later"},
		"a run that was killed":     {"apps/checkout", "killed-1", "step-prepare failed, outcome failed"},
		"a drift check":             {"apps/checkout", "check-3", "step-prepare done, outcome done"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := waysOf(t, history(t), tt.stack, tt.run); got != tt.want {
				t.Errorf("the way is\n %s, want\n %s", got, tt.want)
			}
		})
	}
}

// A plan leads to the run that carried it out, and that leads back.
func TestRunsLeadToEachOther(t *testing.T) {
	p := history(t)
	p.reports = append(p.reports, query.Report{ID: "apply-9", Kind: stack.ApplyRun, Started: now.Add(-time.Minute), Note: noted(t, stack.Cause{Plan: &stack.Plan{Name: "plan-main-4f1c9ab2d7", Digest: "sha256:d", Run: "plan-1"}}, 0)})
	v := runVisit(t, p, "/stacks/net/dns/runs/plan-1")
	page, err := Run(v)
	if err != nil {
		t.Fatal(err)
	}
	data := page.Data.(runPage)
	last := data.Stages[len(data.Stages)-1]
	if last.Link == nil || last.Link.Href != "/stacks/net/dns/runs/apply-9" || last.State != "now" {
		t.Errorf("the last stage is %+v, want the apply that goes on", last)
	}
	if data.Newer == nil || data.Newer.ID != "apply-7" || data.Older == nil || data.Older.ID != "health-2" {
		t.Errorf("beside it are %v and %v, want health-2 and apply-7", data.Older, data.Newer)
	}
	v = runVisit(t, p, "/stacks/net/dns/runs/apply-9")
	if page, err = Run(v); err != nil {
		t.Fatal(err)
	}
	data = page.Data.(runPage)
	if first := data.Stages[0]; first.Link == nil || first.Link.ID != "plan-1" || data.Plan != "/stacks/net/dns/plan?digest=sha256%3Ad" {
		t.Errorf("the apply leads to %+v and %q", first.Link, data.Plan)
	}
}

// A first run that had nothing to install says so in the place of its init.
func TestTheWayOfARunWithoutInit(t *testing.T) {
	p := history(t)
	p.reports = append(p.reports, query.Report{ID: "plan-9", Kind: stack.PlanRun, Phase: runner.Planning, Since: now, Started: now, NoInit: true})
	v := runVisit(t, p, "/stacks/apps/checkout/runs/plan-9")
	page, err := Run(v)
	if err != nil {
		t.Fatal(err)
	}
	parse(t, v, page)
	i := slices.IndexFunc(page.Data.(runPage).Stages, func(s stage) bool { return s.ID == "step-init" })
	if i < 0 {
		t.Fatalf("the way of the run has no init: %s", waysOf(t, p, "apps/checkout", "plan-9"))
	}
	if s := page.Data.(runPage).Stages[i]; s.State != "skipped" || !strings.Contains(s.Text, "nothing to install") {
		t.Errorf("init is %q: %q, want it skipped because there is nothing to install", s.State, s.Text)
	}
}

// A plan that needs an approval does not look as if all were done.
func TestRunsSayWhatTheyDid(t *testing.T) {
	st := town().rows[0].Stack // its plan-1 is pending
	applying := st
	applying.Phase = string(stack.Applying)
	for name, tt := range map[string]struct {
		st   query.Stack
		r    query.Report
		want string
	}{
		"a pending plan":        {st, query.Report{ID: "plan-1", Kind: stack.PlanRun, Outcome: stack.Succeeded, Changes: stack.Changes{Add: 2}}, "warn Pending plan"},
		"one that is applied":   {applying, query.Report{ID: "plan-1", Kind: stack.PlanRun, Outcome: stack.Succeeded}, "busy Being applied"},
		"an older plan":         {st, query.Report{ID: "plan-0", Kind: stack.PlanRun, Outcome: stack.Succeeded, Changes: stack.Changes{Add: 2}}, "idle Planned"},
		"a plan of nothing":     {st, query.Report{ID: "plan-0", Kind: stack.PlanRun, Outcome: stack.Succeeded}, "ok No changes"},
		"a check":               {st, query.Report{ID: "check", Kind: stack.CheckRun, Outcome: stack.Succeeded}, "ok No drift"},
		"a check with a find":   {st, query.Report{ID: "check", Kind: stack.CheckRun, Outcome: stack.Succeeded, Changes: stack.Changes{Change: 1}}, "drift Drifted"},
		"an apply":              {st, query.Report{ID: "apply-1", Kind: stack.ApplyRun, Outcome: stack.Succeeded}, "ok Applied"},
		"a plan that failed":    {st, query.Report{ID: "plan-1", Kind: stack.PlanRun, Outcome: stack.Failed}, "bad Failed"},
		"a plan that goes on":   {st, query.Report{ID: "plan-9", Kind: stack.PlanRun}, "busy Running"},
		"a destroy":             {st, query.Report{ID: "destroy-1", Kind: stack.DestroyRun, Outcome: stack.Succeeded}, "warn Destroyed"},
		"a break-glass command": {st, query.Report{ID: "glass-1", Kind: stack.BreakGlassRun, Outcome: stack.Succeeded}, "ok Done"},
	} {
		if p := runPill(tt.r, tt.st); string(p.Tone)+" "+p.Word != tt.want {
			t.Errorf("%s: %s %s, want %s", name, p.Tone, p.Word, tt.want)
		}
	}
}

// entries is an audit log that has these.
type entries struct {
	query.AuditLog
	all []query.AuditEntry
}

func (e entries) Entries(context.Context, query.AuditSight, query.AuditQuery) (query.AuditPage, error) {
	return query.AuditPage{Items: e.all}, nil
}

func TestRunsNameWhoCausedThem(t *testing.T) {
	p := history(t)
	p.reports[2].Note = noted(t, stack.Cause{Why: "requested", Replan: "r-1"}, 0)
	v := runVisit(t, p, "/stacks/apps/checkout/runs")
	v.Backend.AuditLog = entries{all: []query.AuditEntry{
		{What: "approved", Who: "ann " + hostile, Digest: "sha256:x"}, {What: "replan-asked", Who: "bob", Details: map[string]string{"request": "r-1"}},
	}}
	page, err := StackRuns(v)
	if err != nil {
		t.Fatal(err)
	}
	text := parse(t, v, page).text()
	for _, want := range []string{"applies the plan plan-main-1", "ann <script>", "bob", "main@4f1c9ab2", "source changed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table does not say %q: %s", want, text)
		}
	}
	v.Can = func(a access.Request) bool { return a.Resource != access.ResourceAudit }
	if page, err = StackRuns(v); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(parse(t, v, page).text(), "bob") {
		t.Error("a visitor without the permission for the audit log sees who requested a run")
	}
}

// A run shows what policies found in the plan that it made or applies, to visitors who may
// view the plan.
func TestARunShowsTheVerdict(t *testing.T) {
	p := history(t)
	p.verdict = &query.Verdict{Effect: policy.Hold, Findings: []policy.Finding{
		{Policy: "ClusterPolicy/production", Rule: "maxDestroys", Effect: policy.Hold, Severity: policy.High, Message: "the plan destroys 2 resources " + hostile, Link: "https://rules.example.com/destroys", Approval: &policy.Approval{Count: 2}},
		{Policy: policy.OwnGuards, Rule: "protected", Effect: policy.Hold, Message: "the plan replaces 1 protected resource"},
	}}
	show := func(run string, may bool) string {
		t.Helper()
		v := runVisit(t, p, "/stacks/apps/checkout/runs/"+run)
		if !may {
			v.Can = func(r access.Request) bool { return r.Resource != access.ResourcePlan }
		}
		page, err := Run(v)
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, v, page).text()
	}
	got := show("apply-7", true)
	for _, want := range []string{"Findings of policies, severity high", "ClusterPolicy/production holds: maxDestroys", "the plan destroys 2 resources", "Needs 2 approvals", "More about this rule", "the annotations of the stack hold: protected"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page of the run does not say %q: %s", want, got)
		}
	}
	for run, may := range map[string]bool{"health-2": true, "apply-7": false} {
		if got := show(run, may); strings.Contains(got, "Findings of policies") {
			t.Errorf("the page of %s shows findings", run)
		}
	}
}
