package tenant

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/plural"
)

// Rollout limits how a change of a template reaches existing tenants.
type Rollout struct {
	MaxSkew     int // changed and not ready yet, at most; 0 for no limit
	Deadline    time.Duration
	MaxFailures int
	Waves       []Wave
}

// Wave is some of the tenants.
type Wave struct {
	Name    string
	Matches func(labels map[string]string) bool // nil for all
	Percent int                                 // of all tenants that are changed at its end; 0 for all that match
}

// Phases of a rollout.
const (
	RolloutIdle       = "Idle"
	RolloutInProgress = "InProgress"
	RolloutFailed     = "Failed"
	RolloutComplete   = "Complete"
)

// RolloutState is the progress of the newest generation of a template. It follows
// from the tenants alone: nothing is stored for it.
type RolloutState struct {
	Phase   string
	Target  int64
	Wave    string // the running one, or the one in which the rollout stopped; empty for the rest
	Message string

	Total, Updated, Updating, ReadyUpdated, Failed int

	Rendered int // tenants that Tenant Operator rendered; no other number counts them
}

// rolling is one rollout in one pass.
type rolling struct {
	t     TemplateKnown
	own   []Existing
	state map[string]progress
}

type progress int

const (
	behind   progress = iota // has an older generation
	underway                 // has this one, and is not ready yet
	done                     // and is ready
	failed                   // and will not be, or takes too long
	newborn                  // was created with it: says nothing about the change
	lost                     // likewise, and has failed
)

