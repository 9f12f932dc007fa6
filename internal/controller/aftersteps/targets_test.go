package aftersteps

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if err := RemoveTargets(t.Context(), c, stranger); err != nil || data()["app.json"] != "10.0.0.1:81" {
		t.Errorf("RemoveTargets() of another = %v, and has left %v; want those that are there", err, data())
	}
	for range 2 { // the second time nothing is there
		if err := RemoveTargets(t.Context(), c, owner); err != nil || len(data()) != 0 {
			t.Errorf("RemoveTargets() = %v, and has left %v", err, data())
		}
	}
}
