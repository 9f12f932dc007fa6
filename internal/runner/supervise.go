package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Supervisor is the environment of the one run that Supervise carries out.
type Supervisor struct {
	Dir   string           // the data directory, the same as the controller's
	Host  Host             // where this machine has what the job names
	Asks  bool             // see Config
	Now   func() time.Time // the clock
	Ready func(error)      // called once: nil when the locks are held and the report is written, else why not
}

// Supervise carries out a run from start to end. The end of ctx is the one
// polite request to stop. The error is about a run that could not be
// supervised at all; however the engine fares is in the Report, which is also
// what stands in the run's directory at the end.
func Supervise(ctx context.Context, job Job, s Supervisor) (Report, error) {
	r, err := acquire(job, s)
	s.Ready(err)
	if err != nil {
		return Report{}, err
	}
	defer r.release()
	return r.runToEnd(ctx)
}

// run is one run while its supervisor carries it out.
type run struct {
	job        Job
	host       Host // where this machine has what the job names
	asks       bool // see Config
	now        func() time.Time
	layout     layout
	dir        string // RUN
	work       *workDir
	reportFile *reportFile
	locks      []*os.File
	unsaved    bool // the work directory may hold the state of an earlier run, which could not be saved
	endless    bool // it may hold that of this run, which could not be saved either

	hide     *plan.Redactor
	printing sync.Mutex // held while the fingerprints of what is hidden are written
	recorder *recorder

	sandbox    *isolation
	state      *managedState
	foreign    *foreignState
	registry   *registryRelay
	directory  *preparation
	uses       *usesList
	backend    *pluggedBackend
	handover   *handover
	cache      *providerCache
	providers  *providerProcesses
	engine     *engineProcesses
	plans      *planSteps
	blocks     *checkBlocks
	checks     *healthChecks
	breakGlass *breakGlassSteps
	script     *scriptSteps
	identity   *runIdentity
	after      *afterSteps
}

// divide makes the parts of a run. Each part is a theme, with the steps and the
// values that belong to it; all of them are parts of the same run.
func (r *run) divide() {
	r.sandbox, r.state, r.directory = &isolation{run: r}, &managedState{run: r}, &preparation{run: r}
	r.registry, r.backend, r.foreign = &registryRelay{run: r}, &pluggedBackend{run: r}, &foreignState{run: r}
	r.uses = &usesList{run: r}
	r.handover, r.cache = &handover{run: r}, &providerCache{run: r}
	r.providers, r.engine = &providerProcesses{run: r}, &engineProcesses{run: r}
	r.plans, r.blocks, r.checks, r.breakGlass = &planSteps{run: r}, &checkBlocks{run: r}, &healthChecks{run: r}, &breakGlassSteps{run: r}
	r.script, r.identity, r.after = &scriptSteps{run: r}, &runIdentity{run: r}, &afterSteps{run: r}
}

// acquire takes the locks of the run and of its stack and writes the first
// report.
func acquire(job Job, s Supervisor) (r *run, err error) {
	if err := job.Check(); err != nil {
		return nil, err
	}
	l := layout{s.Dir}
	if job.Beside != "" {
		job.Options.NoLock = true // it writes nothing, and must not stand in the way of a run that does
	}
	r = &run{job: job, host: s.Host, asks: s.Asks, now: s.Now, layout: l, dir: l.run(job.Key(), job.ID)}
	r.divide()
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	if r.work, err = newWorkDir(l.stack(job.Key()), job.Tree); err != nil {
		return r, err
	}
	if err := os.MkdirAll(r.work.path(dirWork), 0o700); err != nil {
		return r, err
	}
	// The stack's lock comes first: it is what keeps a second writer out. The
	// run's directory is not made here, so a run that was forgotten before it
	// came this far ends here.
	for _, path := range []string{r.work.path(fileLock), filepath.Join(r.dir, fileLock)} {
		f, err := disk.TryLock(path)
		if err != nil {
			return r, fmt.Errorf("taking the locks of run %s: %w", job.ID, err)
		}
		if f == nil {
			return r, fault.New(fault.Conflict, StackBusy, fmt.Errorf("another run of %s is running", job.Key()))
		}
		r.locks = append(r.locks, f)
	}
	now := r.now()
	r.reportFile = &reportFile{dir: r.dir, now: s.Now}
	return r, r.reportFile.update(func(rep *Report) {
		*rep = NewReport(job, now)
		rep.PID, rep.Untouched = os.Getpid(), job.Kind.Writes()
	})
}

func (r *run) release() {
	for _, f := range r.locks {
		f.Close()
	}
}

