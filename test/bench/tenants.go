package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

const (
	manyTenants = 1000
	moreTenants = 10 // times as many, without stacks
	idleTenants = 2 * time.Minute
	synced      = 10 * time.Second // between two reads of the rows
	longest     = time.Hour        // that many tenants may take
)

// tenants measures what rows of a database cost that become tenants: n with a
// stack each, which are left alone afterwards, and ten times as many without, of
// which one row changes.
func (b *bench) tenants(ctx context.Context, out io.Writer, n int) error {
	err := b.shop(ctx, "stacks", func(ctx context.Context, s *shop) error {
		if err := s.arrive(ctx, out, n, true); err != nil {
			return err
		}
		return s.alone(ctx, out, n)
	})
	if err != nil {
		return err
	}
	return b.shop(ctx, "objects", func(ctx context.Context, s *shop) error {
		if err := s.arrive(ctx, out, n*moreTenants, false); err != nil {
			return err
		}
		return s.oneRow(ctx, out, n*moreTenants)
	})
}

// shop runs f on a platform and a database of its own.
func (b *bench) shop(ctx context.Context, name string, f func(context.Context, *shop) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &shop{estate: estate{b: b, dir: filepath.Join(b.scratch, "tenants-"+name)}}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.estate.open(ctx); err != nil {
		return err
	}
	return withDatabase(ctx, func(d *rowsOf) error {
		s.rows = d
		if err := s.open(ctx); err != nil {
			return err
		}
		return f(ctx, s)
	})
}

// arrive prints what it costs that one statement makes n tenants.
func (s *shop) arrive(ctx context.Context, out io.Writer, n int, stacks bool) error {
	if err := s.template(ctx, stacks); err != nil {
		return err
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	from, err := s.meter(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	s.rows.exec(insert(n))
	for there := 0; there < n*objectsOfTenant; there = s.seen.objects() {
		if err := s.pause(ctx, began); err != nil {
			return fmt.Errorf("%w: %d of %d objects are there", err, there, n*objectsOfTenant)
		}
	}
	objects := time.Since(began)
	for there := 0; stacks && there < n; there = s.seen.applied() {
		if err := s.pause(ctx, began); err != nil {
			return fmt.Errorf("%w: %d of %d stacks are ready", err, there, n)
		}
	}
	applied := time.Since(began)
	var registry tenantsv1.TenantRegistry
	for int(registry.Status.Ready) < n {
		if err := s.pause(ctx, began); err != nil {
			return fmt.Errorf("%w: %d of %d tenants are ready", err, registry.Status.Ready, n)
		}
		if err := s.client.Get(ctx, client.ObjectKey{Namespace: shopNamespace, Name: "customers"}, &registry); err != nil {
			return err
		}
	}
	ready := time.Since(began)
	to, err := s.meter(ctx)
	if err != nil {
		return err
	}
	goals := ""
	if stacks {
		goals = "; goals at 1,000 tenants on 2 idle cores: 120 s for the objects, 240 s for the stacks"
	}
	fmt.Fprintf(out, "\n%d rows by one statement, read every %s (stacks: %v)\n", n, synced, stacks)
	fmt.Fprintf(out, "all %d objects after %.1f s, ", n*objectsOfTenant, objects.Seconds())
	if stacks {
		fmt.Fprintf(out, "all %d stacks applied after %.1f s, ", n, applied.Seconds())
	}
	fmt.Fprintf(out, "all tenants counted as ready after %.1f s%s\n", ready.Seconds(), goals)
	return to.since(out, from, n)
}

// pause waits for more to be there.
func (s *shop) pause(ctx context.Context, began time.Time) error {
	if time.Since(began) > longest {
		return fmt.Errorf("not done after %s", longest)
	}
	return sleep(ctx, 100*time.Millisecond)
}

// alone prints what n tenants cost of which nothing changes.
func (s *shop) alone(ctx context.Context, out io.Writer, n int) error {
	if err := s.quiet(ctx); err != nil {
		return err
	}
	from, err := s.meter(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, idleTenants); err != nil {
		return err
	}
	to, err := s.meter(ctx)
	if err != nil {
		return err
	}
	minutes := to.at.Sub(from.at).Minutes()
	fmt.Fprintf(out, "\n%d tenants left alone for %s: %.1f reads of the rows a minute (%d statements), %.1f API writes a minute (goal 0), controller %.1f %% of a core, control plane %.1f %%\n",
		n, idleTenants, float64(to.reads-from.reads)/minutes, to.statements-from.statements,
		float64(to.writes(from))/minutes, percent(to.controller.cpu-from.controller.cpu, to.at.Sub(from.at)), percent(to.plane.cpu-from.plane.cpu, to.at.Sub(from.at)))
	return to.requests(out, from)
}

// read waits for the next read of the rows.
func (s *shop) read(ctx context.Context) error {
	before, err := s.rows.reads()
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 3*synced, true, func(context.Context) (bool, error) {
		now, err := s.rows.reads()
		return now > before, err
	})
	if err != nil {
		return fmt.Errorf("waiting for a read of the rows: %w", err)
	}
	return nil
}

func percent(part, whole time.Duration) float64 { return 100 * part.Seconds() / whole.Seconds() }

// oneRow prints what it costs that one row of n changes, of which one object is
// made.
func (s *shop) oneRow(ctx context.Context, out io.Writer, n int) error {
	if err := s.quiet(ctx); err != nil {
		return err
	}
	// Right after a read, so that the next one is all that the change is in.
	if err := s.read(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, synced/5); err != nil {
		return err
	}
	from, err := s.meter(ctx)
	if err != nil {
		return err
	}
	s.rows.exec("UPDATE customers SET plan = 'platinum' WHERE id = 't00007'")
	if err := s.read(ctx); err != nil {
		return err
	}
	began := time.Now()
	for s.seen.changed() == 0 {
		if err := s.pause(ctx, began); err != nil {
			return fmt.Errorf("%w: the object of the row is as it was", err)
		}
	}
	took := time.Since(began)
	if err := sleep(ctx, settling); err != nil {
		return err
	}
	to, err := s.meter(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\none row of %d changed: %d read of the rows (goal 1), %d API writes, its object written %.2f s after the read; controller %.2f s of CPU\n",
		n, to.reads-from.reads, to.writes(from), took.Seconds(), (to.controller.cpu - from.controller.cpu).Seconds())
	return to.requests(out, from)
}
