package history

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// at is a moment of every history here, in seconds from its begin.
func at(s float64) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
}

func plan(digest string, destroys int) *stack.Plan {
	return &stack.Plan{Name: "plan-main-" + digest, Digest: "sha256:" + digest, Changes: stack.Changes{Add: 1, Destroy: destroys}}
}

// good is a history that holds: a stack is applied manually, changed, applied, and
// destroyed with its object.
func good() History {
	one, two := plan("1", 0), plan("2", 1)
	apply := func(id string, p *stack.Plan, from, to float64) Run {
		return Run{ID: id, Stack: "u", State: "n/tfstate-default-s", Kind: stack.ApplyRun, Cause: stack.Cause{Plan: p, Why: "plan " + p.Name},
			Started: at(from), Finished: at(to), Done: true, Outcome: stack.Succeeded}
	}
	destroy := Run{ID: "d", Stack: "u", State: "n/tfstate-default-s", Kind: stack.DestroyRun, Cause: stack.Cause{Destroy: true, Why: "the object was deleted"},
		Started: at(30), Finished: at(31), Done: true, Outcome: stack.Succeeded}
	v := func(sec float64, change func(*Stack)) Stack {
		s := Stack{Name: "s", UID: "u", At: at(sec), Version: uint64(10 * sec), Since: at(sec), Destroys: true}
		change(&s)
		return s
	}
	return History{
		Stacks: []Stack{
			v(1, func(s *Stack) { s.Phase, s.Waiting = stack.Planning, "making a plan" }),
			v(3, func(s *Stack) {
				s.Phase, s.Waiting, s.Status.Pending = stack.AwaitingApproval, "approve plan-main-1", one
			}),
			v(8, func(s *Stack) {
				s.Phase, s.Approve, s.Status.Pending, s.Run = stack.Applying, one.Name, one, &Run{ID: "a1", Stack: "u", Kind: stack.ApplyRun, Started: at(8)}
			}),
			v(10, func(s *Stack) { s.Phase, s.Ready, s.Approve = stack.Applied, true, one.Name }),
			v(14, func(s *Stack) { s.Phase, s.Approve, s.Status.Pending = stack.AwaitingApproval, two.Digest, two }),
			v(20, func(s *Stack) { s.Phase, s.Ready, s.Approve = stack.Applied, true, two.Digest }),
			v(29, func(s *Stack) { s.Phase, s.Deleting = stack.Deleting, true }),
			v(30, func(s *Stack) {
				s.Phase, s.Deleting, s.Run = stack.Destroying, true, &Run{ID: "d", Stack: "u", Kind: stack.DestroyRun, Started: at(30), Cause: stack.Cause{Destroy: true}}
			}),
			v(32, func(s *Stack) { s.Deleting, s.Gone = true, true }),
		},
		States: []State{
			{Name: "tfstate-default-s", At: at(9), Version: 90, Lineage: "l", Serial: 1, Resources: 1, Ours: true},
			{Name: "tfstate-default-s", At: at(19), Version: 190, Lineage: "l", Serial: 4, Resources: 1, Ours: true},
			{Name: "tfstate-default-s", At: at(31), Version: 310, Lineage: "l", Serial: 5, Ours: true},
		},
		Locks: []Lock{
			{"tfstate-default-s", at(8), "a1"}, {"tfstate-default-s", at(9), ""},
			{"tfstate-default-s", at(15), "a2"}, {"tfstate-default-s", at(19), ""},
		},
		Runs: []Run{apply("a1", one, 8, 9), apply("a2", two, 15, 19), destroy},
		World: []Call{
			{"create", "a", at(8.2)},
			{"delete", "a", at(16)}, {"create", "a", at(17)},
			{"delete", "a", at(30.5)},
		},
		End: at(40), Rest: true,
	}
}

func TestGoodHistoryPasses(t *testing.T) {
	for _, p := range Check(good()) {
		t.Error(p)
	}
	if found := Check(History{}); len(found) > 0 {
		t.Errorf("an empty history: %v", found)
	}
}

