package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// This file is about a place that may have another run after a quiet check: what has to be
// true of it then, and how the next run is asked for.

const (
	nextWithin = time.Minute     // the controller ends the wait earlier
	goneWithin = 5 * time.Second // for the last processes of a run that was forgotten
	goneEvery  = 10 * time.Millisecond
)

// errNoNext says that there is no next run.
var errNoNext = errors.New("the controller has no other run for this place")

// getNext asks for the order of the next run, with the proof of the one before.
func (a *agent) getNext(stop context.Context) error {
	ctx, cancel := context.WithTimeout(stop, nextWithin)
	defer cancel()
	broken := 0
	err := a.retry(ctx, "next run not received yet", func(ctx context.Context) (final bool, err error) {
		resp, done, err := a.client.ask(ctx, request{method: http.MethodPost, path: wire.Next, limit: moveLimit})
		if err != nil {
			return is(err, http.StatusGone) || is(err, http.StatusForbidden) || is(err, http.StatusConflict), err
		}
		defer done()
		if resp.StatusCode == http.StatusNoContent {
			return false, errNoNext
		}
		return a.readOrder(resp, &broken)
	})
	if is(err, http.StatusGone) || ctx.Err() != nil {
		return errNoNext
	}
	return err
}

// adoptOrphans makes this process the parent of every process of its runs whose own parent
// has ended, as the first process of a container is. So it has no child left only if none
// of a run is left.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopting the orphans of runs: %w", err)
	}
	return nil
}

// leaveNothing returns without an error once nothing of the run is left that the next one
// could reach: no process, no file, and no volume that runs can write. The levels of
// isolation from kernel on let a run write nothing but its own directories.
func (a *agent) leaveNothing() error {
	if a.failed != nil {
		return errors.New("the run could not be started")
	}
	report, err := a.runs.Current(a.key)
	if err != nil {
		return err
	}
	if report == nil || report.Level < int(sandbox.Kernel) {
		return fmt.Errorf("the run was isolated at a level below %v", sandbox.Kernel)
	}
	if err := a.nothingShared(); err != nil {
		return err
	}
	if err := noChildren(report.PID, goneWithin); err != nil {
		return err
	}
	return clearDir(a.options.Dir)
}

// nothingShared refuses a place with a volume that each of its runs can write.
func (a *agent) nothingShared() error {
	p := a.order.Host.Platform
	if a.options.Surroundings {
		var err error
		if p, err = surroundings(runner.Platform{Writable: p.Writable}, a.options); err != nil {
			return err
		}
	}
	if len(p.Writable) > 0 {
		return fmt.Errorf("runs can write %s", p.Writable[0])
	}
	return nil
}

// noChildren waits for the children of this process that have ended, and returns once the
// kernel says that there is none. Another part of this program waits for the supervisor.
func noChildren(supervisor int, within time.Duration) error {
	late := time.After(within)
	for {
		reap(supervisor)
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the processes of the run: %w", err)
		}
		select {
		case <-time.After(goneEvery):
		case <-late:
			return errors.New("a process of the run is still there")
		}
	}
}

// clearDir removes what is in the directory of an agent but its lock.
func clearDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == fileLock {
			continue
		}
		if err := sandbox.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("removing what the run left: %w", err)
		}
	}
	return nil
}
