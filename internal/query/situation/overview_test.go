package situation_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/situation"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/vault/monitor"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// board has one page for each status.
type board struct {
	rows []query.Row
	err  error
	over bool // there are too few slots
}

func (b board) Page(scope access.Scope, q query.BoardQuery) (query.BoardPage, error) {
	p := query.BoardPage{Counts: map[query.Status]int{}}
	for _, r := range b.rows {
		if !scope.Has(r.Namespace) {
			continue
		}
		p.Counts[r.Status]++
		for _, s := range q.Statuses {
			if s == r.Status {
				p.Total++
				p.Items = append(p.Items, r)
			}
		}
	}
	return p, b.err
}

func (b board) Capacity(query.Slots) (query.CapacityInfo, error) {
	return query.CapacityInfo{CycleMet: !b.over, Warning: "Set --max-runs to 9."}, nil
}

type line struct{ query.Queue }

func (line) Line() schedule.Line {
	return schedule.Line{Running: []schedule.Turn{{Namespace: "apps"}, {Namespace: "hidden"}}, Waiting: []schedule.Turn{{Namespace: "hidden"}}}
}
func (line) Backlog() schedule.Backlog { return schedule.Backlog{MaxRuns: 4} }

type flux struct {
	situation.Listed
	err error
}

func (f flux) List(context.Context, access.Scope) (situation.Listed, error) { return f.Listed, f.err }

func row(namespace, name string, status query.Status) query.Row {
	return query.Row{Stack: query.Stack{Namespace: namespace, Name: name, Message: "message of " + name, Since: now.Add(-time.Hour)}, Status: status}
}

func fine() situation.Asked {
	return situation.Asked{
		Board: board{rows: []query.Row{row("apps", "cart", query.StatusReady)}}, Queue: line{}, Version: "v1", Now: now, Scope: access.Everything,
		Vaults: func() []monitor.Status { return []monitor.Status{{Address: "bao:8200", State: monitor.Active}} },
		Flux:   flux{Listed: situation.Listed{Objects: []situation.Object{{Kind: "GitRepository", Namespace: "apps", Name: "modules", Ready: "True"}}}},
		Checks: []situation.Check{{Name: "Records", Ask: func(context.Context) error { return nil }}},
	}
}

