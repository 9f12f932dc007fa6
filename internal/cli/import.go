package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p *program) imports() *cobra.Command {
	c := &cobra.Command{
		Use:     "import",
		Short:   "Carry over what another operator looks after",
		Example: `  terrier import lynq -n tenants`,
		GroupID: groupOperate,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(p.importLynq())
	return c
}

func (p *program) importLynq() *cobra.Command {
	var (
		f             format
		apply, dryRun bool
	)
	c := &cobra.Command{
		Use:   "lynq",
		Short: "Make registries and templates of the hubs and forms of Lynq",
		Long: `Reads the LynqHub and LynqForm objects of operator.lynq.sh and prints what they are
here: TenantRegistry and TenantTemplate objects, with a comment wherever something
is different. LynqNode objects need not be carried over: the registry makes Tenants
of the same names from the same rows.

Registries are suspended, so that nothing begins by itself: the objects of the nodes
belong to Lynq until it lets go of them. docs/migrate-from-tenant-operator.md says in
which order that is done, and what cannot be avoided.

With --apply the objects are made. What is there already stays as it is. --dry-run
prints them, which is also what happens without either.`,
		Example: `  terrier import lynq -n tenants > imported.yaml
  terrier import lynq -A --apply`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if apply && dryRun {
				return usage("--apply and --dry-run are opposites")
			}
			t, err := p.tenantsOf()
			if err != nil {
				return err
			}
			namespace := p.connection.Namespace
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
				if _, err := fmt.Fprintf(p.Stdout, "Made from %s.\n", clean(o.From)); err != nil {
					return err
				}
				for _, note := range o.Notes {
					if _, err := fmt.Fprintf(p.Stdout, "  ! %s\n", clean(note)); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
	p.allFlag(c)
	c.Flags().BoolVar(&apply, "apply", false, "make the objects")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only print them")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// imported prints an import, with what it does not hold beside it.
func (p *program) imported(i command.LynqImport, f format) error {
	if f == forJSON {
		_, err := p.structured(f, i)
		return err
	}
	text, err := i.Manifest()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(p.Stdout, cleanText(string(text))); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Stderr, "%s of Lynq stand on these. Their objects are Lynq's until it lets go of them.\n", query.Count(i.Nodes, "node"))
	return err
}
