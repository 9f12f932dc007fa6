package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query/usedby"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// answerOf is the answer of a command in JSON.
func answerOf[T any](t *testing.T, c *testkit.Cluster, args ...string) T {
	t.Helper()
	var out T
	text := c.Terrier(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("terrier %v: %v\n%s", args, err, text)
	}
	return out
}

// awaitUse waits until the one stack of the namespace that uses a module uses this version.
func awaitUse(t *testing.T, c *testkit.Cluster, module, version string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, module+" is used in "+version, func(context.Context) error {
		a := answerOf[usedby.Answer](t, c, "module", "uses", module)
		if a.Total != 1 || a.Items[0].Version != version || a.Items[0].Namespace != c.Namespace {
			return fmt.Errorf("the uses are %+v", a)
		}
		return nil
	})
}

// pushedAs publishes a module in the namespace of the test.
func pushedAs(t *testing.T, c *testkit.Cluster, name, version, text string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "main.tf", text)
	if err := os.Mkdir(filepath.Join(dir, "local"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "local/main.tf", "")
	c.Terrier(t, "module", "push", dir, "--namespace", c.Namespace, "--name", name, "--system", "demo", "--version", version)
}

// LQ-25, LQ-32: the platform knows every call of a module, nested ones included, with the
// version that init has installed, and answers who uses what.
func TestWhatStacksUse(t *testing.T) {
	t.Parallel()
	p, c := platform(t), cluster(t)
	host := strings.TrimPrefix(p.HTTP, "https://")
	inner, outer := host+"/"+c.Namespace+"/inner/demo", host+"/"+c.Namespace+"/outer/demo"
	pushedAs(t, c, "inner", "1.1.0", "")
	pushedAs(t, c, "outer", "2.0.0", "module \"inner\" {\n  source  = \""+inner+"\"\n  version = \"~> 1.0\"\n}\nmodule \"local\" {\n  source = \"./local\"\n}\n")
	world := p.World(t).HCL() + "resource \"world_thing\" \"a\" {\n  name  = \"a\"\n  value = \"v\"\n}\n"
	git := testkit.NewGit(t)
	withLogin := strings.Replace(git.URL, "://", "://"+git.Username+":"+git.Password+"@", 1)
	commit := git.Commit(map[string]string{"vpc/main.tf": ""})
	git.Do("tag", "v1.2.0")
	git.Do("push", "--quiet", "origin", "v1.2.0")
	git.Commit(map[string]string{"main.tf": `
module "outer" {
  source  = "` + outer + `"
  version = ">= 2.0.0"
}
module "vpc" {
  source = "git::` + withLogin + `//vpc?ref=v1.2.0"
}
module "here" {
  source = "./here"
}
`, "world.tf": world, "here/main.tf": ""})
	c.Apply(t, git.Manifest("code")+`
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: uses}
spec:
  approvePlan: auto
  interval: 1h
  sourceRef: {kind: GitRepository, name: code}
`)
	c.AwaitReady(t, "uses")
	awaitUse(t, c, inner, "1.1.0")

	record := answerOf[struct{ Uses usage.Record }](t, c, "describe", "uses").Uses
	got := map[string]string{}
	for _, m := range record.Modules {
		got[m.Path] = strings.Join([]string{string(m.Kind), m.Address, m.Directory, m.Version, m.Constraint, m.Commit}, " ")
		if m.Since.IsZero() {
			t.Errorf("%s has no time", m.Path)
		}
	}
	want := map[string]string{
		"module.outer":              "registry " + outer + "  2.0.0 >= 2.0.0 ",
		"module.outer.module.inner": "registry " + inner + "  1.1.0 ~> 1.0 ",
		"module.outer.module.local": "local  ./local   ",
		"module.here":               "local  ./here   ",
		"module.vpc":                "git " + git.URL + " vpc v1.2.0  " + commit,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modules differ (-want +got):\n%s", diff)
	}
	i := slices.IndexFunc(record.Providers, func(p usage.Provider) bool { return strings.HasSuffix(p.Source, "/terrier-iac/world") })
	if i < 0 || record.Providers[i].Version == "" || len(record.Providers[i].Hashes) == 0 || len(record.Providers[i].Required) != 1 {
		t.Errorf("providers are %+v", record.Providers)
	}
	if len(record.Problems) > 0 {
		t.Errorf("problems are %q", record.Problems)
	}
	text, err := json.Marshal(record)
	if err != nil || strings.Contains(string(text), git.Password) {
		t.Errorf("the list has the password of the repository: %v %s", err, text)
	}

	for _, address := range []string{c.Namespace + "/inner/demo", inner, git.URL} {
		a := answerOf[usedby.Answer](t, c, "module", "uses", address)
		if a.Total != 1 || a.Items[0].Name != "uses" || a.Items[0].Namespace != c.Namespace {
			t.Errorf("who uses %s: %+v", address, a)
		}
	}
	if a := answerOf[usedby.Answer](t, c, "module", "uses", inner, "--version", "~> 1.1.1"); a.Total != 0 || len(a.Versions) != 1 {
		t.Errorf("who uses other versions: %+v", a)
	}
	if a := answerOf[usedby.Answer](t, c, "provider", "uses", "terrier-iac/world"); !slices.ContainsFunc(a.Items, func(u usedby.Use) bool { return u.Namespace == c.Namespace && u.Name == "uses" }) {
		t.Errorf("who uses the provider: %+v", a)
	}
	if out := c.Terrier(t, "module", "uses", inner); !strings.Contains(out, "module.outer.module.inner") || !strings.Contains(out, "1.1.0") {
		t.Errorf("the table is\n%s", out)
	}

	// A new version has a time of its own, and the others keep theirs.
	pushedAs(t, c, "inner", "1.2.0", "")
	git.Commit(map[string]string{"main.tf": "module \"outer\" {\n  source  = \"" + outer + "\"\n  version = \"2.0.0\"\n}\n", "world.tf": world})
	c.Kubectl(t, "annotate", "gitrepository/code", "reconcile.fluxcd.io/requestedAt=now")
	awaitUse(t, c, inner, "1.2.0")
	next := answerOf[struct{ Uses usage.Record }](t, c, "describe", "uses").Uses
	since := func(r usage.Record, path string) usage.Module {
		return r.Modules[slices.IndexFunc(r.Modules, func(m usage.Module) bool { return m.Path == path })]
	}
	if was, is := since(record, "module.outer"), since(next, "module.outer"); !was.Since.Equal(is.Since) || is.Constraint != "2.0.0" {
		t.Errorf("the outer module was %+v and is %+v", was, is)
	}
	if was, is := since(record, "module.outer.module.inner"), since(next, "module.outer.module.inner"); !is.Since.After(was.Since) {
		t.Errorf("the inner module was %+v and is %+v", was, is)
	}
}
