package chart

import (
	"io"
	"log"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
)

// The chart goes to a registry and comes back as it is here, by its version.
func TestThroughARegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	push := exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "chart-push",
		"REGISTRY="+host+"/team", "VERSION=v1.2.3-rc.4", "DIST="+t.TempDir(), "HELM_FLAGS=--plain-http")
	if out, err := push.CombinedOutput(); err != nil {
		t.Fatalf("pushing: %v\n%s", err, out)
	}
	from := []string{"oci://" + host + "/team/charts/terrier", "--version", "1.2.3-rc.4", "--plain-http"}
	for what, file := range map[string]string{"values": "values.yaml", "readme": "README.md"} {
		got := mustHelm(t, append([]string{"show", what}, from...)...)
		if diff := cmp.Diff(strings.TrimSpace(read(t, chart+"/"+file)), strings.TrimSpace(got)); diff != "" {
			t.Errorf("helm show %s (-want +got):\n%s", what, diff)
		}
	}
	args := append([]string{"template", "terrier"}, append(from, "--namespace", "terrier-system")...)
	want := strings.NewReplacer("v0.0.0-dev", "v1.2.3-rc.4", "0.0.0-dev", "1.2.3-rc.4").Replace(read(t, "testdata/default.yaml"))
	if diff := cmp.Diff(want, mustHelm(t, args...)); diff != "" {
		t.Errorf("the rendering (-want +got):\n%s", diff)
	}
	if text, err := helm(t, append([]string{"template", "terrier", from[0], "--plain-http", "--version", "9.9.9"}, "--namespace", "terrier-system")...); err == nil {
		t.Errorf("a version that is not there was rendered:\n%s", text)
	}
}

// Without a registry the command says which word is missing.
func TestPushNeedsARegistry(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "chart-push", "DIST="+t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "REGISTRY=") {
		t.Errorf("make chart-push: %v\n%s", err, out)
	}
}
