package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A run of the steps after an apply has no engine and no state, and takes no lock. It has
// the tree of the stack, its environment and its identity, in the sandbox of any other run:
// the programs of its steps are code of the source, and decide nothing outside of it.
//
//	prepare    the tree, fresh: what a step does to it reaches no other run
//	each step  how far it is, durable before it begins and after it ended;
//	           its files and the outputs in work/run/step, gone before the next one
//
// A step that had succeeded when the supervisor died is not run again; one that was running
// is, from its beginning.

// AfterStep is one step after an apply, with what it is carried out with: Argv, Hosts, or
// neither if there is nothing to do in the sandbox.
type AfterStep struct {
	Name    string
	Argv    []string          `json:",omitempty"` // a program of the tree, relative to the root module, or of the image; no shell reads them
	Files   []StepFile        `json:",omitempty"` // that arguments name: see afterapply.FilePlace
	Outputs []byte            `json:",omitempty"` // JSON, in the file that TERRIER_OUTPUTS names
	Hosts   []string          `json:",omitempty"` // host:port, to wait for
	SSH     bool              `json:",omitempty"` // each has to say that it speaks SSH
	Timeout time.Duration     // of each attempt
	Retries int               `json:",omitempty"`
	Pause   time.Duration     // before a retry
	Said    string            `json:",omitempty"` // of a step without anything to do in the sandbox: what it says
	Broken  string            `json:",omitempty"` // why it cannot be carried out at all
	Done    *stack.StepResult `json:",omitempty"` // how it went in an earlier run of the same; then it is not run
}

// StepFile is a file of a step, by its name.
type StepFile struct {
	Name    string
	Content []byte
}

// RunningSteps is the phase in which the steps after an apply are running.
const RunningSteps Phase = "RunningSteps"

const (
	stepAfter   = "after-apply"
	dirStep     = "step"         // in work/run
	fileOutputs = "outputs.json" // in it
	stepTail    = 1 << 10        // bytes of what a step said that its result keeps
	askEvery    = 2 * time.Second
)

// Variables that the programs of a step have besides those of other runs.
const (
	EnvStep    = "TERRIER_STEP"    // its name
	EnvOutputs = "TERRIER_OUTPUTS" // the path of a file with the outputs, a JSON object
)

// StepResults are how the steps after an apply went, checked again: the report of a run that
// was elsewhere may say anything.
func (r Report) StepResults() []stack.StepResult {
	var all []stack.StepResult
	seen := map[string]bool{}
	for _, s := range r.AfterSteps {
		if !afterapply.IsName(s.Name) || seen[s.Name] || len(all) == afterapply.MaxSteps {
			continue
		}
		seen[s.Name] = true
		switch s.State {
		case stack.StepPending, stack.StepRunning, stack.StepSucceeded, stack.StepFailed:
		default:
			s.State = stack.StepFailed
		}
		s.Again, s.Message = 0, fault.Shorten(s.Message, stepTail)
		all = append(all, s)
	}
	return all
}

// afterSteps are the steps of a run that carries out what follows an apply.
type afterSteps struct {
	*run
	results []stack.StepResult
}

// prepare makes the tree, with nothing in it that an earlier run left.
func (r *afterSteps) prepare(context.Context) error {
	if err := r.reportFile.enter(Unpacking); err != nil {
		return err
	}
	if err := r.work.rebuild(r.job.Tree, r.host.Archive, nil); err != nil {
		return err
	}
	r.sandbox.configure()
	if err := r.work.place(placement{Run: r.job.ID}, r.job.Files); err != nil {
		return err
	}
	if err := r.work.placeHome(r.job.Home); err != nil {
		return err
	}
	if err := os.MkdirAll(r.work.path(dirWork, dirScratch), 0o700); err != nil {
		return err
	}
	return sandbox.ChownWork(r.work.path(dirWork))
}

// carryOut carries out the steps in their order. The first that fails ends the run.
func (r *afterSteps) carryOut(ctx context.Context) error {
	for _, s := range r.job.After {
		result := stack.StepResult{Name: s.Name, State: stack.StepPending}
		if s.Done != nil && s.Done.State == stack.StepSucceeded {
			result = *s.Done
		}
		r.results = append(r.results, result)
	}
	if err := r.enter(ctx, RunningSteps, stepAfter); err != nil {
		return err
	}
	for i, s := range r.job.After {
		if r.results[i].State == stack.StepSucceeded {
			continue
		}
		if ctx.Err() != nil {
			return ending{outcome: stack.Interrupted, step: stepAfter, message: "stopped before the step " + s.Name}
		}
		if err := r.step(ctx, i, s); err != nil {
			return err
		}
	}
	return nil
}

