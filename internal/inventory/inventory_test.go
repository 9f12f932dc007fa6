package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// tree is a directory from names and texts.
func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out["t/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func read(t *testing.T, files map[string]string) *Inventory {
	t.Helper()
	v, err := Read(tree(files), "t")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestHosts(t *testing.T) {
	for name, tt := range map[string]struct {
		hosts string
		want  []Host
	}{
		"nothing":         {hosts: "", want: []Host{}},
		"a comment alone": {hosts: "# later\n", want: []Host{}},
		"hosts of all": {
			hosts: "all: {hosts: {b: {ansible_host: 10.0.0.2, ansible_user: admin, ansible_port: 2222}, a: }}",
			want:  []Host{{Name: "a", Groups: []string{"ungrouped"}}, {Name: "b", Address: "10.0.0.2", User: "admin", Port: 2222, Groups: []string{"ungrouped"}}},
		},
		"groups in groups": {
			hosts: "all: {children: {site: {children: {web: {hosts: {a: }}}}, db: {hosts: {a: }}}}",
			want:  []Host{{Name: "a", Groups: []string{"db", "site", "web"}}},
		},
		"a group without all":           {hosts: "web: {hosts: {a: {}}}", want: []Host{{Name: "a", Groups: []string{"web"}}}},
		"a group that is named twice":   {hosts: "all: {children: {web: }}\nweb: {hosts: {a: }}", want: []Host{{Name: "a", Groups: []string{"web"}}}},
		"one name instead of a mapping": {hosts: "web: {hosts: a, children: db}\ndb: {hosts: b}", want: []Host{{Name: "a", Groups: []string{"web"}}, {Name: "b", Groups: []string{"db", "web"}}}},
		"an address as name":            {hosts: "all: {hosts: {10.0.0.9: }}", want: []Host{{Name: "10.0.0.9", Address: "10.0.0.9", Groups: []string{"ungrouped"}}}},
		"a port in the name":            {hosts: `all: {hosts: {"a.example.com:2222": }}`, want: []Host{{Name: "a.example.com", Port: 2222, Groups: []string{"ungrouped"}}}},
		"an IPv6 address in brackets":   {hosts: `all: {hosts: {"[2001:db8::1]:22": , "2001:db8::2": }}`, want: []Host{{Name: "2001:db8::1", Address: "2001:db8::1", Port: 22, Groups: []string{"ungrouped"}}, {Name: "2001:db8::2", Address: "2001:db8::2", Groups: []string{"ungrouped"}}}},
		"a later place wins": {
			hosts: "web: {hosts: {a: {ansible_host: 10.0.0.1}}}\ndb: {hosts: {a: {ansible_host: 10.0.0.2}}}",
			want:  []Host{{Name: "a", Address: "10.0.0.2", Groups: []string{"db", "web"}}},
		},
		"a MAC address in one form":     {hosts: `all: {hosts: {a: {mac_address: "02-00-00-AA-BB-CC"}}}`, want: []Host{{Name: "a", MAC: "02:00:00:aa:bb:cc", Groups: []string{"ungrouped"}}}},
		"an address from Jinja is none": {hosts: `all: {hosts: {a: {ansible_host: "{{ lookup('x') }}"}}}`, want: []Host{{Name: "a", Groups: []string{"ungrouped"}}}},
		"merge keys": {
			hosts: "x-web: &d {vars: {ansible_user: admin}}\nweb: {<<: *d, hosts: {a: }}",
			want:  []Host{{Name: "a", User: "admin", Groups: []string{"web"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(t, map[string]string{"hosts.yml": tt.hosts}).Hosts()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Hosts() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRanges(t *testing.T) {
	for key, want := range map[string][]string{
		"web[01:03].example.com": {"web01.example.com", "web02.example.com", "web03.example.com"},
		"web[8:10]":              {"web8", "web9", "web10"},
		"db[a:c]":                {"dba", "dbb", "dbc"},
		"n[1:5:2]":               {"n1", "n3", "n5"},
		"r[1:2]-[a:b]":           {"r1-a", "r1-b", "r2-a", "r2-b"},
		"p[:1]":                  {"p0", "p1"},
	} {
		got, _, err := hostNames(key)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("hostNames(%q): %v (-want +got):\n%s", key, err, diff)
		}
	}
	for key, want := range map[string]string{
		"web[01:3]": "same number of digits", "web[3:1]": "ends before it begins", "web[1:": "not closed", "web1]": "not opened",
		"web[1]": "begin:end", "web[1:]": "has no end", "web[1:9:0]": "no number above zero", "web[1:99999999]": "more than 10000", "web[c:1]": "neither",
		"a b": "no name of a host", "a:0": "no port", "[1:200][1:200]": "more than 10000",
	} {
		if got, _, err := hostNames(key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hostNames(%q) = %v, %v, want an error with %q", key, got, err, want)
		}
	}
}

// The order of what wins is that of Ansible: see the comment of Variables.
func TestPrecedence(t *testing.T) {
	files := map[string]string{
		"hosts.yml": `
all:
  vars: {a: all in hosts, b: all in hosts, c: all in hosts, d: all in hosts}
  children:
    site:
      vars: {b: site in hosts, c: site in hosts, d: site in hosts, e: site in hosts, prio: site}
      children:
        web:
          vars: {c: web in hosts, h: web in hosts}
          hosts:
            web1: {h: host in hosts, i: host in hosts}
    beta: {vars: {same: beta, prio: beta}, hosts: {web1: }}
    alpha: {vars: {same: alpha, prio: alpha, ansible_group_priority: 10}, hosts: {web1: }}
`,
		"group_vars/all/10-first.yml":  "d: all 10\nf: all 10\n",
		"group_vars/all/20-second.yml": "d: all 20\n",
		"group_vars/all/.hidden.yml":   "d: hidden\n",
		"group_vars/all/old.yml~":      "d: backup\n",
		"group_vars/all/readme.md":     "# no variables\n",
		"group_vars/all/more/x.yaml":   "f: all more\n",
		"group_vars/web.yml":           "f: web file\ng: web file\n",
		"host_vars/web1.yml":           "i: host file\n",
	}
	v := read(t, files)
	got := v.Vars("web1")
	want := map[string]any{
		"a": "all in hosts", "b": "site in hosts", "c": "web in hosts",
		"d": "all 20", // group_vars/all wins over vars of any group in hosts.yml
		"e": "site in hosts", "f": "web file", "g": "web file", "h": "host in hosts", "i": "host file",
		"same": "alpha", "prio": "alpha",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Vars(web1) (-want +got):\n%s", diff)
	}
	values, notes, errs := v.Variables([]Variable{
		{Name: "d"}, {Name: "c", As: "of_all"}, {Name: "c", As: "of_web", Group: "web"}, {Name: "f", Group: "web", As: "f"}, {Name: "not_there"}, {Name: "g", As: "only_web"},
	})
	if diff := cmp.Diff(map[string]any{"d": "all 20", "of_all": "all in hosts", "of_web": "web in hosts", "f": "web file"}, values); diff != "" || notes != nil || errs != nil {
		t.Errorf("Variables() = %v, %v (-want +got):\n%s", notes, errs, diff)
	}
}

// Groups in the same depth: the priority decides, then the name. A deeper group wins over
// both.
func TestGroupsOfTheSameDepth(t *testing.T) {
	v := read(t, map[string]string{"hosts.yml": "b: {vars: {x: b}, hosts: {h: }}\na: {vars: {x: a}, hosts: {h: }}\n"})
	if got := v.Vars("h")["x"]; got != "b" {
		t.Errorf("x = %v, want that of b, which is the last by name", got)
	}
	v = read(t, map[string]string{"hosts.yml": "p: {children: {c: {vars: {x: c}, hosts: {h: }}}}\nz: {vars: {x: z, ansible_group_priority: 99}, hosts: {h: }}\n"})
	if got := v.Vars("h")["x"]; got != "c" {
		t.Errorf("x = %v, want that of c, which is deeper", got)
	}
}

func TestOnlyTheFirstFileOfANameCounts(t *testing.T) {
	v := read(t, map[string]string{"group_vars/all": "x: bare\n", "group_vars/all.yml": "x: yml\n", "group_vars/ghost.yml": "x: 1\n", "host_vars/gone.yml": "x: 1\n"})
	values, _, _ := v.Variables([]Variable{{Name: "x"}})
	if values["x"] != "bare" {
		t.Errorf("x = %v, want that of group_vars/all", values["x"])
	}
	want := []string{
		"group_vars/all.yml: Ansible does not read it, since group_vars/all is there",
		`group_vars/ghost.yml: hosts.yml has no group "ghost", so Ansible does not read it`,
		`host_vars/gone.yml: hosts.yml has no host "gone", so Ansible does not read it`,
	}
	if diff := cmp.Diff(want, texted(v.Notes)); diff != "" {
		t.Errorf("Notes (-want +got):\n%s", diff)
	}
}

func texted(notes []Note) (out []string) {
	for _, n := range notes {
		out = append(out, n.String())
	}
	return out
}

// Types are those of YAML 1.1, which is what Ansible reads.
func TestTypes(t *testing.T) {
	for text, want := range map[string]any{
		"4": json.Number("4"), `"4"`: "4", "'4'": "4", "0755": json.Number("493"), "0o755": "0o755", "0x1F": json.Number("31"), "0b11": json.Number("3"), "1_000": json.Number("1000"),
		"-7": json.Number("-7"), "09": "09", "1.50": json.Number("1.50"), "1.": json.Number("1.0"), ".5": json.Number("0.5"), "+1.5": json.Number("1.5"), "1e3": "1e3", "1.0e+3": json.Number("1.0e+3"),
		"123456789012345678901234567890": json.Number("123456789012345678901234567890"),
		"yes":                            true, "off": false, "True": true, "y": "y", `"yes"`: "yes", "~": nil, "null": nil, "": nil, `""`: "",
		"2026-11-30": "2026-11-30", "[1, a, [true]]": []any{json.Number("1"), "a", []any{true}}, "{a: {b: 1}}": map[string]any{"a": map[string]any{"b": json.Number("1")}},
		"!!str 5": "5", "!!int \"5\"": json.Number("5"), "!unsafe \"{{ x }}\"": "{{ x }}", "{5: x}": map[string]any{"5": "x"},
	} {
		values, _, errs := read(t, map[string]string{"group_vars/all.yml": "x: " + text + "\n"}).Variables([]Variable{{Name: "x"}})
		if diff := cmp.Diff(map[string]any{"x": want}, values); diff != "" || errs != nil {
			t.Errorf("x: %s: %v (-want +got):\n%s", text, errs, diff)
		}
		if _, err := json.Marshal(values); err != nil {
			t.Errorf("x: %s: %v", text, err)
		}
	}
}

// What an allow-list cannot take is an error with its place and the way out.
func TestValuesThatAreRefused(t *testing.T) {
	vault := "!vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n"
	for name, tt := range map[string]struct {
		text string
		v    Variable
		want string
	}{
		"a quoted number":         {`x: "4"`, Variable{Type: Number}, `group_vars/all.yml:1: the variable "x" is a string, and the allow-list asks for a number: remove the quotes`},
		"a number for a text":     {"x: 4", Variable{Type: String}, `is a number, and the allow-list asks for a string`},
		"a list for a map":        {"x: [1]", Variable{Type: Map}, `is a list, and the allow-list asks for a map`},
		"a text for a truth":      {"x: enabled", Variable{Type: Boolean}, `is a string, and the allow-list asks for a bool`},
		"Jinja":                   {`x: "{{ y }}"`, Variable{}, `has Jinja in it, and Terrier evaluates none`},
		"Jinja deep inside":       {`x: {a: [b, "{% if y %}"]}`, Variable{}, `has Jinja in it`},
		"a number with base 60":   {"x: 12:30:45", Variable{}, `"12:30:45" is a number with the base 60 for Ansible: put it in quotes`},
		"no number of JSON":       {"x: [.inf]", Variable{}, `.inf is no number of JSON`},
		"a vault that is needed":  {"x: " + vault, Variable{Required: true}, `is encrypted with Ansible Vault, which Terrier does not decrypt: give the stack this value in a Secret`},
		"missing":                 {"y: 1", Variable{Required: true}, `hosts.yml: the required variable "x" is not set for the group "all"`},
		"a group that is missing": {"x: 1", Variable{Required: true, Group: "web"}, `there is no group "web"`},
	} {
		t.Run(name, func(t *testing.T) {
			tt.v.Name = "x"
			values, _, errs := read(t, map[string]string{"group_vars/all.yml": tt.text + "\n"}).Variables([]Variable{tt.v})
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), tt.want) || len(values) != 0 {
				t.Errorf("Variables() = %v, %v, want an error with %q", values, errs, tt.want)
			}
		})
	}
	v := read(t, map[string]string{"hosts.yml": "web: {vars: {x: 1}, hosts: {a: }}"})
	if _, _, errs := v.Variables([]Variable{{Name: "x", Required: true}}); len(errs) != 1 || !strings.Contains(errs[0].Error(), `it is set for "web": name the group`) {
		t.Errorf("Variables() = %v, want the group that has it", errs)
	}
}

func TestVaultsAreLeftOutWithANote(t *testing.T) {
	v := read(t, map[string]string{
		"hosts.yml":                "all: {hosts: {a: }}",
		"group_vars/all/main.yml":  "open: 1\nsecret: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\nmap: {a: 1, b: !vault \"$ANSIBLE_VAULT;1.1;AES256\\n61\"}\n",
		"group_vars/all/vault.yml": "$ANSIBLE_VAULT;1.1;AES256\n3132\n",
	})
	values, notes, errs := v.Variables([]Variable{{Name: "open"}, {Name: "secret"}, {Name: "map"}})
	if diff := cmp.Diff(map[string]any{"open": json.Number("1")}, values); diff != "" || errs != nil {
		t.Errorf("Variables(): %v (-want +got):\n%s", errs, diff)
	}
	want := []string{
		"group_vars/all/vault.yml: it is encrypted with Ansible Vault, and its variables are left out",
		`group_vars/all/main.yml:2: the variable "secret" is encrypted with Ansible Vault, and is left out`,
		`group_vars/all/main.yml:5: the variable "map" is encrypted with Ansible Vault, and is left out`,
	}
	if diff := cmp.Diff(want, texted(append(v.Notes, notes...))); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// What cannot be read without a doubt is an error with file and line, and no inventory.
func TestFilesThatAreRefused(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i <= 'i'; i++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", i-1), 10), ","))
	}
	for name, tt := range map[string]struct{ file, text, want string }{
		"a key twice":               {"group_vars/all.yml", "a: 1\nb: 2\na: 3\n", `group_vars/all.yml:3: the key "a" is there twice; the first is in line 1`},
		"a key twice deep inside":   {"group_vars/all.yml", "a:\n  b: 1\n  b: 2\n", `:3: the key "b" is there twice`},
		"a host twice in a group":   {"hosts.yml", "web:\n  hosts:\n    a:\n    a:\n", `hosts.yml:4: the key "a" is there twice`},
		"a billion laughs":          {"group_vars/all.yml", bomb, "more than 200000 values"},
		"an alias of itself":        {"group_vars/all.yml", "a: &a [*a]\n", "a value that contains it"},
		"a merge of itself":         {"group_vars/all.yml", "a: &a {<<: *a}\n", "a value that contains it"},
		"too deep":                  {"group_vars/all.yml", "a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n", "deeper than 64"},
		"too large":                 {"group_vars/all.yml", "a: " + strings.Repeat("x", maxFile) + "\n", "more than 1048576"},
		"no YAML":                   {"hosts.yml", "a: [\n", "hosts.yml:1: it is no YAML"},
		"two documents":             {"hosts.yml", "a:\n---\nb:\n", "hosts.yml:2: a second document"},
		"a tag that is not known":   {"group_vars/all.yml", "a: !env HOME\n", "all.yml:1: the tag !env is not known"},
		"a list of variables":       {"group_vars/all.yml", "- a\n", "all.yml:1: this has to be a mapping, and is a list"},
		"a key that is a truth":     {"group_vars/all.yml", "a: {on: 1}\n", `the key "on" is no text for Ansible`},
		"a group with a wrong part": {"hosts.yml", "web:\n  host: {a: }\n", `hosts.yml:2: the group "web" has "host"; a group has hosts, children and vars`},
		"a group in itself":         {"hosts.yml", "a: {children: {b: {children: {a: }}}}", "among its own children"},
		"an inventory plugin":       {"hosts.yml", "plugin: amazon.aws.aws_ec2\n", "Terrier runs none"},
		"hosts in a vault":          {"hosts.yml", "$ANSIBLE_VAULT;1.1;AES256\n31\n", "hosts.yml: it is encrypted"},
		"hosts that are a list":     {"hosts.yml", "web:\n  hosts: [a, b]\n", "hosts.yml:2: this has to be a mapping, and is a list"},
		"all in a group":            {"hosts.yml", "web: {children: {all: }}", "cannot be in another"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(tree(map[string]string{tt.file: tt.text}), "t")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Read() = %v, want an error with %q", err, tt.want)
			}
			if _, ok := errors.AsType[*Problem](err); !ok {
				t.Errorf("Read() = %T, want a Problem", err)
			}
		})
	}
}

func TestConflicts(t *testing.T) {
	got := Conflicts(map[string][]Host{
		"a": {{Name: "web1", Address: "10.0.0.1", MAC: "02:00:00:00:00:01"}, {Name: "web2", Address: "10.0.0.1"}, {Name: "me", Address: "127.0.0.1"}},
		"b": {{Name: "db1", Address: "::ffff:10.0.0.1"}, {Name: "me", Address: "127.0.0.1"}, {Name: "x", Address: "X.example.com."}},
		"c": {{Name: "db9", MAC: "02-00-00-00-00-01"}, {Name: "y", Address: "x.example.com"}},
	})
	var texts []string
	for _, c := range got {
		texts = append(texts, c.String())
	}
	want := []string{
		"the MAC address 02:00:00:00:00:01 is that of web1 of tenant a and of db9 of tenant c",
		"the address 10.0.0.1 is that of web1 of tenant a and of db1 of tenant b",
		"the address x.example.com is that of x of tenant b and of y of tenant c",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("Conflicts() (-want +got):\n%s", diff)
	}
}

// A small tree that stands for many bytes is refused.
func TestBytesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, files := range map[string]map[string]string{
		"a name":        {"hosts.yml": "all: {hosts: {" + long + ": }}"},
		"a range":       {"hosts.yml": "all: {hosts: {'" + strings.Repeat("y", 250) + "[1000:1001]': }}"},
		"a long key":    {"hosts.yml": "all:\n  hosts:\n    ? '[" + strings.Repeat("0", 1<<18-1) + "1:" + strings.Repeat("0", 1<<18-2) + "99]'\n    :\n"},
		"a group":       {"hosts.yml": long + ": {hosts: {a: }}"},
		"an address":    {"hosts.yml": "all: {hosts: {'a[1:3]': {ansible_host: " + long + "}}}"},
		"a user":        {"hosts.yml": "all: {vars: {ansible_user: " + long + "}}"},
		"a MAC address": {"hosts.yml": "all:\n", "group_vars/all.yml": "mac: " + long},
		"many aliases":  {"hosts.yml": "all:\n", "group_vars/all.yml": "a: [&a \"" + strings.Repeat("x", 128<<10) + "\"" + strings.Repeat(",*a", 1000) + "]"},
		"in two files":  {"hosts.yml": "all:\n", "group_vars/all/a.yml": "a: [&a \"" + strings.Repeat("x", 128<<10) + "\"" + strings.Repeat(",*a", 150) + "]", "group_vars/all/b.yml": "b: [&a \"" + strings.Repeat("x", 128<<10) + "\"" + strings.Repeat(",*a", 150) + "]"},
	} {
		if _, err := Read(tree(files), "t"); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%s: Read() = %v, want the bound of bytes", name, err)
		}
	}
}

