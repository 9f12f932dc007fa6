package pages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/drift/patch"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/query/steps"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// now is when all tests of pages happen.
var now = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// hostile is a text that users may write in any field.
const hostile = `<script>alert(1)</script>"'` + "`" + `&amp; {{.}} ` + "\u202egnp.exe\u202c" + ` 🦮 javascript:alert(1) ]]> <!-- `

// long is a text as long as messages get.
var long = strings.Repeat("the provider says no, ", 100)

// estate is a board, and the stacks on it, as a test needs them.
type estate struct {
	query.StackReader // what is not below is asked by no test
	rows              []query.Row
	reports           []query.Report
	state             plan.StateView
	kept              query.KeptStates
	detail            query.Detail
	inputs            []query.InputInfo
	moments           []query.Moment
	outputs           []query.Output
	drift             query.DriftDetail
	looked            time.Time
	manifest          query.Manifest
	document          []byte // of every plan
	uses              usage.Record
	verdict           *query.Verdict
	prerequisites     []steps.Prerequisite // of every stack
	steps             *steps.Steps
	err               error // of what takes a right of its own
	asked             query.BoardQuery
	revealed          bool // a page asked for the secret values of the state
}

func (e *estate) Page(scope access.Scope, q query.BoardQuery) (query.BoardPage, error) {
	e.asked = q
	if strings.Contains(q.Selector, "!!") {
		return query.BoardPage{}, fault.New(fault.Invalid, query.ReasonQuery, errors.New("the selector cannot be read"))
	}
	out := query.BoardPage{Counts: map[query.Status]int{}, Cursor: "7.12"}
	groups := map[string]*query.BoardGroup{}
	var found []query.Row
	for _, r := range e.rows {
		if !scope.Has(r.Namespace) || q.Namespace != "" && r.Namespace != q.Namespace || !matches(q.Text, r.Namespace+"/"+r.Name, r.Message) || q.Tenant != "" && r.Tenant != q.Tenant {
			continue
		}
		out.Counts[r.Status]++
		if len(q.Statuses) > 0 && !slices.Contains(q.Statuses, r.Status) {
			continue
		}
		found = append(found, r)
		if q.Group == "" {
			continue
		}
		name := groupOf(q.Group, &r)
		if groups[name] == nil {
			groups[name] = &query.BoardGroup{Name: name, Counts: map[query.Status]int{}}
		}
		groups[name].Total++
		groups[name].Counts[r.Status]++
	}
	for _, g := range groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b query.BoardGroup) int { return strings.Compare(a.Name, b.Name) })
	if q.Group != "" {
		slices.SortStableFunc(found, func(a, b query.Row) int { return strings.Compare(groupOf(q.Group, &a), groupOf(q.Group, &b)) })
	}
	out.Total = len(found)
	from := min(q.Offset, len(found))
	out.Items = found[from:min(len(found), from+q.Limit)]
	return out, nil
}

func (e *estate) row(k query.Key) (query.Row, bool) {
	i := slices.IndexFunc(e.rows, func(r query.Row) bool { return r.Key() == k })
	if i < 0 {
		return query.Row{}, false
	}
	return e.rows[i], true
}

// board and stacks are two sides of one estate whose methods have the same name.
type board struct{ *estate }

func (b board) Get(k query.Key) (query.Row, bool) { return b.row(k) }
func (b board) Namespaces() []string              { return []string{"apps", "hidden", "net"} }
func (b board) Graph(access.Scope, query.Key, int) (query.Graph, error) {
	return query.Graph{}, b.err
}
func (b board) Capacity(query.Slots) (query.CapacityInfo, error) { return query.CapacityInfo{}, b.err }

func (e *estate) Get(_ context.Context, k query.Key) (query.Stack, error) {
	if r, ok := e.row(k); ok {
		return r.Stack, nil
	}
	return query.Stack{}, fault.New(fault.Missing, access.ReasonNotFound, fmt.Errorf("stack %s does not exist", k))
}

func (e *estate) ProposeDrift(_ context.Context, k query.Key, o query.DriftOrder) (query.DriftPatch, error) {
	return query.DriftPatch{
		Name: "plan-1", Digest: "sha256:d", Of: "GitRepository/net at main@sha1:1", Patch: fmt.Sprintf("--- a/main.tf\n+++ b/main.tf\n ignored %v %s", o.IgnoreChanges, hostile),
		Open: []patch.Open{{Address: "world_thing.a", Attribute: hostile, Where: "main.tf:3", Why: "It is an expression."}},
	}, e.err
}

