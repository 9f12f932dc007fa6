package module

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelocate(t *testing.T) {
	const address = "reg.example.com/net/vpc/aws"
	for name, tt := range map[string]struct{ src, want string }{
		"the module": {"# Calls it.\nmodule \"vpc\" {\n  source = \"../..\"\n  cidr   = \"10.0.0.0/8\"\n}\n",
			"# Calls it.\nmodule \"vpc\" {\n  source = \"reg.example.com/net/vpc/aws\"\n  version = \"1.2.0\"\n  cidr   = \"10.0.0.0/8\"\n}\n"},
		"aligned":            {"module \"vpc\" {\n  source  = \"../../\"\n}\n", "module \"vpc\" {\n  source  = \"reg.example.com/net/vpc/aws\"\n  version = \"1.2.0\"\n}\n"},
		"a submodule":        {"module \"s\" {\n  source  = \"../../modules/subnet\"\n}\n", "module \"s\" {\n  source  = \"reg.example.com/net/vpc/aws//modules/subnet\"\n  version = \"1.2.0\"\n}\n"},
		"in one line":        {`module "vpc" { source = "../.." }`, `module "vpc" { source = "reg.example.com/net/vpc/aws" }`},
		"with a version":     {"module \"v\" {\n  version = \"1\"\n  source  = \"../..\"\n}\n", "module \"v\" {\n  version = \"1\"\n  source  = \"reg.example.com/net/vpc/aws\"\n}\n"},
		"of the example":     {"module \"x\" {\n  source = \"./x\"\n}\n", ""},
		"out of the archive": {"module \"x\" {\n  source = \"../../..\"\n}\n", ""},
		"of another place":   {"module \"x\" {\n  source = \"git::https://example.com/x\"\n}\n", ""},
		"a variable":         {"module \"x\" {\n  source = var.x\n}\n", ""},
		"what is broken":     {"module \"x\" {\n  source = \"../..\"\n", ""},
		"nested brackets":    {"module \"x\" {\n  source = \"../..\"\n}\nlocals { x = " + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + " }", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := tt.want
			if want == "" {
				want = tt.src
			}
			if diff := cmp.Diff(want, string(Relocate("main.tf", []byte(tt.src), "examples/basic", address, "1.2.0"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := string(Relocate("main.tf.json", []byte(`{"module":{"x":{"source":"../.."}}}`), "examples/basic", address, "1.2.0")); !strings.Contains(got, `"../.."`) {
		t.Errorf("JSON is rewritten: %s", got)
	}
}

func FuzzRelocate(f *testing.F) {
	f.Add("module \"vpc\" {\n  source = \"../..\"\n}\n")
	f.Add("module \"a\" { source = \"../..\" }\nmodule \"b\" {\n\tsource=\"../../modules/x\"\n}")
	f.Fuzz(func(t *testing.T, src string) {
		out := Relocate("main.tf", []byte(src), "examples/basic", "reg.example.com/net/vpc/aws", "1.2.0")
		if string(out) == src {
			return
		}
		if err := Check("main.tf", out); err != nil && Check("main.tf", []byte(src)) == nil {
			t.Errorf("what could be read cannot be read any more: %v\n%s", err, out)
		}
	})
}
