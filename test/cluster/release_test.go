package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/testkit"
)

const (
	// chartNamespace is the namespace of the release, of which there is one in a cluster.
	chartNamespace = "terrier-system"
	// team is where the tests push charts and images. Its host does not matter to pods.
	team = Registry + "/team"
	// worldVolume is where the pods of runs have the directory of a test.
	worldVolume = "/world"
)

// shipment is a version in the registry: a chart and its images.
type shipment struct {
	chart   string // for Helm
	version string
}

// args are those of a command of Helm that takes the chart.
func (s shipment) args() []string {
	return []string{s.chart, "--version", s.version, "--plain-http"}
}

// ship pushes the chart and the images of a tree as a version, as `make chart-push` and
// `make images-push` do for a release.
func ship(t *testing.T, tree, version string) shipment {
	t.Helper()
	for _, image := range []string{"terrier", "terrier-runner"} {
		push(t, imageOf(t, tree, image), "team/"+image+":v"+version)
	}
	push := exec.CommandContext(t.Context(), "make", "-C", tree, "--no-print-directory", "chart-push",
		"REGISTRY="+team, "VERSION=v"+version, "DIST="+t.TempDir(), "HELM_FLAGS=--plain-http")
	push.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := push.CombinedOutput(); err != nil {
		t.Fatalf("pushing the chart of %s: %v\n%s", tree, err, out)
	}
	return shipment{"oci://" + team + "/charts/terrier", version}
}

// nodeValues fit the chart to the node of the tests, which is small, and whose kernel may
// be older than the sandbox wants. Pods pull the images by the name of any registry.
const nodeValues = `
image: {repository: registry.example.com/team/terrier}
resources: {requests: {cpu: 50m, memory: 128Mi}}
persistence: {size: 1Gi}
networkPolicy: {enabled: true}
runs:
  image: {repository: registry.example.com/team/terrier-runner}
  resources: {requests: {cpu: 10m, memory: 64Mi}}
flags: {min-isolation: 1}
`

// release is the chart on the real node, and a namespace that its controller may use.
type release struct {
	*Cluster
	*testkit.Platform                  // what can be read of the controller
	stacks            *testkit.Cluster // the same namespace
	dir               string           // the volume /world of runs
	values            string           // the path of the values
	set               []string         // arguments of Helm with further values
}

// install installs a shipment. The labels are those of the namespace for stacks.
func install(t *testing.T, s shipment, values string, labels ...string) *release {
	t.Helper()
	r := prepare(t, values, labels...)
	r.deploy(t, s)
	return r
}

// prepare makes the namespaces for a release, and its values.
func prepare(t *testing.T, values string, labels ...string) *release {
	t.Helper()
	r := &release{Cluster: Open(t, labels...), dir: t.TempDir(), values: filepath.Join(t.TempDir(), "values.yaml")}
	openSystem(t, r.Cluster)
	values = nodeValues + fmt.Sprintf("rbac: {namespaces: [%s]}\n", r.Namespace) + values
	if err := os.WriteFile(r.values, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			r.tell(t)
		}
	})
	return r
}

// trust makes a ConfigMap with a certificate authority in namespaces, which values name as
// caBundle.
func (r *release) trust(t *testing.T, authority []byte, namespaces ...string) {
	t.Helper()
	authorities := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "authorities"}, Data: map[string]string{"ca.crt": string(authority)}}
	for _, namespace := range namespaces {
		if _, err := r.Client.CoreV1().ConfigMaps(namespace).Create(t.Context(), authorities, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// deploy installs a shipment with one controller, whose data directory is in a claim.
func (r *release) deploy(t *testing.T, s shipment) {
	t.Helper()
	helm(t, append(append(append([]string{"install", "terrier"}, s.args()...), "--values", r.values, "--wait", "--timeout", "3m"), r.set...)...)
	var err error
	if r.Platform, err = testkit.Installed(Kubeconfig(), volumeOf(t, r.Cluster, "terrier"), r.dir, worldVolume); err != nil {
		t.Fatal(err)
	}
	r.openStacks(t)
}

// openStacks makes a client of the stacks. What a failed test leaves of them goes with it,
// the pods of runs that would go on included.
func (r *release) openStacks(t *testing.T) {
	t.Helper()
	r.stacks = r.In(t, r.Namespace)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		r.stacks.Abandon(t)
		if out, err := r.kubectl(t, r.Namespace, "delete", "pods", "--all", "--grace-period=1"); err != nil {
			t.Errorf("removing pods: %v\n%s", err, out)
		}
	})
}

