package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// lab is a namespace with a tenant reconciler that a test calls itself.
type lab struct {
	*testkit.Cluster
	t        *testing.T
	c        *Tenants
	registry *prometheus.Registry
	line     *line
	heard    *heard

	mu  sync.Mutex
	now time.Time
}

func newLab(t *testing.T) *lab {
	l := &lab{Cluster: testkit.Kube(t, tenantsv1.AddToScheme, v1alpha2.AddToScheme), t: t, now: time.Now(), heard: &heard{}, line: &line{}}
	l.restart()
	return l
}

// clock is what the reconciler takes for the time.
func (l *lab) clock() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// later lets time pass.
func (l *lab) later(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// restart makes a new reconciler, which knows nothing.
func (l *lab) restart() {
	l.t.Helper()
	config := rest.CopyConfig(l.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return tapped{l.line, next} })
	live, err := client.New(config, client.Options{Scheme: l.Client.Scheme()})
	if err != nil {
		l.t.Fatal(err)
	}
	cluster, err := children.New(children.Config{REST: config, Namespaces: []string{l.Namespace}, Log: slog.New(slog.DiscardHandler), Now: l.clock})
	if err != nil {
		l.t.Fatal(err)
	}
	l.registry = prometheus.NewRegistry()
	kinds, err := discover(config)
	if err != nil {
		l.t.Fatal(err)
	}
	options := Options{Live: live, Children: cluster, Events: l.heard, Now: l.clock, Log: slog.New(slog.DiscardHandler), Metrics: l.registry}
	if l.c, err = newTenants(options, kinds); err != nil {
		l.t.Fatal(err)
	}
}

// line counts the requests and their bytes.
type line struct {
	mu       sync.Mutex
	requests []string
	refuses  string // a part of the paths that no client may read; empty for none
	cutAt    int    // the write after which the line is dead; 0 for never
	writes   int
	most     int // bytes of an object that the server stores; 0 for any
	breaks   func(*http.Request) int
}

// takes has the server store no Tenant that is larger.
func (l *line) takes(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
}

// broken has requests answered with a code of HTTP, and not by the server; 0 is for the
// server. Nil breaks none.
func (l *line) broken(breaks func(*http.Request) int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaks = breaks
}

// failing is the answer that a request gets in place of the server's; nil for none.
func (l *line) failing(r *http.Request) *http.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	code, message := 0, "it is broken"
	if l.breaks != nil {
		code = l.breaks(r)
	}
	if l.most > 0 && r.ContentLength > int64(l.most) && strings.HasSuffix(r.URL.Path, "/status") {
		code, message = http.StatusInternalServerError, "etcdserver: request is too large"
	}
	if code == 0 {
		return nil
	}
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"code":%d}`, message, code)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// tapped writes requests down, and loses them where a test wants it.
type tapped struct {
	*line
	next http.RoundTripper
}

func (l tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.dead() {
		return nil, context.Canceled
	}
	l.tell(r.Method + " " + r.URL.RequestURI()) // before a watch can see its effect
	if l.refuses != "" && strings.Contains(r.URL.Path, l.refuses) {
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
		return &http.Response{
			StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	}
	if answer := l.failing(r); answer != nil {
		return answer, nil
	}
	response, err := l.next.RoundTrip(r)
	if r.Method != http.MethodGet {
		l.wrote()
	}
	return response, err
}

func (l *line) tell(request string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, request)
}

func (l *line) wrote() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
}

func (l *line) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutAt > 0 && l.writes >= l.cutAt
}

// since returns the requests since it was last called.
func (l *line) since() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.requests
	l.requests, l.writes = nil, 0
	return r
}

// heard collects events.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) Event(obj client.Object, kind, reason, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, kind+" "+reason+": "+message)
}

// forget drops what was told.
func (h *heard) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = nil
}

// count is how often something was told.
func (h *heard) count(part string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, e := range h.all {
		if strings.Contains(e, part) {
			n++
		}
	}
	return n
}

// tenant makes or changes a Tenant acme-web; groups is YAML at the level of spec.
func (l *lab) tenant(groups string, annotations ...string) {
	l.t.Helper()
	manifest := "apiVersion: operator.kubernetes-tenants.org/v1\nkind: Tenant\nmetadata:\n  name: acme-web\n  annotations:\n" +
		"    kubernetes-tenants.org/hostOrUrl: https://acme.example.com\n    kubernetes-tenants.org/activate: \"1\"\n"
	for _, a := range annotations {
		manifest += "    " + a + "\n"
	}
	manifest += "spec:\n  uid: acme\n  templateRef: web\n" + indent(groups)
	l.Apply(l.t, manifest)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

func (l *lab) key() client.ObjectKey {
	return client.ObjectKey{Namespace: l.Namespace, Name: "acme-web"}
}

// look is one reconcile, or as many as it wants to make at once.
func (l *lab) look() ctrl.Result {
	l.t.Helper()
	for range 20 {
		result, err := l.c.Reconcile(l.t.Context(), ctrl.Request{NamespacedName: l.key()})
		if err != nil {
			l.t.Fatalf("reconciling: %v", err)
		}
		if result != requeue {
			return result
		}
	}
	l.t.Fatal("the tenant does not come to rest")
	return ctrl.Result{}
}

// get is the Tenant as it is.
func (l *lab) get() *tenantsv1.Tenant {
	l.t.Helper()
	var t tenantsv1.Tenant
	if err := l.Client.Get(l.t.Context(), l.key(), &t); err != nil {
		l.t.Fatalf("reading the tenant: %v", err)
	}
	return &t
}

// gone says whether the Tenant is.
func (l *lab) gone() bool {
	l.t.Helper()
	err := l.Client.Get(l.t.Context(), l.key(), &tenantsv1.Tenant{})
	if client.IgnoreNotFound(err) != nil {
		l.t.Fatal(err)
	}
	return err != nil
}

// deleteTenant asks for its end.
func (l *lab) deleteTenant() {
	l.t.Helper()
	if err := l.Client.Delete(l.t.Context(), l.get()); err != nil {
		l.t.Fatal(err)
	}
}

// states are the resources that are not ready: id, state and reason.
func (l *lab) states() string {
	l.t.Helper()
	var all []string
	for _, r := range l.get().Status.Resources {
		all = append(all, r.ID+" "+r.State+" "+r.Reason)
	}
	return strings.Join(all, "; ")
}

func (l *lab) wantStates(when, want string) {
	l.t.Helper()
	if got := l.states(); got != want {
		l.t.Errorf("%s the resources are %q, want %q\n%s", when, got, want, l.text())
	}
}

// text is the status, for messages.
func (l *lab) text() string {
	l.t.Helper()
	text, err := json.MarshalIndent(l.get().Status, "", " ")
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

func requestOf(key client.ObjectKey) ctrl.Request { return ctrl.Request{NamespacedName: key} }

// ownerRef is a reference to an object as an owner that is no controller.
func ownerRef(u *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}
}

// series is how many series there are of the tenant.
func (l *lab) series() int {
	l.t.Helper()
	families, err := l.registry.Gather()
	if err != nil {
		l.t.Fatal(err)
	}
	n := 0
	for _, f := range families {
		for _, m := range f.Metric {
			for _, label := range m.Label {
				if label.GetName() == "tenant" && label.GetValue() == "acme-web" {
					n++
				}
			}
		}
	}
	return n
}
