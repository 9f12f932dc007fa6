package controller

import (
	"cmp"
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// newcomerPriority puts the first stack of a tenant that has nothing running and
// nothing waiting before all that another tenant has just created: turns are fair
// (package schedule), but a stack asks for one only once it is reconciled.
const newcomerPriority = wakePriority / 2

// Queue is the queue of runs: a schedule.Queue, or the part that one replica has in a
// queue that several share.
type Queue interface {
	Listen(kind string, l schedule.Listener)
	// Admit lets a stack start a run, or says what the run waits for. A stack that waits
	// is woken when its turn has come.
	Admit(id string, r schedule.Candidate) (why string)
	Running(id string, r schedule.Candidate) // counts a run that is running, beyond the limits if need be
	Found(id string, r schedule.Candidate)   // is Running for a stack that was not reconciled yet
	Leave(id string)                         // of a stack that has no run and wants none
	Withdraw(id string)                      // of a stack of which it is unknown whether it has a run
	// Ended frees the slot of a run that ended and whose stack was never reconciled here, and
	// counts the places that the run left.
	Ended(id string, left ...string)
	Idle(tenant string) bool        // nothing of the tenant is running or waits
	Waited(id string) time.Duration // for the slot that the stack has
	// HandOver gives the slot of a place to the stack whose turn it would be without the
	// place, if that is a run which the place takes. Otherwise others says whether another
	// run waits for the slot.
	HandOver(id string, takes func(schedule.Candidate) bool) (to string, others bool)
	// Claim says that this process owns shards of the stacks since a generation of the
	// shard.Map, and which of their runs go on. Nothing else is asked about a shard before.
	Claim(generation uint64, shards []int, running map[string]schedule.Candidate)
	// Release says that this process works on shards no more. Their runs stay counted
	// until the next owner claims them.
	Release(shards []int)
}

// scheduleKey is how the schedule names a stack.
func (ref objectRef) scheduleKey() schedule.Key {
	return schedule.Key{Kind: dialect.KindOf(ref.dialect), Namespace: ref.key.Namespace, Name: ref.key.Name}
}

// listenToSchedule has the schedule wake the stacks whose turn has come.
func (c *Stacks) listenToSchedule() {
	for _, d := range c.Dialects.All() {
		c.Queue.Listen(dialect.KindOf(d), schedule.Listener{
			Wake: func(k schedule.Key) {
				c.wakes.add(objectRef{d, types.NamespacedName{Namespace: k.Namespace, Name: k.Name}})
			},
			Started: c.metrics.waited,
		})
	}
}

// turns asks the schedule for runs.
type turns struct {
	config    Config
	queue     Queue
	checks    *driftRecords
	lingering lingering
}

// candidate is what the schedule is asked with for a run of a stack.
func (tn *turns) candidate(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) schedule.Candidate {
	return schedule.Candidate{
		Key: objectRef{p.dialect, client.ObjectKeyFromObject(p.obj)}.scheduleKey(), Kind: kind, Class: schedule.ClassOf(kind, cause, p.o),
		Memory: tn.checks.memoryFor(ctx, p.entry, kind), Tenant: tn.tenantOf(p.obj),
	}
}

// memoryFor is the memory that a run of a stack is expected to take.
func (ck *driftRecords) memoryFor(ctx context.Context, e *entry, kind stack.RunKind) int64 {
	known, err := ck.driftChecks(ctx, e)
	if err != nil {
		ck.log.Warn("memory of earlier runs not read", "stack", e.id, "err", err)
	}
	return schedule.Memory(kind, *estimateOf(&known, kind), ck.config.Limits.Memory)
}

// observeMemory remembers what memory a run took. A drift check that finds
// nothing is written down anyway, and then this is, too.
func (ck *driftRecords) observeMemory(ctx context.Context, p *pass, r *runner.Report) error {
	if r.Kind == stack.CheckRun {
		ck.budgets.Ended(p.id, cpuOf(r.Steps))
	}
	took := memoryOf(r.Steps)
	if took == 0 || r.Kind == stack.HealthRun {
		return nil
	}
	was, err := ck.driftChecks(ctx, p.entry)
	if err != nil {
		return err
	}
	is := was
	estimate := estimateOf(&is, r.Kind)
	*estimate = schedule.Observe(*estimate, took)
	p.entry.checks = &is
	if is == was || quiet(p, r) {
		return nil
	}
	return ck.putDriftChecks(ctx, p.entry, is)
}

// estimateOf is the estimate for runs of a kind. The programs of steps after an apply are not
// the engine, so that neither says anything of the other.
func estimateOf(c *record.Check, kind stack.RunKind) *int64 {
	if kind == stack.StepsRun {
		return &c.StepsMemory
	}
	return &c.Memory
}

// quiet reports whether a run is a drift check that found nothing that counts.
func quiet(p *pass, r *runner.Report) bool {
	return r.Kind == stack.CheckRun && r.Outcome == stack.Succeeded && (r.Changes.None() || p.tolerated.All)
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

// countRuns counts the runs that an earlier controller left running, before
// anything is admitted: else this one would start as many again until it has
// reconciled their stacks.
func (c *Stacks) countRuns(ctx context.Context) error {
	running, err := c.runsOf(ctx, func(string) bool { return true })
	for id, run := range running {
		c.Queue.Found(id, run)
	}
	return err
}

// newcomer has a stack that was just created reconciled before others, if its
// tenant has nothing running and nothing waiting.
func (wt *watches) newcomer(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	ranked, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok || e.IsInInitialList {
		return
	}
	key := client.ObjectKeyFromObject(e.Object)
	if tenant := wt.turns.tenantOf(e.Object); wt.queue.Idle(tenant) && wt.newcomers.Take(tenant, objectRef{wt.dialects.For(e.Object), key}.scheduleKey()) {
		ranked.AddWithOpts(priorityqueue.AddOpts{Priority: new(newcomerPriority)}, reconcile.Request{NamespacedName: key})
	}
}

// tenantOf is the tenant with which a stack shares its turns.
func (tn *turns) tenantOf(o client.Object) string { return tenantOf(tn.config, o) }

func tenantOf(c Config, o client.Object) string {
	return cmp.Or(o.GetLabels()[c.TenantLabel], o.GetNamespace())
}
