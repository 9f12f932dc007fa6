package query

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// builtin knows the types of fields of the kinds that Kubernetes has itself, for
// rendering without a cluster.
type builtin struct{}

// At implements tenant.Types by walking the Go types of a kind.
func (builtin) At(apiVersion, kind string, path []string) tenant.Type {
	object, err := clientscheme.Scheme.New(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		return tenant.Unknown
	}
	at := reflect.TypeOf(object)
	for _, step := range path {
		if at = stepInto(at, step); at == nil {
			return tenant.Unknown
		}
	}
	return typeOf(at)
}

// List implements tenant.Types. Go types do not name all keys of lists.
func (builtin) List(string, string, []string) tenant.List { return tenant.List{} }

var (
	intOrString = reflect.TypeFor[intstr.IntOrString]()
	quantity    = reflect.TypeFor[resource.Quantity]()
	marshaler   = reflect.TypeFor[json.Marshaler]()
)

func typeOf(t reflect.Type) tenant.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == intOrString:
		return tenant.IntOrString
	case t == quantity:
		return tenant.Text
	case t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler):
		return tenant.Unknown // it reads what it likes
	}
	switch t.Kind() {
	case reflect.Bool:
		return tenant.Boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return tenant.Integer
	case reflect.Float32, reflect.Float64:
		return tenant.Number
	case reflect.String:
		return tenant.Text
	default:
		return tenant.Unknown
	}
}

// stepInto is the type of a field, an element or a value; nil if there is none.
func stepInto(t reflect.Type, step string) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice:
		if step == "[]" && t.Elem().Kind() != reflect.Uint8 {
			return t.Elem()
		}
	case reflect.Map:
		return t.Elem() // whatever the key
	case reflect.Struct:
		return field(t, step)
	}
	return nil
}

// field finds a field by its name in JSON, also in what is embedded.
func field(t reflect.Type, name string) reflect.Type {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name && tag != "":
			return f.Type
		case f.Anonymous && tag == "":
			if in := field(f.Type, name); in != nil {
				return in
			}
		}
	}
	return nil
}

// ofTheCluster are the built-in kinds that are in no namespace.
var ofTheCluster = []string{
	"APIService", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding", "CSIDriver", "CSINode",
	"CustomResourceDefinition", "FlowSchema", "IngressClass", "MutatingWebhookConfiguration", "Namespace", "Node",
	"PersistentVolume", "PriorityClass", "PriorityLevelConfiguration", "RuntimeClass", "StorageClass",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VolumeAttachment",
}

func (builtin) isNamespaced(apiVersion, kind string) (namespaced, known bool) {
	if slices.Contains(ofTheCluster, kind) {
		return false, true
	}
	return true, clientscheme.Scheme.Recognizes(schema.FromAPIVersionAndKind(apiVersion, kind))
}
