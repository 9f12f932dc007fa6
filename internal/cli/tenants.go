package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/query"
)

// tenantCommands show tenants.
type tenantCommands struct{ *program }

func (p tenantCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.tenants(), p.tenant()}
}

func (p tenantCommands) tenants() *cobra.Command {
	var (
		f      format
		filter query.TenantFilter
	)
	c := &cobra.Command{
		Use:   "tenants",
		Short: "List tenants and their status",
		Long: `Lists tenants: the row and the template of each tenant, how many of its objects are
ready, and the reason if some are not. Problems of registries and templates are above
the list: deletions that a guard blocks, a rollout that has stopped, a database that
cannot be read.`,
		Example: `  terrier tenants
  terrier tenants -A --not-ready
  terrier tenants --template web -l tier=gold
  terrier tenants -A -o json | jq -r '.items[] | select(.state == "Failed") | .name'`,
		GroupID: groupView,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := p.tenantsOf()
			if err != nil {
				return err
			}
			if !p.all {
				filter.Namespace = p.connection.Namespace
			}
			list, err := t.List(cmd.Context(), filter)
			if err == nil && !p.structured(f, list) {
				p.listTenants(list, f, filter)
			}
			return err
		},
	}
	p.allFlag(c)
	c.Flags().StringVar(&filter.Registry, "registry", "", "only tenants of this `registry`")
	c.Flags().StringVar(&filter.Template, "template", "", "only tenants of this `template`")
	c.Flags().StringVarP(&filter.Selector, "selector", "l", "", "only tenants with these `labels`")
	c.Flags().BoolVar(&filter.NotReady, "not-ready", false, "only tenants that are not ready")
	formatFlag(c, &f, forWide, forJSON, forYAML, forName)
	return c
}

func (p tenantCommands) listTenants(list query.TenantList, f format, filter query.TenantFilter) {
	if f == forName {
		for _, v := range list.Items {
			name := v.Name
			if filter.Namespace == "" {
				name = v.Key().String()
			}
			p.say("%s\n", name)
		}
		return
	}
	p.alarms(list.Alarms)
	if len(list.Items) > 0 {
		p.table(p.tenantTable(list.Items, f, filter))
		p.say("\n")
	}
	p.say("%s\n", countText(list.Counts))
}

// alarms prints the problems that need attention, above the list.
func (p tenantCommands) alarms(list []query.Alarm) {
	for _, a := range list {
		where := a.Kind + " " + a.Namespace + "/" + a.Name
		if a.Name == "" {
			where = a.Kind
		}
		since := ""
		if !a.Since.IsZero() {
			since = ", for " + age(p.Now(), a.Since)
		}
		p.say("%s\n", paint(p.coloured(), red, fmt.Sprintf("! %s: %s (%s%s)", where, a.Message, a.Reason, since)))
		if a.Look != "" {
			p.say("    %s\n", a.Look)
		}
	}
	if len(list) > 0 {
		p.say("\n")
	}
}

func (p tenantCommands) tenantTable(list []query.Tenant, f format, filter query.TenantFilter) *table {
	t := namespaced(filter.Namespace == "", "NAMESPACE", "NAME", "UID", "TEMPLATE", "READY", "STATE", "REASON", "AGE")
	if f == forWide {
		t.head = append(t.head, "REGISTRY", "GENERATION", "SINCE", "MESSAGE")
	}
	for _, v := range list {
		row := []cell{plain(v.Namespace), plain(v.Name), plain(v.UID), plain(v.Template), plain(fmt.Sprintf("%d/%d", v.Ready, v.Desired)),
			{v.State, tenantColour(v.State)}, plain(v.Reason), plain(age(p.Now(), v.Created))}
		if f == forWide {
			row = append(row, plain(v.Registry), plain(strconv.FormatInt(v.Generation, 10)), plain(age(p.Now(), v.Since)), plain(messageOf(v)))
		}
		t.add(row...)
	}
	return t
}

// messageOf is the message about a tenant; of one that leaves, when it is deleted.
func messageOf(v query.Tenant) string {
	if v.State == query.TenantLeaving {
		return v.Leaving
	}
	return v.Message
}

func tenantColour(state string) string {
	switch state {
	case query.TenantReady:
		return green
	case query.TenantFailed, query.TenantConflicted:
		return red
	default:
		return yellow
	}
}

// countText counts the tenants by status.
func countText(counts map[string]int) string {
	total := 0
	var parts []string
	for _, state := range []string{
		query.TenantReady, query.TenantProgressing, query.TenantNew, query.TenantFailed,
		query.TenantConflicted, query.TenantLeaving, query.TenantDeleting,
	} {
		if n := counts[state]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(state)))
		}
	}
	switch total {
	case 0:
		return "No tenants."
	case 1:
		return "1 tenant: " + parts[0] + "."
	default:
		return fmt.Sprintf("%d tenants: %s.", total, strings.Join(parts, ", "))
	}
}
