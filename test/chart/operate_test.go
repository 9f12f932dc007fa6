package chart

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

var block = regexp.MustCompile("(?s)<!-- (run|node|file: [a-z.]+) -->\n```[a-z]*\n(.*?)```\n")

// The commands of docs/operate.md work as they stand, in their order. There is no node,
// so those that wait for a pod are left out.
func TestOperate(t *testing.T) {
	p := newPlane(t)
	for _, n := range []string{"team-a", "team-b"} {
		p.apply(t, namespace(n))
	}
	for _, file := range []string{"infra.contrib.fluxcd.io_terraforms", "source.toolkit.fluxcd.io_gitrepositories", "source.toolkit.fluxcd.io_ocirepositories", "source.toolkit.fluxcd.io_buckets", "operator.kubernetes-tenants.org_tenantregistries", "operator.kubernetes-tenants.org_tenanttemplates"} {
		p.manifest(t, "", read(t, root+"/config/crd/"+file+".yaml"))
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	dir, bin := t.TempDir(), absolute(t, root+"/bin")
	for _, version := range []string{"v1.2.3", "v1.2.4"} {
		push := exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "chart-push",
			"REGISTRY="+host+"/team", "VERSION="+version, "DIST="+t.TempDir(), "HELM_FLAGS=--plain-http")
		if out, err := push.CombinedOutput(); err != nil {
			t.Fatalf("pushing %s: %v\n%s", version, err, out)
		}
	}
	here := strings.NewReplacer("oci://registry.example.com/team/charts/terrier", "oci://"+host+"/team/charts/terrier --plain-http")
	blocks := block.FindAllStringSubmatch(read(t, root+"/docs/operate.md"), -1)
	if len(blocks) < 8 {
		t.Fatalf("docs/operate.md has %d blocks", len(blocks))
	}
	for _, b := range blocks {
		if name, ok := strings.CutPrefix(b[1], "file: "); ok {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(b[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if b[1] != "run" {
			continue
		}
		c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", here.Replace(b[2]))
		c.Dir = dir
		c.Env = append(os.Environ(), "HOME="+dir, "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir,
			"KUBECONFIG="+p.kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v\n%s", b[2], err, out)
		}
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
