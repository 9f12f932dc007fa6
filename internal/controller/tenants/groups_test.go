package tenants

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// sixteen is one resource of each group. The Job has its selector from its
// template, since with replace what the server would set may not change.
var sixteen = []struct {
	group string
	gvk   schema.GroupVersionKind
	spec  string // apart from apiVersion and kind
}{
	{"serviceAccounts", schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, ``},
	{"deployments", schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, `spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x}]}}}`},
	{"statefulSets", schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, `spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x}]}}}`},
	{"daemonSets", schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, `spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x}]}}}`},
	{"services", schema.GroupVersionKind{Version: "v1", Kind: "Service"}, `spec: {selector: {a: b}, ports: [{port: 80}]}`},
	{"ingresses", schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}, `spec: {rules: [{host: "{{ .host }}", http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}}]}`},
	{"configMaps", schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, `data: {host: "{{ .host }}"}`},
	{"secrets", schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, `stringData: {host: "{{ .host }}"}`},
	{"persistentVolumeClaims", schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, `spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`},
	{"jobs", schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, `spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}`},
	{"cronJobs", schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, `spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}}}`},
	{"podDisruptionBudgets", schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, `spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}`},
	{"networkPolicies", schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, `spec: {podSelector: {matchLabels: {a: b}}}`},
	{"horizontalPodAutoscalers", schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}, `spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x}}`},
	{"namespaces", schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, ``},
	{"manifests", schema.GroupVersionKind{Group: "infra.contrib.fluxcd.io", Version: "v1alpha2", Kind: "Terraform"}, `spec: {interval: 5m, path: ./, sourceRef: {kind: GitRepository, name: x}}`},
}

// Every group, with every combination of the policies: what is made, what an
// edit of the template does, and what stays when the tenant goes.
func TestSixteenGroups(t *testing.T) {
	for _, patch := range []string{"apply", "merge", "replace"} {
		for _, creation := range []string{"WhenNeeded", "Once"} {
			for _, deletion := range []string{"Delete", "Retain"} {
				for _, conflict := range []string{"Stuck", "Force"} {
					t.Run(strings.Join([]string{patch, creation, deletion, conflict}, " "), func(t *testing.T) {
						t.Parallel()
						sixteenGroups(t, patch, creation, deletion, conflict)
					})
				}
			}
		}
	}
}

func sixteenGroups(t *testing.T, patch, creation, deletion, conflict string) {
	l := newLab(t)
	l.c.observer.Namespaces = []string{"*"}
	template := func(edition string) string {
		text := ""
		for _, s := range sixteen {
			name := "acme-x"
			if s.gvk.Kind == "Namespace" {
				name = l.Namespace + "-x"
			}
			apiVersion, kind := s.gvk.ToAPIVersionAndKind()
			text += fmt.Sprintf("%s:\n- id: %s\n  nameTemplate: %s\n  labelsTemplate: {edition: %q}\n  waitForReady: false\n  patchStrategy: %s\n  creationPolicy: %s\n  deletionPolicy: %s\n  conflictPolicy: %s\n  spec:\n    apiVersion: %s\n    kind: %s\n",
				s.group, s.group, name, edition, patch, creation, deletion, conflict, apiVersion, kind)
			if s.spec != "" {
				text += "    " + s.spec + "\n"
			}
		}
		return text
	}
	ctx := context.WithoutCancel(t.Context()) // cleaning up comes after the end of the other
	get := func(gvk schema.GroupVersionKind) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		key := client.ObjectKey{Namespace: l.Namespace, Name: "acme-x"}
		if gvk.Kind == "Namespace" {
			key = client.ObjectKey{Name: l.Namespace + "-x"}
		}
		err := l.Client.Get(ctx, key, u)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if err != nil {
			return nil
		}
		return u
	}
	t.Cleanup(func() {
		if u := get(sixteen[14].gvk); u != nil {
			_ = l.Client.Delete(ctx, u) // it is outside of the test's namespace
		}
	})
	l.tenant(template("first"))
	l.look()
	if s := l.get().Status; s.ReadyResources != 16 || s.DesiredResources != 16 || len(s.Inventory) != 16 {
		t.Fatalf("%d of %d ready, %d in the inventory, want 16 of 16 and 16\n%s", s.ReadyResources, s.DesiredResources, len(s.Inventory), l.text())
	}
	l.tenant(template("second"))
	l.look()
	l.wantStates("after an edit", "")
	want := "second"
	if creation == "Once" {
		want = "first"
	}
	for _, s := range sixteen {
		u := get(s.gvk)
		if u == nil {
			t.Fatalf("%s is not there", s.gvk.Kind)
		}
		if got := u.GetLabels()["edition"]; got != want {
			t.Errorf("%s is of the %s edition, want the %s", s.gvk.Kind, got, want)
		}
		if got := u.GetAnnotations()[tenantsv1.AnnotationCreatedOnce] == "true"; got != (creation == "Once") {
			t.Errorf("%s says that it was created once: %t", s.gvk.Kind, got)
		}
		mine := len(u.GetOwnerReferences()) == 1
		if tracked := u.GetLabels()[tenantsv1.LabelTenant] == "acme-web"; tracked == mine || mine != (deletion == "Delete" && s.gvk.Kind != "Namespace") {
			t.Errorf("%s has an owner: %t, and tracking labels: %t", s.gvk.Kind, mine, tracked)
		}
	}
	l.deleteTenant()
	l.look()
	for _, s := range sixteen {
		switch u := get(s.gvk); {
		case deletion == "Retain":
			wantOrphan(t, u, "TenantDeleted")
		case u != nil && u.GetDeletionTimestamp() == nil:
			t.Errorf("%s stays: %s", s.gvk.Kind, l.states())
		}
	}
}
