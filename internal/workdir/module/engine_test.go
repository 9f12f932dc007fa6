package module

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tofu runs the engine in dir, or skips the test where there is none.
func tofu(t *testing.T, dir string, args ...string) string {
	t.Helper()
	bin, err := filepath.Abs("../../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("bin/tofu is not built")
	}
	rc := filepath.Join(t.TempDir(), "cli.tfrc")
	if err := os.WriteFile(rc, []byte("disable_checkpoint = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Dir = dir
	cmd.Env = []string{"TF_CLI_CONFIG_FILE=" + rc, "HOME=" + dir, "TF_IN_AUTOMATION=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("tofu %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// place writes files below dir.
func place(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const ours = "backend \"local\" {\n  path = \"ours.tfstate\"\n}"

// chosen returns the path of the backend that init settled on.
func chosen(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, ".terraform", "terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Backend struct {
			Type   string
			Config struct{ Path string }
		}
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s.Backend.Type + " " + s.Backend.Config.Path
}

// Every attack is carried out on a real engine, with what Guard says done.
func TestOurBackendWins(t *testing.T) {
	for _, a := range attacks {
		if a.denied != "" {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			place(t, dir, a.files)
			r, err := Inspect(os.DirFS(dir), "", "tofu")
			if err != nil {
				t.Fatal(err)
			}
			b := Custom{ours}
			g, err := Guard(r, b)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range g.Exclude {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			file, err := BackendFile(b)
			if err != nil {
				t.Fatal(err)
			}
			place(t, dir, map[string]string{file.Path: string(file.Content)})

			tofu(t, dir, "init", "-input=false", "-force-copy", "-no-color")

			if got := chosen(t, dir); got != "local ours.tfstate" {
				t.Errorf("the engine chose %q, want ours", got)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "ours.tfstate")); err == nil && strings.Contains(string(b), "evil") {
				t.Errorf("the committed state got into the backend: %s", b)
			}
			if got := strings.TrimSpace(tofu(t, dir, "workspace", "show")); got != "default" {
				t.Errorf("workspace = %q, want default", got)
			}
		})
	}
}

// The attacks that Guard acts on would succeed without it; if an engine
// changes its mind, this says so.
func TestTheAttacksAreReal(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"a later override":             {"main.tf": plain, "z_override.tf": evil},
		"a later override in JSON":     {"main.tf": plain, "z_override.tf.json": evilJSON},
		"our name in JSON":             {"main.tf": plain, "backend_override.tf.json": evilJSON},
		"our name for tofu":            {"main.tf": plain, "backend_override.tofu": evil},
		"our name for tofu, as shadow": {"main.tf": plain + evil, "backend_override.tofu": strings.TrimSpace(also)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			place(t, dir, files)
			place(t, dir, map[string]string{BackendPath: "terraform {\n" + ours + "\n}\n"})
			tofu(t, dir, "init", "-input=false", "-no-color")
			if got := chosen(t, dir); got != "local evil.tfstate" {
				t.Errorf("the engine chose %q, want the module's", got)
			}
		})
	}
	t.Run("a committed state", func(t *testing.T) {
		dir := t.TempDir()
		place(t, dir, map[string]string{"main.tf": plain, "terraform.tfstate": committedState, BackendPath: "terraform {\n" + ours + "\n}\n"})
		tofu(t, dir, "init", "-input=false", "-force-copy", "-no-color")
		b, err := os.ReadFile(filepath.Join(dir, "ours.tfstate"))
		if err != nil || !strings.Contains(string(b), "evil") {
			t.Errorf("the committed state was not copied (%v): %s", err, b)
		}
	})
}
