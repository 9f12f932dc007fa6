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

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
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
//	post-deploy  a second script in a session of its own, after the first has applied
//	outputs            as for an apply
//
// What a script does to the directory is no part of the source: the next run rebuilds it.

// The steps of a script, as a report names them.
const (
	stepScript        = "script"
	stepDestroyScript = "destroy"
	stepPostDeploy    = "post-deploy"
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
	stderr   tail   // the end of what the script printed there
	cut      string // what the end of the run ended early; empty if nothing
	stale    string // why an apply was not what was approved; empty if none was
	outputs  int    // files of events so far
	changing int    // commands that may have changed resources
}

// scriptProgram is one script of a run.
type scriptProgram struct {
	step    string
	name    string // as a message calls it
	heading string // in the log
	text    []byte
	path    string // of a file of the source; counts if there is no text
	args    []string
}

// main is the script that applies or destroys.
func (r *scriptSteps) main() scriptProgram {
	s := r.job.Script
	if r.job.Kind == stack.DestroyRun {
		return scriptProgram{step: stepDestroyScript, name: "the script", heading: "destroy script", text: s.Destroy, path: s.DestroyPath, args: s.DestroyArgs}
	}
	return scriptProgram{step: stepScript, name: "the script", heading: "apply script", text: s.Apply, path: s.ApplyPath, args: s.ApplyArgs}
}

