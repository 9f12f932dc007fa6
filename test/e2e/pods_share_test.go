package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// podRuns are the runs that each pod carried out, as a watch tells of them.
type podRuns struct {
	podCount
	runs map[types.UID][]string // the stacks, in their order
	last map[types.UID]string   // the last run of each
}

// watchRuns counts the runs of pods in the test's namespace until the end of the test.
func watchRuns(t *testing.T, c *testkit.Cluster, tenantOf map[string]string) *podRuns {
	t.Helper()
	set, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := set.CoreV1().Pods(c.Namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := &podRuns{
		podCount: podCount{tenantOf: tenantOf, alive: map[types.UID]*corev1.Pod{}, most: map[string]int{}, checks: map[string]int{}},
		runs:     map[types.UID][]string{}, last: map[types.UID]string{},
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				n.tell(e.Type, pod)
				n.note(pod)
			}
		}
	}()
	t.Cleanup(func() { w.Stop(); <-told })
	return n
}

func (n *podRuns) note(pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if run := pod.Annotations["terrier.dev/run-key"] + "/" + pod.Annotations["terrier.dev/run"]; n.last[pod.UID] != run {
		n.last[pod.UID] = run
		n.runs[pod.UID] = append(n.runs[pod.UID], strings.TrimPrefix(pod.Annotations["terrier.dev/stack"], pod.Namespace+"/"))
	}
}

// awaitShared waits until a pod, which is not among the others, has carried out a number of
// runs.
func (n *podRuns) awaitShared(t *testing.T, runs int, others ...types.UID) {
	t.Helper()
	testkit.Eventually(t, 3*testkit.Patience, fmt.Sprintf("a pod has carried out %d runs", runs), func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		most := 0
		for uid, had := range n.runs {
			if !slices.Contains(others, uid) {
				most = max(most, len(had))
			}
		}
		if most < runs {
			return fmt.Errorf("the most is %d", most)
		}
		return nil
	})
}

// keptTo compares the most pods that were there at once with limits.
func (n *podRuns) keptTo(t *testing.T, limits map[string]int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for of, limit := range limits {
		if got := n.most[of]; got > limit || got == 0 {
			t.Errorf("%s: %d pods at once, want some and no more than %d", of, got, limit)
		}
	}
}

// had are the pods so far.
func (n *podRuns) had() (all []types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid := range n.runs {
		all = append(all, uid)
	}
	return all
}

// LQ-02: quiet checks of one tenant share pods where the platform says so, none with a check of
// another tenant, within the limits of runs, and over the death of pods and of the controller.
func TestQuietChecksShareAPod(t *testing.T) {
	t.Parallel()
	const stacks, most, all, ofATenant = 5, 8, 2, 1
	// No directory of the node may be writable for all runs, so there is no world.
	p, c, k := podsOf(t, filepath.Join(testkit.Repository(t), "bin", "terrier-runner"), testkit.PlatformOptions{Elsewhere: true},
		"--checks-per-pod", fmt.Sprint(most), "--max-runs", fmt.Sprint(all), "--max-runs-per-tenant", fmt.Sprint(ofATenant))
	tenantOf := map[string]string{}
	var manifests, states []string
	for i := range stacks + 2 {
		name, tenant := fmt.Sprint("stack-", i), "a"
		if i >= stacks {
			tenant = "b"
		}
		tenantOf[name], states = tenant, append(states, "tfstate-default-"+name)
		m := inline(name, "approvePlan: auto\ninterval: 1s\nretryInterval: 1s", "resource \"terraform_data\" \"it\" {}")
		manifests = append(manifests, strings.Replace(m, "metadata: {name: "+name+"}", "metadata: {name: "+name+", labels: {terrier.dev/tenant: "+tenant+"}}", 1))
	}
	pods := watchRuns(t, c, tenantOf)
	c.Apply(t, strings.Join(manifests, "---\n"))
	pods.awaitShared(t, stacks)

	before := pods.had()
	if err := c.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(c.Namespace)); err != nil { // as drains do
		t.Fatal(err)
	}
	pods.awaitShared(t, 2, before...)

	// A controller that was restarted counts a run that ends before its stack was reconciled
	// as ended, so this is about what came before.
	pods.keptTo(t, map[string]int{"all": all, "tenant a": ofATenant, "tenant b": ofATenant})
	before = pods.had()
	kill(t, p)
	start(t, p)
	pods.awaitShared(t, 2, before...)

	for name := range tenantOf {
		c.AwaitReason(t, name, "NoDrift")
		c.Patch(t, name, `{"spec":{"suspend":true}}`)
	}
	nothingLeft(t, c, k, states...)
	pods.mu.Lock()
	defer pods.mu.Unlock()
	for uid, had := range pods.runs {
		for _, name := range had {
			if tenantOf[name] != tenantOf[had[0]] {
				t.Errorf("the pod %s carried out runs of two tenants: %q", uid, had)
			}
		}
		if len(had) > most {
			t.Errorf("the pod %s carried out %d runs, want at most %d", uid, len(had), most)
		}
	}
}
