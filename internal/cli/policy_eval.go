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

// What --trace shows.
const (
	traceRules = "rules"
	traceSteps = "steps"
)

func (p policyCommands) eval() *cobra.Command {
	var (
		f      format
		flags  policyFlags
		file   string
		digest string
		trace  string
	)
	c := &cobra.Command{
		Use:   "eval {STACK | -f PLAN} --policy POLICY",
		Short: "Show what a policy says of a plan, and why",
		Long: `Evaluates a policy for the pending plan of a stack, or else for the plan that was
applied last, and shows its findings. The policy is evaluated on this machine and
decides nothing. Guards of a ClusterPolicy or a Policy are evaluated as well. Its windows,
freezes and ages hold no plan, and are not, and neither is requireSignedSource.

With -f the command needs no cluster. The file is a plan in the format of "show -json" of
the engine, or what "terrier plan STACK -o json" prints. Sensitive values in it are masked
before the policy sees them.

The policy sees what you can read of the stack, with the modules and providers that its
last run used. The controller knows more: the signature of the source, the user who
requested the change, and the tenant.

--trace shows each rule: how often it fired and with which values, or the condition that
did not hold. --trace=steps shows each step of the evaluation.

The exit code is 1 if the policy denies the plan or holds it.`,
		Example: `  terrier policy eval network --policy ./policies/required-tags
  terrier policy eval -f plan.json --policy production.yaml
  terrier policy eval network --policy required-tags --parameters tags.yaml --trace`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case (file != "") == (len(args) == 1):
				return usage("name a stack, or a plan with -f")
			case trace != "" && trace != traceRules && trace != traceSteps:
				return usage("--trace is %q, and may be %s or %s", trace, traceRules, traceSteps)
			}
			pol, err := p.open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			q, err := p.asked(cmd, pol, args, file, digest)
			if err != nil {
				return err
			}
			q.Why, q.Steps = trace == traceRules, trace == traceSteps
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
	c.Flags().StringVar(&trace, "trace", "", "show which `rules` fired, and why the others did not; steps shows each step")
	c.Flags().Lookup("trace").NoOptDefVal = traceRules
	flags.named(c)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// asked is the plan that a policy is asked about.
func (p policyCommands) asked(cmd *cobra.Command, pol *policies.Policy, args []string, file, digest string) (policies.Asked, error) {
	if file != "" {
		b, err := p.readFile(file, query.DocumentBytes)
		return policies.Asked{Document: b, Facts: document.Facts{Now: policies.Now(p.Now())}}, err
	}
	ctx := cmd.Context()
	s, key, err := p.one(ctx, args[0])
	if err != nil {
		return policies.Asked{}, err
	}
	doc, err := s.Plan(ctx, key, digest)
	if err != nil {
		return policies.Asked{}, err
	}
	st, err := s.Get(ctx, key)
	if err != nil {
		return policies.Asked{}, err
	}
	namespaces, err := p.connection.NamespaceLabels(ctx)
	if err != nil {
		return policies.Asked{}, err
	}
	if !pol.Selects(policies.SubjectOf(st, namespaces)) {
		p.note("The policy does not select the stack %s. This is what it would say of its plan.\n", key)
	}
	facts, err := policies.FactsOf(ctx, s, st, doc.PlanInfo, namespaces, p.Now())
	return policies.Asked{Document: doc.Document, Destroys: doc.Changes.Destroy, Facts: facts}, err
}

// answer shows what a policy says.
func (p policyCommands) answer(pol *policies.Policy, a policies.Answer) {
	for _, line := range a.Prints {
		p.note("%s\n", line)
	}
	for _, line := range a.Trace {
		p.say("%s\n", line)
	}
	if len(a.Trace) == 0 {
		p.rules(a.Rules)
	}
	for _, f := range a.Findings {
		p.finding("", f)
	}
	if len(pol.Left) > 0 {
		p.note("Not evaluated on this machine: %s.\n", strings.Join(pol.Left, ", "))
	}
	if len(a.Findings) == 0 {
		p.say("The policy has no findings. Its rules: %s.\n", strings.Join(pol.Rules, ", "))
		return
	}
	p.say("\nThe plan %s.\n", effectText(a.Effect))
}

// rules shows which rules fired, and why the others did not.
func (p policyCommands) rules(all []policies.RuleTrace) {
	for _, r := range all {
		what := "did not fire"
		if r.Fired > 0 {
			what = "fired " + query.Count(r.Fired, "time")
		}
		p.say("%s: %s %s\n", r.At, r.Rule, what)
		for _, with := range r.With {
			p.say("  with %s\n", with)
		}
		for _, s := range r.Stops {
			p.say("  did not hold %s: %s (%s)\n", query.Count(s.Times, "time"), s.Condition, s.At)
		}
	}
	if len(all) > 0 {
		p.say("\n")
	}
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
		file     string
		selector string
		applied  int
		verbose  bool
		says     bool
	)
	c := &cobra.Command{
		Use:   "dry-run {-f FILE | --policy POLICY}",
		Short: "Show what a policy would say of all current plans",
		Long: `Evaluates a policy for the pending plan of each stack, and for the plans that it
applied last: one of each stack, or as many as --applied says. The records have at most five
of them for each stack. The command shows how many plans the policy would have held or
denied, by verdict and by stack, how many it judged, and which could not be read. The policy
is evaluated on this machine and decides nothing. You need the permission to read the plans.

The file has the ClusterPolicy and Policy objects as you would apply them. Only stacks that
they select are judged; -n, -A and -l choose among these. Guards are evaluated as well, and
mode DryRun as if it were Enforce. Windows, freezes and ages hold no plan, and
requireSignedSource is for the controller. If a program is in a source, --source names a
directory with the files of the source.

The policy sees what you can read of the stacks, with the modules and providers that the
last run of each used, and for a plan that was applied those of that plan. The controller knows more: the signature of the source, the user who
requested the change, and the tenant.

The exit code is 0 whatever the policy says. With --exit-code it is 1 if the policy would
hold or deny a plan, or cannot be evaluated for one. It is 1 in any case if there are plans,
and none of them can be read.`,
		Example: `  terrier policy dry-run -f production.yaml -A
  terrier policy dry-run -f production.yaml -A --applied 5 -o json
  terrier policy dry-run --policy auto-approval -n network --exit-code`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" && flags.where != "" {
				return usage("-f and --policy exclude each other")
			}
			flags.where = cmp.Or(flags.where, file)
			pol, err := p.open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			filter, s, err := p.filter(cmd.Context(), nil, selector)
			if err != nil {
				return err
			}
			namespaces := func(ctx context.Context) (policies.Namespaces, error) { return p.connection.NamespaceLabels(ctx) }
			r, err := pol.Rehearse(cmd.Context(), s, policies.Rehearsing{Filter: filter, Applied: applied, Namespaces: namespaces, Now: p.Now()})
			if err != nil {
				return err
			}
			if !p.structured(f, r) {
				p.rehearsal(pol, r, applied, verbose)
			}
			if r.Plans == 0 && len(r.Unread) > 0 || says && r.Effects[policy.Deny]+r.Effects[policy.Hold] > 0 {
				return exit(1)
			}
			return nil
		},
	}
	p.allFlag(c)
	c.Flags().StringVarP(&file, "filename", "f", "", "the policy in this `file`")
	c.Flags().StringVarP(&selector, "selector", "l", "", "only stacks with these `labels`")
	c.Flags().IntVar(&applied, "applied", 1, "the `number` of applied plans of each stack that are judged as well, the newest first")
	c.Flags().BoolVar(&verbose, "all-findings", false, "show warnings and allowed plans as well")
	c.Flags().BoolVar(&says, "exit-code", false, "exit with 1 if the policy would hold or deny a plan")
	flags.named(c)
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// rehearsal shows what a policy would have said, the strictest verdict first, and below it
// by stack.
func (p policyCommands) rehearsal(pol *policies.Policy, r policies.Rehearsal, applied int, verbose bool) {
	for _, e := range []policy.Effect{policy.Deny, policy.Hold, policy.Allow, policy.Warn} {
		if n := r.Effects[e]; n > 0 && (verbose || e.Compare(policy.Hold) >= 0) {
			p.say("%s %s:\n", query.Count(n, "plan"), effectText(e))
			p.outcomes(r.Outcomes, e, verbose)
			p.say("\n")
		}
	}
	for _, why := range r.Unread {
		p.note("Not judged: %s\n", why)
	}
	if n := len(r.Fewer); n > 0 {
		p.note("Fewer than %d applied plans are kept of %s: %s.\n", applied, query.Count(n, "stack"), named(r.Fewer))
	}
	for _, note := range r.Notes {
		p.note("%s\n", note)
	}
	if len(pol.Left) > 0 {
		p.note("Not evaluated on this machine: %s.\n", strings.Join(pol.Left, ", "))
	}
	p.say("Would have denied %d and held %d of %s of %s (%d pending, %d applied)", r.Effects[policy.Deny], r.Effects[policy.Hold],
		query.Count(r.Plans, "plan"), query.Count(r.Stacks, "stack"), r.Pending, r.Plans-r.Pending)
	if n := r.Effects[policy.Allow]; n > 0 {
		p.say("; %d would have needed no approval", n)
	}
	if r.Errors > 0 {
		p.say("; could not be evaluated for %d", r.Errors)
	}
	p.say(".\n")
}

// namesShown bounds the names in one line.
const namesShown = 10

// named are names with commas, and how many there are besides.
func named(all []string) string {
	if n := len(all) - namesShown; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:namesShown], ", "), n)
	}
	return strings.Join(all, ", ")
}

// outcomes shows the plans with a verdict, by stack.
func (p policyCommands) outcomes(all []policies.Outcome, e policy.Effect, verbose bool) {
	last := ""
	for _, o := range all {
		if o.Effect != e {
			continue
		}
		if o.Stack != last {
			p.say("  %s\n", o.Stack)
		}
		last = o.Stack
		state := "pending"
		switch {
		case !o.Applied.IsZero():
			state = "applied " + p.at(o.Applied)
		case o.Now.Compare(policy.Hold) >= 0:
			state = "pending, now " + map[policy.Effect]string{policy.Hold: "held", policy.Deny: "denied"}[o.Now]
		}
		p.say("    %s (%s)\n", o.Plan, state)
		for _, f := range o.Findings {
			if verbose || f.Counts().Compare(policy.Hold) >= 0 {
				p.finding("      ", f)
			}
		}
	}
}
