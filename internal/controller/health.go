package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/dialect"
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
	job, wanted, tree := p.job, p.st.Configuration.AfterApply, stepsTree(p)
	p.job = &runner.Job{
		Stack: job.Stack, Name: job.Name, Created: job.Created, Engine: job.Engine, Tree: job.Tree, Env: job.Env, Home: job.Home,
		After: aftersteps.Job(wanted, outputs, stack.Resumes(p.o.Status, cause.Steps.Key), tree),
		Mask:  append(slices.Clone(job.Mask), sensitive(outputs)...),
		Pod:   job.Pod, Limits: job.Limits, Sandbox: job.Sandbox, Words: job.Words,
	}
	p.note = note{Hosts: aftersteps.Orders(wanted, p.job.After, tree)}
	return ac.launcher.launch(ctx, p, stack.StepsRun, cause, "")
}

// stepsTree is where the files are that the steps of a stack name.
func stepsTree(p *pass) aftersteps.Tree {
	return aftersteps.Tree{Archive: p.in.archive, Module: p.st.Configuration.Path, Source: p.st.Configuration.Source, Namespace: p.obj.GetNamespace(), By: managedBy(p)}
}

// managedBy is the name under which the hosts of a stack are in a hosts.yml.
func managedBy(p *pass) string {
	return aftersteps.ManagedBy(dialect.KindOf(p.dialect), p.obj.GetNamespace(), p.obj.GetName())
}

// hostsPasses is in how many passes a repository may fail to answer before the step that
// writes to it has failed, besides its retries.
const hostsPasses = 3

// hostsDuringRollback is what a step says that writes no hosts during a rollback: the source
// follows from the commit, so that the rollback would end, and the bad revision would be back.
const hostsDuringRollback = "the file is not written while the stack is rolled back, since a commit to its source would end the rollback"

// hostsTimeout is how long one pass waits for the repositories of all its files.
const hostsTimeout = 20 * time.Second

// hostsWriter writes hosts into the repositories of sources, once their steps have ended.
type hostsWriter struct {
	writer   *aftersteps.Hosts // nil if nothing is written here
	accounts Accounts
	config   Config
	live     client.Reader
	events   Events
	outputs  func(ctx context.Context, uid string) (map[string]kube.Output, error)
}

// settle carries out the orders of a run of the steps that ended, and has the step fail whose
// file cannot be written. While a repository does not answer the run is not taken over yet.
// Writing again what is written changes nothing, so that this can be repeated.
func (hw *hostsWriter) settle(ctx context.Context, p *pass, r *runner.Report, orders []aftersteps.Order, run *stack.Run) error {
	if run.Kind != stack.StepsRun {
		return hw.remove(ctx, p, orders, run)
	}
	if len(orders) == 0 || run.Outcome != stack.Succeeded && run.Outcome != stack.Failed {
		return nil // the next run after one that died has them, too
	}
	ctx, cancel := context.WithTimeout(ctx, hostsTimeout)
	defer cancel()
	for _, o := range orders {
		i := slices.IndexFunc(run.Steps, func(s stack.StepResult) bool { return s.Name == o.Step })
		if i < 0 || run.Steps[i].State != stack.StepSucceeded {
			continue
		}
		said, err := hostsDuringRollback, error(nil)
		if p.o.Status.Rollback == nil {
			said, err = hw.write(ctx, p, o, run.ID)
		}
		if triesAgain(p, run.ID, o, err) {
			return fmt.Errorf("the step %s: %w", o.Step, err)
		}
		if run.Steps[i].Message = said; err != nil {
			run.Steps[i].State, run.Steps[i].Message = stack.StepFailed, fault.Shorten(err.Error(), mostHostsMessage)
			run.Outcome, run.Message = stack.Failed, "the step "+o.Step+" failed: "+run.Steps[i].Message
			r.Outcome, r.Message = run.Outcome, run.Message
		}
		if j := slices.IndexFunc(r.AfterSteps, func(s stack.StepResult) bool { return s.Name == o.Step }); j >= 0 {
			r.AfterSteps[j].State, r.AfterSteps[j].Message = run.Steps[i].State, run.Steps[i].Message
		}
	}
	return nil
}