func part(t *testing.T, o situation.Overview, name string) situation.Part {
	t.Helper()
	for _, p := range o.Parts {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no part %s in %+v", name, o)
	return situation.Part{}
}

// Each way in which something is wrong makes its part what it should be, and the worst comes first.
func TestTheWorstComesFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		wrong func(*situation.Asked)
		part  string
		level situation.Level
		says  string // of the first item, or the text without one
	}{
		"all is well":           {func(*situation.Asked) {}, situation.Stacks, situation.Good, "1 stack: 1 ready"},
		"a stack failed":        {func(a *situation.Asked) { a.Board = board{rows: []query.Row{row("apps", "mail", query.StatusFailed)}} }, situation.Stacks, situation.Bad, "terrier explain mail -n apps"},
		"a stack drifted":       {func(a *situation.Asked) { a.Board = board{rows: []query.Row{row("apps", "mail", query.StatusDrifted)}} }, situation.Stacks, situation.Attention, "message of mail"},
		"a plan is pending":     {func(a *situation.Asked) { a.Board = board{rows: []query.Row{row("apps", "mail", query.StatusPending)}} }, situation.Plans, situation.Attention, "terrier plan mail -n apps"},
		"stacks are not read":   {func(a *situation.Asked) { a.Board = board{err: errors.New("not read yet")} }, situation.Stacks, situation.Bad, "Not known: not read yet"},
		"a Vault is sealed":     {func(a *situation.Asked) { a.Vaults = vaults(monitor.Sealed) }, situation.Vault, situation.Bad, "vault operator unseal"},
		"a Vault is away":       {func(a *situation.Asked) { a.Vaults = vaults(monitor.Unreachable) }, situation.Vault, situation.Bad, "unreachable"},
		"a Vault is a standby":  {func(a *situation.Asked) { a.Vaults = vaults(monitor.Standby) }, situation.Vault, situation.Good, "bao:8200 standby"},
		"there is no Vault":     {func(a *situation.Asked) { a.Vaults = nil }, situation.Vault, situation.Unused, "uses no OpenBao"},
		"an object is broken":   {func(a *situation.Asked) { a.Flux = object("False", false) }, situation.Flux, situation.Bad, "not ready: BuildFailed"},
		"an object reconciles":  {func(a *situation.Asked) { a.Flux = object("Unknown", false) }, situation.Flux, situation.Attention, "reconciling"},
		"an object is held":     {func(a *situation.Asked) { a.Flux = object("False", true) }, situation.Flux, situation.Attention, "suspended"},
		"no object may be seen": {func(a *situation.Asked) { a.Flux = flux{Listed: situation.Listed{Denied: []string{"HelmRelease"}}} }, situation.Flux, situation.Unused, "that you may list"},
		"Flux is not answered":  {func(a *situation.Asked) { a.Flux = flux{err: errors.New("no API server")} }, situation.Flux, situation.Bad, "Not known"},
		"a check fails": {func(a *situation.Asked) {
			a.Checks[0].Ask = func(context.Context) error { return errors.New("disk full") }
		}, situation.Server, situation.Bad, "disk full"},
		"one controller":                   {func(*situation.Asked) {}, situation.Controllers, situation.Unused, "One controller reconciles all stacks"},
		"controllers share the stacks":     {func(a *situation.Asked) { a.Sharing = sharing(false, 128, 0) }, situation.Controllers, situation.Good, "2 controllers, a leads"},
		"a controller is gone":             {func(a *situation.Asked) { a.Sharing = sharing(true, 0, 0) }, situation.Controllers, situation.Attention, "Its Lease lease-b is not renewed"},
		"stacks wait for one that is gone": {func(a *situation.Asked) { a.Sharing = sharing(true, 128, 0) }, situation.Controllers, situation.Bad, "128 shards of stacks wait"},
		"stacks have no controller":        {func(a *situation.Asked) { a.Sharing = sharing(false, 100, 28) }, situation.Controllers, situation.Attention, "28 shards without a controller"},
		"no controller leads": {func(a *situation.Asked) {
			a.Sharing = func(context.Context) (situation.Sharing, error) {
				return situation.Sharing{Controllers: []situation.Controller{{Name: "a", Leads: true, Stale: true, Lease: "lease-a"}, {Name: "b", Lease: "lease-b", Shards: 256}}}, nil
			}
		}, situation.Controllers, situation.Bad, "No controller leads"},
		"Leases cannot be read": {func(a *situation.Asked) {
			a.Sharing = func(context.Context) (situation.Sharing, error) {
				return situation.Sharing{}, errors.New("no API server")
			}
		}, situation.Controllers, situation.Bad, "Not known: no API server"},
		"slots are too few": {func(a *situation.Asked) { a.Board = board{over: true} }, situation.Queue, situation.Attention, "Set --max-runs to 9."},
	} {
		t.Run(name, func(t *testing.T) {
			a := fine()
			tt.wrong(&a)
			o := situation.Of(t.Context(), a)
			p := part(t, o, tt.part)
			said, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if p.Level != tt.level || !strings.Contains(string(said), tt.says) {
				t.Errorf("the part is %s, want %s with %q in it", said, tt.level, tt.says)
			}
			if o.Level != o.Parts[0].Level {
				t.Errorf("the whole is %s and its first part %s, want the same", o.Level, o.Parts[0].Level)
			}
			for i := 1; i < len(o.Parts); i++ {
				if o.Parts[i-1].Level.Compare(o.Parts[i].Level) > 0 {
					t.Errorf("%s (%s) comes before %s (%s)", o.Parts[i-1].Name, o.Parts[i-1].Level, o.Parts[i].Name, o.Parts[i].Level)
				}
			}
		})
	}
}

func vaults(s monitor.State) func() []monitor.Status {
	next := ""
	if s == monitor.Sealed {
		next = "vault operator unseal"
	}
	return func() []monitor.Status {
		return []monitor.Status{{Address: "bao:8200", State: s, Message: "secret.internal does not answer", Next: next}}
	}
}

// sharing is two controllers, the first of which leads.
func sharing(stale bool, shards, unowned int) func(context.Context) (situation.Sharing, error) {
	return func(context.Context) (situation.Sharing, error) {
		return situation.Sharing{Unowned: unowned, Controllers: []situation.Controller{
			{Name: "a", URL: "https://secret.internal", Leads: true, Shards: 256 - shards - unowned, Lease: "lease-a"}, {Name: "b", Shards: shards, Lease: "lease-b", Stale: stale},
		}}, nil
	}
}

