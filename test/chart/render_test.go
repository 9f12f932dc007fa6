package chart

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// matrix are sets of values, as files of testdata/values.
func matrix(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("testdata/values has %d files, %v", len(files), err)
	}
	all := map[string]string{}
	for _, f := range files {
		all[strings.TrimSuffix(filepath.Base(f), ".yaml")] = f
	}
	return all
}

// template renders the chart as a release terrier in terrier-system.
func template(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return helm(t, append([]string{"template", "terrier", chart, "--namespace", "terrier-system"}, args...)...)
}

// objects are the documents of a rendering.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 1<<20); ; {
		u := &unstructured.Unstructured{}
		if err := d.Decode(&u.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 {
			all = append(all, u)
		}
	}
}

func TestLint(t *testing.T) {
	for name, file := range matrix(t) {
		t.Run(name, func(t *testing.T) {
			mustHelm(t, "lint", "--strict", "--namespace", "terrier-system", "--values", file, chart)
		})
	}
}

// The default rendering is reviewed as a file.
func TestDefaultRendering(t *testing.T) {
	text, err := template(t)
	if err != nil {
		t.Fatal(text)
	}
	generated(t, "testdata/default.yaml", text)
}

// The API server takes everything that the chart renders, and prunes no field of it.
func TestTheServerTakesIt(t *testing.T) {
	k := testkit.Kube(t)
	if err := k.Client.Create(t.Context(), namespace("terrier-system")); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, n := range []string{"team-a", "team-b", "builds"} {
		if err := k.Client.Create(t.Context(), namespace(n)); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	strict := client.WithFieldValidation(k.Client, "Strict")
	for name, file := range matrix(t) {
		t.Run(name, func(t *testing.T) {
			text, err := template(t, "--values", file)
			if err != nil {
				t.Fatal(text)
			}
			for _, o := range objects(t, text) {
				err := strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.FieldOwner("chart-test"), client.ForceOwnership)
				if o.GroupVersionKind().Group == "monitoring.coreos.com" {
					continue // its definitions are the Prometheus operator's
				}
				if err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

func namespace(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(name)
	return u
}

// A mistake in a value is refused, with a message that names it.
func TestMistakes(t *testing.T) {
	const kit = "moby/buildkit@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tt := range map[string]struct {
		set  []string
		want []string
	}{
		"a name that is no value":            {[]string{"persistance.size=1Gi"}, []string{"persistance"}},
		"a name inside of a value":           {[]string{"persistence.sizes=1Gi"}, []string{"/persistence", "sizes"}},
		"a flag that is none":                {[]string{"flags.max-run=3"}, []string{"/flags", "max-run"}},
		"a flag that has a value of its own": {[]string{"flags.log-level=debug"}, []string{"/flags", "log-level"}},
		"a flag of another type":             {[]string{"flags.max-runs=many"}, []string{"/flags/max-runs", "integer"}},
		"a flag whose value is a list":       {[]string{"flags.run-env=HTTPS_PROXY"}, []string{"/flags/run-env", "array"}},
		"a level of logs":                    {[]string{"logLevel=trace"}, []string{"/logLevel", "debug"}},
		"a kind that is none":                {[]string{"kinds={infra.contrib.fluxcd.io,example.com}"}, []string{"/kinds", "alustan.io"}},
		"kinds without the first":            {[]string{"kinds={alustan.io}"}, []string{"kinds", "infra.contrib.fluxcd.io"}},
		"a port that needs root":             {[]string{"http.port=443"}, []string{"/http/port", "minimum"}},
		"several without shared records":     {[]string{"replicaCount=2"}, []string{"replicaCount: 2", "records", "s3://"}},
		"several, and runs as processes":     {[]string{"replicaCount=2", "records=s3://a", "runs.as=processes"}, []string{"replicaCount: 2", "runs.as: pods"}},
		"several with keys of their own":     {[]string{"replicaCount=2", "records=s3://a", "installationKeys=file"}, []string{"replicaCount: 2", "installationKeys: secret"}},
		"several with keys of records apart": {[]string{"replicaCount=2", "records=s3://a", "flags.records-key=file"}, []string{"replicaCount: 2", "flags.records-key"}},
		"several, and checks share pods":     {[]string{"replicaCount=2", "records=s3://a", "flags.checks-per-pod=8"}, []string{"replicaCount: 1", "flags.checks-per-pod"}},
		"several with one claim":             {[]string{"replicaCount=2", "records=s3://a", "persistence.existingClaim=data"}, []string{"persistence.existingClaim", "data directory of its own"}},
		"no volume":                          {[]string{"persistence.enabled=false"}, []string{"persistence.enabled", "persistence.existingClaim"}},
		"no volume, and runs as processes":   {[]string{"persistence.enabled=false", "runs.as=processes"}, []string{"persistence.enabled"}},
		"builds, and runs as processes":      {[]string{"imageBuilds.namespace=builds", "imageBuilds.image=" + kit, "runs.as=processes"}, []string{"imageBuilds", "runs.as to pods"}},
		"builds without BuildKit":            {[]string{"imageBuilds.namespace=builds"}, []string{"imageBuilds.image", "its digest"}},
		"BuildKit without a digest":          {[]string{"imageBuilds.image=moby/buildkit:rootless"}, []string{"/imageBuilds/image"}},
		"builds where stacks are":            {[]string{"imageBuilds.namespace=a", "imageBuilds.image=" + kit, "rbac.namespaces={a}"}, []string{"imageBuilds.namespace: a has"}},
		"a monitor of metrics that are off":  {[]string{"metrics.serviceMonitor.enabled=true"}, []string{"metrics.enabled"}},
		"the Secrets of all and of some":     {[]string{"rbac.allNamespaces=true", "watchNamespaces={a}"}, []string{"rbac.allNamespaces", "watchNamespaces"}},
		"an account that is not named":       {[]string{"serviceAccount.create=false"}, []string{"serviceAccount.name"}},
		"everybody and a few":                {[]string{"rbac.impersonation.all=true", "rbac.impersonation.users={ann}"}, []string{"rbac.impersonation", "set all to false"}},
		"the group that may do everything":   {[]string{"rbac.impersonation.groups={system:masters}"}, []string{"rbac.impersonation.groups", "equals cluster-admin", "rbac.impersonation.all"}},
		"a user without a name":              {[]string{"rbac.impersonation.users[0]="}, []string{"/rbac/impersonation/users"}},
		"a wildcard among the extras":        {[]string{"rbac.impersonation.extras={*}"}, []string{"/rbac/impersonation/extras"}},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for _, s := range tt.set {
				args = append(args, "--set", s)
			}
			text, err := template(t, args...)
			if err == nil {
				t.Fatal("Helm took it")
			}
			for _, w := range tt.want {
				if !strings.Contains(text, w) {
					t.Errorf("the message does not name %q: %s", w, text)
				}
			}
		})
	}
	text, err := helm(t, "template", "terrier", chart, "--namespace", "flux-system")
	if err == nil || !strings.Contains(text, "--namespace terrier-system") {
		t.Errorf("another namespace: %v: %s", err, text)
	}
}

// The registry has values of its own, and the flags that earlier charts had for it count more.
func TestRegistryValues(t *testing.T) {
	for name, tt := range map[string]struct {
		set  []string
		want []string
	}{
		"nothing":      {nil, nil},
		"off":          {[]string{"registry.enabled=false", "registry.storage=s3://a"}, []string{"--registry=false"}},
		"a bucket":     {[]string{"registry.storage=s3://a/b", "registry.hosts={one.example.com,two.example.com}"}, []string{"--registry-host=one.example.com", "--registry-host=two.example.com", "--registry-storage=s3://a/b"}},
		"bounds":       {[]string{"registry.quota.size=1048576", "registry.quota.versions=10", "registry.loginLife=24h"}, []string{"--registry-login-life=24h", "--registry-quota-size=1048576", "--registry-quota-versions=10"}},
		"a mirror":     {[]string{"registry.mirror.settings.deleteUnusedAfter=720h"}, []string{"--registry-config=/etc/terrier/mirror/mirror.yaml"}},
		"former flags": {[]string{"registry.storage=s3://new", "flags.registry-storage=s3://old", "registry.enabled=false", "flags.registry=true"}, []string{"--registry-storage=s3://old", "--registry=true"}},
		"off by flag":  {[]string{"registry.storage=s3://new", "flags.registry=false"}, []string{"--registry=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for _, s := range tt.set {
				args = append(args, "--set", s)
			}
			text, err := template(t, args...)
			if err != nil {
				t.Fatal(text)
			}
			var got []string
			reads := false
			for _, o := range objects(t, text) {
				if o.GetKind() == "ClusterRole" && o.GetName() == "terrier-server" {
					rules, _, err := unstructured.NestedSlice(o.Object, "rules")
					if err != nil {
						t.Fatal(err)
					}
					reads = slices.ContainsFunc(rules, func(r any) bool {
						rule := r.(map[string]any)
						return rule["resourceNames"] == nil && cmp.Equal(rule["resources"], []any{"namespaces"}) && cmp.Equal(rule["verbs"], []any{"get"})
					})
				}
				if o.GetKind() != "Deployment" {
					continue
				}
				containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range containers[0].(map[string]any)["args"].([]any) {
					if strings.HasPrefix(a.(string), "--registry") {
						got = append(got, a.(string))
					}
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("the flags are %q, want %q", got, tt.want)
			}
			if on := !slices.Contains(got, "--registry=false"); reads != on {
				t.Errorf("the controller may get namespaces: %v, want %v", reads, on)
			}
		})
	}
}

// Several controllers have data directories of their own, are spread and replaced one
// after another, and reach one another.
func TestReplicas(t *testing.T) {
	text, err := template(t, "--values", matrix(t)["replicas"])
	if err != nil {
		t.Fatal(text)
	}
	generated(t, "testdata/replicas.yaml", text)
	for _, o := range objects(t, text) {
		if o.GetKind() == "PersistentVolumeClaim" {
			t.Errorf("there is a claim: %s", o.GetName())
		}
	}
}

// All pods keep to the Pod Security Standard "restricted".
func TestPodsAreRestricted(t *testing.T) {
	k := testkit.Kube(t)
	ns := namespace("")
	ns.SetGenerateName("restricted-")
	ns.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	if err := k.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Client.Delete(t.Context(), ns) })
	for name, file := range matrix(t) {
		t.Run(name, func(t *testing.T) {
			text, err := template(t, "--values", file)
			if err != nil {
				t.Fatal(text)
			}
			i := slices.IndexFunc(objects(t, text), func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
			spec, _, err := unstructured.NestedMap(objects(t, text)[i].Object, "spec", "template", "spec")
			if err != nil {
				t.Fatal(err)
			}
			pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
			delete(spec, "serviceAccountName") // there is none in this namespace
			delete(spec, "priorityClassName")  // that of the operator
			pod.SetNamespace(ns.GetName())
			pod.SetName("pod")
			if err := k.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{
		"containers": []any{map[string]any{"name": "a", "image": "a"}},
	}}}
	pod.SetNamespace(ns.GetName())
	pod.SetName("pod")
	if err := k.Client.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that is not restricted: %v, want it refused: the test tests nothing", err)
	}
}

// What NOTES.txt tells is right for each set of values.
func TestNotes(t *testing.T) {
	for set, want := range map[string]string{
		"":                                    "create rolebinding terrier-namespace --clusterrole terrier-namespace --serviceaccount terrier-system:terrier",
		"watchNamespaces={team-a}":            "reconciles the namespaces team-a",
		"logLevel=info":                       "only ServiceAccounts can use pages, API and command line",
		"rbac.allNamespaces=true":             "rbac.allNamespaces makes the controller equal to cluster-admin",
		"networkPolicy.enabled=true":          "  namespace: NAMESPACE",
		"rbac.readAsServiceAccount=true":      "create rolebinding terrier-watch --clusterrole terrier-watch --serviceaccount terrier-system:terrier",
		"rbac.impersonation.all=true":         "system:masters\nincluded. That equals cluster-admin",
		"rbac.impersonation.groups={a-group}": "only ServiceAccounts can use pages, API and command line",
	} {
		if notes := notesOf(t, "--set", set); !strings.Contains(notes, want) {
			t.Errorf("with %q the notes do not say %q:\n%s", set, want, notes)
		}
	}
	if notes := notesOf(t, "--set", "rbac.impersonation.users={ann}"); strings.Contains(notes, "ServiceAccounts can use") || strings.Contains(notes, "cluster-admin") {
		t.Errorf("with a list of users the notes warn:\n%s", notes)
	}
	// A user who had the default before learns what to set.
	changed := "To have\nit as before, set rbac.impersonation.all to true"
	if notes := notesOf(t, "--is-upgrade"); !strings.Contains(notes, changed) {
		t.Errorf("the notes of an upgrade do not say %q:\n%s", changed, notes)
	}
	if notes := notesOf(t); strings.Contains(notes, "CHANGED") {
		t.Errorf("the notes of a new release tell of an old one:\n%s", notes)
	}
}

// notesOf are the notes of a release. Helm has them in no rendering, so the chart that is
// rendered here has them as a template.
func notesOf(t *testing.T, args ...string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "terrier")
	if err := os.CopyFS(copied, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	text := "kind: Notes\ntext: |\n{{- define \"notes\" }}" + read(t, chart+"/templates/NOTES.txt") + "{{ end }}\n{{ include \"notes\" . | indent 2 }}\n"
	if err := os.WriteFile(filepath.Join(copied, "templates", "notes.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out := mustHelm(t, append([]string{"template", "terrier", copied, "--namespace", "terrier-system", "--show-only", "templates/notes.yaml"}, args...)...)
	for _, o := range objects(t, out) {
		if text, ok := o.Object["text"].(string); ok {
			return text
		}
	}
	t.Fatalf("there are no notes:\n%s", out)
	return ""
}

// Builds reach what the operator lets them reach, or else what runs reach.
func TestEgressOfBuilds(t *testing.T) {
	base := []string{"--set", "imageBuilds.namespace=builds", "--set", "imageBuilds.image=moby/buildkit@sha256:" + strings.Repeat("0", 64)}
	rule := func(value, cidr string) []string {
		return []string{"--set", value + "[0].to[0].ipBlock.cidr=" + cidr}
	}
	runs, builds := rule("networkPolicy.runsEgress", "10.0.0.0/8"), rule("imageBuilds.egress", "10.1.0.0/16")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"neither":        {nil, "0.0.0.0/0 ::/0"},
		"that of runs":   {runs, "10.0.0.0/8"},
		"that of theirs": {builds, "10.1.0.0/16"},
		"both":           {slices.Concat(runs, builds), "10.1.0.0/16"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := template(t, slices.Concat(base, tt.args)...)
			if err != nil {
				t.Fatal(text)
			}
			for _, o := range objects(t, text) {
				if o.GetKind() != "NetworkPolicy" || o.GetNamespace() != "builds" {
					continue
				}
				var policy networkingv1.NetworkPolicy
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
					t.Fatal(err)
				}
				var reached []string
				for _, e := range policy.Spec.Egress {
					for _, to := range e.To {
						reached = append(reached, to.IPBlock.CIDR)
					}
				}
				if got := strings.Join(reached, " "); got != tt.want || len(policy.Spec.Egress) != 2 {
					t.Errorf("builds reach %s by %+v, want %s", got, policy.Spec.Egress, tt.want)
				}
				return
			}
			t.Error("the builds have no policy")
		})
	}
}

