package policies_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/review/rego"
)

// large is a plan of as many changes as given.
func large(tb testing.TB, changes int) []byte {
	tb.Helper()
	var list []any
	for i := range changes {
		after := map[string]any{"tags": map[string]any{"owner": "team-a"}, "region": "eu-central-1"}
		for j := range 20 {
			after[fmt.Sprintf("attribute_%d", j)] = fmt.Sprintf("the value of attribute %d", j)
		}
		list = append(list, map[string]any{
			"address": fmt.Sprintf("module.m.aws_instance.i[%d]", i), "module_address": "module.m", "mode": "managed", "type": "aws_instance", "name": "i", "index": i,
			"provider_name": "registry.opentofu.org/hashicorp/aws",
			"change":        map[string]any{"actions": []string{"create"}, "before": nil, "after": after, "after_unknown": map[string]any{"id": true}, "before_sensitive": false, "after_sensitive": map[string]any{}},
		})
	}
	b, err := json.Marshal(map[string]any{"format_version": "1.2", "resource_changes": list, "configuration": map[string]any{"root_module": map[string]any{}}})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// BenchmarkJudge is what one pending plan of 200 changes costs when a policy has changed:
// its document is read, and each of the policies is asked.
func BenchmarkJudge(b *testing.B) {
	raw := large(b, 200)
	var sets []*rego.Set
	for _, name := range []string{"auto-approval", "required-tags", "allowed-regions", "public-buckets"} {
		set, err := rego.Compile(b.Context(), source(b, name, false))
		if err != nil {
			b.Fatal(err)
		}
		sets = append(sets, set)
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		doc, err := document.Make(raw, document.Facts{})
		if err != nil {
			b.Fatal(err)
		}
		in, err := rego.NewInput(doc, nil, time.Unix(1e9, 0))
		if err != nil {
			b.Fatal(err)
		}
		var found []policy.Finding
		for _, set := range sets {
			found = append(found, set.Evaluate(b.Context(), rego.Question{Policy: "p", Input: in, Parameters: map[string]any{"regions": []any{"eu-central-1"}}})...)
		}
		if len(found) != 1 {
			b.Fatalf("%+v", found)
		}
	}
}
