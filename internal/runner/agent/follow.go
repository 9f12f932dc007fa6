package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/stack"
)

// following delivers what a run leaves, and lets the wishes of the controller reach it.
type following struct {
	*agent
	to   *delivery
	stop context.Context
	work sync.WaitGroup

	kick  chan struct{} // something may be new
	again chan struct{} // the controller does not have the last report
	gone  chan struct{} // closed: the controller knows no such run

	told    bool          // a signal asked for the end
	over    bool          // the controller has taken the report of the end
	ended   time.Time     // when the run was first seen to have ended
	trouble string        // the last failure that was logged
	kind    stack.RunKind // of the run, once its report was read
	blind   time.Time     // since when its report cannot be read; zero while it can
}

// follow delivers what the run leaves, until the controller has forgotten it.
func (a *agent) follow(stop context.Context) (code int, err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(stop))
	f := &following{agent: a, to: newDelivery(a.client, a.log, a.runDir()), stop: stop,
		kick: make(chan struct{}, 1), again: make(chan struct{}, 1), gone: make(chan struct{})}
	defer f.work.Wait()
	defer cancel()
	f.work.Go(func() { f.watchWishes(ctx) })
	f.watchRun(ctx)
	f.reapOrphans(ctx)
	return f.run(ctx)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watchRun says when the run may have left something new.
func (f *following) watchRun(ctx context.Context) {
	if f.failed != nil {
		return
	}
	w := disk.NewWatch(f.runDir())
	f.work.Go(func() {
		for w.Wait() {
			poke(f.kick)
			select {
			case <-time.After(roundPause):
			case <-ctx.Done():
				return
			}
		}
	})
	f.work.Go(func() {
		defer w.Close()
		for {
			select {
			case <-f.runs.Ended():
				poke(f.kick)
			case <-ctx.Done():
				return
			}
		}
	})
}

// watchWishes asks what the controller wants of the run.
func (f *following) watchWishes(ctx context.Context) {
	pause := newPause()
	known := wire.Wish{}
	for ctx.Err() == nil {
		known.Report = f.to.lastTaken()
		w, err := f.client.wish(ctx, known)
		if is(err, http.StatusGone) {
			close(f.gone)
			return
		}
		if err != nil {
			pause.wait(ctx)
			continue
		}
		pause = newPause()
		if w.Cancel && !known.Cancel {
			f.log.Info("the controller cancels the run")
			f.cancel()
			known.Cancel = true
		}
		if w.Report != f.to.lastTaken() {
			poke(f.again)
			pause.wait(ctx) // the answer to the same question would come at once
		}
	}
}

// run delivers until the end.
func (f *following) run(ctx context.Context) (code int, err error) {
	pause := newPause()
	stopped := f.stop.Done()
	again := false
	for {
		rep, err := f.report()
		if err != nil && f.tired() {
			return wire.ExitFailed, err
		}
		done := err == nil && rep.Phase == runner.Done
		if done && f.ended.IsZero() {
			f.ended = time.Now()
		}
		failed := err
		if err == nil {
			failed = f.to.round(ctx, rep, again)
		} else if sent := f.to.files(ctx, true); sent != nil {
			failed = errors.Join(sent, err)
		}
		if failed == nil {
			failed = f.allow(rep)
		}
		f.note(failed)
		delivered := failed == nil && done
		f.over = f.over || delivered
		if failed == nil {
			again, pause = false, newPause()
		}
		switch {
		case is(failed, http.StatusGone):
			return f.abandoned(ctx)
		case delivered && f.told:
			return wire.ExitTold, nil
		case done && time.Since(f.ended) > tiredAfter && (delivered || !rep.Kind.Writes()):
			return wire.ExitTired, errors.New("the run ended an hour ago, and the controller did not forget it")
		}
		wait, kick := roundMost, f.kick
		switch {
		case failed != nil:
			wait, kick = pause.more(), nil
		case delivered:
			wait, kick = tiredAfter, nil
		}
		select {
		case <-time.After(wait):
		case <-kick:
		case <-f.again:
			again = true
		case <-f.gone:
			return f.abandoned(ctx)
		case <-stopped:
			stopped, f.told = nil, true
			f.log.Info("told to stop")
			f.cancel()
		}
	}
}

// allow lets the run change something once the controller has taken the report which says
// that it may: a pod that is lost before has changed nothing, and the controller knows it.
func (f *following) allow(rep runner.Report) error {
	if f.failed != nil || !rep.Changing() {
		return nil
	}
	return f.runs.Allow(rep.Key(), rep.ID)
}

// report is the report of the run. While it cannot be read, the run goes on all the same:
// the end of the agent would kill it.
func (f *following) report() (runner.Report, error) {
	rep, err := f.current()
	switch {
	case err == nil:
		f.kind, f.blind = rep.Kind, time.Time{}
	case f.blind.IsZero():
		f.blind = time.Now()
	}
	if err != nil {
		err = fmt.Errorf("reading the report of the run: %w", err)
	}
	return rep, err
}

// tired reports whether the agent gives up a report that cannot be read. It never gives up
// a run that writes, or may.
func (f *following) tired() bool {
	return f.kind != "" && !f.kind.Writes() && time.Since(f.blind) > tiredAfter
}

// note logs a failure once.
func (f *following) note(failed error) {
	text := ""
	if failed != nil {
		text = failed.Error()
	}
	switch {
	case text == f.trouble:
	case failed != nil:
		f.log.Warn("not everything is delivered yet", "err", failed)
	default:
		f.log.Info("everything is delivered again")
	}
	f.trouble = text
}

// abandoned ends the agent of a run that the controller does not know. One that goes on
// is interrupted: the controller takes it for dead, and may have begun another one. One
// whose end the controller has taken is forgotten, also if the report was on its way a
// second time then: the controller asks for it again before the agent has read that it
// was taken.
func (f *following) abandoned(ctx context.Context) (code int, err error) {
	if f.over {
		return wire.ExitForgotten, nil
	}
	cancelled := f.cancel()
	for {
		rep, err := f.report()
		if err != nil {
			f.note(err)
		}
		if err != nil && f.tired() {
			return wire.ExitFailed, err
		}
		if err == nil && rep.Phase == runner.Done {
			return wire.ExitFailed, fmt.Errorf("the controller does not know this run any more: it ended %s and was not taken over", rep.Outcome)
		}
		if err == nil && !cancelled {
			cancelled = f.cancel()
		}
		select {
		case <-f.kick:
		case <-time.After(roundMost):
		case <-ctx.Done():
			return wire.ExitFailed, ctx.Err()
		}
	}
}