func (e *estate) NextCheck(context.Context, query.Key) (query.DriftCheck, error) {
	return query.DriftCheck{Last: now, Next: now.Add(time.Hour), Why: hostile}, e.err
}

func (e *estate) Explain(ctx context.Context, k query.Key) (query.Explanation, error) {
	s, err := e.Get(ctx, k)
	x := query.Explanation{Stack: s, Means: meaning.Of(stack.Reason(s.Phase), stack.Words{}), Facts: []string{"the webhooks did not let the plan pass", hostile}}
	for _, r := range meaning.Rules() {
		x.Rules = append(x.Rules, query.RuleOutcome{Rule: r.Rule, Does: r.Does, Fires: r.Rule == s.Rule})
	}
	x.Prerequisites, x.Steps = e.prerequisites, e.steps
	return x, err
}

func (e *estate) Describe(ctx context.Context, k query.Key) (query.Detail, error) {
	s, err := e.Get(ctx, k)
	d := e.detail
	d.Stack = s
	return d, err
}

func (e *estate) Run(_ context.Context, _ query.Key, run string) (query.Report, error) {
	i := slices.IndexFunc(e.reports, func(r query.Report) bool { return r.ID == run })
	if i < 0 {
		return query.Report{}, fault.New(fault.Missing, query.ReasonNoRuns, errors.New("no such run"))
	}
	return e.reports[i], nil
}

func (e *estate) Runs(context.Context, query.Key) ([]query.Report, error) { return e.reports, nil }

func (e *estate) StateOf(_ context.Context, _ query.Key, _ string, reveal bool) (plan.StateView, error) {
	e.revealed = reveal
	return e.state, e.err
}

func (e *estate) StateVersions(context.Context, query.Key) (query.KeptStates, error) {
	return e.kept, e.err
}

func (e *estate) Verdict(context.Context, query.Key, string) (*query.Verdict, error) {
	return e.verdict, e.err
}

func (e *estate) Applied(context.Context, query.Key) ([]query.AppliedPlan, error) { return nil, e.err }

func (e *estate) Uses(context.Context, query.Key) (usage.Record, error) { return e.uses, e.err }

func (e *estate) Inputs(context.Context, query.Key) ([]query.InputInfo, error) {
	return e.inputs, e.err
}

func (e *estate) Timeline(context.Context, query.Key) ([]query.Moment, error) {
	return e.moments, e.err
}

func (e *estate) OutputsKept(context.Context, query.Key) ([]query.Output, error) {
	return e.outputs, e.err
}

func (e *estate) CheckedAt(context.Context, query.Key) (time.Time, error) {
	return e.looked, e.err
}

func (e *estate) Manifest(context.Context, query.Key) (query.Manifest, error) {
	return e.manifest, e.err
}

// Plan returns the document of the estate, and none if it has none.
func (e *estate) Plan(_ context.Context, k query.Key, digest string) (query.PlanDocument, error) {
	if e.document == nil {
		return query.PlanDocument{}, fault.New(fault.Missing, query.ReasonNotKept, fmt.Errorf("the plan of %s is not kept", k))
	}
	return query.PlanDocument{PlanInfo: query.PlanInfo{Digest: digest}, Document: e.document}, e.err
}

func (e *estate) DriftDetails(context.Context, query.Key) (query.DriftDetail, error) {
	return e.drift, e.err
}

// hands notes what was commanded, and refuses some of it.
type hands struct {
	command.StackCommands // what is not below is commanded by no test
	done                  []string
	refuse                map[string]error // by what would be noted
}

func (h *hands) do(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if err := h.refuse[what]; err != nil {
		return err
	}
	h.done = append(h.done, what)
	return nil
}

func (h *hands) Approve(_ context.Context, k query.Key, p query.PlanInfo, comment string) (query.Stack, error) {
	return query.Stack{}, h.do("approve %s %s %s %q", k, p.Name, p.Digest, comment)
}

func (h *hands) OverrideWindow(_ context.Context, k query.Key, p query.PlanInfo, comment string) (query.Stack, error) {
	return query.Stack{}, h.do("override %s %s %s %q", k, p.Name, p.Digest, comment)
}

