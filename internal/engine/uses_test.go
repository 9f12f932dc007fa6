package engine

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan/usage"
)

const usesLock = `# This file is maintained automatically by "tofu init".
provider "registry.opentofu.org/hashicorp/aws" {
  version     = "6.1.0"
  constraints = "~> 6.0, >= 6.1.0"
  hashes = [
    "h1:one",
    "zh:two",
  ]
}

provider "registry.opentofu.org/hashicorp/null" {
  version = "3.2.4"
  hashes = [
    "h1:three",
  ]
}
`

const commit = "0123456789abcdef0123456789abcdef01234567"

// usesTree is a prepared root module in the directory live of a tree: it calls a module of a
// registry, which calls a directory of another one and a local module, and two modules of one
// git repository.
func usesTree() map[string]string {
	return map[string]string{
		"live/main.tf": `terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

module "network" {
  source  = "registry.example.com/net/network/aws"
  version = "~> 1.0" # not yet 2
}
module "mods" {
  source = "git::https://git.example.com/team/mods.git//vpc?ref=v1.2.0"
}
module "again" { source = "git::https://git.example.com/team/mods.git//dns?ref=v1.2.0" }
module "shared" {
  source = "../shared"
}
`,
		"live/x_override.tf":       "module \"network\" {\n  version = \">= 1.1\"\n}\n",
		"live/more.tf.json":        `{"module": {"//": "a comment", "json": {"source": "./local", "count": 2}}, "terraform": {"required_providers": {"null": "~> 3.0"}}}`,
		"live/unseen.tf.json~":     `{"module": {"x": {"source": "./x"}}}`,
		"live/.terraform.lock.hcl": usesLock,
		"live/" + ModulesFile: `{"Modules":[{"Key":"","Source":"","Dir":"."},
			{"Key":"network","Source":"registry.example.com/net/network/aws","Version":"1.4.0","Dir":".terraform/modules/network"},
			{"Key":"network.subnets","Source":"registry.example.com/net/subnets/aws//modules/a","Version":"2.0.1","Dir":".terraform/modules/network.subnets/modules/a"},
			{"Key":"network.inner","Source":"./inner","Dir":".terraform/modules/network/inner"},
			{"Key":"mods","Source":"git::https://git.example.com/team/mods.git//vpc?ref=v1.2.0","Dir":".terraform/modules/mods/vpc"},
			{"Key":"again","Source":"git::https://git.example.com/team/mods.git//dns?ref=v1.2.0","Dir":".terraform/modules/again/dns"},
			{"Key":"shared","Source":"../shared","Dir":"../shared"},
			{"Key":"json","Source":"./local","Dir":"local"}]}`,
		"live/local/main.tf": "",
		"shared/main.tf":     "terraform {\n  required_providers {\n    aws = {\n      source = \"hashicorp/aws\"\n    }\n  }\n}\n",
		"live/.terraform/modules/network/main.tf": `module "subnets" {
  source  = "registry.example.com/net/subnets/aws//modules/a"
  version = "2.0.1"
}
module "inner" { source = "./inner" }
`,
		"live/.terraform/modules/network/inner/main.tf":                 "",
		"live/.terraform/modules/network.subnets/modules/a/versions.tf": "terraform {\n  required_providers {\n    aws = { source = \"hashicorp/aws\", version = \">= 6.1.0\" }\n  }\n}\n",
		"live/.terraform/modules/mods/vpc/main.tf":                      "",
		"live/.terraform/modules/again/dns/main.tf":                     "",
		"live/.terraform/modules/mods/.git/HEAD":                        commit + "\n",
	}
}

func treeOf(files map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

func usesOf(t *testing.T, tree fs.FS, engine string) usage.Usage {
	t.Helper()
	lock, err := fs.ReadFile(tree, "live/.terraform.lock.hcl")
	if err != nil {
		lock = nil
	}
	return Uses(tree, "live", engine, lock)
}

func TestUses(t *testing.T) {
	registry := func(address string) usage.Location { return usage.Location{Kind: usage.Registry, Address: address} }
	git := func(dir string) usage.Location {
		return usage.Location{Kind: usage.Git, Address: "https://git.example.com/team/mods.git", Directory: dir}
	}
	local := func(dir string) usage.Location { return usage.Location{Kind: usage.Local, Directory: dir} }
	subnets := registry("registry.example.com/net/subnets/aws")
	subnets.Directory = "modules/a"
	const network, mods = "registry.example.com/net/network/aws", "git::https://git.example.com/team/mods.git//"
	want := usage.Usage{
		Modules: []usage.Module{
			{Path: "module.again", File: "main.tf", Line: 17, Declared: mods + "dns?ref=v1.2.0", Source: mods + "dns?ref=v1.2.0", Location: git("dns"), Version: "v1.2.0", Commit: commit},
			{Path: "module.json", File: "more.tf.json", Declared: "./local", Source: "./local", Location: local("./local")},
			{Path: "module.mods", File: "main.tf", Line: 14, Declared: mods + "vpc?ref=v1.2.0", Source: mods + "vpc?ref=v1.2.0", Location: git("vpc"), Version: "v1.2.0", Commit: commit},
			{Path: "module.network", File: "main.tf", Line: 10, Declared: network, Constraint: ">= 1.1", Source: network, Location: registry(network), Version: "1.4.0"},
			{Path: "module.network.module.inner", File: "main.tf", Line: 5, Declared: "./inner", Source: "./inner", Location: local("./inner")},
			{Path: "module.network.module.subnets", File: "main.tf", Line: 1, Declared: "registry.example.com/net/subnets/aws//modules/a", Constraint: "2.0.1",
				Source: "registry.example.com/net/subnets/aws//modules/a", Location: subnets, Version: "2.0.1"},
			{Path: "module.shared", File: "main.tf", Line: 18, Declared: "../shared", Source: "../shared", Location: local("../shared")},
		},
		Providers: []usage.Provider{
			{Source: "registry.opentofu.org/hashicorp/aws", Version: "6.1.0", Constraint: "~> 6.0, >= 6.1.0", Hashes: []string{"h1:one", "zh:two"}, Required: []usage.Requirement{
				{Name: "aws", Declared: "hashicorp/aws", Constraint: "~> 6.0"},
				{Module: "module.network.module.subnets", Name: "aws", Declared: "hashicorp/aws", Constraint: ">= 6.1.0"},
				{Module: "module.shared", Name: "aws", Declared: "hashicorp/aws"},
			}},
			{Source: "registry.opentofu.org/hashicorp/null", Version: "3.2.4", Hashes: []string{"h1:three"}, Required: []usage.Requirement{{Name: "null", Constraint: "~> 3.0"}}},
		},
	}
	got := usesOf(t, treeOf(usesTree()), "tofu")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Uses() differs (-want +got):\n%s", diff)
	}
	if other := usesOf(t, treeOf(usesTree()), "tofu"); other.Digest() != got.Digest() {
		t.Error("the same directory has two digests")
	}
}