// postDeploy is the script after the one that applies; nil if there is none.
func (r *scriptSteps) postDeploy() *scriptProgram {
	s := r.job.Script
	if r.job.Kind != stack.ScriptRun || s.PostDeploy == "" {
		return nil
	}
	return &scriptProgram{
		step: stepPostDeploy, name: fmt.Sprintf("the postDeploy script %q", s.PostDeploy), heading: "postDeploy script " + s.PostDeploy,
		path: s.PostDeploy, args: s.PostDeployArgs,
	}
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

// remembering carries out the script, and reads the state after it where there can be one.
func (r *scriptSteps) remembering(ctx context.Context) error {
	change := r.carryOut
	if ok, err := r.configured(); err == nil && ok {
		change = r.foreign.remembering(change)
	}
	return change(ctx)
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
	p, verb := r.main(), "apply"
	if r.job.Kind == stack.DestroyRun {
		verb = "destroy"
	}
	refuse := func(reason, format string, args ...any) error {
		return fault.New(fault.Invalid, reason, fmt.Errorf(format, args...))
	}
	switch nul := bytes.IndexByte(p.text, 0); {
	case len(p.text) == 0 && p.path == "":
		return refuse("ScriptMissing", "the stack has no %s script, or an empty one: write one", verb)
	case len(p.text) > MaxScript:
		return refuse("ScriptTooLarge", "the %s script has %d bytes, and a script has at most %d: put most of it into files of the source", verb, len(p.text), MaxScript)
	case nul >= 0:
		return refuse("ScriptInvalid", "the %s script has a NUL byte at position %d, so no interpreter would read all of it: remove the byte", verb, nul)
	case len(p.text) == 0 && !filepath.IsLocal(p.path):
		return refuse("PathInvalid", "the %s script %q lies outside of the source", verb, p.path)
	}
	if after := r.postDeploy(); after != nil && !filepath.IsLocal(after.path) {
		return refuse("PathInvalid", "%s lies outside of the source", after.name)
	}
	return nil
}

// carryOut runs the script, and the one after it.
func (r *scriptSteps) carryOut(ctx context.Context) error {
	file, err := r.place()
	if err != nil {
		return err
	}
	if err := (&scriptCalls{r}).approve(ctx); err != nil {
		return err
	}
	p := r.main()
	if err := r.enter(ctx, Applying, p.step); err != nil {
		return err
	}
	// The script may change the directory in ways that no key covers.
	if err := removeIfThere(r.work.path(fileInitRecord)); err != nil {
		return err
	}
	if err := r.engine.writePrints(); err != nil {
		return err
	}
	if err := r.runOne(ctx, p, file, r.recorder.lines()); err != nil {
		return err
	}
	if after := r.postDeploy(); after != nil {
		return r.carryOutAfter(ctx, *after)
	}
	return nil
}

// carryOutAfter runs the postDeploy script, with nothing left of the one before but what
// that did to the directory, the state and the infrastructure.
func (r *scriptSteps) carryOutAfter(ctx context.Context, p scriptProgram) error {
	if ctx.Err() != nil {
		return ending{outcome: stack.Interrupted, step: p.step, message: "stopped before " + p.name}
	}
	if err := r.providers.stop(); err != nil {
		return err
	}
	file, err := r.inTree(p)
	if err != nil {
		return err
	}
	if err := r.enter(ctx, Applying, p.step); err != nil {
		return err
	}
	r.mu.Lock()
	r.stale = ""
	r.mu.Unlock()
	var outputs script.Outputs
	record := r.recorder.lines().line
	if err := r.runOne(ctx, p, file, &lineWriter{line: func(line []byte) { outputs.Line(line); record(line) }}); err != nil {
		return err
	}
	found, err := outputs.Found()
	if err != nil {
		return ending{outcome: stack.Failed, step: p.step, message: fmt.Sprintf("%s succeeded, and its outputs cannot be stored: %v", p.name, err)}
	}
	if found != nil {
		r.reportFile.set(func(rep *Report) { rep.PostDeploy = r.hide.RedactJSON(found) })
	}
	return nil
}

// runOne runs one script to its end. What it prints for people goes to out.
func (r *scriptSteps) runOne(ctx context.Context, p scriptProgram, file string, out *lineWriter) error {
	stop, exit, err := r.runInSession(ctx, p, file, out)
	r.state.acceptLocal()
	if err != nil {
		return fmt.Errorf("running %s: %w", p.name, err)
	}
	r.reportFile.set(func(rep *Report) {
		rep.Steps = append(rep.Steps, Step{Name: p.step, Exit: exit.Code, Wall: exit.Wall, CPU: exit.CPU, MaxRSS: exit.MaxRSS})
	})
	return r.judge(p, stop, exit)
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
	p := r.main()
	if len(p.text) == 0 {
		return r.inTree(p)
	}
	host := filepath.Join(dir, scriptText)
	if err := errors.Join(os.WriteFile(host, p.text, 0o600), sandbox.AllowRead(host)); err != nil {
		return "", fmt.Errorf("writing the script: %w", err)
	}
	return r.sandbox.config.PathInside(path.Join(programsInside, scriptText)), nil
}

// inTree is where a script of the source is in the sandbox.
func (r *scriptSteps) inTree(p scriptProgram) (string, error) {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	if info, err := tree.Stat(path.Join(r.work.root, filepath.ToSlash(p.path))); err != nil || !info.Mode().IsRegular() {
		return "", fault.New(fault.Invalid, "ScriptMissing", fmt.Errorf("%s cannot run: there is no file %q in the directory of the stack in its source", p.name, p.path))
	}
	return r.sandbox.config.PathInside(path.Join("/work", r.work.module(), filepath.ToSlash(p.path))), nil
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
	// What it calls in other directories has states of its own.
	env := slices.DeleteFunc(r.sandbox.environ(), func(v string) bool { return strings.HasPrefix(v, encryption.Variable+"=") })
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

// runInSession runs a script, and what it calls, in a session.
func (r *scriptSteps) runInSession(ctx context.Context, p scriptProgram, file string, lines *lineWriter) (stop, sandbox.Exit, error) {
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
	r.recorder.begin(p.heading)
	out, err := r.openStreams(lines)
	if err != nil {
		return stop{}, sandbox.Exit{}, err
	}
	defer out.close()
	_, grace := r.limit(p.step)
	r.processes = script.NewProcesses(grace)
	started := failpoint.Act("process.start", p.step)
	err = r.processes.Begin(func() (*sandbox.Process, error) {
		proc, err := r.providers.session.sandbox.Start(sandbox.Command{
			Path: sandbox.Self, Args: append([]string{script.Become, file}, p.args...), Env: r.environ(), Stdout: out.writers[0], Stderr: out.writers[1],
		})
		if err == nil {
			err = r.engine.track(proc)
		}
		return proc, err
	})
	started()
	if err != nil {
		return stop{}, sandbox.Exit{}, err
	}
	listener.Serve((&scriptCalls{r}).answer)
	return r.engine.await(ctx, p.step, r.processes)
}

// openSession opens the sandbox of the script, and of the engines that it calls.
func (r *scriptSteps) openSession(ctx context.Context) error {
	config := r.sandbox.config
	config.Listen = r.listens(true)
	session, err := sandbox.OpenSession(context.WithoutCancel(ctx), config)
	if err != nil {
		return err
	}
	r.providers.session = &providerSession{sandbox: session, stopServing: func() {}}
	if l := session.Listener(); l != nil {
		r.providers.session.environ, r.providers.session.stopServing = r.listening(true)(l.Addr()), r.serve(l, true)
	}
	return r.registry.failed
}

// outputStreams are the standard output and error of a script. They stay open as long as
// an engine may print to them.
type outputStreams struct {
	readers, writers []*os.File
	lines            []*lineWriter
	copying          sync.WaitGroup
}

func (r *scriptSteps) openStreams(out *lineWriter) (s *outputStreams, err error) {
	s = &outputStreams{lines: []*lineWriter{out, {line: r.complaint}}}
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
	r.hide.Learn(file.Secrets()...)
}

// failure begins with how a script ended, which its last words on the standard error need
// not tell. A failure after the apply script has succeeded names the script.
func (p scriptProgram) failure(exit sandbox.Exit, said string) string {
	switch {
	case said == "":
		return fmt.Sprintf("%s: %s printed no error", exit, p.name)
	case p.step == stepPostDeploy:
		return fmt.Sprintf("%s of %s: %s", exit, p.name, said)
	default:
		return fmt.Sprintf("%s: %s", exit, said)
	}
}

// judge decides how the run ends after a script has.
func (r *scriptSteps) judge(p scriptProgram, s stop, exit sandbox.Exit) error {
	h, err := r.recorder.end()
	r.mu.Lock()
	said, cut, stale, changing, missing := strings.TrimSpace(string(r.stderr.bytes())), r.cut, r.stale, r.changing, r.foreign.missing
	r.mu.Unlock()
	r.reportFile.set(func(rep *Report) {
		rep.Changes = rep.Changes.Plus(h.total)
		rep.Diagnostics = append(rep.Diagnostics, h.diagnostics...)
	})
	e := ending{step: p.step, exit: exit.Code, message: p.failure(exit, said)}
	if missing != nil {
		return errors.Join(absent(missing), err) // also if the script passed over it
	}
	switch {
	case exit.OK() && cut == "":
		// Whatever we asked for meanwhile, it has done its work.
		return err
	case s.killed:
		e.outcome = stack.Killed
		e.message = fmt.Sprintf("%s did not stop within its grace period of %s and was killed: %s", p.name, s.limit, e.message)
		if s.outcome == stack.TimedOut {
			e.fault, e.reason = fault.Broken, Stuck
		}
	case s.outcome == stack.TimedOut:
		e.outcome, e.fault, e.reason = stack.TimedOut, fault.Broken, Stuck
		e.message = fmt.Sprintf("%s was interrupted at its deadline after %s: %s", p.name, s.limit, e.message)
	case s.outcome == stack.Interrupted:
		e.outcome = stack.Interrupted
		e.message = fmt.Sprintf("%s was interrupted: %s", p.name, e.message)
	case exit.OK():
		e.outcome = stack.Failed
		e.message = fmt.Sprintf("%s ended while %s was running, which was interrupted. Let the script wait for it. %s", p.name, cut, said)
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
