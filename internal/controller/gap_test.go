package controller

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// printed are the events of a run that was killed while it built.
type printed struct{ runner.Runner }

// silent are those of a run whose provider died while it built.
type silent struct{ runner.Runner }

func (silent) Open(_, _, file string) (io.ReadCloser, error) {
	content := ""
	if file == runner.FileEvents {
		content = `{"@level":"info","type":"apply_start","hook":{"resource":{"addr":"x.a","resource_type":"x","resource_name":"a"},"action":"create"}}
{"@level":"info","type":"apply_errored","hook":{"resource":{"addr":"x.a","resource_type":"x","resource_name":"a"},"action":"create"}}
{"@level":"error","type":"diagnostic","diagnostic":{"severity":"error","summary":"Plugin did not respond","address":"x.a"}}
`
	}
	return io.NopCloser(strings.NewReader(content)), nil
}

func (printed) Open(_, _, file string) (io.ReadCloser, error) {
	content := ""
	if file == runner.FileEvents {
		content = `{"@level":"info","type":"apply_start","hook":{"resource":{"addr":"x.a","resource_type":"x","resource_name":"a"},"action":"create"}}
{"@level":"info","type":"apply_complete","hook":{"resource":{"addr":"x.a","resource_type":"x","resource_name":"a"},"action":"create","id_key":"id","id_value":"i-1"}}
`
	}
	return io.NopCloser(strings.NewReader(content)), nil
}

// Untracked says whether the created resources were compared with a state.
func TestUntrackedSaysWhetherItWasCompared(t *testing.T) {
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
			c := takeApart(&Stacks{Runner: printed{}, Blobs: openRecords(t)})
			var run stack.Run
			report := &runner.Report{ID: "apply-1", Kind: stack.ApplyRun, Outcome: tt.outcome, Rescued: tt.rescued}
			if err := c.findUntracked(t.Context(), &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}}, report, note{State: tt.state}, &run); err != nil {
				t.Fatal(err)
			}
			if listed := len(run.Untracked) == 1 && run.Untracked[0].ID == "i-1"; listed != tt.listed || run.Apart != tt.apart || run.Rescued != tt.refused {
				t.Errorf("the gap is %+v, apart %v, rescued %v; want it listed %v, apart %v, rescued %v", run.Untracked, run.Apart, run.Rescued, tt.listed, tt.apart, tt.refused)
			}
		})
	}
}

// F11: a run that is lost with its machine may have created what its plan creates, whatever
// its events tell: another apply would create it a second time.
func TestALostRunMayHaveCreatedWhatItsPlanCreates(t *testing.T) {
	const doc = `{"format_version":"1.2","resource_changes":[
		{"address":"x.a","mode":"managed","type":"x","name":"a","change":{"actions":["create"]}},
		{"address":"x.b","mode":"managed","type":"x","name":"b","change":{"actions":["create"]}}]}`
	made := &stack.Plan{Name: "plan-1", Digest: "sha256:d"}
	for name, tt := range map[string]struct {
		lost bool
		want []stack.UntrackedResource
	}{
		"it is lost":   {true, []stack.UntrackedResource{{Address: "x.a", ID: "i-1", Finished: true}, {Address: "x.b"}}},
		"it is killed": {false, []stack.UntrackedResource{{Address: "x.a", ID: "i-1", Finished: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := takeApart(&Stacks{Runner: printed{}, Blobs: openRecords(t)})
			if err := c.records.Put(t.Context(), record.Plan("uid", made.Digest, string(review.Masked)), []byte(doc)); err != nil {
				t.Fatal(err)
			}
			var run stack.Run
			report := &runner.Report{ID: "apply-1", Kind: stack.ApplyRun, Outcome: stack.Killed, Lost: tt.lost}
			n := note{State: &kube.StateRef{}, Cause: stack.Cause{Plan: made}}
			if err := c.findUntracked(t.Context(), &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}}, report, n, &run); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(run.Untracked, tt.want) || run.Lost != tt.lost {
				t.Errorf("untracked are %+v, lost %v; want %+v", run.Untracked, run.Lost, tt.want)
			}
		})
	}
}

