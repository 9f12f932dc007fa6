package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/config/crd"
	"github.com/terrier-iac/terrier/internal/controller/tenants/admission"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Every route has a replica that answers it. A page or an answer that one replica alone
// knows is never taken from another one.
func TestEveryRouteHasAReplica(t *testing.T) {
	want := map[string]answerer{}
	for by, paths := range map[answerer]string{
		eachReplica: `/healthz /readyz /static/*path /validate-a-kind /sync /finalize /customize /sign-out /api /api/v1/version /api/v1/openapi.json
			/.well-known/terraform.json /v1/archives/*path /v1/mirror/*path /v1/modules/*path /v1/providers/*path /v1/repositories /v1/webhooks/*path /v1/signing-keys /v1/usage/*path
			/v1/identity/tokens /.well-known/openid-configuration /.well-known/jwks.json
			/tokens /tokens/:id/revoke /api/v1/registry/tokens /api/v1/registry/tokens/:id/revoke /api/v1/namespaces/:namespace/registry/tokens /api/v1/modules/uses /api/v1/providers/uses`,
		leaderOrHere: `/sign-in /sign-in/issuer /sign-in/callback /stacks /approvals /drift /graph
			/api/v1/stacks /api/v1/approvals /api/v1/drift /api/v1/events /api/v1/namespaces/:namespace/stacks
			/registry /registry/modules/:namespace/:name/:system /registry/modules/:namespace/:name/:system/:version/archive
			/registry/providers/:namespace/:name /registry/keys/:namespace /registry/mirror /registry/mirror/:host/:namespace/:name
			/registry/repositories /registry/repositories/:namespace/:name /registry/ca.crt
			/api/v1/registry /api/v1/registry/mirror /api/v1/namespaces/:namespace/registry/modules/:name/:system
			/api/v1/namespaces/:namespace/registry/providers/:name /api/v1/namespaces/:namespace/registry/keys`,
		leaderOnly: `/login/authorize /login/token / /about /status /queue /sources /sources/:kind/:namespace/:name /notifications /audit /audit/verify /audit/export
			/retained /retained/:namespace/:name/state /retained/:namespace/:name/forget /tenants /tenants/:namespace/:name
			/registries/:namespace/:name /registries/:namespace/:name/allow /registries/:namespace/:name/read
			/registries/:namespace/:name/suspend /registries/:namespace/:name/resume
			/templates/:namespace/:name /templates/:namespace/:name/resume /templates/:namespace/:name/undo
			/api/v1/sign-in-links /api/v1/status /api/v1/queue /api/v1/sources /api/v1/notifications /api/v1/audit /api/v1/audit/verify
			/api/v1/retained /api/v1/tenants /api/v1/states
			/api/v1/namespaces/:namespace/retained/:name/state /api/v1/namespaces/:namespace/retained/:name/forget
			/api/v1/namespaces/:namespace/tenants /api/v1/namespaces/:namespace/tenants/:name
			/api/v1/namespaces/:namespace/registries/:name /api/v1/namespaces/:namespace/registries/:name/allow
			/api/v1/namespaces/:namespace/registries/:name/read-now /api/v1/namespaces/:namespace/registries/:name/suspend
			/api/v1/namespaces/:namespace/registries/:name/resume
			/api/v1/namespaces/:namespace/templates/:name /api/v1/namespaces/:namespace/templates/:name/render
			/api/v1/namespaces/:namespace/templates/:name/rollout/resume /api/v1/namespaces/:namespace/templates/:name/rollout/undo
			/artifacts/*path /v2/*path`,
		ownerOnly: `/stacks/:namespace/:name/runs /stacks/:namespace/:name/runs/:run /stacks/:namespace/:name/runs/:run/log
			/api/v1/namespaces/:namespace/stacks/:name/runs /api/v1/namespaces/:namespace/stacks/:name/runs/:run
			/api/v1/namespaces/:namespace/stacks/:name/runs/:run/report /api/v1/namespaces/:namespace/stacks/:name/runs/:run/log`,
	} {
		for path := range strings.FieldsSeq(paths) {
			want[path] = by
		}
	}
	engine, err := build(options(newRoles()))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range engine.Routes() {
		by, ok := want[r.Path]
		if !ok && (strings.HasPrefix(r.Path, "/stacks/:namespace/:name") || strings.HasPrefix(r.Path, oneStack)) {
			by, ok = ownerOrHere, true
		}
		if !ok {
			t.Errorf("%s %s: say which replica answers it, in replicas.go and here", r.Method, r.Path)
		}
		if got := answeredBy(r.Path); got != by {
			t.Errorf("%s is answered by %d, want %d", r.Path, got, by)
		}
	}
	webhooks, err := admission.Handlers(crd.Files, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	for path := range webhooks {
		if got := answeredBy(path); got != eachReplica {
			t.Errorf("the webhook %s is answered by %d, want each replica: say so in replicas.go", path, got)
		}
	}
	for _, rule := range answerers {
		is := func(path string) bool {
			return path == rule.path || strings.HasSuffix(rule.path, "*") && strings.HasPrefix(path, strings.TrimSuffix(rule.path, "*"))
		}
		served := slices.ContainsFunc(slices.Collect(maps.Keys(webhooks)), is) ||
			slices.ContainsFunc(engine.Routes(), func(r gin.RouteInfo) bool { return is(r.Path) })
		if !served {
			t.Errorf("the rule of %s is about no route", rule.path)
		}
	}
}

// three are this replica, the leader and the owner of a stack.
type three struct {
	leader, owner     *other // nil if it is this one
	noLeader, noOwner bool
	forwarded         bool
	asked             query.Key
}

type other struct {
	name  string
	down  bool
	reads bool // the body
}

func (o *other) Answer(w http.ResponseWriter, r *http.Request, refuse func(error)) {
	if o.down {
		refuse(fault.Wait(0, "ReplicaUnreachable", errors.New("it does not answer")))
		return
	}
	if o.reads {
		if _, err := io.ReadAll(r.Body); err != nil {
			refuse(err)
			return
		}
	}
	clear(w.Header())
	fmt.Fprintf(w, "%s answers %s", o.name, r.URL.Path)
}

func (r *three) Leader() (Replica, bool) { return replicaOr(r.leader, !r.noLeader) }

func (r *three) Owner(k query.Key) (Replica, bool) {
	r.asked = k
	return replicaOr(r.owner, !r.noOwner)
}

func (r *three) Forwarded(context.Context) bool { return r.forwarded }

func replicaOr(o *other, is bool) (Replica, bool) {
	if o == nil {
		return nil, is
	}
	return o, is
}

// A request reaches the replica that is to answer it, and a user reads a plain sentence
// while there is none.
func TestRequestsReachTheirReplica(t *testing.T) {
	a, b := &other{name: "a"}, &other{name: "b"}
	const board, queue, stack, run = "/api/v1/stacks", "/api/v1/queue", "/api/v1/namespaces/apps/stacks/net", "/api/v1/namespaces/apps/stacks/net/runs/plan-1/log"
	for name, tt := range map[string]struct {
		replicas three
		path     string
		status   int
		says     string
	}{
		"the leader has the queue":                     {three{leader: a, owner: b}, queue, 200, "a answers " + queue},
		"the owner has the run":                        {three{leader: a, owner: b}, run, 200, "b answers " + run},
		"this replica is the leader":                   {three{owner: b}, queue, 200, `"maxRuns":4`},
		"this replica is the owner":                    {three{leader: a}, stack, 200, `"name":"net"`},
		"each one says its version":                    {three{leader: a, owner: b}, "/api/v1/version", 200, `"version":"v1"`},
		"no leader, and no queue":                      {three{noLeader: true}, queue, 503, "no leader for a moment"},
		"no leader, and the board of this one":         {three{noLeader: true}, board, 200, `"items":`},
		"no owner, and the stack from the cluster":     {three{noOwner: true}, stack, 200, `"name":"net"`},
		"no owner, and its run may be anywhere":        {three{noOwner: true}, run, 503, "moving to another replica"},
		"no owner, and nothing here is no proof":       {three{noOwner: true}, strings.Replace(stack, "net", "web", 1), 503, "moving to another replica"},
		"the leader does not answer":                   {three{leader: &other{down: true}}, queue, 503, "does not answer"},
		"it does not, and the board is the same":       {three{leader: &other{down: true}}, board, 200, `"items":`},
		"the owner does not answer":                    {three{owner: &other{down: true}}, run, 503, "does not answer"},
		"it does not, and the cluster has the stack":   {three{owner: &other{down: true}}, stack, 200, `"name":"net"`},
		"it was sent here, and the board is the same":  {three{leader: a, forwarded: true}, board, 200, `"items":`},
		"a stack of another kind":                      {three{owner: b}, "/api/v1/namespaces/apps/stacks/Terraform.infra.contrib.fluxcd.io~net", 200, "b answers"},
		"an address without a route is answered here":  {three{leader: a, owner: b}, "/nothing", 404, "no page or API"},
		"another host name is refused before anything": {three{leader: a}, "//evil/", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(newRoles())
			o.Replicas = &tt.replicas
			u, c := serve(t, o)
			resp, body := ask(t, c, http.MethodGet, u.String()+tt.path, bearer)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.says) {
				t.Errorf("%s %s, want %d with %q", resp.Status, body, tt.status, tt.says)
			}
			if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
				t.Error("it does not say when to come again")
			}
		})
	}
}