// What each validator is there for: a history that it alone must refuse.
func TestValidatorsRefuse(t *testing.T) {
	cases := map[string]struct {
		validator string
		change    func(*History)
		says      string
	}{
		"a second writer begins before the first has ended": {"a state has one writer at a time (P1)", func(h *History) { h.Runs[1].Started = at(8.5) }, "while a1"},
		"a writer of another stack on the same state": {"a state has one writer at a time (P1)", func(h *History) {
			h.Runs = append(h.Runs, Run{ID: "x", Stack: "other", State: h.Runs[1].State, Kind: stack.ApplyRun, Cause: h.Runs[1].Cause, Started: at(16), Finished: at(17), Done: true, Outcome: stack.Succeeded})
		}, "x of n/tfstate-default-s began"},
		"a lock is taken from its holder": {"a lock passes from hand to hand only when it is free (P1)", func(h *History) { h.Locks[3].Holder = "thief" }, "from a2 to thief"},
		"an older state comes back":       {"a state never goes back (P2)", func(h *History) { h.States[1].Serial = 0 }, "back to 0"},
		"a state of another lineage":      {"a state never goes back (P2)", func(h *History) { h.States[2].Lineage = "m" }, "changed its lineage"},
		"a plan that was never shown": {"what is applied was planned and shown (P3)", func(h *History) {
			h.Stacks[4].Status.Pending = plan("9", 1)
		}, "was never pending"},
		"a plan that nobody approved":       {"what is applied in manual mode was approved (P3)", func(h *History) { h.Stacks[4].Approve, h.Stacks[5].Approve = "plan-main-9", "" }, "was not approved"},
		"an apply that does not say why":    {"a run that wrote has a cause", func(h *History) { h.Runs[0].Cause.Why = "" }, "does not say why"},
		"a destroy that was to be none":     {"a run that wrote has a cause", func(h *History) { h.Runs[2].Cause.Destroy = false }, "was not to"},
		"a run without an outcome":          {"every run comes to an end (P5)", func(h *History) { h.Runs[2].Outcome = "" }, "no outcome"},
		"a delete outside of any run":       {"nothing is deleted without a cause on record (P4)", func(h *History) { h.World[3].Begun = at(25) }, "no run was to delete"},
		"a delete by a plan without one":    {"nothing is deleted without a cause on record (P4)", func(h *History) { h.World[1].Begun = at(8.3) }, "no run was to delete"},
		"a wait for nothing and nobody":     {"every wait ends by itself, or says who has to end it (P6)", func(h *History) { still(h, stack.Planning, "a plan") }, "no run and no next look"},
		"a wait that does not say for what": {"every wait ends by itself, or says who has to end it (P6)", func(h *History) { still(h, stack.AwaitingApproval, "") }, "does not say for what"},
		"a turn that never came": {"every wait ends by itself, or says who has to end it (P6)", func(h *History) {
			still(h, stack.Queued, "a turn")
			h.End = at(1000)
		}, "no run and no next look"},
		"a next attempt that never came": {"every wait ends by itself, or says who has to end it (P6)", func(h *History) {
			still(h, stack.RetryLater, "the next attempt")
			h.Stacks[len(h.Stacks)-1].Next, h.End = at(41), at(1000)
		}, "was to be looked at again"},
		"a break-glass session that never ended": {"every wait ends by itself, or says who has to end it (P6)", func(h *History) {
			still(h, stack.BreakGlassSession, "the end of the session")
			h.Stacks[len(h.Stacks)-1].Status.BreakGlass, h.End = &stack.BreakGlass{Session: "s", Until: at(41)}, at(1000)
		}, "was to end at"},
		"a stack goes and leaves what it built":                         {"a stack goes only when nothing is left, or when it was to be left (P7)", func(h *History) { h.States[2].Resources = 1 }, "held 1 resources"},
		"a state that is emptied after its stack went, and seen before": {"a stack goes only when nothing is left, or when it was to be left (P7)", func(h *History) { h.States[2].Version = 321 }, "held 1 resources"},
		"a stack goes unseen and leaves what it built": {"a stack goes only when nothing is left, or when it was to be left (P7)", func(h *History) {
			h.Holes, h.Stacks[8].Version, h.States[2].Resources = []time.Time{at(32)}, 0, 1
		}, "held 1 resources"},
	}
	covered := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		tt := cases[name]
		covered[tt.validator] = true
		t.Run(name, func(t *testing.T) {
			h := good()
			tt.change(&h)
			found := Check(h)
			if len(found) != 1 || found[0].Validator != tt.validator || !strings.Contains(found[0].Text, tt.says) {
				t.Errorf("found %v, want one problem of %q that says %q", found, tt.validator, tt.says)
			}
		})
	}
	for _, v := range Validators {
		if !covered[v.Name] {
			t.Errorf("no history is refused by %q", v.Name)
		}
	}
}

