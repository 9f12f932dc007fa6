package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

var _ = addDoors(map[string]string{
	"GET /api/v1/states": "list terraforms/state",
	"GET /api/v1/namespaces/:namespace/stacks/:name/state/file":     "get terraforms/state apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/outputs/secret": "get terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/templates/:name/render":     "get templates apps/net",
	"GET /api/v1/version":                                               "known",
	"GET /api/v1/openapi.json":                                          "known",
	"GET /api/v1/stacks":                                                "known",
	"GET /api/v1/approvals":                                             "known",
	"GET /api/v1/drift":                                                 "known",
	"GET /api/v1/status":                                                "known",
	"GET /api/v1/queue":                                                 "known",
	"GET /api/v1/audit":                                                 "known",
	"GET /api/v1/events":                                                "known, to see some stacks",
	"GET /api/v1/audit/verify":                                          "list terraforms/audit",
	"GET /api/v1/notifications":                                         "list terraforms/notifications",
	"GET /api/v1/sources":                                               "list sources",
	"POST /api/v1/sign-in-links":                                        "known",
	"GET /api/v1/namespaces/:namespace/stacks":                          "list terraforms apps",
	"GET /api/v1/namespaces/:namespace/stacks/:name":                    "get terraforms apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/explain":            "get terraforms apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/graph":              "get terraforms apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/inputs":             "get terraforms apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/uses":               "get terraforms apps/net",
	"GET /api/v1/modules/uses":                                          "known, then 422",
	"GET /api/v1/providers/uses":                                        "known, then 422",
	"GET /api/v1/namespaces/:namespace/stacks/:name/timeline":           "get terraforms apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/outputs":            "get terraforms/outputs apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/drift":              "get terraforms/plan apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/drift/next":         "get terraforms apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/drift/patch":        "get terraforms/plan apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/drift/accept":      "patch terraforms apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/plan":               "get terraforms/plan apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/plan/document":      "get terraforms/plan apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/applied":            "get terraforms/plan apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/plan/verdict":       "get terraforms/plan apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/runs":               "get terraforms/log apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/runs/:run":          "get terraforms/log apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/runs/:run/report":   "get terraforms/log apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/runs/:run/log":      "get terraforms/log apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/state":              "get terraforms/state apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/resources":          "get terraforms/state apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/states":             "get terraforms/state apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/secret-prints":      "get terraforms/state apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/states/:version":    "get terraforms/state apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/outgrown":           "get terraforms/state apps/net",
	"PUT /api/v1/namespaces/:namespace/stacks/:name/outgrown":           "update terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/state/keys":        "get terraforms/state-key apps/net",
	"GET /api/v1/namespaces/:namespace/stacks/:name/state/git":          "get terraforms/state apps/net",
	"PUT /api/v1/namespaces/:namespace/stacks/:name/state/git":          "update terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/state/encrypt":     "update terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/state/decrypt":     "get terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/approve":           "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/override-window":   "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/reject":            "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/replan":            "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/rollback":          "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/rerun-steps":       "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/suspend":           "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/resume":            "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/cancel":            "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/unlock":            "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/preview-destroy":   "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/break-glass":       "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/break-glass/run":   "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/break-glass/end":   "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/state/push":        "update terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/repair-plan":       "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/repair":            "patch terraforms apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/state/rollback":    "update terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/state/lock":        "update terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/state/unlock":      "update terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/stacks/:name/state/accept":      "update terraforms/state apps/net",
	"GET /api/v1/tenants":                                               "list tenants",
	"GET /api/v1/namespaces/:namespace/tenants":                         "list tenants apps",
	"GET /api/v1/namespaces/:namespace/tenants/:name":                   "get tenants apps/net",
	"GET /api/v1/namespaces/:namespace/registries/:name":                "get registries apps/net",
	"GET /api/v1/namespaces/:namespace/templates/:name":                 "get templates apps/net",
	"POST /api/v1/namespaces/:namespace/registries/:name/allow":         "patch registries apps/net",
	"POST /api/v1/namespaces/:namespace/registries/:name/read-now":      "patch registries apps/net",
	"POST /api/v1/namespaces/:namespace/registries/:name/suspend":       "patch registries apps/net",
	"POST /api/v1/namespaces/:namespace/registries/:name/resume":        "patch registries apps/net",
	"POST /api/v1/namespaces/:namespace/templates/:name/rollout/resume": "patch templates apps/net",
	"POST /api/v1/namespaces/:namespace/templates/:name/rollout/undo":   "update templates apps/net",
})

