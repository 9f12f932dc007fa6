package stack

import (
	"strings"
	"testing"
	"time"
)

func TestAStateContinuesTheLastOne(t *testing.T) {
	last := LastState{Place: "a", Lineage: "l", Serial: 7, Resources: 5, Content: "c"}
	pushed := StateFacts{StateID: StateID{Lineage: "m", Serial: 1}, Resources: 5, Content: "c"}
	facts := func(lineage string, serial uint64, resources int) StateFacts {
		return StateFacts{StateID: StateID{Lineage: lineage, Serial: serial}, Resources: resources}
	}
	for name, tt := range map[string]struct {
		last  LastState
		found StateFacts
		want  bool
	}{
		"nothing is known of a new stack":                 {LastState{}, StateFacts{}, true},
		"the same state":                                  {last, facts("l", 7, 5), true},
		"one that another client continued":               {last, facts("l", 9, 3), true},
		"one whose resources were destroyed":              {last, facts("l", 8, 0), true},
		"no state":                                        {last, StateFacts{}, false},
		"an older version":                                {last, facts("l", 6, 5), false},
		"what an engine pushed into an empty place":       {last, pushed, true},
		"as many resources that are others":               {last, StateFacts{StateID: StateID{Lineage: "m", Serial: 1}, Resources: 5, Content: "d"}, false},
		"a version that was not compared, and was pushed": {LastState{Place: "a", Lineage: "l", Serial: 7, Resources: 5}, pushed, true},
		"a part of a version that was not compared":       {LastState{Place: "a", Lineage: "l", Serial: 7, Resources: 6}, pushed, false},
		"another lineage without resources":               {last, facts("m", 1, 0), false},
		"another lineage with resources":                  {last, facts("m", 99, 5), false},
		"everything was destroyed before":                 {LastState{Place: "a", Lineage: "l", Serial: 9}, StateFacts{}, true},
		"an encrypted state is not known to be empty":     {LastState{Lineage: "l", Serial: 1, Uncounted: true}, StateFacts{}, false},
		"an older version that is encrypted":              {last, StateFacts{StateID: StateID{Lineage: "l", Serial: 3}, Sealed: true}, false},
		"another state that is encrypted":                 {last, StateFacts{StateID: StateID{Lineage: "m", Serial: 9}, Sealed: true}, false},
		"a newer version that is encrypted":               {last, StateFacts{StateID: StateID{Lineage: "l", Serial: 8}, Sealed: true}, true},
		"an earlier release knew no lineage":              {LastState{Place: "a", Uncounted: true}, StateFacts{StateID: StateID{Lineage: "m", Serial: 9}, Sealed: true}, true},
		"an earlier release counted nothing, and is gone": {LastState{Place: "a", Uncounted: true}, StateFacts{}, false},
		"an earlier release counted nothing":              {LastState{Place: "a", Uncounted: true}, facts("m", 1, 1), true},
	} {
		if got := tt.last.ContinuedBy(tt.found); got != tt.want {
			t.Errorf("%s: ContinuedBy() = %v, want %v", name, got, tt.want)
		}
	}
}

func TestPulledStates(t *testing.T) {
	for name, tt := range map[string]struct {
		state string
		want  int
	}{
		"nothing":                     {" \n", 0},
		"a state that was never kept": {`{"version": 4, "serial": 0, "lineage": ""}`, 0},
		"one with a resource":         {`{"lineage": "l", "serial": 3, "resources": [{"mode": "managed", "instances": [{}]}]}`, 1},
	} {
		if f, err := ReadPulled([]byte(tt.state)); err != nil || f.Resources != tt.want || (f.Lineage == "") != (tt.want == 0) {
			t.Errorf("%s: ReadPulled() = %+v, %v", name, f, err)
		}
	}
	if _, err := ReadPulled([]byte("<html>")); err == nil {
		t.Error("a page of an error counts as no state")
	}
}

