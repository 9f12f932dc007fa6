// Package agent is the program in the place of a run, a pod above all: it asks the
// controller for the one order of its place, lets a supervisor on the same machine
// carry it out, and delivers what the run leaves while it goes on. Its peer is package
// remote, and it listens to nothing.
//
//	controller ◀── order, files, report, wish ── agent ── runner.Processes ── supervisor ── engine
//
// Once a run may have changed something it does not wait for the network: what could not
// be delivered is delivered later, the newest state first. It waits once, before it changes
// anything, until the controller has taken the report which says that it may: a pod that is
// lost before that has changed nothing. The agent stays after the end of the run until the
// controller has forgotten it, so that a controller that lost its directory gets
// everything once more. Told to stop by a signal, it interrupts the run once.
//
// It refuses to speak to any other address than that of its controller, to follow a
// redirect, and to begin a run whose engine is another one than the job names.
//
// Start reading at Run.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Files in the directory of an agent.
const (
	fileLock    = "agent.lock"
	fileProof   = "proof" // what proves to the controller that this is the run's agent
	fileArchive = "archive.tar.gz"
	fileGiven   = "given.tar.gz" // what an earlier run prepared
	dirRuns     = "runner"       // of runner.Processes
)

// How long things take, and how often they are tried.
const (
	pauseLeast = 200 * time.Millisecond // after a failure; each time twice as long
	pauseMost  = 10 * time.Second
	roundPause = 250 * time.Millisecond // between two deliveries, so that a flood of output is few requests
	roundMost  = 5 * time.Second        // between two, in case that a change was missed
	tiredAfter = time.Hour              // after the end of a run that was delivered, or wrote nothing
	orderTries = 10                     // of an order that arrives broken
)

// agent carries out one run.
type agent struct {
	options Options
	client  *client
	runs    *runner.Processes
	log     *slog.Logger
	order   runner.Order   // none if an agent before this one had it
	failed  *runner.Report // of a run that could not be started
	next    bool           // the place may have another run after this one
	key, id string
}

// Run carries out the run of this place, and returns the exit code of the program. The
// end of stop is the one polite request to stop.
func Run(stop context.Context, o Options) (code int, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(o)
	if err != nil {
		return wire.ExitFailed, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return wire.ExitFailed, err
	}
	lock, err := disk.TryLock(filepath.Join(o.Dir, fileLock))
	if err != nil {
		return wire.ExitFailed, err
	}
	if lock == nil {
		return wire.ExitFailed, fmt.Errorf("another agent is running in %s", o.Dir)
	}
	defer lock.Close()
	if err := adoptOrphans(); err != nil {
		return wire.ExitFailed, err
	}
	for {
		a := &agent{options: o, log: o.Log, client: c}
		code, err := a.carryOut(stop)
		if errors.Is(err, errNoNext) {
			return code, nil
		}
		if code != wire.ExitForgotten || err != nil || !a.next || stop.Err() != nil {
			return code, err
		}
		if err := a.leaveNothing(); err != nil {
			o.Log.Info("the pod takes no other run", "why", err)
			return wire.ExitForgotten, nil
		}
	}
}

// carryOut carries out one run, from its order until the controller has forgotten it.
func (a *agent) carryOut(stop context.Context) (code int, err error) {
	a.runs, err = runner.New(runner.Config{Dir: filepath.Join(a.options.Dir, dirRuns), Binary: a.options.Supervisor, Contents: a.contents(), Asks: true, Log: a.log})
	if err != nil {
		return wire.ExitFailed, err
	}
	defer func() { err = errors.Join(err, a.runs.Close()) }()
	if code, err := a.begin(stop); err != nil || code != 0 {
		return code, err
	}
	return a.follow(stop)
}

// begin makes sure that the run has begun: it goes on after an agent that died, or its
// order is asked for.
func (a *agent) begin(stop context.Context) (code int, err error) {
	found, err := a.runs.List()
	if err != nil {
		return wire.ExitFailed, err
	}
	if len(found) > 0 {
		proof, err := os.ReadFile(filepath.Join(a.options.Dir, fileProof))
		if err != nil {
			return wire.ExitFailed, err
		}
		a.client.proof, a.key, a.id = string(proof), found[0].Key(), found[0].ID
		a.log.Info("run found", "run", a.id)
		return 0, nil
	}
	ask := a.getOrder
	if a.client.proof != "" {
		ask = a.getNext
	}
	switch err := ask(stop); {
	case errors.Is(err, errNoNext):
		return wire.ExitForgotten, err
	case is(err, http.StatusForbidden), is(err, http.StatusConflict):
		return wire.ExitNoOrder, errors.New("the controller was replaced before the next run of this place began, so nothing ran")
	case is(err, http.StatusGone):
		return wire.ExitNoOrder, errors.New("the controller has no order for this place, so nothing ran")
	case stop.Err() != nil:
		return wire.ExitTold, errors.New("stopped before the run began, so nothing ran")
	case err != nil:
		a.failed = a.failure(err)
		return 0, nil
	}
	job := a.order.Job
	a.useRegistry(&job)
	a.useIdentity(&job)
	if err := errors.Join(a.useMirror(&job), fitMemory(&job, os.DirFS("/"))); err != nil {
		a.failed = a.failure(err)
		return 0, nil
	}
	a.key, a.id = job.Key(), job.ID
	switch err := a.agree(stop, job); {
	case is(err, http.StatusGone):
		return wire.ExitNoOrder, errors.New("the controller withdrew the run before it began, so nothing ran")
	case err != nil:
		a.failed = a.failure(cmp.Or(stop.Err(), err))
		return 0, nil
	}
	a.log.Info("run begins", "run", job.ID, "stack", job.Name, "kind", job.Kind)
	if err := a.runs.Start(stop, job); err != nil {
		a.log.Error("run not started", "err", err)
		a.failed = a.failure(err)
	}
	return 0, nil
}

