package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
)

func (p moduleCommands) show() *cobra.Command {
	var f format
	var part string
	c := &cobra.Command{
		Use:   "show NAMESPACE/NAME/SYSTEM [VERSION]",
		Short: "Show the documentation of a module: its inputs, outputs and dependencies",
		Long: `Shows what the configuration of a module declares: inputs, outputs, providers, modules
that it calls, and resources. Without VERSION it is the newest version that clients may
use. A retracted version is shown with the reason.

The output as json or yaml also has the readme, all submodules, and the files of examples.`,
		Example: `  terrier module show net/network/aws
  terrier module show net/network/aws 1.2.3 --submodule modules/subnet
  terrier module show net/network/aws -o json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			version := ""
			if len(args) > 1 {
				v, err := address.ParseVersion(args[1])
				if err != nil {
					return err
				}
				version = string(v)
			}
			m, to, err := p.module(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := to.Module(cmd.Context(), m, version)
			if err != nil || p.structured(f, d) {
				return err
			}
			return p.moduleDetail(d, part)
		},
	}
	c.Flags().StringVar(&part, "submodule", "", "show the submodule with this `path` in the archive")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// moduleDetail prints the module, or one of its submodules.
func (p moduleCommands) moduleDetail(d client.ModuleDetail, part string) error {
	shown := &d.Root
	for i := range d.Submodules {
		if d.Submodules[i].Path == part && part != "" {
			shown = &d.Submodules[i]
		}
	}
	if shown.Path != part {
		return fault.New(fault.Missing, "SubmoduleMissing", fmt.Errorf("version %s of %s has no submodule %.200q: see the list of terrier module show %s %s", d.Version, d.Module, part, d.Module, d.Version))
	}
	p.say("%s %s\n", d.Module, d.Version)
	if !d.Published.IsZero() {
		p.say("Published %s ago by %s, %s\n", age(p.Now(), d.Published), clean(d.By), query.Size(int(d.Size)))
	}
	if o := d.Origin; o != nil {
		p.say("From the tag %s of %s at %s, by %s\n", clean(o.Tag), clean(o.Repository), clean(o.Commit), clean(o.Tagger))
		if o.Signer != "" {
			p.say("Signed with the key %s\n", clean(o.Signer))
		}
	}
	if r := d.Retracted; r != nil {
		p.say("Retracted %s ago by %s: %s\n", age(p.Now(), r.At), clean(r.By), clean(r.Reason))
	}
	if shown.Problem != "" {
		p.say("A part of the documentation is missing: %s\n", clean(shown.Problem))
	}
	if len(shown.Engine) > 0 {
		p.say("Engine: %s\n", clean(strings.Join(shown.Engine, ", ")))
	}
	p.declared(shown)
	if part != "" {
		return nil
	}
	p.directories("Submodules", d.Submodules)
	p.directories("Examples", d.Examples)
	return nil
}

// declared prints what a directory declares, each kind as a table.
func (p moduleCommands) declared(d *catalog.Part) {
	inputs := &table{head: []string{"INPUT", "TYPE", "DEFAULT", "DESCRIPTION"}}
	for _, in := range d.Inputs {
		value := plain(brief(in.Default))
		switch {
		case in.Required:
			value = cell{"required", yellow}
		case in.Sensitive:
			value = plain("sensitive")
		}
		inputs.add(plain(in.Name), plain(brief(cmp.Or(in.Type, "any"))), value, plain(in.Description))
	}
	rules := &table{head: []string{"VALIDATION OF", "CONDITION", "MESSAGE"}}
	for _, in := range d.Inputs {
		for _, v := range in.Validations {
			rules.add(plain(in.Name), plain(cut(strings.Join(strings.Fields(v.Condition), " "), 100)), plain(v.Message))
		}
	}
	outputs := &table{head: []string{"OUTPUT", "DESCRIPTION"}}
	for _, out := range d.Outputs {
		outputs.add(plain(out.Name), plain(out.Description))
	}
	needs := &table{head: []string{"NEEDS", "SOURCE", "VERSION"}}
	for _, r := range d.Providers {
		needs.add(plain("provider "+r.Name), plain(r.Source), plain(r.Version))
	}
	for _, m := range d.Calls {
		needs.add(plain("module "+m.Name), plain(m.Source), plain(m.Version))
	}
	resources := &table{head: []string{"RESOURCE", "KIND"}}
	for _, r := range d.Resources {
		resources.add(plain(r.Type+"."+r.Name), plain(r.Mode))
	}
	for _, t := range []*table{inputs, rules, outputs, needs, resources} {
		if len(t.rows) > 0 {
			p.say("\n")
			p.table(t)
		}
	}
}

func (p moduleCommands) directories(what string, all []catalog.Part) {
	var paths []string
	for _, part := range all {
		paths = append(paths, clean(part.Path))
	}
	if len(paths) > 0 {
		p.say("\n%s: %s\n", what, strings.Join(paths, ", "))
	}
}

// brief is the beginning of an expression in one line.
func brief(text string) string { return cut(strings.Join(strings.Fields(text), " "), 40) }