func object(ready string, suspended bool) situation.Objects {
	return flux{Listed: situation.Listed{Objects: []situation.Object{{Kind: "Kustomization", Namespace: "flux-system", Name: "apps", Ready: ready, Reason: "BuildFailed", Suspended: suspended}}}}
}

// A user with rights in one namespace learns nothing of the others, and nothing of the server
// but that something is wrong.
func TestAUserSeesWhatTheyMaySee(t *testing.T) {
	a := fine()
	a.Board = board{rows: []query.Row{row("apps", "cart", query.StatusReady), row("hidden", "secret-mail", query.StatusFailed)}, over: true}
	a.Vaults = vaults(monitor.Unreachable)
	a.Checks[0].Ask = func(context.Context) error { return errors.New("open /var/lib/secret-path") }
	a.Sharing = sharing(true, 128, 0)
	o := situation.Of(t.Context(), a.For(access.Scope{In: map[string]bool{"apps": true}}, nil, now))
	said, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{"secret-mail", "secret.internal", "secret-path", "--max-runs", "lease-b"} {
		if strings.Contains(string(said), hidden) {
			t.Errorf("the answer names %s: %s", hidden, said)
		}
	}
	if p := part(t, o, situation.Queue); p.Text != "1 run running, 0 queued, 4 at once" {
		t.Errorf("the queue is %q, want the run of the visible namespace alone", p.Text)
	}
	if p := part(t, o, situation.Stacks); p.Level != situation.Good {
		t.Errorf("stacks are %s, want those of the visible namespace", p.Level)
	}
	if o.Level != situation.Bad || part(t, o, situation.Vault).Items[0].Next != "Ask the operator of this server" {
		t.Errorf("the answer is %s, want that the Vault is bad and whom to ask", said)
	}
}

// Objects of Flux are listed with the rights of the user: all of them, else those of the
// namespaces in scope. A kind that the cluster does not have is no error.
func TestObjectsOfFlux(t *testing.T) {
	list := func(kind, name, ready string) string {
		return `{"apiVersion":"v1","kind":"List","metadata":{},"items":[{"apiVersion":"x/v1","kind":"` + kind + `","metadata":{"name":"` + name + `","namespace":"apps"},` +
			`"spec":{},"status":{"lastAppliedRevision":"main@sha1:1","conditions":[{"type":"Ready","status":"` + ready + `","reason":"R","message":"see https://u:hunter2@git/x","lastTransitionTime":"2026-03-01T11:00:00Z"}]}}]}`
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		code, body := http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		forbidden := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
		switch r.URL.Path {
		case "/apis/source.toolkit.fluxcd.io/v1/gitrepositories":
			code, body = http.StatusOK, list("GitRepository", "modules", "True")
		case "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations", "/apis/helm.toolkit.fluxcd.io/v2/helmreleases", "/apis/helm.toolkit.fluxcd.io/v2/namespaces/apps/helmreleases":
			code, body = http.StatusForbidden, forbidden
		case "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/apps/kustomizations":
			code, body = http.StatusOK, list("Kustomization", "site", "False")
		}
		w.WriteHeader(code)
		if _, err := w.Write([]byte(body)); err != nil {
			t.Error(err)
		}
	}))
	defer h.Close()
	objects, err := situation.NewFluxObjects(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	got, err := objects.List(t.Context(), access.Scope{In: map[string]bool{"apps": true}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Objects) != 2 || got.Objects[0].Name != "modules" || got.Objects[1].Name != "site" || got.Objects[1].Ready != "False" || got.Objects[1].Revision != "main@sha1:1" || got.Objects[1].Since.IsZero() {
		t.Errorf("the objects are %+v, want a repository of all namespaces and a Kustomization of one", got.Objects)
	}
	if len(got.Denied) != 1 || got.Denied[0] != "HelmRelease" || strings.Contains(got.Objects[0].Message, "hunter2") {
		t.Errorf("denied are %v and the message is %q, want HelmRelease and no password", got.Denied, got.Objects[0].Message)
	}
}
