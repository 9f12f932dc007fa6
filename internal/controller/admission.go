package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What runs are charged of which nothing was observed.
const (
	unknownMemory = 512 << 20 // an engine and a provider of a large cloud
	healthMemory  = 64 << 20  // no engine runs
)

// askOf is what a stack asks the queue for.
func (c *Stacks) askOf(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) ask {
	key := client.ObjectKeyFromObject(p.obj)
	return ask{
		key: key, kind: kind, class: classOf(kind, cause, p.o), memory: c.charge(ctx, p.entry, kind),
		tenant: c.tenantOf(p.obj),
	}
}

// classOf says how urgent a run is.
func classOf(kind stack.RunKind, cause stack.Cause, o stack.Observation) class {
	m := o.Status
	tried := m.Planned
	if m.Failures > 0 {
		tried = m.FailedFor
	}
	unknown := tried == stack.PlanInputs{} // what was tried before
	switch differs := tried.Differs(o.PlanInputs); {
	case kind == stack.GlassRun, kind == stack.PreviewRun, cause.Request != "",
		cause.Unlock != "" && cause.Unlock == o.Spec.Unlock.ID:
		return asked
	case kind.Writes(), o.Deleting:
		return writing
	case kind == stack.HealthRun:
		return changed // what was begun is brought to its end
	case unknown && m.Applied == nil && m.Note == "", !unknown && slices.Contains(differs, "spec"):
		return changed // the object is new, or another
	case len(differs) > 0, m.Failures > 0:
		return upstream
	default:
		return idle
	}
}

// charge is the memory that a run of a stack is expected to take.
func (c *Stacks) charge(ctx context.Context, e *entry, kind stack.RunKind) int64 {
	if kind == stack.HealthRun {
		return healthMemory
	}
	known, err := c.driftChecks(ctx, e)
	if err != nil {
		c.Log.Warn("memory of earlier runs not read", "stack", e.id, "err", err)
	}
	memory := cmp.Or(known.Memory, unknownMemory)
	if most := c.Config.Limits.Memory; most > 0 {
		memory = min(memory, most)
	}
	return memory
}

// weigh remembers what memory a run took. A look for drift that finds nothing
// is written down anyway, and then this is, too.
func (c *Stacks) weigh(ctx context.Context, p *pass, r *runner.Report) error {
	took := memoryOf(r.Steps)
	if took == 0 || r.Kind == stack.HealthRun {
		return nil
	}
	was, err := c.driftChecks(ctx, p.entry)
	if err != nil {
		return err
	}
	is := withMemory(was, took)
	p.entry.checks = &is
	if is == was || quiet(r) {
		return nil
	}
	return c.putDriftChecks(ctx, p.entry, is)
}

// quiet reports whether a run is a look for drift that found nothing.
func quiet(r *runner.Report) bool {
	return r.Kind == stack.CheckRun && r.Outcome == stack.Succeeded && r.Changes.None()
}

// memoryOf is the memory that the processes of a run took together: its engines
// come one after another, and the providers are there all the time.
func memoryOf(steps []runner.Step) int64 {
	var engine, providers int64
	for _, s := range steps {
		if strings.HasPrefix(s.Name, "provider ") {
			providers += s.MaxRSS
		} else {
			engine = max(engine, s.MaxRSS)
		}
	}
	return engine + providers
}

// countRuns counts the runs that an earlier controller left at work, before
// anything is admitted: else this one would start as many again until it has
// looked at their stacks.
func (c *Stacks) countRuns(ctx context.Context) error {
	reports, err := c.Runs.List()
	if err != nil {
		return fmt.Errorf("finding the runs at work: %w", err)
	}
	for _, r := range reports {
		if r.Phase == runner.Done {
			continue
		}
		namespace, name, _ := strings.Cut(r.Name, "/")
		// Its tenant is known once the stack is looked at.
		c.queue.counted(r.Stack, ask{
			key: types.NamespacedName{Namespace: namespace, Name: name}, kind: r.Kind, tenant: namespace,
			memory: c.charge(ctx, &entry{id: r.Stack}, r.Kind), began: r.Started,
		})
	}
	return nil
}
