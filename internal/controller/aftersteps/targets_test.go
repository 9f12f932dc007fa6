package aftersteps

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Targets of steps that succeeded are written, those of others stay as they were, and another
// owner's ConfigMap is left alone.
func TestTargets(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	owner := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "app", UID: "1"}} // any object may own one
	watch := func(name string, port int) afterapply.Step {
		return afterapply.Step{Name: name, Targets: &afterapply.Targets{HostsFrom: "hosts", Port: port}}
	}
	outputs := map[string]kube.Output{"hosts": {Value: json.RawMessage(`"10.0.0.1"`)}}
	succeeded := func(names ...string) (all []stack.StepResult) {
		for _, n := range names {
			all = append(all, stack.StepResult{Name: n, State: stack.StepSucceeded})
		}
		return all
	}
	data := func() map[string]string {
		t.Helper()
		var is corev1.ConfigMap
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "a", Name: "app-targets"}, &is); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for key, text := range is.Data {
			out[key] = text[strings.Index(text, ":[")+3 : strings.Index(text, "]")-1]
		}
		return out
	}
	for _, step := range []struct {
		when    string
		steps   []afterapply.Step
		results []stack.StepResult
		want    map[string]string
	}{
		{"at first", []afterapply.Step{watch("node", 9100), watch("app", 80)}, succeeded("node"), map[string]string{"node.json": "10.0.0.1:9100"}},
		{"once both succeeded", []afterapply.Step{watch("node", 9100), watch("app", 80)}, succeeded("node", "app"), map[string]string{"node.json": "10.0.0.1:9100", "app.json": "10.0.0.1:80"}},
		{"after one of them failed with another port", []afterapply.Step{watch("node", 9100), watch("app", 81)}, succeeded("node"), map[string]string{"node.json": "10.0.0.1:9100", "app.json": "10.0.0.1:80"}},
		{"without one of them", []afterapply.Step{watch("app", 81)}, succeeded("app"), map[string]string{"app.json": "10.0.0.1:81"}},
	} {
		if err := WriteTargets(t.Context(), c, owner, step.steps, outputs, step.results); err != nil {
			t.Fatalf("%s: WriteTargets() = %v", step.when, err)
		}
		if got := data(); !maps.Equal(got, step.want) {
			t.Errorf("%s (-want +got):\n%s", step.when, cmp.Diff(step.want, got))
		}
	}
	stranger := owner.DeepCopy()
	stranger.UID = "2"
	if err := WriteTargets(t.Context(), c, stranger, []afterapply.Step{watch("app", 82)}, outputs, succeeded("app")); fault.Of(err) != fault.Denied {
		t.Errorf("WriteTargets() over those of another = %v, want Denied", err)
	}
	if err := RemoveTargets(t.Context(), c, stranger, nil); err != nil || data()["app.json"] != "10.0.0.1:81" {
		t.Errorf("RemoveTargets() of another = %v, and has left %v; want those that are there", err, data())
	}
	for range 2 { // the second time nothing is there
		if err := RemoveTargets(t.Context(), c, owner, nil); err != nil || len(data()) != 0 {
			t.Errorf("RemoveTargets() = %v, and has left %v", err, data())
		}
	}
}

// Where the operator of Prometheus is, each step that asks for it has a ScrapeConfig, which says
// what the ConfigMap says, and goes with it. Where it is not, the step is told so.
func TestScrapeConfigs(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypeWithName(scrapeKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(scrapeKind.GroupVersion().WithKind("ScrapeConfigList"), &unstructured.UnstructuredList{})
	without := meta.NewDefaultRESTMapper(nil)
	without.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	with := meta.NewDefaultRESTMapper(nil)
	with.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	with.Add(scrapeKind, meta.RESTScopeNamespace)
	owner := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "app", UID: "1"}}
	steps := []afterapply.Step{
		{Name: "node", Targets: &afterapply.Targets{HostsFrom: "hosts", Port: 9100, ScrapeConfig: &afterapply.ScrapeConfig{Labels: map[string]string{"release": "prometheus"}, Path: "/probe", Scheme: "HTTPS"}}},
		{Name: "app", Targets: &afterapply.Targets{HostsFrom: "hosts", Port: 80}},
	}
	results := []stack.StepResult{{Name: "node", State: stack.StepSucceeded}, {Name: "app", State: stack.StepSucceeded}}
	outputs := func(address string) map[string]kube.Output {
		return map[string]kube.Output{"hosts": {Value: json.RawMessage(`{"web01": "` + address + `"}`)}}
	}

	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(without).Build()
	if err := WriteTargets(t.Context(), c, owner, steps, outputs("10.0.0.1"), results); fault.Reason(err, "") != "ScrapeConfigNotServed" {
		t.Errorf("WriteTargets() without the kind = %v, want that it says so", err)
	}
	var kept corev1.ConfigMap
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "a", Name: "app-targets"}, &kept); err != nil || len(kept.Data) != 2 {
		t.Errorf("without the kind the ConfigMap has %v, %v, want both steps", kept.Data, err)
	}
	if err := RemoveTargets(t.Context(), c, owner, steps); err != nil {
		t.Errorf("RemoveTargets() without the kind = %v", err)
	}

	c = fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(with).Build()
	found := func() []unstructured.Unstructured {
		t.Helper()
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(scrapeKind.GroupVersion().WithKind("ScrapeConfigList"))
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	for _, address := range []string{"10.0.0.1", "10.0.0.2"} {
		if err := WriteTargets(t.Context(), c, owner, steps, outputs(address), results); err != nil {
			t.Fatal(err)
		}
		all := found()
		if len(all) != 1 {
			t.Fatalf("there are %d ScrapeConfigs, want that of one step: %v", len(all), all)
		}
		want := map[string]any{"metricsPath": "/probe", "scheme": "HTTPS", "staticConfigs": []any{map[string]any{"targets": []any{address + ":9100"}, "labels": map[string]any{"host": "web01"}}}}
		if diff := cmp.Diff(want, all[0].Object["spec"]); diff != "" || all[0].GetName() != "app-node" || all[0].GetLabels()["release"] != "prometheus" || !metav1.IsControlledBy(&all[0], owner) {
			t.Errorf("the ScrapeConfig %s with the labels %v (-want +got):\n%s", all[0].GetName(), all[0].GetLabels(), diff)
		}
	}
	if err := WriteTargets(t.Context(), c, owner, steps[1:], outputs("10.0.0.2"), results[1:]); err != nil || len(found()) != 0 {
		t.Errorf("without the step WriteTargets() = %v, and there are %v", err, found())
	}
	if err := WriteTargets(t.Context(), c, owner, steps, outputs("10.0.0.2"), results); err != nil {
		t.Fatal(err)
	}
	stranger := owner.DeepCopy()
	stranger.UID = "2"
	if err := RemoveTargets(t.Context(), c, stranger, steps); err != nil || len(found()) != 1 {
		t.Errorf("RemoveTargets() of another = %v, and there are %d, want the one", err, len(found()))
	}
	if err := RemoveTargets(t.Context(), c, owner, steps); err != nil || len(found()) != 0 {
		t.Errorf("RemoveTargets() = %v, and there are %v", err, found())
	}
}
