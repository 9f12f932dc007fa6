package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// registryCommands show registries of tenants.
type registryCommands struct{ *program }

func (p registryCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.rows()}
}

func (p registryCommands) rows() *cobra.Command {
	var (
		f               format
		now, allow, yes bool
		timeout         time.Duration
	)
	c := &cobra.Command{
		Use:   "rows REGISTRY",
		Short: "Show the rows of a registry, and the pending changes",
		Long: `Shows the result of the last complete read of a registry's rows, the invalid rows, the
tenants that will be deleted, the deletions that a guard blocks, and the changes that a
dry run would make.

Only the controller reads the rows. This command asks the controller and needs no
password of the database. With --now the controller reads the rows at once, and the
command waits for the result; it says on standard error what it waits for. A registry
that is suspended ends the wait with exit code 2.

With --allow the command shows the blocked deletions, asks for confirmation, and
allows exactly these deletions. If the set has changed in the meantime, no deletion is
allowed.`,
		Example: `  terrier rows customers
  terrier rows customers --now
  terrier rows customers --allow`,
		GroupID:           groupView,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.registryNames,
		RunE: p.ofTenants(query.RegistryWords, func(ctx context.Context, t command.TenantAPI, key query.Key) error {
			r, err := p.readRows(ctx, t, key, now, timeout)
			if err == nil && allow {
				return p.allow(ctx, t, r, yes)
			}
			if err == nil && !p.structured(f, r) {
				p.write(p.registrySheet(r))
			}
			return err
		}),
	}
	c.Flags().BoolVar(&now, "now", false, "read the rows now, and wait for the result")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	c.Flags().BoolVar(&allow, "allow", false, "allow the deletions that a guard blocks")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "allow the deletions without asking")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

