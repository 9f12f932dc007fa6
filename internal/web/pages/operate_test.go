package pages

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/service"
	"github.com/terrier-iac/terrier/internal/stack"
)

// commons are the pages about what all stacks share, with an address of each.
var commons = map[string]struct {
	address string
	handle  Handler
}{
	"the queue":                 {"/queue", Queue},
	"a class of the queue":      {"/queue?class=drift&tenant=acme", Queue},
	"no such class":             {"/queue?class=%3Cscript%3E&offset=x", Queue},
	"tenants":                   {"/tenants", Tenants},
	"tenants that are filtered": {"/tenants?q=globex&namespace=apps&registry=customers&template=web&state=not-ready&labels=a%3Db&sort=state", Tenants},
	"no tenants":                {"/tenants?q=nothing-is-called-so", Tenants},
	"a tenant":                  {"/tenants/apps/globex-web", Tenant},
	"a registry":                {"/registries/apps/customers", Registry},
	"a template":                {"/templates/apps/web", Template},
	"going back":                {"/templates/apps/web?undo=4", Template},
	"nothing to go back":        {"/templates/apps/web?undo=5", Template},
	"going back to nothing":     {"/templates/apps/web?undo=99", Template},
	"going back to nonsense":    {"/templates/apps/web?undo=%3Cscript%3E", Template},
	"sources":                   {"/sources", Sources},
	"sources that fail":         {"/sources?state=failing&q=x&kind=GitRepository&namespace=net", Sources},
	"the journal":               {"/audit", Audit},
	"a part of the journal":     {"/audit?who=ann%40example.com&what=approved&via=ui&namespace=apps&stack=cart&q=x&from=2026-03-01&to=2026-03-02&before=1042", Audit},
	"a day that is none":        {"/audit?from=yesterday&before=x", Audit},
	"notifications":             {"/notifications", Notifications},
	"notifications that failed": {"/notifications?outcome=failed&provider=pager&event=Failed&name=x&namespace=apps", Notifications},
	"about":                     {"/about", About},
	"about a namespace":         {"/about?namespace=%3Cscript%3E", About},
	"the API":                   {"/api", APIDocs},
}

func person(v *Visit) *tenantHands {
	h := &tenantHands{from: 5}
	v.Person.Tenants = h
	return h
}

// Every page is well-formed, leads only to addresses of ours, and runs nothing of
// what others wrote. Whoever may look and not touch gets the page without forms
// that change anything, and nobody reads names of what they may not see.
func TestCommonPagesKeepTheRules(t *testing.T) {
	for name, s := range commons {
		t.Run(name, func(t *testing.T) {
			v := guest(t, shire(), s.address)
			person(v)
			v.Can = func(a service.Access) bool { return a.Namespace != "hidden" && a.Namespace != "" }
			p, err := s.handle(v)
			if err != nil {
				t.Fatal(err)
			}
			if text := parse(t, v, p).text(); strings.Contains(text, "secret-") {
				t.Errorf("the page names what is hidden: %s", text[strings.Index(text, "secret-"):][:40])
			}
			v.Can = func(service.Access) bool { return false }
			if p, err = s.handle(v); err != nil {
				t.Fatal(err)
			}
			for _, f := range parse(t, v, p).all(is(atom.Form)) {
				if a := attr(f, "action"); attr(f, "method") == "post" && a != "/sign-out" {
					t.Errorf("who may not change anything is offered %q", a)
				}
			}
			v.Can, v.Scopes = func(service.Access) bool { return true }, scoped(service.Everything)
			if p, err = s.handle(v); err != nil {
				t.Fatal(err)
			}
			parse(t, v, p)
		})
	}
}

// Pages of a county about which nothing is known, and of a server that has not
// what they are about.
func TestCommonPagesOfNothing(t *testing.T) {
	for name, s := range commons {
		t.Run(name, func(t *testing.T) {
			v := guest(t, bare(), s.address)
			person(v)
			p, err := s.handle(v)
			if err != nil {
				t.Fatal(err)
			}
			parse(t, v, p)
			v.House = &House{API: []byte("{}")}
			if p, err = s.handle(v); err == nil {
				parse(t, v, p)
			} else if fault.Of(err) != fault.Missing {
				t.Errorf("%v, want Missing", err)
			}
		})
	}
}

// bare is a county whose things have names and nothing else.
func bare() *county {
	c := &county{}
	c.detail.Namespace, c.detail.Name, c.detail.Template = "apps", "globex-web", "web"
	c.registry.Namespace, c.registry.Name = "apps", "customers"
	c.template.Namespace, c.template.Name = "apps", "web"
	c.rollout.Namespace, c.rollout.Template, c.rollout.Registry = "apps", "web", "customers"
	return c
}

