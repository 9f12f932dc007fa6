package cli

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// changes is the exit code of plan --exit-code when there are any.
const changes = exit(2)

func (p runCommands) plan() *cobra.Command {
	var (
		f       format
		digest  string
		limit   int
		destroy bool
		timeout time.Duration
	)
	c := &cobra.Command{
		Use:   "plan STACK",
		Short: "Show the pending plan, or the plan that was applied last",
		Long: `Shows the changes of a plan. Resources that are destroyed or replaced come first, and
sensitive values are masked. With -o json the command prints the plan in the format of
"show -json" of the engine, with the same values masked.

With --destroy the command plans a destroy now, as a preview for you. The preview
needs no approval and changes nothing. While it waits, the command says on standard
error what the stack waits for. If a user has to act before a destroy can be planned,
it ends with the message of the stack and exit code 2.

With --exit-code the exit code is 0 without a pending plan, 2 with a pending plan, and
1 if there is an error.`,
		Example: `  terrier plan network
  terrier plan network -o wide | less -R
  terrier plan network --destroy
  terrier plan network --exit-code > /dev/null || echo "a plan is pending"`,
		GroupID:           groupView,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if destroy && digest != "" {
				return usage("--digest selects a stored plan, and --destroy creates a new one: use only one of them")
			}
			s, key, err := p.one(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if destroy {
				return p.preview(cmd.Context(), s, key, timeout, f, limit)
			}
			doc, err := s.Plan(cmd.Context(), key, digest)
			if err != nil {
				return err
			}
			if err := p.printPlan(doc, f, limit); err != nil {
				return err
			}
			if p.changesExit && doc.Waits {
				return changes
			}
			return nil
		},
	}
	c.Flags().StringVar(&digest, "digest", "", "the plan with this `digest`")
	c.Flags().BoolVar(&destroy, "destroy", false, "plan a destroy now, as a preview")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait for the plan of --destroy")
	c.Flags().IntVar(&limit, "limit", 0, "show at most this `number` of resources; 0 shows all")
	c.Flags().BoolVar(&p.changesExit, "exit-code", false, "exit with 2 if a plan is pending")
	formatFlag(c, &f, forWide, forJSON)
	return c
}

// preview shows the resources that a destroy would destroy.
func (p runCommands) preview(ctx context.Context, s command.StackAPI, key query.Key, timeout time.Duration, f format, limit int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	watching, enough := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { command.Watching(watching, s, key, p.waiting) })
	doc, err := s.PreviewDestroy(ctx, key)
	enough()
	telling.Wait()
	if err != nil {
		return err
	}
	if doc.Document == nil {
		p.say("A destroy of %s would destroy nothing.\n", key)
		return nil
	}
	return p.printPlan(doc, f, limit)
}
