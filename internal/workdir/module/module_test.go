package module

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// tree makes a tree out of names and contents.
func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, content := range files {
		out[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return out
}

func inspect(t *testing.T, files map[string]string) Root {
	t.Helper()
	r, err := Inspect(tree(files), "", "tofu")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVariables(t *testing.T) {
	r := inspect(t, map[string]string{
		"vars.tf": `
variable "plain" {}
variable "name" {
  type    = string
  default = "x"
}
variable "names" { type = list(string) }
variable "shape" {
  type = object({
    size = optional(number, 3)
  })
}
variable "token" {
  type      = string
  sensitive = true
}
variable "old" { type = "list" }
variable "odd" { sensitive = local.odd }
variable "anything" { type = any }
variable "broken" { type = nonsense(3) }
`,
		"more.tf.json":  `{"variable": {"ids": {"type": "map(number)", "default": {}}, "flag": {"type": "bool"}}}`,
		"x_override.tf": `variable "name" { sensitive = true }`,
	})
	want := map[string]workdir.Variable{
		"plain":    {Name: "plain", File: "vars.tf", Line: 2},
		"name":     {Name: "name", Type: "string", Default: true, Sensitive: true, File: "vars.tf", Line: 3},
		"names":    {Name: "names", Type: "list(string)", Complex: true, File: "vars.tf", Line: 7},
		"shape":    {Name: "shape", Type: "object({ size = optional(number, 3) })", Complex: true, File: "vars.tf", Line: 8},
		"token":    {Name: "token", Type: "string", Sensitive: true, File: "vars.tf", Line: 13},
		"old":      {Name: "old", Type: "list", Complex: true, File: "vars.tf", Line: 17},
		"odd":      {Name: "odd", Sensitive: true, File: "vars.tf", Line: 18},
		"anything": {Name: "anything", Type: "any", File: "vars.tf", Line: 19},
		"broken":   {Name: "broken", Type: "nonsense(3)", File: "vars.tf", Line: 20},
		"ids":      {Name: "ids", Type: "map(number)", Complex: true, Default: true, File: "more.tf.json", Line: 1},
		"flag":     {Name: "flag", Type: "bool", File: "more.tf.json", Line: 1},
	}
	if diff := cmp.Diff(want, r.Variables); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

func TestWhatElseAModuleSays(t *testing.T) {
	r := inspect(t, map[string]string{
		"main.tf": `
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws    = { source = "hashicorp/aws", version = "~> 5.0" }
    random = "~> 3.0"
    local  = { "source" = "hashicorp/local" }
  }
  backend "s3" {
    key = "x"
  }
  encryption {}
}
`,
		"cloud.tf.json":               `{"terraform": {"cloud": {"organization": "acme"}}}`,
		"terraform.tfvars":            `x = 1`,
		"prod.auto.tfvars.json":       `{}`,
		"terraform.tfstate":           `{}`,
		".terraform/environment":      `other`,
		".terraform/modules/m/bad.tf": `not read {`,
		"child/bad.tf":                `not read {`,
		".hidden.tf":                  `not read {`,
		"backup.tf~":                  `not read {`,
		"#lock.tf#":                   `not read {`,
		"notes.txt":                   `not read {`,
	})
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"files", r.Files, []string{"cloud.tf.json", "main.tf"}},
		{"required version", r.RequiredVersion, []string{">= 1.5"}},
		{"providers", r.Providers, map[string]Provider{
			"aws": {Source: "hashicorp/aws", Version: "~> 5.0"}, "random": {Version: "~> 3.0"}, "local": {Source: "hashicorp/local"},
		}},
		{"backends", r.Backends, []Block{
			{Kind: "cloud", File: "cloud.tf.json", Line: 1}, {Kind: "backend", Type: "s3", File: "main.tf", Line: 9},
		}},
		{"variable files", r.VariableFiles, []string{"prod.auto.tfvars.json", "terraform.tfvars"}},
		{"local state", r.LocalState, []string{"terraform.tfstate"}},
		{"encryption, data directory", []bool{r.Encryption, r.DataDir}, []bool{true, true}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

func TestEnginesReadDifferentFiles(t *testing.T) {
	files := tree(map[string]string{
		"a.tf": `variable "a_tf" {}`, "a.tofu": `variable "a_tofu" {}`, "b.tf": `variable "b_tf" {}`, "c.tofu": `variable "c_tofu" {}`,
		"d.tf.json": `{"variable":{"d_tf":{}}}`, "d.tofu.json": `{"variable":{"d_tofu":{}}}`,
	})
	for engine, want := range map[string][]string{
		"tofu":      {"a.tofu", "b.tf", "c.tofu", "d.tofu.json"},
		"terraform": {"a.tf", "b.tf", "d.tf.json"},
	} {
		r, err := Inspect(files, ".", engine)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, r.Files); diff != "" {
			t.Errorf("%s reads (-want +got):\n%s", engine, diff)
		}
		if len(r.Variables) != len(want) {
			t.Errorf("%s: %d variables, want one for each file", engine, len(r.Variables))
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		root  string
		want  string
	}{
		"a syntax error":       {map[string]string{"infra/main.tf": "\n\nvariable \"x\" { type = string sensitive = true }\n"}, "infra", "main.tf:3: "},
		"a JSON error":         {map[string]string{"main.tf.json": "{\n\"a\":\n}"}, "", "main.tf.json:3: "},
		"a variable unnamed":   {map[string]string{"main.tf": "variable {}"}, "", "main.tf:1: "},
		"a path that is not":   {map[string]string{"main.tf": ""}, "infra", `the path "infra" is not a directory`},
		"a path to a file":     {map[string]string{"main.tf": ""}, "main.tf", `the path "main.tf" is not a directory`},
		"a path that leaves":   {map[string]string{"main.tf": ""}, "../other", `the path "../other" leads out`},
		"a path in disguise":   {map[string]string{"main.tf": ""}, `a\..\..\b`, "leads out"},
		"a file without end":   {map[string]string{"main.tf": strings.Repeat("# 0123456789\n", 400_000)}, "", "main.tf: the configuration is too large"},
		"files without end":    {many(maxFiles + 1), "", "more than 2000"},
		"backend without name": {map[string]string{"main.tf": "terraform {\n  backend {}\n}"}, "", "main.tf:2: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Inspect(tree(tt.files), tt.root, "tofu")
			if fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("Inspect() error = %v, want Invalid with %q", err, tt.want)
			}
		})
	}
}

func many(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("f%d.tf", i)] = ""
	}
	return out
}

func TestPathsOfTheRootModule(t *testing.T) {
	files := tree(map[string]string{"infra/prod/main.tf": `variable "here" {}`})
	for _, root := range []string{"infra/prod", "./infra/prod", "infra/prod/", "/infra/prod", "infra//prod"} {
		r, err := Inspect(files, root, "tofu")
		if err != nil || len(r.Variables) != 1 {
			t.Errorf("Inspect(%q) = %d variables, %v; want one", root, len(r.Variables), err)
		}
	}
}

func FuzzInspect(f *testing.F) {
	f.Add("variable \"x\" {}", `{"terraform":{"backend":{"s3":{}}}}`)
	f.Add("terraform {\n backend \"s3\" {}\n required_providers { a = { source = 1 } }\n}", `{"variable":[{"x":[{"type":1}]}]}`)
	f.Fuzz(func(t *testing.T, native, json string) {
		_, err := Inspect(tree(map[string]string{"main.tf": native, "x_override.tf.json": json}), "", "tofu")
		if k := fault.Of(err); k != fault.None && k != fault.Invalid {
			t.Errorf("Inspect() error is %s, want Invalid: %v", k, err)
		}
	})
}