// only lets a visitor do everything in some namespaces.
func only(namespaces ...string) func(*Visit) {
	return func(v *Visit) {
		v.Can = func(a service.Access) bool { return slices.Contains(namespaces, a.Namespace) }
	}
}

func TestFailuresOfCommonPages(t *testing.T) {
	later := fault.New(fault.Later, "NotReady", errors.New("the store is being looked for"))
	for name, s := range commons {
		t.Run(name, func(t *testing.T) {
			c := shire()
			c.err = later
			v := guest(t, c, s.address)
			person(v)
			p, err := s.handle(v)
			if err != nil {
				if !errors.Is(err, later) {
					t.Errorf("%v, want what went wrong", err)
				}
				return
			}
			parse(t, v, p)
		})
	}
}

func screen(t *testing.T, c *county, address string, handle Handler, edits ...func(*Visit)) parsed {
	t.Helper()
	v := guest(t, c, address)
	person(v)
	for _, edit := range edits {
		edit(v)
	}
	p, err := handle(v)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, v, p)
}

func wants(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %.1500s", want, text)
		}
	}
}

func TestQueueSaysWhoIsNext(t *testing.T) {
	d := screen(t, shire(), "/queue", Queue)
	wants(t, d.text(), "4 of 4 at work", "1 run of stacks that you may not see", "Starts now", "1 stack that you may not see wait", "1 other",
		"29.4 slots needed, 4 there", "Set --max-runs to 37", "about 26,825 MiB", "Waiting for memory: its runs take 3100 MiB", "Drift 3")
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

// What is at work is one click from what it says.
func TestRunsAtWorkLeadToTheirLogs(t *testing.T) {
	turn := stack.Turn{UID: "u-1", Namespace: "apps", Name: "cart"}
	row := service.Row{Stack: service.Stack{Namespace: "apps", Name: "cart", UID: "u-1", Run: &service.Running{ID: "apply-1"}}}
	b := board{&estate{rows: []service.Row{row}}}
	if got, want := logOfTurn(b, turn), "/stacks/apps/cart/runs/apply-1/log"; got != want {
		t.Errorf("the log is at %q, want %q", got, want)
	}
	d := screen(t, shire(), "/queue", Queue, func(v *Visit) { v.House.Board = atWork{v.House.Board} })
	if n := len(d.all(func(n *html.Node) bool { return attr(n, "href") == "/stacks/apps/cart/runs/run-of-cart/log" })); n != 1 {
		t.Errorf("%d links to the log of the run of apps/cart, want 1", n)
	}
	other := turn
	other.UID = "u-2"
	row.Run = nil
	idle := board{&estate{rows: []service.Row{row}}}
	for name, got := range map[string]string{"another of the name": logOfTurn(b, other), "no run yet": logOfTurn(idle, turn), "unknown": logOfTurn(idle, stack.Turn{Name: "x"}), "no board": logOfTurn(nil, turn)} {
		if got != "" {
			t.Errorf("%s: the log is at %q, want none", name, got)
		}
	}
}

// atWork is a board on which every stack has a run.
type atWork struct{ Board }

func (atWork) Get(k service.Key) (service.Row, bool) {
	uid := map[string]string{"checkout": "1", "cart": "2", "edge": "3"}[k.Name]
	return service.Row{Stack: service.Stack{Namespace: k.Namespace, Name: k.Name, UID: uid, Run: &service.Running{ID: "run-of-" + k.Name}}}, true
}

func TestQueueGuessesWhenARunStarts(t *testing.T) {
	d := queueView{Slots: use{4, 4}, Start: 10, Line: []queueRow{{Turn: stack.Turn{Position: 1}}, {Turn: stack.Turn{Position: 8}}, {Turn: stack.Turn{Position: 9}}}}
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
		c.list.Items = append(c.list.Items, service.Tenant{Namespace: "apps", Name: fmt.Sprintf("t-%04d", i), UID: fmt.Sprint("u", i), Template: "batch", State: service.TenantReady})
	}
	d := screen(t, c, "/tenants?template=batch&offset=200", Tenants, only("apps", "net"))
	wants(t, d.text(), "tenants 201–300 of 1,000", "Ready 1,000", "Not ready 0", "1 alarm of registries and templates that you may not see")
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
		return &objectView{TenantObject: service.TenantObject{ID: id, DependsOn: needs}}
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
		"a circle loses nobody":        {[]*objectView{object("a", "b"), object("b", "a")}, "a+b(b)"},
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
		"written once", "stays when the tenant goes", "Waits for queue", "Also needs db", "Plan plan-main-77", "Drift: ", "Drifted", "Applied last: plan-main-1",
		"No longer in the template", "RemovedFromTemplate", "Conditions", "Events", "×7", "Not shown", "you may not list the stacks of the namespace hidden")
	if strings.Contains(d.text(), "secret message") {
		t.Error("the page tells of a stack that the visitor may not see")
	}
}

