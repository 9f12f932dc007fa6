package module

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

const ownCLI = `
disable_checkpoint = false

credentials "app.terraform.io" {
  token = "tok.en"
}

host "tf.example.com" {
  services = { "modules.v1" = "https://tf.example.com/modules/", "providers.v1" = "https://tf.example.com/p/" }
}

provider_installation {
  network_mirror {
    url     = "https://mirror.example.com/"
    include = ["example.com/*/*"]
  }
  direct {
    exclude = ["example.com/*/*"]
  }
}
`

func TestCLICompletesThePlatforms(t *testing.T) {
	c, err := ParseCLI([]byte(ownCLI))
	if err != nil {
		t.Fatal(err)
	}
	want := `disable_checkpoint = true

provider_installation {
  filesystem_mirror {
    path = "/mirror"
    include = ["registry.opentofu.org/hashicorp/random"]
  }
  network_mirror {
    url = "https://mirror.example.com/"
    include = ["example.com/*/*"]
    exclude = ["registry.opentofu.org/hashicorp/random"]
  }
  direct {
    exclude = ["example.com/*/*", "registry.opentofu.org/hashicorp/random"]
  }
}

credentials "app.terraform.io" {
  token = "tok.en"
}

host "tf.example.com" {
  services = {
    "modules.v1" = "https://tf.example.com/modules/"
    "providers.v1" = "https://tf.example.com/p/"
  }
}
`
	got := c.File(workdir.Mirror{Dir: "/mirror", Providers: []string{"registry.opentofu.org/hashicorp/random"}})
	if diff := cmp.Diff(want, string(got.Content)); diff != "" || got.Mode != 0o600 {
		t.Errorf("mode %o (-want +got):\n%s", got.Mode, diff)
	}
	if diff := cmp.Diff([]string{"tok.en"}, c.Tokens()); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	abc := workdir.Mirror{Dir: "/mirror", Providers: []string{"a/b/c"}}
	// What says nothing leaves the platform's as it is.
	if diff := cmp.Diff(workdir.CLIConfig(abc), (CLI{}).File(abc)); diff != "" {
		t.Errorf("an empty one (-want +got):\n%s", diff)
	}
}

// Where only the mirror counts, a stack cannot say otherwise.
func TestAStackCannotLeaveTheOnlyMirror(t *testing.T) {
	c, err := ParseCLI([]byte("provider_installation {\n  direct {\n  }\n}"))
	if err != nil {
		t.Fatal(err)
	}
	only := workdir.Mirror{Dir: "/mirror", Only: true}
	if err := c.Check(only); fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), "--provider-registries=false") {
		t.Errorf("Check() = %v, want Denied with the flag", err)
	}
	if got := string(c.File(only).Content); strings.Contains(got, "direct") || !strings.Contains(got, `"/mirror"`) {
		t.Errorf("File() = %s, want the mirror alone", got)
	}
	if err := c.Check(workdir.Mirror{Dir: "/mirror"}); err != nil {
		t.Errorf("Check() = %v, want nil where registries count", err)
	}
}

func TestCLIRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"plugin_cache_dir = \"/x\"":                                       "line 1: plugin_cache_dir cannot be set",
		"plugin_cache_may_break_dependency_lock_file = true":              "plugin_cache_may_break_dependency_lock_file cannot be set",
		"credentials_helper \"x\" {\n}":                                   "line 1: a block of type credentials_helper cannot",
		"providers {\n}":                                                  "a block of type providers cannot",
		"\nprovider_installation {\n  dev_overrides {\n  }\n}":            "line 3: provider_installation: dev_overrides cannot",
		"provider_installation {\n  direct {\n    url = \"x\"\n  }\n}":    "direct: url is not known",
		"provider_installation {\n  network_mirror {\n  }\n}":             "network_mirror needs a url",
		"oci_default_credentials {\n}":                                    "a block of type oci_default_credentials cannot",
		"registry_protocols {\n}":                                         "a block of type registry_protocols cannot",
		"credentials \"h\" {\n  token = \"a${b}\"\n}":                     "token must be a plain text",
		"credentials \"h\" {\n  token = \"a$${b}\"\n}":                    "token must be a plain text",
		"credentials \"h\" {\n  token = \"a\\nb\"\n}":                     "token must be a plain text",
		"credentials \"h\\\"\" {\n  token = \"a\"\n}":                     "credentials needs one host name",
		"credentials \"h\" {\n}":                                          "credentials of h have no token",
		"credentials \"h\" {\n  token = \"a\"\n  x {\n  }\n}":             "a block of type x is not known",
		"host \"h\" {\n  services = { a = \"x\\\"}\" }\n}":                `services of h: "a" is no plain text`,
		"host \"h\" {\n  services = [\"a\"]\n}":                           "services of h must be addresses by name",
		"credentials \"h\" {\n  token = \"s3cret-canary\n}":               "line 2: ",
		strings.Repeat("a {\n", 500) + strings.Repeat("}\n", 500):         "",
		"provider_installation {\n  filesystem_mirror {\n path = 1\n}\n}": "path must be a plain text",
	} {
		_, err := ParseCLI([]byte(text))
		if fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), want) || strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("%.60q: %v; want Invalid with %q and no value", text, err, want)
		}
	}
}

