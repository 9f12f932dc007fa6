package states

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// files are what a run left.
type files map[string]string

// leftBy are the records of a run that left files.
func leftBy(t *testing.T, left files) *records.Store {
	store := openRecords(t)
	store.Runs = left
	return store
}

func (l files) Open(_, _, file string) (io.ReadCloser, error) {
	if content, ok := l[file]; ok {
		return io.NopCloser(strings.NewReader(content)), nil
	}
	return nil, fault.New(fault.Missing, "", errors.New(file))
}

func TestARunThatCannotStoreItsStateLosesNothing(t *testing.T) {
	mine := thing("l", 8)
	for name, tt := range map[string]struct {
		full error
		want stack.StateID
		says string
		err  bool
	}{
		"all is well":           {nil, knownAs(mine), "", false},
		"somebody wrote":        {fault.New(fault.Conflict, kube.StateConflict, errors.New("newer")), stack.StateID{Lineage: "l", Serial: 8, Digest: knownAs(mine).Digest, Unstored: true}, "StateNotStored", false},
		"the API server is ill": {errors.New("no"), stack.StateID{}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			said, at := &events{}, &shelf{full: tt.full}
			c := newKeeper(Keeper{Store: at, Records: leftBy(t, files{runner.FileState: string(mine)}), Events: said}, nil)
			var run stack.Run
			of := subject("uid", &v1alpha2.Terraform{})
			err := c.Settle(t.Context(), of, &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}, &kube.StateRef{}, &run)
			if (err != nil) != tt.err || run.KnownState != tt.want || said.last != tt.says {
				t.Errorf("Settle() = %v, known %+v, said %q; want known %+v", err, run.KnownState, said.last, tt.want)
			}
			if list, err := c.Versions.list(t.Context(), "uid"); err != nil || !tt.err && (len(list.Versions) != 1 || list.Versions[0].By != "apply-1" || list.Head != tt.want) {
				t.Errorf("the versions are %+v, %v; want that of the run", list, err)
			}
		})
	}
}

// On a full disk an engine leaves an empty file where it wanted to write the state
// that no backend accepted. It takes the place of no state, also where there is none
// yet.
func TestWhatIsNoStateIsNotRescued(t *testing.T) {
	before, after := thing("l", 8), string(thing("l", 9))
	for name, tt := range map[string]struct {
		stored, rescued, says string
		want                  stack.StateID
	}{
		"an empty file":          {"", "", "StateNotRescued", stack.StateID{}},
		"a part of a state":      {"", after[:len(after)/2], "StateNotRescued", stack.StateID{}},
		"an empty file, later":   {string(before), "", "StateNotRescued", knownAs(before)},
		"a state without a name": {string(before), "{}", "StateNotRescued", knownAs(before)},
		"a state":                {string(before), after, "StateRescued", knownAs([]byte(after))},
	} {
		t.Run(name, func(t *testing.T) {
			left := files{runner.FileRescue: tt.rescued}
			if tt.stored != "" {
				left[runner.FileState] = tt.stored
			}
			said, at := &events{}, &shelf{}
			c := newKeeper(Keeper{Store: at, Records: leftBy(t, left), Events: said}, nil)
			var run stack.Run
			of := subject("uid", &v1alpha2.Terraform{})
			if err := c.Settle(t.Context(), of, &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}, &kube.StateRef{}, &run); err != nil {
				t.Fatal(err)
			}
			if run.KnownState != tt.want || said.last != tt.says {
				t.Errorf("known is %+v, said %q; want %+v and %q", run.KnownState, said.last, tt.want, tt.says)
			}
			if tt.says == "StateNotRescued" && string(at.saved) != tt.stored {
				t.Errorf("%q was stored, want %q", at.saved, tt.stored)
			}
			if kept, err := c.Records.Get(t.Context(), record.Rescued("uid", "apply-1")); tt.says == "StateNotRescued" && (err != nil || string(kept) != tt.rescued) {
				t.Errorf("kept for a person is %q, %v; want %q", kept, err, tt.rescued)
			}
		})
	}
}

// A state that cannot be stored is copied at once: the directory of its run may be lost.
func TestAStateThatIsNotStoredIsCopied(t *testing.T) {
	known, state := thing("l", 8), thing("l", 9)
	for name, full := range map[string]error{
		"another client wrote":  fault.New(fault.Conflict, kube.StateConflict, errors.New("another lineage")),
		"the API server is ill": errors.New("no"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newKeeper(Keeper{Store: &shelf{full: full}, Records: leftBy(t, files{runner.FileState: string(state)}), Events: &events{}}, nil)
			of := subject("uid", &v1alpha2.Terraform{})
			of.Observed.Status.KnownState = knownAs(known)
			if err := c.Flush(t.Context(), of, &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}, &kube.StateRef{}); !errors.Is(err, full) {
				t.Errorf("Flush() = %v, want %v", err, full)
			}
			if got, err := c.Records.Get(t.Context(), record.State("uid")); err != nil || string(got) != string(state) {
				t.Errorf("the copy is %q, %v, want the state of the run", got, err)
			}
		})
	}
}

// A run that was recorded long ago may come back, from a controller that died. Its state
// takes the place of no newer one, and is kept.
func TestAnOlderStateReplacesNothing(t *testing.T) {
	older, newer := thing("l", 8), thing("l", 9)
	for name, tt := range map[string]struct {
		full     error
		deleting bool
		copied   []byte
	}{
		"a newer one is stored":    {fault.New(fault.Conflict, kube.StateConflict, errors.New("newer")), false, newer},
		"the API server is ill":    {errors.New("no"), false, newer},
		"it can be stored":         {nil, false, older},
		"the namespace goes away":  {fault.New(fault.Denied, "", errors.New("terminating")), true, older},
		"nothing may be made here": {fault.New(fault.Denied, "", errors.New("forbidden")), false, newer},
	} {
		t.Run(name, func(t *testing.T) {
			said := &events{}
			c := newKeeper(Keeper{Store: &shelf{full: tt.full}, Records: leftBy(t, files{runner.FileState: string(older)}), Events: said}, nil)
			of := subject("uid", &v1alpha2.Terraform{})
			of.Observed.Deleting, of.Observed.Status.KnownState = tt.deleting, knownAs(newer)
			if err := errors.Join(c.Records.Put(t.Context(), record.State("uid"), newer), c.Versions.setHead(t.Context(), "uid", knownAs(newer))); err != nil {
				t.Fatal(err)
			}
			var run stack.Run
			err := c.Settle(t.Context(), of, &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}, &kube.StateRef{}, &run)
			if got, failed := c.Records.Get(t.Context(), record.State("uid")); failed != nil || string(got) != string(tt.copied) {
				t.Errorf("after Settle() = %v the copy is %q, %v", err, got, failed)
			}
			if superseded := fault.Of(tt.full) == fault.Conflict; (fault.Reason(err, "") == Superseded) != superseded {
				t.Errorf("Settle() = %v; want it superseded: %v", err, superseded)
			} else if list, err := c.Versions.list(t.Context(), "uid"); superseded && (err != nil || list.Head != knownAs(newer) || len(list.Versions) != 1 || said.last != "") {
				t.Errorf("the versions are %+v, %v, and said is %q; want the old one kept, and another head", list, err, said.last)
			}
		})
	}
}