func (p registryCommands) readRows(ctx context.Context, t command.TenantAPI, key query.Key, now bool, timeout time.Duration) (query.Registry, error) {
	if !now {
		return t.Registry(ctx, key)
	}
	request, err := t.ReadNow(ctx, key)
	if err != nil {
		return query.Registry{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return command.WasRead(ctx, t, key, request, p.waiting)
}

// allow shows blocked deletions and allows them after a confirmation.
func (p registryCommands) allow(ctx context.Context, t command.TenantAPI, r query.Registry, yes bool) error {
	if r.Blocked == nil {
		p.say("No deletions of %s are blocked.\n", r.Key())
		return nil
	}
	s := &sheet{colour: p.coloured()}
	p.blocked(s, r.Blocked)
	p.print(p.Stderr, s.b.String())
	if r.Blocked.Token == "" {
		return usage("these deletions cannot be allowed together: %s", r.Blocked.Message)
	}
	if agreed, err := p.agreed(yes, "Delete these %s of %s, with all their objects?", query.Count(r.Blocked.Count, "tenant"), r.Key()); !agreed {
		return err
	}
	if err := t.Allow(ctx, r.Key(), r.Blocked.Token); err != nil {
		return err
	}
	p.say("Allowed %s. The next read begins them; they follow when the grace period ends. To read now: terrier rows %s -n %s --now\n", query.Count(r.Blocked.Count, "deletion"), r.Name, r.Namespace)
	return nil
}

// registrySheet lays out the details of a registry.
func (p registryCommands) registrySheet(r query.Registry) *sheet {
	s := &sheet{colour: p.coloured()}
	if r.Blocked != nil {
		p.blocked(s, r.Blocked)
		if r.Blocked.Token != "" {
			s.line("To allow exactly these: terrier rows %s -n %s --allow", r.Name, r.Namespace)
		}
		s.b.WriteByte('\n')
	}
	s.row("Registry", r.Key().String())
	s.row("Source", r.Source)
	s.row("Read interval", r.Interval)
	s.row("Suspended", yes(r.Suspended))
	s.row("Dry run", yes(r.DryRun))
	s.row("Ready", r.Ready)
	s.row("Reason", r.Reason)
	s.row("Since", p.at(r.Since))
	s.text("Message", r.Message)
	s.text("Means", r.Means.Means)
	s.text("Next step", r.Means.Do)
	s.heading("Rows at the last read")
	if r.LastRead.IsZero() {
		s.line("The rows have not been read yet.")
	} else {
		s.row("Since", p.at(r.LastRead))
		s.row("Rows", fmt.Sprintf("%d, of which %d are active", r.Rows, r.Active))
		s.row("High-water mark", r.Mark)
	}
	if r.RowErrors > 0 {
		s.heading(fmt.Sprintf("Invalid rows (%d)", r.RowErrors))
		for _, e := range r.FirstErrors {
			s.line("%-20s %-20s %s", strconv.Quote(e.UID), e.Reason, e.Message)
			if !e.Next.IsZero() {
				s.line("%-20s %-20s retry at %s", "", "", p.at(e.Next))
			}
		}
		more(s, r.RowErrors-len(r.FirstErrors))
	}
	s.heading("Tenants")
	s.row("Templates", fmt.Sprint(r.Templates))
	desired := fmt.Sprint(r.Desired)
	if r.Kept > 0 {
		desired += fmt.Sprintf(", %d of them kept although no valid, active row asks for them", r.Kept)
	}
	s.row("Desired", desired)
	s.row("Ready", fmt.Sprint(r.ReadyNow))
	s.row("Failed", fmt.Sprint(r.Failed))
	p.changes(s, r)
	p.conditionsAndEvents(s, r.Conditions, nil)
	return s
}

// changes lists the coming changes, and then the past ones.
func (p registryCommands) changes(s *sheet, r query.Registry) {
	s.heading("Coming changes")
	quiet := true
	if w := r.WouldChange; w != nil && r.DryRun {
		quiet = false
		s.line("Dry run: %s would be created, %d updated and %d deleted.", query.Count(w.Create, "tenant"), w.Update, w.Delete)
		for _, name := range w.Tenants {
			s.line("  %s", name)
		}
		more(s, w.Create+w.Update+w.Delete-len(w.Tenants))
	}
	if b := r.Blocked; b != nil {
		quiet = false
		s.line("%s blocked, see above.", query.Count(b.Count, "deletion"))
	}
	if r.Leaving > 0 {
		quiet = false
		s.line("%s will be deleted when the grace period of %s ends, unless the rows return.", query.Count(r.Leaving, "tenant"), span(r.Grace))
		s.line("To see which, and when: terrier tenants -n %s --registry %s --not-ready -o wide", r.Namespace, r.Name)
	}
	if quiet {
		s.line("None until the next read.")
	}
	if r.Keeps {
		s.line("Tenants of missing rows are kept (vanishedRows: Keep).")
	}
	if len(r.Departed) > 0 {
		s.heading("Past changes")
	}
	for _, d := range r.Departed {
		s.line("The tenants of %s were deleted at %s, because its row was inactive or missing (%s).", d.UID, p.at(d.At), query.Count(d.Count, "time"))
	}
}

// blocked shows the blocked deletions.
func (p registryCommands) blocked(s *sheet, b *query.BlockedSet) {
	text := fmt.Sprintf("! %s blocked since %s: %s (%s)", query.Count(b.Count, "deletion"), p.at(b.Since), b.Message, b.Reason)
	fmt.Fprintln(&s.b, paint(s.colour, red, text))
	for _, name := range b.Tenants {
		s.line("- %s", name)
	}
	more(s, b.Count-len(b.Tenants))
	if b.Allowed {
		s.line("These deletions were allowed. The next read begins them; they follow when the grace period ends.")
	}
	if b.Token != "" {
		s.line("Token: %s", strings.TrimSpace(b.Token))
	}
}

// more counts the entries that are not shown.
func more(s *sheet, n int) {
	if n > 0 {
		s.line("  and %d more", n)
	}
}
