package tenant

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// change makes the template of r another generation.
func (r *roll) change(policy *Rollout) {
	for i := range r.k.Tenants {
		r.k.Tenants[i].Ready = true
	}
	r.k.Templates[0].Generation++
	r.k.Templates[0].Rollout = policy
}

// changed are the tenants that have the newest generation.
func (r *roll) changed() (names []string) {
	for _, e := range r.k.Tenants {
		if e.Generation == r.k.Templates[0].Generation {
			names = append(names, strings.TrimSuffix(e.Name, "-web"))
		}
	}
	slices.Sort(names)
	return names
}

func (r *roll) wantChanged(when string, want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.changed()); diff != "" {
		r.t.Errorf("%s, changed are (-want +got):\n%s", when, diff)
	}
}

// ready makes tenants ready; failing makes them fail.
func (r *roll) ready(uids ...string) {
	for _, uid := range uids {
		r.tenant(uid+"-web").Ready, r.tenant(uid+"-web").Failed = true, false
	}
}

func (r *roll) failing(uids ...string) {
	for _, uid := range uids {
		r.tenant(uid+"-web").Ready, r.tenant(uid+"-web").Failed = false, true
	}
}

func wantPhase(t *testing.T, s Step, phase string) {
	t.Helper()
	if got := s.Rollouts["web"]; got.Phase != phase {
		t.Errorf("the rollout is %+v, want %s", got, phase)
	}
}

func TestWithoutARolloutAllChangeAtOnce(t *testing.T) {
	r := newRoll(t, 5)
	r.change(nil)
	wantPhase(t, r.read(), RolloutInProgress)
	r.wantChanged("at once", "a0", "a1", "a2", "a3", "a4")
	r.ready(r.changed()...)
	wantPhase(t, r.read(), RolloutComplete)
}

// Sync gives a tenant of Tenant Operator its spec with its row, or not at all.
func TestARenderedTenantHoldsNoRollout(t *testing.T) {
	r := newRoll(t, 5)
	r.change(&Rollout{Deadline: time.Hour, Waves: []Wave{{Name: "canary", Percent: 25}}})
	r.tenant("a0-web").Rendered = true
	r.k.Read.Rows = r.k.Read.Rows[1:]
	r.k.Read.Errors = []RowError{{UID: "a0", Reason: RowValueUnusable}}
	r.read()
	r.wantChanged("while the row of the first has an error", "a1")
	r.ready("a1")
	r.read()
	r.wantChanged("after the canary", "a1", "a2", "a3", "a4")
	if s := r.read().Rollouts["web"]; s.Phase != RolloutInProgress || !strings.HasSuffix(s.Message, ". "+LeftOut(1)) {
		t.Errorf("while it goes on the rollout is %+v, want that its message names the tenant that it leaves out", s)
	}
	r.ready("a2", "a3", "a4")
	s := r.read()
	wantPhase(t, s, RolloutComplete)
	if s := s.Rollouts["web"]; s.Total != 4 || s.ReadyUpdated != 4 || s.Rendered != 1 || s.Message != "1 tenant of Tenant Operator not counted: each is taken over once a read finds its row without an error" {
		t.Errorf("in the end the rollout is %+v, want 4 tenants, and one that it leaves out", s)
	}
}

// The share of a wave is of the tenants that a rollout changes.
func TestAShareIsOfTheTenantsThatARolloutChanges(t *testing.T) {
	r := newRoll(t, 20)
	r.change(&Rollout{MaxFailures: 0, Deadline: time.Hour, Waves: []Wave{{Name: "canary", Percent: 10}, {Name: "more", Percent: 50}}})
	for i := range 10 {
		r.tenant(fmt.Sprintf("a1%d-web", i)).Rendered = true
	}
	r.k.Read.Errors = nil
	for _, row := range r.k.Read.Rows[10:] {
		r.k.Read.Errors = append(r.k.Read.Errors, RowError{UID: row.UID, Reason: RowValueUnusable})
	}
	r.k.Read.Rows = r.k.Read.Rows[:10]
	r.read()
	r.wantChanged("one of the ten that no error holds", "a0")
	r.ready("a0")
	r.read()
	r.wantChanged("half of them", "a0", "a1", "a2", "a3", "a4")
	r.failing("a1")
	s := r.read()
	wantPhase(t, s, RolloutFailed)
	if got := s.Rollouts["web"].Wave; got != "more" {
		t.Errorf("it stops in the wave %q, want more", got)
	}
}

