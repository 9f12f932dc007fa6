package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// broken holds, for every rule, a tree that breaks it: the marked lines, and
// no others, must be reported.
var broken = map[string]map[string]string{
	"arrows point down": {
		"internal/stack/a.go":             "package stack\n\nimport _ \"" + module + "/internal/kube\" // BAD\n",
		"internal/source/a.go":            "package source\n\nimport (\n\t_ \"" + module + "/internal/blob\" // BAD\n\t_ \"" + module + "/internal/source/git\"\n\t_ \"" + module + "/internal/stack\"\n)\n",
		"internal/runner/a.go":            "package runner\n\nimport _ \"" + module + "/internal/engine\"\n",
		"internal/web/a.go":               "package web\n\nimport (\n\t_ \"" + module + "/internal/controller\" // BAD\n\t_ \"" + module + "/internal/command\"\n)\n",
		"internal/command/a.go":           "package command\n\nimport _ \"" + module + "/internal/testkit\" // BAD\n",
		"internal/command/a_test.go":      "package command\n\nimport _ \"" + module + "/internal/testkit\"\n",
		"internal/util/a.go":              "package util // BAD\n",
		"internal/runner/runnertest/a.go": "package runnertest\n\nimport _ \"" + module + "/internal/testkit\"\n",
	},
	"only mains import app": {
		"cmd/terrier/main.go": "package main\n\nimport _ \"" + module + "/internal/app\"\n",
		"standalone/main.go":  "package main\n\nimport _ \"" + module + "/internal/app\"\n",
		"internal/cli/a.go":   "package cli\n\nimport _ \"" + module + "/internal/app\" // BAD\n",
	},
	"only its dialect knows a kind of stack": {
		"internal/query/a.go":         "package query\n\nimport (\n\t_ \"" + module + "/api/infra/v1alpha2\" // BAD\n\t_ \"" + module + "/internal/dialect/infra\" // BAD\n\t_ \"" + module + "/internal/dialect\"\n\t_ \"" + module + "/internal/dialect/kinds\"\n\t_ \"" + module + "/api/tenants/v1\"\n)\n",
		"internal/query/a_test.go":    "package query\n\nimport _ \"" + module + "/api/infra/v1alpha2\"\n",
		"internal/app/board.go":       "package app\n\nimport _ \"" + module + "/api/infra/v1alpha2\" // BAD\n",
		"internal/app/stamps.go":      "package app\n\nimport _ \"" + module + "/api/infra/v1alpha2\"\n",
		"internal/dialect/infra/a.go": "package infra\n\nimport _ \"" + module + "/api/infra/v1alpha2\"\n",
	},
	"the core does no I/O": {
		"internal/plan/a.go":      "package plan\n\nimport (\n\t_ \"net/http\" // BAD\n\t_ \"net/url\"\n\t_ \"os\" // BAD\n\t_ \"math/rand/v2\" // BAD\n\t_ \"example.com/lib\" // BAD\n)\n",
		"internal/plan/a_test.go": "package plan\n\nimport _ \"os\"\n",
		"internal/kube/a.go":      "package kube\n\nimport _ \"os\"\n",
	},
	"the core has no clock": {
		"internal/stack/a.go":  "package stack\n\nimport \"time\"\n\nvar then = time.Now() // BAD\n\nvar unix = time.Unix(0, 0)\n",
		"internal/tenant/a.go": "package tenant\n\nimport clock \"time\"\n\nvar now = clock.Now // BAD\n",
		"internal/source/a.go": "package source\n\nimport \"time\"\n\nvar now = time.Now\n",
	},
	"Kubernetes stays where it is spoken": {
		"internal/kube/a.go":     "package kube\n\nimport _ \"k8s.io/api/core/v1\"\n",
		"internal/web/a.go":      "package web\n\nimport (\n\t_ \"k8s.io/api/core/v1\" // BAD\n\t_ \"sigs.k8s.io/yaml\"\n)\n",
		"internal/web/a_test.go": "package web\n\nimport _ \"k8s.io/api/core/v1\"\n",
	},
	"the control plane is only in standalone": {
		"go.mod":                   "module x\n\nrequire k8s.io/kubernetes v1.37.2 // BAD\n",
		"standalone/go.mod":        "module y\n\nrequire k8s.io/kubernetes v1.37.2\n",
		"standalone/kubeapi/a.go":  "package kubeapi\n\nimport _ \"k8s.io/kubernetes/cmd/kube-apiserver/app\"\n",
		"internal/testkit/kube.go": "package testkit\n\nimport _ \"go.etcd.io/etcd/server/v3/embed\" // BAD\n",
	},
	"programs start in internal/sandbox": {
		"internal/sandbox/a.go":    "package sandbox\n\nimport _ \"os/exec\"\n",
		"internal/engine/a.go":     "package engine\n\nimport _ \"os/exec\" // BAD\n",
		"internal/engine/b.go":     "package engine\n\nimport \"syscall\"\n\nvar _ = syscall.ForkExec // BAD\n",
		"internal/cli/a_test.go":   "package cli\n\nimport _ \"os/exec\"\n",
		"internal/testkit/exec.go": "package testkit\n\nimport _ \"os/exec\"\n",
	},
	"archives open in internal/archive": {
		"internal/archive/a.go": "package archive\n\nimport _ \"archive/tar\"\n",
		"internal/source/a.go":  "package source\n\nimport (\n\t_ \"archive/zip\" // BAD\n\t_ \"compress/gzip\" // BAD\n)\n",
	},
	"requests go out through internal/outbound": {
		"internal/outbound/a.go": "package outbound\n\nimport \"net/http\"\n\nvar c = &http.Client{}\n",
		"internal/source/a.go":   "package source\n\nimport \"net/http\"\n\ntype s struct{ c *http.Client }\n\nvar a = &http.Client{} // BAD\n\nvar b http.Client // BAD\n\nvar c = new(http.Transport) // BAD\n\nvar d = http.DefaultClient // BAD\n\nvar e = http.MethodGet\n",
	},
	"YAML of users is read in internal/plainyaml": {
		"internal/plainyaml/a.go": "package plainyaml\n\nimport \"sigs.k8s.io/yaml\"\n\nvar a = yaml.Unmarshal\n",
		"internal/source/a.go":    "package source\n\nimport (\n\tobjects \"sigs.k8s.io/yaml\"\n)\n\nvar a = objects.UnmarshalStrict // BAD\n\nvar b = objects.YAMLToJSON // BAD\n\nvar c = objects.Marshal\n",
	},
	"every package says what it is": {
		"internal/plan/plan.go":   "// Package plan is a plan.\npackage plan\n",
		"internal/plan/render.go": "package plan\n",
		"internal/blob/blob.go":   "package blob // BAD\n",
		"internal/rows/rows.go":   "// rows of a table.\npackage rows // BAD\n",
		"internal/kube/gen.go":    "// Code generated by x. DO NOT EDIT.\n\npackage kube\n",
	},
	"no init functions": {
		"internal/plan/a.go": "package plan\n\nfunc init() {} // BAD\n\ntype t struct{}\n\nfunc (t) init() {}\n",
	},
	"no package variables that change": {
		"internal/plan/a.go": strings.Join([]string{
			"package plan",
			"import \"sync\"",
			"var n, stays int",
			"var m = map[string]int{}",
			"var mu sync.Mutex // BAD",
			"var once = sync.OnceValue(func() int { return 1 })",
			"func f(n2 int) {",
			"n++ // BAD",
			"m[\"a\"] = 1 // BAD",
			"stays := n2",
			"stays = 3",
			"_ = stays",
			"}",
			"",
		}, "\n"),
		"internal/plan/b.go": "package plan\n\nfunc g() { delete(m, \"a\") } // BAD\n",
	},
	"files stay short": {
		"internal/plan/a.go": "package plan\n" + strings.Repeat("//\n", 598) + "// BAD\n//\n",
		"internal/plan/b.go": "package plan\n" + strings.Repeat("//\n", 599),
	},
	"no machine's paths": {
		"docs/a.md": "See /" + "root/notes BAD\nSee https://example.com/root/notes\nSee (/" + "work/main) BAD\nThe box has /work/tree\n",
	},
	"documents name tests that exist": {
		"docs/a.md":               "Held: `TestThere`, `TestThere/in one case`.\nHeld: `TestGone`. BAD\nIt is `Tested`.\n",
		"internal/plan/a_test.go": "package plan\n\nimport \"testing\"\n\nfunc TestThere(*testing.T) {}\n",
	},
	"users read the words of their field": {
		"internal/archive/a.go":                 "package archive\n\n// Somebody reads this. BAD\nvar a = \"somebody\"\n\nvar b = \"ask somebody\" // BAD\n\nvar c = `first line\nBAD: the plan that\nwaits`\n",
		"internal/archive/a_test.go":            "package archive\n\n// BAD: this is what\n// goes.\nvar a = \"ask somebody\"\n",
		"internal/web/pages/templates/a/b.html": "<p>Reconciled every minute.</p>\n<p>Drift is mended.</p><!-- BAD -->\n",
		"internal/web/pages/static/a/b.js":      "// whoever reads this\nconst a = \"box\";\nconst b = \"a box here\"; // BAD\n",
		"docs/a/b.md":                           "A plan that waits BAD\nis pending. A plan that\nis pending.\n`GlassWhole` BAD\n`terrier break-glass`\n",
		"docs/compatibility.md":                 "`GlassWhole`\n",
		"config/crd/a.yaml":                     "generated, by nobody\n",
	},
	"types stay small": {
		"internal/plan/a.go":      "package plan\n\ntype t[V any] struct{}\n" + methods("*t[V]", 20) + methods("u", 25),
		"internal/plan/b.go":      "package plan\n" + methods("t[V]", 5) + "func (t[V]) one() {} // BAD\nfunc (t[V]) two() {}\n",
		"internal/plan/a_test.go": "package plan\n" + methods("u", 5) + methods("v", 30),
	},
	"packages stay small": many("internal/plan/", 41, "internal/rows/", 40),
	"the controller decides once": {
		"internal/controller/a.go":   "package controller\n\nimport \"" + module + "/internal/stack\"\n\nvar a = stack.Decide(o) // BAD\n",
		"internal/controller/b.go":   "package controller\n\nimport \"" + module + "/internal/stack\"\n\nvar b = stack.Decide(o) // BAD\n",
		"internal/controller/c/a.go": "package c\n\nimport \"" + module + "/internal/stack\"\n\nvar c = stack.Decide(o)\n",
	},
	"keys of records are made in internal/record": {
		"internal/record/a.go":     "package record\n\nvar a = \"stacks/\" + uid\n",
		"internal/kube/a.go":       "package kube\n\nvar a = \"stacks/\" + uid // BAD\n\nvar b = f(\"retained/\") // BAD\n\nconst c = \"notices/outbox/\" // BAD\n\nvar d = f(\"trees/%s\", e) // BAD\n\nvar r R = \"stacks/log\"\n",
		"internal/kube/a_test.go":  "package kube\n\nvar a = \"stacks/\" + uid\n",
		"internal/web/pages/at.go": "package pages\n\nvar a = \"/stacks/\" + name\n",
	},
	"observing writes nothing": {
		"internal/controller/observe.go":        "package controller\n\ntype Stacks struct{}\n\nfunc (c *Stacks) observe() { c.read(); once() }\n\nfunc (c *Stacks) observeRun() { c.store.Save() } // BAD\n",
		"internal/controller/read.go":           "package controller\n\nfunc (c *Stacks) read() { c.blobs.Get(); c.put() }\n\nfunc (c *Stacks) put() { c.blobs.Put() } // BAD\n\nfunc once() { record.Checkpoint(id).Write(ctx, to, v) } // BAD\n",
		"internal/controller/act.go":            "package controller\n\nfunc (c *Stacks) act() { c.runner.Start(); c.read() }\n",
		"internal/controller/states/inspect.go": "package states\n\nfunc (in *Inspector) inspect() { in.Store.Save() } // BAD\n",
		"internal/controller/states/states.go":  "package states\n\nfunc (kp *Keeper) save() { kp.Store.Save() }\n",
	},
	"the map shows every package": {
		"docs/architecture.md":        "```\ninternal/\n  # core\n  plan/      plans\n    view/      one\n  gone/      none BAD\n  archtest/  tests\n```\n  other/   text\n",
		"internal/plan/a.go":          "package plan\n",
		"internal/plan/view/a.go":     "package view\n",
		"internal/plan/plantest/a.go": "package plantest\n",
		"internal/blob/a.go":          "package blob // BAD\n",
	},
	"old names are read": {
		"docs/compatibility.md": "| `a` | `b` |\n## Names that changed\n| old | new | of | old |\n| `OldReason` | `NewReason` | a reason | read |\n| `Lost` | `NewReason` | BAD | read |\n| `Lost` | `NewReason` | a reason | no longer written |\n## Else\n| `x` | `y` | z | read |\n",
		"internal/plan/a.go":    "package plan\n\nvar a = \"OldReason\" + \"NewReason\"\n",
	},
	"documents name files that exist": {
		"docs/a.md":          "In `internal/plan/a.go`, `plan/a.go` and a.go.\nIn `gone.go` BAD\n  reads (blob/a.go) BAD\n",
		"internal/plan/a.go": "package plan\n",
	},
	"links lead somewhere": {
		"docs/a.md":   "# One: two\n[a](b.md), [b](#one-two), [c](b/), [d](https://example.com/x), [e](e.png)\n[f](c.md) BAD\n[g](b.md#three) BAD\n[h](b.md#four), [i](../README.md)\n",
		"docs/b.md":   "<a id=\"four\"></a>\n",
		"docs/b/c.md": "text\n",
		"README.md":   "[a](docs/a.md#one-two)\n",
	},
	"tests do not sleep": {
		"internal/plan/a_test.go": "package plan\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) } // BAD\n",
		"internal/rows/a.go":      "package rows\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n",
	},
}