// table is every row of a server, as it is served.
func table(t *testing.T) []route {
	t.Helper()
	s, err := newServer(options(newRoles()).filled())
	if err != nil {
		t.Fatal(err)
	}
	return s.apiRoutes()
}

// A page of another site can have a browser send a request. None that changes
// something is carried out for it, on whatever row.
func TestNothingIsDoneForOtherSites(t *testing.T) {
	engine, err := build(options(newRoles()))
	if err != nil {
		t.Fatal(err)
	}
	u, c := serve(t, options(newRoles()))
	for _, r := range engine.Routes() {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			continue
		}
		for name, edit := range map[string]func(*http.Request){
			"of another site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			"of a sibling":      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
			"of another origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			"of no origin":      func(r *http.Request) { r.Header.Set("Origin", "null") },
		} {
			resp, body := ask(t, c, r.Method, u.String()+place(r.Path), func(q *http.Request) {
				bearer(q)
				q.Header.Set("Content-Type", "application/json")
				edit(q)
			})
			if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "origins") {
				t.Errorf("%s %s %s: %s, want 403", r.Method, r.Path, name, resp.Status)
			}
		}
	}
}

// A form of another site can send everything but JSON.
func TestBodiesAreJSON(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	rows := 0
	for _, r := range table(t) {
		if r.takes == nil {
			continue
		}
		rows++
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "application/json; charset"} {
			resp, body := ask(t, c, r.method, u.String()+place(r.path), func(q *http.Request) {
				bearer(q)
				q.Body = io.NopCloser(strings.NewReader("{}"))
				q.Header.Set("Content-Type", kind)
			})
			if resp.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(body, `"NotJSON"`) {
				t.Errorf("%s %s with %q: %s %s, want 415", r.method, r.path, kind, resp.Status, body)
			}
		}
	}
	if rows < 15 {
		t.Errorf("%d rows take a body, want all commands", rows)
	}
}

