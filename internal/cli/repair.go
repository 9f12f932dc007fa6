package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

func (p decideCommands) repair() *cobra.Command {
	var (
		r       repairing
		ids     []string
		timeout time.Duration
	)
	c := &cobra.Command{
		Use:   "repair STACK",
		Short: "Import untracked resources into the state",
		Long: `When an apply is interrupted, resources may exist that are not in the state. Such a
stack has the reason StateIncomplete, and Terrier applies nothing to it. This command
plans the import of these untracked resources, shows the plan, and applies exactly
this plan after you confirm it: by answering yes, with --yes, or later with --approve.

For a resource whose import ID is not in the records of the run, use --id to enter
its ID, or --absent if it does not exist. If none of the resources exists, the command
creates an ordinary plan.`,
		Example: `  terrier repair network
  terrier repair network --id 'aws_subnet.a=subnet-0a1b' --absent 'aws_route.b'
  terrier repair network --approve plan-main-b8e362c206`,
		GroupID:           groupDecide,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.answers.IDs, err = pairs("--id", ids); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			s, key, err := p.one(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.repairStack(ctx, s, key, r)
		},
	}
	c.Flags().StringArrayVar(&ids, "id", nil, "the import ID of a resource as `ADDRESS=ID` (repeatable)")
	c.Flags().StringArrayVar(&r.answers.Absent, "absent", nil, "the `ADDRESS` of a resource that does not exist (repeatable)")
	c.Flags().StringVar(&r.approve, "approve", "", "apply this repair `plan`, which was shown before")
	c.Flags().BoolVarP(&r.yes, "yes", "y", false, "apply the repair plan without asking")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait for the plan")
	return c
}

// repairing is the request of a repair.
type repairing struct {
	answers command.RepairAnswers
	approve string
	yes     bool
}

func (p decideCommands) repairStack(ctx context.Context, s command.StackAPI, key query.Key, r repairing) error {
	st, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	if r.approve != "" {
		seen, err := command.Pending(st, r.approve)
		if err != nil {
			return err
		}
		return p.applyRepair(ctx, s, key, seen)
	}
	if st.Untracked != nil {
		p.printUntracked(*st.Untracked)
	}
	request, err := s.PlanRepair(ctx, key, r.answers)
	if err != nil {
		return err
	}
	st, err = command.Answered(ctx, s, key, request, p.waiting)
	if err = cmp.Or(err, command.NotPlanned(st)); err != nil {
		return err
	}
	if st.Plan == nil || st.Untracked == nil {
		p.settled(st)
		return nil
	}
	doc, err := s.Plan(ctx, key, st.Plan.Digest)
	if err != nil {
		return err
	}
	if err := p.printPlan(doc, "", 0); err != nil {
		return err
	}
	agreed, err := p.agreed(r.yes, "Apply the repair plan %s of %s?", st.Plan.Name, key)
	if !agreed { // the plan was still created and can be applied later
		p.say("Nothing was changed. To apply the repair plan later: terrier repair %s --approve %s\n", stateCommands(p).argument(key), st.Plan.Name)
		return err
	}
	return p.applyRepair(ctx, s, key, *st.Plan)
}

func (p decideCommands) applyRepair(ctx context.Context, s command.StackAPI, key query.Key, seen query.PlanInfo) error {
	if err := s.Repair(ctx, key, seen); err != nil {
		return err
	}
	p.say("Applying the repair plan %s of %s. To show its progress: terrier explain %s\n", seen.Name, key, stateCommands(p).argument(key))
	return nil
}

func (p decideCommands) printUntracked(g stack.Untracked) {
	text := "The run %s was interrupted. Untracked resources:\n"
	if g.Apart {
		text = "The run %s was interrupted. Its state is in a backend of your own, which may contain some of these resources:\n"
	}
	p.say(text, g.Run)
	for _, u := range g.Objects {
		p.say("  %s  %s\n", u.Address, existence(u))
	}
	if g.More > 0 {
		p.say("  and %d more\n", g.More)
	}
}

// existence says whether an untracked resource exists.
func existence(u stack.UntrackedResource) string {
	if u.Finished {
		return "exists, ID " + u.ID
	}
	return "may exist"
}

// pairs reads ADDRESS=ID. An address may hold equals signs inside brackets.
func pairs(flag string, values []string) (map[string]string, error) {
	out := map[string]string{}
	for _, v := range values {
		from := strings.LastIndexByte(v, ']') + 1
		i := strings.IndexByte(v[from:], '=')
		if i < 0 {
			from, i = 0, strings.IndexByte(v, '=')
		}
		if i < 0 || from+i == 0 || from+i == len(v)-1 {
			return nil, usage("%s %q: want ADDRESS=ID", flag, v)
		}
		out[v[:from+i]] = v[from+i+1:]
	}
	return out, nil
}
