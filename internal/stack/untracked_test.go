package stack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func anyUntracked(t *rapid.T, run string) *Untracked {
	u := &Untracked{Run: run, Source: calmBasis.Source}
	longest := rapid.SampledFrom([]int{10, 100, longResource, 2 * untrackedBytes}).Draw(t, "longest")
	for i := range rapid.SampledFrom([]int{1, 3, untrackedShown, untrackedShown + 1, 10 * untrackedShown}).Draw(t, "resources") {
		r := UntrackedResource{Address: fmt.Sprintf("x.a[%d]", i), Finished: rapid.Bool().Draw(t, "finished")}
		if r.Finished {
			r.ID = fmt.Sprintf("id-%d", i)
		}
		if rapid.IntRange(0, 5).Draw(t, "long") == 0 {
			r.Address += strings.Repeat("n", rapid.IntRange(0, longest).Draw(t, "length"))
		}
		u.Objects = append(u.Objects, r)
	}
	return u
}

// However many resources a run leaves, and whatever they are called, the status of the object and
// its message have a bound. With the checkpoint nothing of them is lost.
func TestUntrackedResourcesFitIntoAnObject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := anyUntracked(t, "apply-1")
		m := Status{Resources: Resources{Untracked: u, Created: true}}
		is := Shown(m)
		raw, err := json.Marshal(is)
		least := slices.MinFunc(u.Objects, func(a, b UntrackedResource) int { return a.size() - b.size() }).size()
		if err != nil || len(raw) > 2*untrackedBytes+least {
			t.Fatalf("the status has %d bytes, %v", len(raw), err)
		}
		if is.Untracked.Count() != len(u.Objects) || len(is.Untracked.Objects) == 0 {
			t.Fatalf("it shows %d, and says that there are %d of %d", len(is.Untracked.Objects), is.Untracked.Count(), len(u.Objects))
		}
		if d := cmp.Diff(is.Untracked, Shown(is).Untracked); d != "" {
			t.Fatalf("it shows less the second time: %s", d)
		}
		if d := cmp.Diff(m.Untracked, Completed(is, m.Checkpoint()).Untracked); d != "" {
			t.Fatalf("of what the checkpoint has, it lacks: %s", d)
		}
		whole, shown := Decide(calmly(Spec{Mode: Auto}, m)), Decide(calmly(Spec{Mode: Auto}, is))
		if whole.Reason != StateIncomplete || whole.Message != shown.Message {
			t.Fatalf("Decide() = %s: %.200s, and of the object alone %.200s", whole.Reason, whole.Message, shown.Message)
		}
		if most := 4*untrackedBytes + 3*least; len(whole.Message) > most {
			t.Fatalf("the message has %d bytes, want at most %d", len(whole.Message), most)
		}
	})
}

// The checkpoint is written first. If the program ends before the status is, the run is taken over
// once more, from what the object shows and the checkpoint has.
func TestACheckpointThatIsAheadLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := anyUntracked(t, "apply-1")
		shown := Shown(Status{Resources: Resources{Untracked: before}})
		later := Untracked{Run: "apply-2", Objects: []UntrackedResource{{Address: "y.b", ID: "1", Finished: true}}}
		later.Objects = append(later.Objects, before.Objects...)
		got := Completed(shown, Status{Resources: Resources{Untracked: &later}}.Checkpoint()).Untracked
		for _, r := range before.Objects {
			if !slices.Contains(got.Objects, r) {
				t.Fatalf("%.40s is on no list", r.Address)
			}
		}
		if d := cmp.Diff(shown.Untracked, Completed(shown, Checkpoint{}).Untracked); d != "" {
			t.Fatalf("without a checkpoint it is another: %s", d)
		}
	})
}

// A user says first what only a user knows.
func TestWhatAUserHasToSayIsShown(t *testing.T) {
	u := &Untracked{Run: "apply-1"}
	for i := range 10 * untrackedShown {
		u.Objects = append(u.Objects, UntrackedResource{Address: fmt.Sprintf("x.a[%d]", i), ID: "id", Finished: true})
	}
	last := UntrackedResource{Address: "x.z"}
	u.Objects = append(u.Objects, last)
	if got := u.Shown().Objects[0]; got != last {
		t.Errorf("it shows %+v first, want the one without an ID", got)
	}
}