// What is sent is read as it was meant, or refused in words that say where.
func TestBodiesAreReadStrictly(t *testing.T) {
	o := options(newRoles())
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: hands{}}, nil }
	u, c := serve(t, o)
	post := func(body string) (*http.Response, string) {
		return ask(t, c, http.MethodPost, u.String()+"/api/v1/namespaces/apps/stacks/net/approve", func(q *http.Request) {
			bearer(q)
			q.Header.Set("Content-Type", "application/json; charset=utf-8")
			q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		})
	}
	for name, tt := range map[string]struct {
		body   string
		status int
		says   string
	}{
		"what it takes":             {`{"name":"plan-a","digest":"sha256:a","comment":"fine"}`, 200, "plan-a"},
		"a field that is misspelt":  {`{"name":"plan-a","coment":"fine"}`, 422, `there is no field \"coment\"`},
		"another type":              {`{"name":7}`, 422, `the field \"name\" does not take a JSON number`},
		"no object":                 {`[]`, 422, "the body does not take a JSON array"},
		"a text":                    {`"plan-a"`, 422, "the body does not take a JSON string"},
		"nothing where it must say": {``, 422, `the field \"name\" is missing`},
		"half of it":                {`{"name":"pl`, 422, "the body is not JSON"},
		"two of them":               {`{"name":"plan-a"}{"name":"plan-b"}`, 422, "after its end"},
		"more than there may be":    {`{"name":"` + strings.Repeat("x", commandBytes) + `"}`, 413, "too large"},
		"deeper than anything":      {`{"name":` + strings.Repeat("[", 30000) + strings.Repeat("]", 30000) + `}`, 422, "the body is not JSON"},
		"deep, and in bounds":       {`{"name":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, 422, "does not take a JSON array"},
		"no text at all":            {"{\"name\":\"\xff\xfe\"}", 200, "\ufffd"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := post(tt.body)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.says) {
				t.Errorf("%s %.300s, want %d and %q", resp.Status, body, tt.status, tt.says)
			}
		})
	}
}

// What a query says is never ignored: a filter that is misspelt must not choose
// everything.
func TestQueriesAreReadStrictly(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	for params, want := range map[string]int{
		"":                            200,
		"status=failed&status=open":   422,
		"status=failed,locked":        200,
		"stauts=failed":               422,
		"namespace=a&namespace=b":     422,
		"limit=many":                  422,
		"limit=-1":                    422,
		"offset=99999999999999999999": 422,
		"selector=a%20b":              422,
		"sort=colour":                 422,
		"q=%zz":                       422,
		"access_token=x":              422,
	} {
		if resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/stacks?"+params, bearer); resp.StatusCode != want {
			t.Errorf("?%s is %s %s, want %d", params, resp.Status, body, want)
		}
	}
}

// The error for an unknown status lists the known ones.
func TestAnUnknownStatusIsToldTheKnownOnes(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	_, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/stacks?status=failed,happy", bearer)
	for _, s := range query.Statuses() {
		if !strings.Contains(body, string(s)) || !strings.Contains(body, "happy") {
			t.Errorf("%s does not name happy and %s", body, s)
		}
	}
}

// However an address is written, it names what it says, or nothing.
func TestAddressesLeadNowhereElse(t *testing.T) {
	auth := newRoles()
	u, c := serve(t, options(auth))
	for _, path := range []string{
		"/api/v1/namespaces/apps/stacks/net%2F..%2Fother", "/api/v1/namespaces/apps/stacks/%2e%2e", "/api/v1/namespaces/%2e%2e/stacks/net",
		"/api/v1/namespaces/apps/stacks/net/runs/..%2f..%2fother%2fruns%2fx/log", "/api/v1/namespaces/apps/stacks/net/runs/%2e%2e/log",
		"/api/v1/namespaces/apps/stacks/net/states/..%2findex.json", "/api/v1/namespaces/apps/stacks/net/states/index.json",
		"/api/v1/namespaces/apps/stacks/net/plan?digest=..%2f..%2fx", "/api/v1/namespaces/apps/stacks/net%00/explain",
		"/api/v1/namespaces/apps;a=b/stacks/net", "/api/v1//stacks", "/api/v1/stacks/", "//api/v1/stacks", "/api/v1/namespaces/apps/stacks/NET",
		"/api/v1/namespaces/apps/stacks/" + strings.Repeat("a", 300),
	} {
		resp, body := ask(t, c, http.MethodGet, u.String()+path, bearer)
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s is %s %.200s, want it refused", path, resp.Status, body)
		}
		if a := auth.last(); a.Namespace != "" && (a.Namespace != "apps" || a.Name != "net" && a.Name != "") {
			t.Errorf("%s asks for the right to %+v", path, a)
		}
	}
	for _, method := range []string{"PROPFIND", "TRACE", "PATCH", "DELETE", "GET "} {
		req, err := http.NewRequestWithContext(t.Context(), method, u.String()+"/api/v1/stacks", nil)
		if err != nil {
			continue // a client will not even send it
		}
		bearer(req)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s is %s, want 405", method, resp.Status)
		}
	}
}

// A second right that a row takes is asked for as well.
func TestPreviewTakesTheRightToPlans(t *testing.T) {
	auth := newRoles()
	auth.deny(access.ResourcePlan)
	o := options(auth)
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: hands{}}, nil }
	u, c := serve(t, o)
	resp, body := ask(t, c, http.MethodPost, u.String()+"/api/v1/namespaces/apps/stacks/net/preview-destroy", func(q *http.Request) {
		bearer(q)
		q.Header.Set("Content-Type", "application/json")
	})
	if resp.StatusCode != http.StatusForbidden || auth.last().Resource != access.ResourcePlan {
		t.Errorf("%s %s, want 403 for want of the right to plans", resp.Status, body)
	}
}

// A rollback is carried out only if it is still what was shown.
func TestRollbackIsWhatWasShown(t *testing.T) {
	o := options(newRoles())
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: hands{}}, nil }
	u, c := serve(t, o)
	for body, want := range map[string]int{
		`{"version":"3","preview":true}`:                              200,
		`{"version":"3","over":"sha256:now","to":"sha256:then"}`:      200,
		`{"version":"3","over":"sha256:before","to":"sha256:then"}`:   409,
		`{"version":"3","over":"sha256:now","to":"sha256:different"}`: 409,
		`{"version":"3"}`: 409,
		`{}`:              422,
	} {
		resp, said := ask(t, c, http.MethodPost, u.String()+"/api/v1/namespaces/apps/stacks/net/state/rollback", func(q *http.Request) {
			bearer(q)
			q.Header.Set("Content-Type", "application/json")
			q.Body = io.NopCloser(strings.NewReader(body))
		})
		if resp.StatusCode != want {
			t.Errorf("%s is %s %s, want %d", body, resp.Status, said, want)
		}
	}
}

// Reading a state with all that is in it is written down first; if that fails,
// nothing is shown.
func TestStatesAreReadOnTheRecord(t *testing.T) {
	written := &ledger{}
	o := options(newRoles())
	o.Audit = written
	u, c := serve(t, o)
	address := u.String() + "/api/v1/namespaces/apps/stacks/net/state?version=3"
	ask(t, c, http.MethodGet, address, bearer)
	if len(written.entries) != 0 {
		t.Errorf("a masked state is on the record: %+v", written.entries)
	}
	if resp, body := ask(t, c, http.MethodGet, address+"&reveal=true", bearer); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"serial":3`) {
		t.Errorf("%s %s, want the state", resp.Status, body)
	}
	if got := fmt.Sprint(written.what()); got != "[state-read ann apps/net]" {
		t.Errorf("on the record is %s", got)
	}
	written.err = fault.New(fault.Broken, "DiskFull", io.ErrShortWrite)
	if resp, body := ask(t, c, http.MethodGet, address+"&reveal=true", bearer); resp.StatusCode != http.StatusInternalServerError || strings.Contains(body, "serial") {
		t.Errorf("without a record: %s %s, want nothing of the state", resp.Status, body)
	}
}

