package plan

import (
	"encoding/json"
	"testing"
)

// The resources before a plan are counted from the state in the document, and from the
// changes where that was left out for its size.
func TestResources(t *testing.T) {
	for name, want := range map[string]int{"plan.json": 8, "destroy.json": 8, "unchanged.json": 8, "drift-found.json": 1} {
		whole := raw(t, name)
		var all map[string]any
		if err := json.Unmarshal(whole, &all); err != nil {
			t.Fatal(err)
		}
		delete(all, "prior_state")
		for what, doc := range map[string][]byte{"": whole, " without its state": encode(all)} {
			if got := parse(t, doc).Resources(); got != want {
				t.Errorf("Resources() of %s%s = %d, want %d", name, what, got, want)
			}
		}
	}
	cut := parse(t, []byte(`{"format_version":"1.2","resource_changes":[],"truncated":["resource_changes"]}`))
	if got := cut.Resources(); got >= 0 {
		t.Errorf("Resources() of a document without its changes = %d, want a negative number", got)
	}
}