// remove removes the hosts of a stack whose resources a run has destroyed from the files that its
// steps have written. One that cannot be written keeps no object, and an event says so.
func (hw *hostsWriter) remove(ctx context.Context, p *pass, orders []aftersteps.Order, run *stack.Run) error {
	if run.Outcome != stack.Succeeded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hostsTimeout)
	defer cancel()
	for _, o := range orders {
		_, err := hw.write(ctx, p, o, run.ID)
		if triesAgain(p, run.ID, o, err) {
			return fmt.Errorf("removing the hosts of the step %s: %w", o.Step, err)
		}
		if err != nil {
			hw.events.Event(p.obj, warning, "HostsNotRemoved", fault.Shorten("The resources are destroyed, and their hosts may still be in "+o.Path+". Remove them there: "+err.Error(), mostHostsMessage))
		}
	}
	return nil
}

// triesAgain reports whether the next pass writes a file again, since the repository did not
// answer, in time or at all. Each file has its own tries, and they are counted until the next run.
func triesAgain(p *pass, run string, o aftersteps.Order, err error) bool {
	if k := fault.Of(err); err == nil || k != fault.Later && k != fault.Broken {
		return false
	}
	if p.entry.hostsTried.run != run {
		p.entry.hostsTried = hostsTried{run: run, steps: map[string]int{}}
	}
	if p.entry.hostsTried.steps[o.Step] >= hostsPasses+o.Retries {
		return false
	}
	p.entry.hostsTried.steps[o.Step]++
	return true
}

// hostsTried is in how many passes the files of steps could not be written after a run.
type hostsTried struct {
	run   string
	steps map[string]int
}

// mostHostsMessage bounds the message of a step whose file was not written, in bytes.
const mostHostsMessage = 1 << 10

func (hw *hostsWriter) write(ctx context.Context, p *pass, o aftersteps.Order, run string) (string, error) {
	if hw.writer == nil {
		return "", fault.New(fault.Denied, "", errors.New("this platform writes to no repository"))
	}
	secrets := hw.live
	if hw.config.ReadAs != "" {
		var err error
		if secrets, err = hw.accounts.As(types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: cmp.Or(p.st.Configuration.Pod.Account, hw.config.ReadAs)}); err != nil {
			return "", err
		}
	}
	var outputs map[string]kube.Output
	if !o.Remove {
		var err error
		if outputs, err = hw.outputs(ctx, p.id); err != nil {
			return "", fmt.Errorf("reading the outputs: %w", err)
		}
	}
	return hw.writer.Write(ctx, aftersteps.For{Namespace: p.obj.GetNamespace(), Name: p.obj.GetName(), By: managedBy(p), Run: run, Secrets: secrets}, o, outputs)
}

// observeSteps finds which steps follow an apply, and what they would be given.
func (ob *observer) observeSteps(ctx context.Context, p *pass) error {
	p.o.Steps = nil
	if steps := p.st.Configuration.AfterApply; len(steps) > 0 {
		files, err := ob.steps.Digest(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, steps)
		if err != nil {
			return fmt.Errorf("reading the files of the steps after an apply: %w", err)
		}
		outputs, err := ob.stepOutputs(ctx, p)
		if err != nil {
			return fmt.Errorf("reading the outputs for the steps after an apply: %w", err)
		}
		p.o.Steps = &stack.Steps{Digest: stack.Digest([]any{steps, files}), Outputs: outputs}
		if slices.ContainsFunc(steps, func(s afterapply.Step) bool { return s.Command != nil || s.Ansible != nil }) {
			p.o.Steps.Source = stack.Digest([]string{p.o.PlanInputs.Source, p.st.Configuration.Path})
		}
	}
	p.o.Status = stack.WithSteps(p.o.Status, p.o.Steps)
	return nil
}

// stepOutputs is a digest of the outputs that steps would be given. While their record is lost
// the outputs count as those that were known last: nothing says that they are others, and the
// next run that reads them writes the record again.
func (ob *observer) stepOutputs(ctx context.Context, p *pass) (string, error) {
	if seen := p.entry.stepOutputs; seen.digest != "" && seen.state == p.o.Status.State {
		return seen.digest, nil
	}
	b, err := ob.records.Get(ctx, record.Outputs(p.id))
	if reason := fault.Reason(err, ""); fault.Of(err) == fault.Missing || reason == blob.Damaged || reason == blob.KeyUnknown {
		known := ""
		if a := p.o.Status.AfterApply; a != nil {
			known = a.Outputs
		}
		return cmp.Or(known, ob.jobs.keyed("")), nil
	}
	if err != nil {
		return "", err
	}
	p.entry.stepOutputs = outputsSeen{p.o.Status.State, ob.jobs.keyed(string(b))}
	return p.entry.stepOutputs.digest, nil
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
