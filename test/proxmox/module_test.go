package proxmox

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// repository is the directory of the whole tree.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "..", "..") // tests run in the directory of their package
}

// lacking are templates without one of the tags each: no-python3.
func lacking(e Estate) Estate {
	for i, tag := range Fulfilled() {
		id := 9001 + i
		rest := slices.DeleteFunc(Fulfilled(), func(t string) bool { return t == tag })
		e.VMs[id] = Template(id, "pve-tenant", "no-"+tag, rest...)
	}
	return e
}

// engine runs OpenTofu in a directory, with the API and the providers of this repository.
type engine struct {
	dir, root string
	env       []string
}

func newEngine(t *testing.T, api string) *engine {
	t.Helper()
	e := &engine{dir: t.TempDir(), root: repository(t)}
	mirror := filepath.Join(e.root, "bin", "mirror-building")
	for _, path := range []string{mirror, filepath.Join(e.root, "bin", "tofu")} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("run make build providers-building: %v", err)
		}
	}
	config := filepath.Join(t.TempDir(), "tofurc")
	text := fmt.Sprintf("disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+config, "PROXMOX_VE_ENDPOINT="+api, "PROXMOX_VE_API_TOKEN=root@pam!administrator=secret-of-administrator")
	return e
}

func (e *engine) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), filepath.Join(e.root, "bin", "tofu"), args...)
	c.Dir, c.Env = e.dir, e.env
	out, err := c.CombinedOutput()
	return string(out), err
}

// The tests of the modules are run by the engine, against the stand-in of Proxmox VE. None may be
// passed over, and no machine is left after them.
func TestModules(t *testing.T) {
	for _, name := range []string{"proxmox-vm", "proxmox-leftovers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testModule(t, name)
		})
	}
}

func testModule(t *testing.T, name string) {
	t.Helper()
	s, err := New(Options{Estate: lacking(Building(func(tenant string) string { return "secret-of-" + tenant }))})
	if err != nil {
		t.Fatal(err)
	}
	before := len(s.VMs())
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	e := newEngine(t, server.URL)
	if err := os.CopyFS(e.dir, os.DirFS(filepath.Join(e.root, "modules"))); err != nil {
		t.Fatal(err)
	}
	e.dir = filepath.Join(e.dir, name)
	runs := 0
	files, err := filepath.Glob(filepath.Join(e.dir, "tests", "*.tftest.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		runs += len(regexp.MustCompile(`(?m)^run "`).FindAll(text, -1))
	}
	if out, err := e.run(t, "init", "-no-color"); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	out, err := e.run(t, "test", "-no-color")
	want := fmt.Sprintf("Success! %d passed, 0 failed.", runs)
	if err != nil || runs == 0 || !bytes.Contains([]byte(out), []byte(want)) {
		t.Errorf("tofu test: %v, want %q\n%s", err, want, out)
	}
	if after := len(s.VMs()); after != before {
		t.Errorf("%d machines are left after the tests", after-before)
	}
}
