package interpreter

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

// FuzzWeave: a Policy object of the Weave policy agent that is for plans and switched on is
// read, or refused, which holds the plans. It is never taken for one that is off. Without
// targets and exclusions it is for every stack.
func FuzzWeave(f *testing.F) {
	object := func(spec string) string {
		return `{"apiVersion": "pac.weave.works/v2beta3", "kind": "Policy", "metadata": {"name": "p"}, "spec": ` + spec + `}`
	}
	for _, seed := range []string{
		object(`{"provider": "terraform", "code": "package a\nviolation[x] { x := input.parameters.a }", "parameters": [{"name": "a", "type": "string", "required": true, "value": "b"}]}`),
		object(`{"provider": "terraform", "parameters": [{"name": "a", "required": true, "value": null}]}`),
		object(`{"provider": "terraform", "parameters": [{"name": "", "value": {"a": [1e400, null]}}, {"name": ""}, null]}`),
		object(`{"provider": "terraform", "parameters": {"name": "a"}}`),
		object(`{"provider": "terraform", "enabled": "false"}`), object(`{"provider": "terraform", "enabled": null}`),
		object(`{"provider": "terraform", "enabled": false}`), object(`{"provider": "terraform", "enforce": 0}`),
		object(`{"provider": "terraform", "targets": {"kinds": "Terraform"}}`), object(`{"provider": "terraform", "targets": {"labels": [{"a": 1}]}}`),
		object(`{"provider": "terraform", "targets": {"kinds": ["Terraform"], "labels": [{"a": "*"}], "namespaces": [""]}, "exclude": {"namespaces": ["a"], "resources": ["a/b"], "labels": {"": "*"}}}`),
		object(`{"provider": "terraform", "severity": 7, "code": ["a"]}`), object(`{"provider": "Terraform"}`), object(`null`), object(`[]`),
		`{"apiVersion": "pac.weave.works/", "kind": "Policy", "metadata": 1}`, `{}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, manifest string) {
		var object map[string]any
		if json.Unmarshal([]byte(manifest), &object) != nil || object == nil {
			return // the API server stores no such object
		}
		w, err := Weave(object)
		version, _ := object["apiVersion"].(string)
		spec, _ := object["spec"].(map[string]any)
		off := spec["enabled"] == false
		meant := object["kind"] == "Policy" && strings.HasPrefix(version, "pac.weave.works/") && spec["provider"] == "terraform" && !off
		switch {
		case err != nil:
			if fault.Of(err) != fault.Invalid {
				t.Errorf("%s: %v, want an error that its author mends", manifest, err)
			}
			return
		case meant && !w.Judges:
			t.Errorf("%s: the policy is for plans, and does not judge them", manifest)
		case w.Judges && (w.Text.ID == "" || w.Text.What == nil || w.Selects == nil):
			t.Errorf("%s: the policy judges plans, and nothing is to be compiled: %+v", manifest, w)
		}
		if w.Judges && spec["targets"] == nil && spec["exclude"] == nil && !w.Selects("Terraform", "a", "b", map[string]string{"c": "d"}) {
			t.Errorf("%s: the policy has no targets and no exclusions, and leaves a stack out", manifest)
		}
	})
}
