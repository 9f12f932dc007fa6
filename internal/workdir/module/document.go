package module

import (
	"cmp"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Document is what a module declares, for users who want to call it.
type Document struct {
	Inputs    []Input       `json:"inputs,omitempty"`    // the required ones first, by name
	Outputs   []Output      `json:"outputs,omitempty"`   // by name
	Resources []Resource    `json:"resources,omitempty"` // by address
	Calls     []Call        `json:"calls,omitempty"`     // by name
	Providers []Requirement `json:"providers,omitempty"` // by local name
	Engine    []string      `json:"engine,omitempty"`    // required_version, as written
}

// Input is a variable of a module.
type Input struct {
	Name        string       `json:"name"`
	Type        string       `json:"type,omitempty"` // as written; empty means any
	Description string       `json:"description,omitempty"`
	Default     string       `json:"default,omitempty"` // as written; left out of a sensitive one
	Required    bool         `json:"required"`
	Sensitive   bool         `json:"sensitive,omitempty"`
	NotNull     bool         `json:"notNull,omitempty"` // nullable = false
	Deprecated  string       `json:"deprecated,omitempty"`
	Validations []Validation `json:"validations,omitempty"`
}

// Validation is a condition on an input.
type Validation struct {
	Condition string `json:"condition,omitempty"` // as written
	Message   string `json:"message,omitempty"`
}

// Output is a value of a module.
type Output struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Sensitive   bool   `json:"sensitive,omitempty"`
}

// Resource is a resource that a module manages, or data that it reads.
type Resource struct {
	Mode string `json:"mode"` // resource, data or ephemeral
	Type string `json:"type"`
	Name string `json:"name"`
}

// Call is a module that a module calls.
type Call struct {
	Name    string `json:"name"`
	Source  string `json:"source,omitempty"`
	Version string `json:"version,omitempty"`
}

// Requirement is a provider that a module needs.
type Requirement struct {
	Name    string   `json:"name"`
	Source  string   `json:"source,omitempty"`
	Version string   `json:"version,omitempty"`
	Aliases []string `json:"aliases,omitempty"` // that the caller passes
}

// mostText bounds a text of a document, in bytes. The middle of a longer one is left out.
const mostText = 4 << 10

var documentSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "terraform"},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "output", LabelNames: []string{"name"}},
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "data", LabelNames: []string{"type", "name"}},
	{Type: "ephemeral", LabelNames: []string{"type", "name"}},
	{Type: "module", LabelNames: []string{"name"}},
}}

// Configuration are the names among those of the files of one directory that tofu reads as
// configuration, in the order in which it reads them.
func Configuration(names []string) []string {
	primary, override := workdir.ConfigFiles(names, "tofu")
	return slices.Concat(primary, override)
}

// DocumentOf reads the configuration files of one directory, as tofu would. Files that
// cannot be read are left out, and the first of their errors is Invalid.
func DocumentOf(files map[string][]byte) (Document, error) {
	d := documenting{inputs: map[string]Input{}, outputs: map[string]Output{}, resources: map[Resource]bool{}, calls: map[string]Call{}, providers: map[string]Requirement{}}
	var first error
	for _, name := range Configuration(slices.Sorted(maps.Keys(files))) {
		if err := d.read(name, files[name]); err != nil && first == nil {
			first = err
		}
	}
	return d.made(), first
}

// documenting is a document while files are read.
type documenting struct {
	inputs    map[string]Input
	outputs   map[string]Output
	resources map[Resource]bool
	calls     map[string]Call
	providers map[string]Requirement
	engine    []string
	src       []byte // of the file that is being read
}

func (d *documenting) made() Document {
	name := func(a, b Resource) int {
		return cmp.Or(-cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	}
	inputs := byName(d.inputs)
	slices.SortStableFunc(inputs, func(a, b Input) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		default:
			return 1
		}
	})
	return Document{
		Inputs: inputs, Outputs: byName(d.outputs), Calls: byName(d.calls), Providers: byName(d.providers),
		Resources: slices.SortedFunc(maps.Keys(d.resources), name), Engine: d.engine,
	}
}

