package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/query"
)

func (p templateCommands) render() *cobra.Command {
	var (
		f      format
		file   string
		row    []string
		uid    string
		choose query.RenderChoice
	)
	c := &cobra.Command{
		Use:   "render {TEMPLATE | -f FILE}",
		Short: "Render a template with the values of a row",
		Long: `Renders a template with the values of a row, with the code of the controller, and
prints the objects in the order of their creation. Each error names the resource and
the field.

With -f the command needs no cluster. For built-in kinds, it converts a text to a
number where the field needs a number. For other kinds, it needs the cluster to know
the types. A TenantRegistry in the same file defines the variables. Without a
registry in the cluster or in the file, the command checks the names of variables
only against the row.

With --uid the command uses the row of a tenant in the cluster. You need the
permission to read its Secret. Without a row, the command checks the template and
renders nothing.`,
		Example: `  terrier render -f web.yaml
  terrier render -f web.yaml --row uid=acme --row hostOrUrl=https://acme.example.com --row plan=gold
  terrier render web --uid acme
  terrier render web --row uid=try -o json`,
		GroupID:           groupView,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.templateNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := rowText(row)
			switch {
			case err != nil:
				return err
			case file == "" && len(args) == 0:
				return usage("name a template, or a manifest with -f")
			case uid != "" && len(row) > 0:
				return usage("--uid and --row exclude each other")
			case uid != "" && file != "":
				return usage("--uid needs the cluster, and -f does not use it: use only one of them")
			case choose.Registry != "" && file == "":
				return usage("--registry needs -f: it selects templates of the file")
			}
			var list []query.Rendering
			if file == "" {
				list, err = p.renderOne(cmd, args[0], values, uid)
			} else {
				if len(args) == 1 {
					choose.Template = args[0]
				}
				list, err = p.renderFile(file, choose, values)
			}
			if err != nil {
				return err
			}
			return p.rendered(list, f)
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "render the templates in this `file`; - is standard input")
	c.Flags().StringArrayVar(&row, "row", nil, "a variable of the row as `NAME=VALUE` (repeatable)")
	c.Flags().StringVar(&uid, "uid", "", "render with the row of the tenant with this `uid`")
	c.Flags().StringVar(&choose.Registry, "registry", "", "only templates of this `registry`")
	formatFlag(c, &f, forJSON, forYAML)
	return c
}

// rowText reads the variables of a row.
func rowText(row []string) (query.RowText, error) {
	out := query.RowText{}
	for _, pair := range row {
		name, value, found := strings.Cut(pair, "=")
		if !found || name == "" {
			return nil, usage("%q is not NAME=VALUE", pair)
		}
		if _, twice := out[name]; twice {
			return nil, usage("%s is given twice", name)
		}
		out[name] = value
	}
	return out, nil
}

func (p templateCommands) renderOne(cmd *cobra.Command, name string, row query.RowText, uid string) ([]query.Rendering, error) {
	t, key, err := p.oneOf(name, query.TemplateWords)
	if err != nil {
		return nil, err
	}
	r, err := t.Render(cmd.Context(), key, row, uid)
	return []query.Rendering{r}, err
}

func (p templateCommands) renderFile(file string, choose query.RenderChoice, row query.RowText) ([]query.Rendering, error) {
	content, err := p.readFile(file, manifestBytes)
	if err != nil {
		return nil, err
	}
	choose.Namespace = p.connection.Namespace
	return query.RenderManifest(content, choose, row)
}

// rendered prints objects to standard output and errors to standard error, so that
// the objects can be piped.
func (p templateCommands) rendered(list []query.Rendering, f format) error {
	done := p.structured(structuredOnly(f), map[string]any{"items": list})
	var bad error
	for _, r := range list {
		if !done {
			text, err := r.Manifest()
			if err != nil {
				return err
			}
			p.print(p.Stdout, cleanText(string(text)))
		}
		for _, e := range r.Errors {
			p.note("%s: %s\n", r.Template, e.Error())
		}
		if r.UID == "" && len(r.Errors) == 0 {
			p.note("%s: its %s are valid. To render them, add: --row uid=UID\n", r.Template, query.Count(r.Resources, "resource"))
		}
		if bad == nil {
			bad = r.Fault()
		}
	}
	return bad
}

// structuredOnly leaves YAML to the manifest itself, which is YAML already.
func structuredOnly(f format) format {
	if f == forYAML {
		return forPeople
	}
	return f
}
