package pages

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/schedule"
)

func TestQueueSaysWhoIsNext(t *testing.T) {
	d := screen(t, shire(), "/queue", Queue)
	wants(t, d.text(), "4 of 4 running", "1 run of stacks that you may not view", "Starts now", "1 more stack that you may not view is queued", "1 other",
		"29.4 slots needed, 4 available", "Set --max-runs to 37", "about 26,825 MiB", "Waiting for memory: the run takes 3100 MiB", "Drift 3")
	var positions []string
	for _, n := range d.all(func(n *html.Node) bool { return attr(n, "data-label") == "Position" }) {
		positions = append(positions, textOf(n))
	}
	if got := strings.Join(positions, " "); got != "1 2 3 5 6" {
		t.Errorf("positions %s, want those of everybody, without the rows of others", got)
	}
	d = screen(t, shire(), "/queue?class=drift&tenant=acme", Queue)
	if n := len(d.all(func(n *html.Node) bool { return attr(n, "data-label") == "Position" })); n != 2 {
		t.Errorf("%d rows, want those of the class and the tenant", n)
	}
}

// An active run links to its log.
func TestActiveRunsLinkToTheirLogs(t *testing.T) {
	turn := schedule.Turn{UID: "u-1", Namespace: "apps", Name: "cart"}
	row := query.Row{Stack: query.Stack{Namespace: "apps", Name: "cart", UID: "u-1", Run: &query.Running{ID: "apply-1"}}}
	b := board{&estate{rows: []query.Row{row}}}
	if got, want := logOfTurn(b, turn), "/stacks/apps/cart/runs/apply-1/log"; got != want {
		t.Errorf("the log is at %q, want %q", got, want)
	}
	d := screen(t, shire(), "/queue", Queue, func(v *Visit) { v.Backend.Board = atWork{v.Backend.Board} })
	if n := len(d.all(func(n *html.Node) bool { return attr(n, "href") == "/stacks/apps/cart/runs/run-of-cart/log" })); n != 1 {
		t.Errorf("%d links to the log of the run of apps/cart, want 1", n)
	}
	other := turn
	other.UID = "u-2"
	row.Run = nil
	idle := board{&estate{rows: []query.Row{row}}}
	for name, got := range map[string]string{"another of the name": logOfTurn(b, other), "no run yet": logOfTurn(idle, turn), "unknown": logOfTurn(idle, schedule.Turn{Name: "x"}), "no board": logOfTurn(nil, turn)} {
		if got != "" {
			t.Errorf("%s: the log is at %q, want none", name, got)
		}
	}
}

// atWork is a board on which every stack has a run.
type atWork struct{ Board }

func (atWork) Get(k query.Key) (query.Row, bool) {
	uid := map[string]string{"checkout": "1", "cart": "2", "edge": "3"}[k.Name]
	return query.Row{Stack: query.Stack{Namespace: k.Namespace, Name: k.Name, UID: uid, Run: &query.Running{ID: "run-of-" + k.Name}}}, true
}

func TestQueueGuessesWhenARunStarts(t *testing.T) {
	d := queueView{Slots: use{4, 4}, Start: 10, Line: []queueRow{{Turn: schedule.Turn{Position: 1}}, {Turn: schedule.Turn{Position: 8}}, {Turn: schedule.Turn{Position: 9}}}}
	d.guess()
	if d.Line[0].About != 3*time.Second || d.Line[1].About != 20*time.Second || d.Line[2].About != 23*time.Second {
		t.Errorf("%v, want rounds of 10s with 4 slots", d.Line)
	}
	d.Start, d.Line[0].About = 0, 0
	if d.guess(); d.Line[0].About != 0 {
		t.Error("nobody knows how long a run takes, and there is a guess")
	}
}

func TestTenantsAreCountedAndCut(t *testing.T) {
	c := shire()
	for i := range 1000 {
		c.list.Items = append(c.list.Items, query.Tenant{Namespace: "apps", Name: fmt.Sprintf("t-%04d", i), UID: fmt.Sprint("u", i), Template: "batch", State: query.TenantReady})
	}
	d := screen(t, c, "/tenants?template=batch&offset=200", Tenants, only("apps", "net"))
	wants(t, d.text(), "tenants 201–300 of 1,000", "Ready 1,000", "Not ready 0", "1 alarm of registries and templates that you may not view")
	d = screen(t, c, "/tenants?state=not-ready&sort=state", Tenants)
	var order []string
	for _, n := range d.all(func(n *html.Node) bool { return attr(n, "data-label") == "Tenant" }) {
		order = append(order, textOf(n))
	}
	if got := strings.Join(order, ", "); got != "globex-webapps, hooli-webapps, initech-webapps, odd-webnet, umbrella-webapps" {
		t.Errorf("tenants %s, want those that somebody has to look at first", got)
	}
	if d = screen(t, c, "/tenants?q=GLOBEX+failed", Tenants); len(d.all(func(n *html.Node) bool { return attr(n, "data-label") == "Tenant" })) != 1 {
		t.Error("words are not looked for in all that is known of a tenant")
	}
}

