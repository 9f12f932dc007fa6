package module

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

const (
	evil      = "terraform {\n  backend \"local\" {\n    path = \"evil.tfstate\"\n  }\n}\n"
	evilJSON  = `{"terraform": {"backend": {"local": {"path": "evil.tfstate"}}}}`
	evilCloud = "terraform {\n  cloud {\n    organization = \"evil\"\n    workspaces {\n      name = \"x\"\n    }\n  }\n}\n"
	also      = "\nlocals {\n  a = 1\n}\n"
	plain     = "locals {\n  a = 0\n}\n"
)

// attack is a module that tries to choose its backend.
type attack struct {
	name    string
	files   map[string]string
	exclude []string
	denied  string // in the message
}

var attacks = []attack{
	{"a plain backend block", map[string]string{"main.tf": plain + evil}, nil, ""},
	{"a plain backend block in JSON", map[string]string{"main.tf.json": evilJSON}, nil, ""},
	{"a plain cloud block", map[string]string{"main.tf": plain + evilCloud}, nil, ""},
	{"an earlier override", map[string]string{"main.tf": plain, "a_override.tf": evil}, []string{"a_override.tf"}, ""},
	{"an earlier override with more in it", map[string]string{"main.tf": plain, "a_override.tf": evil + also}, nil, ""},
	{"a later override", map[string]string{"main.tf": plain, "z_override.tf": evil}, []string{"z_override.tf"}, ""},
	{"a later override with more in it", map[string]string{"main.tf": plain, "z_override.tf": evil + also}, nil, "z_override.tf:2: "},
	{"override.tf itself", map[string]string{"main.tf": plain, "override.tf": evil}, []string{"override.tf"}, ""},
	{"a later override for tofu", map[string]string{"main.tf": plain, "z_override.tofu": evil}, []string{"z_override.tofu"}, ""},
	{"a later override in JSON", map[string]string{"main.tf": plain, "z_override.tf.json": evilJSON}, []string{"z_override.tf.json"}, ""},
	{"a later override in JSON for tofu", map[string]string{"main.tf": plain, "z_override.tofu.json": evilJSON}, []string{"z_override.tofu.json"}, ""},
	{"a later override with a cloud block", map[string]string{"main.tf": plain, "z_override.tf": evilCloud}, []string{"z_override.tf"}, ""},
	{"our name", map[string]string{"main.tf": plain, "backend_override.tf": evil}, nil, ""},
	{"our name in JSON", map[string]string{"main.tf": plain, "backend_override.tf.json": evilJSON}, []string{"backend_override.tf.json"}, ""},
	{"our name for tofu", map[string]string{"main.tf": plain, "backend_override.tofu": evil}, []string{"backend_override.tofu"}, ""},
	{"our name for tofu, with something else in it", map[string]string{"main.tf": plain + evil, "backend_override.tofu": strings.TrimSpace(also)}, nil, "backend_override.tofu: "},
	{"a committed data directory", map[string]string{"main.tf": plain,
		".terraform/terraform.tfstate": `{"version":3,"serial":1,"lineage":"x","backend":{"type":"local","config":{"path":"evil.tfstate","workspace_dir":null},"hash":1}}`}, []string{".terraform"}, ""},
	{"a committed workspace", map[string]string{"main.tf": plain, ".terraform/environment": "evil"}, []string{".terraform"}, ""},
	{"a committed state", map[string]string{"main.tf": plain, "terraform.tfstate": committedState}, []string{"terraform.tfstate"}, ""},
	{"a committed state of a workspace", map[string]string{"main.tf": plain, "terraform.tfstate.d/evil/terraform.tfstate": committedState}, []string{"terraform.tfstate.d"}, ""},
}

const committedState = `{"version":4,"terraform_version":"1.6.0","serial":9,"lineage":"evil","outputs":{"evil":{"value":"yes","type":"string"}},"resources":[]}`

func TestGuard(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			g, err := Guard(inspect(t, a.files), Managed{})
			if a.denied != "" {
				if fault.Of(err) != fault.Denied || !strings.Contains(fmt.Sprint(err), a.denied) {
					t.Errorf("Guard() error = %v, want Denied with %q", err, a.denied)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a.exclude, g.Exclude); diff != "" {
				t.Errorf("excluded (-want +got):\n%s", diff)
			}
			if len(g.Notes) < len(g.Exclude) {
				t.Errorf("%d notes for %d exclusions, want each explained", len(g.Notes), len(g.Exclude))
			}
		})
	}
}

func TestGuardLeavesTheRestAlone(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"an override of something else": {"main.tf": plain, "z_override.tf": also},
		"a test file":                   {"main.tf": plain, "x.tftest.hcl": "run \"x\" {}"},
		"a child's override":            {"main.tf": plain, "child/z_override.tf": evil},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Guard(inspect(t, files), Managed{})
			if err != nil || len(g.Exclude)+len(g.Notes) > 0 {
				t.Errorf("Guard() = %+v, %v; want nothing to do", g, err)
			}
		})
	}
}

func TestAModuleMayChooseWhereTheStackDoesNot(t *testing.T) {
	r := inspect(t, map[string]string{"main.tf": plain, "z_override.tf": evil, "terraform.tfstate": committedState, ".terraform/environment": "x"})
	g, err := Guard(r, Unset{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".terraform"}, g.Exclude); diff != "" {
		t.Errorf("excluded (-want +got):\n%s", diff)
	}
}
