package chart

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	_ "modernc.org/sqlite" // the driver of the database that a registry reads

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
	testport "github.com/terrier-iac/terrier/internal/testkit/port"
)

// installed is a controller that runs as the account of the chart, with the arguments
// of its Deployment.
type installed struct {
	*plane
	objects     []*unstructured.Unstructured
	commands    []*exec.Cmd
	credentials string // a kubeconfig of the account
	health      string
	http        string
}

// install applies a rendering, and starts the controller of its Deployment here: the
// API server of the test has no kubelet.
func install(t *testing.T, args ...string) *installed {
	t.Helper()
	i := rendered(t, args...)
	i.begin(t)
	return i
}

// begin starts the controller of the Deployment.
func (i *installed) begin(t *testing.T) {
	t.Helper()
	// No name of a Service leads here.
	deployed := slices.DeleteFunc(i.arguments(t), func(arg string) bool { return strings.HasPrefix(arg, "--http-host=") })
	i.start(t, append(deployed, "--http-address", "127.0.0.1:0"))
}

// installShared starts the controllers of a Deployment that share the stacks, behind one
// address. The pods of their runs are processes.
func installShared(t *testing.T, args ...string) *installed {
	t.Helper()
	i := rendered(t, args...)
	hosts := []string{"127.0.0.10", "127.0.0.11"}
	service := testkit.Balance(t, hosts...)
	records := filepath.Join(t.TempDir(), "records")
	image := ""
	for _, host := range hosts {
		deployed := slices.DeleteFunc(i.arguments(t), func(arg string) bool {
			if name, ok := strings.CutPrefix(arg, "--run-image="); ok {
				image = name
			}
			return strings.HasPrefix(arg, "--http-host=")
		})
		i.start(t, append(deployed, "--http-host", "127.0.0.1", "--http-host", host, "--replica-address", host,
			"--http-address", net.JoinHostPort(host, strconv.Itoa(service.Port)), "--records", records))
	}
	i.http = "https://127.0.0.1:" + strconv.Itoa(service.Port)
	kubelet, err := testkit.NewKubelet(i.config, "", t.TempDir(), map[string]string{image: absolute(t, root+"/bin/terrier-runner")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kubelet.Close)
	return i
}

// rendered is an API server with a rendering, and no controller yet.
func rendered(t *testing.T, args ...string) *installed {
	t.Helper()
	p := newPlane(t)
	for _, n := range []string{"terrier-system", "team-a", "team-b"} {
		p.apply(t, namespace(n))
	}
	text, err := template(t, args...)
	if err != nil {
		t.Fatal(text)
	}
	i := &installed{plane: p, objects: objects(t, text)}
	for _, o := range i.objects {
		p.apply(t, o)
	}
	i.credentials = p.account(t, "terrier-system", "terrier")
	return i
}

// arguments are those of the controller in the Deployment.
func (i *installed) arguments(t *testing.T) []string {
	t.Helper()
	at := slices.IndexFunc(i.objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	containers, _, err := unstructured.NestedSlice(i.objects[at].Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	deployed, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil {
		t.Fatal(err)
	}
	return deployed
}

// start starts a controller with arguments. Later flags win: what a pod would have is
// elsewhere on this machine.
func (i *installed) start(t *testing.T, args []string) {
	t.Helper()
	var ready struct{ HTTP string }
	i.health = testport.Address(t)
	i.commands = append(i.commands, program(t, &ready, append(args,
		"--kubeconfig", i.credentials, "--data-dir", filepath.Join(t.TempDir(), "data"),
		"--health-address", i.health, "--output", "json",
		"--allow-host", "127.0.0.0/8", "--allow-plain-http", "--sqlite-dir", filepath.Dir(database(t)))...))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(ready.HTTP, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	i.http = "https://127.0.0.1:" + port
}

var databases = map[string]string{}

// database is a table of customers, one for each test.
func database(t *testing.T) string {
	t.Helper()
	if path := databases[t.Name()]; path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE customers (id TEXT, url TEXT, active INTEGER); INSERT INTO customers VALUES ('acme', 'https://acme.example.com', 1)`); err != nil {
		t.Fatal(err)
	}
	databases[t.Name()] = path
	return path
}

// stack reads a stack, and says in an error how far it is unless a condition of Ready holds.
func (i *installed) await(t *testing.T, in, name, what string, is func(*infrav1alpha2.Terraform, *metav1.Condition) bool) *infrav1alpha2.Terraform {
	t.Helper()
	s := &infrav1alpha2.Terraform{}
	testkit.Eventually(t, testkit.Patience, name+" "+what, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKey{Namespace: in, Name: name}, s); err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, "Ready")
		if c == nil || !is(s, c) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	return s
}

func isReady(s *infrav1alpha2.Terraform, c *metav1.Condition) bool {
	return c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.Generation
}

const stackManifest = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: %s}
spec:
  approvePlan: auto
  interval: 1h
  retryInterval: 1s
  path: ./
  sourceRef: {kind: GitRepository, name: modules}
  storeReadablePlan: human
  varsFrom: [{kind: Secret, name: inputs}, {kind: ConfigMap, name: settings, optional: true}]
  writeOutputsToSecret: {name: %[1]s-outputs}
`

const moduleText = `
variable "word" { type = string }
resource "terraform_data" "it" { input = var.word }
output "word" { value = terraform_data.it.output }
`

func secretManifest(name, key, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {%s: %q}\n", name, key, value)
}

const tenantsManifest = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: sqlite, syncInterval: 1s, sqlite: {path: %q, table: customers}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: shop}
spec:
  registryId: customers
  serviceAccountName: tenants
  configMaps:
    - id: settings
      nameTemplate: "{{ .uid }}-settings"
      spec: {apiVersion: v1, kind: ConfigMap, data: {url: "{{ .hostOrUrl }}"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenants}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenants}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: tenants, namespace: team-a}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: looks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: terrier-viewer}
subjects: [{kind: ServiceAccount, name: looks, namespace: team-a}]
`

const policiesManifest = `
apiVersion: policy.terrier.dev/v1alpha1
kind: ClusterPolicy
metadata: {name: generous}
spec: {guards: {maxDestroys: 1000}}
---
apiVersion: policy.terrier.dev/v1alpha1
kind: Policy
metadata: {name: generous, namespace: team-a}
spec: {guards: {maxDestroys: 1000}}
`

const noticesManifest = `
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: hook}
spec: {type: generic, secretRef: {name: hook}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {name: all}
spec: {providerRef: {name: hook}, eventSeverity: info, eventSources: [{kind: Terraform, name: "*"}]}
`

// The controller does its work with the rights of the chart, is denied nothing that
// it asks for, and uses what it was given. A namespace whose owner has not let it in
// keeps its Secrets, until the owner does.
func TestTheControllerNeedsWhatItHas(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		needsWhatItHas(t, install(t, "--set", "rbac.namespaces={team-a}", "--set", "runs.as=processes")) // there is no kubelet
	})
	t.Run("several that share the stacks", func(t *testing.T) {
		needsWhatItHas(t, installShared(t, "--values", matrix(t)["replicas"], "--set", "rbac.namespaces={team-a}"))
	})
}

func needsWhatItHas(t *testing.T, i *installed) {
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK} {
		testkit.Eventually(t, testkit.Patience, path, func(context.Context) error {
			if status, text := get(t, "http://"+i.health+path, ""); status != want {
				return errors.New(text)
			}
			return nil
		})
	}
	told := make(chan struct{}, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told <- struct{}{} }))
	t.Cleanup(hook.Close)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": moduleText})
	i.manifest(t, "team-a", g.Manifest("modules")+"---\n"+secretManifest("inputs", "word", "first")+"---\n"+
		secretManifest("hook", "address", hook.URL)+"---\n"+noticesManifest+"---\n"+fmt.Sprintf(stackManifest, "net"))
	i.await(t, "team-a", "net", "becomes ready", isReady)
	i.manifest(t, "", policiesManifest)
	for _, kind := range []string{"ClusterPolicy", "Policy"} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "policy.terrier.dev", Version: "v1alpha1", Kind: kind})
		key := client.ObjectKey{Name: "generous"}
		if kind == "Policy" {
			key.Namespace = "team-a"
		}
		testkit.Eventually(t, testkit.Patience, "the "+kind+" counts the stack", func(ctx context.Context) error {
			err := i.Get(ctx, key, o)
			if n, _, _ := unstructured.NestedInt64(o.Object, "status", "selected"); err == nil && n == 0 {
				err = errors.New("it counts none")
			}
			return err
		})
	}
	select {
	case <-told:
	case <-t.Context().Done():
		t.Error("no notification arrived")
	}

	i.manifest(t, "team-a", secretManifest("inputs", "word", "second"))
	testkit.Eventually(t, testkit.Patience, "the changed Secret is applied", func(ctx context.Context) error {
		var out corev1.Secret
		err := i.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: "net-outputs"}, &out)
		if err == nil && string(out.Data["word"]) != "second" {
			err = fmt.Errorf("the output is %q", out.Data["word"])
		}
		return err
	})

	i.manifest(t, "team-a", fmt.Sprintf(tenantsManifest, database(t)))
	testkit.Eventually(t, testkit.Patience, "the tenant has its settings", func(ctx context.Context) error {
		return i.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: "acme-settings"}, &corev1.ConfigMap{})
	})
	testkit.Eventually(t, testkit.Patience, "a user sees the stack", func(context.Context) error {
		if status, text := get(t, i.http+"/api/v1/stacks", i.token(t, "team-a", "looks")); status != http.StatusOK || !strings.Contains(text, `"net"`) {
			return fmt.Errorf("%d: %s", status, text)
		}
		return nil
	})
	i.readAll(t)
	if text := i.recorder.denials(); len(text) > 0 {
		t.Errorf("the controller was denied:\n%s", strings.Join(text, "\n"))
	}

	t.Run("a namespace grants it later", func(t *testing.T) {
		i.manifest(t, "team-b", g.Manifest("modules")+"---\n"+secretManifest("inputs", "word", "theirs")+"---\n"+fmt.Sprintf(stackManifest, "app"))
		s := i.await(t, "team-b", "app", "says which right is missing", func(_ *infrav1alpha2.Terraform, c *metav1.Condition) bool {
			return c.Status == metav1.ConditionFalse && (strings.Contains(c.Message, "forbidden") || strings.Contains(c.Message, "SourceNotReady") || strings.Contains(c.Message, "Source is not ready"))
		})
		t.Logf("it says %+v", meta.FindStatusCondition(s.Status.Conditions, "Ready"))
		for _, r := range i.recorder.all() {
			if r.namespace == "team-b" && r.resource == "secrets" && r.status < 400 {
				t.Errorf("%+v was permitted", r)
			}
		}
		i.manifest(t, "team-b", `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: terrier-namespace}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: terrier-namespace}
