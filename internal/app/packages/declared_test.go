package packages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry/origin"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/web"
)

// heard are the events of objects.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) Event(obj client.Object, kind, reason, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, strings.Join([]string{obj.GetName(), kind, reason, message}, " "))
}

func (h *heard) has(parts ...string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		found := true
		for _, p := range parts {
			found = found && strings.Contains(e, p)
		}
		if found {
			return true
		}
	}
	return false
}

// all may read everything.
type all struct{ roles }

func (all) Authorize(context.Context, access.User, access.Request) error { return nil }

// unlimited is a namespace without quotas of its own.
func unlimited(context.Context, string) (access.Namespace, error) { return access.Namespace{}, nil }

// A GitRepository with annotations publishes in the namespace of its own, and in no other; a
// mistake is an event, and in the list of repositories.
func TestRepositoriesOfObjects(t *testing.T) {
	c := testkit.Kube(t, sourcev1.AddToScheme)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": ""})
	g.Do("tag", "v1.0.0")
	g.Do("push", "--quiet", "origin", "v1.0.0")
	c.Apply(t, g.Manifest("plain"))
	for name, annotations := range map[string]string{
		"vpc":       `{registry.terrier.dev/module: vpc/aws, registry.terrier.dev/webhook-secret: hook}`,
		"elsewhere": `{registry.terrier.dev/module: platform/vpc/aws}`,
		"typo":      `{registry.terrier.dev/modul: vpc/aws}`,
		"nameless":  `{registry.terrier.dev/tags: "{version}"}`,
	} {
		c.Apply(t, fmt.Sprintf("apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: %s, annotations: %s}\nspec: {interval: 1h, url: %s, secretRef: {name: plain-login}}\n", name, annotations, g.URL))
	}
	c.Apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: hook}\nstringData: {token: correct-horse-battery}\n")

	allow, err := outbound.ParseAllow("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	defer out.Close()
	p, err := Open(t.Context(), Options{
		Dir: t.TempDir(), Scratch: t.TempDir(), Key: strings.Repeat("k", 32), Auth: all{}, Out: out, Namespace: unlimited, Registerer: prometheus.NewRegistry(),
		Environ: func(string) string { return "" }, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string, header http.Header) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.Header = header
		w := httptest.NewRecorder()
		p.ServeHTTP(deadlines{w}, r.WithContext(web.WithUser(r.Context(), access.User{Name: "ann"})))
		return w.Code, w.Body.String()
	}
	if code, body := ask(http.MethodGet, "/v1/repositories", nil); code != http.StatusServiceUnavailable {
		t.Errorf("before the controllers begin, the list of repositories is %d %s, want 503", code, body)
	}
	events := &heard{}
	p.FollowObjects(Cluster{Objects: c.Client, Live: c.Client, Events: events})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Follow(ctx) }()
	defer func() {
		stop()
		if err := errors.Join(<-ended, p.Close()); err != nil {
			t.Error(err)
		}
	}()
	testkit.Eventually(t, testkit.Patience, "events of all objects", func(context.Context) error {
		if events.has("vpc Normal VersionPublished", "/vpc/aws 1.0.0 from the tag v1.0.0") && events.has("elsewhere Warning "+origin.ReasonSettings) &&
			events.has("typo Warning", "there is no annotation registry.terrier.dev/modul:") && events.has("nameless Warning", "registry.terrier.dev/module is missing") {
			return nil
		}
		events.mu.Lock()
		defer events.mu.Unlock()
		return fmt.Errorf("the events are %q", events.all)
	})
	if events.has("plain ") {
		t.Error("an object without annotations has an event")
	}
	if code, body := ask(http.MethodGet, "/v1/modules/"+c.Namespace+"/vpc/aws/1.0.0", nil); code != http.StatusOK || !strings.Contains(body, `"tag":"v1.0.0"`) {
		t.Errorf("the version is %d %s", code, body)
	}
	if code, body := ask(http.MethodGet, "/v1/modules/platform/vpc/aws/versions", nil); code != http.StatusNotFound {
		t.Errorf("the module of another namespace is %d %s, want 404", code, body)
	}
	if code, body := ask(http.MethodGet, "/v1/repositories", nil); code != http.StatusOK || !strings.Contains(body, "publishes in the namespace where it is registered") || strings.Contains(body, `"name":"plain"`) {
		t.Errorf("the list of repositories is %d %s", code, body)
	}
	hook := func(token string) int {
		code, _ := ask(http.MethodPost, "/v1/webhooks/"+c.Namespace+"/vpc", http.Header{"X-Gitlab-Token": {token}})
		return code
	}
	if right, wrong := hook("correct-horse-battery"), hook("wrong"); right != http.StatusAccepted || wrong != http.StatusUnauthorized {
		t.Errorf("the webhook with the right token is %d, with a wrong one %d", right, wrong)
	}
}

// deadlines is a recorder of which deadlines can be set.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetReadDeadline(time.Time) error  { return nil }
func (deadlines) SetWriteDeadline(time.Time) error { return nil }

// What an object asks for is read from the Secrets beside it.
func TestAccessOfObjects(t *testing.T) {
	c := testkit.Kube(t, sourcev1.AddToScheme)
	c.Apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: git}
stringData: {deploy: private, known_hosts: line}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {release.asc: public}
---
apiVersion: v1
kind: Secret
metadata: {name: empty}
stringData: {other: x}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata:
  name: vpc
  annotations: {registry.terrier.dev/module: vpc/aws, registry.terrier.dev/webhook-secret: empty, terrier.dev/ssh-key: deploy, reconcile.fluxcd.io/requestedAt: now}
spec: {interval: 5m, timeout: 20s, suspend: true, url: "ssh://git@git.example.com/vpc.git", secretRef: {name: git}, verify: {mode: Tag, secretRef: {name: keys}}}
`)
	var o sourcev1.GitRepository
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: c.Namespace, Name: "vpc"}, &o); err != nil {
		t.Fatal(err)
	}
	d := &declared{}
	r := d.repository(Cluster{Objects: c.Client, Live: c.Client, Events: &heard{}}, &o)
	if r.Key != (origin.Key{Namespace: c.Namespace, Name: "vpc"}) || r.Interval != 5*time.Minute || r.Timeout != 20*time.Second || !r.Suspended || r.Mode != "Tag" || r.Requested != "now" || r.Check() != nil {
		t.Errorf("the repository is %+v, %v", r, r.Check())
	}
	a, err := r.Access(t.Context())
	if err != nil || a.Auth.Identity != secret.New("private") || string(a.Auth.KnownHosts) != "line" || string(a.Keys["release.asc"]) != "public" {
		t.Errorf("Access() = %+v, %v", a, err)
	}
	if _, err := r.Secret(t.Context()); err == nil || !strings.Contains(err.Error(), `has no key "token"`) {
		t.Errorf("the secret of a webhook that is not there: %v", err)
	}
	o.Annotations["terrier.dev/ssh-key"] = "other"
	if _, err := r.Access(t.Context()); err == nil || !strings.Contains(err.Error(), `has no key "other"`) {
		t.Errorf("a key that is not there: %v", err)
	}
	o.Spec.ServiceAccountName = "x"
	if err := d.repository(Cluster{}, &o).Check(); err == nil || !strings.Contains(err.Error(), "spec.serviceAccountName is not supported") {
		t.Errorf("a field that is not supported: %v", err)
	}
}