// A stack whose last state is missing is held until a user asks again, changes something, or
// accepts exactly what was found.
func TestAMissingStateHoldsTheStack(t *testing.T) {
	words := Words{Argument: "net", StatePlace: "spec.backend", StateBack: "spec.backend"}
	applied := PlanInputs{Source: "s", Shape: "old", Engine: "tofu 1.12.6"}
	moved := PlanInputs{Source: "s", Shape: "new", Engine: "tofu 1.12.6"}
	last := LastState{Place: "a", In: "the backend aws (bucket \"one\")", Lineage: "l", Serial: 7, Resources: 5}
	expected := ExpectedState{Last: last, Place: "b", In: "the backend aws (bucket \"two\")"}
	held := func(kind RunKind) Observation {
		m := Status{}.Record(Run{ID: "apply-1", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: applied, Plan: &Plan{Name: "p", PlanInputs: applied}, Snapshot: "k1"}, LastState: last, Exists: true, At: time.Unix(1e9, 0)})
		m = m.Record(Run{ID: "run-2", Kind: kind, Done: true, Outcome: Failed, Why: string(StateMissing), Missing: expected.Check(StateFacts{}), Cause: Cause{PlanInputs: moved, Snapshot: "k2"}, Untouched: kind.Writes(), At: time.Unix(1e9, 0)})
		return Observation{
			Now: time.Unix(1e9, 0).Add(time.Hour), PlanInputs: moved, Status: m,
			Spec: Spec{Mode: Auto, Script: kind == ScriptRun, CheckDrift: true, DestroyLast: true, Interval: 24 * time.Hour, RetryEvery: time.Minute, Words: words},
		}
	}
	for name, tt := range map[string]struct {
		change func(*Observation)
		held   bool
	}{
		"nothing is new":                 {func(*Observation) {}, true},
		"also without limit of retries":  {func(o *Observation) { o.Spec.MaxRetries = new(int) }, true},
		"a user asks again":              {func(o *Observation) { o.Replan = "t1" }, false},
		"the place is set back":          {func(o *Observation) { o.PlanInputs = applied }, false},
		"a user accepts it":              {func(o *Observation) { o.Spec.AcceptState = expected.Token() + "@t2 the old account was closed" }, false},
		"a user accepted something else": {func(o *Observation) { o.Spec.AcceptState = "sha256:a@t2" }, true},
		"a user accepted another place":  {func(o *Observation) { o.Spec.AcceptState = ExpectedState{Last: last, Place: "c"}.Token() }, true},
		"a user accepted an earlier loss": {func(o *Observation) {
			o.Spec.AcceptState = ExpectedState{Last: LastState{Place: "a", Lineage: "l", Serial: 6}, Place: "b"}.Token()
		}, true},
	} {
		for _, kind := range []RunKind{PlanRun, CheckRun, ScriptRun} {
			o := held(kind)
			tt.change(&o)
			d := Decide(o)
			if got := d.Reason == StateMissing; got != tt.held {
				t.Errorf("%s, after a run of kind %s: Decide() = %s by %q", name, kind, d.Reason, d.Rule)
			}
			if d.Reason != StateMissing {
				continue
			}
			for _, part := range []string{last.In, expected.In, "5 resources", "serial 7", "tofu init && tofu state push old.tfstate", "terrier replan net", "spec.backend", "terrier state accept net --reason", expected.Token()} {
				if !strings.Contains(d.Message, part) {
					t.Errorf("the message %q does not say %q", d.Message, part)
				}
			}
		}
	}
}

