package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

const shopManifest = `apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: mysql, syncInterval: 1m, mysql: {host: db, username: reader, database: shop, table: customers}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
  extraValueMappings: {replicas: replicas}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web, namespace: shop}
spec:
  registryId: customers
  deployments:
  - id: app
    nameTemplate: "{{ .uid }}-app"
    dependIds: [config]
    spec:
      apiVersion: apps/v1
      kind: Deployment
      spec:
        replicas: "{{ .replicas }}"
        selector: {matchLabels: {app: "{{ .uid }}"}}
        template:
          metadata: {labels: {app: "{{ .uid }}"}}
          spec:
            containers:
            - {name: app, image: "registry.example.com/app:1", ports: [{containerPort: 8080}]}
  configMaps:
  - id: config
    nameTemplate: "{{ .uid }}-config"
    spec: {apiVersion: v1, kind: ConfigMap, data: {host: "{{ .host }}", replicas: "{{ .replicas }}"}}
`

func write(t *testing.T, e Env, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.Dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A template is rendered without a cluster: numbers are numbers where the kind
// wants them, and texts where it wants those.
func TestRenderOffline(t *testing.T) {
	e := env(t)
	write(t, e, "web.yaml", shopManifest)
	got := e.run(t, "render", "-f", "web.yaml", "--row", "uid=acme", "--row", "hostOrUrl=https://acme.example.com/shop", "--row", "replicas=3")
	if got.code != 0 {
		t.Fatalf("exit %d: %s", got.code, got.err)
	}
	golden(t, "testdata/render.txt", got.out)
	if got := e.run(t, "render", "-f", "web.yaml"); got.code != 0 || got.out != "" || !strings.Contains(got.err, "its 2 resources are valid") {
		t.Errorf("without a row: exit %d, %q %q", got.code, got.out, got.err)
	}
}

func TestRenderFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		from, to string // in the manifest
		args     []string
		code     int
		says     string
	}{
		"a text that is no template":   {"{{ .host }}", "{{ .host", nil, 2, "config: spec.data.host"},
		"a dependency that is not":     {"dependIds: [config]", "dependIds: [conf]", nil, 2, "app: dependIds"},
		"a value that does not fit":    {"", "", []string{"--row", "uid=acme", "--row", "replicas=many"}, 2, "app: spec.spec.replicas"},
		"a value that is not there":    {"", "", []string{"--row", "uid=acme"}, 2, "replicas"},
		"a row without a uid":          {"", "", []string{"--row", "replicas=3"}, 2, "uid"},
		"a pair that is none":          {"", "", []string{"--row", "uid"}, 2, "NAME=VALUE"},
		"a variable given twice":       {"", "", []string{"--row", "uid=a", "--row", "uid=b"}, 2, "twice"},
		"a template that is not there": {"", "", []string{"nowhere"}, 2, "no such TenantTemplate"},
		"a row of the cluster":         {"", "", []string{"--uid", "acme"}, 2, "-f"},
		"a field that is none":         {"nameTemplate:", "nameTempalte:", nil, 2, "nameTempalte"},
	} {
		t.Run(name, func(t *testing.T) {
			e := env(t)
			content := shopManifest
			if tt.from != "" {
				content = strings.ReplaceAll(content, tt.from, tt.to)
			}
			write(t, e, "web.yaml", content)
			got := e.run(t, append([]string{"render", "-f", "web.yaml"}, tt.args...)...)
			if got.code != tt.code || !strings.Contains(got.err, tt.says) {
				t.Errorf("exit %d, %q; want %d and %q", got.code, got.err, tt.code, tt.says)
			}
		})
	}
}

// shop is a cluster with a registry, a template and a tenant that is on its way.
type shop struct {
	Env
	cluster *testkit.Cluster
	began   time.Time
}

func newShop(t *testing.T) shop {
	t.Helper()
	s := shop{Env: env(t), cluster: testkit.Kube(t, tenantsv1.AddToScheme)}
	s.Environ = []string{"KUBECONFIG=" + s.cluster.Kubeconfig}
	manifest := strings.Replace(shopManifest, ", namespace: shop", "", 1)
	s.cluster.Apply(t, manifest+`---
apiVersion: operator.kubernetes-tenants.org/v1
kind: Tenant
metadata:
  name: acme-web
  labels: {kubernetes-tenants.org/registry: customers, kubernetes-tenants.org/uid: acme}
  annotations: {kubernetes-tenants.org/template-generation: "1", kubernetes-tenants.org/extra: '{"replicas":"3"}'}
spec:
  uid: acme
  templateRef: web
  deployments: [{id: app, dependIds: [config], spec: {apiVersion: apps/v1, kind: Deployment}}]
  configMaps: [{id: config, deletionPolicy: Retain, spec: {apiVersion: v1, kind: ConfigMap}}]
`)
	tn := find(t, s, "acme-web", &tenantsv1.Tenant{})
	s.began = tn.CreationTimestamp.Time
	s.Now = func() time.Time { return s.began.Add(time.Hour) }
	at := metav1.NewTime(s.began)
	tn.Status = tenantsv1.TenantStatus{
		ObservedGeneration: 1, DesiredResources: 2, ReadyResources: 0, FailedResources: 1, TemplateGeneration: 1,
		Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "ResourcesFailed", Message: "config: the \x1b[2J server refuses it", LastTransitionTime: at}},
		Inventory:  []tenantsv1.InventoryItem{{ID: "config", Version: "v1", Kind: "ConfigMap", Namespace: s.cluster.Namespace, Name: "acme-config"}},
		Resources: []tenantsv1.ResourceStatus{
			{ID: "config", State: "Failed", Reason: "ApplyFailed", Message: "the \x1b[2J server refuses it", Since: at},
			{ID: "app", State: "Skipped", Reason: "DependencySkipped", Message: "config has failed", Since: at},
		},
	}
	keep(t, s, tn)
	r := find(t, s, "customers", &tenantsv1.TenantRegistry{})
	r.Status = tenantsv1.TenantRegistryStatus{
		ReferencingTemplates: 1, Desired: 1, Failed: 1, LastRead: &tenantsv1.Read{Time: at, Rows: 4, Active: 1}, RowErrorCount: 1,
		RowErrors: []tenantsv1.RowError{{UID: "Ä", Reason: "UIDInvalid", Message: "cannot be part of a name"}},
		Blocked:   &tenantsv1.Blocked{Reason: "TooManyDeletions", Message: "3 of 4 tenants", Since: at, Count: 3, Token: "7c1e", Tenants: []string{"bolt-web", "cone-web", "dent-web"}},
	}
	keep(t, s, r)
	tpl := find(t, s, "web", &tenantsv1.TenantTemplate{})
	tpl.Status.Rollout = &tenantsv1.RolloutStatus{Phase: tenantsv1.RolloutFailed, TargetGeneration: 1, TotalNodes: 1, UpdatedNodes: 1, FailedNodes: 1, StartTime: &at, Message: "acme-web failed"}
	keep(t, s, tpl)
	return s
}

