package packages

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/secret"
)

// What a user publishes is on the pages, in the API and in the terminal, for users who may
// read its namespace, and its archive is downloaded from the page.
func TestPagesOfTheRegistry(t *testing.T) {
	s := newStand(t)
	module := t.TempDir()
	for name, content := range map[string]string{"main.tf": "variable \"cidr\" {\n  type        = string\n  description = \"the range\"\n}\noutput \"id\" {\n  value = 1\n}\n", "README.md": "# Hello\n"} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	push := []string{"module", "push", module, "--namespace", "net", "--name", "hello", "--system", "demo", "--version"}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		if code, out := s.terrier("cluster-token-of-ci", append(slices.Clone(push), version)...); code != 0 {
			t.Fatalf("terrier module push ended with %d: %s", code, out)
		}
	}
	// This server watches no stacks, so that there may be some that use the version.
	if code, out := s.terrier("cluster-token-of-ci", "module", "retract", "net/hello/demo", "1.0.0", "--reason", "use 1.1.0"); code != 2 || !strings.Contains(out, "use --yes") {
		t.Fatalf("terrier module retract without an answer ended with %d: %s", code, out)
	}
	if code, out := s.terrier("cluster-token-of-ci", "module", "retract", "net/hello/demo", "1.0.0", "--reason", "use 1.1.0", "--yes"); code != 0 {
		t.Fatalf("terrier module retract ended with %d: %s", code, out)
	}

	s.browse(http.MethodPost, s.base.String()+"/sign-in", url.Values{"token": {"cluster-token-of-ann"}})
	at := s.base.String() + "/registry/modules/net/hello/demo"
	if _, page := s.browse(http.MethodGet, s.base.String()+"/registry", nil); !strings.Contains(page, "hello/demo") || !strings.Contains(page, "1.1.0") || !strings.Contains(page, `href="/registry" aria-current="page"`) {
		t.Errorf("the list is %s", page)
	}
	if _, page := s.browse(http.MethodGet, at, nil); !strings.Contains(page, "cidr = var.cidr") || !strings.Contains(page, s.base.Host+"/net/hello/demo") {
		t.Errorf("the page of the module is %s", page)
	}
	to, _ := s.browse(http.MethodGet, at+"/1.1.0/archive", nil)
	if status, archive := s.get(strings.TrimPrefix(to, s.base.String()), secret.New("none")); status != http.StatusOK || !strings.HasPrefix(archive, "\x1f\x8b") {
		t.Errorf("the download from %s is %d with %d bytes", to, status, len(archive))
	}

	var found catalog.Page
	ann := secret.New("cluster-token-of-ann")
	if status, body := s.get("/api/v1/registry?q=hello", ann); status != http.StatusOK || json.Unmarshal([]byte(body), &found) != nil || found.Total != 1 || found.Items[0].Newest != "1.1.0" || found.Items[0].Versions != 2 {
		t.Errorf("the search is %d: %s", status, body)
	}
	var one catalog.Module
	if status, body := s.get("/api/v1/namespaces/net/registry/modules/hello/demo", ann); status != http.StatusOK || json.Unmarshal([]byte(body), &one) != nil || one.Document == nil || len(one.Document.Root.Inputs) != 1 || one.Versions[1].Retracted == nil {
		t.Errorf("the module is %d: %s", status, body)
	}
	for path, want := range map[string]int{
		"/api/v1/registry?kind=images": http.StatusUnprocessableEntity, "/api/v1/registry?what=1": http.StatusUnprocessableEntity, "/api/v1/namespaces/other/registry/modules/hello/demo": http.StatusForbidden,
		"/api/v1/namespaces/net/registry/modules/none/demo": http.StatusNotFound, "/api/v1/namespaces/net/registry/providers/none": http.StatusNotFound, "/api/v1/registry/mirror": http.StatusOK,
		"/v1/modules/net/hello/demo/latest": http.StatusOK, "/v1/modules/other/hello/demo/latest": http.StatusForbidden, "/api/v1/namespaces/net/registry/keys": http.StatusOK,
	} {
		if status, body := s.get(path, ann); status != want {
			t.Errorf("%s is %d %s, want %d", path, status, body, want)
		}
	}
	for _, show := range [][]string{{"module", "show", "net/hello/demo"}, {"module", "show", "net/hello/demo", "1.0.0"}, {"module", "show", "net/hello/demo", "-o", "json"}} {
		code, out := s.terrier("cluster-token-of-ann", show...)
		if code != 0 || !strings.Contains(out, "cidr") || !strings.Contains(out, "the range") {
			t.Errorf("terrier %v ended with %d: %s", show, code, out)
		}
		if retracted := slices.Contains(show, "1.0.0"); retracted != strings.Contains(out, "Retracted") {
			t.Errorf("terrier %v says: %s", show, out)
		}
	}

	// Rights are asked for each time.
	s.cluster.set("ann get net", false)
	if status, body := s.get("/api/v1/registry", ann); status != http.StatusOK || strings.Contains(body, "hello") {
		t.Errorf("without the role the search is %d: %s", status, body)
	}
	if status, _ := s.get("/api/v1/namespaces/net/registry/modules/hello/demo", ann); status != http.StatusForbidden {
		t.Errorf("without the role the module is %d, want 403", status)
	}
}
