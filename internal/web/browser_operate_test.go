package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// commonEstate is one registry whose deletions are blocked.
type commonEstate struct{ query.TenantEstate }

func (commonEstate) RegistryDetail(_ context.Context, k query.Key) (query.RegistryDetail, error) {
	d := query.RegistryDetail{}
	d.Namespace, d.Name = k.Namespace, k.Name
	d.Blocked = &query.BlockedSet{Reason: "NoRows", Message: "a complete read had no rows", Count: 2, Tenants: []string{"acme-web", "globex-web"}, Token: "b81f3c"}
	return d, nil
}

// deputy records the commands to registries.
type deputy struct {
	command.TenantCommands
	done []string
	err  error
}

func (d *deputy) Allow(_ context.Context, k query.Key, token string) error {
	d.done = append(d.done, "allow "+k.String()+" "+token)
	return d.err
}

func (d *deputy) as(u access.User) (command.Person, error) {
	return command.Person{User: u, Tenants: d}, nil
}

// post sends a form as a browser without scripts does.
func post(t *testing.T, c *http.Client, address string, form url.Values) (*http.Response, string) {
	t.Helper()
	return ask(t, c, http.MethodPost, address, func(r *http.Request) {
		bearer(r)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		body := form.Encode()
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	})
}

// Deletions are allowed by a form alone: the page names them before, the browser is
// redirected to a notice, and the answer of the cluster is a page.
func TestDeletionsPassWithoutScripts(t *testing.T) {
	o := options(newRoles())
	d := &deputy{}
	o.Estate, o.People = commonEstate{}, d.as
	u, c := serve(t, o)
	registry := u.String() + "/registries/apps/customers"
	if resp, body := ask(t, c, http.MethodGet, registry, bearer); resp.StatusCode != http.StatusOK || !strings.Contains(body, "acme-web") || !strings.Contains(body, `name="token" value="b81f3c"`) {
		t.Fatalf("%s, want a page that names what goes: %s", resp.Status, body)
	}
	form := url.Values{"token": {"b81f3c"}, "count": {"2"}, "confirm": {"yes"}}
	if resp, body := post(t, c, registry+"/allow", form); resp.StatusCode != http.StatusUnprocessableEntity || len(d.done) != 0 || !strings.Contains(body, "type 2 or the name of the registry") {
		t.Errorf("%s and %v, want nothing done as long as nothing is typed: %s", resp.Status, d.done, body)
	}
	form.Set("confirm", "customers")
	resp, _ := post(t, c, registry+"/allow", form)
	to := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusSeeOther || !slices.Equal(d.done, []string{"allow apps/customers b81f3c"}) {
		t.Fatalf("%s to %q and %v, want exactly these deletions allowed", resp.Status, to, d.done)
	}
	if resp, body := ask(t, c, http.MethodGet, u.String()+to, bearer); resp.StatusCode != http.StatusOK || !strings.Contains(body, "Exactly these deletions are allowed") {
		t.Errorf("%s, want a sentence about the action: %s", resp.Status, body)
	}
	d.err = fault.New(fault.Conflict, query.ReasonTokenChanged, errors.New("other deletions are blocked by now"))
	if resp, body := post(t, c, registry+"/allow", form); resp.StatusCode != http.StatusConflict || !strings.Contains(body, "<!doctype html>") {
		t.Errorf("%s, want a page about what changed meanwhile: %s", resp.Status, body)
	}
}

// pagedAuditLog is an audit log with pages of one entry.
type pagedAuditLog struct {
	query.AuditLog
	entries []query.AuditEntry
	query   query.AuditQuery
	err     error // of all but the newest
}

func (j *pagedAuditLog) Entries(_ context.Context, sight query.AuditSight, q query.AuditQuery) (query.AuditPage, error) {
	j.query = q
	for i, e := range j.entries {
		if q.Before != 0 && e.Seq >= q.Before || !sight.Has(e.Object.Namespace) {
			continue
		}
		out := query.AuditPage{Items: []query.AuditEntry{e}}
		if i < len(j.entries)-1 {
			out.Next = e.Seq
		}
		if q.Before != 0 && j.err != nil {
			return query.AuditPage{}, j.err
		}
		return out, nil
	}
	return query.AuditPage{}, nil
}

// partial is a user who may see the audit log of some namespaces.
type partial struct {
	*roles
	namespaces []string
}

func (p partial) Authorize(ctx context.Context, u access.User, a access.Request) error {
	if !slices.Contains(p.namespaces, a.Namespace) {
		return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("not there"))
	}
	return p.roles.Authorize(ctx, u, a)
}

// unasked is a cluster that does not answer who may see the audit log of a namespace.
type unasked struct {
	*roles
	namespace string
}

func (u unasked) Authorize(ctx context.Context, by access.User, a access.Request) error {
	switch {
	case a.Resource == access.ResourceAudit && a.Namespace == u.namespace:
		return fault.New(fault.Later, access.ReasonBusy, errors.New("no answer"))
	case a.Resource == access.ResourceAudit && a.Namespace == "":
		return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("not of all"))
	}
	return u.roles.Authorize(ctx, by, a)
}

func TestExportOfTheAuditLog(t *testing.T) {
	at := func(namespace string) query.AuditObject {
		return query.AuditObject{Kind: "Terraform", Namespace: namespace, Name: "net"}
	}
	j := &pagedAuditLog{entries: []query.AuditEntry{{Seq: 9, What: "approved", Object: at("apps")}, {Seq: 8, What: "signed-in"}, {Seq: 7, What: "rejected", Object: at("other")}, {Seq: 6, What: "applied", Object: at("apps")}}}
	export := func(auth Auth, params string) (*http.Response, []uint64, error) {
		o := options(auth)
		o.AuditLog = j
		u, c := serve(t, o)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String()+"/audit/export"+params, nil)
		if err != nil {
			t.Fatal(err)
		}
		bearer(req)
		resp, err := c.Do(req)
		if err != nil {
			return nil, nil, err
		}
		defer resp.Body.Close()
		var got []uint64
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() && resp.StatusCode == http.StatusOK {
			var e query.AuditEntry
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("the line %q is no entry: %v", lines.Text(), err)
			}
			got = append(got, e.Seq)
		}
		return resp, got, lines.Err()
	}
	resp, got, err := export(newRoles(), "?who=ann&what=approved")
	if err != nil || !slices.Equal(got, []uint64{9, 8, 7, 6}) || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%v, %v, want all entries as a file", got, err)
	}
	if j.query.Who != "ann" || len(j.query.What) != 1 {
		t.Errorf("asked for %+v, want what the page's filters say", j.query)
	}
	if _, got, err = export(partial{newRoles(), []string{"apps"}}, ""); err != nil || !slices.Equal(got, []uint64{9, 6}) {
		t.Errorf("%v, %v, want the entries of the one namespace", got, err)
	}
	if resp, _, err = export(newRoles(), "?from=yesterday"); err != nil || resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("%v, %v, want no file of another time than was asked for", resp, err)
	}
	if resp, got, err = export(unasked{newRoles(), "apps"}, ""); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s %v, %v, want no file without the entries that nobody said are hidden", resp.Status, got, err)
	}
	if _, got, err = export(unasked{newRoles(), "other"}, ""); err == nil {
		t.Errorf("%v and no error: what could not be asked is taken for hidden", got)
	}
	j.err = errors.New("the disk is gone")
	if _, got, err = export(newRoles(), ""); err == nil {
		t.Errorf("%v and no error: half an audit log is taken for all of it", got)
	}
}