func (h *hands) Reject(_ context.Context, k query.Key, p query.PlanInfo, comment string) (query.Stack, error) {
	return query.Stack{}, h.do("reject %s %s %s %q", k, p.Name, p.Digest, comment)
}

func (h *hands) Replan(_ context.Context, k query.Key) (string, error) {
	return "now", h.do("replan %s", k)
}
func (h *hands) RerunSteps(_ context.Context, k query.Key, seen string) (string, error) {
	return seen + "@now", h.do("rerun steps %s %s", k, seen)
}
func (h *hands) RollBack(_ context.Context, k query.Key, o command.StackRollback) (command.RollbackTo, error) {
	return command.RollbackTo{}, h.do("roll back %s %s, end %v", k, o.Leaves, o.End)
}
func (h *hands) Suspend(_ context.Context, k query.Key) error { return h.do("suspend %s", k) }
func (h *hands) Resume(_ context.Context, k query.Key) error  { return h.do("resume %s", k) }

func (h *hands) Unlock(_ context.Context, k query.Key, id string) error {
	return h.do("unlock %s %s", k, id)
}

func (h *hands) Cancel(_ context.Context, k query.Key, run string) (query.Stack, error) {
	return query.Stack{}, h.do("cancel %s %s", k, run)
}

func (h *hands) PreviewDestroy(ctx context.Context, k query.Key) (query.PlanDocument, error) {
	return query.PlanDocument{PlanInfo: query.PlanInfo{Digest: "sha256:feed"}}, h.do("preview %s", k)
}

func (h *hands) PlanRepair(_ context.Context, k query.Key, a command.RepairAnswers) (string, error) {
	return "now", h.do("plan repair %s %v %v", k, a.IDs, a.Absent)
}

func (h *hands) Repair(_ context.Context, k query.Key, p query.PlanInfo) error {
	return h.do("repair %s %s %s", k, p.Name, p.Digest)
}

func (h *hands) PlanRollback(_ context.Context, k query.Key, version string, _ bool) (command.StateChange, error) {
	return command.StateChange{Key: k, Diff: plan.StateDifference{Gone: []string{"world_thing.new"}, Added: []string{"world_thing.old[\"" + hostile + "\"]"}}}, h.do("plan rollback %s %s", k, version)
}

func (h *hands) PlanPush(_ context.Context, k query.Key, state []byte, force bool) (command.StateChange, error) {
	return command.StateChange{Key: k, To: stack.StateID{Serial: 10}, Diff: plan.StateDifference{Changed: []string{hostile}}}, h.do("plan push %s %s %v", k, state, force)
}

func (h *hands) BreakGlass(_ context.Context, k query.Key) (stack.BreakGlass, error) {
	return stack.BreakGlass{}, h.do("break glass %s", k)
}

func (h *hands) OrderCommand(_ context.Context, k query.Key, o command.CommandOrder) (stack.Command, error) {
	return stack.Command{}, h.do("run by hand %s %s %s %q", k, o.ID, o.Session, o.Args)
}

func (h *hands) EndBreakGlass(_ context.Context, k query.Key) error { return h.do("end glass %s", k) }

func (h *hands) WriteState(_ context.Context, c command.StateChange) error {
	return h.do("write state %s", c.Key)
}

func (h *hands) AcceptState(_ context.Context, k query.Key, reason string) (stack.StateID, error) {
	return stack.StateID{}, h.do("accept state %s: %s", k, reason)
}

func (h *hands) AcceptDrift(_ context.Context, k query.Key, o command.AcceptDriftOrder) (command.AcceptedDrift, error) {
	return command.AcceptedDrift{}, h.do("accept drift %s %s: %s", k, o.Digest, o.Reason)
}

func (h *hands) LockState(_ context.Context, k query.Key, reason string) (query.StateLock, error) {
	return query.StateLock{}, h.do("lock state %s: %s", k, reason)
}

func (h *hands) UnlockState(_ context.Context, k query.Key, id string) (query.StateLock, error) {
	return query.StateLock{}, h.do("unlock state %s %q", k, id)
}

