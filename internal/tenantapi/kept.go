package tenantapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// RowSecretType marks the Secrets that hold rows.
const RowSecretType corev1.SecretType = "terrier.dev/row"

// RowSecret is the name of the Secret with the row of a Tenant.
func RowSecret(name string) string { return tenant.RowSecretPrefix + name }

// Keys of a row's Secret. A variable of extraValueMappings has a key of its own, so
// that names can be shown without values.
const (
	rowUID       = "uid"
	rowHostOrURL = "hostOrUrl"
	rowActivate  = "activate"
	rowActive    = "active"
	rowExtra     = "extra." // and the variable's name; names that cannot be keys are in rowOdd
	rowOdd       = "extra"  // JSON
)

// RowData is the data of the Secret of a row.
func RowData(r tenant.Row) (map[string][]byte, error) {
	data := map[string][]byte{
		rowUID: []byte(r.UID), rowHostOrURL: []byte(r.HostOrURL),
		rowActivate: []byte(r.Activate), rowActive: strconv.AppendBool(nil, r.Active),
	}
	odd := map[string]string{}
	for name, value := range r.Extra {
		if keyFits(name) {
			data[rowExtra+name] = []byte(value)
			continue
		}
		odd[name] = value
	}
	if len(odd) > 0 {
		raw, err := json.Marshal(odd)
		if err != nil {
			return nil, fmt.Errorf("writing the variables of a row: %w", err)
		}
		data[rowOdd] = raw
	}
	return data, nil
}

// RowOf is the reverse of RowData.
func RowOf(data map[string][]byte) (tenant.Row, error) {
	r := tenant.Row{
		UID: string(data[rowUID]), HostOrURL: string(data[rowHostOrURL]),
		Activate: string(data[rowActivate]), Active: string(data[rowActive]) == "true",
		Extra: map[string]string{},
	}
	if raw := data[rowOdd]; raw != nil {
		if err := unmarshalExtra(raw, r.Extra); err != nil {
			return r, fault.New(fault.Invalid, "VariablesBuildError", fmt.Errorf("reading the key %s of the row: %w", rowOdd, err))
		}
	}
	for key, value := range data {
		if name, ok := strings.CutPrefix(key, rowExtra); ok {
			r.Extra[name] = string(value)
		}
	}
	return r, nil
}

// unmarshalExtra adds the variables of a JSON object. A null adds none: decoded into
// the map itself, it would replace the map with nil.
func unmarshalExtra(raw []byte, extra map[string]string) error {
	var more map[string]string
	err := json.Unmarshal(raw, &more)
	maps.Copy(extra, more)
	return err
}

// keyFits reports whether a name can stand in a key of a Secret.
func keyFits(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return name != "" && len(name) <= 200
}

// AnnotatedRow reads the row of a Tenant that a user or Tenant Operator created from
// its annotations. Missing ones have the defaults of Tenant Operator: the uid is the
// host, and the tenant is active.
func AnnotatedRow(t *tenantsv1.Tenant) (tenant.Row, error) {
	a := t.Annotations
	r := tenant.Row{UID: t.Spec.UID, Extra: map[string]string{}}
	r.HostOrURL = cmp.Or(a[tenantsv1.AnnotationHostOrURL], t.Spec.UID)
	r.Activate = cmp.Or(a[tenantsv1.AnnotationActivate], "true")
	r.Active = true
	if raw := a[tenantsv1.AnnotationExtra]; raw != "" {
		if err := unmarshalExtra([]byte(raw), r.Extra); err != nil {
			return r, fault.New(fault.Invalid, "VariablesBuildError", fmt.Errorf("reading the annotation %s: %w", tenantsv1.AnnotationExtra, err))
		}
	}
	return r, nil
}

// LabelTemplate is on the ControllerRevisions of a TenantTemplate: its name, unless
// that is too long for a label. Their owner reference always names it.
const LabelTemplate = "terrier.dev/template"

// RevisionName is the name of the ControllerRevision of one generation of a template.
func RevisionName(template string, generation int64) string {
	return template + "-" + strconv.FormatInt(generation, 10)
}

// Revision is the ControllerRevision of the present generation of a template.
func Revision(t *tenantsv1.TenantTemplate) (*appsv1.ControllerRevision, error) {
	raw, err := json.Marshal(t.Spec)
	if err != nil {
		return nil, fmt.Errorf("writing the spec of the template %s: %w", t.Name, err)
	}
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.Namespace, Name: RevisionName(t.Name, t.Generation),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(t, tenantsv1.GroupVersion.WithKind(tenantsv1.TemplateKind))},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: t.Generation,
	}
	if len(t.Name) <= 63 {
		r.Labels = map[string]string{LabelTemplate: t.Name}
	}
	return r, nil
}

// RevisionSpec reads the spec from a ControllerRevision.
func RevisionSpec(r *appsv1.ControllerRevision) (tenantsv1.TenantTemplateSpec, error) {
	var spec tenantsv1.TenantTemplateSpec
	if err := json.Unmarshal(r.Data.Raw, &spec); err != nil {
		return spec, fault.New(fault.Broken, "RevisionInvalid", fmt.Errorf("reading the revision %s: %w", r.Name, err))
	}
	return spec, nil
}
