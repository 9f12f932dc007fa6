package workdir

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
)

// declared makes declarations out of names and types.
func declared(types map[string]string) map[string]Variable {
	out := map[string]Variable{}
	for name, typ := range types {
		out[name] = Variable{Name: name, Type: typ, Complex: strings.ContainsAny(typ, "({")}
	}
	return out
}

func TestResolve(t *testing.T) {
	secret := func(data map[string][]byte) From { return From{Name: "Secret s", Secret: true, Data: data} }
	for name, tt := range map[string]struct {
		in       Inputs
		declared map[string]Variable
		vars     map[string]string
		env      map[string]string
	}{
		"later and stronger ones win": {
			in: Inputs{
				Values: json.RawMessage(`{"a":1}`),
				Vars:   []Var{{"x", json.RawMessage(`1`)}, {"x", json.RawMessage(`2`)}, {"values", json.RawMessage(`"mine"`)}, {"y", json.RawMessage(`true`)}},
				From:   []From{secret(map[string][]byte{"x": []byte("3")}), {Name: "ConfigMap c", Data: map[string][]byte{"x": []byte("4")}}},
			},
			vars: map[string]string{"x": `"4"`, "y": `true`, "values": `"mine"`},
		},
		"text stays text, whatever it looks like": {
			in: Inputs{From: []From{secret(map[string][]byte{
				"number": []byte("5"), "flag": []byte("true"), "any": []byte(`["a"]`), "undeclared": []byte(`{"a":1}`), "line": []byte("a\n"), "html": []byte("<&>")})}},
			declared: declared(map[string]string{"number": "number", "flag": "bool", "any": "any"}),
			vars:     map[string]string{"number": `"5"`, "flag": `"true"`, "any": `"[\"a\"]"`, "undeclared": `"{\"a\":1}"`, "line": `"a\n"`, "html": `"<&>"`},
		},
		"JSON goes to structured variables as JSON": {
			in: Inputs{From: []From{secret(map[string][]byte{
				"list": []byte(" [1, 12345678901234567890]\n"), "map": []byte(`{"a":"b"}`), "broken": []byte(`["a`), "word": []byte(`"x"`)})}},
			declared: declared(map[string]string{"list": "list(number)", "map": "map(string)", "broken": "list(string)", "word": "set(string)"}),
			vars:     map[string]string{"list": `[1, 12345678901234567890]`, "map": `{"a":"b"}`, "broken": `"[\"a"`, "word": `"\"x\""`},
		},
		"credentials of a Secret are environment": {
			in: Inputs{From: []From{
				secret(map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("AK"), "ARM_CLIENT_ID": []byte("c"), "region": []byte("r"), "Mixed_KEY": []byte("m")}),
				{Name: "ConfigMap c", Data: map[string][]byte{"GOOGLE_PROJECT": []byte("p")}},
			}},
			declared: declared(map[string]string{"ARM_CLIENT_ID": "string"}),
			vars:     map[string]string{"ARM_CLIENT_ID": `"c"`, "region": `"r"`, "Mixed_KEY": `"m"`, "GOOGLE_PROJECT": `"p"`},
			env:      map[string]string{"AWS_ACCESS_KEY_ID": "AK"},
		},
		"bytes that no variable is for are dropped": {
			in:   Inputs{From: []From{secret(map[string][]byte{"keystore.jks": {0xff, 0xfe}, "ok": []byte("v")})}},
			vars: map[string]string{"ok": `"v"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.in.Resolve(tt.declared)
			if err != nil {
				t.Fatal(err)
			}
			vars := map[string]string{}
			for name, value := range got.Vars {
				vars[name] = string(value)
			}
			if diff := cmp.Diff(tt.vars, vars); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
			if len(tt.env)+len(got.Environment) > 0 {
				if diff := cmp.Diff(tt.env, got.Environment); diff != "" {
					t.Errorf("environment (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestEverySecretValueIsKnownToTheRedactor(t *testing.T) {
	got, err := Inputs{From: []From{
		{Name: "Secret s", Secret: true, Data: map[string][]byte{"AWS_SECRET_ACCESS_KEY": []byte("one"), "password": []byte("two"), "keystore": {0xff, 'x'}}},
		{Name: "ConfigMap c", Data: map[string][]byte{"region": []byte("north")}},
	}}.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got.Secrets)
	if diff := cmp.Diff([]string{"one", "two", "\xffx"}, got.Secrets); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
}

func TestResolveRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		from From
		kind fault.Kind
		want string
	}{
		"names that control the engine":    {From{Name: "Secret s", Secret: true, Data: map[string][]byte{"TF_CLI_ARGS": nil}}, fault.Denied, "Secret s: the environment variable TF_CLI_ARGS"},
		"bytes for a declared variable":    {From{Name: "Secret s", Secret: true, Data: map[string][]byte{"key": {0xff}}}, fault.Invalid, "the value of key is not text"},
		"a NUL in an environment variable": {From{Name: "Secret s", Secret: true, Data: map[string][]byte{"AWS_X": []byte("a\x00b")}}, fault.Invalid, "AWS_X holds a NUL byte"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Inputs{From: []From{tt.from}}.Resolve(declared(map[string]string{"key": "string"}))
			if fault.Of(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("Resolve() error = %v, want %s with %q", err, tt.kind, tt.want)
			}
		})
	}
}

func TestCheckEnvironment(t *testing.T) {
	denied := []string{
		"TF_CLI_ARGS", "TF_CLI_ARGS_plan", "TF_DATA_DIR", "TF_PLUGIN_CACHE_DIR", "TF_CLI_CONFIG_FILE",
		"TF_REATTACH_PROVIDERS", "TF_LOG", "TF_LOG_PATH", "TF_WORKSPACE", "TF_HTTP_ADDRESS", "tf_log",
		"TF_INPUT", "TF_ENCRYPTION", "LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "HOME", "TMPDIR", "GIT_SSH_COMMAND",
		"SSH_AUTH_SOCK", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY", "TERRIER_ENGINE", "BASH_ENV", "GODEBUG",
	}
	for _, name := range denied {
		if got := fault.Of(CheckEnvironment(name)); got != fault.Denied {
			t.Errorf("CheckEnvironment(%s) is of kind %q, want Denied", name, got)
		}
	}
	for name, want := range map[string]string{
		"TF_TOKEN_app_terraform_io": "spec.cliConfigSecretRef", "TF_WORKSPACE": "spec.workspace", "TF_LOG": "terrier logs", "TF_CLI_ARGS_plan": "spec.targets",
		"https_proxy": "--allow-stack-env HTTPS_PROXY", "NO_PROXY": "--run-env NO_PROXY=VALUE", "SSL_CERT_FILE": "--run-ca-file", "GIT_SSH_COMMAND": "spec.fileMappings",
	} {
		if err := CheckEnvironment(name); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("CheckEnvironment(%s) = %v, want it to say %s", name, err, want)
		}
	}
	if err := CheckEnvironment("https_proxy", "HTTPS_PROXY"); err != nil {
		t.Errorf("CheckEnvironment(https_proxy) = %v where the operator lets stacks set it", err)
	}
	if err := CheckEnvironment("NO_PROXY", "HTTPS_PROXY"); fault.Of(err) != fault.Denied {
		t.Errorf("CheckEnvironment(NO_PROXY) = %v, want it denied: the operator lets stacks set another one", err)
	}
	for _, name := range []string{"TF_LOG", "TF_VAR_region", "PATH", "LD_PRELOAD", "TERRIER_X", "a b"} {
		if err := CheckPlatformEnvironment(name); err == nil {
			t.Errorf("CheckPlatformEnvironment(%s) = nil, want a refusal", name)
		}
	}
	for _, name := range []string{"HTTPS_PROXY", "AWS_REGION", "GODEBUG", "GIT_SSL_NO_VERIFY"} {
		if err := CheckPlatformEnvironment(name); err != nil {
			t.Errorf("CheckPlatformEnvironment(%s) = %v, want nil", name, err)
		}
	}
	for _, name := range []string{"", "A=B", "1A", "A B", "A\x00", "Ä", "A-B", strings.Repeat("A", 300)} {
		if got := fault.Of(CheckEnvironment(name)); got != fault.Invalid {
			t.Errorf("CheckEnvironment(%q) is of kind %q, want Invalid", name, got)
		}
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "ARM_CLIENT_ID", "GOOGLE_CREDENTIALS", "TF_VAR_region", "VAULT_TOKEN", "_x", "PGPASSWORD", "KUBE_TOKEN"} {
		if err := CheckEnvironment(name); err != nil {
			t.Errorf("CheckEnvironment(%s) = %v, want nil", name, err)
		}
	}
}

func TestTFVarsRefuses(t *testing.T) {
	for name, vars := range map[string]Variables{
		"no name": {"": json.RawMessage(`1`)}, "no JSON": {"x": json.RawMessage(`1}, "y": {`)}, "nothing": {"x": nil},
	} {
		if _, err := TFVars(vars); fault.Of(err) != fault.Invalid {
			t.Errorf("%s: TFVars() error = %v, want Invalid", name, err)
		}
	}
}

// Whatever the values are, the file has the variables that were given and no
// other, and each is what was given.
func TestValuesNeverChangeTheShapeOfTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hostile := rapid.OneOf(rapid.String(), rapid.SampledFrom(hostileTexts))
		data := rapid.MapOfN(rapid.StringN(1, 20, -1), hostile, 0, 6).Draw(t, "data")
		from := From{Name: "ConfigMap c", Data: map[string][]byte{}}
		want := map[string]any{}
		for key, value := range data {
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				continue
			}
			from.Data[key], want[key] = []byte(value), value
		}
		resolved, err := Inputs{From: []From{from}}.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := TFVars(resolved.Vars)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(f.Content, &got); err != nil {
			t.Fatalf("%v:\n%s", err, f.Content)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("variables (-want +got):\n%s", diff)
		}
	})
}

var hostileTexts = []string{
	`${file("/etc/hostname")}`, `%{ if true }yes%{ endif }`, `$${escaped}`, `%%{escaped}`, "\"\n}\nresource \"x\" \"y\" {}", `", "injected": "`,
	"---\nkind: ClusterRoleBinding", "*anchor", "!!tag", "\u202ereversed", "a\u0000b", "{{ .x }}", "${{ .x.y }}", "<<EOT\nx\nEOT", `\u0022`, "null", "1e999", "",
}

// The engine takes every value as it is: no template is evaluated, no file is
// read, no digit is lost.
func TestTheEngineTakesValuesLiterally(t *testing.T) {
	bin, err := filepath.Abs("../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("bin/tofu is not built")
	}
	dir := t.TempDir()
	vars := Variables{"big": json.RawMessage(`12345678901234567890123`)}
	var hcl strings.Builder
	hcl.WriteString("variable \"big\" { type = number }\noutput \"big\" { value = var.big }\n")
	want := map[string]string{}
	for i, value := range hostileTexts {
		if strings.Contains(value, "\x00") {
			continue // no string of HCL can hold it
		}
		name := fmt.Sprintf("v%d", i)
		fmt.Fprintf(&hcl, "variable %q { type = string }\noutput %q { value = var.%s }\n", name, name, name)
		vars[name], want[name] = text(value), value
	}
	f, err := TFVars(vars)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []File{f, Inline(hcl.String()), CLIConfig(Mirror{})} {
		if err := os.WriteFile(filepath.Join(dir, file.Path), file.Content, os.FileMode(file.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir = dir
		cmd.Env = []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, CLIConfigPath), "HOME=" + dir}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("tofu %v: %v\n%s%s", args, err, out, stderr.String())
		}
		return out
	}
	run("apply", "-auto-approve", "-no-color", "-input=false")
	var outputs map[string]struct{ Value json.RawMessage }
	if err := json.Unmarshal(run("output", "-json"), &outputs); err != nil {
		t.Fatal(err)
	}
	for name, value := range want {
		var got string
		if err := json.Unmarshal(outputs[name].Value, &got); err != nil || got != value {
			t.Errorf("the engine made %q (%v) out of %q", got, err, value)
		}
	}
	if got := string(outputs["big"].Value); got != "12345678901234567890123" {
		t.Errorf("the engine made %s out of a big number", got)
	}
}
