package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/port"
)

// Where Flux serves the sources, nothing changes but who does.
func TestFluxServesTheSources(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(testkit.Repository(t), "bin", "source-controller")
	if _, err := os.Stat(binary); errors.Is(err, os.ErrNotExist) {
		t.Skip("bin/source-controller is not built; make bin/source-controller takes some minutes, and make test does it")
	}
	p := testkit.Up(t, "--sources=false")
	c := p.Cluster(t)
	for _, kind := range []string{"helmcharts", "helmrepositories", "externalartifacts"} {
		c.Kubectl(t, "apply", "--server-side", "-f", filepath.Join(testkit.Repository(t), "bin", "flux", "source.toolkit.fluxcd.io_"+kind+".yaml"))
	}
	w := p.World(t)
	g := testkit.NewGit(t)
	first := g.Commit(map[string]string{"main.tf": things(w, "first", "a")})
	c.Apply(t, g.Manifest("code")+`---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack}
spec:
  approvePlan: auto
  interval: 1h
  sourceRef: {kind: GitRepository, name: code}
`)
	c.AwaitReason(t, "stack", "ArtifactFailed") // we do not serve it
	storage := startFlux(t, binary, c.Kubeconfig)
	applied(t, c, first)
	var source sourcev1.GitRepository
	c.Get(t, "code", &source)
	if a := source.Status.Artifact; a == nil || !strings.HasPrefix(a.URL, "http://"+storage+"/") {
		t.Errorf("the artifact is %+v, want it served by Flux at %s", a, storage)
	}
	second := g.Commit(map[string]string{"main.tf": things(w, "second", "a")})
	c.Kubectl(t, "annotate", "gitrepository/code", "reconcile.fluxcd.io/requestedAt=now")
	applied(t, c, second)
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "second" {
		t.Errorf("the world holds %+v, want what the second commit says", all)
	}
}

// applied waits until a commit is.
func applied(t *testing.T, c *testkit.Cluster, hash string) {
	t.Helper()
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if want := "main@sha1:" + hash; s.Status.LastAppliedRevision != want {
			return errNot(want + " applied")
		}
		return testkit.IsReady(s)
	})
}

// startFlux starts source-controller for one test, and says where it serves
// artifacts.
func startFlux(t *testing.T, binary, kubeconfig string) string {
	t.Helper()
	storage := port.Address(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary, "--storage-path", t.TempDir(), "--storage-addr", storage, "--storage-adv-addr", storage,
		"--metrics-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0", "--events-addr", "")
	command.Env = []string{"KUBECONFIG=" + kubeconfig, "RUNTIME_NAMESPACE=default", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("source-controller said:\n%s", read(t, log.Name()))
		}
		_ = log.Close()
	})
	return storage
}
