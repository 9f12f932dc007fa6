package web

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

var _ = addDoors(map[string]string{
	"GET /api/v1/retained": "list terraforms",
	"GET /api/v1/namespaces/:namespace/retained/:name/state":   "get terraforms/state apps/net",
	"POST /api/v1/namespaces/:namespace/retained/:name/forget": "delete terraforms apps/net",
})

// leftovers are the record of one stack that is gone.
type leftovers struct{ forgotten []string }

func (l *leftovers) For(command.Formers) command.RetainedStacks { return l }

func (l *leftovers) List(_ context.Context, namespace string) ([]command.Retained, error) {
	if len(l.forgotten) > 0 {
		return nil, nil
	}
	return []command.Retained{{Namespace: cmp.Or(namespace, "apps"), Name: "net", UID: "u1", Kept: true}}, nil
}

func (l *leftovers) State(context.Context, query.Key, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(`{"serial":3}`)), nil
}

func (l *leftovers) Forget(_ context.Context, key query.Key, uid string) error {
	l.forgotten = append(l.forgotten, key.String()+" "+uid)
	return nil
}

// Deleting a record, or reading the state in it, requires an entry in the audit log
// first. Without a writable audit log neither happens.
func TestWhatStacksLeftIsTouchedOnTheRecord(t *testing.T) {
	l, auditLog, o := &leftovers{}, &ledger{}, options(newRoles())
	o.Retained, o.Audit = l, auditLog
	o.People = func(access.User) (command.Person, error) { return command.Person{Stacks: hands{}}, nil }
	u, c := serve(t, o)
	one := u.String() + "/api/v1/namespaces/apps/retained/net"
	forget := func(body string) int {
		resp, _ := ask(t, c, http.MethodPost, one+"/forget", func(r *http.Request) {
			bearer(r)
			r.Header.Set("Content-Type", "application/json")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		})
		return resp.StatusCode
	}
	if resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/retained?namespace=apps", bearer); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"uid":"u1"`) {
		t.Errorf("the list is %d %s", resp.StatusCode, body)
	}
	if got := forget("{}"); got != http.StatusUnprocessableEntity || len(l.forgotten) > 0 {
		t.Errorf("without a UID it is %d, and %v is forgotten", got, l.forgotten)
	}
	if got := forget(`{"uid":"u1"}`); got != http.StatusNoContent || len(l.forgotten) != 1 || l.forgotten[0] != "apps/net u1" {
		t.Errorf("it is %d, and %v is forgotten", got, l.forgotten)
	}
	if resp, body := ask(t, c, http.MethodGet, one+"/state?uid=u1", bearer); resp.StatusCode != http.StatusOK || body != `{"serial":3}` {
		t.Errorf("the state is %d %s", resp.StatusCode, body)
	}
	if got := strings.Join(auditLog.what(), ", "); got != "retained-forgotten ann apps/net, state-read ann apps/net" {
		t.Errorf("the audit log says %q", got)
	}
	auditLog.err = errors.New("the disk is full")
	if got := forget(`{"uid":"u1"}`); got < 500 || len(l.forgotten) != 1 {
		t.Errorf("without an audit log it is %d, and %v is forgotten", got, l.forgotten)
	}
	if resp, body := ask(t, c, http.MethodGet, one+"/state?uid=u1", bearer); resp.StatusCode < 500 || strings.Contains(body, "serial") {
		t.Errorf("without an audit log the state is %d %s", resp.StatusCode, body)
	}
}

// The pages do the same, without scripts: the second click of two does nothing.
func TestWhatStacksLeftIsTouchedOnTheRecordInABrowser(t *testing.T) {
	l, auditLog, o := &leftovers{}, &ledger{}, options(newRoles())
	o.Retained, o.Audit = l, auditLog
	o.People = func(access.User) (command.Person, error) { return command.Person{Stacks: hands{}}, nil }
	u, c := serve(t, o)
	one := u.String() + "/retained/apps/net"
	if resp, body := ask(t, c, http.MethodGet, u.String()+"/retained", bearer); resp.StatusCode != http.StatusOK || !strings.Contains(body, `action="/retained/apps/net/forget"`) || !strings.Contains(body, `href="/retained/apps/net/state?uid=u1"`) {
		t.Errorf("%s, want a page that offers what can be done: %s", resp.Status, body)
	}
	resp, body := ask(t, c, http.MethodGet, one+"/state?uid=u1", bearer)
	if resp.StatusCode != http.StatusOK || body != `{"serial":3}` || resp.Header.Get("Content-Disposition") != `attachment; filename="net.tfstate"` || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the state is %d %s with %v", resp.StatusCode, body, resp.Header)
	}
	if resp, _ := post(t, c, one+"/forget", url.Values{"uid": {"u1"}}); resp.StatusCode != http.StatusUnprocessableEntity || len(l.forgotten) > 0 {
		t.Errorf("with nothing typed it is %d, and %v is forgotten", resp.StatusCode, l.forgotten)
	}
	for range 2 {
		if resp, _ := post(t, c, one+"/forget", url.Values{"uid": {"u1"}, "name": {"net"}}); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/retained?done=retained-forgotten" {
			t.Errorf("it is %d to %q", resp.StatusCode, resp.Header.Get("Location"))
		}
	}
	if got := strings.Join(auditLog.what(), ", "); got != "state-read ann apps/net, retained-forgotten ann apps/net" || len(l.forgotten) != 1 {
		t.Errorf("the audit log says %q, and %v is forgotten", got, l.forgotten)
	}
	l.forgotten, auditLog.err = nil, errors.New("the disk is full")
	if resp, _ := post(t, c, one+"/forget", url.Values{"uid": {"u1"}, "name": {"net"}}); resp.StatusCode < 500 || len(l.forgotten) > 0 {
		t.Errorf("without an audit log it is %d, and %v is forgotten", resp.StatusCode, l.forgotten)
	}
}
