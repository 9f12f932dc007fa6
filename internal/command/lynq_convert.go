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

// convertHub makes a suspended registry from a hub: source and mappings are the
// same.
func convertHub(hub *unstructured.Unstructured) ImportedObject {
	spec := specOf(hub)
	out := map[string]any{"suspend": true}
	notes := carry(spec, out, "source", "valueMappings", "extraValueMappings")
	notes = append(notes, "suspended: when Lynq has released its objects, run terrier resume tenantregistry/"+hub.GetName()+"")
	return imported(hub, tenantsv1.RegistryKind, out, notes)
}

// convertForm makes a template from a form: hubId becomes registryId, and so does
// the variable of that name.
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

// carry copies known fields, and notes the others.
func carry(from, to map[string]any, known ...string) []string {
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if !slices.Contains(known, name) {
			notes = append(notes, fmt.Sprintf("Terrier has no field spec.%s, so it was left out", name))
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

// resourceNotes renames what has another name in Terrier, and notes what a user has
// to check.
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
		notes = append(notes, fmt.Sprintf("%s/%s: int, float or bool: Terrier turns a text into a number or a boolean where the schema of the field says so; compare with terrier render", group, id))
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
