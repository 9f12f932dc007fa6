package pages

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// post sends a form of a page to what it is for.
func post(t *testing.T, e *estate, to string, fields url.Values, a Action) (Done, *hands, error) {
	t.Helper()
	v := visitor(t, e, to)
	h := &hands{}
	v.Person.Stacks, v.Form = h, fields
	d, err := a(v)
	return d, h, err
}

// The forms of pages carry what their actions need, without any script.
func TestFormsCarryWhatIsNeeded(t *testing.T) {
	for name, tt := range map[string]struct {
		page   string
		handle Handler
		suffix string
		fill   url.Values
		act    Action
		want   string
		to     string
	}{
		"approve from the stack": {"/stacks/apps/checkout", Stack, "/approve", url.Values{"comment": {"looks good"}, "sure": {"yes"}}, Approve,
			`approve apps/checkout plan-main-4f1c9ab2d7 sha256:plan-main-4f1c9ab2d7 "looks good"`, "/stacks/apps/checkout"},
		"reject from the stack": {"/stacks/apps/checkout", Stack, "/approve", url.Values{"comment": {"no"}}, Reject,
			`reject apps/checkout plan-main-4f1c9ab2d7 sha256:plan-main-4f1c9ab2d7 "no"`, "/stacks/apps/checkout"},
		"approve from the inbox": {"/approvals", Approvals, "/net/vpc/approve", nil, Approve, `approve net/vpc plan-main-77 sha256:plan-main-77 ""`, "/approvals"},
		"approve drift":          {"/drift", Drift, "/net/vpc/approve", nil, Approve, `approve net/vpc plan-main-77 sha256:plan-main-77 ""`, "/drift"},
		"plan again from drift":  {"/drift", Drift, "/net/vpc/replan", nil, Replan, "replan net/vpc", "/drift"},
		"plan now":               {"/stacks/apps/cart", Stack, "/replan", nil, Replan, "replan apps/cart", "/stacks/apps/cart"},
		"roll back":              {"/stacks/apps/cart", Stack, "/rollback", nil, RollBackStack, "roll back apps/cart 0a1b2c3d4e5f, end false", "/stacks/apps/cart"},
		"end a rollback":         {"/stacks/net/dns", Stack, "/rollback", nil, RollBackStack, "roll back net/dns , end true", "/stacks/net/dns"},
		"suspend":                {"/stacks/apps/cart", Stack, "/suspend", nil, Suspend, "suspend apps/cart", "/stacks/apps/cart"},
		"resume":                 {"/stacks/net/old", Stack, "/resume", nil, Resume, "resume net/old", "/stacks/net/old"},
		"unlock":                 {"/stacks/net/dns", Stack, "/unlock", nil, Unlock, "unlock net/dns 0a1b", "/stacks/net/dns"},
		"cancel a run":           {"/stacks/net/edge", Stack, "/cancel", url.Values{"sure": {"yes"}}, Cancel, "cancel net/edge apply-9", "/stacks/net/edge"},
		"preview destroy":        {"/stacks/apps/cart", Stack, "/preview-destroy", nil, PreviewDestroy, "preview apps/cart", "/stacks/apps/cart/plan?digest=sha256%3Afeed"},
	} {
		t.Run(name, func(t *testing.T) {
			e := town()
			forms := show(t, e, tt.page, tt.handle).forms(tt.suffix)
			if len(forms) == 0 {
				t.Fatalf("%s has no form for %s", tt.page, tt.suffix)
			}
			f := forms[0]
			for k, v := range tt.fill {
				f.Fields[k] = v
			}
			d, h, err := post(t, e, f.To, f.Fields, tt.act)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(h.done, []string{tt.want}); diff != "" {
				t.Errorf("commanded (-got +want):\n%s", diff)
			}
			if d.To != tt.to {
				t.Errorf("leads to %q, want %q", d.To, tt.to)
			}
			if d.Said != "" && Sentence(d.Said) == "" {
				t.Errorf("%q is no sentence", d.Said)
			}
		})
	}
}

