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

// A run behind broken glass carries out one command that a person typed, in the
// box, the directory and the environment of any other run. It is for days on
// which nothing else works, so that a directory which cannot be prepared does
// not end it: what works on the state alone is then run without the module.

const stepGlass = "glass"

// ByHand is the phase in which a person's command is at work.
const ByHand Phase = "ByHand"

// breakGlass are the steps of a run that executes a command of a user.
type breakGlass struct{ *run }

// glass runs the command.
func (r *breakGlass) glass(ctx context.Context) error {
	o := engine.HandOptions{VarFiles: r.job.Options.VarFiles, Tree: r.work.treeRoot(), NoLock: r.job.Options.NoLock || r.job.Managed}
	if r.state.locally {
		o.Backup = r.work.scratch("backup")
	}
	args, err := engine.HandArgs(r.job.Command, o)
	if err != nil {
		return err
	}
	if err := r.enter(ByHand, stepGlass); err != nil {
		return err
	}
	_, err = r.engine.execute(ctx, command{step: stepGlass, args: args})
	return err
}

// openUp prepares the directory as far as that is possible.
func (r *breakGlass) openUp(ctx context.Context) error {
	c, err := engine.ByHand(r.job.Command)
	if err != nil {
		return err
	}
	unpacked, err := r.setUp(ctx)
	if !passable(err) {
		return err
	}
	r.recorder.tell("The directory could not be prepared: %s", conclude(err).message)
	stripped, err2 := r.strip(c)
	switch {
	case err2 != nil:
		return err2
	case stripped:
		r.recorder.tell("%s works on the state alone, and is run without the module.", c.Words)
		// Providers that the state names may be missing all the same; most
		// commands do not need them.
		unpacked, err = r.setUp(ctx)
	}
	if err != nil && !(unpacked && passable(err)) {
		return err
	}
	return nil
}

// setUp is what every run begins with. It reports whether there is a directory
// to run something in, whatever else went wrong.
func (r *breakGlass) setUp(ctx context.Context) (unpacked bool, err error) {
	if err := r.directory.prepare(ctx); err != nil {
		return false, err
	}
	for _, step := range []func(context.Context) error{r.directory.init, r.directory.workspace, r.directory.unlock} {
		if err := step(ctx); err != nil {
			return true, err
		}
	}
	return true, nil
}

// passable reports whether err is about the module and what it needs, and not
// about the run.
func passable(err error) bool {
	if e, ok := errors.AsType[ending](err); ok {
		return e.outcome == stack.Failed
	}
	return fault.Of(err) == fault.Invalid
}

// strip leaves of the module nothing but where its state is, if the command
// needs no more and the state is not where only the module says. The directory
// is made anew by the next run.
func (r *breakGlass) strip(c engine.HandCommand) (bool, error) {
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
	if r.work, err = newPrepared(r.work.dir, r.job.Tree); err != nil {
		return false, err
	}
	r.sandbox.config.Dir = r.work.module()
	return true, nil
}
