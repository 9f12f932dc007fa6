package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
)

var (
	cluster = flag.String("cluster", "", "kubeconfig of a cluster for the parts node and fleet, which installs our kinds there; run it where pods reach -cluster-host and the node has bin/mirror, such as in `cluster exec`")
	image   = flag.String("cluster-image", "terrier-runner", "image of the runs there")
	host    = flag.String("cluster-host", "172.30.0.1", "address of this machine for pods there")
)

// Those that serve the pods of a real node.
const (
	controlPlane = "control plane"
	restOfNode   = "kubelet, containerd and the rest of the node"
)

// onNode measures what a run costs in a pod of a real node and as a process, as the part
// pods does with a simulated kubelet.
func onNode(ctx context.Context, b *bench, out io.Writer) (err error) {
	if *cluster == "" {
		return nil // there is none
	}
	g, err := groupOfCluster()
	if err != nil {
		return err
	}
	mirror := v1alpha2.RunnerPodTemplate{Spec: v1alpha2.RunnerPodSpec{
		Volumes:      []corev1.Volume{{Name: "mirror", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: b.bin("mirror")}}}},
		VolumeMounts: []corev1.VolumeMount{{Name: "mirror", MountPath: "/usr/local/bin/mirror", ReadOnly: true}},
	}}
	forget, err := leaveNoSystem(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, forget()) }()
	carriers := []carrier{
		{name: "as a process", outside: nothing, others: alone, settled: shortly},
		{name: "as a pod of a real node", outside: g.pods, others: g.others, template: mirror},
	}
	for i := range carriers {
		c := &carriers[i]
		c.namespace = fmt.Sprintf("bench-%d-%d", time.Now().Unix(), i)
		c.e = &estate{b: b, dir: filepath.Join(b.scratch, fmt.Sprint("cluster-", i)), kubeconfig: *cluster, flags: []string{"--lease=", "--watch-namespace", c.namespace}}
		if i > 0 {
			c.e.flags = append(c.e.flags, podsOfNode()...)
			c.settled = func(ctx context.Context) error { return c.e.withoutPods(ctx, c.namespace) }
		}
		defer func() { err = errors.Join(err, c.e.leave(c.namespace)) }()
		if err := c.e.visit(ctx, c.namespace); err != nil {
			return err
		}
	}
	return b.carry(ctx, out, carriers)
}

// podsOfNode are the flags of a controller beside the cluster whose runs are pods of the node.
func podsOfNode() []string {
	return []string{"--runs-as", "pods", "--run-image", *image, "--run-resources", "requests.cpu=10m", "--run-resources", "requests.memory=64Mi", "--min-isolation", "1",
		"--http-address", *host + ":0", "--http-host", *host}
}

// nodeEstate starts an estate whose runs are pods of the real node. The cluster is one of
// tests: the estate is in the namespaces default and tenant-N, which the caller's close
// empties and removes.
func nodeEstate(ctx context.Context, b *bench, name string, flags ...string) (*podEstate, error) {
	e := &podEstate{carries: restOfNode}
	e.estate = &estate{b: b, dir: filepath.Join(b.scratch, name), kubeconfig: *cluster,
		flags: append(append(podsOfNode(), "--lease=", "--metrics-address", "127.0.0.1:0"), flags...)}
	var err error
	if e.group, err = groupOfCluster(); err != nil {
		return e, err
	}
	if e.forget, err = leaveNoSystem(ctx); err != nil {
		return e, err
	}
	if e.client, err = connect(e.kubeconfig); err != nil {
		return e, err
	}
	if _, err := e.reach(); err != nil {
		return e, err
	}
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return e, err
	}
	return e, e.start(ctx)
}

// leaveAll removes all stacks of the cluster and the namespaces tenant-N, and ends the
// controller.
func (e *podEstate) leaveAll() (err error) {
	defer func() { err = errors.Join(err, e.estate.close()) }()
	ctx, done := context.WithTimeout(context.Background(), 5*stopWithin)
	defer done()
	if e.controller == nil || e.controller.ProcessState != nil { // it releases what is deleted
		if err := e.start(ctx); err != nil {
			return err
		}
	}
	var namespaces corev1.NamespaceList
	if err := e.client.List(ctx, &namespaces); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, ns := range namespaces.Items {
		tenant := strings.HasPrefix(ns.Name, "tenant-")
		if tenant || ns.Name == metav1.NamespaceDefault {
			g.Go(func() error {
				err := empty(ctx, e.client, ns.Name)
				if tenant {
					err = errors.Join(err, e.client.Delete(ctx, &ns))
				}
				return err
			})
		}
	}
	return g.Wait()
}

