package engine

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func dirOf(files map[string]string) fs.FS {
	dir := fstest.MapFS{}
	for name, content := range files {
		dir[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return dir
}

func TestConfigurations(t *testing.T) {
	const sources = "terraform {\n  required_providers {\n    cloud = {\n      source  = \"acme/cloud\"\n      version = \"~> 1.0\"\n    }\n    old = \"1.0\"\n  }\n}\n"
	for name, c := range map[string]struct {
		root  map[string]string
		calls []map[string]string
		want  []string // configured in more than one way
	}{
		"none":      {root: map[string]string{"main.tf": "resource \"a_b\" \"c\" {\n  provider = a.x\n}\n"}},
		"one block": {root: map[string]string{"main.tf": "provider \"aws\" {\n  region = \"x\"\n}\n"}},
		"blocks of two providers": {
			root: map[string]string{"main.tf": "provider \"aws\" {}\nprovider google { region = \"alias\" }\n"},
		},
		"an alias": {
			root: map[string]string{"a.tf": "provider \"aws\" {\n}\n", "b.tf": "provider \"aws\" {\n  region = \"x\"\n  alias  = \"other\"\n}\n"},
			want: []string{"hashicorp/aws"},
		},
		"one block with an alias, beside the implied one": {
			root: map[string]string{"a.tf": "provider \"aws\" { alias = \"x\" }"},
			want: []string{"hashicorp/aws"},
		},
		"an alias of a provider with another name": {
			root: map[string]string{"a.tf": sources, "b.tf": "provider \"cloud\" {\n  alias = \"x\"\n}\nprovider \"old\" {\n  alias = \"x\"\n}\n"},
			want: []string{"acme/cloud", "hashicorp/old"},
		},
		"two blocks, which an override may be": {
			root: map[string]string{"a.tf": "provider \"aws\" {}\n", "a_override.tf": "provider \"aws\" {}\n"},
			want: []string{"hashicorp/aws"},
		},
		"for_each": {
			root: map[string]string{"a.tofu": "provider \"aws\" {\n  for_each = toset([\"a\"])\n}\n"},
			want: []string{"hashicorp/aws"},
		},
		"a block in a module that is called": {
			root:  map[string]string{"a.tf": "module \"m\" {\n  source = \"./m\"\n}\n"},
			calls: []map[string]string{{"a.tf": sources + "provider \"cloud\" {}\n"}},
			want:  []string{"acme/cloud"},
		},
		"a module that takes what it is given": {
			root:  map[string]string{"a.tf": "provider \"aws\" {}\nmodule \"m\" {\n  source = \"./m\"\n  providers = { aws = aws }\n}\n"},
			calls: []map[string]string{{"a.tf": sources + "resource \"aws_x\" \"y\" {}\n"}},
		},
		"JSON": {
			root: map[string]string{"a.tf.json": `{"//": "x", "terraform": {"required_providers": {"cloud": {"source": "registry.example.com/acme/cloud"}}},
				"provider": {"cloud": [{"region": "a"}, {"alias": "b"}], "aws": {"region": "x"}}, "resource": {"a": {"provider": "aws"}}}`},
			want: []string{"acme/cloud"},
		},
		"a name that is there twice in JSON": {
			root: map[string]string{"a.tf.json": `[{"provider": {"aws": {}}, "provider": {"aws": {}}}]`},
			want: []string{"hashicorp/aws"},
		},
		"what only looks like a block": {root: map[string]string{"a.tf": `
# provider "aws" { alias = "x" }
/* provider "aws" {
alias = 1 } */
locals {
  a = <<-EOT
    provider "aws" {
      alias = "x"
    }
  EOT
  b = "provider \"aws\" {"
  c = "${join("}", ["provider"])}%{ if true }{%{ endif }$${"
  provider = { alias = "x" }
  d = {
    provider : "x", alias : [for x in y : x if x != "{"]
  }
}
provider "aws" {
  assume_role {
    alias = "not ours"
  }
}
`}},
		"other files": {root: map[string]string{"a.txt": "provider {", ".hidden.tf": "provider {", "b.tfvars": "provider {"}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []fs.FS
			for _, c := range c.calls {
				calls = append(calls, dirOf(c))
			}
			got, err := Configurations(dirOf(c.root), calls)
			if err != nil {
				t.Fatal(err)
			}
			if g := slices.Sorted(maps.Keys(got)); !slices.Equal(g, c.want) {
				t.Errorf("Configurations() = %q, want %q", g, c.want)
			}
		})
	}
}

func TestConfigurationsInDoubt(t *testing.T) {
	for name, src := range map[string]string{
		"a string without end":   "provider \"aws\" {\n  a = \"x\n}\n",
		"a comment without end":  "provider \"aws\" {}\n/* ",
		"a heredoc without end":  "provider \"aws\" {\n  a = <<EOT\n}\n",
		"a block without end":    "provider \"aws\" {\n",
		"a brace too many":       "provider \"aws\" {}\n}\n",
		"a template without end": "provider \"aws\" {\n  a = \"${x\n}\n",
		"a block without a name": "provider {\n}\n",
		"templates in templates": "provider \"aws\" {\n  a = " + strings.Repeat("\"${", 1000) + "\n}\n",
		"blocks in blocks":       "provider \"aws\" " + strings.Repeat("{ a ", 1000),
	} {
		if got, err := Configurations(dirOf(map[string]string{"a.tf": src}), nil); err == nil {
			t.Errorf("%s: Configurations() = %v, want an error", name, got)
		}
	}
	for name, src := range map[string]string{
		"a list of lists": `{"provider": [[{}]]}`,
		"no object":       `{"provider": "aws"}`,
		"no JSON":         `"provider"`,
		"half of one":     `{"provider": {`,
	} {
		if got, err := Configurations(dirOf(map[string]string{"a.tf.json": src}), nil); err == nil {
			t.Errorf("%s in JSON: Configurations() = %v, want an error", name, got)
		}
	}
}

func TestParseLockFile(t *testing.T) {
	const good = `# This file is maintained automatically by "tofu init".
provider "registry.opentofu.org/hashicorp/random" {
  version     = "2.0.0"
  constraints = "~> 2.0, != 2.0.1"
  hashes = [
    "h1:CQYK9xBv5zOZUx6XNorTL4apLhkCuzlFSZqzxQD8fOA=",
    "zh:00",
  ]
}

provider "registry.example.com:8443/acme/cloud" {
  version = "1.0.0-beta.1+x"
}
`
	got, err := ParseLockFile([]byte(good))
	if err != nil || len(got) != 2 {
		t.Fatalf("ParseLockFile() = %+v, %v", got, err)
	}
	first := got[0]
	if first.Address != "registry.opentofu.org/hashicorp/random" || first.Version != "2.0.0" || len(first.Hashes) != 2 ||
		first.Source() != "hashicorp/random" || first.Type() != "random" {
		t.Errorf("the first provider = %+v, source %s, type %s", first, first.Source(), first.Type())
	}
	for name, src := range map[string]string{
		"an address that leads away": `provider "a/../b" {` + "\n  version = \"1.0.0\"\n}\n",
		"a version that leads away":  `provider "a.b/c/d" {` + "\n  version = \"../1.0.0\"\n}\n",
		"no version":                 `provider "a.b/c/d" {` + "\n}\n",
		"a template":                 `provider "a.b/c/d" {` + "\n  version = \"${x}\"\n}\n",
		"twice the same":             strings.Repeat(`provider "a.b/c/d" {`+"\n  version = \"1.0.0\"\n}\n", 2),
		"upper case":                 `provider "a.b/c/D" {` + "\n  version = \"1.0.0\"\n}\n",
		"no syntax":                  `provider "`,
	} {
		if got, err := ParseLockFile([]byte(src)); err == nil {
			t.Errorf("%s: ParseLockFile() = %+v, want an error", name, got)
		}
	}
}

func FuzzSyntax(f *testing.F) {
	f.Add([]byte("provider \"aws\" {\n  alias = \"x${a[\"}\"]}\"\n}\n"))
	f.Add([]byte("a = <<-EOT\n  x\n  EOT\nb {\n  c = { d : 1, e = [2] }\n}\n"))
	f.Add([]byte("/* */ a \"b\" c { d = 1 }"))
	f.Fuzz(func(t *testing.T, src []byte) {
		_, _ = parseSyntax(src)
		_, _ = ParseLockFile(src)
		_, _ = Configurations(fstest.MapFS{"a.tf": {Data: src}, "b.tf.json": {Data: src}}, nil)
	})
}
