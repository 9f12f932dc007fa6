// Package history judges what happened to the stacks of a namespace, from the
// facts that are left of it: every version of the objects, of their states and
// locks; the reports of their runs; what their worlds were made to do. Each
// validator is a function of a History and says what of it may never happen,
// whatever was killed on the way.
//
// It watches nothing, reads nothing and knows no Kubernetes; package testkit
// gathers the facts. Start reading at Validators.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// History is what is known of the stacks of one namespace, each part in the
// order in which it happened.
type History struct {
	Stacks []Stack
	States []State
	Locks  []Lock
	Runs   []Run
	World  []Call
	Holes  []time.Time // up to when versions may have been missed, since the API server was away
	End    time.Time   // when it was last observed
	Rest   bool        // nothing was under way by then
}

// Stack is one version of an object.
type Stack struct {
	Name, UID string
	At        time.Time // when it was seen
	Version   uint64    // of the store: of two objects, what is lower was before, whichever was seen first; 0 if it is not known
	Gone      bool      // the object does not exist any more; the rest is as it was last
	Deleting  bool

	Approve  string // spec.approvePlan
	Forced   bool   // spec.force: no plan needs an approval
	Destroys bool   // what was built goes with the object
	Ready    bool
	Phase    stack.Reason
	Waiting  string    // what for
	Since    time.Time // it is in this phase
	Next     time.Time // when it is tried again, zero if nothing failed
	Every    time.Duration
	Run      *Run // in flight
	Status   stack.Status
}

// State is one version of a state that is kept in the cluster.
type State struct {
	Name      string
	At        time.Time
	Version   uint64 // as of Stack
	Gone      bool
	Lineage   string
	Serial    uint64
	Resources int  // managed ones
	Ours      bool // Terrier wrote it, and no other program
}

// Lock is the holder of the lock of a state, from one moment on.
type Lock struct {
	Name   string // of the state
	At     time.Time
	Holder string // "" if it is free
}

// Run is one run, by its report or as its stack showed it.
type Run struct {
	ID, Stack string // the stack by UID
	State     string // the name of the state that we keep of it, "" if we keep none
	Kind      stack.RunKind
	Cause     stack.Cause
	Started   time.Time
	Finished  time.Time
	Done      bool
	Outcome   stack.Outcome
}

// Call is one act of a run on a resource.
type Call struct {
	Call, Name string // create, update or delete
	Begun      time.Time
}

// Problem is something that may never happen.
type Problem struct {
	Validator string
	Text      string
}

func (p Problem) String() string { return p.Validator + ": " + p.Text }

// Validators are what holds for every history, by what they promise.
var Validators = []struct {
	Name  string
	Check func(History) []string
}{
	{"a state has one writer at a time (P1)", writersAreAlone},
	{"a lock passes from hand to hand only when it is free (P1)", locksAreGivenBack},
	{"a state never goes back (P2)", serialsGrow},
	{"what is applied was planned and shown (P3)", appliesWerePending},
	{"what is applied in manual mode was approved (P3)", appliesWereApproved},
	{"a run that wrote has a cause", writersHaveCauses},
	{"every run comes to an end (P5)", runsEnd},
	{"nothing is deleted without a cause on record (P4)", deletesHaveCauses},
	{"every wait ends by itself, or says who has to end it (P6)", waitsAreBounded},
	{"a stack goes only when nothing is left, or when it was to be left (P7)", goodbyesAreClean},
}

// Check asks all validators.
func Check(h History) []Problem {
	var all []Problem
	for _, v := range Validators {
		for _, text := range v.Check(h) {
			all = append(all, Problem{v.Name, text})
		}
	}
	return all
}

// runs are the runs by their reports, and those that only a status mentions.
func (h History) runs() []Run {
	known := map[string]bool{}
	all := slices.Clone(h.Runs)
	for _, r := range all {
		known[r.Stack+"/"+r.ID] = true
	}
	for _, s := range h.Stacks {
		if s.Run != nil && !known[s.UID+"/"+s.Run.ID] {
			known[s.UID+"/"+s.Run.ID] = true
			r := *s.Run
			r.Finished = h.until(s.UID, r.ID)
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Run) int { return a.Started.Compare(b.Started) })
	return all
}

// until is when a run was last seen in flight, or what came next.
func (h History) until(uid, run string) time.Time {
	last := time.Time{}
	seen := false
	for _, s := range h.Stacks {
		if s.UID != uid {
			continue
		}
		if s.Run != nil && s.Run.ID == run {
			seen, last = true, s.At
		} else if seen {
			return s.At
		}
	}
	if seen {
		return h.End
	}
	return last
}

// whole reports whether no version was missed after from and until to.
func (h History) whole(from, to time.Time) bool {
	return !slices.ContainsFunc(h.Holes, func(t time.Time) bool { return t.After(from) && !t.After(to) })
}

// byKey groups what is in order, and returns the keys in order.
func byKey[T any](all []T, key func(T) string) ([]string, map[string][]T) {
	groups := map[string][]T{}
	var keys []string
	for _, v := range all {
		k := key(v)
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], v)
	}
	slices.Sort(keys)
	return keys, groups
}

func (h History) versions() ([]string, map[string][]Stack) {
	return byKey(h.Stacks, func(s Stack) string { return s.UID })
}

func (r Run) String() string { return fmt.Sprintf("%s of %s", r.ID, cmp.Or(r.State, r.Stack)) }