// A visitor who may override windows, where policies let users do so, has the plan applied now
// from the page of the stack, which carries what the action needs. No other visitor is offered it.
func TestAWindowIsOverriddenOnThePage(t *testing.T) {
	e := town()
	for i := range e.rows {
		if e.rows[i].Name == "checkout" {
			e.rows[i].Override = &query.Override{May: true}
		}
	}
	v := visitor(t, e, "/stacks/apps/checkout")
	offered := func(may func(access.Request) bool) []form {
		t.Helper()
		v.Can = may
		p, err := Stack(v)
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, v, p).forms("/override-window")
	}
	if got := offered(func(a access.Request) bool { return a.Resource != access.ResourceWindows }); len(got) != 0 {
		t.Errorf("a visitor without the right has the forms %v", got)
	}
	if got := offered(func(a access.Request) bool { return a.Verb != "patch" }); len(got) != 0 {
		t.Errorf("a visitor who may not change the stack has the forms %v", got)
	}
	got := offered(func(access.Request) bool { return true })
	if len(got) != 1 {
		t.Fatalf("a visitor with the right has the forms %v", got)
	}
	got[0].Fields["comment"], got[0].Fields["sure"] = []string{"incident"}, []string{"yes"}
	_, h, err := post(t, e, got[0].To, got[0].Fields, OverrideWindow)
	if diff := cmp.Diff(h.done, []string{`override apps/checkout plan-main-4f1c9ab2d7 sha256:plan-main-4f1c9ab2d7 "incident"`}); diff != "" || err != nil {
		t.Errorf("commanded (-got +want), %v:\n%s", err, diff)
	}
	got[0].Fields.Del("sure")
	if _, h, err := post(t, e, got[0].To, got[0].Fields, OverrideWindow); fault.Of(err) != fault.Invalid || len(h.done) != 0 {
		t.Errorf("without the box about what the plan destroys: %v, done %v", err, h.done)
	}
}

// The approval of a plan that destroys requires a confirmation.
func TestDestroyingPlansAskTwice(t *testing.T) {
	seen := url.Values{"plan": {"plan-main-4f1c9ab2d7"}, "digest": {"sha256:plan-main-4f1c9ab2d7"}}
	_, h, err := post(t, town(), "/stacks/apps/checkout/approve", seen, Approve)
	if fault.Of(err) != fault.Invalid || len(h.done) != 0 {
		t.Errorf("without the box: %v, done %v", err, h.done)
	}
	if _, h, err = post(t, town(), "/stacks/apps/checkout/reject", seen, Reject); err != nil || len(h.done) != 1 {
		t.Errorf("a rejection: %v, done %v", err, h.done)
	}
	if _, _, err = post(t, town(), "/stacks/apps/checkout/approve", url.Values{}, Approve); fault.Of(err) != fault.Invalid {
		t.Errorf("without a plan: %v", err)
	}
}

// What a plan destroys stands beside the checkbox about it. A page
// that does not show it leads to one that does.
func TestWhatIsDestroyedStandsBesideTheBox(t *testing.T) {
	for address, h := range map[string]Handler{"/stacks/apps/checkout": Stack, "/stacks/apps/checkout/plan": Plan} {
		got := show(t, town(), address, h).text()
		list, box := strings.Index(got, `module.m["1"].world_thing.x[1]`), strings.Index(got, "I have reviewed what this plan destroys")
		if list < 0 || box < list {
			t.Errorf("%s: the list is at %d, the box at %d: %s", address, list, box, got)
		}
	}
	unread := town()
	unread.document = nil
	for address, h := range map[string]Handler{"/stacks/apps/checkout": Stack, "/approvals": Approvals} {
		d := show(t, unread, address, h)
		if text := d.text(); strings.Contains(text, "I have reviewed") || !strings.Contains(text, "Review what it destroys") {
			t.Errorf("%s: a plan that destroys can be approved without its changes: %s", address, text)
		}
	}
}