// openSystem makes the namespace of the release, which goes with the test.
func openSystem(t *testing.T, c *Cluster) {
	t.Helper()
	namespaces := c.Client.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: chartNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	removed(t, c, chartNamespace)
}

// removed removes a namespace after the test, and waits until it is gone.
func removed(t *testing.T, c *Cluster, name string) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := c.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
			_, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			t.Errorf("waiting until the namespace %s is gone: %v", name, err)
		}
	})
}

// volumeOf is where this machine has the volume of a claim of the controller.
func volumeOf(t *testing.T, c *Cluster, name string) string {
	t.Helper()
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(chartNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(os.Getenv("TERRIER_CLUSTER"), "lib", "volumes", claim.Spec.VolumeName)
}

// upgrade upgrades the release to a shipment.
func (r *release) upgrade(t *testing.T, s shipment, more ...string) {
	t.Helper()
	helm(t, append(append(append([]string{"upgrade", "terrier"}, s.args()...), "--values", r.values, "--wait", "--timeout", "5m"), append(r.set, more...)...)...)
}

// tell logs what happened, for a test that failed.
func (r *release) tell(t *testing.T) {
	t.Helper()
	said, err := r.kubectl(t, chartNamespace, "logs", "--selector=app.kubernetes.io/name=terrier", "--prefix", "--tail=200")
	pods, more := r.kubectl(t, r.Namespace, "get", "pods,terraforms,tenants,tenanttemplates,events", "-o", "wide")
	system, again := r.kubectl(t, chartNamespace, "get", "pods,events", "-o", "wide")
	t.Logf("%s\n%s\nthe controller said:\n%s\n%v", pods, system, said, errors.Join(err, more, again))
}

// kubectl runs kubectl in a namespace, also when the test is over.
func (r *release) kubectl(t *testing.T, namespace string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(root, "bin", "kubectl"), append([]string{"--namespace", namespace}, args...)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+Kubeconfig())
	out, err := c.CombinedOutput()
	return string(out), err
}

// must runs kubectl in the namespace of the release.
func (r *release) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.kubectl(t, chartNamespace, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// pods are the pods of runs in the namespace of the stacks, by their names.
func (r *release) pods(t *testing.T, selector string) map[string]corev1.Pod {
	t.Helper()
	list, err := r.Client.CoreV1().Pods(r.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=terrier-run," + selector})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]corev1.Pod{}
	for _, p := range list.Items {
		all[p.Name] = p
	}
	return all
}

// awaitOutput waits until a Secret with outputs has a value.
func (r *release) awaitOutput(t *testing.T, secret, output, want string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the output is "+want, func(ctx context.Context) error {
		s, err := r.Client.CoreV1().Secrets(r.Namespace).Get(ctx, secret, metav1.GetOptions{})
		if err == nil && string(s.Data[output]) != want {
			err = fmt.Errorf("it is %q", s.Data[output])
		}
		return err
	})
}

// awaitNoPods waits until no pod is left in the namespace.
func (c *Cluster) awaitNoPods(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "no pod is left in "+c.Namespace, func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%s is there", list.Items[0].Name)
		}
		return err
	})
}

// helm runs Helm for the release.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	home := t.TempDir()
	c := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "helm"), append(args, "--namespace", chartNamespace)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+Kubeconfig(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
