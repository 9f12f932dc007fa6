package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
)

func (p stackCommands) describe() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "describe STACK",
		Short: "Show the details of a stack",
		Long: `Shows the spec and the status of a stack, what the stack is waiting for, its next
check, its plans, its last failure, the modules and providers that it uses, its conditions
and its events.`,
		Example: `  terrier describe network
  terrier describe network -o yaml`,
		GroupID:           groupView,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.names,
		RunE: p.ofStack(func(ctx context.Context, s command.StackAPI, key query.Key) error {
			d, err := describedStack(ctx, s, key)
			if err == nil && !p.structured(f, d) {
				p.write(p.detail(d))
			}
			return err
		}),
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// detail lays out the details of a stack.
func (p stackCommands) detail(d described) *sheet {
	s := &sheet{colour: p.coloured()}
	p.spec(s, d.Detail)
	s.heading("Status")
	p.status(s, d.Stack, d.Means)
	if r := d.Run; r != nil {
		s.row("Run", strings.Join([]string{r.Kind, r.ID, r.Phase}, " "))
		s.row("Started", p.at(r.Started))
	}
	p.known(s, d.Detail)
	p.uses(s, d)
	p.conditionsAndEvents(s, d.Conditions, d.Events)
	if d.Unseen != "" {
		s.heading("Events")
		s.line("not shown: %s", d.Unseen)
	}
	return s
}

// spec is the spec of the object.
func (p stackCommands) spec(s *sheet, d query.Detail) {
	s.row("Name", d.Name)
	s.row("Namespace", d.Namespace)
	s.row("Source", d.Source)
	s.row("Path", d.Path)
	s.row("Mode", string(d.Mode))
	s.row("Approved", d.Approved)
	s.row("Suspended", yes(d.Suspended))
	s.row("Deleting", yes(d.Deleting))
	s.row("Destroy", yes(d.Destroy))
	s.row("Depends on", strings.Join(d.DependsOn, ", "))
	s.row("Outputs in", d.OutputsIn)
	for _, i := range d.Identities {
		s.row("Identity", i.String())
	}
	s.row("Created", p.at(d.Created))
}

// status is the status of a stack, its reason, and the next step.
func (p stackCommands) status(s *sheet, st query.Stack, means meaning.Situation) {
	s.row("Ready", st.Ready)
	s.row("Phase", st.Phase)
	s.row("Since", p.at(st.Since))
	s.text("Message", st.Message)
	s.text("Means", means.Means)
	s.text("Next step", means.Do)
	s.row("Rule", st.Rule)
	if st.WaitingFor != st.Message {
		s.text("Waiting for", st.WaitingFor)
	}
	s.row("Next attempt", p.at(st.NextAttempt))
	if st.Every > 0 {
		s.row("Check interval", span(st.Every))
	}
	if r := st.Run; r != nil && !r.Until.IsZero() {
		s.row("Timeout", p.at(r.Until))
	}
}

// known is what the status records of earlier runs.
func (p stackCommands) known(s *sheet, d query.Detail) {
	s.heading("Plans")
	if d.Pending != "" {
		s.row("Pending", planText(d.Stack))
	}
	if d.Plan != nil {
		s.row("Digest", d.Plan.Digest)
		s.row("Created", p.at(d.Plan.At))
		s.row("Run", d.Plan.Run)
	}
	if v := d.Verdict; v != nil {
		s.row("Policies", cmp.Or(string(v.Effect), "dry run")+", see terrier explain")
	}
	if r := d.Rejection; r != nil {
		s.row("Rejected", d.Pending+" was "+r.String())
	} else {
		s.row("Rejected", d.Rejected)
	}
	if a := d.Applied; a != nil {
		s.row("Applied", strings.TrimSpace(cmp.Or(a.Name, "by the script, without a plan")+" "+a.Revision))
		s.row("Approved", d.ApprovedBy(*a))
	}
	s.row("Revision", d.Revision)
	if d.Drift != nil {
		s.row("Drift", d.Drift.Changes.String()+", detected "+p.at(d.Drift.At))
	}
	if f := d.FailingCheckBlocks; f != nil {
		s.row("Check blocks", fmt.Sprintf("%d failing since %s", f.Count(), p.at(f.Since)))
	}
	if f := d.Failure; f != nil {
		s.heading(fmt.Sprintf("Last failure (of %d)", d.Failures))
		s.row("At", p.at(f.At))
		step := string(f.Kind)
		if f.Step != step {
			step = strings.TrimSpace(step + " " + f.Step)
		}
		s.row("Step", step)
		s.text("Message", f.Message)
	}
	if l := d.Lock; l != nil {
		s.heading("State lock")
		s.row("Lock", l.ID)
		s.row("Held by", l.Who)
		s.row("Since", l.Since)
	}
	if d.Isolation != "" || len(d.Environment) > 0 {
		s.heading("Runs")
		s.row("Isolation", d.Isolation)
		s.row("Environment", strings.Join(d.Environment, ", "))
	}
}

// yes is a row only if the value is true.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}