// runToEnd goes through the steps of the run and always ends in a final
// report.
func (r *run) runToEnd(ctx context.Context) (Report, error) {
	end := endingOf(r.steps(ctx))
	if end.fault != "" && r.recorder != nil {
		r.recorder.logf("The run failed: %s", strings.TrimSuffix(fault.Shorten(r.hide.String(end.message), maxText), ".")+".") // no engine has said it
	}
	var forgotten error
	if end.outcome == stack.Failed {
		forgotten = r.backend.forget()
	}
	// From here on nothing is interrupted: the results must be kept.
	err := errors.Join(forgotten, r.finish())
	if r.endless {
		return r.reportFile.content(), err // without an end in its report, the run is over once its state is saved
	}
	if err != nil && end.outcome == stack.Succeeded {
		end = endingOf(err)
	}
	werr := r.reportFile.update(func(rep *Report) {
		rep.Phase, rep.Since, rep.Finished = Done, r.now(), r.now()
		rep.Outcome, rep.Step, rep.Exit = end.outcome, end.step, end.exit
		rep.Fault, rep.Reason, rep.Permanent = end.fault, end.reason, end.permanent
		rep.Message = fault.Shorten(r.hide.String(end.message), maxText)
	})
	r.reportFile.reserve.Free()
	return r.reportFile.content(), errors.Join(err, werr)
}

