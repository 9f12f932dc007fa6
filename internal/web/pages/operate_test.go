package pages

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/login"
)

// commons are the pages about what all stacks share, with an address of each.
var commons = map[string]struct {
	address string
	handle  Handler
}{
	"the queue":                 {"/queue", Queue},
	"the status":                {"/status", Status},
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
	"the audit log":             {"/audit", Audit},
	"a part of the audit log":   {"/audit?who=ann%40example.com&what=approved&via=ui&namespace=apps&stack=cart&q=x&from=2026-03-01&to=2026-03-02&before=1042", Audit},
	"a day that is none":        {"/audit?from=yesterday&before=x", Audit},
	"notifications":             {"/notifications", Notifications},
	"notifications that failed": {"/notifications?outcome=failed&provider=pager&event=Failed&name=x&namespace=apps", Notifications},
	"what stacks left":          {"/retained", Retained},
	"what one stack left":       {"/retained?namespace=apps&name=mail&offset=x", Retained},
	"what no stack left":        {"/retained?name=%3Cscript%3E&offset=7", Retained},
	"tokens":                    {"/tokens", TokenList},
	"more tokens":               {"/tokens?offset=3", TokenList},
	"a login":                   {"/login/authorize?" + loginAsked.Encode(), Login},
	"about":                     {"/about", About},
	"about a namespace":         {"/about?namespace=%3Cscript%3E", About},
	"the API":                   {"/api", APIDocs},
}

// loginAsked is the request of a command line.
var loginAsked = login.Request{Redirect: "http://localhost:10010/login", State: "a'\"><script>alert(1)</script>", Challenge: strings.Repeat("x", 43)}.Values()

func person(v *Visit) *tenantHands {
	h := &tenantHands{from: 5}
	v.Person.Tenants = h
	return h
}