func TestMaxSkew(t *testing.T) {
	r := newRoll(t, 5)
	r.change(&Rollout{MaxSkew: 2, Deadline: time.Hour})
	r.read()
	r.wantChanged("first", "a0", "a1")
	r.read()
	r.wantChanged("while none is ready", "a0", "a1")
	r.ready("a1")
	r.read()
	r.wantChanged("when one is", "a0", "a1", "a2")
	r.ready("a0", "a2")
	r.read()
	r.wantChanged("when all are", "a0", "a1", "a2", "a3", "a4")
}

func TestWavesComeOneAfterAnother(t *testing.T) {
	r := newRoll(t, 10)
	r.tenant("a7-web").Labels = map[string]string{"canary": "yes"}
	r.change(&Rollout{Deadline: time.Hour, Waves: []Wave{
		{Name: "canary", Matches: func(l map[string]string) bool { return l["canary"] == "yes" }},
		{Name: "some", Percent: 30},
	}})
	if s := r.read(); s.Rollouts["web"].Wave != "canary" {
		t.Errorf("the first wave is %q", s.Rollouts["web"].Wave)
	}
	r.wantChanged("the canary alone", "a7")
	r.read()
	r.wantChanged("while it is not ready", "a7")
	r.ready("a7")
	if s := r.read(); s.Rollouts["web"].Wave != "some" {
		t.Errorf("the second wave is %q", s.Rollouts["web"].Wave)
	}
	r.wantChanged("three tenths of all, the canary among them", "a0", "a1", "a7")
	r.ready("a0")
	r.read()
	r.wantChanged("while one of the wave is not ready", "a0", "a1", "a7")
	r.ready("a1")
	r.read()
	if n := len(r.changed()); n != 10 {
		t.Errorf("after the last wave %d are changed, want all 10", n)
	}
}

func TestAFailureStopsTheRollout(t *testing.T) {
	r := newRoll(t, 5)
	r.change(&Rollout{MaxSkew: 1, Deadline: time.Hour})
	r.read()
	r.failing("a0")
	s := r.read()
	wantPhase(t, s, RolloutFailed)
	if m := s.Rollouts["web"].Message; !strings.Contains(m, "a0-web") || !strings.Contains(m, "terrier.dev/rollout="+ResumeRollout(2, 1)) {
		t.Errorf("it does not say who failed and how to go on: %s", m)
	}
	r.wantChanged("after a failure", "a0")
	r.ready("a0")
	wantPhase(t, r.read(), RolloutInProgress)
	r.wantChanged("once it is ready", "a0", "a1")
}

// The status of a stopped rollout shows its progress.
func TestARolloutStopsInAWave(t *testing.T) {
	r := newRoll(t, 4)
	r.tenant("a3-web").Labels = map[string]string{"canary": "yes"}
	r.change(&Rollout{Deadline: time.Hour, Waves: []Wave{
		{Name: "canary", Matches: func(l map[string]string) bool { return l["canary"] == "yes" }},
		{Name: "half", Percent: 50},
	}})
	r.read()
	wantWave := func(when, want string) {
		t.Helper()
		s := r.read()
		wantPhase(t, s, RolloutFailed)
		if got := s.Rollouts["web"].Wave; got != want {
			t.Errorf("%s it stops in the wave %q, want %q", when, got, want)
		}
	}
	r.failing("a3")
	wantWave("when the canary fails", "canary")
	r.k.Read.Rows = append(r.k.Read.Rows, Row{UID: "n1", Active: true})
	wantWave("whatever comes meanwhile", "canary")
	r.ready("a3")
	r.read()
	r.failing("a0")
	wantWave("when the next one fails", "half")
	r.ready("a0", "n1")
	r.read()
	r.failing("a1")
	wantWave("when one of the others fails", "")
}

// L-04: a deadline that passes counts as a failure.
func TestTheDeadlineStopsTheRollout(t *testing.T) {
	r := newRoll(t, 3)
	r.change(&Rollout{MaxSkew: 1, Deadline: 2 * time.Minute})
	r.read()
	if s := r.read(); s.Again != 90*time.Second {
		t.Errorf("the next look is in %s, want when the deadline is", s.Again)
	}
	r.k.Now = r.k.Now.Add(2 * time.Minute)
	wantPhase(t, r.read(), RolloutFailed)
	r.wantChanged("after the deadline", "a0")
}