func TestAllowNamesWhatGoes(t *testing.T) {
	d := screen(t, shire(), "/registries/apps/customers", Registry)
	wants(t, d.text(), "42 deletions held back", "acme-web", "and 39 further ones", "b81f3c2d90", "Type 42 or the name of the registry", "Let exactly these 42 deletions pass", "10 tenants, or 10 % of them if that is more", "1,902 active of 1960 rows")
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

// What somebody may not let pass is not offered, and says why.
func TestAllowIsNotOfferedInVain(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*county)
		may  bool
		want string
	}{
		"it was allowed already": {func(c *county) { c.registry.Blocked.Allowed = true }, true, "They do with the next read"},
		"it has no token":        {func(c *county) { c.registry.Blocked.Token = "" }, true, "cannot be let pass at once"},
		"the right is missing":   {func(*county) {}, false, "ask for the verb patch on tenantregistries in apps"},
	} {
		t.Run(name, func(t *testing.T) {
			c := shire()
			tt.edit(c)
			d := screen(t, c, "/registries/apps/customers", Registry, func(v *Visit) { v.Can = func(service.Access) bool { return tt.may } })
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
			h.err, h.done = fault.New(fault.Denied, service.ReasonAccessDenied, errors.New("the cluster says no")), nil
			if _, err := tt.do(v); tt.want != "" && fault.Of(err) != fault.Denied {
				t.Errorf("%v, want what the cluster says", err)
			}
		})
	}
}

func TestTemplateShowsTheWayBack(t *testing.T) {
	d := screen(t, shire(), "/templates/apps/web", Template)
	wants(t, d.text(), "The rollout of generation 5 has stopped", "170 of 1902 tenants ready with it", "Donecanary", "Stopped heretenth", "To comethe rest",
		"at most 20 tenants that are changed and not ready", "more than 2 tenants fail, or are not ready in 600s", "ServiceAccount tenant-writer", "Changed and not ready", "not kept")
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

func TestSourcesSayWhatToDo(t *testing.T) {
	d := screen(t, shire(), "/sources", Sources, only("apps", "net"))
	wants(t, d.text(), "1 source cannot be fetched.", "2 stacks go on with what was fetched before", "AuthenticationFailed", "See that the Secret of secretRef is there", "main@4f1c9ab2", "and 6 more", "no stack", "It is not fetched")
	for _, n := range d.all(is(atom.A)) {
		if href := attr(n, "href"); strings.Contains(href, "javascript") || strings.Contains(href, "pass") {
			t.Errorf("there is a link to %q", href)
		}
	}
	if text := d.text(); strings.Contains(text, "user:pass") || !strings.Contains(text, "s3.example.com/exports") {
		t.Errorf("the address of a bucket is shown with its password, or not at all: %s", text)
	}
}

func TestSourcesShowNoPasswords(t *testing.T) {
	for address, want := range map[string]string{
		"https://git.example.com/a@b.git":         "https://git.example.com/a@b.git",
		"https://user:pass@git.example.com/a.git": "https://•••@git.example.com/a.git",
		"https://token@git.example.com":           "https://•••@git.example.com",
		"https://a:b@c@git.example.com?x=1":       "https://•••@git.example.com?x=1",
		"ssh://git@git.example.com/a":             "ssh://git@git.example.com/a",
		"git@git.example.com:a":                   "git@git.example.com:a",
		"user:pass@git.example.com":               "•••@git.example.com",
		"s3.example.com":                          "s3.example.com",
		"":                                        "",
	} {
		if got := withoutUser(address); got != want {
			t.Errorf("withoutUser(%q) = %q, want %q", address, got, want)
		}
	}
}

func TestJournalIsReadAsAWholeNowAndThen(t *testing.T) {
	c := shire()
	v := guest(t, c, "/audit")
	v.Can = func(service.Access) bool { return true }
	look := func() string {
		p, err := Audit(v)
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, v, p).text()
	}
	wants(t, look(), "Verified up to entry 1,042", "9f86d081", "Approved", "looks right", "Terrier itself", "the platform", "unheard of"[:0])
	look()
	if c.verified != 1 {
		t.Errorf("the journal was read %d times, want once", c.verified)
	}
	c.report.Problem = "entry 17 was changed"
	v.Now = v.Now.Add(checkedFor)
	wants(t, look(), "The journal is not what was written", "entry 17 was changed")
	if _, err := VerifyJournal(v); err != nil || c.verified != 3 {
		t.Errorf("%d reads, %v; want another one", c.verified, err)
	}
	v.Can = func(a service.Access) bool { return a.Namespace == "apps" }
	text := look()
	if c.verified != 3 || strings.Contains(text, "Verify") || strings.Contains(text, "eve@") {
		t.Errorf("%d reads: whoever sees a part has the whole read, or sees the platform's: %s", c.verified, text)
	}
}

