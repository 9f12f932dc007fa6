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
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// A stack with a script is applied and destroyed by that: the exact bytes of a user, run
// by the interpreter that they name, in the sandbox and the directory of any other run.
//
//	prepare, init      as for an apply; nothing is initialised where there is no configuration
//	open               a session, with terraform and tofu in its PATH (package script)
//	script             its output goes to the log, and its exit code is how the run ends
//	   terraform apply ── asks the supervisor, which starts the engine (scriptengine.go)
//	outputs            as for an apply
//
// What a script does to the directory is no part of the source: the next run rebuilds it.

// The steps of a script, as a report names them.
const (
	stepScript        = "script"
	stepDestroyScript = "destroy"
)

// MaxScript is how long a script may be, in bytes: more than an object of a cluster holds.
const MaxScript = 1 << 20

const (
	dirPrograms    = "programs" // in STACK: what a script finds beside its tree, read-only to the sandbox
	programsInside = "/terrier"
	programsPath   = "bin"    // in it
	scriptText     = "script" // in it
	leftOver       = time.Second
)

// scriptSteps are the steps of a run of a script.
type scriptSteps struct {
	*run
	processes *script.Processes
	approved  string // the hash of the changes of the plan that was approved; empty without one
	initOnce  sync.Mutex

	mu       sync.Mutex
	masked   []string // what is hidden from the start
	secrets  []string // of the states that the script made
	stderr   tail     // the end of what the script printed there
	cut      string   // what the end of the run ended early; empty if nothing
	stale    string   // why an apply was not what was approved; empty if none was
	outputs  int      // files of events so far
	changing int      // commands that may have changed resources
}

// step is the name of the step that runs the script.
func (r *scriptSteps) step() string {
	if r.job.Kind == stack.DestroyRun {
		return stepDestroyScript
	}
	return stepScript
}

// whenConfigured leaves a step out where the root module has no configuration: the
// script then needs no engine.
func (r *scriptSteps) whenConfigured(step func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if ok, err := r.configured(); err != nil || !ok {
			return err
		}
		return step(ctx)
	}
}

func (r *scriptSteps) configured() (bool, error) {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return false, err
	}
	defer tree.Close()
	root, err := fs.Sub(tree.FS(), r.work.root)
	if err != nil {
		return false, err
	}
	return engine.HasConfiguration(root, workdir.BackendOverridePath)
}

// check refuses a script that cannot be run.
func (r *scriptSteps) check(context.Context) error {
	text, at, verb := r.job.Script.Apply, r.job.Script.ApplyPath, "apply"
	if r.job.Kind == stack.DestroyRun {
		text, at, verb = r.job.Script.Destroy, r.job.Script.DestroyPath, "destroy"
	}
	refuse := func(reason, format string, args ...any) error {
		return fault.New(fault.Invalid, reason, fmt.Errorf(format, args...))
	}
	switch nul := bytes.IndexByte(text, 0); {
	case len(text) == 0 && at == "":
		return refuse("ScriptMissing", "the stack has no %s script, or an empty one: write one", verb)
	case len(text) > MaxScript:
		return refuse("ScriptTooLarge", "the %s script has %d bytes, and a script has at most %d: put most of it into files of the source", verb, len(text), MaxScript)
	case nul >= 0:
		return refuse("ScriptInvalid", "the %s script has a NUL byte at position %d, so no interpreter would read all of it: remove the byte", verb, nul)
	case len(text) == 0 && !filepath.IsLocal(at):
		return refuse("PathInvalid", "the %s script %q lies outside of the source", verb, at)
	}
	return nil
}

// carryOut runs the script.
func (r *scriptSteps) carryOut(ctx context.Context) error {
	file, err := r.place()
	if err != nil {
		return err
	}
	if err := (&scriptCalls{r}).approve(ctx); err != nil {
		return err
	}
	if err := r.enter(ctx, Applying, r.step()); err != nil {
		return err
	}
	// The script may change the directory in ways that no key covers.
	if err := removeIfThere(r.work.path(fileInitRecord)); err != nil {
		return err
	}
	if err := r.engine.writePrints(); err != nil {
		return err
	}
	stop, exit, err := r.runInSession(ctx, file)
	r.state.acceptLocal()
	if err != nil {
		return fmt.Errorf("running the script: %w", err)
	}
	r.reportFile.set(func(rep *Report) {
		rep.Steps = append(rep.Steps, Step{Name: r.step(), Exit: exit.Code, Wall: exit.Wall, CPU: exit.CPU, MaxRSS: exit.MaxRSS})
	})
	return r.judge(stop, exit)
}

