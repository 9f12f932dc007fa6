package tenant

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/tenant/rendering"
)

// labelTenantID is the label by which the stacks of a tenant are found. It is the
// same as the constant of the wire types.
const labelTenantID = "terrier.dev/tenant-id"

// Label is a text as the value of a label: the text itself, if it can be one, and
// otherwise "sha256-" with the first 40 digits of its hash.
func Label(text string) string {
	if text != "" && labelError(text) == nil {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + hex.EncodeToString(sum[:])[:40]
}

// metadata returns the metadata of the object: that of the spec, with name and
// namespace, and overridden by the labels and annotations of the resource.
func (w *writing) metadata() map[string]any {
	own, _ := w.r.Object["metadata"].(map[string]any) // kindError reports one that is no object
	out := make(map[string]any, len(own)+2)
	for _, name := range keysOf(own) {
		switch name {
		case "name", "namespace", "labels", "annotations":
		default:
			out[name] = w.value(own[name], place{field: name, up: &place{field: "metadata"}})
		}
	}
	if name, ok := w.name(text(own["name"])); ok {
		out["name"] = name
	}
	if w.namespaced() {
		if namespace, ok := w.namespace(); ok && namespace != "" {
			out["namespace"] = namespace
		}
	}
	labels := w.texts(own["labels"], w.r.LabelsTemplate, "labels", labelError)
	if w.o.TenantUID != "" && isTerraform(w.apiVersion, w.kind) {
		labels[labelTenantID] = Label(w.o.TenantUID)
		w.defaults = append(w.defaults, []string{"metadata", "labels", labelTenantID})
	}
	if len(labels) > 0 {
		out["labels"] = labels
	}
	if annotations := w.texts(own["annotations"], w.r.AnnotationsTemplate, "annotations", func(string) error { return nil }); len(annotations) > 0 {
		out["annotations"] = annotations
	}
	return out
}

func (w *writing) name(own string) (string, bool) {
	template, field := w.r.NameTemplate, "nameTemplate"
	if template == "" {
		template, field = own, "spec.metadata.name"
	}
	name, ok := w.one(template, field)
	if !ok {
		return "", false
	}
	if err := nameError(w.apiVersion, w.kind, name); err != nil {
		w.fail(field, err)
		return "", false
	}
	return name, true
}

func (w *writing) namespace() (string, bool) {
	if w.r.TargetNamespace == "" {
		return w.o.Namespace, true
	}
	namespace, ok := w.one(w.r.TargetNamespace, "targetNamespace")
	if !ok {
		return "", false
	}
	if err := dnsLabelError(namespace); err != nil {
		w.fail("targetNamespace", fmt.Errorf("%s is not a valid name of a namespace: %w", quoted(namespace), err))
		return "", false
	}
	return namespace, true
}

// texts renders labels or annotations of the spec, overridden by those of the
// resource.
func (w *writing) texts(own any, over map[string]string, what string, check func(string) error) map[string]any {
	out := map[string]any{}
	add := func(key, template, field string) {
		v, ok := w.one(template, field)
		if !ok {
			return
		}
		if err := check(v); err != nil {
			w.fail(field, fmt.Errorf("%s is not a valid label value: %w", quoted(v), err))
		}
		out[key] = v
	}
	theirs, _ := own.(map[string]any)
	for _, key := range keysOf(theirs) {
		if _, ok := over[key]; !ok && theirs[key] != nil {
			add(key, text(theirs[key]), "spec.metadata."+what+"."+key)
		}
	}
	for _, key := range keysOf(over) {
		add(key, over[key], what+"Template."+key)
	}
	return out
}

// namespaced reports whether objects of this kind are in namespaces.
func (w *writing) namespaced() bool {
	if w.o.IsNamespaced != nil {
		if namespaced, known := w.o.IsNamespaced(w.apiVersion, w.kind); known {
			return namespaced
		}
	}
	return !slices.Contains(clusterScoped[groupOf(w.apiVersion)], w.kind)
}

// clusterScoped are built-in kinds without namespaces, by group, for a rendering
// without a cluster.
var clusterScoped = map[string][]string{
	"":                             {"Namespace", "Node", "PersistentVolume"},
	"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding"},
	"apiextensions.k8s.io":         {"CustomResourceDefinition"},
	"apiregistration.k8s.io":       {"APIService"},
	"admissionregistration.k8s.io": {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
	"storage.k8s.io":               {"StorageClass", "CSIDriver", "CSINode", "VolumeAttachment", "VolumeAttributesClass"},
	"scheduling.k8s.io":            {"PriorityClass"},
	"networking.k8s.io":            {"IngressClass", "IPAddress", "ServiceCIDR"},
	"node.k8s.io":                  {"RuntimeClass"},
	"certificates.k8s.io":          {"CertificateSigningRequest"},
	"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
}

func groupOf(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// kindError says why a resource does not identify an object.
func (r Resource) kindError() error {
	var errs []error
	for _, field := range []string{"apiVersion", "kind"} {
		switch s, ok := r.Object[field].(string); {
		case !ok || s == "":
			errs = append(errs, fmt.Errorf("%s is missing", field))
		case rendering.IsTemplate(s):
			errs = append(errs, fmt.Errorf("%s must not be a template: no row may choose the kind of an object", field))
		}
	}
	own, ok := r.Object["metadata"].(map[string]any)
	if r.Object["metadata"] != nil && !ok {
		errs = append(errs, errors.New("metadata is not an object"))
	}
	if s, isText := own["name"].(string); r.NameTemplate == "" && (!isText || s == "") {
		errs = append(errs, errors.New("the object has no name: there is neither nameTemplate nor metadata.name"))
	}
	for _, field := range []string{"generateName", "ownerReferences"} {
		if own[field] != nil {
			errs = append(errs, fmt.Errorf("metadata.%s cannot be set: %s", field, map[string]string{
				"generateName": "each rendering would create another object", "ownerReferences": "the Tenant owns its objects",
			}[field]))
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		values, ok := own[field].(map[string]any)
		if own[field] != nil && !ok {
			errs = append(errs, fmt.Errorf("metadata.%s is not a map", field))
		}
		for _, key := range keysOf(values) {
			if _, isText := values[key].(string); !isText && values[key] != nil {
				errs = append(errs, fmt.Errorf("metadata.%s.%s is not a string: put %v in quotes", field, key, values[key]))
			}
		}
	}
	return errors.Join(errs...)
}