func TestTreeOfObjects(t *testing.T) {
	object := func(id string, needs ...string) *objectView {
		return &objectView{TenantObject: query.TenantObject{ID: id, DependsOn: needs}}
	}
	var draw func(list []*objectView) string
	draw = func(list []*objectView) string {
		var out []string
		for _, o := range list {
			text := o.ID
			if len(o.Also) > 0 {
				text += "+" + strings.Join(o.Also, "+")
			}
			if len(o.Below) > 0 {
				text += "(" + draw(o.Below) + ")"
			}
			out = append(out, text)
		}
		return strings.Join(out, " ")
	}
	for name, tt := range map[string]struct {
		list []*objectView
		want string
	}{
		"alone":                        {[]*objectView{object("a"), object("b")}, "a b"},
		"a line":                       {[]*objectView{object("a"), object("b", "a"), object("c", "b")}, "a(b(c))"},
		"below what is made last":      {[]*objectView{object("a"), object("b"), object("c", "a", "b")}, "a b(c+a)"},
		"what is not there is named":   {[]*objectView{object("a", "gone")}, "a+gone"},
		"a cycle loses no object":      {[]*objectView{object("a", "b"), object("b", "a")}, "a+b(b)"},
		"one that depends upon itself": {[]*objectView{object("a", "a")}, "a+a"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := draw(treeOf(tt.list)); got != tt.want {
				t.Errorf("treeOf() = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTenantShowsWhatTheCommandLineShows(t *testing.T) {
	d := screen(t, shire(), "/tenants/apps/globex-web", Tenant)
	wants(t, d.text(), "globex-web", "3 of 6 objects ready", "ResourcesFailed", "terrier-row-globex-web", "Generation4 of 5", "its rollout has stopped",
		"written once", "kept when the tenant is deleted", "Waiting for queue", "Also depends on db", "Plan plan-main-77", "Drift: ", "Drifted", "Last applied: plan-main-1",
		"No longer in the template", "RemovedFromTemplate", "Conditions", "Events", "×7", "Not shown", "you may not list the stacks of the namespace hidden")
	if strings.Contains(d.text(), "waits for queue") {
		t.Error("the page says twice what the object waits for")
	}
	if strings.Contains(d.text(), "secret message") {
		t.Error("the page tells of a stack that the visitor may not see")
	}
}

// Coming changes and past ones are apart.
func TestRegistryTellsComingChangesFromPastOnes(t *testing.T) {
	d := screen(t, shire(), "/registries/apps/customers", Registry)
	wants(t, d.text(), "Coming changes", "3 tenants will be deleted when the grace period of 1h ends, unless their rows return", "Past changes", "7 of them, although no valid, active row asks for them")
	coming, past, found := strings.Cut(d.text()[strings.Index(d.text(), "Coming changes"):], "Past changes")
	if !found || strings.Contains(coming, "vandelay") || !strings.Contains(past, "vandelay") {
		t.Errorf("coming changes are %.300q, past ones %.300q; want the deleted row among the past ones", coming, past)
	}
	wants(t, screen(t, shire(), "/tenants", Tenants).text(), "the tenant is deleted at 2026-03-14T13:00:00Z unless the row becomes active again")
}

func TestAllowNamesWhatGoes(t *testing.T) {
	d := screen(t, shire(), "/registries/apps/customers", Registry)
	wants(t, d.text(), "42 deletions blocked", "acme-web", "and 39 more", "b81f3c2d90", "Type 42 or the name of the registry", "Allow exactly these 42 deletions", "10 tenants, or 10 % of them if that is more", "1,902 active of 1960 rows")
	forms := d.forms("/allow")
	if len(forms) != 1 || forms[0].Fields.Get("token") != "b81f3c2d90" || forms[0].Fields.Get("count") != "42" || forms[0].Fields.Get("confirm") != "" {
		t.Fatalf("forms %v, want one with the token of exactly this set, and nothing typed yet", forms)
	}
	for name, tt := range map[string]struct {
		typed string
		form  url.Values
		want  string
		kind  fault.Kind
	}{
		"the number":        {"42", forms[0].Fields, "allow apps/customers b81f3c2d90", ""},
		"the name":          {" customers ", forms[0].Fields, "allow apps/customers b81f3c2d90", ""},
		"nothing":           {"", forms[0].Fields, "", fault.Invalid},
		"another number":    {"41", forms[0].Fields, "", fault.Invalid},
		"no set was named":  {"customers", url.Values{"count": {"42"}}, "", fault.Invalid},
		"no number was":     {"customers", url.Values{"token": {"x"}}, "", fault.Invalid},
		"less than nothing": {"-1", url.Values{"token": {"x"}, "count": {"-1"}}, "", fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			v := guest(t, shire(), "/registries/apps/customers")
			h := person(v)
			v.Form = url.Values{}
			for k, list := range tt.form {
				v.Form[k] = list
			}
			v.Form.Set("confirm", tt.typed)
			done, err := AllowDeletions(v)
			if tt.kind != "" {
				if fault.Of(err) != tt.kind || len(h.done) != 0 {
					t.Errorf("%v and %v, want nothing done and %s", h.done, err, tt.kind)
				}
				return
			}
			if err != nil || strings.Join(h.done, ", ") != tt.want || Sentence(done.Said) == "" || done.To != "/registries/apps/customers" {
				t.Errorf("%v, %+v, %v; want %q", h.done, done, err, tt.want)
			}
		})
	}
}

// Without the right to allow deletions the form is absent, and the page says why.
func TestAllowIsNotOfferedInVain(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*county)
		may  bool
		want string
	}{
		"it was allowed already": {func(c *county) { c.registry.Blocked.Allowed = true }, true, "The next read begins them"},
		"it has no token":        {func(c *county) { c.registry.Blocked.Token = "" }, true, "cannot be allowed together"},
		"the right is missing":   {func(*county) {}, false, "Ask for the permission to patch tenantregistries in apps"},
	} {
		t.Run(name, func(t *testing.T) {
			c := shire()
			tt.edit(c)
			d := screen(t, c, "/registries/apps/customers", Registry, func(v *Visit) { v.Can = func(access.Request) bool { return tt.may } })
			wants(t, d.text(), tt.want)
			if len(d.forms("/allow")) != 0 {
				t.Error("it can be allowed")
			}
		})
	}
}

func TestCommandsForTenants(t *testing.T) {
	for name, tt := range map[string]struct {
		do   Action
		form url.Values
		want string
		kind fault.Kind
	}{
		"read now":                  {ReadRows, nil, "read apps/web", ""},
		"suspend":                   {SuspendRegistry, nil, "suspend apps/web", ""},
		"resume":                    {ResumeRegistry, nil, "resume apps/web", ""},
		"go on":                     {ResumeRollout, nil, "go on apps/web", ""},
		"go back":                   {UndoRollout, url.Values{"from": {"5"}, "to": {"4"}}, "undo apps/web from 5 to 4", ""},
		"it is that already":        {UndoRollout, url.Values{"from": {"5"}, "to": {"5"}}, "", ""},
		"it changed in between":     {UndoRollout, url.Values{"from": {"4"}, "to": {"3"}}, "", fault.Conflict},
		"going back from nowhere":   {UndoRollout, url.Values{"to": {"4"}}, "", fault.Invalid},
		"going back to nowhere":     {UndoRollout, url.Values{"from": {"5"}, "to": {"-4"}}, "", fault.Invalid},
		"going back to what is not": {UndoRollout, url.Values{"from": {"5"}, "to": {"99"}}, "", fault.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			v := guest(t, shire(), "/templates/apps/web")
			v.Form = tt.form
			h := person(v)
			done, err := tt.do(v)
			if tt.kind != "" {
				if fault.Of(err) != tt.kind || len(h.done) != 0 {
					t.Errorf("%v and %v, want nothing done and %s", h.done, err, tt.kind)
				}
				return
			}
			if err != nil || strings.Join(h.done, ", ") != tt.want || Sentence(done.Said) == "" {
				t.Errorf("%v, %+v, %v; want %q", h.done, done, err, tt.want)
			}
			h.err, h.done = fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("the cluster says no")), nil
			if _, err := tt.do(v); tt.want != "" && fault.Of(err) != fault.Denied {
				t.Errorf("%v, want what the cluster says", err)
			}
		})
	}
}

func TestTemplateShowsTheWayBack(t *testing.T) {
	d := screen(t, shire(), "/templates/apps/web", Template)
	wants(t, d.text(), "The rollout of generation 5 has stopped", "170 of 1902 tenants ready", "Donecanary", "Stopped heretenth", "Pendingthe rest",
		"at most 20 tenants updated and not ready", "more than 2 tenants fail, or are not ready in 600s", "ServiceAccount tenant-writer", "Updated and not ready", "not stored")
	if len(d.forms("/resume")) != 1 || len(d.forms("/undo")) != 0 {
		t.Error("going on is one click, and going back is none before it is seen what that changes")
	}
	if d = screen(t, shire(), "/templates/apps/web?undo=4", Template); len(d.forms("/undo")) != 1 {
		t.Error("what was seen cannot be done")
	}
	if f := d.forms("/undo")[0].Fields; f.Get("from") != "5" || f.Get("to") != "4" {
		t.Errorf("the form carries %v, want what was seen", f)
	}
}
