package remote

import (
	"context"
	"errors"
	"net/http"
)

// Routes lists the method and the path of everything that an agent can ask for.
func Routes() (all [][2]string) {
	for _, t := range (&server{&Runner{}}).routes() {
		all = append(all, [2]string{t.method, t.path})
	}
	return all
}

// Proof is the one of the place of a run.
func (r *Runner) Proof(key, id string) string {
	run := r.of(key, id)
	return r.signer.proof(run.place, key, id)
}

// PlaceOf is the place of a run.
func (r *Runner) PlaceOf(key, id string) Place { return r.of(key, id).place }

// Asking lists the open places whose agents ask for a run.
func (r *Runner) Asking() (asking []Place) {
	r.sharing.mu.Lock()
	defer r.sharing.mu.Unlock()
	for _, o := range r.sharing.places {
		if o.asking > 0 && !o.over && !o.taken {
			asking = append(asking, o.place)
		}
	}
	return asking
}

// OpenPlaces is how many places are open.
func (r *Runner) OpenPlaces() int {
	r.sharing.mu.Lock()
	defer r.sharing.mu.Unlock()
	return len(r.sharing.places)
}

// ReadAgain tries to take over the runs that could not be, as the watch does after a while.
func (r *Runner) ReadAgain() { finder{r}.again() }

// ReadAgainLate is ReadAgain, which calls between once it has listed the places.
func (r *Runner) ReadAgainLate(ctx context.Context, between func()) {
	if l, ok := (finder{r}).listUnread(ctx); ok {
		between()
		finder{r}.readAll(ctx, l)
	}
}

// Sweep removes places that no run belongs to, as the watch does after a while.
func (r *Runner) Sweep() { r.sweep() }

// moments calls before in front of each question about how things stand.
type moments struct {
	standing
	before func()
}

func (m moments) version() uint64 {
	m.before()
	return m.standing.version()
}

func (m moments) notYet(key string) error {
	m.before()
	return m.standing.notYet(key)
}

func (m moments) owns(key string) bool {
	m.before()
	return m.standing.owns(key)
}

func (m moments) at(p Place) *placedRun {
	m.before()
	return m.standing.at(p)
}

// ToldGone reports whether the agent of a place is told that its run is gone. Before is called in
// front of each question that the answer takes.
func (r *Runner) ToldGone(p Place, key string, before func()) bool {
	_, err := known(moments{r, before}, p, key)
	told, ok := errors.AsType[*refusal](err)
	return ok && told.status == http.StatusGone
}
