package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

var (
	cluster = flag.String("cluster", "", "kubeconfig of a cluster with our kinds, on whose nodes the part pods measures, too; this has to run where its pods reach -cluster-host")
	image   = flag.String("cluster-image", "terrier-runner", "image of the runs there")
	host    = flag.String("cluster-host", "172.30.0.1", "address of this machine for pods there")
)

// carrier is a controller whose runs are carried out in one way.
type carrier struct {
	name      string
	e         *estate
	namespace string
	outside   func() time.Duration // CPU of runs that are no descendants of the controller
}

// nothing is the outside of runs that are descendants, or that cannot be measured.
func nothing() time.Duration { return 0 }

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
	pods := func() time.Duration { return cpu() - cpuOwn() }
	if err := b.carry(ctx, out, "controller and runs", []carrier{
		{"as a process", processes, "default", nothing}, {"as a pod, simulated kubelet", e.estate, "default", pods},
	}); err != nil || *cluster == "" {
		return err
	}
	var real []carrier
	for i, c := range []struct {
		name  string
		flags []string
	}{
		{"as a process", nil},
		{"as a pod of a real node", []string{
			"--runs-as", "pods", "--run-image", *image, "--run-resources", "requests.cpu=10m", "--http-address", *host + ":0", "--http-host", *host,
		}},
	} {
		there := &estate{b: b, dir: filepath.Join(b.scratch, fmt.Sprint("cluster-", i)), kubeconfig: *cluster}
		namespace := fmt.Sprintf("bench-%d-%d", time.Now().Unix(), i)
		there.flags = append(c.flags, "--lease=", "--install-crds=false", "--watch-namespace", namespace)
		defer func() { err = errors.Join(err, there.leave(namespace)) }()
		if err := there.visit(ctx, namespace); err != nil {
			return err
		}
		real = append(real, carrier{c.name, there, namespace, nothing})
	}
	return b.carry(ctx, out, "controller, with runs that are processes", real)
}

// carry prints the same runs of each carrier. They take turns.
func (b *bench) carry(ctx context.Context, out io.Writer, whose string, carriers []carrier) error {
	about, err := underLoad(fmt.Sprintf("a requested plan that finds nothing; CPU of %s", whose))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n", about)
	t := &table{out: out}
	t.head()
	for _, m := range modules {
		stacks := make([]*v1alpha2.Terraform, len(carriers))
		took := make([]samples, len(carriers))
		for i, c := range carriers {
			if stacks[i], err = inline(c.namespace, fmt.Sprint("overhead-", len(m.hcl)), m.hcl); err != nil {
				return err
			}
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
		}
	}
	return t.err
}

// settlesIn is what a controller may have left to do once the status answers.
const settlesIn = 300 * time.Millisecond

// plan asks for a plan of a stack and measures it to its end.
func (c carrier) plan(ctx context.Context, s *v1alpha2.Terraform) (sample, error) {
	before, err := c.used()
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := c.e.recheck(ctx, s); err != nil {
		return sample{}, err
	}
	wall := time.Since(began)
	if err := sleep(ctx, settlesIn); err != nil {
		return sample{}, err
	}
	after, err := c.used()
	return sample{wall, after - before}, err
}

func (c carrier) used() (time.Duration, error) {
	u, err := usedBy(c.e.controller.Process.Pid)
	return u.cpu + c.outside(), err
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

// visit starts a controller of one new namespace of a cluster that is there.
func (e *estate) visit(ctx context.Context, namespace string) (err error) {
	if e.client, err = connect(e.kubeconfig); err != nil {
		return err
	}
	return errors.Join(e.namespace(ctx, namespace), e.start(ctx))
}

// leave removes what is in the namespace, and then the namespace and the controller.
func (e *estate) leave(namespace string) error {
	ctx, done := context.WithTimeout(context.Background(), stopWithin)
	defer done()
	if e.client == nil {
		return nil
	}
	here := client.InNamespace(namespace)
	errs := []error{e.client.DeleteAllOf(ctx, &v1alpha2.Terraform{}, here)}
	for left := (v1alpha2.TerraformList{}); ; {
		err := e.client.List(ctx, &left, here)
		if err != nil || len(left.Items) == 0 {
			errs = append(errs, err)
			break
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			errs = append(errs, fmt.Errorf("%d stacks of %s are not gone: %w", len(left.Items), namespace, err))
			break
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	return errors.Join(append(errs, e.client.Delete(ctx, ns), e.close())...)
}
