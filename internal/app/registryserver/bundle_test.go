package registryserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

// registryCommand runs a command below "terrier registry".
func registryCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd, err := Command("terrier", "v1", func(string) string { return "" }, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage = true
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// installs checks that clients get a provider of another registry.
func (r *running) installs(t *testing.T, release *registrytest.Release, platform string) {
	t.Helper()
	at, err := url.Parse(r.URL + "/v1/mirror/registry.example.com/acme/cloud/")
	if err != nil {
		t.Fatal(err)
	}
	if status, body := r.get(t, at.String()+"index.json", r.token(t)); status != http.StatusOK || !strings.Contains(body, release.Version) {
		t.Fatalf("index.json is %d %s", status, body)
	}
	var version struct {
		Archives map[string]struct{ URL string }
	}
	status, body := r.get(t, at.String()+release.Version+".json", r.token(t))
	if err := json.Unmarshal([]byte(body), &version); err != nil || status != http.StatusOK {
		t.Fatalf("the version is %d %s, %v", status, body, err)
	}
	archive, err := at.Parse(version.Archives[platform].URL)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := r.get(t, archive.String(), ""); status != http.StatusOK || body != string(release.Archives[platform]) {
		t.Errorf("the archive is %d with %d bytes", status, len(body))
	}
}

// RG-13: a bundle goes from one mirror to another one that reaches nothing, beside the
// registry that serves it.
func TestBundleCommands(t *testing.T) {
	const platform = "linux_amd64"
	release := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 1000, platform)
	u := registrytest.New(t)
	u.Publish(release)
	dir := files(t, map[string]string{
		"ca.pem":       string(u.Authority),
		"offline.yaml": "upstreams:\n  registry.example.com:\n    offline: true\n",
	})
	online := filepath.Join(files(t, map[string]string{
		"mirror.yaml": "upstreams:\n  registry.example.com:\n    url: " + u.URL + "\n    caFile: " + filepath.Join(dir, "ca.pem") + "\n",
	}), "mirror.yaml")
	offline := filepath.Join(dir, "offline.yaml")
	from := start(t, func(c *Config) { c.Settings, c.AllowHosts = online, []string{"127.0.0.0/8"} })
	from.installs(t, release, platform)

	bundle := filepath.Join(t.TempDir(), "bundle")
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--provider", "*/other/*"}, "Exported 0 archives"},
		{[]string{"--versions", ">= 2.0"}, "Exported 0 archives"},
		{[]string{"--platform", platform}, "Exported 1 archive"},
	} {
		args := append([]string{"export", bundle, "--data-dir", from.dir, "--config", online}, tt.args...)
		if out, err := registryCommand(t, args...); err != nil || !strings.Contains(out, tt.says) {
			t.Errorf("%v: %v: %s, want %q", tt.args, err, out, tt.says)
		}
	}
	to := start(t, func(c *Config) { c.Settings = offline })
	if out, err := registryCommand(t, "import", bundle, "--data-dir", to.dir, "--config", offline); err != nil || !strings.Contains(out, "Imported 1 archive into "+to.Storage+"; imported before: 0.") {
		t.Errorf("import: %v: %s", err, out)
	}
	to.installs(t, release, platform)
	if out, err := registryCommand(t, "import", t.TempDir(), "--data-dir", to.dir, "--config", offline); err == nil || !strings.Contains(err.Error(), "tofu providers mirror DIR") {
		t.Errorf("import of an empty directory: %v: %s", err, out)
	}
	if out, err := registryCommand(t, "export", bundle, "--data-dir", to.dir, "--platform", "linux"); err == nil || !strings.Contains(err.Error(), "--platform") {
		t.Errorf("export of a platform that is none: %v: %s", err, out)
	}
}

// A command that works on a storage changes nothing where there is none.
func TestBundleCommandsRefuse(t *testing.T) {
	dir := files(t, map[string]string{
		"data/artifacts/x": "x", "bundle/registry.example.com/acme/cloud/index.json": `{"versions":{}}`, "file": "x",
		"unpacked/registry.example.com/acme/cloud/1.0.0/linux_amd64/terraform-provider-cloud": "x",
	})
	t.Chdir(t.TempDir())
	bundle := filepath.Join(dir, "bundle")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no registry in this directory": {[]string{"import", bundle}, "there is no directory " + filepath.Join(".terrier-registry", "storage")},
		"no directory":                  {[]string{"import", bundle, "--storage", "nosuch"}, "that of terrier up is .terrier/packages"},
		"another directory":             {[]string{"import", bundle, "--storage", filepath.Join(dir, "data")}, "data is no storage of a registry: it has artifacts"},
		"export from another directory": {[]string{"export", "to", "--storage", filepath.Join(dir, "data")}, "data is no storage of a registry"},
		"no bundle":                     {[]string{"import", "nosuch", "--storage", t.TempDir()}, "reading the bundle: stat nosuch: no such file or directory"},
		"a file":                        {[]string{"import", filepath.Join(dir, "file"), "--storage", t.TempDir()}, "is no directory"},
		"unpacked providers":            {[]string{"import", filepath.Join(dir, "unpacked"), "--storage", t.TempDir()}, "unpacked providers, which cannot be imported"},
		"a bucket is named by its flag": {[]string{"import", bundle, "--storage", "s3://a/b?region=x&ca-file=/nosuch"}, "ca-file of --storage"},
		"a flag that only a server has": {[]string{"import", bundle, "--login-client-id", "x"}, "unknown flag"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := registryCommand(t, tt.args...)
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), cwd(t)+"/", ""), tt.want) {
				t.Errorf("%v: %v: %s, want %q", tt.args, err, out, tt.want)
			}
		})
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("the commands have left %v, %v", left, err)
	}
	if out, err := registryCommand(t, "import", bundle, "--storage", t.TempDir(), "--config", filepath.Join(files(t, map[string]string{
		"mirror.yaml": "upstreams:\n  registry.example.com: {offline: true}\n",
	}), "mirror.yaml")); err != nil || !strings.Contains(out, "Imported 0 archives into ") {
		t.Errorf("import into an empty directory: %v: %s", err, out)
	}
}

func cwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