// note makes it durable how far a step is.
func (r *afterSteps) note(i int, state stack.StepState, attempts int, said string) error {
	defer failpoint.Act("run.step", r.results[i].Name+" "+string(state))()
	r.results[i].State, r.results[i].Attempts, r.results[i].Message, r.results[i].At = state, attempts, lastOf(r.hide.String(said)), r.now()
	return r.reportFile.update(func(rep *Report) { rep.AfterSteps = slices.Clone(r.results) })
}

// lastOf is the end of a text, from the beginning of a line.
func lastOf(said string) string {
	t := tail{most: stepTail}
	_, _ = t.Write([]byte(strings.TrimSpace(said)))
	return string(t.bytes())
}

// step carries out one step, with its retries.
func (r *afterSteps) step(ctx context.Context, i int, s AfterStep) error {
	for attempt := 1; ; attempt++ {
		if err := r.note(i, stack.StepRunning, attempt, ""); err != nil {
			return err
		}
		r.recorder.begin(fmt.Sprintf("step %s, attempt %d of %d", s.Name, attempt, s.Retries+1))
		said, why, err := r.attempt(ctx, s)
		switch {
		case err != nil:
			return err
		case why == "":
			return r.note(i, stack.StepSucceeded, attempt, said)
		case ctx.Err() != nil:
			return errors.Join(r.note(i, stack.StepFailed, attempt, why), ending{outcome: stack.Interrupted, step: stepAfter, message: "the step " + s.Name + " was interrupted: " + why})
		}
		r.recorder.logf("The step %s failed: %s", s.Name, r.hide.String(why))
		if attempt > s.Retries || s.Broken != "" {
			times := ""
			if attempt > 1 {
				times = fmt.Sprintf(" after %d attempts", attempt)
			}
			return errors.Join(r.note(i, stack.StepFailed, attempt, why), ending{outcome: stack.Failed, step: stepAfter, message: fmt.Sprintf("the step %s failed%s: %s", s.Name, times, lastOf(why))})
		}
		if err := r.note(i, stack.StepRunning, attempt, "it is tried again: "+why); err != nil {
			return err
		}
		pause := time.NewTimer(s.Pause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(r.note(i, stack.StepFailed, attempt, why), ending{outcome: stack.Interrupted, step: stepAfter, message: "stopped before the step " + s.Name + " was tried again: " + lastOf(why)})
		case <-pause.C:
		}
	}
}

// withoutShm explains a failure of programs such as Ansible, which share memory with what they
// start. The machine's own memory of this kind is open to all its users.
const withoutShm = ". This machine makes no mount namespaces, so that a run has no /dev/shm of its own. Let it make them, or have runs in pods (--runs-as pods)"

// attempt carries a step out once. It returns what the step said, and why it failed; empty if
// it succeeded.
func (r *afterSteps) attempt(ctx context.Context, s AfterStep) (said, why string, err error) {
	if s.Broken != "" {
		return "", s.Broken, nil
	}
	switch {
	case s.Said != "":
		r.recorder.logf("%s", s.Said)
		return s.Said, "", nil
	case len(s.Argv) == 0:
		return r.await(ctx, s) // the checker knows when to give up
	}
	within, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	said, why, err = r.program(within, s)
	if c := r.sandbox.config; strings.Contains(why, "/dev/shm") && c.Level < sandbox.Full && !c.OwnShm {
		why += withoutShm
	}
	if why != "" && ctx.Err() == nil && within.Err() != nil {
		why = fmt.Sprintf("it was interrupted after its timeout of %s: %s", s.Timeout, why)
	}
	return said, why, err
}

// await waits until all hosts answer: the checker in the sandbox asks them again and again.
func (r *afterSteps) await(ctx context.Context, s AfterStep) (said, why string, err error) {
	kind := stack.TCPCheck
	if s.SSH {
		kind = stack.SSHCheck
	}
	var checks []Check
	for _, h := range s.Hosts {
		checks = append(checks, Check{Name: h, Kind: kind, Target: h, Shown: h, Timeout: s.Timeout, Every: askEvery})
	}
	answers, err := r.checks.askInSandbox(ctx, stepAfter, checks)
	if e, ok := errors.AsType[ending](err); ok {
		return "", e.message, nil
	}
	if err != nil {
		return "", "", err
	}
	var well, silent []string
	for i, a := range answers {
		if a.OK {
			well = append(well, checks[i].Name)
		} else {
			silent = append(silent, a.Message)
		}
	}
	if len(silent) > 0 {
		return "", fmt.Sprintf("%d of %d hosts do not answer: %s", len(silent), len(checks), strings.Join(silent, "; ")), nil
	}
	return "answers: " + strings.Join(well, ", "), "", nil
}