// A decision about a replaced plan leads to the pending one.
func TestStaleApprovals(t *testing.T) {
	v := visitor(t, town(), "/stacks/net/vpc/approve")
	stale := fault.New(fault.Conflict, query.ReasonPlanChanged, errors.New("the pending plan is plan-b, not plan-a"))
	v.Person.Stacks = &hands{refuse: map[string]error{`approve net/vpc plan-a sha256:a ""`: stale}}
	v.Form = url.Values{"plan": {"plan-a"}, "digest": {"sha256:a"}}
	_, err := Approve(v)
	if !errors.Is(err, stale) {
		t.Fatal(err)
	}
	d := parse(t, v, Failed(v, command.Refusal{Error: err.Error(), Kind: fault.Conflict, Reason: query.ReasonPlanChanged, Hint: command.Hint(err)}, "req-1"))
	for _, want := range []string{"Changed in the meantime", "The pending plan is plan-b", "Nothing was changed", "req-1"} {
		if !strings.Contains(d.text(), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	links := d.all(func(n *html.Node) bool { return n.DataAtom == atom.A && attr(n, "href") == "/stacks/net/vpc/plan" })
	if len(links) != 1 {
		t.Error("there is no link to the new plan")
	}
}

// What waits for the visitor is told from what waits for others, and why.
func TestWhoDecides(t *testing.T) {
	v := visitor(t, town(), "/approvals")
	v.Can = func(a access.Request) bool { return a.Namespace == "apps" }
	p, err := Approvals(v)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	view := p.Data.(approvalList)
	for _, a := range view.Mine {
		got[a.Row.Key().String()] = ""
	}
	for _, a := range view.Others {
		got[a.Row.Key().String()] = a.Decide.Why
	}
	may := "You may not change the stack. You need the permission to patch terraforms in the namespace net."
	want := map[string]string{"apps/checkout": "", "net/vpc": may, "net/watch": "Plans of this stack cannot be approved or rejected: planOnly is set, so that no plan is applied."}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("approvals (-got +want):\n%s", diff)
	}
	parse(t, v, p)
}

func TestWhatAPlanIsFor(t *testing.T) {
	applied := &query.PlanInfo{Revision: "main@sha1:1"}
	for want, tt := range map[string]struct {
		s query.Stack
		p query.PlanInfo
	}{
		"destroys all resources":                      {query.Stack{Applied: applied}, query.PlanInfo{Destroy: true}},
		"imports untracked resources":                 {query.Stack{Untracked: &stack.Untracked{}}, query.PlanInfo{}},
		"fixes drift":                                 {query.Stack{Applied: applied}, query.PlanInfo{Drift: true}},
		"creates the stack":                           {query.Stack{}, query.PlanInfo{}},
		"applies a new revision":                      {query.Stack{Applied: applied}, query.PlanInfo{Revision: "main@sha1:2"}},
		"applies a change of the stack or its inputs": {query.Stack{Applied: applied}, query.PlanInfo{Revision: "main@sha1:1"}},
	} {
		if got := planCause(tt.s, tt.p); got != want {
			t.Errorf("planCause() = %q, want %q", got, want)
		}
	}
}

// A button that would do nothing says why, and is no form.
func TestWhatCannotBeDoneSaysWhy(t *testing.T) {
	why := func(s query.Stack, may string) map[string]string {
		out := map[string]string{}
		for _, b := range stackButtons(s, may) {
			out[b.Label] = b.Why
		}
		return out
	}
	base := row("apps", "net", query.StatusReady, nil).Stack
	noLock, tracked := "The state is not locked by another holder.", "The state contains all resources of the stack."
	suspended := base
	suspended.Suspended = true
	locked := base
	locked.Lock, locked.Untracked = &stack.Lock{ID: "x"}, &stack.Untracked{}
	for name, tt := range map[string]struct {
		s    query.Stack
		may  string
		want map[string]string
	}{
		"a quiet one":        {base, "", map[string]string{"Plan now": "", "Suspend": "", "Unlock": noLock, "Repair": tracked, "Preview destroy": ""}},
		"suspended":          {suspended, "", map[string]string{"Plan now": "The stack is suspended. Resume it first.", "Resume": "", "Unlock": noLock, "Repair": "The stack is suspended. Resume it first.", "Preview destroy": "The stack is suspended. Resume it first."}},
		"locked":             {locked, "", map[string]string{"Plan now": "", "Suspend": "", "Unlock": "", "Repair": "", "Preview destroy": ""}},
		"without permission": {locked, "no", map[string]string{"Plan now": "no", "Suspend": "no", "Unlock": "no", "Repair": "no", "Preview destroy": "no"}},
	} {
		if diff := cmp.Diff(why(tt.s, tt.may), tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", name, diff)
		}
	}
}

// Every disabled button takes the focus and contains the reason, so that each way to
// reach it shows the reason.
func TestButtonsThatDoNothingTakeTheFocus(t *testing.T) {
	v := visitor(t, town(), "/stacks/apps/cart")
	v.Can = func(a access.Request) bool { return a.Verb != "patch" }
	p, err := Stack(v)
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, v, p)
	unable := d.all(func(n *html.Node) bool { return attr(n, "aria-disabled") == "true" })
	if len(unable) == 0 {
		t.Fatal("there is no button that does nothing")
	}
	for _, b := range unable {
		why := (parsed{t, b}).all(func(n *html.Node) bool { return attr(n, "class") == "why" })
		if attr(b, "tabindex") != "0" || len(why) != 1 || textOf(why[0]) == "" {
			t.Errorf("%q takes no focus, or does not say why", textOf(b))
		}
	}
}

