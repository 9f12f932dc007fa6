package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The chart is installed in this namespace, of which there is one in a cluster.
const chartNamespace = "terrier-system"

func helm(t *testing.T, args ...string) string {
	t.Helper()
	bin, home := filepath.Join("..", "..", "bin", "helm"), t.TempDir()
	c := exec.CommandContext(t.Context(), bin, append(args, "--namespace", chartNamespace)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+Kubeconfig(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

const wordStack = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: word}
spec:
  approvePlan: auto
  interval: 1h
  retryInterval: 1s
  varsFrom: [{kind: Secret, name: inputs}]
  values:
    hcl: |
      variable "word" { type = string }
      resource "terraform_data" "it" { input = var.word }
      output "word" { value = terraform_data.it.output }
  writeOutputsToSecret: {name: word-outputs}
`

// The chart as it is by default, on a real node: the controller and the pods of runs
// start under Pod Security "restricted" with the network policies in force, and an
// upgrade keeps what was applied.
func TestChart(t *testing.T) {
	c := openRestricted(t)
	if _, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: chartNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := c.Client.CoreV1().Namespaces().Delete(ctx, chartNamespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	controller, tag, _ := strings.Cut(strings.TrimPrefix(PushImage(t, "terrier"), Registry+"/"), ":")
	runs, runsTag, _ := strings.Cut(strings.TrimPrefix(PushImage(t, "terrier-runner"), Registry+"/"), ":")
	values := fmt.Sprintf("image.repository="+Registry+"/%s,image.tag=%s,runs.image.repository="+Registry+"/%s,runs.image.tag=%s,rbac.namespaces={%s},networkPolicy.enabled=true,flags.min-isolation=1,persistence.size=1Gi,runs.resources.requests.cpu=100m",
		controller, tag, runs, runsTag, c.Namespace)
	chart := filepath.Join("..", "..", "charts", "terrier")
	helm(t, "install", "terrier", chart, "--set", values, "--wait", "--timeout", "2m")

	stack := filepath.Join(t.TempDir(), "stack.yaml")
	if err := os.WriteFile(stack, []byte(wordStack), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"create", "secret", "generic", "inputs", "--from-literal=word=first"}, {"apply", "-f", stack}} {
		if _, err := c.Kubectl(t, args...); err != nil {
			t.Fatal(err)
		}
	}
	applied := func(word string) {
		t.Helper()
		Eventually(t, "applied with the word "+word, func(context.Context) error {
			text, err := c.Kubectl(t, "get", "secret", "word-outputs", "-o", "jsonpath={.data.word}")
			if err != nil {
				return err
			}
			if got, err := base64.StdEncoding.DecodeString(text); err != nil || string(got) != word {
				return errors.Join(fmt.Errorf("the output is %q", got), err)
			}
			return nil
		})
	}
	applied("first")

	helm(t, "upgrade", "terrier", chart, "--reuse-values", "--set", "podAnnotations.upgraded=yes", "--wait", "--timeout", "2m")
	if _, err := c.Kubectl(t, "patch", "secret", "inputs", "-p", `{"stringData":{"word":"second"}}`); err != nil {
		t.Fatal(err)
	}
	applied("second")

	if _, err := c.Kubectl(t, "delete", "terraform", "word", "--timeout", "50s"); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "without pods of runs", func(context.Context) error {
		if text, err := c.Kubectl(t, "get", "pods", "-o", "name"); err != nil || text != "" {
			return errors.Join(fmt.Errorf("there is %s", text), err)
		}
		return nil
	})
	helm(t, "uninstall", "terrier", "--wait")
}