// leaveNoSystem returns what removes the namespace of Terrier from the cluster, if there is
// none yet.
func leaveNoSystem(ctx context.Context) (forget func() error, err error) {
	c, err := connect(*cluster)
	if err != nil {
		return nil, err
	}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: access.ServerNamespace}}
	err = c.Get(ctx, client.ObjectKeyFromObject(system), system)
	if err == nil {
		return func() error { return nil }, nil
	}
	return func() error { return client.IgnoreNotFound(c.Delete(context.WithoutCancel(ctx), system)) }, client.IgnoreNotFound(err)
}

// group is the control group, of version 1, of a cluster that tools/cluster runs. The
// containers of pods are in a group below it.
type group string

func groupOfCluster() (group, error) {
	name := os.Getenv("TERRIER_CLUSTER_GROUP")
	if name == "" {
		return "", errors.New("-cluster: TERRIER_CLUSTER_GROUP is not set, which says whose CPU is measured: `make bench-cluster` runs this in the network of a cluster of this machine")
	}
	return group(name), nil
}

// cpu is what all processes of the group, and of one below it, have ever used.
func (g group) cpu(below ...string) (time.Duration, error) {
	path := filepath.Join(append([]string{"/sys/fs/cgroup/cpuacct", string(g)}, below...)...)
	text, err := os.ReadFile(filepath.Join(path, "cpuacct.usage"))
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(ns), err
}

// pods is the CPU of the containers of all pods.
func (g group) pods() (time.Duration, error) { return g.cpu("k8s.io") }

// others is the CPU of what carries pods: the control plane, and the programs of the node.
func (g group) others() (map[string]time.Duration, error) {
	all, err := g.cpu()
	if err != nil {
		return nil, err
	}
	pods, err := g.pods()
	if err != nil {
		return nil, err
	}
	plane := time.Duration(0)
	members, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", string(g), "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	for _, pid := range strings.Fields(string(members)) {
		n, err := strconv.Atoi(pid)
		if err != nil {
			return nil, err
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n))
		if err != nil {
			continue // a process of the runtime that has ended meanwhile
		}
		switch strings.TrimSpace(string(name)) {
		case "etcd", "kube-apiserver", "kube-scheduler", "kube-controller": // the kernel keeps 15 characters
			used, err := cpuOf(n)
			if err != nil {
				return nil, err
			}
			plane += used
		}
	}
	return map[string]time.Duration{controlPlane: plane, restOfNode: all - pods - plane}, nil
}

// meter notes what the cluster has used until now.
func (g group) meter(m *podMeter) error {
	others, err := g.others()
	if err != nil {
		return err
	}
	m.plane.cpu = others[controlPlane]
	m.node = others[restOfNode]
	m.runs, err = g.pods()
	return err
}

// withoutPods returns once no pod is left in a namespace.
func (e *estate) withoutPods(ctx context.Context, namespace string) error {
	for {
		var pods corev1.PodList
		if err := e.client.List(ctx, &pods, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil || len(pods.Items) == 0 {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// visit starts a controller of one new namespace of a cluster that is there.
func (e *estate) visit(ctx context.Context, namespace string) (err error) {
	if e.client, err = connect(e.kubeconfig); err != nil {
		return err
	}
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
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
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	return errors.Join(empty(ctx, e.client, namespace), e.client.Delete(ctx, ns), e.close())
}

// empty deletes the stacks of a namespace, waits until they are gone, and deletes their states.
func empty(ctx context.Context, c client.Client, namespace string) error {
	here := client.InNamespace(namespace)
	if err := c.DeleteAllOf(ctx, &v1alpha2.Terraform{}, here); err != nil {
		return err
	}
	for left := (v1alpha2.TerraformList{}); ; {
		if err := c.List(ctx, &left, here); err != nil {
			return err
		}
		if len(left.Items) == 0 {
			return c.DeleteAllOf(ctx, &corev1.Secret{}, here, client.HasLabels{"tfstateSecretSuffix"})
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("%d stacks of %s are not gone: %w", len(left.Items), namespace, err)
		}
	}
}