// row makes a row of the list.
func row(namespace, name string, status query.Status, edit func(*query.Row)) query.Row {
	r := query.Row{Status: status, Tenant: namespace, Stack: query.Stack{
		Namespace: namespace, Name: name, UID: "u-" + name, Mode: stack.Manual, Source: "GitRepository/platform", Path: "./modules/" + name,
		Revision: "main@sha1:4f1c9ab2d7e0c5a1b3f84d2267a09c1e55d0ab12", Since: now.Add(-3 * time.Hour), Created: now.Add(-90 * 24 * time.Hour),
		Every: 10 * time.Minute, NextAttempt: now.Add(4 * time.Minute),
	}}
	if edit != nil {
		edit(&r)
	}
	return r
}

// byHand is a stack with a break-glass session.
func byHand(r *query.Row) {
	r.Phase = string(stack.BreakGlassSession)
	r.BreakGlass = &stack.BreakGlass{Session: "s", At: now.Add(-time.Minute), Until: now.Add(59 * time.Minute)}
	r.LastCommand = &stack.CommandResult{Command: stack.Command{ID: "one", By: hostile, Args: []string{"state", "rm", hostile}}, Run: "glass-1", At: now, Outcome: stack.Failed, Moved: true, Message: hostile + long, Instead: hostile}
}

func planOf(name string, c stack.Changes) *query.PlanInfo {
	return &query.PlanInfo{Name: name, Digest: "sha256:" + name, Run: "plan-1", Revision: "main@sha1:aa11bb22cc33dd44", Changes: c, At: now.Add(-40 * time.Minute)}
}

