package cli

import (
	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// importCommands import objects of other operators.
type importCommands struct{ *program }

func (p importCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.imports()}
}

func (p importCommands) imports() *cobra.Command {
	return group(&cobra.Command{
		Use:     "import",
		Short:   "Import the objects of another operator",
		Example: `  terrier import lynq -n tenants`,
		GroupID: groupOperate,
	}, p.importLynq())
}

func (p importCommands) importLynq() *cobra.Command {
	var (
		f             format
		apply, dryRun bool
	)
	c := &cobra.Command{
		Use:   "lynq",
		Short: "Create registries and templates from the hubs and forms of Lynq",
		Long: `Reads the LynqHub and LynqForm objects of operator.lynq.sh and prints them as
TenantRegistry and TenantTemplate objects, with a comment for each difference. LynqNode
objects are not imported: the registry creates Tenants of the same names from the
same rows.

The registries are suspended, so that Terrier changes nothing yet: Lynq owns the
objects of its nodes until it releases them. docs/migrate-from-tenant-operator.md
describes the order of the steps, and their effects.

With --apply the command creates the objects. It does not change existing objects.
With --dry-run, or with neither flag, it prints the objects.`,
		Example: `  terrier import lynq -n tenants > imported.yaml
  terrier import lynq -A --apply`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if apply && dryRun {
				return usage("--apply and --dry-run exclude each other")
			}
			t, namespace, err := client.ConnectTenants(p.connection)
			if err != nil {
				return err
			}
			if p.all {
				namespace = ""
			}
			i, err := t.ImportLynq(cmd.Context(), namespace)
			if err != nil {
				return err
			}
			if !apply {
				return p.imported(i, f)
			}
			if err := t.WriteImport(cmd.Context(), i); err != nil {
				return err
			}
			for _, o := range i.Objects {
				p.say("Created from %s.\n", o.From)
				for _, note := range o.Notes {
					p.say("  ! %s\n", note)
				}
			}
			return nil
		},
	}
	p.allFlag(c)
	c.Flags().BoolVar(&apply, "apply", false, "create the objects")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only print the objects")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// imported prints an import.
func (p importCommands) imported(i command.LynqImport, f format) error {
	if p.structured(structuredOnly(f), i) {
		return nil
	}
	text, err := i.Manifest()
	if err != nil {
		return err
	}
	p.print(p.Stdout, cleanText(string(text)))
	p.note("%s of Lynq use these objects. Lynq owns the objects of its nodes until it releases them.\n", query.Count(i.Nodes, "node"))
	return nil
}