// Whatever a journal may hold has a word to choose it by and a tone.
func TestEveryDeedCanBeChosen(t *testing.T) {
	file, err := parser.ParseFile(gotoken.NewFileSet(), "../../audit/audit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, group := range journalDeeds {
		for _, d := range group.of {
			if have[string(d.what)] {
				t.Errorf("%s is there twice", d.what)
			}
			have[string(d.what)] = true
		}
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); !ok || of.Name != "What" {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if !have[value] {
			t.Errorf("%s cannot be chosen on the page of the journal", value)
		}
		return true
	})
	if found < 40 {
		t.Fatalf("%d deeds were found in the journal's own list", found)
	}
}

func TestAboutIsQuietAboutFailures(t *testing.T) {
	d := screen(t, shire(), "/about", About, func(v *Visit) { v.Scopes = scoped(service.Scope{In: map[string]bool{"apps": true}}) })
	wants(t, d.text(), "up for 2d", "Does not work", "Ask whoever runs this server", "the stacks of 1 namespace", "tofu 1.11.1", "--max-runs", "terraforms/state")
	if strings.Contains(d.text(), "pngp") || strings.Contains(textOf(d.all(func(n *html.Node) bool { return attr(n, "data-region") == "about-health" })[0]), "alert(1)") {
		t.Error("whoever sees a part of the stacks is told what is wrong inside")
	}
	d = screen(t, shire(), "/about", About, func(v *Visit) { v.Scopes = scoped(service.Everything) })
	wants(t, textOf(d.all(func(n *html.Node) bool { return attr(n, "data-region") == "about-health" })[0]), "alert(1)")
}

// Whoever has rights in some namespaces only is not told at first that there are
// none, and may still ask about all.
func TestAboutBeginsWithRightsThatThereAre(t *testing.T) {
	some := service.Scope{In: map[string]bool{"net": true, "apps": true}}
	for address, c := range map[string]struct {
		scope service.Scope
		says  string
		may   bool
	}{
		"/about":               {some, "What you may do in apps", true},
		"/about?namespace=net": {some, "What you may do in net", true},
		"/about?namespace=":    {some, "What you may do in all namespaces", false},
		"/about?":              {service.Scope{}, "What you may do in all namespaces", false},
		"/about?all":           {service.Everything, "What you may do in all namespaces", false},
	} {
		d := screen(t, shire(), address, About, func(v *Visit) { v.Scopes = scoped(c.scope) }, only("apps", "net"))
		text := d.text()
		if !strings.Contains(text, c.says) || strings.Contains(text, "patch: yes") != c.may {
			t.Errorf("%s does not say %q with rights %v: %s", address, c.says, c.may, text)
		}
	}
}

func TestAboutSaysDurationsShort(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Minute: "1h30m", 30 * time.Minute: "30m", 90 * time.Second: "1m30s", 0: "0s"} {
		if got := DurationSetting("Time of one run", d, "").Value; got != want {
			t.Errorf("%v is shown as %q, want %q", d, got, want)
		}
	}
}

func TestAPIDocsGiveACommandToTry(t *testing.T) {
	d := screen(t, shire(), "/api", APIDocs)
	wants(t, d.text(), "get terraforms", "Detail", `"$SERVER/api/v1/namespaces/NAMESPACE/stacks/NAME"`, `-X POST -H 'Content-Type: application/json' -d @body.json "$SERVER/api/v1/namespaces/NAMESPACE/stacks/NAME/approve?dry=DRY"`, "SERVER=https://127.0.0.1:8443", "Platform 1", "patch tenantregistries", `-d '{}' "$SERVER/api/v1/read-now"`)
	if _, err := apiOf([]byte("[")); err == nil {
		t.Error("a document that is none was read")
	}
}
