package testkit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

// settleWithin bounds every wait for a stack.
const settleWithin = Patience

// Cluster gives the test a namespace on the platform. After the test all stacks
// in it must be gone once they are deleted, or the test fails.
func (p *Platform) Cluster(tb testing.TB) *Cluster {
	tb.Helper()
	c := p.In(tb, "default")
	said := len(p.Log())
	c.makeNamespace(tb) // its cleanup comes after ours
	if err := writeKubeconfig(p.Kubeconfig, c.Kubeconfig, c.Namespace); err != nil {
		tb.Fatalf("writing a kubeconfig for the test: %v", err)
	}
	c.witness = c.Witness(tb, p)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%s\nmeanwhile the platform said:\n%s", c.Story(), p.Log()[said:])
		}
		c.witness.Collect()
		if p.PID() != 0 {
			c.clear(tb)
			c.witness.CatchUp()
		}
		c.witness.Judge(false)
	})
	return c
}

// In opens a namespace of the platform that exists already.
func (p *Platform) In(tb testing.TB, namespace string) *Cluster {
	tb.Helper()
	c := &Cluster{platform: p, Namespace: namespace, programs: programs{filepath.Join(tb.TempDir(), "kubeconfig")}}
	err := c.connect()
	if err == nil {
		err = writeKubeconfig(p.Kubeconfig, c.Kubeconfig, c.Namespace)
	}
	if err != nil {
		tb.Fatalf("opening the namespace %s: %v", namespace, err)
	}
	return c
}

// connect makes a client of the platform.
func (c *Cluster) connect() error {
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.platform.Kubeconfig); err != nil {
		return fmt.Errorf("reading the platform's kubeconfig: %w", err)
	}
	c.Config.QPS = -1
	c.Config.WarningHandler = rest.NoWarnings{}
	c.Client, err = newClient(c.Config, []func(*runtime.Scheme) error{infrav1alpha2.AddToScheme, sourcev1.AddToScheme})
	return err
}

// clear deletes the stacks of the namespace and waits until they are gone.
func (c *Cluster) clear(tb testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
	defer cancel()
	here := client.InNamespace(c.Namespace)
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var stacks infrav1alpha2.TerraformList
		if last = c.Client.DeleteAllOf(ctx, &infrav1alpha2.Terraform{}, here); last != nil {
			return false, nil
		}
		if last = c.Client.List(ctx, &stacks, here); last == nil && len(stacks.Items) > 0 {
			last = fmt.Errorf("%s is there: %s", stacks.Items[0].Name, describe(&stacks.Items[0]))
		}
		return last == nil, nil
	})
	if err != nil {
		tb.Errorf("waiting until the test's stacks are gone: %v, at last: %v", err, last)
	}
}

// Abandon removes the finalizers of all stacks of the namespace, without a
// controller. Their resources are abandoned. It is for clean-up.
func (c *Cluster) Abandon(tb testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	here := client.InNamespace(c.Namespace)
	var stacks infrav1alpha2.TerraformList
	err := errors.Join(c.Client.DeleteAllOf(ctx, &infrav1alpha2.Terraform{}, here), c.Client.List(ctx, &stacks, here))
	for i := range stacks.Items {
		free := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		err = errors.Join(err, client.IgnoreNotFound(c.Client.Patch(ctx, &stacks.Items[i], free)))
	}
	if err != nil {
		tb.Errorf("letting go of the test's stacks: %v", err)
	}
}

// Stack reads a stack.
func (c *Cluster) Stack(tb testing.TB, name string) *infrav1alpha2.Terraform {
	tb.Helper()
	var s infrav1alpha2.Terraform
	c.Get(tb, name, &s)
	return &s
}

// Get reads an object of the namespace.
func (c *Cluster) Get(tb testing.TB, name string, into client.Object) {
	tb.Helper()
	if err := c.Client.Get(tb.Context(), client.ObjectKey{Namespace: c.Namespace, Name: name}, into); err != nil {
		tb.Fatalf("reading %T %s: %v", into, name, err)
	}
}

// Exists reports whether an object of the namespace is there.
func (c *Cluster) Exists(tb testing.TB, name string, kind client.Object) bool {
	tb.Helper()
	err := c.Client.Get(tb.Context(), client.ObjectKey{Namespace: c.Namespace, Name: name}, kind)
	if client.IgnoreNotFound(err) != nil {
		tb.Fatalf("looking for %T %s: %v", kind, name, err)
	}
	return err == nil
}

// Secret reads the data of a Secret as text.
func (c *Cluster) Secret(tb testing.TB, name string) map[string]string {
	tb.Helper()
	var s corev1.Secret
	c.Get(tb, name, &s)
	text := map[string]string{}
	for k, v := range s.Data {
		text[k] = string(v)
	}
	return text
}

