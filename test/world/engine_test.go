package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test binary a provider as well: when the engine starts
// it, it serves the code under test, and nothing else needs to be built.
func TestMain(m *testing.M) {
	if os.Getenv("TF_PLUGIN_MAGIC_COOKIE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// engine runs the real engine on one root module.
type engine struct {
	t     *testing.T
	tofu  string
	dir   string
	cloud *cloud
	env   []string
}

func newEngine(t *testing.T, body string) *engine {
	t.Helper()
	tofu, err := filepath.Abs("../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tofu); err != nil {
		t.Skip("bin/tofu is missing: run make build")
	}
	root := t.TempDir()
	e := &engine{t: t, tofu: tofu, dir: filepath.Join(root, "module"), cloud: newCloud(t)}
	mirror := filepath.Join(root, "mirror", "registry.opentofu.org", "terrier-iac", "world", "0.1.0", runtime.GOOS+"_"+runtime.GOARCH)
	for _, dir := range []string{e.dir, mirror} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copySelf(t, filepath.Join(mirror, "terraform-provider-world_v0.1.0"))
	e.write("../tofu.rc", "disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = \""+filepath.Join(root, "mirror")+"\"\n  }\n}\n")
	e.write("main.tf", "terraform {\n  required_providers {\n    world = { source = \"terrier-iac/world\" }\n  }\n}\n"+body)
	e.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(root, "tofu.rc"), pathVariable+"="+e.cloud.path, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "TF_CLI_ARGS=-no-color")
	e.must(0, "init")
	return e
}

func copySelf(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Link(self, to) == nil {
		return
	}
	from, err := os.Open(self) // another file system
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func (e *engine) write(name, text string) {
	e.t.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

func (e *engine) command(out io.Writer, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(e.t.Context(), 5*time.Minute)
	e.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, e.tofu, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = e.dir, e.env, out, out
	return cmd
}

// must runs one command and requires its exit code.
func (e *engine) must(code int, args ...string) string {
	e.t.Helper()
	var out bytes.Buffer
	e.exit(code, e.command(&out, args...).Run(), &out)
	return out.String()
}

func (e *engine) exit(code int, err error, out *bytes.Buffer) {
	e.t.Helper()
	got := 0
	if x, ok := errors.AsType[*exec.ExitError](err); ok {
		got = x.ExitCode()
	} else if err != nil {
		e.t.Fatal(err)
	}
	if got != code {
		e.t.Fatalf("the engine exited with %d, want %d:\n%s", got, code, out)
	}
}

func (e *engine) things() map[string]thing {
	e.t.Helper()
	w, err := e.cloud.load()
	if err != nil {
		e.t.Fatal(err)
	}
	return w.Things
}

// interruptDuring starts an apply, waits until a create has begun, interrupts
// the engine and returns its output once it has ended with code.
func (e *engine) interruptDuring(code int) string {
	e.t.Helper()
	var out bytes.Buffer
	cmd := e.command(&out, "apply", "-auto-approve")
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		text, _ := os.ReadFile(e.cloud.path + ".journal")
		if bytes.Contains(text, []byte(`"call":"create","phase":"begin"`)) {
			break
		}
		if e.t.Context().Err() != nil {
			e.t.Fatal("no create began")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		e.t.Fatal(err)
	}
	e.exit(code, cmd.Wait(), &out)
	return out.String()
}

const oneThing = `
resource "world_thing" "a" {
  name  = "a"
  value = "x"
  tags  = { k = "v" }
}
`

func TestLifeOfAThing(t *testing.T) {
	e := newEngine(t, oneThing+`
data "world_thing" "again" {
  name       = world_thing.a.name
  depends_on = [world_thing.a]
}
output "value" { value = data.world_thing.again.value }
`)
	e.must(0, "apply", "-auto-approve")
	if got := e.must(0, "output", "-raw", "value"); got != "x" {
		t.Errorf("output = %q, want the value read back", got)
	}
	e.must(0, "plan", "-detailed-exitcode")

	err := e.cloud.update(func(w *world) (bool, error) { // a manual change
		a, drifted := w.Things["thing-1"], "y"
		a.Value = &drifted
		w.Things["thing-1"] = a
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	e.must(2, "plan", "-detailed-exitcode")
	e.must(0, "apply", "-auto-approve")
	if got := *e.things()["thing-1"].Value; got != "x" {
		t.Errorf("after the repair the value is %q, want x", got)
	}

	e.must(0, "destroy", "-auto-approve")
	if got := e.things(); len(got) != 0 {
		t.Errorf("after the destroy there is %v, want nothing", got)
	}
}

func TestRenameReplacesAndImportAdopts(t *testing.T) {
	e := newEngine(t, oneThing)
	e.must(0, "apply", "-auto-approve")
	e.must(0, "state", "rm", "world_thing.a")
	e.must(0, "import", "world_thing.a", "thing-1")
	e.must(0, "plan", "-detailed-exitcode")
	text, err := os.ReadFile(filepath.Join(e.dir, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	e.write("main.tf", strings.Replace(string(text), `"a"`+"\n  value", `"b"`+"\n  value", 1))
	e.must(0, "apply", "-auto-approve")
	if got := e.things()["thing-2"].Name; got != "b" || len(e.things()) != 1 {
		t.Errorf("world is %v, want only thing-2, named b", e.things())
	}
}

func TestCrashLeavesWhatItSays(t *testing.T) {
	for do, leaked := range map[string]int{doCrashBefore: 0, doCrashAfter: 1} {
		t.Run(do, func(t *testing.T) {
			e := newEngine(t, fmt.Sprintf("provider \"world\" {\n  fault {\n    call  = \"create\"\n    do    = %q\n    times = 1\n  }\n}\n", do)+oneThing)
			e.must(1, "apply", "-auto-approve")
			if got := len(e.things()); got != leaked {
				t.Errorf("after the crash there are %d things, want %d", got, leaked)
			}
			e.must(0, "apply", "-auto-approve")
			if got := len(e.things()); got != leaked+1 {
				t.Errorf("after the second apply there are %d things, want %d", got, leaked+1)
			}
		})
	}
}

func TestInterrupt(t *testing.T) {
	for name, c := range map[string]struct {
		fault  string
		things int
		code   int
	}{
		"ends a hang": {`do = "hang"`, 0, 1},
		"waits for a delay that ignores the stop": {"do = \"delay\"\n delay = \"500ms\"\n ignore_stop = true", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, "provider \"world\" {\n  fault {\n    call = \"create\"\n    "+c.fault+"\n  }\n}\n"+oneThing)
			out := e.interruptDuring(c.code)
			if got := len(e.things()); got != c.things {
				t.Errorf("there are %d things, want %d:\n%s", got, c.things, out)
			}
		})
	}
}

func TestWithoutAWorldNothingRuns(t *testing.T) {
	e := newEngine(t, oneThing)
	e.env = append(e.env, pathVariable+"=")
	if out := e.must(1, "plan"); !strings.Contains(out, "No world") {
		t.Errorf("the engine says\n%s\nwant it to name the missing world", out)
	}
}