// Tabs that take a right which the visitor has not say so before they are opened.
func TestTabsThatAreClosed(t *testing.T) {
	v := visitor(t, town(), "/stacks/apps/cart")
	v.Can = func(a access.Request) bool {
		return a.Resource != access.ResourceState && a.Resource != access.ResourcePlan
	}
	p, err := Stack(v)
	if err != nil {
		t.Fatal(err)
	}
	closed := map[string]string{}
	for _, tab := range p.Data.(overview).Head.Tabs.Items {
		if tab.Why != "" {
			closed[tab.Name] = tab.Why
		}
	}
	state := "You may not view this. You need the permission to get terraforms/state."
	want := map[string]string{"Resources": state, "States": state, "Drift": "You may not view this. You need the permission to get terraforms/plan."}
	if diff := cmp.Diff(closed, want); diff != "" {
		t.Errorf("closed (-got +want):\n%s", diff)
	}
	parse(t, v, p)
}

// slow makes a preview only after its client has gone.
type slow struct{ *hands }

func (s slow) PreviewDestroy(ctx context.Context, k query.Key) (query.PlanDocument, error) {
	<-ctx.Done()
	return query.PlanDocument{}, ctx.Err()
}

func TestPreviewsThatTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visitor(t, town(), "/stacks/apps/cart/preview-destroy")
		v.Person.Stacks = slow{&hands{}}
		d, err := PreviewDestroy(v)
		if err != nil || d.To != "/stacks/apps/cart/runs" || Sentence(d.Said) == "" {
			t.Errorf("%+v, %v; want to be told of the runs", d, err)
		}
	})
}

func TestRollbackNeedsTheName(t *testing.T) {
	e := town()
	f := show(t, e, "/stacks/apps/cart/states?to=7", StackStates).forms("/states/rollback")
	if len(f) != 1 {
		t.Fatal("there is no form")
	}
	for _, typed := range []string{"", "CART", "cart2"} {
		fields := url.Values{"version": f[0].Fields["version"], "name": {typed}}
		if _, h, err := post(t, e, f[0].To, fields, Rollback); fault.Of(err) != fault.Invalid || len(h.done) != 0 {
			t.Errorf("%q typed: %v, done %v", typed, err, h.done)
		}
	}
	f[0].Fields.Set("name", "cart")
	_, h, err := post(t, e, f[0].To, f[0].Fields, Rollback)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h.done, []string{"plan rollback apps/cart 7", "write state apps/cart"}); diff != "" {
		t.Errorf("commanded (-got +want):\n%s", diff)
	}
}

