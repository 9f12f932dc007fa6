package infra

import (
	"encoding/json"
	"strings"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// BrokenLines are the blocks of an inline module that will be broken into lines,
// in an object that is still a template: only the fields that hold the module are
// read. Objects of other kinds have none.
func BrokenLines(object map[string]any) []module.OneLine {
	group, _, _ := strings.Cut(text(object["apiVersion"]), "/")
	spec, _ := object["spec"].(map[string]any)
	if group != v1alpha2.GroupVersion.Group || object["kind"] != v1alpha2.Kind {
		return nil
	}
	b, err := json.Marshal(map[string]any{"sourceRef": spec["sourceRef"], "values": spec["values"]})
	if err != nil {
		return nil
	}
	var s v1alpha2.TerraformSpec
	if json.Unmarshal(b, &s) != nil {
		return nil
	}
	return brokenLines(&s)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