// Advance returns the tenants that get the newest generation of a template now,
// the progress of its rollout, and the time until the next deadline. Tenants that
// are leaving or being deleted do not count; those that were created with the
// newest generation neither delay it nor fail it. A tenant that Tenant Operator
// rendered gets its spec together with its row, and no rollout changes it: one whose
// row has an error would hold a rollout for ever.
func Advance(t TemplateKnown, tenants []Existing, now time.Time) (next []string, state RolloutState, again time.Duration) {
	r := &rolling{t: t, state: map[string]progress{}}
	rendered := 0
	for _, e := range tenants {
		switch {
		case e.Deleting || e.Leaving != nil:
		case e.Rendered:
			rendered++
		default:
			r.own = append(r.own, e)
		}
	}
	slices.SortFunc(r.own, func(a, b Existing) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range r.own {
		p, left := r.progressOf(e, now)
		r.state[e.Name] = p
		if left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	state = r.counts()
	state.Rendered = rendered
	switch {
	case len(r.own) == 0:
		state.Phase = RolloutIdle
	case t.Rollout != nil && state.Failed > r.tolerated():
		state.Phase = RolloutFailed
		state.Wave, state.Message = r.reached(), r.stopped(state)
	case state.Updated == state.Total && state.Updating == 0:
		state.Phase = RolloutComplete
	default:
		state.Phase = RolloutInProgress
		next, state.Wave = r.next(state)
		state.Message = fmt.Sprintf("%d of %d tenants have generation %d, %d are ready with it", state.Updated, state.Total, t.Generation, state.ReadyUpdated)
	}
	if rendered > 0 && state.Phase != RolloutFailed { // that message ends with what to do
		state.Message = strings.TrimPrefix(state.Message+". "+LeftOut(rendered), ". ")
	}
	return next, state, again
}

// LeftOut says that a rollout does not count tenants that Tenant Operator rendered, and what
// they wait for: the row of each was not read yet, has an error, or is missing.
func LeftOut(rendered int) string {
	return plural.Count(rendered, "tenant") + " of Tenant Operator not counted: each is taken over once a read finds its row without an error"
}

// progressOf is the progress of one tenant, and the time until its deadline.
func (r *rolling) progressOf(e Existing, now time.Time) (progress, time.Duration) {
	left := time.Duration(0)
	if r.t.Rollout != nil && !e.Changed.IsZero() {
		left = e.Changed.Add(r.t.Rollout.Deadline).Sub(now)
	}
	switch {
	case e.Generation != r.t.Generation:
		return behind, 0
	case e.Ready:
		return done, 0
	case e.Changed.IsZero() && e.Failed:
		return lost, 0
	case e.Changed.IsZero():
		return newborn, 0
	case e.Failed, r.t.Rollout != nil && left <= 0:
		return failed, 0
	}
	return underway, left
}

func (r *rolling) counts() RolloutState {
	s := RolloutState{Target: r.t.Generation, Total: len(r.own)}
	for _, p := range r.state {
		switch p {
		case behind:
			continue
		case underway, newborn:
			s.Updating++
		case done:
			s.ReadyUpdated++
		case failed:
			s.Failed++
		}
		s.Updated++
	}
	return s
}

// ResumeRollout is the value of the annotation that resumes a rollout of a
// generation although this many tenants have failed.
func ResumeRollout(generation int64, failures int) string {
	return fmt.Sprintf("%d-%d", generation, failures)
}

// tolerated is how many tenants may fail. A user who resumes the rollout of a
// generation raises it: to the number that they saw, or, with the generation
// alone, to any.
func (r *rolling) tolerated() int {
	most := r.t.Rollout.MaxFailures
	generation, failures, bounded := strings.Cut(r.t.Resume, "-")
	n, err := strconv.Atoi(failures)
	switch {
	case generation != strconv.FormatInt(r.t.Generation, 10):
		return most
	case !bounded:
		return len(r.own)
	case err != nil:
		return most
	}
	return max(most, n)
}

func (r *rolling) stopped(s RolloutState) string {
	var names []string
	for _, e := range r.own {
		if r.state[e.Name] == failed {
			names = append(names, e.Name)
		}
	}
	return fmt.Sprintf("stopped after %d of %d tenants: %s failed with generation %d. It resumes once they are ready, or with the annotation terrier.dev/rollout=%s",
		s.Updated, s.Total, Few(names, 5), r.t.Generation, ResumeRollout(r.t.Generation, s.Failed))
}

// next are the tenants that get the newest generation now, and the wave they are
// in.
func (r *rolling) next(s RolloutState) (names []string, wave string) {
	skew := len(r.own)
	if r.t.Rollout != nil && r.t.Rollout.MaxSkew > 0 {
		skew = r.t.Rollout.MaxSkew
		for _, p := range r.state {
			if p == underway {
				skew--
			}
		}
	}
	wave, members := r.wave()
	for _, e := range members {
		if r.state[e.Name] == behind && len(names) < skew {
			names = append(names, e.Name)
		}
	}
	return names, wave
}

// wave is the first wave that is not complete, and its tenants; after all waves the
// tenants that are in none.
func (r *rolling) wave() (name string, members []Existing) {
	rest := slices.Clone(r.own)
	if r.t.Rollout == nil {
		return "", rest
	}
	before := 0
	for _, w := range r.t.Rollout.Waves {
		members, rest = r.divide(w, rest, before)
		before += len(members)
		if slices.ContainsFunc(members, func(e Existing) bool { p := r.state[e.Name]; return p == behind || p == underway }) {
			return w.Name, members
		}
	}
	return "", rest
}

// reached is the last wave of which a tenant was changed: where a rollout stops.
// Tenants that were created with the newest generation do not count.
func (r *rolling) reached() (wave string) {
	changed := func(e Existing) bool { return r.state[e.Name] != behind && !e.Changed.IsZero() }
	var members []Existing
	rest, before := slices.Clone(r.own), 0
	for _, w := range r.t.Rollout.Waves {
		members, rest = r.divide(w, rest, before)
		before += len(members)
		if slices.ContainsFunc(members, changed) {
			wave = w.Name
		}
	}
	if slices.ContainsFunc(rest, changed) {
		return ""
	}
	return wave
}

// divide takes the tenants of a wave out of those that are in no earlier wave. In a
// wave with a percentage, tenants that were changed already come first, so that
// its members stay the same while other tenants come and go.
func (r *rolling) divide(w Wave, from []Existing, before int) (members, rest []Existing) {
	most := len(from)
	if w.Percent > 0 {
		most = max(0, (len(r.own)*w.Percent+99)/100-before)
	}
	for _, changed := range []bool{true, false} {
		for _, e := range from {
			if (r.state[e.Name] != behind) == changed && len(members) < most && (w.Matches == nil || w.Matches(e.Labels)) {
				members = append(members, e)
			}
		}
	}
	taken := map[string]bool{}
	for _, e := range members {
		taken[e.Name] = true
	}
	for _, e := range from {
		if !taken[e.Name] {
			rest = append(rest, e)
		}
	}
	return members, rest
}