// L-04: a rollout that is stuck holds up no new row, and a new tenant neither
// counts for nor against it.
func TestNewRowsAreNeverBlocked(t *testing.T) {
	r := newRoll(t, 3)
	r.k.Templates[0].Good = 1
	r.change(&Rollout{MaxSkew: 1, Deadline: time.Hour})
	r.read()
	insert := func(uid string) Creation {
		r.k.Read.Rows = append(r.k.Read.Rows, Row{UID: uid, Active: true})
		s := r.read()
		if len(s.Create) != 1 {
			t.Fatalf("row %s leads to %+v", uid, s.Create)
		}
		return s.Create[0]
	}
	if c := insert("n1"); c.Generation != 2 {
		t.Errorf("while the rollout goes on, a new tenant has generation %d, want the newest", c.Generation)
	}
	r.failing("a0")
	if c := insert("n2"); c.Generation != 1 {
		t.Errorf("after it stopped, a new tenant has generation %d, want the good one", c.Generation)
	}
	r.ready("a0")
	r.failing("n1")
	s := r.read()
	wantPhase(t, s, RolloutInProgress)
	r.wantChanged("with a new tenant that fails", "a0", "a1", "n1")
}

func TestToleratedFailures(t *testing.T) {
	r := newRoll(t, 4)
	r.change(&Rollout{MaxSkew: 1, MaxFailures: 1, Deadline: time.Hour})
	r.read()
	r.failing("a0")
	wantPhase(t, r.read(), RolloutInProgress)
	r.wantChanged("a failure that is tolerated holds no place", "a0", "a1")
	r.failing("a1")
	wantPhase(t, r.read(), RolloutFailed)
	for _, stale := range []string{"1-2", "1", "2-x", "3", "resume", "2-1"} {
		r.k.Templates[0].Resume = stale
		wantPhase(t, r.read(), RolloutFailed)
	}
	r.k.Templates[0].Resume = ResumeRollout(2, 2)
	wantPhase(t, r.read(), RolloutInProgress)
	r.wantChanged("after it was resumed", "a0", "a1", "a2")
	r.failing("a2")
	wantPhase(t, r.read(), RolloutFailed)
	r.k.Templates[0].Resume = "2"
	r.read()
	r.failing("a3")
	wantPhase(t, r.read(), RolloutComplete)
}

func TestAnotherChangeEndsAStoppedRollout(t *testing.T) {
	r := newRoll(t, 3)
	policy := &Rollout{MaxSkew: 1, Deadline: time.Hour}
	r.change(policy)
	r.read()
	r.failing("a0")
	wantPhase(t, r.read(), RolloutFailed)
	r.k.Templates[0].Generation = 3 // rolled back, or fixed
	wantPhase(t, r.read(), RolloutInProgress)
	r.wantChanged("with a newer generation", "a0")
}

// However a rollout goes: never more than maxSkew are changed and not ready, a
// wave waits for the one before, and it ends if nothing fails.
func TestRolloutsKeepTheirLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := &Rollout{MaxSkew: rapid.IntRange(0, 4).Draw(t, "skew"), Deadline: time.Hour, Waves: []Wave{
			{Name: "one", Percent: rapid.IntRange(1, 50).Draw(t, "one")}, {Name: "two", Percent: rapid.IntRange(20, 100).Draw(t, "two")}}}
		k := TemplateKnown{Name: "web", Generation: 2, Valid: true, Rollout: policy}
		n := rapid.IntRange(1, 30).Draw(t, "tenants")
		var own []Existing
		for i := range n {
			own = append(own, Existing{Name: fmt.Sprintf("a%02d-web", i), Template: "web", Generation: 1, Ready: true})
		}
		now := time.Unix(1000, 0)
		first := (n*policy.Waves[0].Percent + 99) / 100
		for range 10 * n {
			next, state, _ := Advance(k, own, now)
			if state.Phase == RolloutComplete {
				if state.ReadyUpdated != n {
					t.Fatalf("complete with %+v", state)
				}
				return
			}
			for _, name := range next {
				e := &own[slices.IndexFunc(own, func(e Existing) bool { return e.Name == name })]
				e.Generation, e.Changed, e.Ready = 2, now, false
			}
			updated, updating := 0, 0
			for _, e := range own {
				if e.Generation == 2 {
					updated++
					if !e.Ready {
						updating++
					}
				}
			}
			if policy.MaxSkew > 0 && updating > policy.MaxSkew {
				t.Fatalf("%d are changed and not ready, maxSkew is %d", updating, policy.MaxSkew)
			}
			if state.Wave == "one" && updated > first {
				t.Fatalf("%d of %d are changed in a wave of %d", updated, n, first)
			}
			for i := range own {
				if own[i].Generation == 2 && rapid.IntRange(0, 2).Draw(t, "ready") == 0 {
					own[i].Ready = true
				}
			}
			now = now.Add(time.Second)
			if updating == 0 && len(next) == 0 {
				t.Fatalf("it does not go on: %+v", state)
			}
		}
		for i := range own {
			own[i].Ready = true
		}
	})
}
