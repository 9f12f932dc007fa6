package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/terrier-iac/terrier/internal/stack"
)

const (
	workers = 2
	turns   = 4               // of the bare engine and of ours, alternately
	turn    = 5 * time.Second // so that each has 20 s
)

// throughput is what was done in which time.
type throughput struct {
	done int
	sample
}

func (t throughput) perCore() float64 { return float64(t.done) / t.cpu.Seconds() }

func (t throughput) String() string {
	return fmt.Sprintf("%.1f, %.1f per second", t.perCore(), float64(t.done)/t.wall.Seconds())
}

// checks measures how many plans that find nothing a core does in a second when
// several workers never rest: the bare engine's, and ours of the same stacks.
func (b *bench) checks(ctx context.Context, out io.Writer) (err error) {
	f := newFacts(out, fmt.Sprintf("checks per core-second, %d at once for %s", workers, turns*turn))
	var plans, quiets []func(context.Context) error
	for i := range workers {
		plain, err := b.plain(filepath.Join(b.scratch, fmt.Sprint("checks-bare-", i)), random)
		if err != nil {
			return err
		}
		plans = append(plans, plain.plan)
		ours, err := b.supervised(ctx, filepath.Join(b.scratch, fmt.Sprint("checks-ours-", i)), random)
		if err != nil {
			return err
		}
		defer ours.close(&err)
		check := func(ctx context.Context) error { return ours.run(ctx, stack.CheckRun) }
		quiets = append(quiets, check)
		// The first check after an apply is not yet quiet.
		for _, do := range []func(context.Context) error{plain.apply, ours.apply, check} {
			if err := do(ctx); err != nil {
				return err
			}
		}
	}
	var bare, ours throughput
	for range turns {
		if err := bare.add(ctx, plans); err != nil {
			return err
		}
		if err := ours.add(ctx, quiets); err != nil {
			return err
		}
	}
	f.fact("bare tofu plan, random provider", bare.String(), "")
	f.fact("quiet check of the same stack", ours.String(), "")
	f.fact("… against the bare engine", fmt.Sprintf("%.2f ×", ours.perCore()/bare.perCore()), "≥ 1.67 ×")
	return f.err
}

// add lets each worker do its work over and over for one turn. What a worker
// has begun it ends, so that nothing is used by what is not counted.
func (t *throughput) add(ctx context.Context, work []func(context.Context) error) error {
	counts := make([]int, len(work))
	took, err := measure(func() error {
		g, ctx := errgroup.WithContext(ctx)
		for i, do := range work {
			g.Go(func() error {
				for until := time.Now().Add(turn); time.Now().Before(until); counts[i]++ {
					if err := do(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	})
	for _, n := range counts {
		t.done += n
	}
	t.wall, t.cpu = t.wall+took.wall, t.cpu+took.cpu
	return err
}