// A provider that dies while it creates something may have created it, wherever
// the state is: the engine writes one without it, and a second apply would make
// it twice.
func TestAProviderThatDiesLeavesUntrackedResources(t *testing.T) {
	for name, state := range map[string]*kube.StateRef{"a state that we keep": {}, "a state elsewhere": nil} {
		t.Run(name, func(t *testing.T) {
			c := takeApart(&Stacks{Runner: silent{}, Blobs: openRecords(t)})
			var run stack.Run
			report := &runner.Report{ID: "apply-1", Kind: stack.ApplyRun, Outcome: stack.Failed}
			if err := c.findUntracked(t.Context(), &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}}, report, note{State: state}, &run); err != nil {
				t.Fatal(err)
			}
			if want := []stack.UntrackedResource{{Address: "x.a"}}; !slices.Equal(run.Untracked, want) || run.Apart != (state == nil) {
				t.Errorf("the gap is %+v, apart %v; want %+v", run.Untracked, run.Apart, want)
			}
		})
	}
}

// Untracked resources stay listed until a state has them, also if the run that
// imports them is interrupted itself.
func TestUntrackedOutlastsTheNextRun(t *testing.T) {
	was := &stack.Untracked{Run: "apply-1", Objects: []stack.UntrackedResource{{Address: "x.a", ID: "i-0"}, {Address: "x.in", ID: "1"}, {Address: "x.out", ID: "2"}}}
	c := takeApart(&Stacks{Runner: printed{}, Blobs: openRecords(t)})
	state := `{"version":4,"resources":[{"mode":"managed","type":"x","name":"in","instances":[{"attributes":{"id":"1"}}]}]}`
	if err := c.records.Put(t.Context(), record.State("uid"), []byte(state)); err != nil {
		t.Fatal(err)
	}
	kept := was
	follow := func(found []stack.UntrackedResource, forgotten string) (stack.Run, *stack.Untracked) {
		p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, o: stack.Observation{Status: stack.Status{Resources: stack.Resources{Untracked: kept}}, Spec: stack.Spec{IgnoreUntracked: forgotten}}}
		run := stack.Run{ID: "apply-2", Untracked: found}
		if err := c.followUntracked(t.Context(), p, note{State: &kube.StateRef{}}, &run); err != nil {
			t.Fatal(err)
		}
		return run, p.o.Status.Untracked
	}
	mine := stack.UntrackedResource{Address: "x.a", ID: "i-1", Finished: true}
	if run, _ := follow([]stack.UntrackedResource{mine}, ""); !slices.Equal(run.Untracked, []stack.UntrackedResource{mine, was.Objects[2]}) {
		t.Errorf("the next gap is %+v, want what it left and x.out", run.Untracked)
	}
	if run, _ := follow([]stack.UntrackedResource{mine}, "apply-1"); len(run.Untracked) != 1 {
		t.Errorf("the next gap is %+v, although somebody dealt with the one before", run.Untracked)
	}
	if run, gap := follow(nil, ""); len(run.Untracked) > 0 || gap == nil || len(gap.Objects) != 2 {
		t.Errorf("after a run that ended well %+v is missing, want x.a and x.out", gap)
	}
	// The status was lost before the run was forgotten: what the records hold of it
	// is more than its own events say.
	kept = &stack.Untracked{Run: "apply-2", Objects: []stack.UntrackedResource{mine, was.Objects[2]}}
	if run, _ := follow([]stack.UntrackedResource{mine}, ""); !slices.Equal(run.Untracked, kept.Objects) {
		t.Errorf("the gap of a run that is collected once more is %+v, want %+v", run.Untracked, kept.Objects)
	}
}
