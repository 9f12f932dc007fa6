package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/inventory"
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
	if r.Warnings > 0 {
		s.heading(fmt.Sprintf("Warnings (%d)", r.Warnings))
		for _, w := range r.FirstWarned {
			s.line("%-20s %s", strconv.Quote(w.UID), w.Message)
		}
		more(s, r.Warnings-len(r.FirstWarned))
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

// inventoryCommands show the hosts of tenants.
type inventoryCommands struct{ *program }

func (p inventoryCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.inventory()}
}

// hostsChoice is what inventory is asked for.
type hostsChoice struct {
	query.TenantFilter
	uids   []string // all if empty
	output string   // the output of a stack that has hosts
	dir    string   // with directories of tenants; empty for none
}

func (p inventoryCommands) inventory() *cobra.Command {
	var (
		list   bool
		host   string
		choose hostsChoice
	)
	c := &cobra.Command{
		Use:   "inventory {--list | --host NAME}",
		Short: "Show the hosts of tenants as a dynamic inventory of Ansible",
		Long: `Prints the hosts of tenants in the JSON that Ansible asks an inventory script for. The
hosts are those of the output "hosts" of the stacks of each tenant: a list of objects
with name and address, or an object of them by their names. user, port, mac, groups and
vars are optional. Each tenant has a group of its own besides, tenant_UID.

If the registry reads an inventory, the hosts in hosts.yml of each tenant are there as
well, with address, user, port, mac and groups: for this you need the permission to read
the Secret of its row. With --directory, all variables of hosts.yml, group_vars and
host_vars are read from a checkout besides. Where several have a variable of a host, the
output wins, then the checkout.

You need the permission to read the outputs. A stack whose outputs you may not read is
left out, and named on standard error. A host that two tenants have is an error: choose
one tenant with --tenant.

Ansible runs a script and not a command with flags, so a script calls this command; see
docs/tenant-inventory.md.`,
		Example: `  terrier inventory --list
  terrier inventory --list --tenant grooveiq --directory tenant-inventory
  terrier inventory --host api-vm01`,
		GroupID: groupView,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list == (host != "") {
				return usage("ask for --list or for --host NAME")
			}
			found, err := p.hosts(cmd.Context(), choose)
			if err != nil {
				return err
			}
			text, err := found.List()
			if host != "" {
				text, err = found.Host(host)
			}
			if err == nil {
				p.say("%s", text)
			}
			return err
		},
	}
	p.allFlag(c)
	c.Flags().BoolVar(&list, "list", false, "all hosts and groups")
	c.Flags().StringVar(&host, "host", "", "the variables of the host with this `name`")
	c.Flags().StringArrayVar(&choose.uids, "tenant", nil, "only the tenant with this `uid` (repeatable)")
	c.Flags().StringVar(&choose.Registry, "registry", "", "only tenants of this `registry`")
	c.Flags().StringVar(&choose.Template, "template", "", "only tenants of this `template`")
	c.Flags().StringVarP(&choose.Selector, "selector", "l", "", "only tenants with these `labels`")
	c.Flags().StringVar(&choose.output, "output-name", "hosts", "the `output` of the stacks that has the hosts")
	c.Flags().StringVar(&choose.dir, "directory", "", "a `directory` with a directory for each tenant")
	return c
}

// hosts collects the hosts of the tenants that the user may read.
func (p inventoryCommands) hosts(ctx context.Context, choose hostsChoice) (*inventory.Dynamic, error) {
	tenants, err := p.tenantsOf()
	if err != nil {
		return nil, err
	}
	if !p.all {
		choose.Namespace = p.connection.Namespace
	}
	list, err := tenants.List(ctx, choose.TenantFilter)
	if err != nil {
		return nil, err
	}
	stacks, err := p.stacks()
	if err != nil {
		return nil, err
	}
	found, written := &inventory.Dynamic{}, map[string]bool{}
	for _, t := range list.Items {
		if len(choose.uids) > 0 && !slices.Contains(choose.uids, t.UID) {
			continue
		}
		detail, err := tenants.Describe(ctx, t.Key())
		if err == nil {
			err = p.listed(found, t.UID, detail.Row.Hosts)
		}
		if err != nil {
			return nil, err
		}
		if choose.dir != "" && !written[t.UID] {
			written[t.UID] = true
			if err := p.written(found, choose.dir, t.UID); err != nil {
				return nil, err
			}
		}
		for _, o := range detail.Objects {
			if o.Stack == nil {
				continue
			}
			if err := p.published(ctx, found, stacks, t.UID, o.Stack.Key(), choose.output); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// listed adds the hosts that the registry of a tenant has read from its hosts.yml.
func (p inventoryCommands) listed(found *inventory.Dynamic, uid string, hosts []query.RowHost) error {
	var all []inventory.Host
	for _, h := range hosts {
		all = append(all, inventory.Host{Name: h.Name, Address: h.Address, User: h.User, Port: h.Port, MAC: h.MAC, Groups: h.Groups})
	}
	return found.Add(uid, all...)
}

// written adds the hosts of the directory of a tenant, if there is one.
func (p inventoryCommands) written(found *inventory.Dynamic, dir, uid string) error {
	tree, err := os.OpenRoot(p.path(dir))
	if err != nil {
		return err
	}
	defer tree.Close()
	if _, err := tree.Stat(uid); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	v, err := inventory.Read(tree.FS(), uid)
	if err != nil {
		return fault.New(fault.Invalid, "", fmt.Errorf("the directory of %s: %w", uid, err))
	}
	hosts := v.Hosts()
	for i := range hosts {
		hosts[i].Vars = v.Vars(hosts[i].Name)
	}
	return found.Add(uid, hosts...)
}

// published adds the hosts that a stack outputs. A stack without outputs has none.
func (p inventoryCommands) published(ctx context.Context, found *inventory.Dynamic, stacks command.StackAPI, uid string, key query.Key, output string) error {
	outputs, err := stacks.Outputs(ctx, key, true)
	switch fault.Of(err) {
	case fault.None:
	case fault.Missing:
		return nil
	case fault.Denied:
		p.note("The hosts of %s are left out: %v\n", key, err)
		return nil
	default:
		return err
	}
	i := slices.IndexFunc(outputs, func(o query.Output) bool { return o.Name == output })
	if i < 0 || outputs[i].Value == nil {
		return nil
	}
	hosts, err := inventory.FromOutput(outputs[i].Value)
	if err != nil {
		return fault.New(fault.Of(err), "", fmt.Errorf("the output %s of the stack %s: %w", output, key, err))
	}
	return found.Add(uid, hosts...)
}
