package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
)

const (
	perTenant = 10              // stacks in each namespace
	settling  = 2 * time.Second // with next to no work in it, all is looked at
	watched   = 5 * time.Minute // idle
	strangers = 1500            // Secrets that no stack refers to
	stranger  = 32 << 10        // bytes in each of them
)

// estates measures what many stacks cost that have nothing to do.
func (b *bench) estates(ctx context.Context, out io.Writer, many int) error {
	sizes := []int{1000, 10000}
	if many > 0 {
		sizes = []int{many}
	}
	for _, n := range sizes {
		if err := b.settled(ctx, out, n); err != nil {
			return err
		}
	}
	return nil
}

// settled measures what many stacks cost that have nothing to do: they are
// copies of one that was built, made while no controller was there.
func (b *bench) settled(ctx context.Context, out io.Writer, n int) (err error) {
	f := newFacts(out, fmt.Sprintf("%d settled stacks in %d namespaces", n, (n+perTenant-1)/perTenant))
	e, err := b.estate(ctx, fmt.Sprint("settled-", n))
	defer func() { err = errors.Join(err, e.close()) }()
	if err != nil {
		return err
	}
	seed, err := e.seed(ctx)
	if err != nil {
		return err
	}
	if err := stop(e.controller); err != nil {
		return err
	}
	began := time.Now()
	if err := e.copies(ctx, seed, n); err != nil {
		return err
	}
	f.fact("made in", seconds(time.Since(began)), "")
	if err := e.coldStart(ctx, f); err != nil {
		return err
	}
	if err := e.rest(ctx, f, watched); err != nil {
		return err
	}
	if err := e.unrelated(ctx, f); err != nil {
		return err
	}
	return f.err
}

// coldStart starts a controller before which all stacks are there already.
func (e *estate) coldStart(ctx context.Context, f *facts) error {
	before, err := e.ran()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := e.start(ctx); err != nil {
		return err
	}
	up := time.Since(began)
	if err := e.quiet(ctx); err != nil {
		return err
	}
	looked := time.Since(began) - settling
	after, err := e.ran()
	if err != nil {
		return err
	}
	f.fact("cold start of the controller: ready after", seconds(up), "")
	f.fact("… every stack looked at after", seconds(looked), "≤ 60 s")
	f.fact("… stacks that had a run by then", fmt.Sprint(after-before), "0")
	return nil
}

// rest prints memory and CPU of both processes over a while without work.
func (e *estate) rest(ctx context.Context, f *facts, long time.Duration) error {
	both := []struct {
		name        string
		pid         int
		memory, cpu string // goals
		before      time.Duration
	}{
		{name: "controller", pid: e.controller.Process.Pid, memory: "≤ 600 MiB", cpu: "≤ 5 % of a core"},
		{name: "control plane", pid: e.plane.Process.Pid},
	}
	var err error
	for i, p := range both {
		if both[i].before, err = cpuOf(p.pid); err != nil {
			return err
		}
	}
	if err := sleep(ctx, long); err != nil {
		return err
	}
	for _, p := range both {
		now, err := cpuOf(p.pid)
		if err != nil {
			return err
		}
		held, err := rssOf(p.pid)
		if err != nil {
			return err
		}
		f.fact(fmt.Sprintf("%s at rest for %s: memory", p.name, long), mib(held), p.memory)
		f.fact("… CPU", fmt.Sprintf("%.1f %% of a core", 100*(now-p.before).Seconds()/long.Seconds()), p.cpu)
	}
	return nil
}

// seed builds the one stack that the others are copies of.
func (e *estate) seed(ctx context.Context) (*v1alpha2.Terraform, error) {
	s, err := inline("default", "seed", builtin)
	if err != nil {
		return nil, err
	}
	_, err = built(ctx, e.client, s)
	return s, err
}

