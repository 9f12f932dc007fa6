package cluster

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// packageValues give the registry of the chart a name, and a mirror that asks no other
// registry. Runs take providers from nowhere else.
const packageValues = `
registry:
  hosts: [modules.example.com]
  quota: {versions: 2}
  mirror:
    settings: {upstreams: {registry.opentofu.org: {offline: true}}}
`

// packaged is a stack whose module and provider are in the registry of the chart alone.
const packaged = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: packaged}
spec:
  approvePlan: auto
  interval: 1h
  retryInterval: 1s
  writeOutputsToSecret: {name: packaged}
  values:
    hcl: |
      terraform {
        required_providers {
          random = { source = "modules.example.com/%[1]s/random" }
        }
      }
      module "hello" {
        source  = "modules.example.com/%[1]s/hello/demo"
        version = "~> 1.0"
      }
      resource "random_pet" "a" {}
      output "says" { value = module.hello.says }
`

// A team publishes a module and a provider in the registry of the chart, with a token of its
// namespace, and a pod of a run installs both by way of the controller. The audit log and the
// quota of the namespace have them.
func TestRegistryOfTheChart(t *testing.T) {
	const version = "3.6.1"
	r := prepare(t, packageValues, "pod-security.kubernetes.io/enforce", "restricted")
	r.set = []string{"--set", "flags.provider-registries=false"}
	r.deploy(t, ship(t, root, "0.9.0"))
	ada := r.user(t, "ada", "terrier-operator")

	// CI has no kubeconfig: it has the token, and the authority that docs/registry-server.md says
	// where to take from.
	server, err := r.Client.CoreV1().ConfigMaps(chartNamespace).Get(t.Context(), "terrier-server", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, authority := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "ca.crt")
	made := ada.prints(t, "registry", "tokens", "create", "--namespace", r.Namespace, "--name", "ci", "--write")
	for file, text := range map[string]string{token: made, authority: server.Data["ca.crt"]} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ci := []string{"--namespace", r.Namespace, "--token-file", token, "--server-ca", authority}
	module := t.TempDir()
	if err := os.WriteFile(filepath.Join(module, "main.tf"), []byte("output \"says\" {\n  value = \"hello\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ada.says(t, "Published", append([]string{"module", "push", module, "--name", "hello", "--system", "demo", "--version", "1.0.0"}, ci...)...)

	signer := registrytest.NewSigner(t)
	release := &registrytest.Release{Namespace: r.Namespace, Type: "random", Version: version, Archives: map[string][]byte{
		runtime.GOOS + "_" + runtime.GOARCH: zipped(t, filepath.Join(testkit.Repository(t), "bin", "mirror", "registry.opentofu.org", "hashicorp", "random")),
	}}
	release.Sign(t, signer)
	dist := t.TempDir()
	base := filepath.Join(dist, "terraform-provider-random_"+version+"_")
	files := map[string][]byte{base + "SHA256SUMS": release.Sums, base + "SHA256SUMS.sig": release.Signature, filepath.Join(dist, "key.asc"): []byte(signer.Key(t).Armor)}
	for platform, data := range release.Archives {
		files[base+platform+".zip"] = data
	}
	for name, data := range files {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ada.says(t, "Added the key", append([]string{"provider", "keys", "add", filepath.Join(dist, "key.asc")}, ci...)...)
	ada.says(t, "Published", append([]string{"provider", "push", dist}, ci...)...)
	if t.Failed() {
		t.FailNow() // the stack would wait for what is not there
	}

	r.stacks.Apply(t, fmt.Sprintf(packaged, r.Namespace))
	r.awaitOutput(t, "packaged", "says", "hello")
	ada.says(t, "2 versions (quota 2)", "registry", "usage", "--namespace", r.Namespace)
	for _, what := range []string{"token-created", "module-published", "signing-key-added", "provider-published"} {
		ada.says(t, what, "audit", "list", "--namespace", r.Namespace, "--what", what)
	}

	r.stacks.Delete(t, "packaged")
	r.stacks.AwaitGone(t, "packaged")
	r.awaitNoPods(t)
	helm(t, "uninstall", "terrier", "--wait")
}

// prints runs the command line, and returns what it printed to standard output.
func (u user) prints(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), commandLine(t), args...)
	c.Env = []string{"KUBECONFIG=" + u.kubeconfig, "TERRIER_SERVER=" + u.server, "HOME=" + t.TempDir(), "NO_COLOR=1"}
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("terrier %s: %v: %s", strings.Join(args, " "), err, complaint.String())
	}
	return string(out)
}

// zipped is the package of a provider, with the program that a directory mirror has of it.
func zipped(t *testing.T, dir string) []byte {
	t.Helper()
	programs, err := filepath.Glob(filepath.Join(dir, "*", "*", "terraform-provider-*"))
	if err != nil || len(programs) != 1 {
		t.Fatalf("%s has the programs %q, %v", dir, programs, err)
	}
	program, err := os.ReadFile(programs[0])
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	header := &zip.FileHeader{Name: filepath.Base(programs[0]), Method: zip.Deflate}
	header.SetMode(0o755)
	w, err := z.CreateHeader(header)
	if err == nil {
		_, err = w.Write(program)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
