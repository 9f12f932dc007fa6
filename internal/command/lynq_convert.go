package command

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// convertHub makes a suspended registry of a hub: its source and mappings are
// the same, word for word.
func convertHub(hub *unstructured.Unstructured) ImportedObject {
	spec := specOf(hub)
	out := map[string]any{"suspend": true}
	notes := carry(spec, out, "source", "valueMappings", "extraValueMappings")
	notes = append(notes, "suspended: begin with terrier resume tenantregistry/"+hub.GetName()+" once Lynq has let go of its objects")
	return imported(hub, tenantsv1.RegistryKind, out, notes)
}

// convertForm makes a template of a form: hubId is called registryId here, and
// the variable of that name too.
func convertForm(form *unstructured.Unstructured) ImportedObject {
	spec := specOf(form)
	out := map[string]any{}
	var groups tenantsv1.Resources
	known := []string{"rollout"}
	for _, g := range groups.Groups() {
		known = append(known, g.Name)
	}
	out["registryId"] = spec["hubId"]
	delete(spec, "hubId")
	notes := carry(spec, out, known...)
	for _, g := range groups.Groups() {
		list, _ := out[g.Name].([]any)
		for _, one := range list {
			if r, ok := one.(map[string]any); ok {
				notes = append(notes, resourceNotes(g.Name, r)...)
			}
		}
	}
	return imported(form, tenantsv1.TemplateKind, out, notes)
}

func specOf(o *unstructured.Unstructured) map[string]any {
	spec, _ := o.Object["spec"].(map[string]any)
	return runtime.DeepCopyJSON(maps.Clone(spec))
}

// carry moves what is known over, and says what is not.
func carry(from, to map[string]any, known ...string) []string {
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if !slices.Contains(known, name) {
			notes = append(notes, fmt.Sprintf("spec.%s is not known here, and was left out", name))
			continue
		}
		to[name] = from[name]
	}
	return notes
}

var (
	hubVariable = regexp.MustCompile(`\.hubId\b`)
	typedInText = regexp.MustCompile(`\{\{[^}]*\b(int|float|bool)\b[^}]*\}\}`)
	action      = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
)

// resourceNotes changes what has another name here, and says what a person has
// to look at.
func resourceNotes(group string, r map[string]any) []string {
	id, _ := r["id"].(string)
	renamed, typed := false, false
	for name, value := range r {
		r[name] = eachText(value, func(s string) string {
			typed = typed || typedInText.MatchString(s)
			return action.ReplaceAllStringFunc(s, func(a string) string {
				out := hubVariable.ReplaceAllString(a, ".registryId")
				renamed = renamed || out != a
				return out
			})
		})
	}
	var notes []string
	if renamed {
		notes = append(notes, fmt.Sprintf("%s/%s: .hubId became .registryId", group, id))
	}
	if typed {
		notes = append(notes, fmt.Sprintf("%s/%s: int, float or bool: here a text becomes a number or a truth value where the schema of the field says so; compare with terrier render", group, id))
	}
	return notes
}

// eachText changes every text in a value.
func eachText(v any, change func(string) string) any {
	switch v := v.(type) {
	case string:
		if !strings.Contains(v, "{{") {
			return v
		}
		return change(v)
	case []any:
		for i := range v {
			v[i] = eachText(v[i], change)
		}
	case map[string]any:
		for k := range v {
			v[k] = eachText(v[k], change)
		}
	}
	return v
}