// agree gets what the run needs, and returns once the controller took the first report.
// Until then the controller may withdraw the run, so nothing of it has begun.
func (a *agent) agree(stop context.Context, job runner.Job) error {
	if digest := job.Tree.Archive; digest != "" {
		if _, err := a.contents().Archive(stop, digest); err != nil {
			return err
		}
	}
	if digest := job.Prepared.Digest; digest != "" {
		if _, err := a.contents().Prepared(stop, digest); err != nil {
			return err
		}
	}
	begins := runner.NewReport(job, time.Now())
	begins.Untouched = job.Kind.Writes()
	report, err := json.Marshal(begins)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	first := newDelivery(a.client, a.log, "")
	return a.retry(stop, "first report not delivered yet", func(ctx context.Context) (final bool, err error) {
		err = first.report(ctx, report)
		return is(err, http.StatusGone), err
	})
}

// contents finds what the run needs.
func (a *agent) contents() *contents { return &contents{agent: a} }

// failure is the report of a run that could not be started.
func (a *agent) failure(err error) *runner.Report {
	now := time.Now()
	r := runner.NewReport(a.order.Job, now)
	r.Phase, r.Finished, r.Untouched = runner.Done, now, r.Kind.Writes()
	r.Outcome, r.Message = stack.Failed, fault.Shorten(err.Error(), maxMessage)
	r.Fault, r.Reason = fault.Of(err), fault.Reason(err, "")
	if errors.Is(err, context.Canceled) {
		r.Outcome, r.Message, r.Fault = stack.Interrupted, "stopped before the run began, so nothing ran", ""
	}
	return &r
}

// maxMessage bounds a message in a report, in bytes.
const maxMessage = 2 << 10

// getOrder asks for the order until the controller gives it, or says that there is
// none.
func (a *agent) getOrder(stop context.Context) error {
	broken := 0
	return a.retry(stop, "order not received yet", func(ctx context.Context) (final bool, err error) {
		resp, done, err := a.client.ask(ctx, request{method: http.MethodPost, path: wire.Order, limit: moveLimit,
			header: map[string]string{wire.HeaderWaits: "true", wire.HeaderNext: "true"}})
		if err != nil {
			return is(err, http.StatusGone), err
		}
		defer done()
		return a.readOrder(resp, &broken)
	})
}

// readOrder reads an answer with an order and its proof.
func (a *agent) readOrder(resp *http.Response, broken *int) (final bool, err error) {
	proof := resp.Header.Get(wire.HeaderProof)
	a.next, _ = strconv.ParseBool(resp.Header.Get(wire.HeaderNext))
	o, err := runner.ReadOrder(resp.Body)
	a.order = o
	if err != nil {
		*broken++
		if final = fault.Of(err) == fault.Later || *broken >= orderTries; final {
			a.client.proof = proof // one of another version stays one, and its run has to be reported
		}
		return final, err
	}
	a.client.proof, a.client.stack = proof, o.Job.Key()
	return true, disk.Write(filepath.Join(a.options.Dir, fileProof), []byte(proof))
}

// retry tries until what is tried is final. It says the first failure, and no other one
// of the same kind after it.
func (a *agent) retry(ctx context.Context, what string, try func(context.Context) (final bool, err error)) error {
	pause := newPause()
	said := ""
	for {
		final, err := try(ctx)
		if err == nil || final || ctx.Err() != nil {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			a.log.Warn(what, "err", err)
		}
		if !pause.wait(ctx) {
			return err
		}
	}
}

// pause grows from failure to failure.
type pause struct{ next time.Duration }

func newPause() *pause { return &pause{pauseLeast} }

// more is how long to wait this time.
func (p *pause) more() time.Duration {
	now := p.next
	p.next = min(2*now, pauseMost)
	return now
}

// wait waits; false if ctx ended meanwhile.
func (p *pause) wait(ctx context.Context) bool {
	select {
	case <-time.After(p.more()):
		return true
	case <-ctx.Done():
		return false
	}
}

// current is the report of the run.
func (a *agent) current() (runner.Report, error) {
	if a.failed != nil {
		return *a.failed, nil
	}
	r, err := a.runs.Current(a.key)
	if err != nil {
		return runner.Report{}, err
	}
	if r == nil {
		return runner.Report{}, fmt.Errorf("run %s left nothing", a.id)
	}
	return *r, nil
}

// cancel asks the run to stop, and reports whether it was asked.
func (a *agent) cancel() bool {
	if a.failed != nil {
		return true
	}
	err := a.runs.Cancel(context.Background(), a.key, a.id)
	if err != nil {
		a.log.Error("run not cancelled", "err", err)
	}
	return err == nil
}

// runDir is the directory of the run; empty if it could not be started.
func (a *agent) runDir() string {
	if a.failed != nil {
		return ""
	}
	return a.runs.Dir(a.key, a.id)
}
