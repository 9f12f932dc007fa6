package remote

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/stack"
)

// This file is about places that carry out several quiet checks, one after another. A
// place is open after a quiet check was forgotten:
//
//	run ──▶ forgotten ──▶ open ──▶ asks for a run ──▶ has the next run
//	                        └───────────┴──▶ removed: no run came, or another one's turn it is
//
// An open place is written down as one that has to be removed, so that a crash removes it.
// It keeps its slot in the queue until it has the next run or has ended.

// Sharer is a Launcher whose places may carry out several runs, one after another.
type Sharer interface {
	// Shape describes the place that Launch would make, without the names of the run.
	// Two runs whose shapes are the same may have the same place. It is empty for a run
	// that needs a place of its own.
	Shape(launch Launch) (string, error)

	// Reuse writes the names of another run on a place. The name of the place stays. It
	// is a Conflict if the place is gone or is being removed.
	Reuse(ctx context.Context, p Place, launch Launch) error
}

// How long an open place is kept.
const (
	askWithin   = 15 * time.Second // until its agent asks for a run, or Config.IdleLimit if that is longer
	idleWithin  = 5 * time.Second  // then, while no run comes; see Config.IdleLimit
	lentWithin  = 15 * time.Second // for the run that was given the slot of the place
	endWithin   = 15 * time.Second // for its end, if that run cannot have it
	offerEvery  = 250 * time.Millisecond
	leastLevel  = 2 // of isolation, at which a run leaves nothing that the next one reaches
	emptyAnswer = http.StatusNoContent
)

// openPlace is a place without a run that may have another one.
type openPlace struct {
	place  Place
	file   string // of its removal
	before formerRun
	tenant string
	shape  string
	runs   int // that it has had

	asking  int           // requests for a run that wait
	lent    string        // the stack whose run was given the slot
	taken   bool          // a run begins there
	over    bool          // it has to end
	changed chan struct{} // closed, and replaced, when any of these changed
}

// formerRun is the run that a place had before.
type formerRun struct{ key, id string }

func (o *openPlace) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// sharing has the open places.
type sharing struct {
	most     int // runs of one place; 1 is no sharing
	idle     time.Duration
	sharer   Sharer // nil if places are not shared
	removals *removals
	log      *slog.Logger
	ctx      context.Context // of the Runner
	work     *sync.WaitGroup // likewise
	offered  chan runner.Remain
	denied   atomic.Bool // the Launcher may write no names on places

	mu     sync.Mutex
	places map[string]*openPlace // by file
}

func newSharing(r *Runner) *sharing {
	s := &sharing{
		most: r.config.RunsPerPlace, idle: cmp.Or(r.config.IdleLimit, idleWithin), removals: r.removals, log: r.config.Log,
		ctx: r.ctx, work: &r.work, offered: make(chan runner.Remain), places: map[string]*openPlace{},
	}
	if sharer, ok := r.config.Launcher.(Sharer); ok && s.most > 1 {
		s.sharer = sharer
	}
	vacated := r.removals.vacated
	r.removals.vacated = func(what runner.Remain) {
		s.close(what.Place)
		vacated(what)
	}
	return s
}

// Offered implements runner.Sharing.
func (s *sharing) Offered() <-chan runner.Remain { return s.offered }

// Answer implements runner.Sharing.
func (s *sharing) Answer(what runner.Remain, to string, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.places[what.Place]
	switch {
	case o == nil || o.taken:
	case to != "":
		o.lent = to
		o.wake()
	case others:
		s.end(o)
	}
}

// shape is what the place of a run has to be like; empty if the run needs one of its own.
func (s *sharing) shape(job *runner.Job, host *runner.Host) (string, error) {
	if s.sharer == nil || job.Shares == "" || job.Kind != stack.CheckRun || job.Beside != "" ||
		job.Sandbox.MinLevel < leastLevel || len(host.Writable) > 0 {
		return "", nil
	}
	like, err := s.sharer.Shape(Launch{Job: job})
	if err != nil || like == "" {
		return "", err
	}
	return stack.Digest([]any{job.Shares, like, job.Sandbox.Network, job.Sandbox.MinLevel}), nil
}