subjects: [{kind: ServiceAccount, name: terrier, namespace: terrier-system}]
`)
		i.await(t, "team-b", "app", "becomes ready", isReady)
	})

	t.Run("what was made is destroyed", func(t *testing.T) {
		for _, o := range []client.Object{&infrav1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "net"}}} {
			if err := i.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, testkit.Patience, "the stack is gone", func(ctx context.Context) error {
				if err := i.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
					return errors.Join(errors.New("it is there"), err)
				}
				return nil
			})
		}
	})
	for _, command := range i.commands {
		stop(t, command)
	}

	known := strings.Split(read(t, "testdata/unused.txt"), "\n")
	for _, r := range rights(t, i.objects) {
		used := slices.ContainsFunc(i.recorder.all(), func(q request) bool { return q.uses(r) })
		if !used && !slices.Contains(known, r.String()) {
			t.Errorf("the controller does not use this right: remove it from the chart, or add it to testdata/unused.txt:\n%s", r)
		}
	}
}

// readAll has an operator of all namespaces read all that the API has, and the pages of a
// stack.
func (i *installed) readAll(t *testing.T) {
	t.Helper()
	token := i.token(t, "team-a", "reads")
	i.manifest(t, "", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: terrier-operator}
subjects: [{kind: ServiceAccount, name: reads, namespace: team-a}]
`)
	var document struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(read(t, root+"/internal/web/openapi.json")), &document); err != nil {
		t.Fatal(err)
	}
	paths := []string{"/", "/stacks", "/queue", "/audit", "/stacks/team-a/net", "/stacks/team-a/net/runs"}
	for path, methods := range document.Paths {
		if methods["get"] == nil || path == "/api/v1/events" { // a stream
			continue
		}
		name := "net"
		for kind, of := range map[string]string{"registries": "customers", "templates": "shop", "tenants": "acme-shop"} {
			if strings.Contains(path, "/"+kind+"/") {
				name = of
			}
		}
		paths = append(paths, strings.NewReplacer("{namespace}", "team-a", "{name}", name, "{run}", "newest", "{version}", "1").Replace(path))
	}
	for _, path := range paths {
		testkit.Eventually(t, testkit.Patience, "an operator reads "+path, func(context.Context) error {
			status, text := get(t, i.http+path, token)
			if status == http.StatusUnauthorized || status == http.StatusForbidden || status >= http.StatusInternalServerError { // else there may be none
				return fmt.Errorf("%d: %s", status, text)
			}
			if strings.Contains(text, "cannot be shown") {
				return fmt.Errorf("a part of the page is missing: %s", text)
			}
			return nil
		})
	}
}

