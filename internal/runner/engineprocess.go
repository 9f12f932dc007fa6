package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// DefaultGrace is how long an apply that was interrupted may take to end.
const DefaultGrace = 30 * time.Minute

// ReadGrace is how long a run that writes nothing may take to end after it was
// interrupted, at most.
const ReadGrace = time.Minute

// Limits where the job names none. An apply is interrupted late and killed
// later still: an operation that has begun cannot be begun again.
const (
	defaultInit  = 15 * time.Minute
	defaultPlan  = time.Hour
	defaultApply = 24 * time.Hour
	defaultGrace = DefaultGrace
)

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// command is one engine process to run.
type command struct {
	step   string
	args   []string
	events bool     // its output is an event stream; else text, unless out is set
	out    *capped  // takes the output, which holds secrets
	in     *os.File // standard input; nil is none
	good   []int    // exit codes that are no failure, beside 0

	toFile   bool // its output must outlive the supervisor
	installs bool // it takes modules and providers from where they are
}

// result is the result of a command.
type result struct {
	exit   sandbox.Exit
	output stepOutput
}

// engineProcesses is the part of a run that starts the engine and waits for it.
type engineProcesses struct{ *run }

func (r *engineProcesses) once(ctx context.Context, c command) (result, error) {
	r.recorder.begin(r.job.Engine.Name + " " + c.args[0])
	r.identity.tokens.Fresh(ctx)
	out, text := c.sinks(r.recorder)
	// The engine is asked to stop, not cut off: the end of ctx must not kill it.
	alive, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	file, err := r.newOutputFile(c, out)
	if err != nil {
		return result{}, err
	}
	defer file.end()
	program := sandbox.Command{
		Path: r.sandbox.config.PathInside(r.sandbox.engineInside()), Args: c.args, Env: r.sandbox.environ(), Stdout: file.stdout(out), Stderr: text,
	}
	if c.in != nil {
		program.Stdin = c.in
	}
	p, err := r.start(alive, c.installs, program)
	if err != nil {
		return result{}, fmt.Errorf("running %s: %w", c.step, err)
	}
	if err := r.track(p); err != nil {
		return result{}, errors.Join(err, p.Kill())
	}
	if l := p.Listener(); l != nil {
		defer r.serve(l, c.installs)()
	}
	if err := r.registry.failed; err != nil {
		return result{}, errors.Join(err, p.Kill())
	}
	file.follow(p)
	stopped, exit, err := r.await(ctx, c.step, p)
	r.state.acceptLocal()
	if err != nil {
		return result{}, fmt.Errorf("running %s: %w", c.step, err)
	}
	file.end()
	if w, ok := out.(*lineWriter); ok {
		_ = w.Close()
	}
	_ = text.Close()
	r.reportFile.set(func(rep *Report) {
		rep.Steps = append(rep.Steps, Step{Name: c.step, Exit: exit.Code, Wall: exit.Wall, CPU: exit.CPU, MaxRSS: exit.MaxRSS})
	})
	return r.judge(c, stopped, exit)
}

// start starts an engine process in the session where the providers are, or in a
// sandbox of its own.
func (r *engineProcesses) start(ctx context.Context, installs bool, c sandbox.Command) (*sandbox.Process, error) {
	defer failpoint.Act("process.start", c.Args[0])()
	if r.providers.session != nil {
		inSession := c
		inSession.Env = append(c.Env[:len(c.Env):len(c.Env)], r.providers.session.environ...)
		p, err := r.providers.session.sandbox.Start(inSession)
		if err == nil {
			return p, nil
		}
		// Nothing ran, so nothing is done twice.
		r.recorder.logf("The engine starts the providers: %v.", err)
		if err := r.providers.stop(); err != nil {
			return nil, err
		}
	}
	config := r.sandbox.config
	config.Listen = r.listens(installs)
	c.Sandbox, c.Listening = &config, r.listening(installs)
	return sandbox.Start(ctx, c)
}