// leaves reports whether the place of a run that has ended may be left open.
func (s *sharing) leaves(run *placedRun, rec record, rep runner.Report) bool {
	quiet := rep.Phase == runner.Done && rep.Kind == stack.CheckRun && rep.Outcome == stack.Succeeded && rep.Changes.None() && !rep.Lost
	return s.sharer != nil && !s.denied.Load() && run.shape != "" && run.asks && run.runs < s.most && !run.dead &&
		quiet && rep.Level >= leastLevel && !rec.Cancel && !rec.Ended
}

// open keeps the place of a run that is being forgotten, for another one. The lock of the
// key is held.
func (s *sharing) open(run *placedRun) error {
	if err := s.removals.postpone(run.place, run.key, run.shares); err != nil {
		return err
	}
	o := &openPlace{place: run.place, file: s.removals.file(run.place), before: formerRun{run.key, run.id}, tenant: run.shares, shape: run.shape, runs: run.runs, changed: make(chan struct{})}
	s.mu.Lock()
	s.places[o.file] = o
	s.mu.Unlock()
	s.work.Go(func() { s.follow(o) })
	return nil
}

// follow offers a place until it has a run, or ends it.
func (s *sharing) follow(o *openPlace) {
	remain := o.remain()
	end, asked, lent := time.NewTimer(max(askWithin, s.idle)), false, false
	defer end.Stop()
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for offer := false; ; {
		s.mu.Lock()
		if asked && o.asking == 0 && !o.taken {
			s.end(o) // its agent is gone
		}
		over, changed := o.over || o.taken, o.changed
		switch {
		case !asked && o.asking > 0:
			asked, offer = true, true
			end.Reset(s.idle)
		case !lent && o.lent != "":
			lent = true
			end.Reset(lentWithin)
		}
		s.mu.Unlock()
		if over {
			return
		}
		var offers chan<- runner.Remain
		if offer && asked && !lent {
			offers = s.offered
		}
		select {
		case offers <- remain:
			offer = false
		case <-tick.C:
			offer = true
		case <-changed:
		case <-end.C:
			s.mu.Lock()
			if !o.taken {
				s.end(o)
			}
			s.mu.Unlock()
		case <-s.ctx.Done():
			return
		}
	}
}

func (o *openPlace) remain() runner.Remain {
	of, _ := runner.SplitKey(o.before.key)
	return runner.Remain{Stack: of, Place: o.file, Namespace: o.place.Namespace, Tenant: o.tenant}
}

// end has an open place removed. The lock is held.
func (s *sharing) end(o *openPlace) {
	if !o.over {
		o.over = true
		o.wake()
		s.removals.due(o.file)
	}
}

// endAll has every open place removed that is one of some.
func (s *sharing) endAll(one func(o *openPlace) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.places {
		if one(o) && !o.taken {
			s.end(o)
		}
	}
}

// close forgets an open place that has ended, or has a run.
func (s *sharing) close(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.places[file]; o != nil {
		delete(s.places, file)
		o.over = true
		o.wake()
	}
}