// still leaves another stack in a situation for good.
func still(h *History, phase stack.Reason, waiting string) {
	h.Stacks = append(h.Stacks, Stack{Name: "t", UID: "v", At: at(35), Since: at(35), Phase: phase, Waiting: waiting})
}

// What must pass although it looks like what must not.
func TestValidatorsLetPass(t *testing.T) {
	for name, change := range map[string]func(*History){
		"a turn that comes when another's run ends": func(h *History) {
			still(h, stack.Queued, "a turn")
			h.End = at(1000)
			h.Runs = append(h.Runs, Run{ID: "y", Stack: "other", Kind: stack.PlanRun, Started: at(30), Finished: at(999), Done: true, Outcome: stack.Succeeded})
		},
		"a break-glass session that goes on": func(h *History) {
			still(h, stack.BreakGlassSession, "the end of the session")
			h.Stacks[len(h.Stacks)-1].Status.BreakGlass, h.End = &stack.BreakGlass{Session: "s", Until: at(3600)}, at(1000)
		},
		"a state that somebody else put back": func(h *History) {
			h.States = slices.Insert(h.States, 2, State{Name: "tfstate-default-s", At: at(25), Lineage: "m", Serial: 0})
			h.States[3].Lineage = "m"
		},
		"a state whose end is seen after that of its stack": func(h *History) {
			h.States[2].At = at(33)
		},
		"a stack and a state that went while nobody could watch": func(h *History) {
			h.Holes, h.Stacks[8].Version, h.States[2].Version, h.States[2].At, h.States[2].Gone = []time.Time{at(31.5), at(33)}, 0, 0, at(33), true
		},
		"a stack of the same name that comes after": func(h *History) {
			h.States = append(h.States, State{Name: "tfstate-default-s", At: at(31.5), Version: 330, Lineage: "l", Serial: 7, Resources: 1, Ours: true})
		},
		"a stack that was to leave what it built": func(h *History) {
			h.States[2].Resources = 1
			for i := range h.Stacks {
				h.Stacks[i].Destroys = false
			}
		},
		"what was shown while nobody could watch": func(h *History) {
			h.Holes, h.Stacks[4].Status.Pending, h.Stacks[4].Approve, h.Stacks[5].Approve = []time.Time{at(14.5)}, nil, "", ""
		},
		"a lock that was free while nobody could watch": func(h *History) { h.Holes, h.Locks[1].Holder = []time.Time{at(8.5), at(15)}, "a3" },
		"an apply that was forced": func(h *History) {
			h.Stacks[4].Approve, h.Stacks[5].Approve, h.Stacks[5].Forced = "", "", true
		},
		"a destroy that only the status knows of": func(h *History) { h.Runs = h.Runs[:2] },
		"a wait for another stack":                func(h *History) { still(h, stack.DependencyNotReady, "net is not ready") },
		"a wait that is looked at now and then": func(h *History) {
			still(h, stack.LockedByOther, "somebody has the lock")
			h.Stacks[len(h.Stacks)-1].Every = time.Minute
		},
		"a run that goes on while others are looked at": func(h *History) { h.Rest, h.Runs[2].Done, h.Runs[2].Outcome = false, false, "" },
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			change(&h)
			for _, p := range Check(h) {
				t.Error(p)
			}
		})
	}
}
