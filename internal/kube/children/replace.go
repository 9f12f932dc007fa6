package children

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// serverFields are fields of every kind that the server sets.
var serverFields = [][]string{
	{"metadata", "uid"}, {"metadata", "creationTimestamp"}, {"metadata", "generation"}, {"metadata", "resourceVersion"},
	{"metadata", "selfLink"}, {"metadata", "deletionTimestamp"}, {"metadata", "deletionGracePeriodSeconds"}, {"status"},
}

var finalizers = []string{"metadata", "finalizers"}

// serverFieldsOf are fields that the server, or a controller, fills in, and that
// cannot change, or not without harm.
var serverFieldsOf = map[schema.GroupKind][][]string{
	{Kind: "Service"}: {
		{"spec", "clusterIP"}, {"spec", "clusterIPs"}, {"spec", "ipFamilies"}, {"spec", "ipFamilyPolicy"}, {"spec", "healthCheckNodePort"},
	},
	{Kind: "PersistentVolumeClaim"}:     {{"spec", "volumeName"}, {"spec", "storageClassName"}, {"spec", "volumeMode"}},
	{Kind: "ServiceAccount"}:            {{"secrets"}, {"imagePullSecrets"}},
	{Group: "batch", Kind: "Job"}:       {{"spec", "selector"}},
	{Group: "apps", Kind: "Deployment"}: {{"metadata", "annotations", "deployment.kubernetes.io/revision"}},
}

// keepServerFields copies into an object that replaces another the fields that the
// server set and the template does not, and, without force, the labels and
// annotations that others manage.
func keepServerFields(desired, live *unstructured.Unstructured, force bool) {
	for _, path := range serverFields {
		unstructured.RemoveNestedField(desired.Object, path...)
	}
	kind := live.GroupVersionKind().GroupKind()
	for _, paths := range [][][]string{serverFields, {finalizers}, serverFieldsOf[kind]} {
		for _, path := range paths {
			fill(desired.Object, live.Object, path)
		}
	}
	if !force {
		for _, path := range labelsOfOthers(live) {
			fill(desired.Object, live.Object, path)
		}
	}
	switch kind {
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		keepTemplate(desired.Object, live.Object)
	case schema.GroupKind{Kind: "Service"}:
		keepNodePorts(desired.Object, live.Object)
	}
}

// fill copies a field that desired does not have.
func fill(desired, live map[string]any, path []string) {
	if _, set, _ := unstructured.NestedFieldNoCopy(desired, path...); set {
		return
	}
	if value, set, err := unstructured.NestedFieldCopy(live, path...); err == nil && set {
		_ = unstructured.SetNestedField(desired, value, path...) // fails only if a parent is no object, as it is in live too
	}
}

// labelsOfOthers are the labels and annotations that other managers set.
func labelsOfOthers(live *unstructured.Unstructured) [][]string {
	var all [][]string
	for _, entry := range live.GetManagedFields() {
		set := fieldSet(entry)
		if entry.Manager == manager || set == nil {
			continue
		}
		set.Iterate(func(p fieldpath.Path) {
			if len(p) == 3 && *p[0].FieldName == "metadata" && p[2].FieldName != nil && (*p[1].FieldName == "labels" || *p[1].FieldName == "annotations") {
				all = append(all, []string{*p[0].FieldName, *p[1].FieldName, *p[2].FieldName})
			}
		})
	}
	return all
}

// keepTemplate keeps the template of a Job, which cannot change: the server has
// added labels to it. The server refuses one that is desired to differ.
func keepTemplate(desired, live map[string]any) {
	want, _, _ := unstructured.NestedMap(desired, "spec", "template")
	is, found, _ := unstructured.NestedMap(live, "spec", "template")
	if found && covers(want, is, false) {
		_ = unstructured.SetNestedMap(desired, is, "spec", "template") // spec is an object, as it is in live
	}
}

// keepNodePorts keeps the node ports of a Service, by port.
func keepNodePorts(desired, live map[string]any) {
	was, _, _ := unstructured.NestedSlice(live, "spec", "ports")
	want, found, _ := unstructured.NestedSlice(desired, "spec", "ports")
	if !found {
		return
	}
	for _, p := range want {
		port, ok := p.(map[string]any)
		if !ok || port["nodePort"] != nil {
			continue
		}
		for _, q := range was {
			if old, ok := q.(map[string]any); ok && equal(old["port"], port["port"]) && old["nodePort"] != nil && equal(old["name"], port["name"]) {
				port["nodePort"] = old["nodePort"]
			}
		}
	}
	_ = unstructured.SetNestedSlice(desired, want, "spec", "ports")
}
