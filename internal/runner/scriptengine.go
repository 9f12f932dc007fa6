package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// A script calls terraform or tofu as at a terminal. The supervisor starts the engine of
// the stack for it. In the directory of the stack it adds what makes it a run of the stack:
//
//	init     where the directory is not initialised, and always with the stack's backend
//	state    its address and credential; no other backend is let through
//	events   into the event file of the run, beside what the engine prints for people
//	plan     of an apply: compared with the approved one, if the stack waits for approvals;
//	         no other command then changes the state or resources
//
// In any other directory it adds the CLI configuration alone, and refuses a state that
// would be gone with the run.

// scriptCalls are the calls of a script.
type scriptCalls struct{ *scriptSteps }

// refused refuses a call with a sentence.
func refused(c *script.Call, format string, args ...any) script.Result {
	c.Say("\nError: "+format, args...)
	return script.Result{Exit: 1}
}

// answer answers a call of the script.
func (r *scriptCalls) answer(ctx context.Context, c *script.Call) script.Result {
	if r.processes.Stopping() {
		r.cutShort("a later command")
		c.Say("The run is being stopped, so it starts no further command.")
		return script.Result{Exit: 1, Interrupted: true}
	}
	i := engine.ParseInvocation(c.Args).Here().Plainly()
	if why := r.unapproved(c, i); why != "" {
		return refused(c, "%s", why)
	}
	if c.Dir != r.moduleDir() {
		return r.elsewhere(ctx, c, i)
	}
	if why := r.foreign(c.Env); why != "" && i.TouchesState() {
		return refused(c, "%s", why)
	}
	if i.NeedsDirectory() {
		if result, ok := r.initialise(ctx, c); !ok {
			return result
		}
	}
	if i.TouchesState() && i.Name != "init" {
		if err := r.directory.rightBackend(); err != nil {
			return refused(c, "%v. Terrier keeps the state of the stack where its object says: remove the backend from the configuration.", err)
		}
	}
	if i.Name == "apply" || i.Name == "destroy" {
		if why := r.run.foreign.refuses(ctx, r, c); why != "" {
			return refused(c, "%s", why)
		}
	}
	switch {
	case i.ChangesResources() && r.unsaved():
		return refused(c, "An earlier command of this run could not store its state, which is in errored.tfstate. Let the script end: the state is kept.")
	case i.Name == "init":
		return r.init(ctx, c, i)
	case i.Name == "apply" && r.approved != "":
		return r.applyApproved(ctx, c, i)
	default:
		return r.execute(ctx, c, i.Args, true)
	}
}