// steps runs the run's steps until one of them ends it.
func (r *run) steps(ctx context.Context) error {
	if err := r.begin(); err != nil {
		return err
	}
	if err := r.identity.open(ctx); err != nil {
		return err
	}
	if err := r.foreign.open(); err != nil {
		return err
	}
	for _, step := range r.sequence() {
		if ctx.Err() != nil {
			return ending{outcome: stack.Interrupted, message: "stopped before the next step"}
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sequence lists the steps of a run of each kind.
func (r *run) sequence() []func(context.Context) error {
	prepare := []func(context.Context) error{r.directory.prepare, r.backend.provide, r.directory.init, r.directory.workspace, r.directory.unlock}
	if r.job.Script != nil && (r.job.Kind == stack.ScriptRun || r.job.Kind == stack.DestroyRun) {
		steps := []func(context.Context) error{r.script.check, prepare[0]}
		for _, step := range prepare[1:] {
			steps = append(steps, r.script.whenConfigured(step))
		}
		steps = append(steps, r.script.whenConfigured(r.foreign.beforeScript))
		return append(steps, withOutputs(r.script.remembering, r.script.whenConfigured(r.plans.outputs)))
	}
	switch r.job.Kind {
	case stack.PlanRun, stack.CheckRun, stack.PreviewRun:
		return append(prepare, r.providers.start, r.foreign.planChecked, r.plans.show, r.plans.text, r.plans.outputs)
	case stack.ApplyRun:
		return append(append([]func(context.Context) error{r.plans.checkStale}, prepare...), r.foreign.check, r.plans.placePlan, r.providers.start, withOutputs(r.foreign.remembering(r.plans.apply), r.plans.outputs))
	case stack.DestroyRun:
		return append(prepare, r.providers.start, r.foreign.planChecked, r.plans.showForgotten, r.foreign.remembering(r.plans.apply))
	case stack.BreakGlassRun:
		return []func(context.Context) error{r.breakGlass.prepareIfPossible, withOutputs(r.foreign.remembering(r.breakGlass.runCommand), r.plans.outputs)}
	case stack.HealthRun:
		return []func(context.Context) error{r.checks.health}
	case stack.StepsRun:
		return []func(context.Context) error{r.after.prepare, r.after.carryOut}
	default:
		return []func(context.Context) error{func(context.Context) error {
			return ending{outcome: stack.Failed, message: fmt.Sprintf("there is no run of kind %q", r.job.Kind)}
		}}
	}
}

// withOutputs makes one step of a change and of reading the outputs after it. A change
// that succeeded is recorded as such, also if the run was cancelled meanwhile.
func withOutputs(change, outputs func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := change(ctx); err != nil {
			return err
		}
		return outputs(context.WithoutCancel(ctx))
	}
}

// begin sets up what all steps need. What an earlier run left in the work
// directory is wiped first: its owner is dead, and its state was recovered.
func (r *run) begin() error {
	if err := recoverState(r.work, filepath.Dir(r.dir), dyingLimit); err != nil {
		r.unsaved = true
		return err
	}
	if err := r.work.wipe(); err != nil {
		return err
	}
	for name := range r.job.Env {
		if err := workdir.CheckEnvironment(name, r.host.Settable...); err != nil {
			return err
		}
	}
	mask := slices.Concat(r.job.Mask, r.host.secrets())
	if r.job.Managed {
		store, err := managed.NewStore(filepath.Join(r.dir, FileState), r.job.State.Bytes(), r.job.Kind.Writes(), r.state.stored)
		if err != nil {
			return err
		}
		r.state.store = store
		if data, file := store.Newest(); file != nil {
			mask = append(mask, file.Secrets()...)
			r.reportFile.set(func(rep *Report) { rep.State, rep.Resources = file.ID(data), file.Managed() })
		}
		if err := r.state.serve(); err != nil {
			return err
		}
	}
	hidden, err := r.registry.open()
	if err != nil {
		return err
	}
	mask = append(mask, hidden...)
	r.hide = plan.NewRedactor(mask)
	err = r.reserveSpace()
	if err != nil {
		return err
	}
	if r.recorder, err = newRecorder(r.dir, r.job.Limits.LogBytes, r.hide, r.state.rescue, r.reportFile.reserve); err != nil {
		return err
	}
	r.recorder.routine = r.routine
	return r.sandbox.decide()
}

// reserveSpace holds space on the disk for what a run that writes must write
// down.
func (r *run) reserveSpace() error {
	if !r.job.Kind.Writes() {
		return nil
	}
	space, err := disk.NewReserve(r.dir, int(r.job.State.Size))
	if err != nil {
		return err
	}
	r.reportFile.reserve = space
	if r.state.store != nil {
		r.state.store.Reserve = space
	}
	return nil
}

// finish keeps what must not be lost and wipes what must not stay.
func (r *run) finish() error {
	errs := []error{r.providers.stop()}
	r.identity.close()
	r.foreign.sealer.Close()
	if r.job.Kind.Writes() {
		errs = append(errs, r.reportFile.enter(Saving))
	}
	if r.unsaved {
		return errors.Join(errs...)
	}
	unsaved, err := r.state.collect()
	errs = append(errs, err)
	if r.endless = unsaved && r.recorder != nil; r.endless { // else nothing ran
		r.recorder.logf("The state cannot be saved: %s. It stays in the directory of the run until it can be.", r.hide.String(err.Error()))
	}
	if r.recorder != nil {
		errs = append(errs, r.recorder.close())
	}
	if r.endless {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, r.work.wipe())...)
}

// enter begins a phase that one step of the engine may take its time for. Before one that
// may change resources or the state it returns once that is known where it has to be.
func (r *run) enter(ctx context.Context, p Phase, step string) error {
	begin := func() error {
		limit, grace := r.limit(step)
		r.reportFile.set(func(rep *Report) { rep.Until, rep.Grace = r.reportFile.now().Add(limit), grace })
		return r.reportFile.enter(p)
	}
	changes := r.job.Kind.Writes() && p.Changes()
	if changes {
		r.reportFile.set(func(rep *Report) { rep.Untouched = false })
	}
	if err := begin(); err != nil || !changes || !r.asks {
		return err
	}
	if err := r.awaitAllowed(ctx); err != nil {
		r.reportFile.set(func(rep *Report) { rep.Untouched = true })
		return err
	}
	return begin() // its time begins now
}

// awaitAllowed returns once Allow was called for the run.
func (r *run) awaitAllowed(ctx context.Context) error {
	w := disk.NewWatch(r.dir)
	stop := context.AfterFunc(ctx, w.Close)
	defer func() {
		if stop() {
			w.Close()
		}
	}()
	for {
		_, err := os.Stat(filepath.Join(r.dir, fileAllowed))
		switch {
		case ctx.Err() != nil:
			return ending{outcome: stack.Interrupted, message: "stopped before it changed anything"}
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		w.Wait()
	}
}

// limit is how long a step may take.
func (r *run) limit(step string) (limit, grace time.Duration) {
	l := r.job.Limits
	limit = orDefault(l.Plan, defaultPlan)
	switch step {
	case "init", "workspace", "unlock", stepState:
		limit = orDefault(l.Init, defaultInit)
	case stepBackend:
		limit = min(orDefault(l.Init, defaultInit), backendLimit)
	case "apply", stepScript, stepDestroyScript, stepPostDeploy, stepAfter:
		limit = orDefault(l.Apply, defaultApply)
	case stepHealth:
		limit = orDefault(l.Health, checksLast(r.job.Checks))
	}
	grace = orDefault(l.Grace, defaultGrace)
	if !r.job.Kind.Writes() || !slices.Contains([]string{"apply", stepScript, stepDestroyScript, stepPostDeploy}, step) {
		// Only an apply has anything to lose.
		grace = min(grace, ReadGrace)
	}
	return limit, grace
}

// ending ends a run; it is an error so that a step can return it.
type ending struct {
	outcome stack.Outcome
	step    string
	exit    int
	message string
	fault   fault.Kind // if it was not the engine's doing
	reason  string

	permanent bool // another run of the same would end so again
}

func (e ending) Error() string { return string(e.outcome) + ": " + e.message }

// explain adds sentences to the message, of which they are the end also when it is
// cut.
func (e *ending) explain(why string) {
	e.message = strings.TrimSuffix(strings.TrimSpace(fault.Shorten(e.message, maxText-len(why)-2)), ".") + ". " + why
}

// endingOf turns what the steps returned into the end of the run.
func endingOf(err error) ending {
	if err == nil {
		return ending{outcome: stack.Succeeded}
	}
	if e, ok := errors.AsType[ending](err); ok {
		return e
	}
	e := ending{outcome: stack.Failed, message: err.Error(), fault: fault.Of(err), reason: fault.Reason(err, "")}
	if disk.IsNoSpace(err) {
		e.reason, e.message = NoSpace, "there is no space left: "+e.message
	}
	return e
}
