package process

import (
	"encoding/json"
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

// The real engine does its work in a box: init, plan and apply, with a shell
// that it starts, on the local backend.
func TestTheEngine(t *testing.T) {
	engine, err := filepath.Abs("../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(engine); err != nil {
		t.Skip("make build makes bin/tofu, which is not there: ", err)
	}
	for column, change := range columns {
		t.Run(column, func(t *testing.T) {
			b := boxed(t, change, func(b *Box) {
				b.Dir = "module"
				b.ReadOnly = []Bind{{engine, "/engine/tofu"}}
				b.Limits = Limits{Memory: 2 << 30, FileBytes: 256 << 20, OpenFiles: 1024, Processes: 256}
			})
			module := filepath.Join(b.Work, "module")
			if err := os.Mkdir(module, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(module, "main.tf"), []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := OwnWork(b.Work); err != nil {
				t.Fatal(err)
			}
			c := Command{Path: b.Seen("/engine/tofu"), Box: b, Env: []string{
				"PATH=/usr/bin:/bin", "HOME=" + b.Seen("/home"), "TMPDIR=" + b.Seen("/tmp"),
				"TF_CLI_CONFIG_FILE=/dev/null", "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1",
			}}
			for _, args := range []string{
				"init -input=false -no-color", "plan -input=false -no-color -out=plan.bin", "apply -input=false -no-color plan.bin",
			} {
				c.Args = strings.Fields(args)
				if stdout, stderr, exit := run(t, c); !exit.OK() {
					t.Fatalf("tofu %s: %v\n%s\n%s", args, exit, stdout, stderr)
				}
			}
			c.Args = []string{"output", "-json", "made"}
			if got := runJSON[string](t, c); got != "a value" {
				t.Errorf("output: got %q", got)
			}
			if made, err := os.ReadFile(filepath.Join(module, "made.txt")); err != nil || !strings.HasPrefix(string(made), "made by ") {
				t.Errorf("made.txt: got %q, %v", made, err)
			}
			var state struct{ Serial int }
			content, err := os.ReadFile(filepath.Join(module, "terraform.tfstate"))
			if err != nil || json.Unmarshal(content, &state) != nil || state.Serial < 1 {
				t.Errorf("state: got %s, %v", content, err)
			}
		})
	}
}