// The engine reads the file with a parser of its own, and finds in it what was
// meant: the token goes to its host, and what is mirrored comes from the mirror.
func TestTheEngineReadsACompletedCLI(t *testing.T) {
	c, err := ParseCLI([]byte(strings.ReplaceAll(ownCLI, "https://mirror.example.com/", "https://127.0.0.1:1/")))
	if err != nil {
		t.Fatal(err)
	}
	dir, mirror := t.TempDir(), t.TempDir()
	bin, err := filepath.Abs("../../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("bin/tofu is not built")
	}
	rc := c.File(workdir.Mirror{Dir: mirror, Providers: []string{"example.com/team/ghost"}})
	place(t, dir, map[string]string{"rc": string(rc.Content),
		"main.tf": "terraform {\n  required_providers {\n    ghost = { source = \"example.com/team/ghost\" }\n  }\n}\n"})
	cmd := exec.CommandContext(t.Context(), bin, "init", "-no-color", "-input=false")
	cmd.Dir, cmd.Env = dir, []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "rc"), "HOME=" + dir}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "example.com/team/ghost") || !strings.Contains(string(out), mirror) {
		t.Errorf("init says (%v), want that the mirror has no such provider:\n%s", err, out)
	}
	for _, astray := range []string{"127.0.0.1", "CLI configuration", "dial tcp"} {
		if strings.Contains(string(out), astray) {
			t.Errorf("init went astray (%q):\n%s", astray, out)
		}
	}
}

func TestBackendSettings(t *testing.T) {
	f, err := BackendSettings("x.tfbackend", map[string]string{"bucket": "b", "access_key": "k\"\n${x}"})
	if err != nil {
		t.Fatal(err)
	}
	want := "access_key = \"k\\\"\\n$${x}\"\nbucket     = \"b\"\n"
	if got := string(f.Content); got != want || f.Mode != 0o600 {
		t.Errorf("mode %o, content %q, want %q", f.Mode, got, want)
	}
	if _, err := BackendSettings("x", map[string]string{"a.b": ""}); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), `"a.b"`) {
		t.Errorf("a key that is no name: %v, want it named", err)
	}
	lasting := func(s map[string]string) string { return fmt.Sprint(LastingSettings(s)) }
	one := map[string]string{"bucket": "b", "access_key": "1", "key": "path"}
	if lasting(one) != lasting(map[string]string{"bucket": "b", "access_key": "2", "key": "path"}) {
		t.Error("a renewed credential is another state")
	}
	for _, other := range []map[string]string{{"bucket": "c", "access_key": "1", "key": "path"}, {"bucket": "b", "access_key": "1", "key": "other"}, {"bucket": "b", "key": "path"}} {
		if lasting(one) == lasting(other) {
			t.Errorf("%v is the same state", other)
		}
	}
}

// The cloud block says where, and contains no token.
func TestCloudNamesNoToken(t *testing.T) {
	dir := t.TempDir()
	f, err := BackendFile(Cloud{Organization: "acme", Workspace: "prod", Hostname: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	place(t, dir, map[string]string{f.Path: string(f.Content), "main.tf": "output \"x\" { value = 1 }\n"})
	bin, err := filepath.Abs("../../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("bin/tofu is not built")
	}
	cmd := exec.CommandContext(t.Context(), bin, "init", "-no-color", "-input=false")
	cmd.Dir, cmd.Env = dir, []string{"TF_CLI_CONFIG_FILE=/dev/null", "HOME=" + dir}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "127.0.0.1:1") {
		t.Errorf("init says (%v), want that the cloud at 127.0.0.1:1 cannot be reached:\n%s", err, out)
	}
}
