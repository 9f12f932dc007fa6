package controller

import (
	"io"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// printed are the events of a run that was killed while it built.
type printed struct{ Runs }

func (printed) Open(_, _, file string) (io.ReadCloser, error) {
	content := ""
	if file == runner.FileEvents {
		content = `{"@level":"info","type":"apply_start","hook":{"resource":{"addr":"x.a","resource_type":"x","resource_name":"a"},"action":"create"}}
{"@level":"info","type":"apply_complete","hook":{"resource":{"addr":"x.a","resource_type":"x","resource_name":"a"},"action":"create","id_key":"id","id_value":"i-1"}}
`
	}
	return io.NopCloser(strings.NewReader(content)), nil
}

// A gap says whether what was built was compared with a state.
func TestAGapSaysWhetherItWasCompared(t *testing.T) {
	for name, tt := range map[string]struct {
		state          *kube.StateRef
		rescued        *runner.StateID
		outcome        stack.Outcome
		listed         bool
		apart, refused bool
	}{
		"a state that we keep":                        {&kube.StateRef{}, nil, stack.Killed, true, false, false},
		"a state elsewhere, of a run that was killed": {nil, nil, stack.Killed, true, true, false},
		"a state elsewhere that was refused":          {nil, &runner.StateID{}, stack.Failed, true, true, true},
		"a state elsewhere that the engine wrote":     {nil, nil, stack.Failed, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Stacks{Runs: printed{}, Blobs: openRecords(t)}
			var run stack.Run
			report := &runner.Report{ID: "apply-1", Kind: stack.ApplyRun, Outcome: tt.outcome, Rescued: tt.rescued}
			if err := c.findGap(t.Context(), &pass{id: "uid"}, report, note{State: tt.state}, &run); err != nil {
				t.Fatal(err)
			}
			if listed := len(run.Gap) == 1 && run.Gap[0].ID == "i-1"; listed != tt.listed || run.Apart != tt.apart || run.Rescued != tt.refused {
				t.Errorf("the gap is %+v, apart %v, rescued %v; want it listed %v, apart %v, rescued %v", run.Gap, run.Apart, run.Rescued, tt.listed, tt.apart, tt.refused)
			}
		})
	}
}
