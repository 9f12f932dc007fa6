package cli

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/stack"
)

var update = flag.Bool("update", false, "write golden files and pages instead of comparing with them")

// golden compares got with a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, string(want)); diff != "" {
		t.Errorf("%s has drifted, to write it: go test ./internal/cli -update (-got +want):\n%s", path, diff)
	}
}

func TestPages(t *testing.T) {
	golden(t, "../../docs/cli.md", reference())
	golden(t, "../../docs/states.md", states())
	golden(t, "../../docs/tenant-reasons.md", tenantReasons())
}

// Every situation that is explained is met by some rule, and stands in the page.
func TestEveryPhaseIsOnThePage(t *testing.T) {
	for _, reason := range phases() {
		if meaning.Of(reason, stack.Words{}).Means == "" {
			t.Errorf("%s is not explained", reason)
		}
	}
}

// Each command says what it is for and how to type it, and has an example.
func TestEveryCommandIsHelpful(t *testing.T) {
	// The libraries of a control plane have a flag of this name for every program.
	// A command that is asked for its flags before it has a parent takes it.
	pflag.Bool("version", false, "")
	foreign := pflag.Lookup("version")
	p := newProgram(Env{})
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short is %q, want a phrase", c.CommandPath(), c.Short)
		}
		if c.Example == "" && c.Name() != "version" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		if f := c.LocalFlags().Lookup("version"); f != nil && f == foreign {
			t.Errorf("%s has the flag --version of a library", c.CommandPath())
		}
		if c.Args == nil {
			t.Errorf("%s takes any arguments", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(p.root(nil))
}
