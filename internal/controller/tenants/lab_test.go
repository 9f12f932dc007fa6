package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	cluster, err := children.New(children.Config{REST: config, Log: slog.New(slog.DiscardHandler), Now: l.clock})
	if err != nil {
		l.t.Fatal(err)
	}
	l.registry = prometheus.NewRegistry()
	l.c = &Tenants{Options: Options{Live: live, Children: cluster, Events: l.heard, Now: l.clock, Log: slog.New(slog.DiscardHandler)}}
	if l.c.metrics, err = newMetrics(l.registry); err != nil {
		l.t.Fatal(err)
	}
	if l.c.kinds, err = discover(config); err != nil {
		l.t.Fatal(err)
	}
}

// line is what goes over the wire.
type line struct {
	mu       sync.Mutex
	requests []string
	cutAt    int // the write after which the line is dead; 0 for never
	writes   int
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
	response, err := l.next.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, r.Method+" "+r.URL.RequestURI())
	if r.Method != http.MethodGet {
		l.writes++
	}
	return response, err
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
		if result != again {
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

var kindsInTests = map[string]schema.GroupVersionKind{
	"ConfigMap":  {Version: "v1", Kind: "ConfigMap"},
	"Secret":     {Version: "v1", Kind: "Secret"},
	"Namespace":  {Version: "v1", Kind: "Namespace"},
	"Deployment": {Group: "apps", Version: "v1", Kind: "Deployment"},
	"Terraform":  {Group: "infra.contrib.fluxcd.io", Version: "v1alpha2", Kind: "Terraform"},
}

// child is an object in the test's namespace; nil if it is not there.
func (l *lab) child(kind, name string) *unstructured.Unstructured {
	l.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kindsInTests[kind])
	err := l.Client.Get(l.t.Context(), client.ObjectKey{Namespace: l.Namespace, Name: name}, u)
	if client.IgnoreNotFound(err) != nil {
		l.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return u
}

func (l *lab) wantThere(kind, name string, want bool) {
	l.t.Helper()
	if got := l.child(kind, name) != nil; got != want {
		l.t.Errorf("%s %s is there: %t, want %t\n%s", kind, name, got, want, strings.Join(l.heard.all, "\n"))
	}
}

// edit changes an object as somebody else.
func (l *lab) edit(kind, name string, change func(map[string]any)) {
	l.t.Helper()
	u := l.child(kind, name)
	change(u.Object)
	if err := l.Client.Update(l.t.Context(), u, client.FieldOwner("somebody")); err != nil {
		l.t.Fatalf("editing %s %s: %v", kind, name, err)
	}
}

// status writes a status.
func (l *lab) status(kind, name string, status map[string]any) {
	l.t.Helper()
	u := l.child(kind, name)
	if u == nil {
		l.t.Fatalf("%s %s is not there to have a status\n%s", kind, name, l.text())
	}
	u.Object["status"] = status
	if err := l.Client.Status().Update(l.t.Context(), u); err != nil {
		l.t.Fatalf("writing the status of %s %s: %v", kind, name, err)
	}
}

// stackIs writes what the controller of stacks would, of the generation that the
// object has now, less behind.
func (l *lab) stackIs(name, ready, reason, message string, behind int64) {
	l.t.Helper()
	u := l.child("Terraform", name)
	if u == nil {
		l.t.Fatalf("Terraform %s is not there\n%s", name, l.text())
	}
	condition := func(kind, status string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message,
			"lastTransitionTime": metav1.NewTime(l.clock()).UTC().Format(time.RFC3339), "observedGeneration": u.GetGeneration() - behind}
	}
	conditions := []any{condition("Ready", ready)}
	if reason == "Stalled" {
		conditions = append(conditions, condition("Stalled", "True"))
	}
	l.status("Terraform", name, map[string]any{"observedGeneration": u.GetGeneration() - behind, "conditions": conditions})
}

// available lets a Deployment have all its replicas.
func (l *lab) available(name string) {
	l.t.Helper()
	u := l.child("Deployment", name)
	n, _, err := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if err != nil {
		l.t.Fatal(err)
	}
	l.status("Deployment", name, map[string]any{"observedGeneration": u.GetGeneration(), "replicas": n, "readyReplicas": n, "updatedReplicas": n, "availableReplicas": n,
		"conditions": []any{
			map[string]any{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "x"},
			map[string]any{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "x"},
		}})
}

// terraform is an entry of manifests.
func terraform(id string, more ...string) string {
	return fmt.Sprintf(`
- id: %s
  nameTemplate: "{{ .uid }}-%s"
%s  spec:
    apiVersion: infra.contrib.fluxcd.io/v1alpha2
    kind: Terraform
    spec:
      interval: 5m
      path: ./
      sourceRef: {kind: GitRepository, name: modules}
`, id, id, extra(more))
}

// configMap is an entry of configMaps.
func configMap(id string, more ...string) string {
	return fmt.Sprintf(`
- id: %s
  nameTemplate: "{{ .uid }}-%s"
%s  spec: {apiVersion: v1, kind: ConfigMap, data: {host: "{{ .host }}"}}
`, id, id, extra(more))
}

// deployment is an entry of deployments.
func deployment(id string, replicas int, more ...string) string {
	return fmt.Sprintf(`
- id: %s
  nameTemplate: "{{ .uid }}-%s"
%s  spec:
    apiVersion: apps/v1
    kind: Deployment
    spec:
      replicas: %d
      selector: {matchLabels: {app: x}}
      template:
        metadata: {labels: {app: x}}
        spec: {containers: [{name: x, image: x}]}
`, id, id, extra(more), replicas)
}

func extra(lines []string) string {
	text := ""
	for _, line := range lines {
		text += "  " + line + "\n"
	}
	return text
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