func find[T client.Object](t *testing.T, s shop, name string, o T) T {
	t.Helper()
	if err := s.cluster.Client.Get(t.Context(), types.NamespacedName{Namespace: s.cluster.Namespace, Name: name}, o); err != nil {
		t.Fatal(err)
	}
	return o
}

func keep(t *testing.T, s shop, o client.Object) {
	t.Helper()
	if err := s.cluster.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// What a person sees who looks at tenants of which one has failed, whose registry
// waits for a yes and whose rollout has stopped.
func TestLookingAtTenants(t *testing.T) {
	s := newShop(t)
	for name, args := range map[string][]string{
		"tenants":        {"tenants"},
		"tenants-wide":   {"tenants", "-o", "wide", "--not-ready"},
		"tenant":         {"tenant", "acme-web"},
		"rows":           {"rows", "customers"},
		"rollout-status": {"rollout", "status", "web"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.run(t, args...)
			if got.code != 0 {
				t.Fatalf("exit %d: %s", got.code, got.err)
			}
			out := strings.ReplaceAll(got.out, s.cluster.Namespace, "shop")
			golden(t, "testdata/"+name+".txt", strings.ReplaceAll(out, s.began.UTC().Format(time.RFC3339), "BEGAN"))
		})
	}
	if got := s.run(t, "tenants", "-o", "name"); got.out != "acme-web\n" {
		t.Errorf("the names are %q", got.out)
	}
	if got := s.run(t, "tenant", "nobody"); got.code != 4 || !strings.Contains(got.err, "terrier tenants") {
		t.Errorf("a tenant that is not there is exit %d %q, want 4 and where to look", got.code, got.err)
	}
}

// Deletions pass only after a user saw them and confirmed.
func TestAllowingDeletions(t *testing.T) {
	s := newShop(t)
	allowed := func() string {
		return find(t, s, "customers", &tenantsv1.TenantRegistry{}).Annotations[tenantsv1.AnnotationAllowDeletions]
	}
	s.Stdin = strings.NewReader("y\n")
	if got := s.run(t, "rows", "customers", "--allow"); got.code != 2 || !strings.Contains(got.err, "no terminal") || !strings.Contains(got.err, "--yes") || allowed() != "" {
		t.Errorf("without a terminal: exit %d, %q, allowed is %q", got.code, got.err, allowed())
	}
	s.Terminal = true
	for answer, code := range map[string]int{"": 2, "n\n": 0} {
		s.Stdin = strings.NewReader(answer)
		got := s.run(t, "rows", "customers", "--allow")
		if got.code != code || !strings.Contains(got.err, "cone-web") || strings.Contains(got.err, "--yes") != (code != 0) || allowed() != "" {
			t.Errorf("after %q: exit %d, %q, allowed is %q", answer, got.code, got.err, allowed())
		}
	}
	s.Stdin = strings.NewReader("y\n")
	if got := s.run(t, "rows", "customers", "--allow"); got.code != 0 || allowed() != "7c1e" {
		t.Errorf("after a yes: exit %d, %q, allowed is %q", got.code, got.err, allowed())
	}
	if got := s.run(t, "rows", "customers", "--now", "--timeout", "10ms"); got.code != 6 {
		t.Errorf("a read that does not come is exit %d %q, want 6", got.code, got.err)
	}
}

func TestSuspendingARegistry(t *testing.T) {
	s := newShop(t)
	for _, verb := range []string{"suspend", "resume"} {
		got := s.run(t, verb, "tenantregistry/customers")
		if is := find(t, s, "customers", &tenantsv1.TenantRegistry{}).Spec.Suspend; got.code != 0 || is != (verb == "suspend") {
			t.Errorf("%s: exit %d, %q, suspend is %v", verb, got.code, got.err, is)
		}
	}
	if got := s.run(t, "suspend", "tenantregistry/customers", "--all"); got.code != 2 {
		t.Errorf("a registry and all stacks is exit %d, want 2", got.code)
	}
	if got := s.run(t, "rollout", "resume", "web"); got.code != 0 || find(t, s, "web", &tenantsv1.TenantTemplate{}).Annotations[tenantsv1.AnnotationRollout] != "1-1" {
		t.Errorf("resuming the rollout: exit %d, %q", got.code, got.err)
	}
	if got := s.run(t, "rollout", "undo", "web", "--yes"); got.code != 4 {
		t.Errorf("going back to what is not kept is exit %d, want 4", got.code)
	}
}
