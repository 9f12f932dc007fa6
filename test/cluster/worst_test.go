package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// The faults of a worst day, on real pods, while one of them applies. Each time the
// apply comes to its end once, every resource is created once, and nothing is left.
func TestWorstDay(t *testing.T) {
	r := install(t, ship(t, root, "0.4.0"), "")
	for _, day := range []struct {
		name    string
		meets   func(*testing.T, *release, corev1.Pod)
		resumes bool // the apply is interrupted: the rest is planned again, and passes the gate once more
	}{
		{name: "controller killed", meets: killController},
		{name: "API server and etcd killed", meets: killControlPlane},
		{name: "kubelet silent", meets: silenceKubelet},
		{name: "containerd killed", meets: killContainerd},
		{name: "pod evicted", meets: evict, resumes: true},
	} {
		t.Run(day.name, func(t *testing.T) {
			witness := r.stacks.Witness(t, r.Platform)
			w := r.World(t)
			g := newGate(t, w)
			r.stacks.Apply(t, r.stackOf(t, "stack", approved, gated(w, g)))
			w.Await(t.Context(), func(c testkit.WorldCall) bool { return c.Call == "create" && c.Name == "a" && c.Phase == "done" })
			applying := r.pods(t, "terrier.dev/run-kind=apply")
			if len(applying) != 1 {
				t.Fatalf("the pods %v apply, want one", applying)
			}
			for _, pod := range applying {
				day.meets(t, r, pod)
			}
			if now := r.pods(t, "terrier.dev/run-kind=apply"); !day.resumes && !sameRunning(applying, now) {
				t.Errorf("the pods %v apply, want %v as before", now, applying)
			}
			g.open(t)
			r.stacks.AwaitReady(t, "stack")
			made(t, w, "a", "b")
			if leaked := w.Leaked(r.stacks.State(t, "stack")); len(leaked) > 0 {
				t.Errorf("%+v is in no state", leaked)
			}
			witness.Collect()
			r.stacks.Delete(t, "stack")
			r.stacks.AwaitGone(t, "stack")
			made(t, w)
			r.awaitNoPods(t)
			witness.Collect() // what was destroyed
			witness.CatchUp()
			witness.Judge(true)
		})
	}
	t.Run("quota used up", func(t *testing.T) { waitForQuota(t, r) })
	helm(t, "uninstall", "terrier", "--wait")
}

// killController takes the pod of the controller away by force. Another one comes.
func killController(t *testing.T, r *release, _ corev1.Pod) {
	t.Helper()
	r.must(t, "delete", "pod", "--selector=app.kubernetes.io/name=terrier", "--force", "--grace-period=0")
	r.must(t, "rollout", "status", "deployment/terrier", "--timeout=3m")
}

// killControlPlane kills etcd and the API server, which are started again.
func killControlPlane(t *testing.T, r *release, _ corev1.Pod) {
	t.Helper()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		signal(t, name, unix.SIGKILL)
	}
	testkit.Eventually(t, testkit.Patience, "the API server is ready", func(ctx context.Context) error {
		_, err := r.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// killContainerd kills containerd, which is started again. Containers do not notice.
func killContainerd(t *testing.T, _ *release, _ corev1.Pod) {
	t.Helper()
	was := signal(t, "containerd", unix.SIGKILL)
	testkit.Eventually(t, testkit.Patience, "containerd runs again", func(context.Context) error {
		if now := processes(t, "containerd"); len(now) != 1 || now[0] == was {
			return fmt.Errorf("it runs as %v", now)
		}
		return nil
	})
}

// silenceKubelet stops the kubelet until the node is taken for lost, and the stack says so.
func silenceKubelet(t *testing.T, r *release, pod corev1.Pod) {
	t.Helper()
	signal(t, "kubelet", unix.SIGSTOP)
	defer signal(t, "kubelet", unix.SIGCONT)
	r.awaitMessage(t, "stack", "the node "+pod.Spec.NodeName+" does not answer, and the pod "+pod.Name+" may go on there")
	got := r.pods(t, "terrier.dev/run-kind")
	maps.DeleteFunc(got, func(_ string, p corev1.Pod) bool { return p.DeletionTimestamp != nil }) // that of the plan ends once the kubelet goes on
	if len(got) != 1 {
		t.Errorf("while the pod may go on there are %q, want no second one", slices.Sorted(maps.Keys(got)))
	}
}

// evict takes the pod of the apply from its node, as a drain does.
func evict(t *testing.T, r *release, pod corev1.Pod) {
	t.Helper()
	err := r.Client.PolicyV1().Evictions(r.Namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: r.Namespace}})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the rest is applied by another pod", func(context.Context) error {
		for name, p := range r.pods(t, "terrier.dev/run-kind=apply") {
			if name != pod.Name && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// waitForQuota lets a stack wait for room in a quota.
func waitForQuota(t *testing.T, r *release) {
	quotas := r.Client.CoreV1().ResourceQuotas(r.Namespace)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	if _, err := quotas.Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the quota is in force", func(ctx context.Context) error {
		q, err := quotas.Get(ctx, "none", metav1.GetOptions{})
		if err == nil && len(q.Status.Hard) == 0 {
			err = errors.New("it is not counted")
		}
		return err
	})
	w := r.World(t)
	r.stacks.Apply(t, r.stackOf(t, "stack", approved, w.HCL()+thing("a", "1")))
	r.awaitMessage(t, "stack", "the ResourceQuota of the namespace "+r.Namespace+" has no room for the pod of the run: exceeded quota: none")
	if s := r.stacks.Stack(t, "stack"); s.Status.ReconciliationFailures != 0 {
		t.Errorf("%d failures are counted, want none", s.Status.ReconciliationFailures)
	}
	if err := quotas.Delete(t.Context(), "none", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.stacks.AwaitReady(t, "stack")
	made(t, w, "a")
	r.stacks.Delete(t, "stack")
	r.stacks.AwaitGone(t, "stack")
	r.awaitNoPods(t)
}

// awaitMessage waits until the Ready condition of a stack says something.
func (r *release) awaitMessage(t *testing.T, stack, what string) {
	t.Helper()
	r.stacks.Await(t, stack, func(s *v1alpha2.Terraform) error {
		ready := meta.FindStatusCondition(s.Status.Conditions, "Ready")
		if ready == nil || !strings.Contains(ready.Message, what) {
			return fmt.Errorf("the condition does not say %q", what)
		}
		return nil
	})
}

// signal sends a signal to a process of the node, which runs once, and returns its id.
func signal(t *testing.T, name string, s unix.Signal) int {
	t.Helper()
	found := processes(t, name)
	if len(found) != 1 {
		t.Fatalf("%s runs as %v, want one process", name, found)
	}
	if err := unix.Kill(found[0], s); err != nil {
		t.Fatal(err)
	}
	return found[0]
}

// processes are the processes of a program in the network of this test, which is that of
// the node.
func processes(t *testing.T, program string) []int {
	t.Helper()
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return processesOf(t, func(args []string, network string) bool { return network == here && filepath.Base(args[0]) == program })
}

// processesOf are the processes with the arguments and in the network that are wanted.
func processesOf(t *testing.T, wanted func(args []string, network string) bool) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that ends meanwhile is none.
		network, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns", "net"))
		if err != nil {
			continue
		}
		command, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && wanted(strings.Split(string(command), "\x00"), network) {
			found = append(found, pid)
		}
	}
	return found
}
