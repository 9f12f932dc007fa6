package stack

import (
	"encoding/json"
	"testing"
)

// Objects and records that were written before release 1 are still understood.
func TestFormerReasonsAreRead(t *testing.T) {
	for former, want := range map[string]Reason{
		"GlassBroken": BreakGlassSession, "StateWentBack": StateRegressed, "ChangesComing": SourceDebounced,
		"Applied": Applied, "": "",
	} {
		var d Decided
		if err := json.Unmarshal([]byte(`{"phase":"`+former+`","rule":"r"}`), &d); err != nil {
			t.Fatal(err)
		}
		if d.Phase != string(want) || d.Rule != "r" || ParseReason(former) != want {
			t.Errorf("%q is read as %+v, want %q", former, d, want)
		}
	}
}