// A run that is a pod needs what the chart grants, and the pod keeps to the Pod
// Security Standard "restricted".
func TestPodsOfRuns(t *testing.T) {
	i := install(t, "--set", "rbac.namespaces={team-a}")
	strict := namespace("team-a")
	strict.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	i.apply(t, strict)
	i.manifest(t, "team-a", inlineStack)
	pods := func(ctx context.Context) ([]corev1.Pod, error) {
		var list corev1.PodList
		err := i.List(ctx, &list, client.InNamespace("team-a"), client.MatchingLabels{"app.kubernetes.io/name": "terrier-run"})
		return list.Items, err
	}
	testkit.Eventually(t, testkit.Patience, "the run has its pod", func(ctx context.Context) error {
		if all, err := pods(ctx); err != nil || len(all) != 1 {
			return fmt.Errorf("%d pods, %w", len(all), err)
		}
		return nil
	})
	t.Run("under the account default it has no token and no right", func(t *testing.T) {
		all, err := pods(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%d pods, %v", len(all), err)
		}
		if got := all[0].Spec.ServiceAccountName; got != "default" {
			t.Errorf("the pod runs under %q", got)
		}
		onlyOurToken(t, &all[0])
		i.mayNothing(t, "team-a", "default")
	})
	s := &infrav1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "inline"}}
	if err := i.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the pod of the deleted stack is deleted", func(ctx context.Context) error {
		all, err := pods(ctx)
		if i := slices.IndexFunc(all, func(p corev1.Pod) bool { return p.DeletionTimestamp.IsZero() }); err != nil || i >= 0 {
			return fmt.Errorf("%d pods, %w", len(all), err)
		}
		return nil
	})
	if text := i.recorder.denials(); len(text) > 0 {
		t.Errorf("the controller was denied:\n%s", strings.Join(text, "\n"))
	}
}

const inlineStack = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: inline}
spec:
  approvePlan: auto
  interval: 1h
  retryInterval: 1s
  values: {hcl: 'resource "terraform_data" "it" {}'}
`

// denials are the requests of the controller itself that the API server refused. It asks
// once for the kinds of tenants in the whole cluster, and else reads their objects in
// each pass.
func (r *recorder) denials() []string {
	var out []string
	for _, q := range r.all() {
		if q.status == http.StatusForbidden && q.as == "" && !(q.resource == "configmaps" && q.namespace == "") {
			out = append(out, fmt.Sprintf("%s %s.%s in %q, %q", q.verb, q.resource, q.group, q.namespace, q.name))
		}
	}
	slices.Sort(out)
	return out
}