func TestRulesFindWhatBreaksThem(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			texts, ok := broken[r.name]
			if !ok {
				t.Fatal("no tree that breaks it")
			}
			all, err := newTree(texts)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range r.check(all) {
				got = append(got, fmt.Sprintf("%s:%d", p.file, p.line))
			}
			slices.Sort(got)
			if want := marked(texts); !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

// marked lists the lines that say BAD.
func marked(texts map[string]string) []string {
	var all []string
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		n := 0
		for line := range strings.Lines(texts[path]) {
			n++
			if strings.Contains(line, "BAD") {
				all = append(all, fmt.Sprintf("%s:%d", path, n))
			}
		}
	}
	slices.Sort(all)
	return all
}

// methods are n methods of a type.
func methods(of string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "func (x %s) m%d() {}\n", of, i)
	}
	return b.String()
}

// many are packages of so many files, of which the last is one too many of the
// first package.
func many(bad string, n int, good string, m int) map[string]string {
	texts := map[string]string{bad + "zz.go": "package a // BAD\n"}
	for i := range n - 1 {
		texts[fmt.Sprintf("%sa%d.go", bad, i)] = "package a\n"
	}
	for i := range m {
		texts[fmt.Sprintf("%sa%d.go", good, i)] = "package a\n"
	}
	texts[good+"a_test.go"] = "package a\n"
	return texts
}
