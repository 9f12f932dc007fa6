package tenants

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

// edit changes an object as another client.
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
