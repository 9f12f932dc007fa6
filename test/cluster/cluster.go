// Package cluster tests on a real Kubernetes cluster, which tools/cluster runs
// and `make test-cluster` starts. Its tests run in the cluster's network: they
// reach pods and Services, and pods reach them.
//
// It makes no cluster. Without one it runs no test. Start reading at Open.
package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
)

const (
	// NodeAddress is where pods reach what a test serves, on any port.
	NodeAddress = "172.30.0.1"
	// Registry is where tests push images. Pods pull them from there by the name
	// of any registry.
	Registry = "localhost:5000"
)

// root is the tree of this commit.
var root = filepath.Join("..", "..")

// Cluster is a namespace of the real cluster, for one test.
type Cluster struct {
	Config    *rest.Config
	Client    kubernetes.Interface
	Namespace string
}

// Running says whether this process runs in a cluster's network.
func Running() bool { return os.Getenv("TERRIER_CLUSTER") != "" }

// Kubeconfig is the file of the cluster's administrator.
func Kubeconfig() string { return filepath.Join(os.Getenv("TERRIER_CLUSTER"), "kubeconfig") }

// Open gives the test a namespace, which ends with it. Labels are those of the
// namespace, in pairs.
func Open(tb testing.TB, labels ...string) *Cluster {
	tb.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", Kubeconfig())
	if err != nil {
		tb.Fatal(err)
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: map[string]string{}}}
	for i := 0; i+1 < len(labels); i += 2 {
		namespace.Labels[labels[i]] = labels[i+1]
	}
	namespace, err = client.CoreV1().Namespaces().Create(tb.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 10*time.Second)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
			tb.Error(err)
		}
	})
	c := &Cluster{Config: config, Client: client, Namespace: namespace.Name}
	// Pods are refused until their account is there.
	Await(tb, c.Client.CoreV1().RESTClient(), "serviceaccounts", c.Namespace, "default", "there", &corev1.ServiceAccount{}, func(*corev1.ServiceAccount) bool { return true })
	return c
}

// Pod starts a pod of one container, which change may alter first, and waits
// until it runs or has ended.
func (c *Cluster) Pod(tb testing.TB, name, image string, args []string, change ...func(*corev1.Pod)) *corev1.Pod {
	tb.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(2)), RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: image, Args: args}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	if _, err := c.Client.CoreV1().Pods(c.Namespace).Create(tb.Context(), pod, metav1.CreateOptions{}); err != nil {
		tb.Fatal(err)
	}
	return c.AwaitPod(tb, name, "running or ended", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning || Ended(p)
	})
}

// Ended says whether a pod's containers have all ended.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// AwaitPod watches a pod until it is as wanted.
func (c *Cluster) AwaitPod(tb testing.TB, name, what string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	tb.Helper()
	return Await(tb, c.Client.CoreV1().RESTClient(), "pods", c.Namespace, name, what, &corev1.Pod{}, wanted)
}

// AwaitDeployment watches a Deployment until all its pods are available.
func (c *Cluster) AwaitDeployment(tb testing.TB, name string) *appsv1.Deployment {
	tb.Helper()
	return Await(tb, c.Client.AppsV1().RESTClient(), "deployments", c.Namespace, name, "available", &appsv1.Deployment{}, func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas
	})
}

// Await watches one object until it is as wanted, for two minutes.
func Await[T runtime.Object](tb testing.TB, client rest.Interface, resource, namespace, name, what string, of T, wanted func(T) bool) T {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	one := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector("metadata.name", name))
	last := of
	_, err := watchtools.UntilWithSync(ctx, one, of, nil, func(e watch.Event) (bool, error) {
		if e.Type == watch.Deleted {
			return false, nil
		}
		last = e.Object.(T)
		return wanted(last), nil
	})
	if err != nil {
		tb.Fatalf("%s %s did not become %s: %v\nlast seen: %+v", resource, name, what, err, last)
	}
	return last
}

// Exec runs a command in a pod, and returns what it prints.
func (c *Cluster) Exec(tb testing.TB, pod string, command ...string) (string, error) {
	tb.Helper()
	return c.Kubectl(tb, append([]string{"exec", pod, "--"}, command...)...)
}

// Kubectl runs kubectl in the test's namespace, and returns what it prints.
func (c *Cluster) Kubectl(tb testing.TB, args ...string) (string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "bin", "kubectl"), append([]string{"--namespace", c.Namespace}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %q: %w: %s", args, err, stderr.String())
	}
	return stdout.String(), nil
}

// Logs are what a pod's container has printed.
func (c *Cluster) Logs(tb testing.TB, pod string) string {
	tb.Helper()
	text, err := c.Client.CoreV1().Pods(c.Namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// Eventually tries until something succeeds, for a minute.
func Eventually(tb testing.TB, what string, try func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for err := try(ctx); err != nil; err = try(ctx) {
		select {
		case <-ctx.Done():
			tb.Fatalf("not %s: %v", what, err)
		case <-tick.C:
		}
	}
}