func (c command) sinks(rec *recorder) (out io.Writer, text *lineWriter) {
	text = rec.lines()
	switch {
	case c.out != nil:
		return c.out, text
	case c.events:
		return rec.stream(), text
	default:
		return rec.lines(), text
	}
}

// track leaves a trace of the engine, and of the process that its session ends
// with. It need not survive the machine, since they would not either. A process
// that is gone already leaves none.
func (r *engineProcesses) track(p *sandbox.Process) error {
	pids := []int{p.PID()}
	if r.providers.session != nil {
		pids = append(pids, r.providers.session.sandbox.PID())
	}
	traces := []trace{}
	for _, pid := range pids {
		if t, err := traceOf(pid); err == nil {
			traces = append(traces, t)
		}
	}
	data, err := json.Marshal(traces)
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, fileTrace)
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// listens reports whether the supervisor serves something to the engine: its state, and the
// registry if it installs.
func (r *run) listens(installs bool) bool {
	return r.state.server != nil || installs && r.registry.relay != nil
}

// listening tells the engine where that is served.
func (r *run) listening(installs bool) func(net.Addr) []string {
	if !r.listens(installs) {
		return nil
	}
	return func(addr net.Addr) (env []string) {
		if r.state.server != nil {
			env = r.state.server.Environ(addr.String())
		}
		if installs {
			r.registry.announce(addr.String())
		}
		return env
	}
}

// serve serves it on l until the returned function is called.
func (r *run) serve(l net.Listener, installs bool) (stop func()) {
	switch {
	case !installs || r.registry.relay == nil:
		return r.state.server.Serve(l)
	case r.state.server == nil:
		return r.registry.relay.Serve(l, nil)
	default:
		return r.registry.relay.Serve(l, r.state.server)
	}
}

// stop says why an engine was asked to stop.
type stop struct {
	outcome stack.Outcome
	killed  bool          // it did not stop within the grace period
	during  string        // what the engine was doing then
	limit   time.Duration // of the step, or of the grace period if killed
}

// awaited is what a step waits for.
type awaited interface {
	Wait() (sandbox.Exit, error)
	Interrupt() error
	Kill() error
}

// await waits for the engine. At the deadline, or when ctx ends, the engine
// gets exactly one interrupt, then the grace period, then the sandbox is killed.
func (r *engineProcesses) await(ctx context.Context, step string, p awaited) (stop, sandbox.Exit, error) {
	type end struct {
		exit sandbox.Exit
		err  error
	}
	done := make(chan end, 1)
	go func() {
		exit, err := p.Wait()
		done <- end{exit, err}
	}()
	limit, grace := r.limit(step)
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	watch, unwatch := r.state.watchLocal()
	defer unwatch()

	var s stop
	for s.outcome == "" {
		select {
		case e := <-done:
			return s, e.exit, e.err
		case <-watch:
			r.state.acceptLocal()
		case <-ctx.Done():
			s.outcome = stack.Interrupted
		case <-deadline.C:
			s.outcome = stack.TimedOut
		}
	}
	s.during, s.limit = r.recorder.running(r.now()), limit
	if err := p.Interrupt(); err != nil {
		s.killed = true
		return s, sandbox.Exit{}, errors.Join(err, p.Kill())
	}
	last := time.NewTimer(grace)
	defer last.Stop()
	for {
		select {
		case e := <-done:
			return s, e.exit, e.err
		case <-watch:
			r.state.acceptLocal()
		case <-last.C:
			s.killed = true
			s.during, s.limit = r.recorder.running(r.now()), grace
			if err := p.Kill(); err != nil {
				return s, sandbox.Exit{}, err
			}
		}
	}
}

