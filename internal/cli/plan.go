package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
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

// findings shows what policies find in the pending plan, the most severe first. It shows
// nothing if there is nothing.
func findings(s *sheet, v *query.Verdict) {
	for _, g := range v.BySeverity() {
		s.heading("Findings of policies, severity: " + g.Name)
		for _, f := range g.Findings {
			s.line("- %s %s: %s", f.Policy, paint(s.colour, bold, query.EffectText(f)), f.Rule)
			for _, line := range wrap(f.Message, 92) {
				s.line("  %s", line)
			}
			if f.Counts() == policy.Hold && f.Approval != nil {
				s.line("  needs %s", f.Approval)
			}
			if f.Link != "" {
				s.line("  %s", f.Link)
			}
		}
	}
	if v != nil && v.More > 0 {
		s.line("  %s", fmt.Sprintf("and %d more", v.More))
	}
}

func (p runCommands) outputs() *cobra.Command {
	var (
		f    format
		show bool
	)
	c := &cobra.Command{
		Use:   "outputs STACK",
		Short: "Show the outputs of a stack",
		Long: `Shows the outputs of a stack, from the Secret that it publishes them to. You
need the permission to read this Secret. Sensitive outputs, and outputs that hold a value
from a Secret, are masked unless --show-secrets is given. The server tells users
who may read the state which values came from Secrets. If it does not answer, every value
is masked, and the command says so on standard error.`,
		Example: `  terrier outputs network
  terrier outputs network -o json --show-secrets`,
		GroupID:           groupView,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			list, err := s.Outputs(ctx, key, show)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(list, func(o query.Output) bool { return o.Masked != "" }); i >= 0 {
				p.note("%s. To show the values: --show-secrets\n", list[i].Masked)
			}
			if p.structured(f, map[string]any{"items": list}) {
				return nil
			}
			for _, o := range list {
				value := plan.Mask
				if o.Value != nil {
					value = compact(o.Value)
				}
				p.say("%s = %s\n", o.Name, value)
			}
			return nil
		}),
	}
	secretsFlag(c, &show, "show")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// compact is JSON on one line.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}
