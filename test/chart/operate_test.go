package chart

import (
	"bytes"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var block = regexp.MustCompile("(?s)<!-- (run|node|rescue|several|elsewhere|file: [a-z.]+) -->\n```[a-z]*\n(.*?)```\n")

// The commands of docs/operate.md work as they stand, in their order. There is no node,
// so those that need a pod are left out: test/cluster runs them. The restore is one of a
// tenant with a stack into a cluster that has nothing.
func TestOperate(t *testing.T) {
	p := newPlane(t)
	for _, n := range []string{"team-a", "team-b"} {
		p.apply(t, namespace(n))
	}
	for _, file := range []string{
		"infra.contrib.fluxcd.io_terraforms",
		"source.toolkit.fluxcd.io_gitrepositories", "source.toolkit.fluxcd.io_ocirepositories", "source.toolkit.fluxcd.io_buckets",
		"policy.terrier.dev_clusterpolicies", "policy.terrier.dev_policies",
		"notification.toolkit.fluxcd.io_alerts", "notification.toolkit.fluxcd.io_providers",
		"operator.kubernetes-tenants.org_tenantregistries", "operator.kubernetes-tenants.org_tenanttemplates",
	} {
		p.manifest(t, "", read(t, root+"/config/crd/"+file+".yaml"))
	}
	here, dir := pushed(t, "v1.2.3", "v1.2.4"), t.TempDir()
	page := read(t, root+"/docs/operate.md")
	blocks := block.FindAllStringSubmatch(page, -1)
	if n := strings.Count(page, "\n```") / 2; n != len(blocks) || n < 8 {
		t.Fatalf("docs/operate.md has %d blocks, of which %d say where they run", n, len(blocks))
	}
	keys := recordKeys(time.Now().UTC().Format(time.DateOnly))
	var left *estate
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
		commands := here.Replace(b[2])
		has := func(part string) bool { return strings.Contains(commands, part) }
		switch { // what happens before
		case has("> records-keys.json"):
			if err := p.Create(t.Context(), keys.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			left = newEstate(t, p)
		case has("sh restore.sh"):
			left.refused(t, p, dir, commands)
		}
		p.run(t, dir, commands)
		switch { // what has come of it
		case has("> records-keys.json"):
			p = newPlane(t) // the cluster is lost, and there is another one
		case has("sh restore.sh"):
			left.restored(t, p, dir, commands)
		case has("--replicas 1"):
			left.goesOn(t, p)
		}
	}
	if got := p.recordKeys(t); !maps.EqualFunc(got, keys.Data, bytes.Equal) {
		t.Errorf("after the restore the Secret has %d keys, want the one from before", len(got))
	}
}

// pushed pushes versions of the chart to a registry, and returns what replaces its address in
// the commands of the page.
func pushed(t *testing.T, versions ...string) *strings.Replacer {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	for _, version := range versions {
		push := exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "chart-push",
			"REGISTRY="+host+"/team", "VERSION="+version, "DIST="+t.TempDir(), "HELM_FLAGS=--plain-http")
		if out, err := push.CombinedOutput(); err != nil {
			t.Fatalf("pushing %s: %v\n%s", version, err, out)
		}
	}
	return strings.NewReplacer("oci://registry.example.com/team/charts/terrier", "oci://"+host+"/team/charts/terrier --plain-http")
}

// The command of docs/records.md that rotates a key keeps the one of the same day.
func TestRotation(t *testing.T) {
	p := newPlane(t)
	p.apply(t, namespace("terrier-system"))
	keys := recordKeys(time.Now().UTC().Format(time.DateOnly))
	if err := p.Create(t.Context(), keys.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllStringSubmatch(read(t, root+"/docs/records.md"), -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/records.md has %d blocks", len(blocks))
	}
	for range 2 { // in one second
		p.run(t, t.TempDir(), blocks[0][2])
	}
	got := p.recordKeys(t)
	for name, key := range keys.Data {
		if !bytes.Equal(got[name], key) {
			t.Errorf("the rotation replaced the key %s", name)
		}
		delete(got, name)
	}
	for name, key := range got {
		if len(got) != 2 || len(key) != 32 || name < time.Now().UTC().Format(time.DateOnly) {
			t.Errorf("of %d new keys, %s has %d bytes, want two of 32 bytes after the first", len(got), name, len(key))
		}
	}
}

func recordKeys(name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "terrier-system", Name: "terrier-records-keys"},
		Data:       map[string][]byte{name: bytes.Repeat([]byte{1}, 32)},
	}
}

func (p *plane) recordKeys(t *testing.T) map[string][]byte {
	t.Helper()
	got := recordKeys("")
	if err := p.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
		t.Fatal(err)
	}
	return got.Data
}

// run runs commands of a page in dir.
func (p *plane) run(t *testing.T, dir, commands string) {
	t.Helper()
	if out, err := p.try(t, dir, commands); err != nil {
		t.Fatalf("%s\n%v\n%s", commands, err, out)
	}
}

// try is run for commands that may fail. It returns what they say.
func (p *plane) try(t *testing.T, dir, commands string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+dir, "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir,
		"KUBECONFIG="+p.kubeconfig, "PATH="+absolute(t, root+"/bin")+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	return string(out), err
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
