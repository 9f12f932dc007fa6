package tenant

import "testing"

func TestParsePath(t *testing.T) {
	for entry, ok := range map[string]bool{
		"$.spec.replicas": true, "spec.replicas": true, ".spec.replicas": true, "$.metadata.annotations['example.com/a']": true,
		`$.metadata.annotations["example.com/a"]`: true, "$.spec.containers[0].image": true, "$.spec.containers[*].image": true, "$.data.*": true,
		"": false, "$": false, "$..replicas": false, "$.spec[": false, "$.spec[-1]": false, "$.spec[?(@.a)]": false, "$.spec.['a": false,
		"$.spec[99999999999999999999]": false, "$.a b": false,
		"$.*": false, "$.kind": false, "$.metadata": false, "$.metadata.*": false, "$.metadata.name": false, "$.metadata['ownerReferences']": false, "$.metadata.labels": true,
	} {
		if _, err := ParsePath(entry); (err == nil) != ok {
			t.Errorf("ParsePath(%q) = %v, want it to be good: %v", entry, err, ok)
		}
	}
}