// moduleDir is the directory of the stack as the sandbox sees it.
func (r *scriptCalls) moduleDir() string {
	dir := r.sandbox.config.PathInside(path.Join("/work", r.work.module()))
	if r.sandbox.config.Level == sandbox.Full {
		return dir
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// elsewhere answers a call in another directory than that of the stack.
func (r *scriptCalls) elsewhere(ctx context.Context, c *script.Call, i engine.Invocation) script.Result {
	if i.TouchesState() && (c.Backend == "" || c.Backend == "local") {
		return refused(c, "%s declares no remote backend, so its state would be lost with this run. "+
			"Declare a backend there, or make a stack of its own of that directory.", r.shownDir(c.Dir))
	}
	return r.start(ctx, c, i.Args, c.Env, nil)
}

// shownDir is how people know a directory.
func (r *scriptCalls) shownDir(dir string) string {
	tree := r.sandbox.config.PathInside("/work/" + dirTree)
	if rel, err := filepath.Rel(tree, dir); err == nil && filepath.IsLocal(rel) {
		return fmt.Sprintf("The directory %q of the source", rel)
	}
	return fmt.Sprintf("The directory %q", dir)
}

// initialise initialises the directory if it is not.
func (r *scriptCalls) initialise(ctx context.Context, c *script.Call) (script.Result, bool) {
	r.initOnce.Lock()
	defer r.initOnce.Unlock()
	if got, err := r.work.backend(); err == nil && got != "" {
		return script.Result{}, true
	}
	c.Say("The directory is not initialised. Running init.")
	// Its output must not become that of the command.
	result := r.init(ctx, c.ToStderr(), engine.ParseInvocation([]string{"init", "-no-color"}))
	return result, result == script.Result{}
}

// init runs init with the backend of the stack, whatever else the script asks for.
func (r *scriptCalls) init(ctx context.Context, c *script.Call, i engine.Invocation) script.Result {
	if why := r.otherBackend(c, i); why != "" {
		return refused(c, "%s", why)
	}
	if r.approved != "" {
		// An engine that asks whether it is to copy a state would get its answer from the script.
		i.Args = append(slices.Clone(i.Args), "-input=false")
	}
	if i.TouchesState() {
		o, err := engine.Init(engine.InitOptions{Backend: r.directory.backendConfig(), File: r.job.Options.BackendFile})
		if err != nil {
			return refused(c, "%v", err)
		}
		i.Args = i.With(slices.DeleteFunc(o, func(a string) bool { return !strings.HasPrefix(a, "-backend-config=") })...)
	}
	result := r.execute(ctx, c, i.Args, false)
	if result.Exit != 0 || !i.TouchesState() {
		return result
	}
	if err := r.directory.rightBackend(); err != nil {
		if err2 := r.forgetBackend(); err2 != nil {
			r.recorder.keepError(err2)
		}
		return refused(c, "%v. Terrier keeps the state of the stack where its object says: remove the backend from the configuration.", err)
	}
	r.uses.leave(r.uses.read())
	return result
}

// forgetBackend makes the directory one that is not initialised.
func (r *scriptCalls) forgetBackend() error {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	return tree.RemoveAll(path.Join(r.work.root, engine.BackendFile))
}

// unsaved reports whether an engine could not store its state.
func (r *scriptCalls) unsaved() bool {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return false
	}
	defer tree.Close()
	_, err = tree.Lstat(path.Join(r.work.root, "errored.tfstate"))
	return !errors.Is(err, fs.ErrNotExist)
}

// environFor is the environment of an engine in the directory of the stack: that of the
// script, and what only the supervisor sets.
func (r *scriptCalls) environFor(given []string) []string {
	own := []string{"TF_CLI_CONFIG_FILE=" + r.sandbox.cliConfig()}
	if r.state.locally {
		own = append(own, "TF_WORKSPACE="+r.job.Workspace)
	}
	if e := r.run.foreign.encryption; e != "" {
		own = append(own, encryption.Variable+"="+e)
	}
	own = append(own, r.providers.session.environ...)
	env := slices.DeleteFunc(slices.Clone(given), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "TF_HTTP_") || slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	})
	return append(env, own...)
}

// execute runs a command in the directory of the stack.
func (r *scriptCalls) execute(ctx context.Context, c *script.Call, args []string, events bool) script.Result {
	i := engine.ParseInvocation(args)
	var file *eventFile
	if events && i.Streams(r.job.Engine.Name, r.job.Engine.Version) {
		var err error
		if file, err = r.newEventFile(); err != nil {
			return refused(c, "The supervisor cannot record the command, so it does not start it: %v.", err)
		}
		defer file.end()
		args = i.With("-json-into=" + file.inside)
	}
	if i.ChangesResources() {
		r.mu.Lock()
		r.changing++
		r.mu.Unlock()
		if err := r.plans.recordBefore(); err != nil {
			return refused(c, "The supervisor cannot record the command, so it does not start it: %v.", err)
		}
	}
	return r.start(ctx, c, args, r.environFor(c.Env), file)
}

