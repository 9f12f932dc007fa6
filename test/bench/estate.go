package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

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
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/testkit"
)

const (
	writers    = 16              // at once, while an estate is made
	readyAfter = 5 * time.Minute // at most, for one stack
	stopWithin = time.Minute
)

// estate is a control plane and a controller, each a process of its own, so
// that one can be measured without the other.
type estate struct {
	b          *bench
	dir        string
	flags      []string // added to those of the controller
	plane      *exec.Cmd
	controller *exec.Cmd
	kubeconfig string
	client     client.WithWatch
	metrics    string // where the controller serves them; empty if it does not
}

// estate starts an empty one. The caller closes it, even if it did not start.
func (b *bench) estate(ctx context.Context, name string, flags ...string) (*estate, error) {
	e := &estate{b: b, dir: filepath.Join(b.scratch, name), flags: flags}
	return e, e.open(ctx)
}

func (e *estate) open(ctx context.Context) error {
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return err
	}
	e.plane = exec.Command(e.b.bin("terrier"), "control-plane", "--data-dir", filepath.Join(e.dir, "plane"), "-o", "json")
	line, err := begin(ctx, e.plane, filepath.Join(e.dir, "plane.log"))
	if err != nil {
		return err
	}
	var ready struct{ Kubeconfig string }
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("reading %q: %w", line, err)
	}
	e.kubeconfig = ready.Kubeconfig
	if err := e.start(ctx); err != nil { // it installs our kinds
		return err
	}
	e.client, err = connect(e.kubeconfig)
	return err
}

// start starts a controller on the data directory of the last one.
func (e *estate) start(ctx context.Context) error {
	e.controller = exec.Command(e.b.bin("terrier"), append([]string{"controller",
		"--kubeconfig", e.kubeconfig, "--data-dir", e.data(), "-o", "json"}, e.flags...)...)
	line, err := begin(ctx, e.controller, filepath.Join(e.dir, "controller.log"))
	if err != nil {
		return err
	}
	var ready struct{ Metrics string }
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("reading %q: %w", line, err)
	}
	e.metrics = ready.Metrics
	return nil
}

// data is what the controller keeps, below parts of a path.
func (e *estate) data(parts ...string) string {
	return filepath.Join(append([]string{e.dir, "data"}, parts...)...)
}

// close ends both processes and the runs that they left: an apply outlives
// its controller.
func (e *estate) close() error {
	return errors.Join(stop(e.controller), e.endRuns(), stop(e.plane))
}

// endRuns kills the supervisors of runs, and waits until they are gone.
// Their sandboxes die with them.
func (e *estate) endRuns() error {
	runs := testkit.Platform{Dir: e.data()}
	for deadline := time.Now().Add(stopWithin); ; time.Sleep(10 * time.Millisecond) {
		left := runs.Supervisors()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("supervisors %v do not die", left)
		}
		for _, s := range left {
			if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("killing supervisor %d: %w", s.PID, err)
			}
		}
	}
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
	defer context.AfterFunc(ctx, func() { _ = c.Process.Kill() })() // it may have ended
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		said, _ := os.ReadFile(log)
		return nil, fmt.Errorf("waiting for %s: %w; it said %s", strings.Join(c.Args, " "), err, bytes.TrimSpace(said))
	}
	return line, nil
}

// stop ends a program that was begun, if it has not ended yet.
func stop(c *exec.Cmd) error {
	if c == nil || c.Process == nil || c.ProcessState != nil {
		return nil
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	defer time.AfterFunc(stopWithin, func() { _ = c.Process.Kill() }).Stop() // it may have ended
	if err := c.Wait(); err != nil {
		return fmt.Errorf("ending %s: %w", strings.Join(c.Args[:2], " "), err)
	}
	return nil
}

// connect speaks to an API server without a limit of requests.
func connect(kubeconfig string) (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha2.AddToScheme(scheme), tenantsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// inline is a stack of a module that is written in place, applied without asking,
// and checked again only long after everything here has ended.
func inline(namespace, name, hcl string) (*v1alpha2.Terraform, error) {
	module, err := json.Marshal(map[string]string{"hcl": hcl})
	if err != nil {
		return nil, err
	}
	s := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.ApprovePlan = v1alpha2.ApproveAuto
	s.Spec.Interval = &metav1.Duration{Duration: 24 * time.Hour}
	s.Spec.Values = &apiextensionsv1.JSON{Raw: module}
	return s, nil
}

// built creates a stack and says how long it takes until it is ready.
func built(ctx context.Context, c client.Client, s *v1alpha2.Terraform) (time.Duration, error) {
	began := time.Now()
	if err := c.Create(ctx, s); err != nil {
		return 0, err
	}
	err := until(ctx, c, s, ready)
	return time.Since(began), err
}

// until waits until something is so of a stack.
func until(ctx context.Context, c client.Client, s *v1alpha2.Terraform, so func(*v1alpha2.Terraform) bool) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, readyAfter, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(s), s)
		return so(s), err
	})
	if err != nil {
		return fmt.Errorf("waiting for the stack %s: %w; it says %+v", client.ObjectKeyFromObject(s), err, s.Status.Conditions)
	}
	return nil
}

// looked reports whether the controller has looked at a stack: first of all it
// marks the stack as its own.
func looked(s *v1alpha2.Terraform) bool { return len(s.Finalizers) > 0 }

func ready(s *v1alpha2.Terraform) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, "Ready")
}

func (e *estate) namespace(ctx context.Context, name string) error {
	return e.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// history asks for the runs of a stack as a person does, the oldest first.
func (e *estate) history(ctx context.Context, s *v1alpha2.Terraform) ([]runner.Report, error) {
	c := exec.CommandContext(ctx, e.b.bin("terrier"), "runs", s.Name, "--namespace", s.Namespace, "--kubeconfig", e.kubeconfig, "-o", "json")
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the runs of %s: %w: %s", client.ObjectKeyFromObject(s), err, &said)
	}
	var list struct{ Items []runner.Report }
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("reading the runs of %s: %w", client.ObjectKeyFromObject(s), err)
	}
	slices.Reverse(list.Items)
	return list.Items, nil
}