// The hosts of a tenant are bounded, and its variables are. What both together cost is not
// their product: the author of one directory must not occupy a registry with it.
func TestManyHostsThatSeeManyVariables(t *testing.T) {
	var vars strings.Builder
	allowed := make([]Variable, 500)
	for i := range 5000 {
		fmt.Fprintf(&vars, "v%d: %d\n", i, i)
	}
	for i := range allowed {
		allowed[i] = Variable{Name: fmt.Sprintf("v%d", i)}
	}
	v := read(t, map[string]string{"hosts.yml": "all: {hosts: {'h[0001:0500]': }}", "group_vars/all.yml": vars.String()})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	hosts := v.Hosts()
	values, notes, errs := v.Variables(allowed)
	runtime.ReadMemStats(&after)
	if len(hosts) != 500 || len(values) != 500 || len(notes)+len(errs) != 0 {
		t.Errorf("%d hosts, %d values, %v, %v", len(hosts), len(values), notes, errs)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 32 {
		t.Errorf("500 hosts and 500 variables of 5000 took %d MiB of memory, want at most 32", took)
	}
}

// Whatever is read is an inventory whose variables are JSON, or an error.
func FuzzRead(f *testing.F) {
	f.Add("all: {hosts: {a: {x: 1}}, children: {web: {hosts: {'b[1:3]': }}}}", "x: [1, yes, 0755]\n")
	f.Add("web: &w {hosts: {a: }}\ndb: *w\n", "a: &a {b: 1}\nc: {<<: *a}\n")
	f.Add("all:\n", "x: !vault |\n  $ANSIBLE_VAULT\n")
	f.Fuzz(func(t *testing.T, hosts, vars string) {
		v, err := Read(tree(map[string]string{"hosts.yml": hosts, "group_vars/all.yml": vars}), "t")
		if err != nil {
			return
		}
		for _, h := range v.Hosts() {
			if _, err := json.Marshal(v.Vars(h.Name)); err != nil {
				t.Errorf("Vars(%q): %v", h.Name, err)
			}
		}
	})
}
