package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// templateCommands render templates of tenants and control their rollouts.
type templateCommands struct{ *program }

func (p templateCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.render(), p.rollout()}
}

func (p templateCommands) rollout() *cobra.Command {
	return group(&cobra.Command{
		Use:   "rollout",
		Short: "Show, resume or undo the rollout of a template",
		Long: `A change of a template reaches its tenants as the rollout of the template defines: all
at once, a few at a time, or in waves. The rollout stops when more tenants fail than it
allows. New rows then get the last good generation.`,
		Example: `  terrier rollout status web
  terrier rollout undo web`,
		GroupID: groupOperate,
	}, p.rolloutStatus(), p.rolloutResume(), p.rolloutUndo())
}

func (p templateCommands) rolloutStatus() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "status TEMPLATE",
		Short: "Show the rollout of a template",
		Long: `Shows the phase of the rollout, the number of tenants of each generation of the
template, the tenants that block the rollout, and the generations that you can roll
back to.`,
		Example: `  terrier rollout status web
  terrier rollout status web -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.templateNames,
		RunE: p.ofTenants(query.TemplateWords, func(ctx context.Context, t command.TenantAPI, key query.Key) error {
			r, err := t.Rollout(ctx, key)
			if err == nil && !p.structured(f, r) {
				p.write(p.rolloutSheet(r))
			}
			return err
		}),
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// Bounds of how many tenants that block a rollout are listed, and of the message
// of each.
const (
	holdingShown = 20
	messageShown = 500
)

func (p templateCommands) rolloutSheet(r query.Rollout) *sheet {
	s := &sheet{colour: p.coloured()}
	s.row("Template", r.Namespace+"/"+r.Template)
	s.row("Registry", r.Registry)
	s.row("Phase", r.Phase)
	s.row("Generation", fmt.Sprint(r.Target))
	if r.Good != 0 {
		s.row("Last good", fmt.Sprint(r.Good))
	}
	s.row("Tenants", fmt.Sprintf("%d: %d updated, of which %d are ready and %d failed; %d updating", r.Total, r.Updated, r.Ready, r.Failed, r.Updating))
	s.row("Wave", waveOf(r))
	s.row("Started", p.at(r.Started))
	s.row("Ended", p.at(r.Completed))
	s.text("Message", r.Message)
	s.text("Means", r.Means.Means)
	s.text("Next step", r.Means.Do)
	s.heading("Generations")
	for _, g := range r.Generations {
		text := query.Count(g.Tenants, "tenant")
		if g.Tenants > 0 {
			text += fmt.Sprintf(", %d ready", g.Ready)
		}
		if !g.Made.IsZero() {
			text += ", stored since " + p.at(g.Made)
		}
		if !g.Kept {
			text += ", not stored"
		}
		mark := "  "
		switch g.Number {
		case r.Target:
			mark = "→ "
		case r.Good:
			mark = "✓ "
		}
		s.line("%s%-4d %s", mark, g.Number, text)
	}
	if len(r.Holding) > 0 {
		s.heading("Updated and not ready")
		for i, t := range r.Holding {
			if i == holdingShown {
				more(s, len(r.Holding)-i)
				break
			}
			s.line("%s  %s  %s", t.Name, paint(s.colour, tenantColour(t.State), t.State), t.Reason)
			for _, line := range wrap(ends(t.Message, messageShown), 96) {
				s.line("  %s", line)
			}
		}
	}
	return s
}

// waveOf is the current wave of a rollout that is in progress or has stopped, and
// all waves.
func waveOf(r query.Rollout) string {
	switch {
	case len(r.Waves) == 0:
		return ""
	case r.Phase != query.RolloutInProgress && r.Phase != query.RolloutFailed:
		return "none (of " + strings.Join(r.Waves, ", ") + ")"
	}
	return fmt.Sprintf("%s (of %s)", cmp.Or(r.Wave, "the rest"), strings.Join(r.Waves, ", "))
}

func (p templateCommands) rolloutResume() *cobra.Command {
	return &cobra.Command{
		Use:   "resume TEMPLATE",
		Short: "Resume a stopped rollout",
		Long: `Resumes a stopped rollout. Tenants that failed before no longer count against it. The
rollout stops again when more tenants fail than the template allows.`,
		Example:           `  terrier rollout resume web`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.templateNames,
		RunE: p.ofTenants(query.TemplateWords, func(ctx context.Context, t command.TenantAPI, key query.Key) error {
			generation, err := t.ResumeRollout(ctx, key)
			if err == nil {
				p.say("Resumed the rollout of generation %d of %s.\n", generation, key)
			}
			return err
		}),
	}
}

func (p templateCommands) rolloutUndo() *cobra.Command {
	var (
		to  int64
		yes bool
	)
	c := &cobra.Command{
		Use:   "undo TEMPLATE",
		Short: "Roll back a template to an earlier generation",
		Long: `Rolls back a template to an earlier generation: the last one that all tenants were
ready with, or the one that --to names. The rollback is a new generation and is rolled
out like any other. Tenants that never had the newer generation do not change. If you
keep the template in Git, revert it there, too.`,
		Example: `  terrier rollout undo web
  terrier rollout undo web --to 4 --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.templateNames,
		RunE: p.ofTenants(query.TemplateWords, func(ctx context.Context, t command.TenantAPI, key query.Key) error {
			u, err := t.PlanUndo(ctx, key, to)
			if err != nil {
				return err
			}
			if u.Same {
				p.say("%s equals its generation %d. There is nothing to roll back.\n", key, u.To)
				return nil
			}
			if agreed, err := p.agreed(yes, "Roll back %s to generation %d, in place of %d?", key, u.To, u.From); !agreed {
				return err
			}
			if err := t.Undo(ctx, u); err != nil {
				return err
			}
			p.say("Rolled back %s to generation %d. To show the rollout: terrier rollout status %s\n", key, u.To, key.Name)
			return nil
		}),
	}
	c.Flags().Int64Var(&to, "to", 0, "the `generation` to roll back to")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "roll back without asking")
	return c
}
