package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p tenantCommands) tenant() *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "tenant TENANT",
		Short: "Show a tenant and its objects",
		Long: `Shows a tenant: its objects in the order of their creation, the status of each object,
the reason, since when, and what the object is waiting for. For a Terraform object, the
command also shows the activity of the stack, its pending plan and its last change.

The command shows only the names of the row's variables. The values are in a Secret.
To view them, you need the permission to read Secrets in the namespace.`,
		Example: `  terrier tenant acme-web
  terrier tenant acme-web -o yaml`,
		GroupID:           groupView,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.tenantNames,
		RunE: p.ofTenants(query.TenantWords, func(ctx context.Context, t command.TenantAPI, key query.Key) error {
			d, err := t.Describe(ctx, key)
			if err == nil && !p.structured(f, d) {
				p.write(p.tenantSheet(d))
			}
			return err
		}),
	}
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// tenantSheet lays out the details of a tenant.
func (p tenantCommands) tenantSheet(d query.TenantDetail) *sheet {
	s := &sheet{colour: p.coloured()}
	s.row("Tenant", d.Key().String())
	s.row("UID", d.UID)
	s.row("Registry", d.Registry)
	s.row("Template", generationText(d))
	s.row("Row", strings.Join(d.Row.Variables, ", "))
	if d.Row.Secret != "" {
		s.row("Values in", "Secret "+d.Row.Secret)
	} else if len(d.Row.Variables) > 0 {
		s.row("Values in", "annotations of the Tenant")
	}
	s.row("Created", p.at(d.Created))
	s.row("Protected", yes(d.Protected))
	s.heading("Status")
	s.row("State", d.State)
	s.row("Ready", fmt.Sprintf("%d of %d objects", d.Ready, d.Desired))
	s.row("Reason", d.Reason)
	s.row("Since", p.at(d.Since))
	s.text("Message", d.Message)
	s.text("Leaving", d.Leaving)
	s.text("Means", d.Means.Means)
	s.text("Next step", d.Means.Do)
	p.tenantTree(s, d.Objects)
	p.conditionsAndEvents(s, d.Conditions, d.Events)
	if len(d.Unseen) > 0 {
		s.heading("Not shown")
		for _, u := range d.Unseen {
			s.line("%s", u)
		}
	}
	return s
}

// generationText is the template of a tenant and which generation of it.
func generationText(d query.TenantDetail) string {
	text := d.Template
	if d.Generation != 0 {
		text += fmt.Sprintf(", generation %d", d.Generation)
	}
	if d.Behind != "" && d.Newest > d.Generation {
		return text + fmt.Sprintf(" of %d: %s", d.Newest, d.Behind)
	}
	if d.Behind != "" {
		return text + ": " + d.Behind
	}
	return text
}

// tenantTree draws the objects of a tenant in their order.
func (p tenantCommands) tenantTree(s *sheet, objects []query.TenantObject) {
	if len(objects) == 0 {
		return
	}
	s.heading("Objects, in the order of creation")
	width := 0
	for _, o := range objects {
		width = max(width, len([]rune(clean(o.ID))))
	}
	for i, o := range objects {
		branch, stem := "├─ ", "│  "
		if i == len(objects)-1 {
			branch, stem = "└─ ", "   "
		}
		state := o.State
		if o.Reason != "" && o.Reason != o.State {
			state += " (" + o.Reason + ")"
		}
		if !o.Since.IsZero() {
			state += " for " + age(p.Now(), o.Since)
		}
		id := clean(o.ID)
		s.line("%s%s%s  %s  %s", branch, id, strings.Repeat(" ", width-len([]rune(id))), paint(s.colour, objectColour(o.State), state), objectText(o))
		for _, text := range p.objectNotes(o) {
			for _, line := range wrap(text, 92) {
				s.line("%s    %s", stem, line)
			}
		}
	}
}

func objectColour(state string) string {
	switch state {
	case query.ObjectReady, query.ObjectLeftOut, query.ObjectGone, query.ObjectLetGo:
		return green
	case "Failed", "Conflicted", "Skipped":
		return red
	default:
		return yellow
	}
}

// objectText is the name of an object, and its options.
func objectText(o query.TenantObject) string {
	text := o.Kind
	switch {
	case o.Name != "" && o.Namespace != "":
		text += " " + o.Namespace + "/" + o.Name
	case o.Name != "":
		text += " " + o.Name
	}
	var special []string
	if o.Once {
		special = append(special, "written once")
	}
	if o.Retain {
		special = append(special, "kept when the tenant is deleted")
	}
	if special != nil {
		text += " [" + strings.Join(special, ", ") + "]"
	}
	return text
}

// objectNotes are the message of an object and the details of its stack.
func (p tenantCommands) objectNotes(o query.TenantObject) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if text := o.Note(); text != "" {
		add("%s", text)
	}
	if !o.Next.IsZero() {
		add("retry at %s, or as soon as the row, the template or the object changes", p.at(o.Next))
	}
	if len(o.WaitsFor) > 0 {
		add("waiting for %s", strings.Join(o.WaitsFor, ", "))
	}
	if o.Means.Do != "" {
		add("→ %s", o.Means.Do)
	}
	if o.StackUnseen != "" {
		add("its stack is not shown: %s", o.StackUnseen)
	}
	if st := o.Stack; st != nil {
		text := "stack: " + st.Phase
		if !st.Since.IsZero() {
			text += " for " + age(p.Now(), st.Since)
		}
		add("%s: %s", text, st.Message)
		if st.Plan != nil {
			add("pending plan %s: %s", st.Pending, plan.Summarize(st.Plan.Changes))
		} else if st.Pending != "" {
			add("pending plan %s", st.Pending)
		}
		if st.Applied != nil {
			add("last applied: %s, %s, %s", cmp.Or(st.Applied.Name, "by the script, without a plan"), st.Applied.Changes, p.at(st.Applied.At))
		}
		if st.Drift != nil {
			add("drift: %s", st.Drift.Changes)
		}
	}
	return notes
}
