package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// podCount counts pods that have not ended at every moment that a watch tells of.
type podCount struct {
	tenantOf map[string]string // by the name of the stack

	mu     sync.Mutex
	alive  map[types.UID]*corev1.Pod
	most   map[string]int // that ever were at once, by what is counted
	checks map[string]int // that were begun, by stack
}

// countPods counts the pods of runs in the test's namespace until the end of the test.
func countPods(t *testing.T, c *testkit.Cluster, tenantOf map[string]string) *podCount {
	t.Helper()
	set, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := set.CoreV1().Pods(c.Namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := &podCount{tenantOf: tenantOf, alive: map[types.UID]*corev1.Pod{}, most: map[string]int{}, checks: map[string]int{}}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				n.tell(e.Type, pod)
			}
		}
	}()
	t.Cleanup(func() { w.Stop(); <-told })
	return n
}

func (n *podCount) tell(what watch.EventType, pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	stack := strings.TrimPrefix(pod.Annotations["terrier.dev/stack"], pod.Namespace+"/")
	if what == watch.Added && pod.Labels["terrier.dev/run-kind"] == "check" {
		n.checks[stack]++
	}
	n.alive[pod.UID] = pod
	if what == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		delete(n.alive, pod.UID)
	}
	now := map[string]int{"all": len(n.alive)}
	for _, p := range n.alive {
		now["tenant "+n.tenantOf[strings.TrimPrefix(p.Annotations["terrier.dev/stack"], p.Namespace+"/")]]++
		now["kind "+p.Labels["terrier.dev/run-kind"]]++
	}
	for of, count := range now {
		n.most[of] = max(n.most[of], count)
	}
}

// LQ-02: the limits of all runs, of a tenant and of a class hold at every moment, counted
// in pods that have not ended, and each stack of each tenant has its runs.
func TestPodsKeepToTheLimits(t *testing.T) {
	t.Parallel()
	const stacks, tenants, all, ofATenant, ofDrift = 9, 3, 3, 2, 2
	_, c, w, k := runsAsPods(t, "--max-runs", fmt.Sprint(all), "--max-runs-per-tenant", fmt.Sprint(ofATenant), "--max-runs-per-class", fmt.Sprint("drift=", ofDrift))
	tenantOf := map[string]string{}
	var manifests, states []string
	for i := range stacks {
		name, tenant := fmt.Sprint("stack-", i), fmt.Sprint("t", i%tenants)
		tenantOf[name], states = tenant, append(states, "tfstate-default-"+name)
		m := inline(name, "approvePlan: auto\ninterval: 2s\nretryInterval: 1s", things(w, "x", name))
		manifests = append(manifests, strings.Replace(m, "metadata: {name: "+name+"}", "metadata: {name: "+name+", labels: {terrier.dev/tenant: "+tenant+"}}", 1))
	}
	pods := countPods(t, c, tenantOf)
	c.Apply(t, strings.Join(manifests, "---\n"))
	testkit.Eventually(t, 3*testkit.Patience, "every stack has had two drift checks", func(context.Context) error {
		pods.mu.Lock()
		defer pods.mu.Unlock()
		for name := range tenantOf {
			if pods.checks[name] < 2 {
				return fmt.Errorf("%s has had %d", name, pods.checks[name])
			}
		}
		return nil
	})
	for name := range tenantOf {
		c.Patch(t, name, `{"spec":{"suspend":true}}`)
	}
	nothingLeft(t, c, k, states...)
	pods.mu.Lock()
	defer pods.mu.Unlock()
	limits := map[string]int{"all": all, "kind check": ofDrift}
	for i := range tenants {
		limits[fmt.Sprint("tenant t", i)] = ofATenant
	}
	for of, limit := range limits {
		if got := pods.most[of]; got > limit || got == 0 {
			t.Errorf("%s: %d pods at once, want some and no more than %d", of, got, limit)
		}
	}
	for name := range tenantOf {
		if s := c.Stack(t, name); s.Status.ReconciliationFailures != 0 {
			t.Errorf("%s failed %d times: %v", name, s.Status.ReconciliationFailures, s.Status.Conditions)
		}
	}
}