// A deletion destroys where the last apply was. If that place has lost the state, nothing is
// destroyed, and nothing counts as destroyed.
func TestADestroyThatMissesItsState(t *testing.T) {
	inputs := PlanInputs{Source: "s"}
	last := LastState{Place: "a", In: "a bucket", Lineage: "l", Serial: 7, Resources: 5}
	expected := ExpectedState{Last: last, Place: "a", In: "a bucket"}
	m := Status{}.Record(Run{ID: "script-1", Kind: ScriptRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: inputs, Snapshot: "k1", DestroyScript: true}, LastState: last, Exists: true, At: time.Unix(1e9, 0)})
	m = m.Record(Run{ID: "script-2", Kind: ScriptRun, Done: true, Outcome: Failed, Missing: ExpectedState{Last: last, Place: "b"}.Check(StateFacts{}), Cause: Cause{PlanInputs: inputs, Snapshot: "k2"}, At: time.Unix(1e9, 0)})
	if m.Snapshot != "k1" {
		t.Errorf("a script that missed the state left the record %q, want that of the last apply", m.Snapshot)
	}
	o := Observation{Now: time.Unix(1e9, 0).Add(time.Second), Deleting: true, Status: m.WithDeletion(), Spec: Spec{Script: true, DestroyLast: true, RetryEvery: time.Minute, Words: Words{Argument: "net"}}}
	if d := Decide(o); d.Reason != Destroying {
		t.Errorf("after the deletion Decide() = %s by %q, want a destroy where the state was, at once", d.Reason, d.Rule)
	}
	o.Status = o.Status.Record(Run{ID: "destroy-1", Kind: DestroyRun, Done: true, Outcome: Failed, Missing: expected.Check(StateFacts{}), Cause: Cause{PlanInputs: inputs, Destroy: true}, At: o.Now})
	o.Now = o.Now.Add(time.Hour)
	d := Decide(o)
	if d.Reason != StateMissing || !o.Status.Created || !strings.Contains(d.Message, "terrier.dev/deletion=retain") {
		t.Errorf("a destroy that found no state: %s by %q, says %q", d.Reason, d.Rule, d.Message)
	}
	o.Spec.AcceptState = expected.Token()
	if d := Decide(o); d.Reason != Destroying {
		t.Errorf("once a user accepts it: %s by %q", d.Reason, d.Rule)
	}
}

func TestTheLastStateIsKept(t *testing.T) {
	five, none, other := LastState{Place: "a", Lineage: "l", Serial: 7, Resources: 5}, LastState{Place: "a", Lineage: "l", Serial: 8}, LastState{Place: "b", Lineage: "m", Serial: 1}
	for name, tt := range map[string]struct {
		run  Run
		want LastState
	}{
		"an apply that failed halfway":             {Run{Kind: ApplyRun, Outcome: Failed, LastState: LastState{Place: "a", Lineage: "l", Serial: 8, Resources: 6}}, LastState{Place: "a", Lineage: "l", Serial: 8, Resources: 6}},
		"one whose state could not be read":        {Run{Kind: ApplyRun, Outcome: Failed}, five},
		"a plan in a place that a user accepted":   {Run{Kind: PlanRun, Outcome: Succeeded, LastState: other}, five},
		"an apply there":                           {Run{Kind: ApplyRun, Outcome: Succeeded, LastState: other, Cause: Cause{Plan: &Plan{}}}, other},
		"a destroy":                                {Run{Kind: DestroyRun, Outcome: Succeeded, LastState: none}, none},
		"a destroy whose state could not be read":  {Run{Kind: DestroyRun, Outcome: Succeeded}, LastState{}},
		"a command of a user in an emptied place":  {Run{Kind: BreakGlassRun, Outcome: Succeeded, LastState: other}, five},
		"a command of a user that removed objects": {Run{Kind: BreakGlassRun, Outcome: Succeeded, LastState: none}, none},
	} {
		tt.run.ID, tt.run.Done = "run-2", true
		m := Status{StoredState: StoredState{LastState: five}}.Record(tt.run)
		if m.LastState != tt.want {
			t.Errorf("%s: the last state is %+v, want %+v", name, m.LastState, tt.want)
		}
		if got := (Status{}).Restored(m.Checkpoint()).LastState; got != tt.want {
			t.Errorf("%s: a status that was lost gets %+v back, want %+v", name, got, tt.want)
		}
	}
}