// PutSecret makes a Secret hold exactly this.
func (c *Cluster) PutSecret(tb testing.TB, name string, data map[string]string) {
	tb.Helper()
	text, err := yaml.Marshal(data)
	if err != nil {
		tb.Fatal(err)
	}
	c.Apply(tb, "apiVersion: v1\nkind: Secret\nmetadata: {name: "+name+"}\nstringData:\n  "+
		strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ")+"\n")
}

// Await waits until a stack is as it should be: until is nil, or says what is
// missing. It returns the stack as it then was.
func (c *Cluster) Await(tb testing.TB, name string, until func(*infrav1alpha2.Terraform) error) *infrav1alpha2.Terraform {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), settleWithin)
	defer cancel()
	var s infrav1alpha2.Terraform
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		s = infrav1alpha2.Terraform{}
		if last = c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &s); last == nil {
			last = until(&s)
		}
		return last == nil, nil
	})
	if err != nil {
		tb.Fatalf("waiting for the stack %s: %v, at last: %v; %s", name, err, last, describe(&s))
	}
	return &s
}

// AwaitReady waits until a stack is ready, and says so of its newest spec.
func (c *Cluster) AwaitReady(tb testing.TB, name string) *infrav1alpha2.Terraform {
	tb.Helper()
	return c.Await(tb, name, IsReady)
}

// AwaitReason waits until the Ready condition bears a reason, for the newest spec.
func (c *Cluster) AwaitReason(tb testing.TB, name, reason string) *infrav1alpha2.Terraform {
	tb.Helper()
	return c.Await(tb, name, HasReason(reason))
}

// AwaitPending waits until a plan waits for approval.
func (c *Cluster) AwaitPending(tb testing.TB, name string) *infrav1alpha2.Terraform {
	tb.Helper()
	return c.Await(tb, name, func(s *infrav1alpha2.Terraform) error {
		if s.Status.Plan.Pending == "" {
			return errors.New("no plan is pending")
		}
		return HasReason("TerraformPlannedWithChanges")(s)
	})
}

// AwaitGone waits until a stack does not exist.
func (c *Cluster) AwaitGone(tb testing.TB, name string) {
	tb.Helper()
	Eventually(tb, settleWithin, "the stack "+name+" is gone", func(ctx context.Context) error {
		var s infrav1alpha2.Terraform
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &s)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New(describe(&s)))
	})
}

// IsReady says why a stack is not ready, if it is not.
func IsReady(s *infrav1alpha2.Terraform) error {
	return hasReady(s, func(c *metav1.Condition) bool { return c.Status == metav1.ConditionTrue }, "it is not ready")
}

// HasReason says of a stack why its Ready condition does not bear a reason.
func HasReason(reason string) func(*infrav1alpha2.Terraform) error {
	return func(s *infrav1alpha2.Terraform) error {
		return hasReady(s, func(c *metav1.Condition) bool { return c.Reason == reason }, "the reason is not "+reason)
	}
}

func hasReady(s *infrav1alpha2.Terraform, is func(*metav1.Condition) bool, complaint string) error {
	c := meta.FindStatusCondition(s.Status.Conditions, "Ready")
	switch {
	case c == nil || s.Status.ObservedGeneration != s.Generation || c.ObservedGeneration != s.Generation:
		return errors.New("the newest spec was not looked at")
	case !is(c):
		return errors.New(complaint)
	}
	return nil
}

// Patch changes a stack by a JSON merge patch.
func (c *Cluster) Patch(tb testing.TB, name, patch string) {
	tb.Helper()
	s := &infrav1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	if err := c.Client.Patch(tb.Context(), s, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		tb.Fatalf("patching %s with %s: %v", name, patch, err)
	}
}

// Delete deletes a stack and waits for nothing.
func (c *Cluster) Delete(tb testing.TB, name string) {
	tb.Helper()
	s := &infrav1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	if err := c.Client.Delete(tb.Context(), s); err != nil {
		tb.Fatalf("deleting %s: %v", name, err)
	}
}

// describe is the status of a stack in one line.
func describe(s *infrav1alpha2.Terraform) string {
	var b strings.Builder
	for _, c := range s.Status.Conditions {
		fmt.Fprintf(&b, "%s=%s/%s (%s); ", c.Type, c.Status, c.Reason, c.Message)
	}
	if t := s.Status.Terrier; t != nil {
		fmt.Fprintf(&b, "rule %q, pending %q", t.Rule, s.Status.Plan.Pending)
	}
	return b.String()
}

// Story is what a person would look at first: the stacks and the events.
func (c *Cluster) Story() string {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	here := client.InNamespace(c.Namespace)
	var b strings.Builder
	var stacks infrav1alpha2.TerraformList
	if err := c.Client.List(ctx, &stacks, here); err != nil {
		return err.Error()
	}
	for i := range stacks.Items {
		s := &stacks.Items[i]
		fmt.Fprintf(&b, "stack %s: %s\n", s.Name, describe(s))
		if t := s.Status.Terrier; t != nil && t.Memory != nil {
			fmt.Fprintf(&b, "  memory %s\n", t.Memory.Raw)
		}
	}
	var events corev1.EventList
	if err := c.Client.List(ctx, &events, here); err != nil {
		return err.Error()
	}
	for _, e := range events.Items {
		fmt.Fprintf(&b, "event %s %s %s/%s: %s\n", e.LastTimestamp.Format(time.TimeOnly), e.Type, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return b.String()
}