// program runs the program of a step in the sandbox.
func (r *afterSteps) program(ctx context.Context, s AfterStep) (said, why string, err error) {
	if err := r.placeStep(s); err != nil {
		return "", "", err
	}
	become, err := r.becoming(s)
	if err != nil {
		return "", err.Error(), nil
	}
	r.identity.tokens.Fresh(ctx)
	// As with an engine, the end of ctx asks and does not kill.
	alive, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	config := r.sandbox.config
	out, complaints := r.recorder.lines(), r.recorder.lines()
	started := failpoint.Act("process.start", s.Name)
	p, err := sandbox.Start(alive, sandbox.Command{
		Path: sandbox.Self, Args: become, Env: r.environ(s), Stdout: out, Stderr: complaints, Sandbox: &config,
	})
	started()
	if err != nil {
		return "", "", fmt.Errorf("starting the step %s: %w", s.Name, err)
	}
	if err := r.engine.track(p); err != nil {
		return "", "", errors.Join(err, p.Kill())
	}
	_, exit, err := r.engine.await(ctx, stepAfter, p)
	if err != nil {
		return "", "", fmt.Errorf("running the step %s: %w", s.Name, err)
	}
	_, _ = out.Close(), complaints.Close() // they only hand on their last lines
	r.reportFile.set(func(rep *Report) {
		rep.Steps = append(rep.Steps, Step{Name: s.Name, Exit: exit.Code, Wall: exit.Wall, CPU: exit.CPU, MaxRSS: exit.MaxRSS})
	})
	h, err := r.recorder.end()
	if err != nil {
		return "", "", err
	}
	said = strings.TrimSpace(string(h.text.buf))
	if exit.OK() {
		return said, "", nil
	}
	if said == "" {
		return "", fmt.Sprintf("%s, and it printed nothing", exit), nil
	}
	return said, fmt.Sprintf("%s: %s", exit, said), nil
}

// placeStep puts the files of a step where its program finds them, and nothing else.
func (r *afterSteps) placeStep(s AfterStep) error {
	scratch, err := r.work.open(dirScratch)
	if err != nil {
		return err
	}
	defer scratch.Close()
	if err := scratch.RemoveAll(dirStep); err != nil {
		return err
	}
	if err := scratch.Mkdir(dirStep, 0o700); err != nil {
		return err
	}
	for _, f := range append(slices.Clone(s.Files), StepFile{fileOutputs, s.Outputs}) {
		if !filepath.IsLocal(f.Name) || strings.Contains(f.Name, "/") {
			return fault.New(fault.Invalid, "PathInvalid", fmt.Errorf("the file %q of the step %s lies outside of its directory", f.Name, s.Name))
		}
		if err := disk.WriteFresh(scratch, path.Join(dirStep, f.Name), f.Content, 0o600); err != nil {
			return fmt.Errorf("writing the file %s of the step %s: %w", f.Name, s.Name, err)
		}
	}
	return sandbox.ChownWork(r.work.path(dirWork))
}

// stepInside is where the sandbox sees the files of a step.
func (r *afterSteps) stepInside(name string) string {
	return r.sandbox.config.PathInside(path.Join("/work", dirScratch, dirStep, name))
}

// becoming are the arguments by which this binary becomes the program of a step in the
// sandbox. A program of the tree is a path with a slash that is not absolute.
func (r *afterSteps) becoming(s AfterStep) ([]string, error) {
	args := make([]string, len(s.Argv)-1)
	for i, a := range s.Argv[1:] {
		if before, name, ok := strings.Cut(a, afterapply.FilePlace); ok && (before == "" || before == "@") {
			a = before + r.stepInside(name)
		}
		args[i] = a
	}
	program := s.Argv[0]
	if path.IsAbs(program) || !strings.Contains(program, "/") {
		return append([]string{script.BecomeProgram, program}, args...), nil
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	at := path.Join(r.work.root, filepath.ToSlash(program))
	if !filepath.IsLocal(at) {
		return nil, fmt.Errorf("the program %q lies outside of the source", program)
	}
	if info, err := tree.Stat(at); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("there is no file %q in the directory of the stack in its source", program)
	}
	return append([]string{script.Become, r.sandbox.config.PathInside(path.Join("/work", dirTree, at))}, args...), nil
}

// environ is the environment of a step.
func (r *afterSteps) environ(s AfterStep) []string {
	return append(r.sandbox.environ(), EnvStep+"="+s.Name, EnvOutputs+"="+r.stepInside(fileOutputs))
}