// A request that another replica forwarded may have a name that only that one has.
func TestForwardedHostIsTrusted(t *testing.T) {
	for forwarded, want := range map[bool]int{true: http.StatusOK, false: http.StatusForbidden} {
		o := options(newRoles())
		o.Replicas = &three{forwarded: forwarded}
		u, c := serve(t, o)
		resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/queue", func(r *http.Request) { bearer(r); r.Host = "10.0.0.7:8443" })
		if resp.StatusCode != want {
			t.Errorf("forwarded %v: %s %s, want %d", forwarded, resp.Status, body, want)
		}
	}
}

// What a client sends beside a request that has no body reaches no other replica: a
// handler here would not read it, either.
func TestBodyOfAReadIsNotForwarded(t *testing.T) {
	o := options(newRoles())
	o.Replicas = &three{leader: &other{name: "a", reads: true}}
	u, c := serve(t, o)
	resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/queue", func(r *http.Request) {
		bearer(r)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("null")), 4
	})
	if resp.StatusCode != http.StatusOK || body != "a answers /api/v1/queue" {
		t.Errorf("%s %s, want the answer of the leader", resp.Status, body)
	}
}

// A browser gets a page that loads itself again.
func TestPageWithoutALeader(t *testing.T) {
	o := options(newRoles())
	o.Replicas = &three{noLeader: true}
	u, c := serve(t, o)
	resp, body := ask(t, c, http.MethodGet, u.String()+"/queue", bearer)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "<!doctype html>") || !strings.Contains(body, "no leader for a moment") {
		t.Errorf("%s %s, want a page", resp.Status, body)
	}
}