// A state is recognised by its resources, whatever lineage an engine gives it.
func TestStatesWithTheSameResources(t *testing.T) {
	state := func(lineage, resources string) StateFacts {
		f, err := ReadState([]byte(`{"lineage": "` + lineage + `", "serial": 1, "resources": [` + resources + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	one := func(name, id string) string {
		return `{"mode": "managed", "type": "t", "name": "` + name + `", "instances": [{"index_key": 0, "attributes": {"id": "` + id + `", "size": 1}}]}`
	}
	data := `{"mode": "data", "type": "t", "name": "d", "instances": [{"attributes": {"id": "x"}}]}`
	was := state("l", one("a", "1")+","+one("b", "2"))
	for name, tt := range map[string]struct {
		found StateFacts
		same  bool
	}{
		"in another order":        {state("m", one("b", "2")+","+data+","+one("a", "1")), true},
		"one was created again":   {state("m", one("a", "1")+","+one("b", "3")), false},
		"one is missing":          {state("m", one("a", "1")), false},
		"one has another address": {state("m", one("a", "1")+","+one("c", "2")), false},
		"there are none":          {state("m", data), false},
	} {
		if got := tt.found.Content == was.Content; got != tt.same {
			t.Errorf("%s: the content is the same: %v, want %v", name, got, tt.same)
		}
	}
}

// A user moves the state, and the next plan finds nothing to change: from then on a deletion
// destroys in the new place.
func TestADestroyFollowsItsState(t *testing.T) {
	applied := Status{}.Record(Run{ID: "apply-1", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{Plan: &Plan{}, Snapshot: "k1", Place: "a"}, Exists: true})
	for name, tt := range map[string]struct {
		run  Run
		want string
	}{
		"a plan without changes in the new place":   {Run{Kind: PlanRun, Cause: Cause{Snapshot: "k2", Place: "b"}}, "k2"},
		"a drift check without drift":               {Run{Kind: CheckRun, Cause: Cause{Snapshot: "k2", Place: "b"}}, "k2"},
		"a plan without changes where the state is": {Run{Kind: PlanRun, Cause: Cause{Snapshot: "k2", Place: "a"}}, "k1"},
		"a plan with changes, which is not applied": {Run{Kind: PlanRun, Plan: &Plan{}, Cause: Cause{Snapshot: "k2", Place: "b"}}, "k1"},
	} {
		tt.run.ID, tt.run.Done, tt.run.Outcome, tt.run.Exists = "run-2", true, Succeeded, true
		if m := applied.Record(tt.run); m.Snapshot != tt.want {
			t.Errorf("%s: the record of a destroy is %q, want %q", name, m.Snapshot, tt.want)
		}
	}
}

// A record that was lost is made again from inputs that the resources are as they want them.
func TestWhatFitsForARecord(t *testing.T) {
	applied := PlanInputs{Source: "a", Engine: "tofu 1"}
	settled := Status{Plans: Plans{Planned: applied}, Resources: Resources{Created: true, SnapshotPlace: "here"}}
	for name, tt := range map[string]struct {
		change func(*Status)
		now    PlanInputs
		place  string
		want   bool
	}{
		"what was applied":               {func(*Status) {}, applied, "here", true},
		"a later revision of the same":   {func(*Status) {}, PlanInputs{Revision: "r", Source: "a", Engine: "tofu 1"}, "here", true},
		"other inputs":                   {func(*Status) {}, PlanInputs{Source: "b", Engine: "tofu 1"}, "here", false},
		"drift":                          {func(m *Status) { m.Pending = &Plan{Drift: true} }, applied, "here", true},
		"a plan that is not applied yet": {func(m *Status) { m.Pending = &Plan{} }, applied, "here", false},
		"a failure":                      {func(m *Status) { m.Failures = 1 }, applied, "here", false},
		"an apply that failed": {func(m *Status) {
			*m = m.Record(Run{ID: "apply-2", Kind: ApplyRun, Done: true, Outcome: Failed, Cause: Cause{PlanInputs: applied}})
		}, applied, "here", false},
		"nothing that exists":                 {func(m *Status) { m.Created = false }, applied, "here", false},
		"a state in another place":            {func(*Status) {}, applied, "there", false},
		"a state in a place that is not said": {func(m *Status) { m.SnapshotPlace = "" }, applied, "", false},
		"a place that only the state says":    {func(m *Status) { m.SnapshotPlace, m.LastState.Place = "", "here" }, applied, "here", true},
	} {
		m := settled
		tt.change(&m)
		if got := RecordFits(m, tt.now, tt.place); got != tt.want {
			t.Errorf("%s: RecordFits() = %v, want %v", name, got, tt.want)
		}
	}
}
