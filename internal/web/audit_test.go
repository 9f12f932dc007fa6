package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// diary is an Audit that can be full.
type diary struct {
	mu      sync.Mutex
	entries []query.AuditEntry
	full    bool
}

func (d *diary) Record(_ context.Context, e query.AuditEntry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return errors.New("the disk is full")
	}
	d.entries = append(d.entries, e)
	return nil
}

func (d *diary) all() []query.AuditEntry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries
}

const outgrownPath = "/api/v1/namespaces/apps/stacks/net/outgrown"

// A denied command is in the audit log; a denied read is not.
func TestDeniedCommandsAreRecorded(t *testing.T) {
	auth, d := newRoles(), &diary{}
	auth.deny(access.ResourceState)
	o := options(auth)
	o.Audit = d
	u, c := serve(t, o)
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		if resp, _ := ask(t, c, method, u.String()+outgrownPath, bearer); resp.StatusCode != http.StatusForbidden {
			t.Fatalf("%s is answered with %s", method, resp.Status)
		}
	}
	if resp, _ := ask(t, c, http.MethodPut, u.String()+outgrownPath, nil); resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("a stranger is answered with %s", resp.Status)
	}
	all := d.all()
	if len(all) != 1 {
		t.Fatalf("recorded are %+v, want the one command", all)
	}
	e := all[0]
	if e.What != query.AuditDenied || e.Who != "ann" || e.Via != query.ViaAPI || e.Object.Namespace != "apps" || e.Object.Name != "net" ||
		e.Details["request"] != "PUT /api/v1/namespaces/:namespace/stacks/:name/outgrown" || e.Outcome != access.ReasonAccessDenied {
		t.Errorf("recorded is %+v", e)
	}
}

// Denied commands of one user do not fill the audit log, and their number is
// recorded once there is room again.
func TestDeniedCommandsAreBounded(t *testing.T) {
	auth, d := newRoles(), &diary{}
	auth.deny(access.ResourceState)
	o := options(auth)
	var mu sync.Mutex
	now := time.Now()
	o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	o.Audit = d
	u, c := serve(t, o)
	for range refusalsPerMinute + 7 {
		ask(t, c, http.MethodPut, u.String()+outgrownPath, bearer)
	}
	if n := len(d.all()); n != refusalsPerMinute {
		t.Errorf("%d refusals are recorded, want %d", n, refusalsPerMinute)
	}
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	ask(t, c, http.MethodPut, u.String()+outgrownPath, bearer)
	all := d.all()
	if last := all[len(all)-1]; len(all) != refusalsPerMinute+1 || last.Details["unrecorded"] != "7" {
		t.Errorf("after a minute the last of %d entries is %+v, want it to say that 7 are missing", len(all), last)
	}
}

// The denied commands of one user do not hide those of another, and those of all
// users do not fill the disk.
func TestDeniedCommandsHideNoOther(t *testing.T) {
	r, now := newRefusals(), time.Now()
	for range refusalsPerMinute + 5 {
		r.take("", now)
	}
	if left, ok := r.take("eve", now); !ok || left != 5 {
		t.Errorf("eve's first is recorded: %t, with %d left out before it; want it recorded, with 5", ok, left)
	}
	taken := refusalsPerMinute + 1
	for i := range 10 * refusalsOfAll {
		if _, ok := r.take("eve-"+strconv.Itoa(i), now); ok {
			taken++
		}
	}
	if taken != refusalsOfAll {
		t.Errorf("%d were recorded in a minute, want %d", taken, refusalsOfAll)
	}
}