// take finds an open place for the run of a key. A place whose slot the run was given, and that it
// cannot have, has ended after that: there are never more places than slots.
func (s *sharing) take(ctx context.Context, key, shape string) (*openPlace, error) {
	s.mu.Lock()
	var own *openPlace
	for _, o := range s.places {
		if o.lent == key {
			own = o
		}
	}
	if own != nil {
		if own.take(shape) {
			s.mu.Unlock()
			return own, nil
		}
		s.end(own)
		s.mu.Unlock()
		if err := s.awaitEnd(ctx, own); err != nil {
			return nil, err
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	for _, o := range s.places {
		if o.lent == "" && o.take(shape) {
			return o, nil
		}
	}
	return nil, nil
}

// some reports whether a place is open that could have another run.
func (s *sharing) some() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.places {
		if o.asking > 0 && !o.over && !o.taken {
			return true
		}
	}
	return false
}

// take takes a place for a run of a shape. The lock is held.
func (o *openPlace) take(shape string) bool {
	if shape == "" || o.shape != shape || o.asking == 0 || o.over || o.taken {
		return false
	}
	o.taken = true
	o.wake()
	return true
}

// awaitEnd returns once a place has ended.
func (s *sharing) awaitEnd(ctx context.Context, o *openPlace) error {
	late := time.NewTimer(endWithin)
	defer late.Stop()
	for {
		s.mu.Lock()
		gone, changed := s.places[o.file] == nil, o.changed
		s.mu.Unlock()
		if gone {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return fault.New(fault.Later, runner.NoRoom, fmt.Errorf("the pod %s, in which another check has ended, has not ended yet", o.place.Name))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin gives an open place, which was taken, to a run. From the second write on there is
// a run.
func (s *sharing) begin(ctx context.Context, k *knownRuns, run *placedRun, rec record, o *openPlace, job *runner.Job, seal string) (err error) {
	defer func() {
		if err != nil {
			s.giveBack(o)
		}
	}()
	done := failpoint.Act("place.reuse", "")
	err = s.sharer.Reuse(ctx, o.place, Launch{Name: o.place.Name, Key: job.Key(), ID: job.ID, Seal: seal, Job: job})
	done()
	if fault.Of(err) == fault.Denied && s.denied.CompareAndSwap(false, true) {
		s.log.Warn("checks share no pods until this controller is restarted: it needs the right to patch pods", "err", err)
	}
	if err != nil {
		return fault.New(fault.Later, runner.NoRoom, fmt.Errorf("the pod %s, in which another check has ended, does not take the run: %w", o.place.Name, err))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	run.place, run.before, run.runs = o.place, &o.before, o.runs+1
	rec.Place = o.place
	if err := k.write(run, rec); err != nil {
		return err
	}
	k.add(run) // before it is not to be removed any more
	if err := s.removals.remove(o.file); err != nil {
		k.drop(run)
		return err
	}
	s.removals.vacated(o.remain()) // the place is that of this run now
	s.log.Debug("run started in the place of another", "stack", job.Name, "run", job.ID, "place", o.place.Name)
	return nil
}

// giveBack ends an open place that was taken for a run which does not begin.
func (s *sharing) giveBack(o *openPlace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.taken = false
	s.end(o)
}

// openAt finds an open place.
func (s *sharing) openAt(p Place) *openPlace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.places[s.removals.file(p)]; o != nil && o.place.same(p) {
		return o
	}
	return nil
}

// ask notes that the agent of a place asks for a run, until the function that it returns is
// called.
func (s *sharing) ask(o *openPlace) (over func()) {
	count := func(by int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		o.asking += by
		o.wake()
	}
	count(+1)
	return func() { count(-1) }
}

// state is whether an open place has to end, and what says that something changed.
func (s *sharing) state(o *openPlace) (over bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.over, o.changed
}

// serveNext gives an agent whose run was forgotten the order of the next one. The proof is
// that of the run before, and with the token of the place acts for nothing else.
func (r orders) serveNext(w http.ResponseWriter, req *http.Request, p Place) error {
	proof := req.Header.Get(wire.HeaderProof)
	last := time.NewTimer(wishLasts)
	defer last.Stop()
	o := r.sharing.openAt(p)
	if o == nil {
		return r.serveLater(w, req, p, proof)
	}
	if !r.signer.proves(proof, p, o.before.key, o.before.id) {
		return refused(http.StatusForbidden, "the proof is not accepted")
	}
	defer r.sharing.ask(o)()
	for {
		over, changed := r.sharing.state(o)
		if r.at(p) != nil {
			return r.serveLater(w, req, p, proof)
		}
		if over {
			return errUnknown()
		}
		select {
		case <-changed:
		case <-last.C:
			w.WriteHeader(emptyAnswer)
			return nil
		case <-req.Context().Done():
			return req.Context().Err()
		case <-r.ctx.Done():
			return refused(http.StatusServiceUnavailable, "the controller is stopping")
		}
	}
}

// serveLater gives an agent the order of a run that has its place, if that place had
// another one before. An agent that did not receive all of it asks again.
func (r orders) serveLater(w http.ResponseWriter, req *http.Request, p Place, proof string) error {
	run, err := lookUp(r.server, req, p)
	switch {
	case err != nil:
		return err
	case run.before != nil && r.signer.proves(proof, p, run.before.key, run.before.id):
		order, asks, err := r.orderFor(run, true, true)
		if err != nil {
			return err
		}
		return r.sendOrder(w, run, order, asks)
	case !r.signer.proves(proof, p, run.key, run.id):
		return refused(http.StatusForbidden, "the proof is not accepted")
	}
	defer r.Lock(run.key)()
	if _, _, err := r.going(run); err != nil {
		return err
	}
	// The controller was replaced, and took the run for one that goes on.
	return refused(http.StatusConflict, "the place has no other run")
}