// What cannot be read is named, and the rest is listed.
func TestUsesOfHostileFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(map[string]string)
		says   string
		calls  int // that are listed; all of them have a resolved source
	}{
		"a list that is no JSON":      {func(f map[string]string) { f["live/"+ModulesFile] = "{" }, "The modules are not known", 0},
		"a list that is too large":    {func(f map[string]string) { f["live/"+ModulesFile] = strings.Repeat(" ", maxModulesFile+1) }, "The modules are not known", 0},
		"no list":                     {func(f map[string]string) { delete(f, "live/"+ModulesFile) }, "", 0},
		"a lock file of another form": {func(f map[string]string) { f["live/.terraform.lock.hcl"] = "provider {" }, "The versions of providers are not known", 7},
		"a file that is no HCL":       {func(f map[string]string) { f["live/main.tf"] = `module "x" {` }, "What live/main.tf declares is not known", 7},
		"a file that is nested":       {func(f map[string]string) { f["live/main.tf"] = strings.Repeat("module {", 100_000) }, "What live/main.tf declares is not known", 7},
		"JSON that is none":           {func(f map[string]string) { f["live/more.tf.json"] = `{"module": 3}` }, "What live/more.tf.json declares is not known", 7},
		"too much configuration":      {func(f map[string]string) { f["live/main.tf"] = strings.Repeat("#", maxConfiguration+1) }, "too large", 7},
		"a directory that leads out": {func(f map[string]string) {
			f["live/"+ModulesFile] = `{"Modules":[{"Key":"x","Source":"./x","Dir":"../../../etc"},{"Key":"y.z","Source":"./x","Dir":"/etc"}]}`
		}, "What the module in ../../etc declares is not known: the directory is not in the source", 2},
		"a ref that leads out": {func(f map[string]string) { f["live/.terraform/modules/mods/.git/HEAD"] = "ref: ../../../../secret" }, "", 7},
		"ten thousand calls and more": {func(f map[string]string) {
			var all []string
			for i := range maxCalls + 5 {
				all = append(all, fmt.Sprintf(`{"Key":"m%d","Source":"./local","Dir":"local"}`, i))
			}
			f["live/"+ModulesFile] = `{"Modules":[` + strings.Join(all, ",") + `]}`
		}, "5 are left out", maxCalls},
	} {
		t.Run(name, func(t *testing.T) {
			files := usesTree()
			tt.change(files)
			got := usesOf(t, treeOf(files), "tofu")
			if all := strings.Join(got.Problems, "\n"); !strings.Contains(all, tt.says) || tt.says == "" && all != "" {
				t.Errorf("problems = %q, want %q", all, tt.says)
			}
			if len(got.Modules) != tt.calls {
				t.Errorf("%d calls, want %d", len(got.Modules), tt.calls)
			}
		})
	}
}

// A source may be an expression, and a branch has the commit that was checked out.
func TestUsesOfExpressionsAndBranches(t *testing.T) {
	files := map[string]string{
		"live/main.tf":                                   "locals {\n  ref = \"main\"\n}\nmodule \"m\" {\n  source = \"git::https://git.example.com/m?ref=${local.ref}\"\n}\nmodule \"v\" { source = var.source }\n",
		"live/" + ModulesFile:                            `{"Modules":[{"Key":"m","Source":"git::https://git.example.com/m?ref=main","Dir":".terraform/modules/m"},{"Key":"v","Source":"./v","Dir":"v"}]}`,
		"live/.terraform/modules/m/main.tf":              "",
		"live/.terraform/modules/m/.git/HEAD":            "ref: refs/heads/main\n",
		"live/.terraform/modules/m/.git/refs/heads/main": commit + "\n",
		"live/v/main.tf":                                 "",
	}
	got := usesOf(t, treeOf(files), "terraform")
	if len(got.Modules) != 2 || got.Modules[0].Declared != `"git::https://git.example.com/m?ref=${local.ref}"` || got.Modules[0].Version != "main" || got.Modules[0].Commit != commit {
		t.Errorf("Uses() = %+v", got)
	}
	if got.Modules[1].Declared != "var.source" || got.Modules[1].Line != 7 {
		t.Errorf("Uses() = %+v", got.Modules[1])
	}
}
