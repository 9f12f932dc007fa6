package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

// carrier is a controller whose runs are carried out in one way.
type carrier struct {
	name      string
	e         *estate
	namespace string
	template  v1alpha2.RunnerPodTemplate               // of the stacks
	outside   func() (time.Duration, error)            // CPU of runs that are no descendants of the controller
	others    func() (map[string]time.Duration, error) // CPU of those that serve all, by their name
	settled   func(context.Context) error              // returns once nothing is left of a run
}

// nothing is the outside of runs that are descendants.
func nothing() (time.Duration, error) { return 0, nil }

// alone are the others where none are measured.
func alone() (map[string]time.Duration, error) { return nil, nil }

// settlesIn is what a controller may have left to do once the status answers.
const settlesIn = 300 * time.Millisecond

func shortly(ctx context.Context) error { return sleep(ctx, settlesIn) }

// pods measures what a run costs in a pod and as a process: a plan that a person asks
// for and that finds nothing, from the request until the status answers it.
func (b *bench) pods(ctx context.Context, out io.Writer) (err error) {
	processes, err := b.estate(ctx, "pods-processes")
	defer func() { err = errors.Join(err, processes.close()) }()
	if err != nil {
		return err
	}
	e, err := b.podEstate(ctx, "pods")
	defer func() { err = errors.Join(err, e.close()) }()
	if err != nil {
		return err
	}
	pods := func() (time.Duration, error) { return cpu() - cpuOwn(), nil }
	return b.carry(ctx, out, []carrier{
		{"as a process", processes, "default", v1alpha2.RunnerPodTemplate{}, nothing, alone, shortly}, {"as a pod, simulated kubelet", e.estate, "default", v1alpha2.RunnerPodTemplate{}, pods, alone, shortly},
	})
}

// carry prints the same runs of each carrier. They take turns.
func (b *bench) carry(ctx context.Context, out io.Writer, carriers []carrier) error {
	about, err := underLoad("a requested plan that finds nothing; CPU of controller and runs")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n", about)
	t := &table{out: out}
	t.head()
	idle := make([]map[string]time.Duration, len(carriers)) // of the others, in a second without runs
	for i, c := range carriers {
		if idle[i], err = c.idle(ctx); err != nil {
			return err
		}
	}
	for _, m := range modules {
		stacks := make([]*v1alpha2.Terraform, len(carriers))
		took := make([]samples, len(carriers))
		for i, c := range carriers {
			if stacks[i], err = inline(c.namespace, fmt.Sprint("overhead-", len(m.hcl)), m.hcl); err != nil {
				return err
			}
			stacks[i].Spec.RunnerPodTemplate = c.template
			if _, err := built(ctx, c.e.client, stacks[i]); err != nil {
				return err
			}
			if err := c.e.recheck(ctx, stacks[i]); err != nil { // it prepares what the others find
				return err
			}
		}
		for range repeats {
			for i, c := range carriers {
				one, err := c.plan(ctx, stacks[i])
				if err != nil {
					return err
				}
				took[i] = append(took[i], one)
			}
		}
		for i, c := range carriers {
			against := samples{}
			if i > 0 {
				against = took[0]
			}
			t.row(m.name+", "+c.name, took[i], against, "")
			took[i].beside(t, idle[i])
		}
	}
	return t.err
}

// beside prints what the others used in the time of each run, without what they use when
// there is none.
func (s samples) beside(t *table, idle map[string]time.Duration) {
	for _, name := range slices.Sorted(maps.Keys(idle)) {
		cpu := s.sorted(func(one sample) time.Duration {
			return one.others[name] - time.Duration(float64(idle[name])*one.until.Seconds())
		})
		t.printf(layout, "… beside it "+name, "", "", "", ms(cpu[0]), ms(median(cpu)), ms(cpu[len(cpu)-1]), "", "")
	}
}

// idleFor is how long the others are watched without runs.
const idleFor = 20 * time.Second

// idle is what the others use in a second without runs.
func (c carrier) idle(ctx context.Context) (map[string]time.Duration, error) {
	before, err := c.others()
	if err != nil || len(before) == 0 {
		return nil, err
	}
	if err := sleep(ctx, idleFor); err != nil {
		return nil, err
	}
	after, err := c.others()
	for name := range after {
		after[name] = (after[name] - before[name]) / time.Duration(idleFor/time.Second)
	}
	return after, err
}

// plan asks for a plan of a stack and measures it to its end.
func (c carrier) plan(ctx context.Context, s *v1alpha2.Terraform) (sample, error) {
	before, others, err := c.used()
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := c.e.recheck(ctx, s); err != nil {
		return sample{}, err
	}
	wall := time.Since(began)
	if err := c.settled(ctx); err != nil {
		return sample{}, err
	}
	after, more, err := c.used()
	for name := range more {
		more[name] -= others[name]
	}
	return sample{wall: wall, cpu: after - before, until: time.Since(began), others: more}, err
}

// used is the CPU of the controller and its runs, and that of the others.
func (c carrier) used() (ours time.Duration, others map[string]time.Duration, err error) {
	u, err := usedBy(c.e.controller.Process.Pid)
	if err != nil {
		return 0, nil, err
	}
	runs, err := c.outside()
	if err != nil {
		return 0, nil, err
	}
	others, err = c.others()
	return u.cpu + runs, others, err
}

// recheck asks for a plan of a stack, and waits until the status answers the request.
func (e *estate) recheck(ctx context.Context, s *v1alpha2.Terraform) error {
	before := s.DeepCopy()
	asked := time.Now().Format(time.RFC3339Nano)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, "reconcile.fluxcd.io/requestedAt", asked)
	if err := e.client.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		return err
	}
	return until(ctx, e.client, s, func(s *v1alpha2.Terraform) bool {
		return s.Status.LastHandledReconcileAt == asked && ready(s)
	})
}