// A user who lost the rights in a namespace sees nothing of it, in lists or
// otherwise.
func TestListsAreCut(t *testing.T) {
	o := options(newRoles())
	board := emptyBoard()
	o.Board = board
	for _, ns := range []string{"apps", "infra"} {
		board.Set(stackObject(ns, "net"))
	}
	scope := access.Scope{In: map[string]bool{"apps": true}}
	o.Scopes = scopeFunc(func() access.Scope { return scope })
	u, c := serve(t, o)
	c.Transport = signed{c.Transport}
	page, err := client.Dial(u, c).Stacks.Page(t.Context(), query.BoardQuery{})
	if err != nil || page.Total != 1 || len(page.Items) != 1 || page.Items[0].Namespace != "apps" {
		t.Errorf("Page() = %+v, %v; want the one stack of apps", page, err)
	}
	scope = access.Scope{}
	if page, err := client.Dial(u, c).Stacks.Page(t.Context(), query.BoardQuery{}); err != nil || page.Total != 0 || page.Items == nil {
		t.Errorf("Page() of nothing = %+v, %v; want an empty list", page, err)
	}
}

// stated has one state of each kind.
type stated struct{ estate }

func (stated) StateInfos(_ context.Context, f query.Filter) ([]query.StateInfo, error) {
	return []query.StateInfo{{Namespace: "apps", Stack: "net", Kind: *f.Kind}}, nil
}

// A kind may be spelled in all ways that kubectl takes, and one that does not exist is
// an error.
func TestStatesOfAKind(t *testing.T) {
	o := options(newRoles())
	o.Stacks, o.Kinds = stated{}, kinds.All()
	u, c := serve(t, o)
	for kind, want := range map[string]int{"": len(kinds.All().All()), "?kind=": 1, "?kind=terraform.infra.contrib.fluxcd.io": 1, "?kind=terraforms.infra.contrib.fluxcd.io": 1, "?kind=terraform.example.com": -1} {
		resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/states"+kind, bearer)
		if got := strings.Count(body, `"net"`); got != max(want, 0) || (resp.StatusCode == http.StatusOK) != (want >= 0) {
			t.Errorf("%s: %s %s, want %d states", kind, resp.Status, body, want)
		}
	}
}
