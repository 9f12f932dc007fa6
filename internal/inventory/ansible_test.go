package inventory

import (
	"encoding/json"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/testkit/executable"
)

// ansible runs ansible-inventory, without the settings of a user.
func ansible(t *testing.T, inventory string) map[string]any {
	t.Helper()
	program, err := exec.LookPath("ansible-inventory")
	if err != nil {
		t.Skip("ansible-inventory is not installed (Debian has it in ansible-core): what this package reads is not compared with it")
	}
	c := exec.CommandContext(t.Context(), program, "-i", inventory, "--list")
	c.Dir = t.TempDir()
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "LANG=C.UTF-8", "ANSIBLE_CONFIG=" + filepath.Join(c.Dir, "empty.cfg")}
	if err := os.WriteFile(filepath.Join(c.Dir, "empty.cfg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("ansible-inventory: %v: %s", err, errs.String())
	}
	d := json.NewDecoder(strings.NewReader(string(out)))
	d.UseNumber()
	var list map[string]any
	if err := d.Decode(&list); err != nil {
		t.Fatalf("ansible-inventory: %v: %s", err, out)
	}
	return list
}

// written puts files into a directory.
func written(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// numbers are equal however they are written.
var numbers = cmp.Comparer(func(a, b json.Number) bool {
	x, ok := new(big.Rat).SetString(a.String())
	y, too := new(big.Rat).SetString(b.String())
	return ok && too && x.Cmp(y) == 0
})

// Hosts, groups, variables, their types and their precedence are what Ansible says.
func TestAnsibleReadsTheSame(t *testing.T) {
	files := map[string]string{
		"hosts.yml": `
all:
  vars: {a: all in hosts, b: all in hosts, c: all in hosts, d: all in hosts}
  hosts:
    "a.example.com:2222":
    web[01:03].example.com: {role: web}
    n[1:5:2]:
  children:
    site:
      vars: {b: site in hosts, c: site in hosts, d: site in hosts, e: site in hosts, prio: site}
      children:
        web:
          vars: {c: web in hosts, h: web in hosts}
          hosts:
            web1: {h: host in hosts, i: host in hosts}
    beta: {vars: {same: beta, prio: beta}, hosts: {web1: }}
    alpha: {vars: {same: alpha, prio: alpha, ansible_group_priority: 10}, hosts: {web1: , "db[a:c]": }}
    zeta: {vars: {x: zeta, ansible_group_priority: 99}, hosts: {h: }}
    p: {children: {deep: {vars: {x: deep}, hosts: {h: }}}}
ungrouped: {hosts: {web1: }}
`,
		"group_vars/all/10-first.yml":  "d: all 10\nf: all 10\n",
		"group_vars/all/20-second.yml": "d: all 20\n",
		"group_vars/all/.hidden.yml":   "d: hidden\n",
		"group_vars/all/old.yml~":      "d: backup\n",
		"group_vars/all/readme.md":     "# no variables\n",
		"group_vars/all/more/x.yaml":   "f: all more\n",
		"group_vars/all/types.yml": `
i: 4
q: "4"
o: 0755
oo: 0o755
x16: 0x1F
b2: 0b11
u: 1_000
neg: -7
nine: 09
f0: 1.50
f1: 1.
f5: .5
fp: +1.5
e3: 1e3
ee: 1.0e+3
big: 123456789012345678901234567890
t1: yes
t2: off
t3: "yes"
y1: y
n1: ~
n2:
s: !!str 5
si: !!int "5"
m: {k: x, a: {b: 1}}
mac: 02:00:00:00:00:01
l: [1, a, [true]]
base: &base {a: 1, b: 2}
merged: {<<: *base, c: 3}
`,
		"group_vars/web.yml":     "f: web file\ng: web file\n",
		"group_vars/web.yaml":    "f: never\n",
		"group_vars/alpha/x.yml": "same: alpha file\n",
		"host_vars/web1.yml":     "i: host file\n",
		"host_vars/h/x.json":     `{"json": [1, "2"]}`,
	}
	dir := written(t, files)
	list := ansible(t, filepath.Join(dir, "hosts.yml"))
	v, err := Read(os.DirFS(dir), ".")
	if err != nil {
		t.Fatal(err)
	}
	meta, _ := list["_meta"].(map[string]any)
	vars, _ := meta["hostvars"].(map[string]any)
	for _, h := range v.Hosts() {
		theirs, _ := vars[h.Name].(map[string]any)
		if diff := cmp.Diff(theirs, v.Vars(h.Name), numbers); diff != "" {
			t.Errorf("the variables of %s (-ansible +ours):\n%s", h.Name, diff)
		}
		if diff := cmp.Diff(groupsOf(list, h.Name), h.Groups); diff != "" {
			t.Errorf("the groups of %s (-ansible +ours):\n%s", h.Name, diff)
		}
	}
	if len(vars) != len(v.Hosts()) || len(vars) == 0 {
		t.Errorf("Ansible knows %d hosts, and this package %d", len(vars), len(v.Hosts()))
	}
}

// groupsOf are the groups of a host in what Ansible lists, and those above them.
func groupsOf(list map[string]any, host string) []string {
	var in []string
	above := func(name string) {
		for group, body := range list {
			fields, _ := body.(map[string]any)
			for _, field := range []string{"hosts", "children"} {
				if members, _ := fields[field].([]any); slices.Contains(members, any(name)) && group != All && !slices.Contains(in, group) {
					in = append(in, group)
				}
			}
		}
	}
	above(host)
	for i := 0; i < len(in); i++ {
		above(in[i])
	}
	slices.Sort(in)
	return in
}

// Ansible reads the dynamic inventory as it is meant, and the hosts.yml that Merge writes.
func TestAnsibleReadsWhatIsWritten(t *testing.T) {
	hosts := []Host{
		{Name: "api-vm01", Address: "10.100.0.10", User: "deploy", Port: 2222, MAC: "02:00:00:00:00:01", Groups: []string{"api", "prod"}, Vars: map[string]any{"text": "yes", "octal": "0755", "n": json.Number("1.5"), "list": []any{"a", nil, true}, "clock": "12:30"}},
		{Name: "db-vm01", Address: "10.100.0.20", Groups: []string{"db"}},
	}
	var d Dynamic
	if err := d.Add("grooveiq", hosts...); err != nil {
		t.Fatal(err)
	}
	text, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	dir := written(t, map[string]string{"list.json": string(text)})
	script := filepath.Join(dir, "inventory.sh")
	if err := executable.Write(script, []byte("#!/bin/sh\nexec cat '"+filepath.Join(dir, "list.json")+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	merged, err := Merge([]byte(handWritten), hosts, "grooveiq/machines")
	if err != nil {
		t.Fatal(err)
	}
	for name, inventory := range map[string]string{"a dynamic inventory": script, "a hosts.yml": filepath.Join(written(t, map[string]string{"hosts.yml": string(merged)}), "hosts.yml")} {
		list := ansible(t, inventory)
		meta, _ := list["_meta"].(map[string]any)
		vars, _ := meta["hostvars"].(map[string]any)
		for _, h := range hosts {
			got, _ := vars[h.Name].(map[string]any)
			for variable, want := range h.variables() {
				if port, ok := want.(int); ok {
					want = json.Number(big.NewInt(int64(port)).String())
				}
				if diff := cmp.Diff(want, got[variable], numbers); diff != "" {
					t.Errorf("%s: %s of %s (-want +ansible):\n%s", name, variable, h.Name, diff)
				}
			}
			for _, g := range h.Groups {
				if in := groupsOf(list, h.Name); !slices.Contains(in, g) {
					t.Errorf("%s: %s is in %v, and not in %s", name, h.Name, in, g)
				}
			}
		}
	}
}
