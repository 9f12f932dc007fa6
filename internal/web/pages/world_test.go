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

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/service"
	"github.com/terrier-iac/terrier/internal/stack"
)

// now is when all tests of pages happen.
var now = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// hostile is what somebody may write wherever they may write at all.
const hostile = `<script>alert(1)</script>"'` + "`" + `&amp; {{.}} ` + "\u202egnp.exe\u202c" + ` 🦮 javascript:alert(1) ]]> <!-- `

// long is a text as long as messages get.
var long = strings.Repeat("the provider says no, ", 100)

// estate is a board, and the stacks on it, as a test needs them.
type estate struct {
	service.StackReader // what is not below is asked by no test
	rows                []service.Row
	reports             []service.Report
	state               plan.StateView
	kept                service.KeptStates
	detail              service.Detail
	inputs              []service.InputInfo
	moments             []service.Moment
	outputs             []service.Output
	drift               service.DriftDetail
	looked              time.Time
	err                 error // of what takes a right of its own
	asked               service.BoardQuery
}

func (e *estate) Page(scope service.Scope, q service.BoardQuery) (service.BoardPage, error) {
	e.asked = q
	if strings.Contains(q.Selector, "!!") {
		return service.BoardPage{}, fault.New(fault.Invalid, service.ReasonQuery, errors.New("the selector cannot be read"))
	}
	out := service.BoardPage{Counts: map[service.Status]int{}, Cursor: "7.12"}
	groups := map[string]*service.BoardGroup{}
	var found []service.Row
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
		name := groupOf(q.Group, r)
		if groups[name] == nil {
			groups[name] = &service.BoardGroup{Name: name, Counts: map[service.Status]int{}}
		}
		groups[name].Total++
		groups[name].Counts[r.Status]++
	}
	for _, g := range groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b service.BoardGroup) int { return strings.Compare(a.Name, b.Name) })
	if q.Group != "" {
		slices.SortStableFunc(found, func(a, b service.Row) int { return strings.Compare(groupOf(q.Group, a), groupOf(q.Group, b)) })
	}
	out.Total = len(found)
	from := min(q.Offset, len(found))
	out.Items = found[from:min(len(found), from+q.Limit)]
	return out, nil
}

func (e *estate) row(k service.Key) (service.Row, bool) {
	i := slices.IndexFunc(e.rows, func(r service.Row) bool { return r.Key() == k })
	if i < 0 {
		return service.Row{}, false
	}
	return e.rows[i], true
}

// board and stacks are two sides of one estate whose methods have the same name.
type board struct{ *estate }

func (b board) Get(k service.Key) (service.Row, bool) { return b.row(k) }
func (b board) Namespaces() []string                  { return []string{"apps", "hidden", "net"} }
func (b board) Graph(service.Scope, service.Key, int) (service.Graph, error) {
	return service.Graph{}, b.err
}
func (b board) Capacity(int) (service.CapacityInfo, error) { return service.CapacityInfo{}, b.err }

func (e *estate) Get(_ context.Context, k service.Key) (service.Stack, error) {
	if r, ok := e.row(k); ok {
		return r.Stack, nil
	}
	return service.Stack{}, fault.New(fault.Missing, service.ReasonNotFound, fmt.Errorf("stack %s does not exist", k))
}

func (e *estate) Explain(ctx context.Context, k service.Key) (service.Explanation, error) {
	s, err := e.Get(ctx, k)
	x := service.Explanation{Stack: s, Means: service.Explained(stack.Reason(s.Phase)), Facts: []string{"the webhooks did not let the plan pass", hostile}}
	for _, r := range service.Rules() {
		x.Rules = append(x.Rules, service.RuleVerdict{Rule: r.Rule, Does: r.Does, Fires: r.Rule == s.Rule})
	}
	return x, err
}

func (e *estate) Describe(ctx context.Context, k service.Key) (service.Detail, error) {
	s, err := e.Get(ctx, k)
	d := e.detail
	d.Stack = s
	return d, err
}

func (e *estate) Runs(context.Context, service.Key) ([]service.Report, error) { return e.reports, nil }

func (e *estate) StateOf(context.Context, service.Key, string, bool) (plan.StateView, error) {
	return e.state, e.err
}

func (e *estate) StateVersions(context.Context, service.Key) (service.KeptStates, error) {
	return e.kept, e.err
}

func (e *estate) Inputs(context.Context, service.Key) ([]service.InputInfo, error) {
	return e.inputs, e.err
}

func (e *estate) Timeline(context.Context, service.Key) ([]service.Moment, error) {
	return e.moments, e.err
}

