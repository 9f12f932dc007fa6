package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// checkup begins to ask what was applied for its health. Its run needs nothing
// of what other runs do, the state and its lock least of all.
func (ac *actor) checkup(ctx context.Context, p *pass, why string) error {
	outputs, err := outputsIfAny(ctx, ac, p)
	if err != nil {
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
