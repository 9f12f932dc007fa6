package runner

import (
	"context"
	"errors"
	"slices"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// A break-glass run executes one command of a user, in the sandbox, the
// directory and the environment of any other run. It is for emergencies: a
// directory that cannot be prepared does not end it. A command that needs the
// state alone is then run without the module.

const stepBreakGlass = "glass"

// RunningCommand is the phase in which the command of a user is running.
const RunningCommand Phase = "RunningCommand"

// breakGlassSteps are the steps of a run that executes a command of a user.
type breakGlassSteps struct{ *run }

func (r *breakGlassSteps) runCommand(ctx context.Context) error {
	o := engine.BreakGlassOptions{VarFiles: r.directory.varFiles(), NoLock: r.job.Options.NoLock || r.job.Managed}
	if r.state.locally {
		o.Backup = r.work.scratch("backup")
	}
	args, err := engine.BreakGlassArgs(r.job.Command, o)
	if err != nil {
		return err
	}
	if err := r.enter(ctx, RunningCommand, stepBreakGlass); err != nil {
		return err
	}
	_, err = r.engine.execute(ctx, command{step: stepBreakGlass, args: args})
	return err
}

// prepareIfPossible prepares the directory as far as that is possible.
func (r *breakGlassSteps) prepareIfPossible(ctx context.Context) error {
	c, err := engine.ParseBreakGlass(r.job.Command)
	if err != nil {
		return err
	}
	unpacked, err := r.prepareAndInit(ctx)
	if !aboutModule(err) {
		return err
	}
	r.recorder.logf("The directory could not be prepared: %s", endingOf(err).message)
	stripped, err2 := r.dropModule(c)
	switch {
	case err2 != nil:
		return err2
	case stripped:
		r.recorder.logf("%s works on the state alone, and is run without the module.", c.Words)
		// Providers that the state names may be missing all the same; most
		// commands do not need them.
		unpacked, err = r.prepareAndInit(ctx)
	}
	if err != nil && !(unpacked && aboutModule(err)) {
		return err
	}
	return nil
}

// prepareAndInit does the first steps of every run. It reports whether there is
// a directory to run something in, whatever else went wrong.
func (r *breakGlassSteps) prepareAndInit(ctx context.Context) (unpacked bool, err error) {
	if err := r.directory.prepare(ctx); err != nil {
		return false, err
	}
	for _, step := range []func(context.Context) error{r.backend.provide, r.directory.init, r.directory.workspace, r.directory.unlock} {
		if err := step(ctx); err != nil {
			return true, err
		}
	}
	return true, nil
}

// aboutModule reports whether err is about the module and what it needs, and not
// about the run.
func aboutModule(err error) bool {
	if e, ok := errors.AsType[ending](err); ok {
		return e.outcome == stack.Failed
	}
	return fault.Of(err) == fault.Invalid
}

// dropModule leaves of the module nothing but where its state is, if the command
// needs no more and the state is not where only the module says. The next run
// rebuilds the directory.
func (r *breakGlassSteps) dropModule(c engine.BreakGlassCommand) (bool, error) {
	keep := []string{workdir.BackendOverridePath, CLIConfig}
	if b := r.job.Options.BackendFile; b != "" {
		keep = append(keep, b)
	}
	files := slices.DeleteFunc(slices.Clone(r.job.Files), func(f workdir.File) bool { return !slices.Contains(keep, f.Path) })
	located := slices.ContainsFunc(files, func(f workdir.File) bool { return f.Path == workdir.BackendOverridePath })
	if !c.Bare || !located {
		return false, nil
	}
	if err := r.work.wipe(); err != nil {
		return false, err
	}
	r.job.Files, r.job.Tree, r.job.LockFile = files, Tree{}, Content{}
	r.host.Archive = ""
	r.job.Options.InitKey, r.job.Options.Upgrade, r.job.Options.VarFiles = "", false, nil
	var err error
	if r.work, err = newWorkDir(r.work.dir, r.job.Tree); err != nil {
		return false, err
	}
	r.sandbox.config.Dir = r.work.module()
	return true, nil
}