// judge decides how the run goes on after a command has ended.
func (r *engineProcesses) judge(c command, s stop, exit sandbox.Exit) (result, error) {
	h, err := r.recorder.end()
	forgotten := c.step == "apply" && exit.Signal == 0 && s.outcome == "" && !h.cut && engine.LeftForgotten(h.diagnostics)
	if forgotten {
		// It is no failure, and the report is to have none.
		h.diagnostics = slices.DeleteFunc(h.diagnostics, func(d plan.Diagnostic) bool { return d.Severity == "error" })
		r.recorder.logf("The engine ends with an error because it left forgotten resources where they are. The configuration asks for that, and everything else is destroyed.")
	}
	if len(h.diagnostics) > 0 {
		r.reportFile.set(func(rep *Report) { rep.Diagnostics = append(rep.Diagnostics, h.diagnostics...) })
	}
	res := result{exit, h}
	e := ending{step: c.step, exit: exit.Code, message: h.message(c.step, exit, r.job.Words)}
	switch {
	case exit.OK() || forgotten || exit.Signal == 0 && slices.Contains(c.good, exit.Code):
		// Whatever we asked for meanwhile, it has done its work.
		return res, err
	case s.killed:
		e.outcome = stack.Killed
		e.message = fmt.Sprintf("%s did not stop within its grace period of %s and was killed, %s", c.step, s.limit, s.during)
		if s.outcome == stack.TimedOut {
			e.fault, e.reason = fault.Broken, Stuck
		}
	case s.outcome == stack.TimedOut:
		e.outcome, e.fault, e.reason = stack.TimedOut, fault.Broken, Stuck
		e.message = fmt.Sprintf("%s was interrupted at its deadline after %s, %s: %s", c.step, s.limit, s.during, e.message)
	case s.outcome == stack.Interrupted:
		e.outcome = stack.Interrupted
		e.message = fmt.Sprintf("%s was interrupted %s: %s", c.step, s.during, e.message)
	case exit.Signal != 0:
		e.outcome = stack.Killed
	case h.lock != nil:
		e.outcome = stack.Locked
		r.reportFile.set(func(rep *Report) { rep.Lock = h.lock })
	case engine.StalePlan(h.diagnostics):
		e.outcome = stack.Stale
	default:
		e.outcome, e.permanent = stack.Failed, !h.cut && engine.Permanent(h.diagnostics, c.step == "init")
	}
	if data := engine.RemoteStateOfCluster(h.diagnostics); data != "" && e.outcome == stack.Failed {
		way := "Read the outputs of that stack instead: set writeOutputsToSecret there, and dependsOn with readInputsFromSecrets or varsFrom here."
		if r.job.Script != nil {
			way = "Give the values to this stack instead, with " + r.job.Words.Variables + "."
		}
		e.explain(fmt.Sprintf("A run has no credential of the cluster, so %s cannot read the state of another stack. %s", data, way))
	}
	e.explainLimits(exit, h)
	return res, e
}

// failuresTold is how many errors of an engine a message tells.
const failuresTold = 5

// together is a message of all errors of an engine, shortened so that each has room.
func together(failures []string) string {
	if len(failures) == 1 {
		return failures[0]
	}
	told := failures[:min(len(failures), failuresTold)]
	out := fmt.Sprintf("%d errors.", len(failures))
	for i, text := range told {
		out += fmt.Sprintf(" (%d) %s", i+1, fault.Shorten(text, (maxText-200)/len(told)))
	}
	if more := len(failures) - len(told); more > 0 {
		out += fmt.Sprintf(" (%d more are in the log.)", more)
	}
	return out
}

// failureText is an error of an engine as a message has it, in the words of the
// kind of its stack.
func failureText(d plan.Diagnostic, w stack.Words) string {
	if name := engine.Unset(d); name != "" {
		return fmt.Sprintf("The variable %s has no value. Set it with %s.", name, cmp.Or(w.Variables, "the variables of the stack"))
	}
	if d.Detail == "" {
		return d.Summary
	}
	return d.Summary + ": " + d.Detail
}

// message is the one sentence that says why a command failed.
func (out stepOutput) message(step string, exit sandbox.Exit, w stack.Words) string {
	var failures []string
	for _, d := range out.diagnostics {
		if text := failureText(d, w); d.Severity == "error" && !slices.Contains(failures, text) {
			failures = append(failures, text)
		}
	}
	if len(failures) > 0 {
		return together(failures)
	}
	if text := strings.TrimSpace(string(out.text.buf)); text != "" {
		return text
	}
	return step + " " + exit.String()
}
