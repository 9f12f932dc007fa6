package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// checkup begins to ask what was applied for its health. Its run needs nothing
// of what other runs do, the state and its lock least of all.
func (ac *actor) checkup(ctx context.Context, p *pass, why string) error {
	outputs, err := ac.outputs(ctx, p)
	if err != nil && fault.Of(err) != fault.Missing {
		return fault.New(fault.Of(err), string(stack.StateFailed), fmt.Errorf("reading the outputs for the health checks: %w", err))
	}
	p.job = &runner.Job{
		Stack: p.job.Stack, Name: p.job.Name, Created: p.job.Created,
		Checks: healthChecks(p.st.Configuration.Checks, outputs),
		Mask:   append(slices.Clone(p.job.Mask), sensitive(outputs)...),
		Pod:    p.job.Pod, Limits: p.job.Limits, Sandbox: p.job.Sandbox,
	}
	p.note = note{}
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Why: why, Health: stack.HealthKey(p.o.Spec.Health, p.o.Status.LastWrite)}
	return ac.launcher.launch(ctx, p, stack.HealthRun, cause, "")
}

// stepsRun begins to carry out the steps after an apply. The run has the tree of the stack,
// its environment and its identity, and neither the state nor its lock.
func (ac *actor) stepsRun(ctx context.Context, p *pass, why string) error {
	outputs, err := ac.outputs(ctx, p)
	if err != nil && fault.Of(err) != fault.Missing {
		return fault.New(fault.Of(err), string(stack.StateFailed), fmt.Errorf("reading the outputs for the steps after the apply: %w", err))
	}
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Why: why, Steps: &stack.StepsCause{
		Digest: p.o.Steps.Approvable(), Key: stack.StepsKey(*p.o.Steps, p.o.Status), Rerun: p.o.Spec.Rerun,
	}}
	job := p.job
	p.job = &runner.Job{
		Stack: job.Stack, Name: job.Name, Created: job.Created, Engine: job.Engine, Tree: job.Tree, Env: job.Env, Home: job.Home,
		After: aftersteps.Job(p.st.Configuration.AfterApply, outputs, stack.Resumes(p.o.Status, cause.Steps.Key)),
		Mask:  append(slices.Clone(job.Mask), sensitive(outputs)...),
		Pod:   job.Pod, Limits: job.Limits, Sandbox: job.Sandbox, Words: job.Words,
	}
	p.note = note{}
	return ac.launcher.launch(ctx, p, stack.StepsRun, cause, "")
}

// observeSteps finds which steps follow an apply, and what they would be given.
func (ob *observer) observeSteps(ctx context.Context, p *pass) error {
	p.o.Steps = nil
	if steps := p.st.Configuration.AfterApply; len(steps) > 0 {
		files, err := ob.steps.Digest(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, steps)
		if err != nil {
			return fmt.Errorf("reading the files of the steps after an apply: %w", err)
		}
		if p.entry.stepOutputs.state != p.o.Status.State || p.entry.stepOutputs.digest == "" {
			b, err := ob.records.Get(ctx, record.Outputs(p.id))
			if err != nil && fault.Of(err) != fault.Missing {
				return fmt.Errorf("reading the outputs for the steps after an apply: %w", err)
			}
			p.entry.stepOutputs = outputsSeen{p.o.Status.State, ob.jobs.keyed(string(b))}
		}
		p.o.Steps = &stack.Steps{Digest: stack.Digest([]any{steps, files}), Outputs: p.entry.stepOutputs.digest}
		if slices.ContainsFunc(steps, func(s afterapply.Step) bool { return s.Command != nil || s.Ansible != nil }) {
			p.o.Steps.Source = stack.Digest([]string{p.o.PlanInputs.Source, p.st.Configuration.Path})
		}
	}
	p.o.Status = stack.WithSteps(p.o.Status, p.o.Steps)
	return nil
}

// outputsSeen is a keyed digest of the outputs that belong to a state.
type outputsSeen struct{ state, digest string }

// outputs returns the outputs of the newest state; Missing if they are not
// known, as those of a state that we do not keep before a run reads them.
func (ac *actor) outputs(ctx context.Context, p *pass) (map[string]kube.Output, error) {
	b, err := ac.records.Get(ctx, record.Outputs(p.id))
	if fault.Of(err) == fault.Missing && p.note.State != nil {
		b, err = ac.states.Inspector.Outputs(ctx, *p.note.State)
	}
	if err != nil {
		return nil, err
	}
	outputs := map[string]kube.Output{}
	if err := json.Unmarshal(b, &outputs); err != nil {
		return nil, err
	}
	hidden, err := p.secretPrints(ctx, ac.records)
	if err != nil {
		return nil, err
	}
	kube.MarkSecret(outputs, hidden)
	return outputs, nil
}

// healthChecks renders what is to be checked. A check that cannot be rendered goes
// along and fails by that, beside the others. Without outputs nothing is known
// of them.
func healthChecks(wanted []stack.Check, outputs map[string]kube.Output) []runner.Check {
	data := map[string]workdir.Output{}
	for name, o := range outputs {
		data[name] = workdir.Output{Value: o.Value, Sensitive: o.Sensitive}
	}
	var out []runner.Check
	for _, w := range wanted {
		check := runner.Check{Name: w.Name, Kind: w.Kind, Timeout: w.Timeout}
		var err error
		if outputs == nil && strings.Contains(w.Target, "{{") {
			check.Broken = "the outputs are not known before the next plan or apply reads them: ask for a plan"
		} else if check.Target, check.Shown, err = workdir.Target(w.Target, data); err != nil {
			check.Broken = err.Error()
		}
		out = append(out, check)
	}
	return out
}

// sensitive are the texts in outputs that must not be shown.
func sensitive(outputs map[string]kube.Output) []string {
	var found []string
	for _, o := range outputs {
		if !o.Sensitive {
			continue
		}
		found = append(found, plan.Texts(o.Value)...)
	}
	return found
}