func byName[T any](all map[string]T) []T {
	var out []T
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

func (d *documenting) read(name string, src []byte) error {
	body, err := parse(name, src)
	if err != nil {
		return err
	}
	d.src = src
	content, _, diags := body.PartialContent(documentSchema)
	for _, b := range content.Blocks {
		switch b.Type {
		case "terraform":
			d.terraform(b)
		case "variable":
			d.input(b)
		case "output":
			d.output(b)
		case "module":
			d.call(b)
		default:
			d.resources[Resource{b.Type, short(b.Labels[0]), short(b.Labels[1])}] = true
		}
	}
	return diagnosed(diags)
}

var inputSchema = &hcl.BodySchema{
	Attributes: []hcl.AttributeSchema{{Name: "type"}, {Name: "description"}, {Name: "default"}, {Name: "sensitive"}, {Name: "nullable"}, {Name: "deprecated"}},
	Blocks:     []hcl.BlockHeaderSchema{{Type: "validation"}},
}

// input adds a variable; one in an override file changes the attributes that it has.
func (d *documenting) input(b *hcl.Block) {
	v, known := d.inputs[b.Labels[0]]
	if !known {
		v = Input{Name: short(b.Labels[0]), Required: true}
	}
	content, _, _ := b.Body.PartialContent(inputSchema) // odd entries are the engine's to refuse
	for name, a := range content.Attributes {
		switch name {
		case "type":
			if v.Type = short(literal(a.Expr)); v.Type == "" { // else in JSON, and in the old form: type = "list"
				v.Type = d.text(a.Expr)
			}
		case "description":
			v.Description = short(strings.TrimSpace(literal(a.Expr)))
		case "default":
			v.Default, v.Required = d.text(a.Expr), false
		case "sensitive":
			v.Sensitive = yes(a.Expr, true)
		case "nullable":
			v.NotNull = !yes(a.Expr, true)
		case "deprecated":
			v.Deprecated = short(literal(a.Expr))
		}
	}
	if v.Sensitive {
		v.Default = ""
	}
	for _, inner := range content.Blocks {
		rule, _, _ := inner.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "condition"}, {Name: "error_message"}}})
		var made Validation
		if a, ok := rule.Attributes["condition"]; ok {
			made.Condition = d.text(a.Expr)
		}
		if a, ok := rule.Attributes["error_message"]; ok {
			if made.Message = short(literal(a.Expr)); made.Message == "" {
				made.Message = d.text(a.Expr)
			}
		}
		v.Validations = append(v.Validations, made)
	}
	d.inputs[b.Labels[0]] = v
}

func (d *documenting) output(b *hcl.Block) {
	v := d.outputs[b.Labels[0]]
	v.Name = short(b.Labels[0])
	content, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "description"}, {Name: "sensitive"}}})
	if a, ok := content.Attributes["description"]; ok {
		v.Description = short(strings.TrimSpace(literal(a.Expr)))
	}
	if a, ok := content.Attributes["sensitive"]; ok {
		v.Sensitive = yes(a.Expr, true)
	}
	d.outputs[b.Labels[0]] = v
}

func (d *documenting) call(b *hcl.Block) {
	v := d.calls[b.Labels[0]]
	v.Name = short(b.Labels[0])
	content, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "version"}}})
	for name, a := range content.Attributes {
		text := short(literal(a.Expr))
		if text == "" {
			text = d.text(a.Expr) // tofu takes variables here
		}
		if name == "source" {
			v.Source = text
		} else {
			v.Version = text
		}
	}
	d.calls[b.Labels[0]] = v
}

func (d *documenting) terraform(b *hcl.Block) {
	content, _, _ := b.Body.PartialContent(terraformSchema)
	if a, ok := content.Attributes["required_version"]; ok {
		d.engine = append(d.engine, short(literal(a.Expr)))
	}
	for _, inner := range content.Blocks {
		if inner.Type == "required_providers" {
			d.required(inner.Body)
		}
	}
}

func (d *documenting) required(body hcl.Body) {
	attributes, _ := body.JustAttributes()
	for name, a := range attributes {
		r := Requirement{Name: short(name)}
		pairs, diags := hcl.ExprMap(a.Expr)
		if diags.HasErrors() {
			r.Version = short(literal(a.Expr)) // the old form: random = "~> 3.0"
		}
		for _, pair := range pairs {
			switch literal(pair.Key) {
			case "source":
				r.Source = short(literal(pair.Value))
			case "version":
				r.Version = short(literal(pair.Value))
			case "configuration_aliases":
				aliases, _ := hcl.ExprList(pair.Value)
				for _, alias := range aliases {
					r.Aliases = append(r.Aliases, d.text(alias))
				}
			}
		}
		d.providers[name] = r
	}
}

// text is an expression as it is written.
func (d *documenting) text(e hcl.Expression) string {
	if r := e.Range(); r.CanSliceBytes(d.src) {
		return short(outdented(string(r.SliceBytes(d.src))))
	}
	return ""
}

// outdented is an expression without the indentation that the lines after its first one
// have in common.
func outdented(text string) string {
	first, rest, found := strings.Cut(text, "\n")
	if !found {
		return text
	}
	lines := strings.Split(rest, "\n")
	common := -1
	for _, line := range lines {
		if trimmed := strings.TrimLeft(line, " \t"); trimmed != "" && (common < 0 || len(line)-len(trimmed) < common) {
			common = len(line) - len(trimmed)
		}
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(line[min(len(line), max(common, 0)):], "\r")
	}
	return first + "\n" + strings.Join(lines, "\n")
}

func short(text string) string { return fault.Shorten(text, mostText) }

// yes is the value of a boolean, and unknown if it is none.
func yes(e hcl.Expression, unknown bool) bool {
	var value bool
	if gohcl.DecodeExpression(e, nil, &value).HasErrors() {
		return unknown
	}
	return value
}

// names are those of files.
func names(entries []fs.DirEntry) []string {
	var all []string
	for _, e := range entries {
		if !e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all
}
