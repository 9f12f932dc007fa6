package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

func (p *program) repair() *cobra.Command {
	var (
		r       repairing
		ids     []string
		timeout time.Duration
	)
	c := &cobra.Command{
		Use:   "repair STACK",
		Short: "Bring what is in no state into it",
		Long: `When an apply is cut short, objects may exist that the state does not know. Such
a stack stands in StateIncomplete, and nothing is applied to it. This command has
the import of those objects planned, shows the plan, and carries out exactly that
plan when you agree: by answering yes, by --yes, or later by --approve.

What the journal of the run does not know has to be said: --id for what an object
is imported by, --absent for one that does not exist after all. If none of them
exists, an ordinary plan is made.`,
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
			s, key, err := p.one(args[0])
			if err != nil {
				return err
			}
			return p.repairStack(ctx, s, key, r)
		},
	}
	c.Flags().StringArrayVar(&ids, "id", nil, "`ADDRESS=ID` to import an object by (repeatable)")
	c.Flags().StringArrayVar(&r.answers.Absent, "absent", nil, "`ADDRESS` of an object that does not exist (repeatable)")
	c.Flags().StringVar(&r.approve, "approve", "", "carry out this `plan`, which was shown before")
	c.Flags().BoolVarP(&r.yes, "yes", "y", false, "carry out what is planned without asking")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait for the plan")
	return c
}

// repairing is how a repair was asked for.
type repairing struct {
	answers command.RepairAnswers
	approve string
	yes     bool
}

func (p *program) repairStack(ctx context.Context, s *command.Stacks, key query.Key, r repairing) error {
	st, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	if r.approve != "" {
		seen, err := command.Pending(st, r.approve)
		if err != nil {
			return err
		}
		return p.carryOut(ctx, s, key, seen)
	}
	if st.Untracked != nil {
		if err := p.printGap(*st.Untracked); err != nil {
			return err
		}
	}
	request, err := s.PlanRepair(ctx, key, r.answers)
	if err != nil {
		return err
	}
	if st, err = s.Answered(ctx, key, request); err != nil {
		return err
	}
	if st.Plan == nil || st.Untracked == nil {
		return p.afterwards(st)
	}
	doc, err := s.Plan(ctx, key, st.Plan.Digest)
	if err != nil {
		return err
	}
	if err := p.printPlan(doc, "", 0); err != nil {
		return err
	}
	agreed := r.yes
	if !agreed {
		// Without an answer there is a plan to look at, which is something, too.
		agreed, err = p.confirm(fmt.Sprintf("Carry out %s of %s?", clean(st.Plan.Name), clean(key.String())))
		if err != nil && !errors.Is(err, errNoAnswer) {
			return err
		}
	}
	if !agreed {
		_, err := fmt.Fprintf(p.Stdout, "Nothing was changed. Carry it out later with: terrier repair %s --approve %s\n", clean(key.Name), clean(st.Plan.Name))
		return err
	}
	return p.carryOut(ctx, s, key, *st.Plan)
}

func (p *program) carryOut(ctx context.Context, s *command.Stacks, key query.Key, seen query.PlanInfo) error {
	if err := s.Repair(ctx, key, seen); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.Stdout, "Carrying out %s of %s. See how far it is with: terrier explain %s\n", clean(seen.Name), clean(key.String()), clean(key.Name))
	return err
}

func (p *program) printGap(g stack.Untracked) error {
	text := "Run %s was cut short. In no state are:\n"
	if g.Apart {
		text = "Run %s was cut short. Its state is in a backend of your own, and may hold some of these:\n"
	}
	if _, err := fmt.Fprintf(p.Stdout, text, clean(g.Run)); err != nil {
		return err
	}
	for _, u := range g.Objects {
		if _, err := fmt.Fprintf(p.Stdout, "  %s  %s\n", clean(u.Address), clean(existence(u))); err != nil {
			return err
		}
	}
	return nil
}

// existence is how sure it is that an object exists which is in no state.
func existence(u stack.UntrackedResource) string {
	if u.Finished {
		return "exists, id " + u.ID
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
