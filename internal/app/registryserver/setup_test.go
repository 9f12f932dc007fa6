package registryserver

import (
	"fmt"
	"html"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

// The script on the page of the mirror sets up an engine as it is: the real engine installs a
// provider with what it wrote.
func TestThePageOfARegistryAloneSetsUpAnEngine(t *testing.T) {
	upstream := registrytest.New(t)
	upstream.Publish(registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.2.0", 1000, runtime.GOOS+"_"+runtime.GOARCH))
	config := files(t, map[string]string{"upstream.pem": string(upstream.Authority)})
	settings := filepath.Join(config, "mirror.yaml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, "upstreams:\n  example.com: {url: %q, caFile: %q}\n", upstream.URL, filepath.Join(config, "upstream.pem")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(c *Config) { c.Settings, c.AllowHosts = settings, []string{"127.0.0.0/8"} })
	resp, authority := r.browse(t, http.MethodGet, "/registry/ca.crt", r.token(t), nil)
	if own, err := os.ReadFile(r.CA); err != nil || authority != string(own) || !strings.Contains(resp.Header.Get("Content-Disposition"), "terrier-ca.crt") {
		t.Errorf("the authority is %q with %v, %v", authority, resp.Header, err)
	}
	_, page := r.browse(t, http.MethodGet, "/registry/mirror", r.token(t), nil)
	found := regexp.MustCompile(`data-copy="(cat &gt; [^"]*)"`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no script: %s", page)
	}
	home := t.TempDir()
	script := exec.CommandContext(t.Context(), "sh", "-c", html.UnescapeString(found[1]))
	script.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERRIER_TOKEN_FILE=" + r.Token}
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("the script: %v: %s", err, out)
	}
	client := enginetest.Client{Authority: r.CA, Home: home}
	if out, err := client.Init(t, enginetest.Requiring(t, "example.com/acme/cloud", "~> 1.0")); err != nil {
		t.Errorf("init: %v: %s", err, out)
	}
}

// An open registry needs no token, and its page asks for none.
func TestThePageOfAnOpenRegistry(t *testing.T) {
	r := start(t, func(c *Config) { c.Anonymous = true })
	_, page := r.browse(t, http.MethodGet, "/registry/mirror", "", nil)
	if !strings.Contains(page, "provider_installation {") || strings.Contains(page, "TERRIER_TOKEN_FILE") || strings.Contains(page, "credentials ") {
		t.Errorf("the page is %s", page)
	}
}

// The lists have what a caller may read, a part at a time, and both kinds.
func TestListsOfEverything(t *testing.T) {
	r := start(t, nil)
	if out := r.works(t, "module", "list"); !strings.Contains(out, "no module that you may read") {
		t.Errorf("an empty registry says %s", out)
	}
	for _, name := range []string{"alpha", "beta", "gamma"} {
		r.works(t, "module", "push", files(t, says(name)), "--namespace", "net", "--name", name, "--system", "demo", "--version", "1.0.0")
	}
	r.works(t, "module", "push", files(t, says("x")), "--namespace", "apps", "--name", "shop", "--system", "demo", "--version", "1.0.0")
	r.works(t, "module", "push", files(t, says("y")), "--namespace", "apps", "--name", "shop", "--system", "demo", "--version", "1.10.0")
	r.works(t, "module", "push", files(t, says("z")), "--namespace", "apps", "--name", "shop", "--system", "demo", "--version", "1.9.0")
	out := r.works(t, "module", "list")
	for _, want := range []string{"net/alpha/demo", "net/beta/demo", "net/gamma/demo"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list lacks %s: %s", want, out)
		}
	}
	if !regexp.MustCompile(`(?m)^apps/shop/demo +1\.10\.0 +3 +20\d\d-\S+Z +admin`).MatchString(out) {
		t.Errorf("the list does not have the newest of 3 versions: %s", out)
	}
	if out := r.works(t, "module", "list", "net", "--limit", "2"); strings.Contains(out, "apps/") || strings.Contains(out, "gamma") || !strings.Contains(out, "These are 2 of 3 modules. To list more, add: --offset 2") {
		t.Errorf("a part of a namespace is %s", out)
	}
	if out := r.works(t, "module", "list", "net", "--offset", "2"); !strings.Contains(out, "gamma") || strings.Contains(out, "alpha") {
		t.Errorf("the rest is %s", out)
	}
	if out := r.works(t, "module", "list", "--search", "shop"); !strings.Contains(out, "apps/shop") || strings.Contains(out, "net/") {
		t.Errorf("the search says %s", out)
	}
	if out := r.works(t, "module", "list", "-o", "json"); !strings.Contains(out, `"total": 4`) {
		t.Errorf("in JSON it is %s", out)
	}
	if out := r.works(t, "provider", "list"); !strings.Contains(out, "no provider that you may read") {
		t.Errorf("of providers it says %s", out)
	}
	for path, want := range map[string]int{"/v1/modules": 200, "/v1/modules/": 200, "/v1/providers": 200, "/v1/modules?limit=x": 422, "/v1/modules?sort=size": 422} {
		if status, body := r.get(t, r.URL+path, r.token(t)); status != want {
			t.Errorf("%s is %d %s, want %d", path, status, body, want)
		}
	}
	if status, _ := r.get(t, r.URL+"/v1/modules", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token the list is %d, want 401", status)
	}
}

// The command line refuses configuration that no engine can read, and so does the registry.
func TestABrokenModuleIsNotPublished(t *testing.T) {
	r := start(t, nil)
	dir := files(t, map[string]string{"main.tf": "output \"says\" {\n  value =\n}\n"})
	for _, args := range [][]string{push(dir, "1.0.0"), push(dir, "1.0.0", "--dry-run")} {
		if code, out := r.terrier(t, r.token(t), args...); code != 2 || !strings.Contains(out, "main.tf:2: ") {
			t.Errorf("%v ended with %d: %s, want 2 and the line", args, code, out)
		}
	}
	good := files(t, map[string]string{"main.tf": "output \"says\" {\n  value = \"x\"\n}\n", "examples/a/main.tf": "output {"})
	r.works(t, push(good, "1.0.0")...)
	if out := r.works(t, push(good, "1.0.0")...); !strings.Contains(out, "net/hello/demo 1.0.0 is published already, since 20") || !strings.Contains(out, "by admin") || strings.Contains(out, "Published") {
		t.Errorf("the second push says %s", out)
	}
	if out := r.works(t, push(good, "1.0.0", "-o", "json")...); !strings.Contains(out, `"outcome": "unchanged"`) {
		t.Errorf("the second push in JSON says %s", out)
	}
}