// place puts the programs of the script, and its text, where the sandbox sees them. It
// returns where the script is in there.
func (r *scriptSteps) place() (file string, err error) {
	dir := r.work.path(dirPrograms)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, programsPath), 0o755), os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, programsPath), 0o755)); err != nil {
		return "", err
	}
	names := script.Names()
	first := filepath.Join(dir, programsPath, names[0])
	if err := linkSelf(first); err != nil {
		return "", fmt.Errorf("putting %s in the path of the script: %w", names[0], err)
	}
	for _, name := range names[1:] {
		if err := os.Link(first, filepath.Join(dir, programsPath, name)); err != nil {
			return "", err
		}
	}
	r.sandbox.config.ReadOnly = append(r.sandbox.config.ReadOnly, sandbox.Bind{Host: dir, Inside: programsInside})
	text, at := r.job.Script.Apply, r.job.Script.ApplyPath
	if r.job.Kind == stack.DestroyRun {
		text, at = r.job.Script.Destroy, r.job.Script.DestroyPath
	}
	if len(text) == 0 {
		return r.inTree(at)
	}
	host := filepath.Join(dir, scriptText)
	if err := errors.Join(os.WriteFile(host, text, 0o600), sandbox.AllowRead(host)); err != nil {
		return "", fmt.Errorf("writing the script: %w", err)
	}
	return r.sandbox.config.PathInside(path.Join(programsInside, scriptText)), nil
}

// inTree is where a script of the source is in the sandbox.
func (r *scriptSteps) inTree(at string) (string, error) {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	if info, err := tree.Stat(path.Join(r.work.root, filepath.ToSlash(at))); err != nil || !info.Mode().IsRegular() {
		return "", fault.New(fault.Invalid, "ScriptMissing", fmt.Errorf("there is no script %q in the directory of the stack in its source", at))
	}
	return r.sandbox.config.PathInside(path.Join("/work", r.work.module(), filepath.ToSlash(at))), nil
}

// linkSelf makes a file of this binary.
func linkSelf(to string) error {
	const self = "/proc/self/exe"
	if unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW) == nil {
		return nil
	}
	in, err := os.Open(self) // another file system, or replaced since
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o755), out.Close())
}

// environ is the environment of the script. It does not say where the state is: only the
// engines that the supervisor starts are told.
func (r *scriptSteps) environ() []string {
	env := r.sandbox.environ()
	for i, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "PATH":
			env[i] = name + "=" + r.sandbox.config.PathInside(path.Join(programsInside, programsPath)) + ":" + value
		case name == "TF_CLI_CONFIG_FILE":
			env[i] = name + "=" + r.sandbox.cliConfig()
		}
	}
	return append(env, script.Socket+"="+r.sandbox.config.PathInside(script.Path("/work/"+dirScratch)))
}

// runInSession runs the script, and what it calls, in a session.
func (r *scriptSteps) runInSession(ctx context.Context, file string) (stop, sandbox.Exit, error) {
	listener, err := script.Listen(r.work.path(dirWork, dirScratch))
	if err != nil {
		return stop{}, sandbox.Exit{}, err
	}
	defer listener.Close()
	if err := sandbox.ChownWork(r.work.path(dirWork)); err != nil {
		return stop{}, sandbox.Exit{}, err
	}
	if err := r.openSession(ctx); err != nil {
		return stop{}, sandbox.Exit{}, err
	}
	r.recorder.begin(map[string]string{stepScript: "apply script", stepDestroyScript: "destroy script"}[r.step()])
	out, err := r.openStreams()
	if err != nil {
		return stop{}, sandbox.Exit{}, err
	}
	defer out.close()
	_, grace := r.limit(r.step())
	r.processes = script.NewProcesses(grace)
	started := failpoint.Act("process.start", r.step())
	err = r.processes.Begin(func() (*sandbox.Process, error) {
		p, err := r.providers.session.sandbox.Start(sandbox.Command{
			Path: sandbox.Self, Args: []string{script.Become, file}, Env: r.environ(), Stdout: out.writers[0], Stderr: out.writers[1],
		})
		if err == nil {
			err = r.engine.track(p)
		}
		return p, err
	})
	started()
	if err != nil {
		return stop{}, sandbox.Exit{}, err
	}
	listener.Serve((&scriptCalls{r}).answer)
	return r.engine.await(ctx, r.step(), r.processes)
}

// openSession opens the sandbox of the script, and of the engines that it calls.
func (r *scriptSteps) openSession(ctx context.Context) error {
	config := r.sandbox.config
	config.Listen = r.state.server != nil
	session, err := sandbox.OpenSession(context.WithoutCancel(ctx), config)
	if err != nil {
		return err
	}
	r.providers.session = &providerSession{sandbox: session, stopServing: func() {}}
	if r.state.server != nil {
		r.providers.session.environ = r.state.server.Environ(session.Listener().Addr().String())
		r.providers.session.stopServing = r.state.server.Serve(session.Listener())
	}
	return nil
}

