package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Code of a module finds no token in its pod, and takes some seconds.
const secretive = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: net}
spec:
  interval: 1h
  destroyResourcesOnDeletion: true
  writeOutputsToSecret: {name: out}
  values:
    hcl: |
      resource "terraform_data" "a" {
        input = "one"
        provisioner "local-exec" {
          command = "if read x </run/terrier/token/token; then exit 9; fi; i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done"
        }
      }
      output "a" {
        value = terraform_data.a.output
      }
`

// A stack is planned, applied and destroyed by pods of a real node in a namespace with
// the Pod Security standard restricted. The controller is killed while one of them
// applies, and the next one finds it.
func TestRunsAreRealPods(t *testing.T) {
	image := PushImage(t, "terrier-runner")
	t.Setenv("TERRIER_TEST_KUBECONFIG", Kubeconfig())
	t.Setenv("TERRIER_TEST_BINARY", filepath.Join("..", "..", "bin", "images", runtime.GOOS+"_"+runtime.GOARCH, "terrier"))
	c := testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
	restricted := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := c.Client.Patch(t.Context(), namespace, restricted); err != nil {
		t.Fatal(err)
	}
	set, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	removed(t, &Cluster{Client: set}, chartNamespace) // which the controller makes
	p, err := testkit.NewPlatform(testkit.PlatformOptions{
		Dir: filepath.Join(t.TempDir(), "platform"), Cluster: c, Elsewhere: true,
		Flags: []string{
			"--lease=", "--http-address", "172.30.0.1:0", "--http-host", "172.30.0.1",
			"--runs-as", "pods", "--run-image", image, "--run-resources", "requests.cpu=10m",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\nthe controller said:\n%s", c.Story(), p.Log())
		}
		c.Abandon(t)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	c.Apply(t, secretive)
	plan := c.AwaitPending(t, "net").Status.Plan.Pending
	c.Patch(t, "net", `{"spec":{"approvePlan":"`+plan+`"}}`)
	testkit.Eventually(t, testkit.Patience, "a pod has begun to apply", func(ctx context.Context) error {
		pods, err := set.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "terrier.dev/run-kind=apply"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			log, err := set.CoreV1().Pods(c.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err == nil && strings.Contains(string(log), "run begins") {
				return nil
			}
		}
		return errors.New("none has")
	})
	if err := errors.Join(p.Kill(), p.Start()); err != nil {
		t.Fatal(err)
	}
	c.AwaitReady(t, "net")
	if got := c.Secret(t, "out")["a"]; got != "one" {
		t.Errorf("the output is %q, want one", got)
	}
	c.Delete(t, "net")
	c.AwaitGone(t, "net")
	testkit.Eventually(t, testkit.Patience, "no pod is left", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(c.Namespace)); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return errors.New(pods.Items[0].Name + " is there")
		}
		return nil
	})
}
