package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// boardOf is a board of one stack, and readerOf answers for the same one.
type boardOf struct {
	*query.Board
	row query.Row
}

func (b boardOf) Page(scope access.Scope, _ query.BoardQuery) (query.BoardPage, error) {
	p := query.BoardPage{Items: []query.Row{}, Counts: map[query.Status]int{b.row.Status: 1}}
	if scope.Has(b.row.Namespace) {
		p.Items, p.Total = append(p.Items, b.row), 1
	}
	return p, nil
}

func (b boardOf) Get(k query.Key) (query.Row, bool) { return b.row, k == b.row.Key() }

type readerOf struct {
	estate
	row query.Row
}

func (r readerOf) Get(context.Context, query.Key) (query.Stack, error) { return r.row.Stack, nil }

// deciding are the commands of a user who decides on plans.
type deciding struct {
	command.StackCommands // what is not below is commanded by no test
	approved              []string
	err                   error
}

func (d *deciding) Approve(_ context.Context, k query.Key, p query.PlanInfo, comment string) (query.Stack, error) {
	if d.err == nil {
		d.approved = append(d.approved, k.String()+" "+p.Name+" "+p.Digest+" "+comment)
	}
	return query.Stack{}, d.err
}

// visitOne serves one stack to a browser without scripts.
func visitOne(t *testing.T, auth Auth, hands command.StackCommands) (*url.URL, *http.Client) {
	t.Helper()
	row := query.Row{Status: query.StatusPending, Tenant: "apps", Stack: query.Stack{
		Namespace: "apps", Name: "net", Mode: stack.Manual, Source: "GitRepository/platform", Pending: "plan-main-1",
		Plan: &query.PlanInfo{Name: "plan-main-1", Digest: "sha256:abc", Changes: stack.Changes{Add: 1}},
	}}
	o := options(auth)
	o.Stacks, o.Board = readerOf{o.Stacks.(estate), row}, boardOf{emptyBoard(), row}
	o.Scopes = func(context.Context, access.User) (access.Scope, error) { return access.Everything, nil }
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: hands}, nil }
	u, c := serve(t, o)
	c.Timeout = time.Minute
	c.Transport = signed{c.Transport}
	return u, c
}

// formOf is what the first form of a page that posts to an address with this
// ending would send.
func formOf(t *testing.T, page, suffix string) (to string, fields url.Values) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	at := func(n *html.Node, name string) string {
		for _, a := range n.Attr {
			if a.Key == name {
				return a.Val
			}
		}
		return ""
	}
	for n := range root.Descendants() {
		if n.Data != "form" || !strings.HasSuffix(at(n, "action"), suffix) {
			continue
		}
		fields = url.Values{}
		for in := range n.Descendants() {
			if in.Data == "input" && at(in, "type") != "checkbox" {
				fields.Add(at(in, "name"), at(in, "value"))
			}
		}
		return at(n, "action"), fields
	}
	t.Fatalf("there is no form for %s:\n%s", suffix, page)
	return "", nil
}

func readAll(t *testing.T, resp *http.Response, err error) (*http.Response, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// A plan is found, approved, and said to be, with nothing but links and forms.
// A form that is sent twice does no harm.
func TestApprovingWithoutScripts(t *testing.T) {
	hands := &deciding{}
	u, c := visitOne(t, newRoles(), hands)
	resp, err := c.Get(u.String() + "/approvals")
	resp, page := readAll(t, resp, err)
	if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "script-src 'self'") {
		t.Fatalf("the page is %s with the policy %q", resp.Status, resp.Header.Get("Content-Security-Policy"))
	}
	to, fields := formOf(t, page, "/approve")
	fields.Set("comment", "fine")
	for range 2 {
		resp, err = c.PostForm(u.String()+to, fields)
		if resp, _ = readAll(t, resp, err); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/approvals?done=approved" {
			t.Fatalf("approving is %s to %q", resp.Status, resp.Header.Get("Location"))
		}
	}
	if len(hands.approved) != 2 || hands.approved[0] != "apps/net plan-main-1 sha256:abc fine" {
		t.Errorf("approved: %q", hands.approved)
	}
	resp, err = c.Get(u.String() + resp.Header.Get("Location"))
	if _, page = readAll(t, resp, err); !strings.Contains(page, "Approved. Exactly this plan is applied.") {
		t.Error("it is not said that the plan was approved")
	}
	// What is said is a sentence of ours, whatever the address says.
	resp, err = c.Get(u.String() + "/approvals?done=You+have+been+hacked")
	if _, page = readAll(t, resp, err); strings.Contains(page, "hacked") {
		t.Error("somebody else's words are said")
	}
}

// What went wrong is a page that leads on.
func TestApprovalsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		deny   bool
		status int
		says   []string
	}{
		"stale":               {fault.New(fault.Conflict, query.ReasonPlanChanged, errors.New("the pending plan is plan-2, not plan-main-1")), false, http.StatusConflict, []string{"Changed in the meantime", `href="/stacks/apps/net/plan"`}},
		"by the cluster":      {fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("ann may not patch terraforms")), false, http.StatusForbidden, []string{"Permission denied", "ann may not patch", "Ask the administrator of the cluster"}},
		"at the door":         {nil, true, http.StatusForbidden, []string{"Permission denied"}},
		"for a broken reason": {errors.New("a secret detail"), false, http.StatusInternalServerError, []string{"Internal error", "include the request ID"}},
	} {
		t.Run(name, func(t *testing.T) {
			auth := newRoles()
			hands := &deciding{err: tt.err}
			u, c := visitOne(t, auth, hands)
			if tt.deny {
				auth.deny(access.ResourceStacks)
			}
			resp, err := c.PostForm(u.String()+"/stacks/apps/net/approve", url.Values{"plan": {"plan-main-1"}, "digest": {"sha256:abc"}})
			resp, page := readAll(t, resp, err)
			if resp.StatusCode != tt.status || len(hands.approved) != 0 {
				t.Errorf("%s, approved %q", resp.Status, hands.approved)
			}
			for _, s := range tt.says {
				if !strings.Contains(page, s) {
					t.Errorf("the page does not say %q", s)
				}
			}
			if strings.Contains(page, "secret detail") || strings.Contains(page, "data-live-every") {
				t.Error("the page says too much, or would be asked for again")
			}
		})
	}
}

// Who may look and not touch is shown the plan and the reason, and no form.
func TestApprovalsOfOthers(t *testing.T) {
	auth := newRoles()
	auth.deny(access.ResourceStacks)
	u, c := visitOne(t, auth, &deciding{})
	resp, err := c.Get(u.String() + "/approvals")
	_, page := readAll(t, resp, err)
	if strings.Contains(page, "/approve") || !strings.Contains(page, "You may not change the stack") || !strings.Contains(page, "plan-main-1") {
		t.Errorf("the page is not that of somebody who may only look:\n%s", page)
	}
}