// outputStreams are the standard output and error of a script. They stay open as long as
// an engine may print to them.
type outputStreams struct {
	readers, writers []*os.File
	lines            []*lineWriter
	copying          sync.WaitGroup
}

func (r *scriptSteps) openStreams() (s *outputStreams, err error) {
	s = &outputStreams{lines: []*lineWriter{r.recorder.lines(), {line: r.complaint}}}
	r.stderr = tail{most: maxText}
	for _, to := range s.lines {
		in, out, err := sandbox.Pipe()
		if err != nil {
			s.close()
			return nil, err
		}
		s.readers, s.writers = append(s.readers, in), append(s.writers, out)
		s.copying.Go(func() {
			_, _ = io.Copy(to, in)
			_ = to.Close()
		})
	}
	return s, nil
}

// close hands on what is left to read. Programs that go on printing end with the session.
func (s *outputStreams) close() {
	for _, w := range s.writers {
		_ = w.Close()
	}
	for _, r := range s.readers {
		_ = r.SetReadDeadline(time.Now().Add(leftOver))
	}
	s.copying.Wait()
	for _, r := range s.readers {
		_ = r.Close()
	}
}

// complaint takes a line of the standard error.
func (r *scriptSteps) complaint(line []byte) {
	r.mu.Lock()
	_, _ = r.stderr.Write(append(escapes().ReplaceAll(line, nil), '\n'))
	r.mu.Unlock()
	r.recorder.mu.Lock()
	defer r.recorder.mu.Unlock()
	r.recorder.text(line)
}

// escapes are what makes a terminal show colours.
var escapes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]") })

// learn hides what a new version of the state marks sensitive: an engine does not print it
// unless the script asks for it.
func (r *scriptSteps) learn(file *managed.File) {
	if r.job.Script == nil || r.recorder == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := len(r.secrets)
	for _, s := range file.Secrets() {
		if !slices.Contains(r.secrets, s) {
			r.secrets = append(r.secrets, s)
		}
	}
	if len(r.secrets) == known {
		return
	}
	hide := plan.NewRedactor(slices.Concat(r.masked, r.secrets))
	r.recorder.mu.Lock()
	r.recorder.hide = hide
	r.recorder.mu.Unlock()
}

// judge decides how the run ends after the script has.
func (r *scriptSteps) judge(s stop, exit sandbox.Exit) error {
	h, err := r.recorder.end()
	r.hide = r.recorder.hide // with what the run has learned
	r.mu.Lock()
	said, cut, stale, changing := strings.TrimSpace(string(r.stderr.bytes())), r.cut, r.stale, r.changing
	r.mu.Unlock()
	r.reportFile.set(func(rep *Report) {
		rep.Changes = h.total
		rep.Diagnostics = append(rep.Diagnostics, h.diagnostics...)
	})
	e := ending{step: r.step(), exit: exit.Code, message: said}
	if said == "" {
		e.message = fmt.Sprintf("the script printed no error: %s", exit)
	}
	switch {
	case exit.OK() && cut == "":
		// Whatever we asked for meanwhile, it has done its work.
		return err
	case s.killed:
		e.outcome = stack.Killed
		e.message = fmt.Sprintf("the script did not stop within its grace period of %s and was killed: %s", s.limit, e.message)
		if s.outcome == stack.TimedOut {
			e.fault, e.reason = fault.Broken, Stuck
		}
	case s.outcome == stack.TimedOut:
		e.outcome, e.fault, e.reason = stack.TimedOut, fault.Broken, Stuck
		e.message = fmt.Sprintf("the script was interrupted at its deadline after %s: %s", s.limit, e.message)
	case s.outcome == stack.Interrupted:
		e.outcome = stack.Interrupted
		e.message = "the script was interrupted: " + e.message
	case exit.OK():
		e.outcome = stack.Failed
		e.message = fmt.Sprintf("the script ended while %s was running, which was interrupted. Let the script wait for it. %s", cut, said)
	case stale != "" && changing == 0:
		e.outcome, e.message = stack.Stale, stale
	case exit.Signal != 0:
		e.outcome = stack.Killed
	case h.lock != nil && !r.job.Managed:
		e.outcome = stack.Locked
		r.reportFile.set(func(rep *Report) { rep.Lock = h.lock })
	default:
		e.outcome = stack.Failed
	}
	h.text.buf, h.diagnostics = []byte(said), nil
	e.explainLimits(exit, h)
	return errors.Join(e, err)
}
