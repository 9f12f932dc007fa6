package remote

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/stack"
)

const (
	lookEvery   = 15 * time.Second // at every place whose run goes on, in case a change was missed
	removeEvery = 5 * time.Second  // at every place that has to be removed
	sweepEvery  = 5 * time.Minute  // for places without a run
	lookLimit   = time.Minute      // for one call of the launcher
)

// watch follows the lives of the places until Close.
func (r *Runner) watch() {
	look, sweep := time.NewTicker(lookEvery), time.NewTicker(sweepEvery)
	defer look.Stop()
	defer sweep.Stop()
	r.lookAll()
	for {
		r.removePlaces()
		var again <-chan time.Time
		if len(r.removals.list()) > 0 {
			again = time.After(removeEvery)
		}
		select {
		case <-again:
		case p := <-r.config.Launcher.Changed():
			if run := r.at(p); run != nil {
				r.look(run)
			}
			if err := r.see(p, r.config.Launcher); err != nil && r.ctx.Err() == nil {
				r.config.Log.Warn("place not removed yet", "place", p.Namespace+"/"+p.Name, "err", err)
			}
		case <-look.C:
			r.lookAll()
			finder{r}.again()
		case <-sweep.C:
			r.sweep()
		case <-r.removals.wake:
		case <-r.ctx.Done():
			return
		}
	}
}

// removePlaces removes the places that have to be. What fails is tried again.
func (r *Runner) removePlaces() {
	ctx, cancel := context.WithTimeout(r.ctx, lookLimit)
	defer cancel()
	if err := r.removals.removeAll(ctx, r.config.Launcher); err != nil && r.ctx.Err() == nil {
		r.config.Log.Warn("places not removed yet", "err", err)
	}
}

func (r *Runner) lookAll() {
	for _, run := range r.all() {
		if r.ctx.Err() != nil {
			return
		}
		r.look(run)
	}
}

// look sees what became of the place of a run.
func (r *Runner) look(run *placedRun) {
	unlock := r.Lock(run.key)
	_, rep, err := r.read(run)
	unlock()
	if err == nil && rep.Phase == runner.Done || r.of(run.key, run.id) != run {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, lookLimit)
	defer cancel()
	life, err := r.config.Launcher.Look(ctx, run.place)
	if err == nil {
		err = r.judge(run, life)
	}
	if err != nil && r.ctx.Err() == nil {
		r.config.Log.Warn("run cannot be watched", "run", run.id, "err", err)
	}
}

// judge decides whether a run is over because of its place.
func (r *Runner) judge(run *placedRun, life Life) error {
	defer r.Lock(run.key)()
	if r.of(run.key, run.id) != run {
		return nil
	}
	rec, rep, err := r.read(run)
	if err != nil || rep.Phase == runner.Done {
		return err
	}
	now := r.config.Now()
	isLate := late(rec, r.opened, now, r.config.StartLimit)
	life, noImage := run.noImage.add(life, now)
	run.why, run.dead = "", life.State == Ended || life.State == Gone
	if life.State == Pending || life.State == Running {
		run.why = cmp.Or(life.Message, run.unheard(rec, r.opened, now))
	}
	switch dead := run.dead; {
	case dead && run.bodies > 0:
		return nil // what the agent sent last is being received
	case dead && rec.Ordered && life.Exit == wire.ExitNoOrder && rep.Phase == runner.Starting:
		return r.withdraw(run, rep, stack.Interrupted, NeverStarted, "the controller was restarted before the run began; nothing ran")
	case dead && rec.idle():
		return r.withdraw(run, rep, stack.Failed, cmp.Or(life.Reason, PlaceLost), "the pod ended before the run began; nothing ran"+because(life))
	case dead && rep.Untouched && !run.doubted:
		return r.end(run, rep, stack.Failed, cmp.Or(life.Reason, PlaceLost), fmt.Sprintf("the pod ended while the run was %s, and had changed nothing%s", rep.Phase, because(life)))
	case dead:
		return r.end(run, rep, stack.Killed, cmp.Or(life.Reason, PlaceLost), fmt.Sprintf("the pod ended while the run was %s%s", rep.Phase, because(life)))
	case rec.idle() && life.Lacks == Room && r.config.RoomLimit > 0 && now.Sub(life.Since) > r.config.RoomLimit:
		return r.withdraw(run, rep, stack.Interrupted, runner.NoRoom, life.Message)
	case rec.idle() && life.Lacks == Image && r.config.RoomLimit > 0 && noImage > min(imageLimit, r.config.RoomLimit):
		return r.withdraw(run, rep, stack.Interrupted, runner.NoImage, life.Message)
	case rec.idle() && life.Lacks == UsableImage && noImage > min(imageLimit, cmp.Or(r.config.RoomLimit, imageLimit)):
		return r.withdraw(run, rep, stack.Failed, life.Reason, "nothing ran: "+life.Message)
	case rec.idle() && isLate:
		did := "start"
		if rec.Ordered {
			did = "begin the run"
		}
		return r.withdraw(run, rep, stack.Failed, cmp.Or(life.Reason, NeverStarted),
			fmt.Sprintf("the pod did not %s within %v; nothing ran%s", did, r.config.StartLimit, because(life)))
	case rec.silent(rep) && !rep.Kind.Writes() && isLate:
		return r.removals.tell(run.place, run.key, rep.Kind) // the run is over once the place is
	}
	return nil
}

