package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

// changes is the exit code of plan --exit-code when there are any.
const changes = exit(2)

func (p *program) plan() *cobra.Command {
	var (
		f       format
		digest  string
		limit   int
		destroy bool
		timeout time.Duration
	)
	c := &cobra.Command{
		Use:   "plan STACK",
		Short: "Show the plan that waits, or the last one that was applied",
		Long: `Shows what a plan would do, or did: what is destroyed and replaced comes first,
and sensitive values are masked. With -o json it is the plan as the engine's
"show -json" describes it, masked as well.

With --destroy it is what a destroy would take down, made for you now and shown
to nobody else: it waits for no approval and changes nothing.

With --exit-code the exit code is 0 if no plan waits, 2 if one does, and 1 if
anything is wrong.`,
		Example: `  terrier plan network
  terrier plan network -o wide | less -R
  terrier plan network --destroy
  terrier plan network --exit-code > /dev/null || echo "somebody has to look"`,
		GroupID:           groupLook,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if destroy && digest != "" {
				return usage("--digest is of a plan that is kept, and --destroy makes a new one: give one of them")
			}
			s, key, err := p.one(args[0])
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
	c.Flags().BoolVar(&destroy, "destroy", false, "plan a destroy now, only to show it")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait for the plan of --destroy")
	c.Flags().IntVar(&limit, "limit", 0, "show no more than this `number` of resources; all if 0")
	c.Flags().BoolVar(&p.changesExit, "exit-code", false, "exit with 2 if a plan waits")
	formatFlag(c, &f, forWide, forJSON)
	return c
}

// preview shows what a destroy would take down.
func (p *program) preview(ctx context.Context, s *command.Stacks, key query.Key, timeout time.Duration, f format, limit int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	doc, err := s.PreviewDestroy(ctx, key)
	if err != nil {
		return err
	}
	if doc.Document == nil {
		_, err := fmt.Fprintf(p.Stdout, "A destroy of %s would take down nothing.\n", clean(key.String()))
		return err
	}
	return p.printPlan(doc, f, limit)
}

func (p *program) printPlan(doc query.PlanDocument, f format, limit int) error {
	if f == forJSON {
		return p.printJSON(doc.Document)
	}
	d, err := plan.ParseDocument(doc.Document)
	if err != nil {
		return err
	}
	state := "was applied"
	if doc.Waits {
		state = "waits for approval"
	}
	switch {
	case doc.Name == "" && doc.Destroy:
		state, doc.Name = "would do this", "A destroy"
	case doc.Name == "":
		state, doc.Name = "is kept", doc.Digest
	}
	color := p.coloured()
	if _, err := fmt.Fprintf(p.Stdout, "%s %s\n", paint(color, bold, clean(doc.Name)), state); err != nil {
		return err
	}
	for _, line := range []string{doc.Revision, doc.Digest, p.at(doc.At)} {
		if line != "" && line != doc.Name {
			if _, err := fmt.Fprintf(p.Stdout, "  %s\n", paint(color, faint, clean(line))); err != nil {
				return err
			}
		}
	}
	if _, err := fmt.Fprintln(p.Stdout); err != nil {
		return err
	}
	return plan.Render(p.Stdout, d, plan.Options{Color: color, Wide: f == forWide, Limit: limit})
}