// What is refused of many things at once is on record for each.
func TestWhatIsRefusedOfManyIsRecorded(t *testing.T) {
	auth, d := newRoles(), &diary{}
	row := query.Row{}
	o := options(auth)
	o.Audit, o.Board = d, boardOf{emptyBoard(), row}
	o.Scopes = func(context.Context, access.User) (access.Scope, error) { return access.Everything, nil }
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: onlyApps{}}, nil }
	u, c := serve(t, o)
	c.Transport = signed{c.Transport}
	resp, err := c.PostForm(u.String()+"/stacks", url.Values{"do": {"suspend"}, "stack": {"apps/net", "other/net", "other/dns"}})
	if resp, page := readAll(t, resp, err); resp.StatusCode != http.StatusOK || !strings.Contains(page, "other/dns") {
		t.Fatalf("%s: %s", resp.Status, page)
	}
	var got []string
	for _, e := range d.all() {
		got = append(got, string(e.What)+" "+e.Who+" "+string(e.Via)+" "+e.Object.Namespace+"/"+e.Object.Name+" "+e.Details["request"])
	}
	if want := []string{"denied ann ui other/net POST /stacks", "denied ann ui other/dns POST /stacks"}; !slices.Equal(got, want) {
		t.Errorf("recorded are %q, want %q", got, want)
	}
}

// onlyApps are the commands of a user who may suspend the stacks of one namespace.
type onlyApps struct{ command.StackCommands }

func (onlyApps) Suspend(_ context.Context, k query.Key) error {
	if k.Namespace != "apps" {
		return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("ann may not patch "+k.String()))
	}
	return nil
}

func TestSigningInIsRecorded(t *testing.T) {
	d := &diary{}
	b := newBrowser(t, func(o *Options) { o.Audit = d })
	b.post("/sign-in", url.Values{"token": {"wrong"}})
	b.signIn(token)
	own := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }
	b.post("/sign-out", url.Values{}, own)
	b.post("/sign-out", url.Values{}, own) // of no user
	all := d.all()
	if len(all) != 3 || all[0].What != query.AuditSignInRefused || all[0].Who != "" || all[1].What != query.AuditSignedIn || all[1].Who != "ann" ||
		all[2].What != query.AuditSignedOut || all[2].Who != "ann" {
		t.Fatalf("recorded are %+v, want a refusal and ann, in and out", all)
	}
	for _, e := range all {
		if e.Via != query.ViaUI || e.Object.Namespace != "" {
			t.Errorf("%s is via %s, about %+v; want the platform's pages", e.What, e.Via, e.Object)
		}
	}
}

// What cannot be recorded is not shown.
func TestAStateIsShownOnRecord(t *testing.T) {
	d := &diary{full: true}
	o := options(newRoles())
	o.Audit = d
	u, c := serve(t, o)
	address := u.String() + "/api/v1/namespaces/apps/stacks/net/state?reveal=true"
	if resp, body := ask(t, c, http.MethodGet, address, bearer); resp.StatusCode < 400 {
		t.Errorf("a state is shown that nobody could record: %s %s", resp.Status, body)
	}
}

// onItsWay are commands that record by which way a user approves.
type onItsWay struct {
	command.StackCommands
	ways *[]query.AuditVia
}

func (h onItsWay) Approve(ctx context.Context, _ query.Key, _ query.PlanInfo, _ string) (query.Stack, error) {
	*h.ways = append(*h.ways, access.ViaOf(ctx))
	return query.Stack{}, nil
}

// Pages, programs and the command line are told apart by what they decide.
func TestDecisionsKnowTheirWay(t *testing.T) {
	var ways []query.AuditVia
	u, c := visitOne(t, newRoles(), onItsWay{ways: &ways})
	resp, err := c.PostForm(u.String()+"/stacks/apps/net/approve", url.Values{"plan": {"plan-main-1"}, "digest": {"sha256:abc"}, "sure": {"yes"}})
	if resp, page := readAll(t, resp, err); resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s: %s", resp.Status, page)
	}
	for _, agent := range []string{"curl/8.0", query.ClientAgent} {
		resp, body := ask(t, c, http.MethodPost, u.String()+"/api/v1/namespaces/apps/stacks/net/approve", func(q *http.Request) {
			bearer(q)
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("User-Agent", agent)
			q.Body = io.NopCloser(strings.NewReader(`{"name":"plan-main-1","digest":"sha256:abc"}`))
		})
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", agent, resp.Status, body)
		}
	}
	if want := []query.AuditVia{query.ViaUI, query.ViaAPI, query.ViaCLI}; !slices.Equal(ways, want) {
		t.Errorf("approved on the ways %q, want %q", ways, want)
	}
}