// town is an estate with a bit of everything.
func town() *estate {
	pending := func(r *query.Row) {
		r.Phase, r.Message, r.Pending = string(stack.AwaitingApproval), "a plan waits: 2 to add, 1 to change, 1 to destroy", "plan-main-4f1c9ab2d7"
		r.Plan = planOf(r.Pending, stack.Changes{Add: 2, Change: 1, Destroy: 1})
		r.Delta, r.WaitingFor, r.Rule = &r.Plan.Changes, "an approval", meaning.Rules()[20].Rule
	}
	e := &estate{rows: []query.Row{
		row("apps", "checkout", query.StatusPending, pending),
		row("apps", "cart", query.StatusReady, func(r *query.Row) {
			r.Applied = planOf("plan-main-1", stack.Changes{Add: 12})
			r.CanRollBack = &query.Rollback{Leaves: "0a1b2c3d4e5f", From: hostile, To: "main@sha1:0", Plan: "plan-main-0"}
			r.Delta, r.Tenant, r.Phase = &r.Applied.Changes, "acme", string(stack.Applied)
		}),
		row("apps", "hostile", query.StatusFailed, func(r *query.Row) {
			r.Message, r.Tenant, r.Stalled, r.Failures = hostile+long, hostile, true, 3
			r.Labels = map[string]string{"app": "shop", "note": "x"}
			r.Source, r.Path, r.Phase, r.WaitingFor = "GitRepository/"+hostile, hostile, string(stack.RetryLimitReached), hostile
			r.Untracked = &stack.Untracked{Run: "apply-7", At: now.Add(-time.Hour), Objects: []stack.UntrackedResource{{Address: `world_thing.a["` + hostile + `"]`}, {Address: "world_thing.b", ID: "b-1", Finished: true}}}
		}),
		row("net", "vpc", query.StatusDrifted, func(r *query.Row) {
			r.Drift = &query.DriftInfo{At: now.Add(-26 * time.Hour), Changes: stack.Changes{Change: 2}}
			r.Delta, r.Phase, r.Message = &r.Drift.Changes, string(stack.DriftFound), "2 objects are not as they were applied"
			r.Pending, r.Plan = "plan-main-77", planOf("plan-main-77", stack.Changes{Change: 2})
			r.Plan.Drift = true
		}),
		row("net", "dns", query.StatusLocked, func(r *query.Row) {
			r.Lock = &stack.Lock{ID: "0a1b", Who: "ann@laptop " + hostile, Since: "2026-03-14 12:00"}
			r.RolledBack = &query.Rollback{From: "main@sha1:2", To: "main@sha1:1", Plan: "plan-main-1", At: now, Why: hostile}
			r.Phase, r.Message = string(stack.LockedByOther), "the state is locked by ann@laptop"
		}),
		row("net", "edge", query.StatusRunning, func(r *query.Row) {
			r.Phase, r.Message, r.Mode = string(stack.Applying), "a plan is being applied", stack.Auto
			r.Run = &query.Running{ID: "apply-9", Kind: "apply", Phase: "applying", Started: now.Add(-80 * time.Second), Until: now.Add(50 * time.Minute)}
		}),
		row("net", "old", query.StatusSuspended, func(r *query.Row) {
			r.Suspended, r.Phase, r.Mode = true, string(stack.Suspended), stack.PlanOnly
			r.Pending, r.Plan = "plan-main-3", planOf("plan-main-3", stack.Changes{Add: 1})
		}),
		row("net", "watch", query.StatusPending, func(r *query.Row) {
			pending(r)
			r.Mode, r.Undecidable = stack.PlanOnly, "planOnly is set, so that no plan is applied"
		}),
		row("net", "wait", query.StatusWaiting, func(r *query.Row) {
			r.Phase, r.Message = string(stack.DependencyNotReady), "net/vpc is not ready: a plan waits"
			r.WaitingFor = "net/vpc"
		}),
		row("apps", "byhand", query.StatusSuspended, byHand),
		row("apps", "commanded", query.StatusRunning, func(r *query.Row) {
			byHand(r)
			r.Run = &query.Running{ID: "glass-2", Kind: string(stack.BreakGlassRun), Started: now.Add(-time.Second)}
			r.PendingCommand = &stack.Command{ID: "two", Session: "s", By: hostile, Args: []string{"state", "show", hostile}}
		}),
		row("hidden", "secret-stack", query.StatusReady, nil),
	}}
	e.reports = []query.Report{
		{ID: "plan-1", Kind: stack.PlanRun, Phase: runner.Planning, Started: now.Add(-2 * time.Hour), Finished: now.Add(-2*time.Hour + 14*time.Second), Outcome: stack.Succeeded, Changes: stack.Changes{Add: 2}},
		{ID: "apply-7", Kind: stack.ApplyRun, Started: now.Add(-time.Hour), Finished: now.Add(-50 * time.Minute), Outcome: stack.Failed, Message: hostile + long},
		{ID: "plan-8", Kind: stack.PlanRun, Started: now.Add(-20 * time.Second)},
	}
	e.state = plan.StateView{Lineage: "l", Serial: 9, Engine: "1.12.1", Resources: []plan.StateResource{
		{Address: `module.a["x.y"].world_thing.one`, Mode: "managed", Provider: "registry.example/test/world", Attributes: map[string]any{"name": hostile, "tags": map[string]any{"a": "b"}, "secret": plan.Mask, "gone": nil}},
		{Address: "world_thing.two[0]", Mode: "managed", Tainted: true, Attributes: map[string]any{"size": json.Number("3")}},
		{Address: "world_thing.two[0]", Mode: "managed", Deposed: "ab12"},
		{Address: `world_thing.three["` + hostile + `"]`, Mode: "managed"},
		{Address: "data.world_zone.all", Mode: "data"},
	}}
	digest := func(c string) string { return strings.Repeat(c, 64) }
	e.kept = query.KeptStates{Head: stack.StateID{Serial: 9, Digest: digest("c")}, Rescued: []string{"apply-3"}, Versions: []stack.StateVersion{
		{Serial: 7, Digest: digest("a"), By: "apply-2", At: now.Add(-48 * time.Hour), Bytes: 18000, Resources: 41},
		{Serial: 8, Digest: digest("b"), By: "person " + hostile, At: now.Add(-24 * time.Hour), Bytes: 18000, Resources: 41, Before: "destroy-5"},
		{Serial: 9, Digest: digest("c"), By: stack.ByOutside, At: now.Add(-time.Hour), Bytes: 19 << 20, Resources: 1042},
	}}
	e.detail = query.Detail{Events: []query.Event{{At: now.Add(-time.Minute), Type: "Warning", Reason: "Failed", Message: hostile, Count: 4}, {At: now.Add(-time.Hour), Type: "Normal", Reason: "Applied", Message: "applied"}},
		Conditions: []query.Condition{{Type: "Ready", Status: "False", Reason: "AwaitingApproval", Message: hostile, Since: now}}}
	e.uses = usage.Record{At: now, Usage: usage.Usage{
		Modules: []usage.Module{
			{Path: "module.vpc", Source: "reg.example/net/vpc/aws", Location: usage.Location{Kind: usage.Registry, Address: "reg.example/net/vpc/aws", Directory: "modules/a"}, Version: "1.2.0", Constraint: "~> 1.0", Since: now.Add(-time.Hour)},
			{Path: "module.git", Location: usage.Location{Kind: usage.Git, Address: hostile}, Version: hostile, Commit: strings.Repeat("0123456789", 4)},
			{Path: hostile, Declared: "./" + hostile, Location: usage.Location{Kind: usage.Local, Directory: hostile}},
		},
		Providers: []usage.Provider{{Source: "reg.example/net/dns", Version: "3.0.1", Constraint: hostile, Since: now}, {Source: "terraform.io/builtin/terraform"}},
		Problems:  []string{"What main.tf declares is not known: " + hostile},
	}}
	e.inputs = []query.InputInfo{{Name: "region", Kind: query.InputVariable, Origin: "spec.vars", Value: json.RawMessage(`"eu-west-1"`)}, {Name: "tags", Kind: query.InputVariable, Origin: "spec.vars", Value: json.RawMessage(`{"a":"</pre><script>alert(1)</script>"}`)}, {Name: hostile, Kind: query.InputEnvironment, Origin: "Secret cloud key TOKEN", Sensitive: true, Missing: true}}
	e.outputs = []query.Output{{Name: "vpc_id", Value: json.RawMessage(`"vpc-123"`)}, {Name: "password", Sensitive: true}, {Name: "zones", Value: json.RawMessage(`["a","` + `<b>"]`)}}
	e.moments = []query.Moment{
		{At: now.Add(-time.Minute), Kind: query.MomentDecision, Title: "Awaiting approval", Text: "a plan waits", Rule: meaning.Rules()[20].Rule},
		{At: now.Add(-40 * time.Minute), Kind: query.MomentRun, Title: "plan plan-1", Run: "plan-1", Outcome: stack.Succeeded, Took: 14 * time.Second},
		{At: now.Add(-50 * time.Minute), Kind: query.MomentRun, Title: "apply apply-7", Run: "apply-7", Outcome: stack.Failed, Took: 10 * time.Minute, Text: hostile, Bad: true},
		{At: now.Add(-55 * time.Minute), Kind: query.MomentEvent, Title: hostile, Text: long, Count: 4},
		{At: now.Add(-90 * 24 * time.Hour), Kind: query.MomentCreated, Title: "Created"},
	}
	e.manifest = query.Manifest{Object: "kind: Terraform\nmetadata:\n  name: " + hostile, HCL: `resource "x" "y" { # ` + hostile, Status: hostile, Managed: "- manager: kubectl", Masked: 1}
	e.document = large(3)
	e.drift = query.DriftDetail{Since: now.Add(-26 * time.Hour), Changes: stack.Changes{Change: 2}, Digest: "sha256:plan-main-77", Drifted: []plan.Change{
		{Address: "world_thing.two[0]", Action: plan.Update, Diffs: []plan.Diff{{Path: "size", Before: json.Number("3"), After: json.Number("5")}, {Path: "token", Before: plan.Mask, After: plan.Mask, Sensitive: true}, {Path: `tags["` + hostile + `"]`, After: hostile}}},
		{Address: "world_thing.gone", Action: plan.Delete},
	}}
	return e
}

// visitor makes a visit to e by a user who may do everything but see the namespace
// hidden.
func visitor(t *testing.T, e *estate, address string) *Visit {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	v := &Visit{
		Context: t.Context(), Backend: &Backend{Board: board{e}, Stacks: e, Details: e, Version: "v1", Platform: Platform{Glass: time.Hour}}, User: access.User{Name: "ann"},
		Scopes: scoped(access.Scope{In: map[string]bool{"apps": true, "net": true}}), Person: command.Person{Stacks: &hands{}},
		Can:  func(access.Request) bool { return true },
		Path: u.Path, Query: u.Query(), Names: map[string]string{}, Form: url.Values{}, Now: now,
	}
	if parts := strings.Split(u.Path, "/"); len(parts) > 3 && parts[1] == "stacks" {
		v.Names["namespace"], v.Names["name"] = parts[2], parts[3]
	}
	return v
}

func scoped(s access.Scope) func() (access.Scope, error) {
	return func() (access.Scope, error) { return s, nil }
}
