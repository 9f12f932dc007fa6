package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client/policies"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/query"
)

// policyCommands try policies before they judge anything.
type policyCommands struct{ *program }

func (p policyCommands) commands() []*cobra.Command {
	return []*cobra.Command{group(&cobra.Command{
		Use:     "policy",
		Short:   "Test policies in Rego, and try them on plans",
		GroupID: groupOperate,
		Example: `  terrier policy test ./policies/required-tags
  terrier policy eval network --policy ./policies/required-tags
  terrier policy dry-run --policy auto-approval -A`,
	}, p.test(), p.eval(), p.dryRun())}
}

// policyFlags say which policy is read, and how.
type policyFlags struct {
	policies.Options
	where, parameters string
}

func (f *policyFlags) add(c *cobra.Command, named bool) {
	flags := c.Flags()
	if named {
		flags.StringVar(&f.where, "policy", "", "a `directory`, a file of Rego, a manifest of a ClusterPolicy or Policy, or the name of a policy that comes with Terrier")
		flags.StringVar(&f.parameters, "parameters", "", "a `file` with the parameters of the policy, in YAML or JSON; - is standard input")
	}
	flags.StringVar(&f.Format, "format", "", "the format of the policy: terrier, conftest or weave; terrier by default")
	flags.StringVar(&f.Version, "rego-version", "", "the `version` of the language, v0 or v1; by default both are tried")
	flags.StringSliceVar(&f.Namespaces, "packages", nil, "the packages of conftest whose rules count; main by default, * for all")
	// An error means that the flag does not exist, which it does.
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"terrier", "conftest", "weave"}, cobra.ShellCompDirectiveNoFileComp))
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
		Use:   "test DIR",
		Short: "Run the unit tests of a policy",
		Long: `Runs the tests of a directory of policies: the rules whose names begin with test_, with
the functions and limits that policies have in the controller. The command fails if a
test fails, and if there is no test.

It shows how many lines of the policies the tests evaluate. With --coverage the command
fails if the tests evaluate a smaller part.`,
		Example: `  terrier policy test ./policies/required-tags
  terrier policy test ./policy --format conftest --coverage 80
  terrier policy test ./policies/required-tags --run destroy`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := policies.Test(cmd.Context(), p.path(args[0]), flags.Options, filter)
			if err != nil {
				return err
			}
			if !p.structured(f, t) {
				p.tests(t)
			}
			switch {
			case len(t.Results) == 0:
				return usage("%s has no tests: the name of a test begins with test_", args[0])
			case !t.OK():
				return exit(1)
			case t.Coverage < least:
				p.note("The tests evaluate %.1f %% of the lines, less than %g %%.\n", t.Coverage, least)
				return exit(1)
			}
			return nil
		},
	}
	c.Flags().StringVar(&filter, "run", "", "only the tests whose names match this `regular expression`")
	c.Flags().Float64Var(&least, "coverage", 0, "fail if the tests evaluate less than this `percentage` of the lines")
	flags.add(c, false)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p policyCommands) tests(t policies.Tests) {
	failed := 0
	for _, r := range t.Results {
		switch r.Outcome {
		case "pass":
			continue
		case "skip":
		default:
			failed++
		}
		p.say("%s %s (%s)\n", strings.ToUpper(r.Outcome), r.Name, r.At)
		if r.Error != "" {
			p.say("  %s\n", r.Error)
		}
		for line := range strings.Lines(r.Output) {
			p.say("  %s\n", strings.TrimRight(line, "\n"))
		}
	}
	for _, c := range t.Files {
		if len(c.Missing) > 0 {
			p.say("%s: %.1f %% of the lines are tested; not tested: %s\n", c.File, c.Coverage, ranges(c.Missing))
		}
	}
	p.say("%s, %d failed; %.1f %% of the lines are tested\n", query.Count(len(t.Results), "test"), failed, t.Coverage)
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

func (p policyCommands) eval() *cobra.Command {
	var (
		f      format
		flags  policyFlags
		file   string
		digest string
		trace  bool
	)
	c := &cobra.Command{
		Use:   "eval {STACK | -f PLAN} --policy POLICY",
		Short: "Show what a policy says of a plan, and why",
		Long: `Evaluates a policy for the pending plan of a stack, or else for the plan that was
applied last, and shows its findings. The policy is evaluated on this machine and
decides nothing.

With -f the command needs no cluster. The file is a plan in the format of "show -json" of
the engine, or what "terrier plan STACK -o json" prints. Sensitive values in it are masked
before the policy sees them.

The policy sees what you can read of the stack. The controller knows more: how modules
were resolved, the signature of the source, and the labels of the namespace.

The exit code is 1 if the policy denies the plan or holds it.`,
		Example: `  terrier policy eval network --policy ./policies/required-tags
  terrier policy eval -f plan.json --policy ./policy --format conftest
  terrier policy eval network --policy required-tags --parameters tags.yaml --trace`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (file != "") == (len(args) == 1) {
				return usage("name a stack, or a plan with -f")
			}
			pol, err := p.open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			q, err := p.asked(cmd, args, file, digest)
			if err != nil {
				return err
			}
			q.Trace = trace
			a, err := pol.Judge(cmd.Context(), q)
			if err != nil {
				return err
			}
			if !p.structured(f, a) {
				p.answer(pol, a)
			}
			if a.Effect.Compare(policy.Hold) >= 0 {
				return exit(1)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "the plan in this `file`; - is standard input")
	c.Flags().StringVar(&digest, "digest", "", "the plan of the stack with this `digest`")
	c.Flags().BoolVar(&trace, "trace", false, "show each step of the evaluation")
	flags.add(c, true)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// asked is the plan that a policy is asked about.
func (p policyCommands) asked(cmd *cobra.Command, args []string, file, digest string) (policies.Asked, error) {
	if file != "" {
		b, err := p.readFile(file, query.DocumentBytes)
		return policies.Asked{Document: b, Facts: document.Facts{Now: policies.Now(p.Now())}}, err
	}
	s, key, err := p.one(cmd.Context(), args[0])
	if err != nil {
		return policies.Asked{}, err
	}
	doc, err := s.Plan(cmd.Context(), key, digest)
	if err != nil {
		return policies.Asked{}, err
	}
	st, err := s.Get(cmd.Context(), key)
	return policies.Asked{Document: doc.Document, Facts: policies.FactsOf(st, p.Now())}, err
}

// answer shows what a policy says.
func (p policyCommands) answer(pol *policies.Policy, a policies.Answer) {
	for _, line := range a.Prints {
		p.note("%s\n", line)
	}
	for _, line := range a.Trace {
		p.say("%s\n", line)
	}
	for _, f := range a.Findings {
		p.finding("", f)
	}
	if len(a.Findings) == 0 {
		p.say("The policy has no findings. Its rules: %s.\n", strings.Join(pol.Rules, ", "))
		return
	}
	p.say("\nThe plan %s.\n", effectText(a.Effect))
}

func effectText(e policy.Effect) string {
	switch e {
	case policy.Deny:
		return "would be denied"
	case policy.Hold:
		return "would be held until a user approves it"
	case policy.Warn:
		return "would pass with warnings"
	case policy.Allow:
		return "would need no approval"
	default:
		return "would pass"
	}
}

func (p policyCommands) finding(indent string, f policy.Finding) {
	head := string(f.Effect)
	if f.Error {
		head = "error"
	}
	if f.Severity != "" {
		head += " (" + f.Severity + ")"
	}
	p.say("%s%s: %s: %s\n", indent, head, cmp.Or(f.Rule, f.Policy), f.Message)
	if f.Approval != nil {
		p.say("%s  needs %s\n", indent, f.Approval)
	}
	for _, address := range f.Addresses {
		if !strings.Contains(f.Message, address) {
			p.say("%s  %s\n", indent, address)
		}
	}
	if f.More > 0 {
		p.say("%s  and %d more\n", indent, f.More)
	}
	if f.Link != "" {
		p.say("%s  %s\n", indent, f.Link)
	}
}

func (p policyCommands) dryRun() *cobra.Command {
	var (
		f        format
		flags    policyFlags
		selector string
		last     int
		verbose  bool
	)
	c := &cobra.Command{
		Use:   "dry-run --policy POLICY",
		Short: "Show what a policy would say of all current plans",
		Long: `Evaluates a policy for the pending plan of each stack, and for the plans that stacks
applied last, and shows how many it would have held or denied. The policy is evaluated on
this machine and decides nothing. You need the permission to read the plans.

The policy sees what you can read of the stacks. The controller knows more: how modules
were resolved, the signature of the source, and the labels of the namespace.`,
		Example: `  terrier policy dry-run --policy ./policies/required-tags -A
  terrier policy dry-run --policy production.yaml -n network --last 50
  terrier policy dry-run --policy auto-approval -A -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pol, err := p.open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			filter, s, err := p.filter(cmd.Context(), nil, selector)
			if err != nil {
				return err
			}
			r, err := pol.Rehearse(cmd.Context(), s, filter, last, p.Now())
			if err != nil {
				return err
			}
			if !p.structured(f, r) {
				p.rehearsal(r, verbose)
			}
			return nil
		},
	}
	p.allFlag(c)
	c.Flags().StringVarP(&selector, "selector", "l", "", "only stacks with these `labels`")
	c.Flags().IntVar(&last, "last", 100, "how many plans that were applied last are judged as well; each stack has one")
	c.Flags().BoolVar(&verbose, "all-findings", false, "show warnings as well")
	flags.add(c, true)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p policyCommands) rehearsal(r policies.Rehearsal, verbose bool) {
	for _, o := range r.Outcomes {
		if o.Effect.Compare(policy.Hold) < 0 && (!verbose || len(o.Findings) == 0) {
			continue
		}
		state := "pending"
		if !o.Applied.IsZero() {
			state = "applied " + p.at(o.Applied)
		}
		p.say("%s: %s (%s) %s\n", o.Stack, o.Plan, state, effectText(o.Effect))
		for _, found := range o.Findings {
			if verbose || found.Counts().Compare(policy.Hold) >= 0 {
				p.finding("  ", found)
			}
		}
	}
	for _, why := range r.Unread {
		p.note("Not judged: %s\n", why)
	}
	p.say("Would have denied %d and held %d of %s", r.Effects[policy.Deny], r.Effects[policy.Hold], query.Count(r.Plans, "plan"))
	if n := r.Effects[policy.Allow]; n > 0 {
		p.say("; %d would have needed no approval", n)
	}
	if r.Errors > 0 {
		p.say("; could not be evaluated for %d", r.Errors)
	}
	p.say(".\n")
}
