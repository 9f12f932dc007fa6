package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/query"
)

func (p *program) render() *cobra.Command {
	var (
		f      format
		file   string
		row    []string
		uid    string
		choose query.RenderChoice
	)
	c := &cobra.Command{
		Use:   "render {TEMPLATE | -f FILE}",
		Short: "Show what a template makes of a row",
		Long: `Renders a template with the values of a row, by the same code as the controller,
and prints the objects in the order in which they would be made. Whatever is wrong
with the template is said with the id of the resource and the field.

With -f no cluster is asked. Texts become numbers where fields of built-in kinds
want numbers; of other kinds the types are known with a cluster only. A TenantRegistry
in the same file tells which variables there are. Without a cluster's registry or
one in the file, names of variables are checked against the row alone.

With --uid the row is that of a tenant of the cluster, which takes the right to
read its Secret. Without a row the template is checked, and nothing is rendered.`,
		Example: `  terrier render -f web.yaml
  terrier render -f web.yaml --row uid=acme --row hostOrUrl=https://acme.example.com --row plan=gold
  terrier render web --uid acme
  terrier render web --row uid=try -o json`,
		GroupID:           groupLook,
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
				return usage("--uid and --row are two different rows")
			case uid != "" && file != "":
				return usage("--uid needs the cluster that -f does not ask: leave one of them out")
			case choose.Registry != "" && file == "":
				return usage("--registry chooses among the templates of a file")
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
	c.Flags().StringArrayVar(&row, "row", nil, "a `NAME=VALUE` of the row; once for each variable")
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

func (p *program) renderOne(cmd *cobra.Command, name string, row query.RowText, uid string) ([]query.Rendering, error) {
	t, key, err := p.oneOf(name, query.TemplateWords)
	if err != nil {
		return nil, err
	}
	r, err := t.Render(cmd.Context(), key, row, uid)
	return []query.Rendering{r}, err
}

func (p *program) renderFile(file string, choose query.RenderChoice, row query.RowText) ([]query.Rendering, error) {
	if file != "-" && !filepath.IsAbs(file) {
		file = filepath.Join(p.Dir, file)
	}
	content, err := p.readFile(file)
	if err != nil {
		return nil, err
	}
	choose.Namespace = p.connection.Namespace
	return query.RenderManifest(content, choose, row)
}

// rendered prints objects, and what is wrong beside them. Objects go to standard
// output alone, so that they can be piped.
func (p *program) rendered(list []query.Rendering, f format) error {
	if done, err := p.structured(structuredOnly(f), map[string]any{"items": list}); done && err != nil {
		return err
	}
	var bad error
	for _, r := range list {
		if f != forJSON {
			text, err := r.Manifest()
			if err != nil {
				return err
			}
			if _, err := fmt.Fprint(p.Stdout, cleanText(string(text))); err != nil {
				return err
			}
		}
		for _, e := range r.Errors {
			if _, err := fmt.Fprintf(p.Stderr, "%s: %s\n", clean(r.Template), clean(e.Error())); err != nil {
				return err
			}
		}
		if r.UID == "" && len(r.Errors) == 0 {
			if _, err := fmt.Fprintf(p.Stderr, "%s: nothing is wrong with its %s. Render it with --row uid=…\n", clean(r.Template), query.Count(r.Resources, "resource")); err != nil {
				return err
			}
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
