package packages

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

// copies are the texts that a page offers to copy, and the words on their buttons.
func copies(t *testing.T, page string) map[string]string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for n := range root.Descendants() {
		i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "data-copy" })
		if i >= 0 && n.FirstChild != nil {
			found[n.Attr[i].Val] = n.FirstChild.Data
		}
	}
	return found
}

// What the page of the mirror says sets an engine up, pasted as it is: the real engine gets a
// token by "tofu login", and installs a provider through the mirror.
func TestThePageSetsUpAnEngine(t *testing.T) {
	upstream := registrytest.New(t)
	upstream.Publish(registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.2.0", 1000, runtime.GOOS+"_"+runtime.GOARCH))
	dir := t.TempDir()
	settings := filepath.Join(dir, "mirror.yaml")
	for file, text := range map[string]string{
		filepath.Join(dir, "upstream.pem"): string(upstream.Authority),
		settings:                           fmt.Sprintf("upstreams:\n  example.com: {url: %q, caFile: %q}\n", upstream.URL, filepath.Join(dir, "upstream.pem")),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newStandOf(t, func(o *Options) { o.Settings, o.Allow = settings, []string{"127.0.0.0/8"} })
	s.browse(http.MethodPost, s.base.String()+"/sign-in", url.Values{"token": {"cluster-token-of-ann"}})
	_, page := s.browse(http.MethodGet, s.base.String()+"/registry/mirror", nil)
	if !strings.Contains(page, `href="/registry/ca.crt"`) {
		t.Errorf("the page does not lead to the certificate authority: %s", page)
	}
	_, authority := s.browse(http.MethodGet, s.base.String()+"/registry/ca.crt", nil)
	if err := os.Mkdir(filepath.Join(s.home, "Downloads"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.home, "Downloads", "terrier-ca.crt"), []byte(authority), 0o600); err != nil {
		t.Fatal(err)
	}
	var trust, login, config string
	for text, button := range copies(t, page) {
		want := "Copy the command"
		switch {
		case strings.HasPrefix(text, "export SSL_CERT_FILE="):
			trust = text
		case strings.HasPrefix(text, "tofu login "):
			login = text
		case strings.HasPrefix(text, "provider_installation {"):
			config, want = text, "Copy"
		case strings.HasPrefix(text, "credentials "):
			want = "Copy"
		}
		if button != want {
			t.Errorf("the button of %q says %q, want %q", text, button, want)
		}
	}
	if want := "tofu login " + s.base.Host; login != want {
		t.Fatalf("the page says %q, want %q", login, want)
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", trust+`; printf %s "$SSL_CERT_FILE"`)
	command.Env = []string{"HOME=" + s.home}
	trusted, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	s.ca = string(trusted)
	if s.http.Jar, err = cookiejar.New(nil); err != nil { // the command line opens a browser in which no user is signed in
		t.Fatal(err)
	}
	s.login()
	if err := os.WriteFile(filepath.Join(s.home, ".tofurc"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := s.engine().Init(t, enginetest.Requiring(t, "example.com/acme/cloud", "~> 1.0")); err != nil {
		t.Errorf("init with what the page says: %v: %s", err, out)
	}
	if _, page = s.browse(http.MethodGet, s.base.String()+"/registry/mirror/example.com/acme/cloud", nil); !strings.Contains(page, "1.2.0") {
		t.Errorf("the provider did not come through the mirror: %s", page)
	}
}
