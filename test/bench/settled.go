package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
)

const (
	perTenant = 10              // stacks in each namespace
	writers   = 16              // at once, while an estate is made
	settling  = 2 * time.Second // with next to no work in it, all is looked at
	watched   = 5 * time.Minute // at rest
)

// estate is a control plane and a controller, each a process of its own, so
// that one can be measured without the other.
type estate struct {
	b          *bench
	dir        string
	plane      *exec.Cmd
	controller *exec.Cmd
	kubeconfig string
	client     client.Client
}

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
	e := &estate{b: b, dir: filepath.Join(b.scratch, fmt.Sprint("settled-", n))}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.open(ctx); err != nil {
		return err
	}
	seed, err := e.seed(ctx)
	if err != nil {
		return err
	}
	if err := e.stop(e.controller); err != nil {
		return err
	}
	began := time.Now()
	if err := e.copies(ctx, seed, n); err != nil {
		return err
	}
	loaded := time.Since(began)
	runs, err := e.runs()
	if err != nil {
		return err
	}
	began = time.Now()
	if err := e.start(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	if err := e.quiet(ctx); err != nil {
		return err
	}
	looked := time.Since(began) - settling
	after, err := e.runs()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d settled stacks in %d namespaces (made in %.0f s)\n", n, (n+perTenant-1)/perTenant, loaded.Seconds())
	fmt.Fprintf(out, "cold start of the controller: ready after %.1f s, every stack looked at after %.1f s, runs started: %d; goals 60 s, 0\n", ready.Seconds(), looked.Seconds(), after-runs)
	if err := e.rest(ctx, out, watched); err != nil {
		return err
	}
	return e.unrelated(ctx, out, 1500, 32<<10)
}

// rest prints memory and CPU of both processes over a while without work.
func (e *estate) rest(ctx context.Context, out io.Writer, for_ time.Duration) error {
	both := []*exec.Cmd{e.controller, e.plane}
	var before [2]time.Duration
	for i, c := range both {
		var err error
		if before[i], err = cpuOf(c.Process.Pid); err != nil {
			return err
		}
	}
	if err := sleep(ctx, for_); err != nil {
		return err
	}
	for i, name := range []string{"controller", "control plane"} {
		now, err := cpuOf(both[i].Process.Pid)
		if err != nil {
			return err
		}
		mib, err := rssOf(both[i].Process.Pid)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s at rest for %s: %d MiB, %.1f %% of a core\n", name, for_, mib, 100*(now-before[i]).Seconds()/for_.Seconds())
	}
	return nil
}

func (e *estate) open(ctx context.Context) error {
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return err
	}
	e.plane = exec.Command(filepath.Join(e.b.root, "bin", "terrier"), "control-plane", "--data-dir", filepath.Join(e.dir, "plane"), "-o", "json")
	line, err := begin(ctx, e.plane, filepath.Join(e.dir, "plane.log"))
	if err != nil {
		return err
	}
	var ready struct{ Kubeconfig string }
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("reading %q: %w", line, err)
	}
	e.kubeconfig = ready.Kubeconfig
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha2.AddToScheme(scheme)); err != nil {
		return err
	}
	if err := e.start(ctx); err != nil { // it installs our kinds
		return err
	}
	e.client, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

// start starts a controller on the data directory of the last one.
func (e *estate) start(ctx context.Context) error {
	e.controller = exec.Command(filepath.Join(e.b.root, "bin", "terrier"), "controller",
		"--kubeconfig", e.kubeconfig, "--data-dir", filepath.Join(e.dir, "data"), "-o", "json")
	_, err := begin(ctx, e.controller, filepath.Join(e.dir, "controller.log"))
	return err
}

// begin starts a program and waits for its first line.
func begin(ctx context.Context, c *exec.Cmd, log string) ([]byte, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c.Stderr = f
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Process.Kill() }) // it may have ended
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		said, _ := os.ReadFile(log)
		return nil, fmt.Errorf("waiting for %s: %w; it said %s", strings.Join(c.Args, " "), err, bytes.TrimSpace(said))
	}
	return line, nil
}

func (e *estate) stop(c *exec.Cmd) error {
	if c == nil || c.Process == nil || c.ProcessState != nil {
		return nil
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return c.Wait()
}

func (e *estate) close() error { return errors.Join(e.stop(e.controller), e.stop(e.plane)) }

// seed builds the one stack that the others are copies of.
func (e *estate) seed(ctx context.Context) (*v1alpha2.Terraform, error) {
	s := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seed"}}
	s.Spec.ApprovePlan = v1alpha2.ApproveAuto
	s.Spec.Interval = &metav1.Duration{Duration: 24 * time.Hour}
	module, err := json.Marshal(map[string]string{"hcl": builtin})
	if err != nil {
		return nil, err
	}
	s.Spec.Values = &apiextensionsv1.JSON{Raw: module}
	if err := e.client.Create(ctx, s); err != nil {
		return nil, err
	}
	return s, wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		err := e.client.Get(ctx, client.ObjectKeyFromObject(s), s)
		return meta.IsStatusConditionTrue(s.Status.Conditions, "Ready"), err
	})
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
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("tenant-", tenant)}}
			if err := e.client.Create(ctx, ns); err != nil {
				return err
			}
			for i := range min(perTenant, n-tenant*perTenant) {
				s := seed.DeepCopy()
				s.ObjectMeta = metav1.ObjectMeta{Namespace: ns.Name, Name: fmt.Sprint("stack-", i), Finalizers: seed.Finalizers}
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
		shapes[i] = st.Program.Shape()
	}
	status = *status.DeepCopy()
	status.Terrier.Memory.Raw = bytes.ReplaceAll(status.Terrier.Memory.Raw, []byte(shapes[0]), []byte(shapes[1]))
	return status, nil
}

// runs counts the runs that the controller keeps the work of: each that was
// ever started left a directory for its stack.
func (e *estate) runs() (int, error) {
	found, err := filepath.Glob(filepath.Join(e.dir, "data", "runs", "stacks", "*"))
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

// unrelated measures what Secrets that are nobody's business cost.
func (e *estate) unrelated(ctx context.Context, out io.Writer, n, size int) error {
	before, err := rssOf(e.controller.Process.Pid)
	if err != nil {
		return err
	}
	var made atomic.Int64
	g, made_ := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range n {
		g.Go(func() error {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("unrelated-", i)}}
			s.Data = map[string][]byte{"data": bytes.Repeat([]byte("x"), size)}
			made.Add(1)
			return e.client.Create(made_, s)
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
	_, err = fmt.Fprintf(out, "%d unrelated Secrets of %d KiB: the controller holds %+d MiB more\n", made.Load(), size>>10, after-before)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cpuOf is the user and system time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime and stime, proc_pid_stat(5)
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil
}

// rssOf is what a process holds in memory, in MiB.
func rssOf(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if held, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib int
			_, err := fmt.Sscan(held, &kib)
			return kib / 1024, err
		}
	}
	return 0, errors.New("the kernel does not say what the process holds")
}
