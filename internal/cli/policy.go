package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client/policies"
	"github.com/terrier-iac/terrier/internal/query"
)

// policyCommands try policies before they judge anything.
type policyCommands struct{ *program }

func (p policyCommands) commands() []*cobra.Command {
	return []*cobra.Command{group(&cobra.Command{
		Use:     "policy",
		Short:   "Test policies in Rego, and try them on plans",
		GroupID: groupOperate,
		Example: `  terrier policy test ./policies
  terrier policy eval network --policy ./policies/required-tags
  terrier policy dry-run -f production.yaml -A`,
	}, p.test(), p.eval(), p.dryRun())}
}

// policyFlags say which policy is read, and how.
type policyFlags struct {
	policies.Options
	where, parameters string
}

// policyIs says what may stand in the place of a policy.
const policyIs = "a `directory`, a file of Rego, a file of ClusterPolicy and Policy objects, or the name of a policy that comes with Terrier"

// program adds the flags that say how Rego is read.
func (f *policyFlags) program(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.Format, "format", "", "the format of the policy: terrier, conftest or weave; terrier by default")
	flags.StringVar(&f.Version, "rego-version", "", "the `version` of the language, v0 or v1; by default both are tried")
	flags.StringSliceVar(&f.Namespaces, "packages", nil, "the packages of conftest whose rules count; main by default, * for all")
	// An error means that the flag does not exist, which it does.
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"terrier", "conftest", "weave"}, cobra.ShellCompDirectiveNoFileComp))
}

// named adds the flags that name a policy.
func (f *policyFlags) named(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.where, "policy", "", policyIs)
	flags.StringVar(&f.parameters, "parameters", "", "a `file` with the parameters of the policy, in YAML or JSON; - is standard input")
	flags.StringVar(&f.Source, "source", "", "the `directory` with the files of the source that spec.rego.sourceRef of an object names")
	f.program(c)
}

// open reads the policy that the flags name.
func (p policyCommands) open(ctx context.Context, f policyFlags) (*policies.Policy, error) {
	if f.where == "" {
		return nil, usage("name a policy with --policy")
	}
	if f.parameters != "" {
		b, err := p.readFile(f.parameters, manifestBytes)
		if err != nil {
			return nil, err
		}
		if f.Parameters, err = policies.Parameters(b); err != nil {
			return nil, err
		}
	}
	if f.Source != "" {
		f.Source = p.path(f.Source)
	}
	return policies.Open(ctx, p.path(f.where), f.Options)
}

func (p policyCommands) test() *cobra.Command {
	var (
		f      format
		flags  policyFlags
		filter string
		least  float64
	)
	c := &cobra.Command{
		Use:   "test DIR [DIR ...]",
		Short: "Run the unit tests of policies",
		Long: `Runs the tests of a directory of policies: the rules whose names begin with test_, with
the functions and limits that policies have in the controller. The command fails if a
test fails, and if a policy has no test.

A directory without files of Rego beside its directories, of which several are policies,
is a library: the tests of each policy run in a scope of their own. Rules of package
terrier make a directory a policy; with --format conftest, a conftest.toml does.

Each problem is one line with its file and line. The command shows as well which lines of
the policies no test evaluates. With --coverage it fails if the tests of a policy evaluate
a smaller part.

The exit code is 0 if all tests pass, 1 if a test or a policy fails, and 2 if there is
nothing to test.`,
		Example: `  terrier policy test ./policies
  terrier policy test ./policy --format conftest --coverage 80
  terrier policy test ./policies/required-tags --run destroy`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []policies.Tested
			for _, dir := range args {
				some, err := policies.Test(cmd.Context(), p.path(dir), dir, flags.Options, filter)
				if err != nil {
					return err
				}
				all = append(all, some...)
			}
			if len(all) == 1 && len(all[0].Results)+len(all[0].Problems) == 0 {
				return usage("%s has no tests: the name of a test begins with test_", all[0].Policy)
			}
			if !p.structured(f, map[string]any{"items": all}) {
				p.tests(all)
			}
			failed := false
			for _, t := range all {
				if t.Coverage < least {
					p.note("%s: the tests evaluate %.1f %% of the lines, less than %g %%\n", t.Policy, t.Coverage, least)
				}
				failed = failed || !t.OK() || t.Coverage < least
			}
			if failed {
				return exit(1)
			}
			return nil
		},
	}
	c.Flags().StringVar(&filter, "run", "", "only the tests whose names match this `regular expression`")
	c.Flags().Float64Var(&least, "coverage", 0, "fail if the tests of a policy evaluate less than this `percentage` of its lines")
	flags.program(c)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// tests shows each problem on one line, and what came of all tests.
func (p policyCommands) tests(all []policies.Tested) {
	tests, failed, broken := 0, 0, 0
	var covered float64
	lines := 0
	for _, t := range all {
		for _, w := range t.Problems {
			p.say("%s: error: %s\n", cmp.Or(w.At(), t.Policy), oneLine(w.Message))
		}
		for _, r := range t.Results {
			failed += p.testResult(r)
		}
		switch {
		case len(t.Problems) > 0:
			broken++
		case len(t.Results) == 0:
			broken++
			p.say("%s: error: the policy has no tests: the name of a test begins with test_\n", t.Policy)
		}
		for _, c := range t.Files {
			if len(c.Missing) > 0 {
				p.say("%s:%d: not tested: %s %s\n", c.File, c.Missing[0], plural(len(c.Missing), "line", "lines"), ranges(c.Missing))
			}
		}
		tests += len(t.Results)
		covered += t.Coverage * float64(t.Lines)
		lines += t.Lines
	}
	if lines > 0 {
		covered /= float64(lines)
	}
	p.say("%s of %s, %d failed; %.1f %% of the lines are tested\n", query.Count(tests, "test"), plural(len(all), "1 policy", fmt.Sprintf("%d policies", len(all))), failed, covered)
	if broken > 0 {
		p.say("%s could not be tested\n", plural(broken, "1 policy", fmt.Sprintf("%d policies", broken)))
	}
}

// testResult shows a test that did not pass, and returns 1 if it failed.
func (p policyCommands) testResult(r policies.TestResult) int {
	failed := 1
	switch r.Outcome {
	case policies.Passed:
		return 0
	case policies.Skipped:
		p.say("%s: skipped: %s\n", r.At, r.Name)
		failed = 0
	case policies.Errored:
		p.say("%s: error: %s: %s\n", r.At, r.Name, oneLine(r.Error))
	default:
		why := "it is not true"
		if r.Text != "" {
			why = "does not hold: " + r.Text
		}
		p.say("%s: failed: %s: %s\n", cmp.Or(r.Failed, r.At), r.Name, why)
	}
	for line := range strings.Lines(r.Output) {
		p.say("  printed: %s\n", strings.TrimRight(line, "\n"))
	}
	return failed
}

// oneLine is a text without line breaks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// ranges are numbers of lines, in short: 3-5, 9.
func ranges(lines []int) string {
	var out []string
	for i := 0; i < len(lines); {
		j := i
		for j+1 < len(lines) && lines[j+1] == lines[j]+1 {
			j++
		}
		text := fmt.Sprint(lines[i])
		if j > i {
			text = fmt.Sprintf("%d-%d", lines[i], lines[j])
		}
		out = append(out, text)
		i = j + 1
	}
	return strings.Join(out, ", ")
}