// start starts the engine of the stack and waits for it.
func (r *scriptCalls) start(ctx context.Context, c *script.Call, args, env []string, file *eventFile) script.Result {
	name := engine.ParseInvocation(args).Name
	exit, err := r.processes.Run(func() (*sandbox.Process, error) {
		defer failpoint.Act("process.start", name)()
		p, err := r.providers.session.sandbox.Start(sandbox.Command{
			Path: r.sandbox.config.PathInside(r.sandbox.engineInside()), Args: args, Env: env, Dir: c.Dir,
			Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Spares: true,
		})
		if err == nil {
			file.follow()
		}
		return p, err
	}, ctx.Done())
	switch {
	case errors.Is(err, script.ErrStopping):
		r.cutShort(r.job.Engine.Name + " " + name)
		return script.Result{Exit: 1, Interrupted: true}
	case err != nil:
		return refused(c, "The supervisor cannot start the engine: %v.", err)
	}
	r.state.acceptLocal()
	r.reportFile.set(func(rep *Report) {
		rep.Steps = append(rep.Steps, Step{Name: name, Exit: exit.Code, Wall: exit.Wall, CPU: exit.CPU, MaxRSS: exit.MaxRSS})
	})
	result := script.Result{Exit: exit.Code}
	if result.Exit != 0 && r.processes.Stopping() {
		result.Interrupted = true
		r.cutShort(r.job.Engine.Name + " " + name)
	}
	return result
}

func (r *scriptCalls) cutShort(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut == "" {
		r.cut = what
	}
}

// eventFile takes the events of one command. It must outlive the supervisor, as the
// output of an apply, and the engine opens it by a name. So it has two:
//
//	STACK/work/run/events-N   the engine opens and writes it
//	RUN/engine.out.N          the supervisor reads it, or recoverEvents
type eventFile struct {
	inside string // how the engine calls it
	path   string // in RUN
	in     *os.File
	to     *lineWriter
	failed func(error)
	watch  *disk.Watch
	done   chan struct{}
	over   atomic.Bool // the command has ended
	most   int64       // bytes that are read once it has

	read, line, freed int64 // how far it was read, to its end in lines, and given back to the disk
}

func (r *scriptCalls) newEventFile() (f *eventFile, err error) {
	r.mu.Lock()
	r.outputs++
	name := fmt.Sprintf("events-%d", r.outputs)
	f = &eventFile{inside: r.work.scratch(name), path: filepath.Join(r.dir, fmt.Sprintf("%s.%d", fileOutput, r.outputs)),
		to: r.recorder.eventsAlone(), failed: r.recorder.keepError, most: maxPrinted}
	r.mu.Unlock()
	root, err := r.work.open(dirScratch)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if f.in, err = root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	err = sandbox.Own(f.in)
	if err == nil {
		err = os.Link(r.work.path(dirWork, dirScratch, name), f.path)
	}
	if err != nil {
		return nil, errors.Join(err, f.in.Close())
	}
	f.watch = disk.NewWatch(f.path)
	return f, nil
}

// follow hands on what is written until end is called.
func (f *eventFile) follow() {
	if f == nil {
		return
	}
	f.done = make(chan struct{})
	go func() {
		defer close(f.done)
		for {
			f.drain(func() bool { return !f.over.Load() })
			if !f.watch.Wait() {
				return
			}
		}
	}()
}

// drain hands on what is in the file, for as long as it may go on. What was read gives its
// space back to the disk.
func (f *eventFile) drain(goesOn func() bool) {
	piece := make([]byte, outputFilePiece)
	for goesOn() {
		n, err := f.in.ReadAt(piece, f.read)
		if i := bytes.LastIndexByte(piece[:n], '\n'); i >= 0 {
			f.line = f.read + int64(i) + 1
		}
		f.read += int64(n)
		_, _ = f.to.Write(piece[:n])
		if f.line-f.freed > outputFileMost {
			// A file system that cannot do so keeps it until the end of the command.
			_ = unix.Fallocate(int(f.in.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, f.line)
			f.freed = f.line
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			f.failed(fmt.Errorf("reading the events: %w", err))
			return
		}
	}
}

// end hands on the rest and removes the file. Other programs of the script may go on, and
// write it as fast as it is read, or make it as long as a file can be: more than an engine can
// have left is not read.
func (f *eventFile) end() {
	f.over.Store(true)
	f.watch.Close()
	if f.done != nil {
		<-f.done
		last := f.read + f.most
		f.drain(func() bool { return f.read < last })
		_ = f.to.Close()
	}
	f.failed(errors.Join(f.in.Close(), removeIfThere(f.path)))
}