// What is stored and was not expected can be let stand where it says so, and a
// state be locked.
func TestStatesFromForms(t *testing.T) {
	e := town()
	if f := show(t, e, "/stacks/apps/cart/states", StackStates).forms("/accept"); len(f) != 0 {
		t.Error("a state that is as expected can be accepted")
	}
	for i := range e.rows {
		if e.rows[i].Name == "cart" {
			e.rows[i].Phase, e.rows[i].Message = string(stack.StateTampered), "serial 9 was expected"
		}
	}
	p := show(t, e, "/stacks/apps/cart/states", StackStates)
	accept, lock, unlock := p.forms("/accept"), p.forms("/lock"), p.forms("/unlock")
	if len(accept) != 1 || len(lock) != 1 || len(unlock) != 1 {
		t.Fatalf("%d, %d and %d forms, want one of each", len(accept), len(lock), len(unlock))
	}
	if _, h, err := post(t, e, accept[0].To, url.Values{"name": {"other"}}, AcceptState); fault.Of(err) != fault.Invalid || len(h.done) != 0 {
		t.Errorf("another name typed: %v, done %v", err, h.done)
	}
	for _, c := range []struct {
		to   string
		form url.Values
		do   Action
		want string
	}{
		{accept[0].To, url.Values{"name": {"cart"}, "reason": {" a restore "}}, AcceptState, "accept state apps/cart: a restore"},
		{lock[0].To, url.Values{"reason": {" a move "}}, LockState, "lock state apps/cart: a move"},
		{unlock[0].To, url.Values{}, UnlockState, `unlock state apps/cart ""`},
		{unlock[0].To, url.Values{"lock": {"abc"}}, UnlockState, `unlock state apps/cart "abc"`},
	} {
		d, h, err := post(t, e, c.to, c.form, c.do)
		if err != nil || Sentence(d.Said) == "" {
			t.Errorf("%s: %v, says %q", c.want, err, Sentence(d.Said))
		}
		if diff := cmp.Diff(h.done, []string{c.want}); diff != "" {
			t.Errorf("commanded (-got +want):\n%s", diff)
		}
	}
}

func TestRepairsFromForms(t *testing.T) {
	e := town()
	f := show(t, e, "/stacks/apps/hostile/repair", StackRepair).forms("/repair")
	if len(f) != 1 {
		t.Fatalf("%d forms, want that of the objects", len(f))
	}
	f[0].Fields.Set("absent-0", "yes")
	_, h, err := post(t, e, f[0].To, f[0].Fields, Repair)
	if err != nil {
		t.Fatal(err)
	}
	address := `world_thing.a["` + hostile + `"]`
	if diff := cmp.Diff(h.done, []string{"plan repair apps/hostile map[world_thing.b:b-1] [" + address + "]"}); diff != "" {
		t.Errorf("commanded (-got +want):\n%s", diff)
	}
	f[0].Fields.Set("id-0", "a-1")
	if _, _, err := post(t, e, f[0].To, f[0].Fields, Repair); fault.Of(err) != fault.Invalid {
		t.Errorf("an object that is both there and not there: %v", err)
	}
	_, h, err = post(t, e, f[0].To, url.Values{"plan": {"plan-x"}, "digest": {"sha256:x"}}, Repair)
	if err != nil || len(h.done) != 1 || h.done[0] != "repair apps/hostile plan-x sha256:x" {
		t.Errorf("carrying out: %v, done %v", err, h.done)
	}
}
