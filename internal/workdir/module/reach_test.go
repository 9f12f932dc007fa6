package module

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReachOf(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		root  string
		dirs  []string
		whole string // in the message; empty if the whole source does not count
	}{
		"a module alone": {files: map[string]string{"a/terraform/main.tf": `resource "x" "y" {}`}, root: "a/terraform", dirs: []string{"a/terraform"}},
		"local modules, directly and not": {
			files: map[string]string{
				"a/main.tf": `module "m" { source = "../modules/m" }`, "modules/m/main.tf": `module "n" { source = "../n/inner" }`, "modules/n/inner/x.tofu": ``, "b/main.tf": ``,
			},
			root: "./a", dirs: []string{"a", "modules/m", "modules/n/inner"},
		},
		"modules that call one another": {
			files: map[string]string{"a/main.tf": `module "m" { source = "../m" }`, "m/main.tf": `module "a" { source = "../a" }`}, root: "a", dirs: []string{"a", "m"},
		},
		"modules from elsewhere": {files: map[string]string{"a/main.tf": "module \"m\" { source = \"hashicorp/x/aws\" }\nmodule \"n\" { source = \"git::https://example.com/x.git\" }"}, root: "a", dirs: []string{"a"}},
		"files below": {
			files: map[string]string{"a/main.tf": `locals {
  dir  = "${path.module}/templates"
  text = file("${path.module}/x.txt")
  more = templatefile("${local.dir}/${var.name}.tpl", {})
  all  = [for f in fileset(path.module, "files/*") : file("${path.module}/files/${f}")]
  rel  = file("x.txt")
}`}, root: "a", dirs: []string{"a"},
		},
		"files of a called module": {
			files: map[string]string{"a/main.tf": "module \"m\" { source = \"../m\" }\nlocals { x = file(\"${path.module}/../m/x\") }", "m/main.tf": ""}, root: "a", dirs: []string{"a", "m"},
		},
		"a file of the machine":      {files: map[string]string{"a/main.tf": `locals { x = file("/etc/hostname") }`}, root: "a", dirs: []string{"a"}},
		"a file outside":             {files: map[string]string{"a/main.tf": "\nlocals { x = file(\"${path.module}/../shared/x\") }"}, root: "a", whole: `a/main.tf:2: file reads "shared/x", which is outside of a`},
		"a file far outside":         {files: map[string]string{"a/main.tf": `locals { x = file("../../../x") }`}, root: "a", whole: "outside of a"},
		"a path that is not known":   {files: map[string]string{"a/main.tf": `locals { x = file(var.path) }`}, root: "a", whole: "a/main.tf:1: the path that file reads is not constant"},
		"a set that is not known":    {files: map[string]string{"a/main.tf": `locals { x = fileset("${path.module}/${var.x}", "*") }`}, root: "a", whole: "the path that fileset reads is not constant"},
		"a pattern that climbs":      {files: map[string]string{"a/main.tf": `locals { x = fileset(path.module, "../*") }`}, root: "a", whole: "may lead out"},
		"a source that is not known": {files: map[string]string{"a/main.tf": `module "m" { source = var.x }`}, root: "a", whole: "a/main.tf:1: the source of the module is not constant"},
		"a module outside":           {files: map[string]string{"a/main.tf": `module "m" { source = "../../x" }`}, root: "a", whole: "outside of the source"},
		"a module that is not there": {files: map[string]string{"a/main.tf": `module "m" { source = "../m" }`}, root: "a", whole: `"m" cannot be read`},
		"JSON":                       {files: map[string]string{"a/main.tf.json": `{}`}, root: "a", whole: "a/main.tf.json: Terrier does not look"},
		"what cannot be parsed":      {files: map[string]string{"a/main.tf": `x {`}, root: "a", whole: "a/main.tf: it cannot be parsed"},
		"a nested call":              {files: map[string]string{"a/main.tf": "resource \"x\" \"y\" {\n  z {\n    w = jsonencode([upper(filesha256(\"../x\"))])\n  }\n}"}, root: "a", whole: "filesha256"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ReachOf(tree(tt.files), tt.root)
			if tt.whole != "" {
				if !strings.Contains(got.Whole, tt.whole) {
					t.Errorf("Whole = %q, want %q in it", got.Whole, tt.whole)
				}
				return
			}
			if diff := cmp.Diff(tt.dirs, got.Dirs); diff != "" || got.Whole != "" {
				t.Errorf("ReachOf() whole %q (-want +got):\n%s", got.Whole, diff)
			}
		})
	}
}