// The policy that the notes print is the one of the namespaces that the chart knows.
func TestNotesHaveThePolicy(t *testing.T) {
	args := []string{"--set", "networkPolicy.enabled=true", "--set", "rbac.namespaces={team-a}"}
	install := append([]string{"install", "terrier", chart, "--namespace", "terrier-system", "--dry-run=client"}, args...)
	_, notes, _ := strings.Cut(mustHelm(t, install...), "NOTES:")
	_, text, _ := strings.Cut(notes, "<<END\n")
	text, _, ok := strings.Cut(text, "\nEND\n")
	printed := objects(t, text)
	if !ok || len(printed) != 1 {
		t.Fatalf("the notes print %d policies:\n%s", len(printed), notes)
	}
	rendered, err := template(t, args...)
	if err != nil {
		t.Fatal(rendered)
	}
	printed[0].SetNamespace("team-a")
	for _, o := range objects(t, rendered) {
		if sprint(o) == sprint(printed[0]) {
			if diff := cmp.Diff(o.Object, printed[0].Object); diff != "" {
				t.Errorf("the notes print another policy (-chart +notes):\n%s", diff)
			}
			return
		}
	}
	t.Errorf("the chart has no %s", sprint(printed[0]))
}

func sprint(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// What the controller may not dial for a user, no pod of a release reaches by itself.
func TestMetadataServicesAreOutOfReach(t *testing.T) {
	text, err := template(t, "--set", "networkPolicy.enabled=true", "--set", "watchNamespaces={team-a}",
		"--set", "imageBuilds.namespace=builds", "--set", "imageBuilds.image=moby/buildkit@sha256:"+strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(text)
	}
	var want []string
	for _, p := range outbound.MetadataServices() {
		want = append(want, p.String())
	}
	slices.Sort(want)
	policies := 0
	for _, o := range objects(t, text) {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		var policy networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
			t.Fatal(err)
		}
		var except []string
		for _, e := range policy.Spec.Egress {
			for _, to := range e.To {
				if to.IPBlock != nil {
					except = append(except, to.IPBlock.Except...)
				}
			}
		}
		slices.Sort(except)
		if !slices.Equal(except, want) {
			t.Errorf("%s/%s lets its pods reach all but %q, want all but %q", o.GetNamespace(), o.GetName(), except, want)
		}
		policies++
	}
	if policies != 3 {
		t.Errorf("there are %d policies, want those of the controller, of runs and of builds", policies)
	}
}
