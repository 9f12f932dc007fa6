package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program makes, changes and runs something with nothing but the engine itself.
const program = `
resource "terraform_data" "made" {
  input = "a value"
  provisioner "local-exec" {
    command = "echo made by $(id -u) > made.txt; echo seen > /dev/stderr; ! cat /etc/shadow"
  }
}
output "made" { value = terraform_data.made.output }
`

// engineSandbox is a sandbox with a module and the engine, or a skip.
func engineSandbox(t *testing.T, module string, change ...func(*Config)) (*Config, func(args string) Command) {
	t.Helper()
	engine := built(t, "tofu")
	b := sandboxed(t, append(change, func(b *Config) {
		b.Dir = "module"
		b.ReadOnly = append(b.ReadOnly, Bind{engine, "/engine/tofu"})
		b.Limits = Limits{Memory: 2 << 30, FileBytes: 256 << 20, OpenFiles: 1024, Processes: 256}
	})...)
	config := `provider_installation {
  filesystem_mirror {
    path = "` + b.PathInside("/mirror") + `"
  }
}
`
	for name, content := range map[string]string{"module/main.tf": module, "tofu.rc": config} {
		path := filepath.Join(b.Work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := ChownWork(b.Work); err != nil {
		t.Fatal(err)
	}
	return b, func(args string) Command {
		return Command{Path: b.PathInside("/engine/tofu"), Args: strings.Fields(args), Sandbox: b, Env: []string{
			"PATH=/usr/bin:/bin", "HOME=" + b.PathInside("/home"), "TMPDIR=" + b.PathInside("/tmp"),
			"TF_CLI_CONFIG_FILE=" + b.PathInside("/work/tofu.rc"), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1",
		}}
	}
}

// built is what make build put into bin.
func built(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("make build makes bin/%s, which is not there: %v", name, err)
	}
	return path
}

func must(t *testing.T, c Command) {
	t.Helper()
	if stdout, stderr, exit := run(t, c); !exit.OK() {
		t.Fatalf("tofu %v: %v\n%s\n%s", c.Args, exit, stdout, stderr)
	}
}

// The real engine does its work in a sandbox: init, plan and apply, with a shell
// that it starts, on the local backend.
func TestTheEngine(t *testing.T) {
	for column, change := range columns {
		t.Run(column, func(t *testing.T) {
			b, tofu := engineSandbox(t, program, change)
			must(t, tofu("init -input=false -no-color"))
			must(t, tofu("plan -input=false -no-color -out=plan.bin"))
			must(t, tofu("apply -input=false -no-color plan.bin"))
			if got := runJSON[string](t, tofu("output -json made")); got != "a value" {
				t.Errorf("output: got %q", got)
			}
			made, err := os.ReadFile(filepath.Join(b.Work, "module/made.txt"))
			if err != nil || !strings.HasPrefix(string(made), "made by ") {
				t.Errorf("made.txt: got %q, %v", made, err)
			}
			var state struct{ Serial int }
			content, err := os.ReadFile(filepath.Join(b.Work, "module/terraform.tfstate"))
			if err != nil || json.Unmarshal(content, &state) != nil || state.Serial < 1 {
				t.Errorf("state: got %s, %v", content, err)
			}
		})
	}
}

// A provider is a program of its own that speaks to the engine over a socket
// in TMPDIR.
func TestAProvider(t *testing.T) {
	mirror := built(t, "mirror")
	for column, change := range columns {
		t.Run(column, func(t *testing.T) {
			_, tofu := engineSandbox(t, `
resource "time_static" "now" {}
output "year" { value = time_static.now.year }
`, change, func(b *Config) { b.ReadOnly = append(b.ReadOnly, Bind{mirror, "/mirror"}) })
			must(t, tofu("init -input=false -no-color"))
			must(t, tofu("apply -input=false -no-color -auto-approve"))
			if got := runJSON[int](t, tofu("output -json year")); got < 2026 {
				t.Errorf("year: got %d", got)
			}
		})
	}
}
