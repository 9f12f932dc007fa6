package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A run that asks for health has no engine: no tree, no init, no state and no
// lock. It has a sandbox all the same, in which this binary is started once
// more to make the checks, because they are to be made from where the run is.
// A check reaches no more than the code of the stack could reach by itself,
// and no URL of a stack is ever fetched from the network of the controller.
//
//	supervisor  ── checks over stdin ─────▶  checker in the run's sandbox
//	            ◀── one answer each, stdout ─  then gone

// Check is one thing that must answer after an apply.
type Check struct {
	Name    string          `json:"name"`
	Kind    stack.CheckKind `json:"kind"`
	Target  string          `json:"target"`           // a URL, or host:port; may hold a secret
	Shown   string          `json:"shown"`            // how messages call it
	Timeout time.Duration   `json:"timeout"`          // of the whole check; zero is DefaultCheck
	Every   time.Duration   `json:"every,omitempty"`  // asked again after so long until it passes, for as long as Timeout; zero asks once
	Broken  string          `json:"broken,omitempty"` // why it cannot be made at all; it then fails by that
}

// How long a check may take.
const (
	DefaultCheck = 20 * time.Second
	LongestCheck = 5 * time.Minute
)

// Health is how a check went.
type Health struct {
	Name    string        `json:"name"`
	OK      bool          `json:"ok"`
	Took    time.Duration `json:"took"`
	Message string        `json:"message"` // the answer, redacted
}

const (
	argHealth   = "health" // by which Program knows that it is the checker
	stepHealth  = "health"
	checkers    = 16               // checks that are made at once
	checkMargin = 10 * time.Second // beyond the checks' own timeouts, for starting and ending
	maxAnswers  = 4 << 20
	minDetail   = 64 // of a message about one of many checks that failed
)

// lasts is how long c may take.
func (c Check) lasts() time.Duration {
	if c.Every > 0 {
		return c.Timeout // it waits for what may take its time
	}
	return min(orDefault(c.Timeout, DefaultCheck), LongestCheck)
}

// checksLast is how long the checks of a job may take together.
func checksLast(checks []Check) time.Duration {
	longest := time.Duration(0)
	for _, c := range checks {
		longest = max(longest, c.lasts())
	}
	rounds := (len(checks) + checkers - 1) / checkers
	return time.Duration(rounds)*longest + checkMargin
}

// healthChecks is the step of a run that makes health checks.
type healthChecks struct{ *run }

// health makes the checks of the job and writes down how each went.
func (r *healthChecks) health(ctx context.Context) error {
	if err := r.enter(ctx, CheckingHealth, stepHealth); err != nil {
		return err
	}
	r.recorder.begin("health checks")
	found, err := r.askAll(ctx)
	if err != nil {
		return err
	}
	for i := range found {
		h := &found[i]
		h.Message = r.hide.String(h.Message)
		verdict := "failed"
		if h.OK {
			verdict = "passed"
		}
		r.recorder.logf("%s %s: %s", h.Name, verdict, h.Message)
		h.Message = fault.Shorten(h.Message, maxText)
	}
	r.reportFile.set(func(rep *Report) { rep.Health = found })
	if why := failedChecks(found); why != "" {
		return ending{outcome: stack.Failed, step: stepHealth, message: why}
	}
	return nil
}

// askAll returns how each check of the job went, in their order.
func (r *healthChecks) askAll(ctx context.Context) ([]Health, error) {
	found := make([]Health, len(r.job.Checks))
	var sound []Check
	var at []int
	for i, c := range r.job.Checks {
		found[i] = Health{Name: c.Name, Message: c.Broken}
		if c.Broken == "" {
			sound, at = append(sound, c), append(at, i)
		}
	}
	if len(sound) == 0 {
		return found, nil
	}
	answers, err := r.askInSandbox(ctx, stepHealth, sound)
	if err != nil {
		return nil, err
	}
	for i, a := range answers {
		a.Name = sound[i].Name // what comes out of a sandbox decides nothing else
		found[at[i]] = a
	}
	return found, nil
}

// askInSandbox starts this binary once more, in the sandbox of the run, to make
// checks.
func (r *healthChecks) askInSandbox(ctx context.Context, step string, checks []Check) ([]Health, error) {
	question, err := json.Marshal(checks)
	if err != nil {
		return nil, fmt.Errorf("encoding the checks: %w", err)
	}
	if err := sandbox.ChownWork(r.work.path(dirWork)); err != nil {
		return nil, err
	}
	config := r.sandbox.config
	config.Dir, config.ReadOnly, config.Writable, config.Listen = "", nil, nil, false
	out, text := &capped{most: maxAnswers}, r.recorder.lines()
	// As with an engine, the end of ctx asks and does not kill.
	alive, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	p, err := sandbox.Start(alive, sandbox.Command{
		Path: sandbox.Self, Args: []string{argHealth}, Sandbox: &config,
		Stdin: bytes.NewReader(question), Stdout: out, Stderr: text,
	})
	if err != nil {
		return nil, fmt.Errorf("starting the health checks: %w", err)
	}
	if err := r.engine.track(p); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	stopped, exit, err := r.engine.await(ctx, step, p)
	if err != nil {
		return nil, fmt.Errorf("making the health checks: %w", err)
	}
	_ = text.Close()
	r.reportFile.set(func(rep *Report) {
		rep.Steps = append(rep.Steps, Step{Name: step, Exit: exit.Code, Wall: exit.Wall, CPU: exit.CPU, MaxRSS: exit.MaxRSS})
	})
	if _, err := r.engine.judge(command{step: step}, stopped, exit); err != nil {
		return nil, err
	}
	var answers []Health
	if err := json.Unmarshal(out.Bytes(), &answers); err != nil || out.over || len(answers) != len(checks) {
		return nil, ending{outcome: stack.Failed, step: step, message: "the health checks ended without an answer to each"}
	}
	return answers, nil
}

// failedChecks says which checks failed and why, empty if none did. Each of
// them is named, however many there are: their reasons share what space there
// is.
func failedChecks(found []Health) string {
	var failed []Health
	for _, h := range found {
		if !h.OK {
			failed = append(failed, h)
		}
	}
	if len(failed) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d health checks failed: ", len(failed), len(found))
	space := max(minDetail, (maxText-b.Len())/len(failed)-len("; "))
	for i, h := range failed {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(fault.Shorten(h.Name+": "+h.Message, space))
	}
	return b.String()
}
