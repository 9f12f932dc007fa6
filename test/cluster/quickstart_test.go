package cluster

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The stacks of the first hour of docs/quickstart.md, with their modules in the manifests.
const firstHour = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: network}
spec:
  interval: 5m
  retryInterval: 1s
  approvePlan: ""
  destroyResourcesOnDeletion: true
  vars: [{name: range, value: 10.30.0.0/16}]
  varsFrom: [{kind: Secret, name: network-credentials}]
  writeOutputsToSecret: {name: network-outputs}
  values:
    hcl: |
      variable "range" { type = string }
      variable "token" {
        type      = string
        sensitive = true
      }
      resource "terraform_data" "network" {
        input            = var.range
        triggers_replace = [sha256(var.token)]
      }
      output "subnets" { value = cidrsubnets(var.range, 8, 8) }
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: app}
spec:
  interval: 5m
  retryInterval: 1s
  approvePlan: auto
  destroyResourcesOnDeletion: true
  dependsOn: [{name: network}]
  varsFrom: [{kind: Secret, name: network-outputs}]
  writeOutputsToSecret: {name: app-outputs}
  values:
    hcl: |
      variable "subnets" { type = list(string) }
      resource "terraform_data" "app" { input = var.subnets[1] }
      output "subnet" { value = terraform_data.app.output }
`

// The first hour of docs/quickstart.md with the runs of a real node, as a user with the role
// terrier-operator who has a token and the command line.
func TestQuickstart(t *testing.T) {
	r := install(t, ship(t, root, "0.6.0"), "", "pod-security.kubernetes.io/enforce", "restricted")
	ada := r.user(t, "ada", "terrier-operator")
	r.stacks.Apply(t, firstHour)

	r.awaitMessage(t, "network", "varsFrom: Secret "+r.Namespace+"/network-credentials does not exist")
	ada.says(t, "varsFrom: Secret "+r.Namespace+"/network-credentials does not exist", "explain", "network")
	r.stacks.PutSecret(t, "network-credentials", map[string]string{"token": "hunter2-hunter2"})
	first := r.stacks.AwaitPending(t, "network").Status.Plan.Pending
	ada.says(t, "triggers_replace[0]: (sensitive)", "plan", "network")

	// An approval is of one plan.
	r.stacks.PutSecret(t, "network-credentials", map[string]string{"token": "other-other"})
	r.stacks.Patch(t, "network", `{"spec":{"approvePlan":"`+first+`"}}`)
	r.awaitMessage(t, "network", "approvePlan is \""+first+"\", which is not this plan")
	ada.says(t, "Approved", "approve", "network", "--yes")
	r.stacks.AwaitReady(t, "network")
	ada.says(t, `subnets = ["10.30.0.0/24","10.30.1.0/24"]`, "outputs", "network")
	r.stacks.AwaitReady(t, "app")
	ada.says(t, `subnet = "10.30.1.0/24"`, "outputs", "app")
	ada.says(t, "Apply complete!", "logs", "app")
	ada.says(t, "apply-", "runs", "app")

	r.stacks.Delete(t, "network")
	r.awaitMessage(t, "network", "app")
	r.stacks.Delete(t, "app")
	r.stacks.AwaitGone(t, "app")
	r.stacks.AwaitGone(t, "network")
	r.awaitNoPods(t)
	helm(t, "uninstall", "terrier", "--wait")
}

// user is one with a token and the command line.
type user struct{ kubeconfig, server string }

// user makes a user of the namespace, who has a role there, and who reaches the server as
// the notes of the chart say.
func (r *release) user(t *testing.T, name, role string) user {
	t.Helper()
	token := r.account(t, name, role)
	config, err := clientcmd.LoadFromFile(Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	here := config.Contexts[config.CurrentContext]
	here.Namespace, here.AuthInfo = r.Namespace, name
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: {Token: token}}
	u := user{filepath.Join(t.TempDir(), "kubeconfig"), "https://localhost:" + forward(t)}
	if err := clientcmd.WriteToFile(*config, u.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return u
}

// account makes a ServiceAccount of the namespace, which has a role there, and returns a token
// of it.
func (r *release) account(t *testing.T, name, role string) string {
	t.Helper()
	accounts := r.Client.CoreV1().ServiceAccounts(r.Namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.must(t, "--namespace", r.Namespace, "create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", r.Namespace+":"+name)
	token, err := accounts.CreateToken(t.Context(), name, &authnv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// forward forwards a port of this machine to the server, and returns it.
func forward(t *testing.T) string {
	t.Helper()
	c := exec.Command(filepath.Join(root, "bin", "kubectl"), "--namespace", chartNamespace, "port-forward", "service/terrier", ":8443")
	c.Env = append(os.Environ(), "KUBECONFIG="+Kubeconfig())
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = c.Wait() // it was killed
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	_, port, ok := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), "127.0.0.1:")
	if err != nil || !ok {
		t.Fatalf("kubectl port-forward printed %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	port, _, _ = strings.Cut(port, " ")
	return port
}

// says runs the command line, which has to print something.
func (u user) says(t *testing.T, want string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), commandLine(t), args...)
	c.Env = []string{"KUBECONFIG=" + u.kubeconfig, "TERRIER_SERVER=" + u.server, "HOME=" + t.TempDir(), "NO_COLOR=1"}
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("terrier %s printed\n%s%s\n%v, want %q", strings.Join(args, " "), out.String(), complaint.String(), err, want)
	}
}

// commandLine is the program of the image.
func commandLine(t *testing.T) string {
	t.Helper()
	path := filepath.Join(testkit.Repository(t), "bin", "images", runtime.GOOS+"_"+runtime.GOARCH, "terrier")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the test needs %s: run make images-here: %v", path, err)
	}
	return path
}