// imageLimit is how long a place may lack an image. It is long enough for a second attempt
// of a kubelet, and short for a slot in which another run could go on.
const imageLimit = 20 * time.Second

// noImage is what this process has seen of a place that lacks an image.
type noImage struct {
	since   time.Time // zero if it lacks none
	refused Life      // with UsableImage, once the registry has answered; a kubelet that tries again may not repeat it
}

// add is a life with what was seen before, and for how long the place has lacked an image.
func (n *noImage) add(life Life, now time.Time) (Life, time.Duration) {
	switch {
	case life.Lacks != Image && life.Lacks != UsableImage:
		*n = noImage{}
		return life, 0
	case n.since.IsZero():
		n.since = now
	}
	if life.Lacks == UsableImage {
		n.refused = life
	} else if n.refused.Lacks != "" {
		life = n.refused
	}
	return life, now.Sub(n.since)
}

// late reports whether a run should have begun by now. An agent can ask for as long as
// this process, which was opened then, serves it.
func late(rec record, opened, now time.Time, limit time.Duration) bool {
	since := rec.Made
	if opened.After(since) {
		since = opened
	}
	return now.Sub(since) > limit
}

// unheardFor is how long the agent of a run that goes on may be silent until that is said.
// It waits for a wish most of the time, and then asks again at once.
const unheardFor = 3 * time.Minute

// unheard says that the agent of a run that may have begun does not reach this process,
// which was opened then.
func (run *placedRun) unheard(rec record, opened, now time.Time) string {
	since := opened
	if heard := run.heard.Load(); heard != nil {
		since = *heard
	}
	if rec.idle() || now.Sub(since) <= unheardFor {
		return ""
	}
	p := run.place
	return fmt.Sprintf("the pod %s has not reached this controller since %s. The run in it may go on, and its result comes once the pod reaches the controller. "+
		"The log of the pod says what is in the way: kubectl -n %s logs %s", p.Name, since.UTC().Format(time.RFC3339), p.Namespace, p.Name)
}

// because is the end of a sentence about a life.
func because(life Life) string {
	switch why := cmp.Or(life.Message, life.Reason); {
	case why != "":
		return ": " + why
	case life.State == Ended:
		return fmt.Sprintf(" with exit code %d", life.Exit)
	default:
		return ""
	}
}

// withdraw ends a run that is idle, and now never begins. The lock of the key is held.
func (r *Runner) withdraw(run *placedRun, rep runner.Report, o stack.Outcome, reason, message string) error {
	if err := r.end(run, rep, o, reason, message); err != nil {
		return err
	}
	return r.removals.add(run.place, idleGrace, run.key, "")
}

// end completes the report of a run that cannot do so itself. The lock of the key is
// held.
func (r *Runner) end(run *placedRun, rep runner.Report, o stack.Outcome, reason, message string) error {
	rec, _, err := r.read(run)
	if err != nil {
		return err
	}
	rec.Ended = true
	if err := r.write(run, rec); err != nil {
		return err
	}
	_, err = runner.Complete(r.dir(run), rep, r.config.Now(), func(rep *runner.Report) {
		rep.Outcome, rep.Message = o, fault.Shorten(message, maxMessage)
		rep.Lost = o == stack.Killed
		if reason != "" {
			rep.Fault, rep.Reason = fault.Broken, reason
			if runner.NeverBegan(reason) {
				rep.Fault = fault.Later
			}
		}
	})
	if err != nil {
		return err
	}
	run.order, run.why = nil, ""
	run.wake()
	r.announce(run.key)
	return nil
}

// maxMessage bounds a message in a report, in bytes.
const maxMessage = 2 << 10

// sweep removes places of this installation that no run belongs to.
func (r *Runner) sweep() {
	ctx, cancel := context.WithTimeout(r.ctx, lookLimit)
	defer cancel()
	places, err := r.config.Launcher.Places(ctx)
	if err != nil {
		r.config.Log.Warn("places not listed", "err", err)
		return
	}
	for _, p := range places {
		if err := r.sweepPlace(p); err != nil {
			r.config.Log.Warn("place not removed", "place", p.Namespace+"/"+p.Name, "err", err)
		}
	}
}

// sweepPlace removes a place that no run belongs to. A run that begins in it holds the
// lock of the key.
func (r *Runner) sweepPlace(p Place) error {
	what, err := r.signer.open(p)
	if err != nil {
		return nil // it blocks its stack since this process began, or another one made it
	}
	if !r.owns(what.First.Key()) {
		return nil
	}
	defer r.Lock(what.First.Key())()
	if !r.owns(what.First.Key()) || r.unread.of(what.First.Key()) != nil { // it was given away while this waited, or may have a run
		return nil
	}
	if r.at(p) != nil || r.removals.has(p) {
		return nil
	}
	return r.removals.add(p, idleGrace, what.First.Key(), "")
}