func (e *estate) OutputsKept(context.Context, service.Key) ([]service.Output, error) {
	return e.outputs, e.err
}

func (e *estate) LookedAt(context.Context, service.Key) (time.Time, error) {
	return e.looked, e.err
}

func (e *estate) DriftDetails(context.Context, service.Key) (service.DriftDetail, error) {
	return e.drift, e.err
}

// hands notes what was commanded, and refuses some of it.
type hands struct {
	service.StackCommands // what is not below is commanded by no test
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

func (h *hands) Approve(_ context.Context, k service.Key, p service.PlanInfo, comment string) (service.Stack, error) {
	return service.Stack{}, h.do("approve %s %s %s %q", k, p.Name, p.Digest, comment)
}

func (h *hands) Reject(_ context.Context, k service.Key, p service.PlanInfo, comment string) (service.Stack, error) {
	return service.Stack{}, h.do("reject %s %s %s %q", k, p.Name, p.Digest, comment)
}

func (h *hands) Replan(_ context.Context, k service.Key) (string, error) {
	return "now", h.do("replan %s", k)
}
func (h *hands) Suspend(_ context.Context, k service.Key) error { return h.do("suspend %s", k) }
func (h *hands) Resume(_ context.Context, k service.Key) error  { return h.do("resume %s", k) }

func (h *hands) Unlock(_ context.Context, k service.Key, id string) error {
	return h.do("unlock %s %s", k, id)
}

func (h *hands) PreviewDestroy(ctx context.Context, k service.Key) (service.PlanDocument, error) {
	return service.PlanDocument{PlanInfo: service.PlanInfo{Digest: "sha256:feed"}}, h.do("preview %s", k)
}

func (h *hands) PlanRepair(_ context.Context, k service.Key, a service.RepairAnswers) (string, error) {
	return "now", h.do("plan repair %s %v %v", k, a.IDs, a.Absent)
}

func (h *hands) Repair(_ context.Context, k service.Key, p service.PlanInfo) error {
	return h.do("repair %s %s %s", k, p.Name, p.Digest)
}

func (h *hands) PlanRollback(_ context.Context, k service.Key, version string, _ bool) (service.StateChange, error) {
	return service.StateChange{Key: k, Diff: plan.StateDifference{Gone: []string{"world_thing.new"}, Added: []string{"world_thing.old[\"" + hostile + "\"]"}}}, h.do("plan rollback %s %s", k, version)
}

func (h *hands) PlanPush(_ context.Context, k service.Key, state []byte, force bool) (service.StateChange, error) {
	return service.StateChange{Key: k, To: stack.Known{Serial: 10}, Diff: plan.StateDifference{Changed: []string{hostile}}}, h.do("plan push %s %s %v", k, state, force)
}

func (h *hands) BreakGlass(_ context.Context, k service.Key) (stack.Glass, error) {
	return stack.Glass{}, h.do("break glass %s", k)
}

func (h *hands) OrderByHand(_ context.Context, k service.Key, o service.HandOrder) (stack.Command, error) {
	return stack.Command{}, h.do("run by hand %s %s %s %q", k, o.ID, o.Session, o.Args)
}

func (h *hands) EndGlass(_ context.Context, k service.Key) error { return h.do("end glass %s", k) }

func (h *hands) WriteState(_ context.Context, c service.StateChange) error {
	return h.do("write state %s", c.Key)
}

func (h *hands) AcceptState(_ context.Context, k service.Key) (stack.Known, error) {
	return stack.Known{}, h.do("accept state %s", k)
}

func (h *hands) LockState(_ context.Context, k service.Key, reason string) (service.StateLock, error) {
	return service.StateLock{}, h.do("lock state %s: %s", k, reason)
}

func (h *hands) UnlockState(_ context.Context, k service.Key, id string) (service.StateLock, error) {
	return service.StateLock{}, h.do("unlock state %s %q", k, id)
}

// row makes a row of the list.
func row(namespace, name string, status service.Status, edit func(*service.Row)) service.Row {
	r := service.Row{Status: status, Tenant: namespace, Stack: service.Stack{
		Namespace: namespace, Name: name, UID: "u-" + name, Mode: stack.Manual, Source: "GitRepository/platform", Path: "./modules/" + name,
		Revision: "main@sha1:4f1c9ab2d7e0c5a1b3f84d2267a09c1e55d0ab12", Since: now.Add(-3 * time.Hour), Created: now.Add(-90 * 24 * time.Hour),
		Every: 10 * time.Minute, NextAttempt: now.Add(4 * time.Minute),
	}}
	if edit != nil {
		edit(&r)
	}
	return r
}

// byHand is a stack on which somebody works.
func byHand(r *service.Row) {
	r.Phase = string(stack.GlassBroken)
	r.Glass = &stack.Glass{Session: "s", At: now.Add(-time.Minute), Until: now.Add(59 * time.Minute)}
	r.ByHand = &stack.ByHand{Command: stack.Command{ID: "one", By: hostile, Args: []string{"state", "rm", hostile}}, Run: "glass-1", At: now, Outcome: stack.Failed, Moved: true, Message: hostile + long, Instead: hostile}
}

func planOf(name string, c stack.Changes) *service.PlanInfo {
	return &service.PlanInfo{Name: name, Digest: "sha256:" + name, Run: "plan-1", Revision: "main@sha1:aa11bb22cc33dd44", Changes: c, At: now.Add(-40 * time.Minute)}
}

// town is an estate with a bit of everything.
func town() *estate {
	pending := func(r *service.Row) {
		r.Phase, r.Message, r.Pending = string(stack.AwaitingApproval), "a plan waits: 2 to add, 1 to change, 1 to destroy", "plan-main-4f1c9ab2d7"
		r.Plan = planOf(r.Pending, stack.Changes{Add: 2, Change: 1, Destroy: 1})
		r.Delta, r.WaitingFor, r.Rule = &r.Plan.Changes, "an approval", service.Rules()[20].Rule
	}
	e := &estate{rows: []service.Row{
		row("apps", "checkout", service.StatusPending, pending),
		row("apps", "cart", service.StatusReady, func(r *service.Row) {
			r.Applied = planOf("plan-main-1", stack.Changes{Add: 12})
			r.Delta, r.Tenant, r.Phase = &r.Applied.Changes, "acme", string(stack.Applied)
		}),
		row("apps", "hostile", service.StatusFailed, func(r *service.Row) {
			r.Message, r.Tenant, r.Stalled, r.Failures = hostile+long, hostile, true, 3
			r.Labels = map[string]string{"app": "shop", "note": "x"}
			r.Source, r.Path, r.Phase, r.WaitingFor = "GitRepository/"+hostile, hostile, string(stack.RetryLimitReached), hostile
			r.Untracked = &stack.Untracked{Run: "apply-7", At: now.Add(-time.Hour), Objects: []stack.UntrackedResource{{Address: `world_thing.a["` + hostile + `"]`}, {Address: "world_thing.b", ID: "b-1", Finished: true}}}
		}),
		row("net", "vpc", service.StatusDrifted, func(r *service.Row) {
			r.Drift = &service.DriftInfo{At: now.Add(-26 * time.Hour), Changes: stack.Changes{Change: 2}}
			r.Delta, r.Phase, r.Message = &r.Drift.Changes, string(stack.DriftFound), "2 objects are not as they were applied"
			r.Pending, r.Plan = "plan-main-77", planOf("plan-main-77", stack.Changes{Change: 2})
			r.Plan.Drift = true
		}),
		row("net", "dns", service.StatusLocked, func(r *service.Row) {
			r.Lock = &stack.Lock{ID: "0a1b", Who: "ann@laptop " + hostile, Since: "2026-03-14 12:00"}
			r.Phase, r.Message = string(stack.LockedByOther), "the state is locked by ann@laptop"
		}),
		row("net", "edge", service.StatusRunning, func(r *service.Row) {
			r.Phase, r.Message, r.Mode = string(stack.Applying), "a plan is being applied", stack.Auto
			r.Run = &service.Running{ID: "apply-9", Kind: "apply", Phase: "applying", Started: now.Add(-80 * time.Second), Until: now.Add(50 * time.Minute)}
		}),
		row("net", "old", service.StatusSuspended, func(r *service.Row) {
			r.Suspended, r.Phase, r.Mode = true, string(stack.Suspended), stack.PlanOnly
			r.Pending, r.Plan = "plan-main-3", planOf("plan-main-3", stack.Changes{Add: 1})
		}),
		row("net", "watch", service.StatusPending, func(r *service.Row) { pending(r); r.Mode = stack.PlanOnly }),
		row("net", "wait", service.StatusWaiting, func(r *service.Row) {
			r.Phase, r.Message = string(stack.DependencyNotReady), "net/vpc is not ready: a plan waits"
			r.WaitingFor = "net/vpc"
		}),
		row("apps", "byhand", service.StatusSuspended, byHand),
		row("apps", "commanded", service.StatusRunning, func(r *service.Row) {
			byHand(r)
			r.Run = &service.Running{ID: "glass-2", Kind: string(stack.GlassRun), Started: now.Add(-time.Second)}
			r.Commanded = &stack.Command{ID: "two", Session: "s", By: hostile, Args: []string{"state", "show", hostile}}
		}),
		row("hidden", "secret-stack", service.StatusReady, nil),
	}}
	e.reports = []service.Report{
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
	e.kept = service.KeptStates{Head: stack.Known{Serial: 9, Digest: digest("c")}, Rescued: []string{"apply-3"}, Versions: []stack.StateVersion{
		{Serial: 7, Digest: digest("a"), By: "apply-2", At: now.Add(-48 * time.Hour), Bytes: 18000, Resources: 41},
		{Serial: 8, Digest: digest("b"), By: "person " + hostile, At: now.Add(-24 * time.Hour), Bytes: 18000, Resources: 41, Before: "destroy-5"},
		{Serial: 9, Digest: digest("c"), By: stack.ByOutside, At: now.Add(-time.Hour), Bytes: 19 << 20, Resources: 1042},
	}}
	e.detail = service.Detail{Events: []service.Event{{At: now.Add(-time.Minute), Type: "Warning", Reason: "Failed", Message: hostile, Count: 4}, {At: now.Add(-time.Hour), Type: "Normal", Reason: "Applied", Message: "applied"}},
		Conditions: []service.Condition{{Type: "Ready", Status: "False", Reason: "AwaitingApproval", Message: hostile, Since: now}}}
	e.inputs = []service.InputInfo{{Name: "region", Kind: service.InputVariable, Origin: "spec.vars", Value: json.RawMessage(`"eu-west-1"`)}, {Name: "tags", Kind: service.InputVariable, Origin: "spec.vars", Value: json.RawMessage(`{"a":"</pre><script>alert(1)</script>"}`)}, {Name: hostile, Kind: service.InputEnvironment, Origin: "Secret cloud key TOKEN", Sensitive: true, Missing: true}}
	e.outputs = []service.Output{{Name: "vpc_id", Value: json.RawMessage(`"vpc-123"`)}, {Name: "password", Sensitive: true}, {Name: "zones", Value: json.RawMessage(`["a","` + `<b>"]`)}}
	e.moments = []service.Moment{
		{At: now.Add(-time.Minute), Kind: service.MomentDecision, Title: "Awaiting approval", Text: "a plan waits", Rule: service.Rules()[20].Rule},
		{At: now.Add(-40 * time.Minute), Kind: service.MomentRun, Title: "plan plan-1", Run: "plan-1", Outcome: stack.Succeeded, Took: 14 * time.Second},
		{At: now.Add(-50 * time.Minute), Kind: service.MomentRun, Title: "apply apply-7", Run: "apply-7", Outcome: stack.Failed, Took: 10 * time.Minute, Text: hostile, Bad: true},
		{At: now.Add(-55 * time.Minute), Kind: service.MomentEvent, Title: hostile, Text: long, Count: 4},
		{At: now.Add(-90 * 24 * time.Hour), Kind: service.MomentCreated, Title: "Created"},
	}
	e.drift = service.DriftDetail{Since: now.Add(-26 * time.Hour), Changes: stack.Changes{Change: 2}, Digest: "sha256:plan-main-77", Drifted: []plan.Change{
		{Address: "world_thing.two[0]", Action: plan.Update, Diffs: []plan.Diff{{Path: "size", Before: json.Number("3"), After: json.Number("5")}, {Path: "token", Before: plan.Mask, After: plan.Mask, Sensitive: true}, {Path: `tags["` + hostile + `"]`, After: hostile}}},
		{Address: "world_thing.gone", Action: plan.Delete},
	}}
	return e
}

// visitor makes a visit to e by somebody who may do everything but see the
// namespace hidden.
func visitor(t *testing.T, e *estate, address string) *Visit {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	v := &Visit{
		Context: t.Context(), House: &House{Board: board{e}, Stacks: e, Details: e, Version: "v1", Platform: Platform{Glass: time.Hour}}, User: service.User{Name: "ann"},
		Scopes: scoped(service.Scope{In: map[string]bool{"apps": true, "net": true}}), Person: service.Person{Stacks: &hands{}},
		Can:  func(service.Access) bool { return true },
		Path: u.Path, Query: u.Query(), Names: map[string]string{}, Form: url.Values{}, Now: now,
	}
	if parts := strings.Split(u.Path, "/"); len(parts) > 3 && parts[1] == "stacks" {
		v.Names["namespace"], v.Names["name"] = parts[2], parts[3]
	}
	return v
}

func scoped(s service.Scope) func() (service.Scope, error) {
	return func() (service.Scope, error) { return s, nil }
}
