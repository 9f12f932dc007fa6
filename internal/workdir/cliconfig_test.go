package workdir

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestCLIConfig(t *testing.T) {
	if got, want := string(CLIConfig(Mirror{Dir: "/mirror"}).Content), "disable_checkpoint = true\n"; got != want {
		t.Errorf("without a mirror: %q, want %q", got, want)
	}
	got := string(CLIConfig(Mirror{Dir: "/mirror", Providers: []string{"registry.opentofu.org/hashicorp/random", "example.com/a/b", "example.com/a/b"}}).Content)
	want := `disable_checkpoint = true

provider_installation {
  filesystem_mirror {
    path    = "/mirror"
    include = ["example.com/a/b", "registry.opentofu.org/hashicorp/random"]
  }
  direct {
    exclude = ["example.com/a/b", "registry.opentofu.org/hashicorp/random"]
  }
}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with a mirror (-want +got):\n%s", diff)
	}
}

func TestFromRegistries(t *testing.T) {
	m := Mirror{Dir: "/mirror", Providers: []string{"a.b/c/d", "a.b/c/e"}}
	tail := "\ncredentials \"a.b\" {\n  token = \"a.b/c/d\"\n}\n"
	config := func(m Mirror) []byte { return append(CLIConfig(m).Content, tail...) }
	for name, tt := range map[string]struct {
		config    []byte
		providers []string
		want      []byte // nil: it stays as it is
	}{
		"one of two":                    {config(m), []string{"a.b/c/d"}, config(Mirror{Dir: "/mirror", Providers: []string{"a.b/c/e"}})},
		"all":                           {config(m), m.Providers, config(Mirror{Dir: "/mirror"})},
		"one that the mirror lacks":     {config(m), []string{"a.b/c/x"}, nil},
		"another mirror":                {config(Mirror{Dir: "/other", Providers: m.Providers}), m.Providers, nil},
		"only the mirror":               {config(Mirror{Dir: "/mirror", Providers: m.Providers, Only: true}), m.Providers, nil},
		"no mirror":                     {config(Mirror{}), m.Providers, nil},
		"places that a stack chose":     {[]byte(strings.Replace(string(config(m)), "direct {", "direct {\n    include = [\"x/*/*\"]", 1)), m.Providers, nil},
		"one that was asked for before": {config(Mirror{Dir: "/mirror", Providers: []string{"a.b/c/e"}}), []string{"a.b/c/d"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := FromRegistries(tt.config, "/mirror", tt.providers)
			if diff := cmp.Diff(string(tt.want), string(got)); diff != "" || ok != (tt.want != nil) {
				t.Errorf("FromRegistries() = %v (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// A mirror that only the machine of a run knows is added to a configuration without one.
func TestFromMirror(t *testing.T) {
	mirror := Mirror{Dir: "/mirror", Providers: []string{"registry.opentofu.org/hashicorp/random"}}
	got, ok := FromMirror(CLIConfig(Mirror{}).Content, mirror)
	if want := string(CLIConfig(mirror).Content); !ok || string(got) != want {
		t.Errorf("FromMirror() = %s, %t; want %s", got, ok, want)
	}
	if _, ok := FromMirror(CLIConfig(mirror).Content, mirror); ok {
		t.Error("a configuration that says where providers come from was changed")
	}
	if _, ok := FromMirror(CLIConfig(Mirror{}).Content, Mirror{Dir: "/mirror"}); ok {
		t.Error("an empty mirror was used")
	}
}

func TestMirrorVersions(t *testing.T) {
	file := &fstest.MapFile{}
	got := MirrorVersions(fstest.MapFS{
		"a.b/c/d/terraform-provider-d_3.6.0_linux_amd64.zip":  file,
		"a.b/c/d/terraform-provider-d_3.6.0_darwin_arm64.zip": file,
		"a.b/c/d/2.5.1/linux_amd64/terraform-provider-d":      file,
		"a.b/c/d/index.json": file,
	}, "a.b/c/d")
	if diff := cmp.Diff([]string{"2.5.1", "3.6.0"}, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

func TestMirrorProviders(t *testing.T) {
	file := &fstest.MapFile{}
	got, err := MirrorProviders(fstest.MapFS{
		"registry.opentofu.org/hashicorp/random/terraform-provider-random_3.6.0_linux_amd64.zip":  file,
		"registry.opentofu.org/hashicorp/local/2.5.1/linux_amd64/terraform-provider-local_v2.5.1": file,
		"localhost:5000/team/own/1.0.0/linux_amd64/terraform-provider-own":                        file,
		"registry.opentofu.org/hashicorp/empty/README.md":                                         file,
		"registry.opentofu.org/hashicorp/other/terraform-provider-random_3.6.0_linux_amd64.zip":   file,
		"registry.opentofu.org/bad name/x/1.0.0/f":                                                file,
		`registry.opentofu.org/hashicorp/quote"]/1.0.0/f`:                                         file,
		".git/objects/ab/1/f":                            file,
		"terraform-provider-stray_1.0.0_linux_amd64.zip": file,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"localhost:5000/team/own", "registry.opentofu.org/hashicorp/local", "registry.opentofu.org/hashicorp/random"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	if got, err := MirrorProviders(os.DirFS(filepath.Join(t.TempDir(), "not-there"))); err != nil || got != nil {
		t.Errorf("a mirror that is not there: %v, %v; want none", got, err)
	}
}

// A provider that the mirror answers for is looked for nowhere else.
func TestTheEngineAcceptsTheCLIConfig(t *testing.T) {
	bin, err := filepath.Abs("../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("bin/tofu is not built")
	}
	dir, mirror := t.TempDir(), t.TempDir()
	module := Inline("terraform {\n  required_providers {\n    ghost = { source = \"registry.invalid/team/ghost\" }\n  }\n}\n")
	for _, f := range []File{module, CLIConfig(Mirror{Dir: mirror, Providers: []string{"registry.invalid/team/ghost"}})} {
		if err := os.WriteFile(filepath.Join(dir, f.Path), f.Content, os.FileMode(f.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), bin, "init", "-no-color", "-input=false")
	cmd.Dir = dir
	cmd.Env = []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, CLIConfigPath), "HOME=" + dir}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "registry.invalid/team/ghost") || !strings.Contains(string(out), mirror) {
		t.Errorf("init says (%v), want it to look in the mirror only:\n%s", err, out)
	}
	for _, network := range []string{"could not connect", "no such host", "dial tcp", "CLI configuration"} {
		if strings.Contains(string(out), network) {
			t.Errorf("init went astray (%q):\n%s", network, out)
		}
	}
}