// copies makes n stacks that stand as the seed does.
func (e *estate) copies(ctx context.Context, seed *v1alpha2.Terraform, n int) error {
	state := &corev1.Secret{}
	name := client.ObjectKey{Namespace: seed.Namespace, Name: "tfstate-default-" + seed.Name}
	if err := e.client.Get(ctx, name, state); err != nil {
		return fmt.Errorf("reading the state of the seed: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for tenant := range (n + perTenant - 1) / perTenant {
		g.Go(func() error {
			namespace := fmt.Sprint("tenant-", tenant)
			if err := e.namespace(ctx, namespace); err != nil {
				return err
			}
			for i := range min(perTenant, n-tenant*perTenant) {
				s := seed.DeepCopy()
				s.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("stack-", i), Finalizers: seed.Finalizers}
				status := s.Status
				if err := e.client.Create(ctx, s); err != nil {
					return err
				}
				if err := e.client.Create(ctx, stateOf(state, s)); err != nil {
					return err
				}
				var err error
				if s.Status, err = asIf(status, seed, s); err != nil {
					return err
				}
				s.Status.ObservedGeneration = s.Generation
				if err := e.client.Status().Update(ctx, s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// stateOf is a copy of a state that belongs to the stack s.
func stateOf(state *corev1.Secret, s *v1alpha2.Terraform) *corev1.Secret {
	n := state.DeepCopy()
	n.ObjectMeta = metav1.ObjectMeta{
		Namespace: s.Namespace, Name: "tfstate-default-" + s.Name,
		Labels: maps.Clone(state.Labels), Annotations: maps.Clone(state.Annotations),
	}
	n.Labels["tfstateSecretSuffix"] = s.Name
	n.Annotations["terrier.dev/stack"] = s.Name
	n.Annotations["terrier.dev/stack-uid"] = string(s.UID)
	return n
}

// asIf is the status of the seed as its copy s would have it: the shape of a
// plan says where its state is.
func asIf(status v1alpha2.TerraformStatus, seed, s *v1alpha2.Terraform) (v1alpha2.TerraformStatus, error) {
	var shapes [2]string
	for i, o := range []*v1alpha2.Terraform{seed, s} {
		st, err := infra.Dialect{}.Decode(o)
		if err != nil {
			return status, err
		}
		shapes[i] = st.Configuration.Shape()
	}
	status = *status.DeepCopy()
	status.Terrier.Memory.Raw = bytes.ReplaceAll(status.Terrier.Memory.Raw, []byte(shapes[0]), []byte(shapes[1]))
	return status, nil
}

// ran counts the stacks that ever had a run here: each left a directory.
func (e *estate) ran() (int, error) {
	found, err := os.ReadDir(e.data("runner", "stacks"))
	return len(found), err
}

// quiet waits until the controller has next to nothing to do.
func (e *estate) quiet(ctx context.Context) error {
	for {
		before, err := cpuOf(e.controller.Process.Pid)
		if err != nil {
			return err
		}
		if err := sleep(ctx, settling); err != nil {
			return err
		}
		now, err := cpuOf(e.controller.Process.Pid)
		if err != nil {
			return err
		}
		if now-before < settling/20 {
			return nil
		}
	}
}

// unrelated measures what Secrets that no stack refers to cost.
func (e *estate) unrelated(ctx context.Context, f *facts) error {
	before, err := rssOf(e.controller.Process.Pid)
	if err != nil {
		return err
	}
	g, made := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range strangers {
		g.Go(func() error {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("unrelated-", i)}}
			s.Data = map[string][]byte{"data": bytes.Repeat([]byte("x"), stranger)}
			return e.client.Create(made, s)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := e.quiet(ctx); err != nil {
		return err
	}
	after, err := rssOf(e.controller.Process.Pid)
	if err != nil {
		return err
	}
	f.fact(fmt.Sprintf("%d unrelated Secrets of %d KiB: the controller holds", strangers, stranger>>10), fmt.Sprintf("%+.0f MiB", float64(after-before)/(1<<20)), "0")
	return nil
}
