package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

const (
	crowd     = 1000 // stacks of the tenant that is everywhere
	slots     = 2    // runs at once
	newcomers = 4    // tenants with one stack each, after the first of them
	ask       = 20   // stacks of the crowd whose runs are looked at
)

// hundreds is a stack whose runs take long beside the work between them.
const hundreds = `
resource "terraform_data" "many" {
  count = 500
  input = "number ${count.index}"
}
`

// fairness measures how long a tenant waits behind runs that are next to nothing, so
// that only the work between them counts, and behind runs that are some work.
func (b *bench) fairness(ctx context.Context, out io.Writer) error {
	if err := b.behind(ctx, out, "small", builtin); err != nil {
		return err
	}
	return b.behind(ctx, out, "larger", hundreds)
}

// behind measures how long a tenant with one stack waits behind one that has
// queued very many: the first newcomer comes right behind the last stack of the
// crowd, while the controller still looks at most of them for the first time;
// the others one after another. The crowd is not waited for.
func (b *bench) behind(ctx context.Context, out io.Writer, size, hcl string) (err error) {
	f := newFacts(out, fmt.Sprintf("a tenant queues %d %s stacks, %d runs at once", crowd, size, slots))
	e, err := b.estate(ctx, "fairness-"+size, "--max-runs", fmt.Sprint(slots))
	defer func() { err = errors.Join(err, e.close()) }()
	if err != nil {
		return err
	}
	if err := e.crowd(ctx, "crowd", hcl); err != nil {
		return err
	}
	first, err := e.newcomer(ctx, "newcomer")
	if err != nil {
		return err
	}
	runs, err := e.runsOf(ctx, "crowd")
	if err != nil {
		return err
	}
	const goal = "≤ 2 median runs"
	unit := median(runs)
	f.fact(fmt.Sprintf("median run of that tenant, of %d", len(runs)), seconds(unit), "")
	f.fact("another tenant's stack, right behind: first looked at after", inRuns(first.look, unit), "")
	f.fact("… its first run starts after", inRuns(first.run, unit), goal)
	var later []time.Duration
	for i := range newcomers {
		w, err := e.newcomer(ctx, fmt.Sprint("newcomer-", i))
		if err != nil {
			return err
		}
		later = append(later, w.run)
	}
	slices.Sort(later)
	f.fact(fmt.Sprintf("%d more tenants, one after another: first run after, at best", newcomers), inRuns(later[0], unit), goal)
	f.fact("… at worst", inRuns(later[len(later)-1], unit), goal)
	return f.err
}

func inRuns(d, run time.Duration) string {
	return fmt.Sprintf("%.1f runs, %s", float64(d)/float64(run), seconds(d))
}

// crowd makes the stacks of one tenant.
func (e *estate) crowd(ctx context.Context, namespace, hcl string) error {
	if err := e.namespace(ctx, namespace); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range crowd {
		g.Go(func() error {
			s, err := inline(namespace, fmt.Sprint("stack-", i), hcl)
			if err != nil {
				return err
			}
			return e.client.Create(ctx, s)
		})
	}
	return g.Wait()
}

// waited is how long after the creation of a stack the controller first looked
// at it, and its first run started.
type waited struct{ look, run time.Duration }

// newcomer makes a tenant with one stack.
func (e *estate) newcomer(ctx context.Context, namespace string) (w waited, err error) {
	if err := e.namespace(ctx, namespace); err != nil {
		return w, err
	}
	s, err := inline(namespace, "stack", builtin)
	if err != nil {
		return w, err
	}
	began := time.Now()
	if err := e.client.Create(ctx, s); err != nil {
		return w, err
	}
	if err := until(ctx, e.client, s, looked); err != nil {
		return w, err
	}
	w.look = time.Since(began)
	if err := until(ctx, e.client, s, ready); err != nil {
		return w, err
	}
	runs, err := e.history(ctx, s)
	if err != nil {
		return w, err
	}
	if len(runs) == 0 {
		return w, fmt.Errorf("the stack of %s is ready and had no run", namespace)
	}
	w.run = runs[0].Started.Sub(began)
	return w, nil
}

// runsOf is how long runs of a tenant took that have ended, sorted.
func (e *estate) runsOf(ctx context.Context, namespace string) ([]time.Duration, error) {
	var all v1alpha2.TerraformList
	if err := e.client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var took []time.Duration
	asked := 0
	for _, s := range all.Items {
		if asked == ask || !ready(&s) {
			continue
		}
		asked++
		runs, err := e.history(ctx, &s)
		if err != nil {
			return nil, err
		}
		for _, r := range runs {
			took = append(took, r.Finished.Sub(r.Started))
		}
	}
	if len(took) == 0 {
		return nil, errors.New("no run of the crowd has ended")
	}
	slices.Sort(took)
	return took, nil
}