// Every page is well-formed, leads only to addresses of ours, and runs nothing of
// what others wrote. A user who may only read gets the page without forms that
// change anything, and no user reads names of objects that they may not see.
func TestCommonPagesKeepTheRules(t *testing.T) {
	for name, s := range commons {
		t.Run(name, func(t *testing.T) {
			v := guest(t, shire(), s.address)
			person(v)
			v.Can = func(a access.Request) bool { return a.Namespace != "hidden" && a.Namespace != "" }
			p, err := s.handle(v)
			if err != nil {
				t.Fatal(err)
			}
			if text := parse(t, v, p).text(); strings.Contains(text, "secret-") {
				t.Errorf("the page names what is hidden: %s", text[strings.Index(text, "secret-"):][:40])
			}
			v.Can = func(access.Request) bool { return false }
			if p, err = s.handle(v); err != nil {
				t.Fatal(err)
			}
			for _, f := range parse(t, v, p).all(is(atom.Form)) {
				if a := attr(f, "action"); attr(f, "method") == "post" && a != "/sign-out" && a != login.AuthorizePath {
					t.Errorf("who may not change anything is offered %q", a)
				}
			}
			v.Can, v.Scopes = func(access.Request) bool { return true }, scoped(access.Everything)
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
			v.Backend = &Backend{API: []byte("{}")}
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
		v.Can = func(a access.Request) bool { return slices.Contains(namespaces, a.Namespace) }
	}
}

func TestFailuresOfCommonPages(t *testing.T) {
	later := fault.New(fault.Later, "NotReady", errors.New("the store is not ready"))
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

func TestSourcesSayWhatToDo(t *testing.T) {
	d := screen(t, shire(), "/sources", Sources, only("apps", "net"))
	wants(t, d.text(), "1 source cannot be fetched.", "2 stacks use the revision that was fetched last", "AuthenticationFailed", "Check that the Secret of secretRef exists", "main@4f1c9ab2", "and 6 more", "no stack", "The source is not fetched")
	for _, n := range d.all(is(atom.A)) {
		if href := attr(n, "href"); strings.HasPrefix(href, "javascript") || strings.Contains(href, "pass") {
			t.Errorf("there is a link to %q", href)
		}
	}
	if text := d.text(); strings.Contains(text, "user:pass") || !strings.Contains(text, "s3.example.com/exports") {
		t.Errorf("the address of a bucket is shown with its password, or not at all: %s", text)
	}
}

// A source has a page of its own, with its error and the stacks that use it.
func TestASourceHasAPage(t *testing.T) {
	named := func(kind, namespace, name string) func(*Visit) {
		return func(v *Visit) { v.Names = map[string]string{"kind": kind, "namespace": namespace, "name": name} }
	}
	d := screen(t, shire(), "/sources/GitRepository/net/x", SourceDetail, named("GitRepository", "net", hostile))
	wants(t, d.text(), "AuthenticationFailed for 60m", "The server rejected the credentials.", "What to do", "kubectl describe gitrepository",
		"10m ago", "20m ago", "GitOperationFailed", "no route to host", "The source has been failing for 60m.")
	d = screen(t, shire(), "/sources/GitRepository/apps/platform", SourceDetail, named("GitRepository", "apps", "platform"))
	wants(t, d.text(), "main@sha1:4f1c9ab2d7b8e362c2065d1f09aa4f1c9ab2d7b8", "Stacks that use it", "No event in the last hour")
	v := guest(t, shire(), "/sources/GitRepository/apps/none")
	v.Names = map[string]string{"kind": "GitRepository", "namespace": "apps", "name": "none"}
	if _, err := SourceDetail(v); fault.Of(err) != fault.Missing {
		t.Errorf("a source that does not exist: %v, want Missing", err)
	}
}

// The filter offers what the audit log records, and nothing else.
func TestTheAuditFilterOffersWhatIsRecorded(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "audit", "audit.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range auditActions {
		for _, a := range group.of {
			if !strings.Contains(string(source), fmt.Sprintf("What = %q", a.what)) {
				t.Errorf("the filter offers %q, which is never recorded", a.what)
			}
		}
	}
}

// The page shows what users did, and the rest on demand.
func TestTheAuditPageShowsUsersFirst(t *testing.T) {
	for address, users := range map[string]bool{"": true, "who=ann": true, "all=yes": false, "what=planned": false, "via=controller": false, "q=plan-main": false} {
		values, err := url.ParseQuery(address)
		if err != nil {
			t.Fatal(err)
		}
		if q, _ := AuditQuery(values); q.ByUsers != users {
			t.Errorf("/audit?%s: only entries by users: %v, want %v", address, q.ByUsers, users)
		}
	}
}

// A row leads to its own stack, whatever the kind of that is, and to nothing else.
func TestAuditRowsLeadToTheirStacks(t *testing.T) {
	second := query.Key{Kind: "terraform.second.example.com", Namespace: "apps", Name: "net"}
	for name, tt := range map[string]struct {
		of                     query.AuditObject
		object, planned, logOf string
	}{
		"the first kind":        {query.AuditObject{Kind: "Terraform", Namespace: "apps", Name: "net"}, "/stacks/apps/net", "/stacks/apps/net/plan?digest=d", "/stacks/apps/net/runs/r"},
		"another, of users":     {query.AuditObjectOf(second), stackPath(second), stackPath(second, "plan") + "?digest=d", stackPath(second, "runs", "r")},
		"another, of a rule":    {query.AuditObject{Kind: "Terraform", Group: "second.example.com", Namespace: "apps", Name: "net"}, stackPath(second), stackPath(second, "plan") + "?digest=d", stackPath(second, "runs", "r")},
		"no stack":              {query.AuditObject{Kind: "Tenant", Namespace: "apps", Name: "net"}, tenantPath(query.Key{Namespace: "apps", Name: "net"}), "", ""},
		"the platform":          {query.AuditObject{Kind: "Terraform"}, "", "", ""},
		"a kind without a page": {query.AuditObject{Kind: "Secret", Namespace: "apps", Name: "net"}, "", "", ""},
	} {
		row := rowOfAudit(query.AuditEntry{Object: tt.of, Digest: "d", Run: "r"})
		if row.Href != tt.object || row.PlanHref != tt.planned || row.RunHref != tt.logOf {
			t.Errorf("%s leads to %q, %q and %q, want %q, %q and %q", name, row.Href, row.PlanHref, row.RunHref, tt.object, tt.planned, tt.logOf)
		}
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

func TestAuditLogIsVerifiedNowAndThen(t *testing.T) {
	c := shire()
	v := guest(t, c, "/audit")
	v.Can = func(access.Request) bool { return true }
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
		t.Errorf("the audit log was read %d times, want once", c.verified)
	}
	c.report.Until = 1_000_000
	v.Now = v.Now.Add(checkedFor)
	wants(t, look(), "Being verified", "The entries up to 1042 of 1000000 are verified")
	c.report.Until = 0
	wants(t, look(), "Verified up to entry 1,042")
	if c.verified != 3 {
		t.Errorf("the audit log was read %d times, want each look to read more until there is none", c.verified)
	}
	c.report.Problem = "entry 17 was changed"
	v.Now = v.Now.Add(checkedFor)
	wants(t, look(), "The audit log was modified or damaged", "entry 17 was changed")
	if _, err := VerifyAuditLog(v); err != nil || c.verified != 5 {
		t.Errorf("%d reads, %v; want another one", c.verified, err)
	}
	v.Can = func(a access.Request) bool { return a.Namespace == "apps" }
	text := look()
	if c.verified != 5 || strings.Contains(text, "Verify") || strings.Contains(text, "eve@") {
		t.Errorf("%d reads: whoever sees a part has the whole read, or sees the platform's: %s", c.verified, text)
	}
}

// A page does not wait for a verification that another page has started.
func TestPagesDoNotWaitForTheAuditLog(t *testing.T) {
	var c AuditCheck
	c.reading.Lock()
	defer c.reading.Unlock()
	if f := c.Look(t.Context(), nil, now); !f.At.IsZero() || chainOf(f).Title != "Being verified" {
		t.Errorf("%+v, want to be told that it is being read", f)
	}
}

// Every action of the audit log has a filter and a tone.
func TestEveryDeedCanBeChosen(t *testing.T) {
	file, err := parser.ParseFile(gotoken.NewFileSet(), "../../audit/audit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, group := range auditActions {
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
			t.Errorf("%s cannot be chosen on the page of the audit log", value)
		}
		return true
	})
	if found < 40 {
		t.Fatalf("%d deeds were found in the audit log's own list", found)
	}
}

func TestAboutIsQuietAboutFailures(t *testing.T) {
	d := screen(t, shire(), "/about", About, func(v *Visit) { v.Scopes = scoped(access.Scope{In: map[string]bool{"apps": true}}) })
	wants(t, d.text(), "up for 2d", "Does not work", "Ask the operator of this server", "the stacks of 1 namespace", "tofu 1.11.1", "--max-runs", "terraforms/state")
	if strings.Contains(d.text(), "pngp") || strings.Contains(textOf(d.all(func(n *html.Node) bool { return attr(n, "data-region") == "about-health" })[0]), "alert(1)") {
		t.Error("whoever sees a part of the stacks is told what is wrong inside")
	}
	d = screen(t, shire(), "/about", About, func(v *Visit) { v.Scopes = scoped(access.Everything) })
	wants(t, textOf(d.all(func(n *html.Node) bool { return attr(n, "data-region") == "about-health" })[0]), "alert(1)")
}

// A user with rights in some namespaces sees these first, and can still ask about
// all.
func TestAboutBeginsWithRightsThatThereAre(t *testing.T) {
	some := access.Scope{In: map[string]bool{"net": true, "apps": true}}
	for address, c := range map[string]struct {
		scope access.Scope
		says  string
		may   bool
	}{
		"/about":               {some, "Your permissions in apps", true},
		"/about?namespace=net": {some, "Your permissions in net", true},
		"/about?namespace=":    {some, "Your permissions in all namespaces", false},
		"/about?":              {access.Scope{}, "Your permissions in all namespaces", false},
		"/about?all":           {access.Everything, "Your permissions in all namespaces", false},
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
