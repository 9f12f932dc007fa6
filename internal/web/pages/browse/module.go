package browse

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/web/markdown"
	"github.com/terrier-iac/terrier/internal/web/pages"
	"github.com/terrier-iac/terrier/internal/web/ui"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// The tabs of a module.
const (
	tabReadme       = "readme"
	tabInputs       = "inputs"
	tabOutputs      = "outputs"
	tabDependencies = "dependencies"
	tabExamples     = "examples"
	tabVersions     = "versions"
	tabUses         = "uses"
)

// moduleView is what the page of a module shows.
type moduleView struct {
	catalog.Module
	Now      time.Time
	Tab      string
	Tabs     ui.Tabs
	State    ui.Pill // of the version
	Newest   address.Version
	NewHref  string
	Part     *catalog.Part // the module, or one of its submodules; nil without documentation
	Parts    []partLink
	Block    string // that calls it
	Archive  string // the address of the archive; empty if it may not be downloaded
	Readme   []markdown.Node
	Examples []exampleView
	Versions []versionRow
	Pager    ui.Pager
	Uses     usesView
	Moved    []tagProblemView // tags that contradict the version
	Space    string           // the list of its namespace
	Shows    string           // the command that prints the documentation
}

// partLink leads to the module or a submodule.
type partLink struct {
	Name    string
	Href    string
	Current bool
}

// exampleView is an example, with its files.
type exampleView struct {
	catalog.Part
	Name string
	Text []markdown.Node
}

// versionRow is a version in the list.
type versionRow struct {
	catalog.Version
	Href    string
	Current bool
	State   *ui.Pill
}

// Module shows a module: how to call it, what it declares, and its versions.
func Module(v *pages.Visit) (pages.Page, error) {
	if v.Backend.Catalog == nil {
		return pages.Page{}, errNone()
	}
	m, err := address.NewModule(v.Names["namespace"], v.Names["name"], v.Names["system"])
	if err != nil {
		return pages.Page{}, fault.New(fault.Missing, fault.Reason(err, ""), err)
	}
	found, err := v.Backend.Catalog.Module(v.Context, m, v.Query.Get("version"))
	if err != nil {
		return pages.Page{}, err
	}
	d := moduleView{Module: found, Now: v.Now, Space: ui.With("/registry", nil, "namespace", m.Namespace), Shows: fmt.Sprintf("terrier module show %s %s", m, found.Version.Version)}
	d.state(v)
	for _, p := range found.Tags {
		d.Moved = append(d.Moved, tagProblemOf(p))
	}
	if err := d.parts(v); err != nil {
		return pages.Page{}, err
	}
	if v.Backend.Uses != nil {
		used, err := v.Backend.Uses.OfModule(v.Context, v.Scope(), m)
		d.Uses.fill(v, used, err, d.stateOf)
	}
	d.tabs(v)
	if d.Tab == tabVersions {
		d.versions(v)
	}
	return pages.Page{Title: m.Name + " · module", Section: section, Template: "catalog_module", Live: pages.Live{Every: listEvery}, Data: d}, nil
}

// usable is the newest version that clients may use; empty if there is none.
func usable(all []catalog.Version) address.Version {
	for _, v := range all {
		if v.Retracted == nil && !v.Version.Prerelease() {
			return v.Version
		}
	}
	for _, v := range all {
		if v.Retracted == nil {
			return v.Version
		}
	}
	return ""
}

func (d *moduleView) state(v *pages.Visit) {
	d.Newest = usable(d.Module.Versions)
	d.NewHref = ui.With(v.Path, v.Query, "version")
	d.State = ui.NewPill(ui.ToneOK, "check", "Newest")
	if pill := d.stateOf(string(d.Version.Version)); pill != nil {
		d.State = *pill
	}
	if d.Version.Retracted == nil {
		d.Archive = ui.PathOf("registry", "modules", d.Namespace, d.Name, d.System, string(d.Version.Version), "archive")
	}
}

// stateOf is what is to be said of a version: nil for the newest one, and for one that is
// not known.
func (d *moduleView) stateOf(version string) *ui.Pill {
	return stateOf(version, d.Newest, func(v address.Version) (there, retracted bool) {
		i := slices.IndexFunc(d.Module.Versions, func(one catalog.Version) bool { return one.Version == v })
		return i >= 0, i >= 0 && d.Module.Versions[i].Retracted != nil
	})
}

func stateOf(version string, newest address.Version, of func(address.Version) (there, retracted bool)) *ui.Pill {
	v, err := address.ParseVersion(version)
	if err != nil {
		return nil
	}
	there, retracted := of(v)
	pill := ui.NewPill(ui.ToneIdle, "clock", "Older")
	switch {
	case retracted:
		pill = ui.NewPill(ui.ToneBad, "cross", "Retracted")
	case !there || v == newest:
		return nil
	case v.Prerelease():
		pill = ui.NewPill(ui.ToneBusy, "dot", "Pre-release")
	case newest != "" && v.Compare(newest) > 0:
		return nil
	}
	return &pill
}

// parts chooses the module or the submodule that an address names.
func (d *moduleView) parts(v *pages.Visit) error {
	doc := d.Document
	if doc == nil {
		d.Block = d.block(v.Host, "", nil)
		return nil
	}
	chosen := v.Query.Get("part")
	d.Part = &doc.Root
	link := func(p *catalog.Part, name string) {
		d.Parts = append(d.Parts, partLink{name, ui.With(v.Path, ui.Without(v.Query, "offset"), "part", p.Path), p.Path == chosen})
		if p.Path == chosen {
			d.Part = p
		}
	}
	if len(doc.Submodules) > 0 {
		link(&doc.Root, d.Name)
	}
	for i := range doc.Submodules {
		link(&doc.Submodules[i], strings.TrimPrefix(doc.Submodules[i].Path, "modules/"))
	}
	if d.Part.Path != "" {
		d.Shows += " --submodule " + argument(d.Part.Path)
	}
	if d.Part.Path != chosen {
		return fault.New(fault.Missing, "SubmoduleMissing", fmt.Errorf("version %s of %s has no submodule %.80q", d.Version.Version, d.Address, chosen))
	}
	d.Readme = markdown.Parse(d.Part.Readme, "readme-")
	d.Block = d.block(v.Host, d.Part.Path, d.Part)
	return nil
}

// plainArgument matches what a shell takes as it is.
var plainArgument = regexp.MustCompile(`^[0-9A-Za-z._/-]+$`)

// argument is a text as an argument of a command that is copied into a shell. The author of a
// module chooses the names of its directories.
func argument(text string) string {
	if plainArgument.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// block is the block that calls the module, with the inputs that it requires.
func (d *moduleView) block(host, part string, p *catalog.Part) string {
	name := d.Name
	if part != "" {
		name = part[strings.LastIndexByte(part, '/')+1:]
		part = "//" + part
	}
	if name == "" || name[0] >= '0' && name[0] <= '9' || name[0] == '-' {
		name = "m" + name
	}
	var b strings.Builder
	fmt.Fprintf(&b, "module %q {\n  source  = %q\n  version = %q\n", name, host+"/"+d.Address+part, string(d.Version.Version))
	if p != nil {
		var required []string
		width := 0
		for _, in := range p.Inputs {
			if in.Required && identifier(in.Name) {
				required = append(required, in.Name)
				width = max(width, len(in.Name))
			}
		}
		if len(required) > 0 {
			b.WriteByte('\n')
		}
		for _, name := range required {
			fmt.Fprintf(&b, "  %-*s = var.%s\n", width, name, name)
		}
	}
	return b.String() + "}\n"
}

// identifier reports whether a name can be written as it is.
func identifier(name string) bool {
	return name != "" && len(name) <= 100 && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

func (d *moduleView) tabs(v *pages.Visit) {
	all := []string{tabReadme, tabInputs, tabOutputs, tabDependencies, tabExamples, tabVersions}
	if d.Part == nil {
		all = []string{tabReadme, tabVersions}
	}
	if d.Uses.Known {
		all = append(all, tabUses)
	}
	d.Tab = chosen(v, all)
	names := map[string]string{tabReadme: "Readme", tabInputs: "Inputs", tabOutputs: "Outputs", tabDependencies: "Dependencies", tabExamples: "Examples", tabVersions: "Versions", tabUses: "Used by"}
	counts := map[string]int{tabVersions: len(d.Module.Versions), tabUses: d.Uses.Total + d.Uses.Hidden}
	if d.Part != nil {
		counts[tabInputs], counts[tabOutputs] = len(d.Part.Inputs), len(d.Part.Outputs)
		counts[tabDependencies] = len(d.Part.Providers) + len(d.Part.Calls) + len(d.Part.Resources)
		counts[tabExamples] = len(d.Document.Examples)
	}
	for i, tab := range all {
		if i == 0 {
			tab = ""
		}
		d.Tabs.Items = append(d.Tabs.Items, ui.Tab{Name: names[all[i]], Href: ui.With(v.Path, ui.Without(v.Query, "offset"), "tab", tab), Count: counts[all[i]], Current: all[i] == d.Tab})
	}
	d.Tabs.Label = "Module " + d.Address
	if d.Tab == tabExamples {
		for i, e := range d.Document.Examples {
			e.Files = slices.Clone(e.Files) // what an archive has is shared
			for j, f := range e.Files {
				e.Files[j].Content = string(module.Relocate(f.Name, []byte(f.Content), e.Path, v.Host+"/"+d.Address, string(d.Version.Version)))
			}
			d.Examples = append(d.Examples, exampleView{e, strings.TrimPrefix(e.Path, "examples/"), markdown.Parse(e.Readme, fmt.Sprintf("example-%d-", i))})
		}
	}
}

func (d *moduleView) versions(v *pages.Visit) {
	from := min(ui.CountIn(v.Query.Get("offset")), max(0, len(d.Module.Versions)-1)/rows*rows)
	for _, one := range d.Module.Versions[from:min(len(d.Module.Versions), from+rows)] {
		d.Versions = append(d.Versions, versionRow{one, ui.With(v.Path, url.Values{}, "version", string(one.Version)), one.Version == d.Version.Version, d.stateOf(string(one.Version))})
	}
	d.Pager = ui.NewPager(v.Path, v.Query, from, len(d.Versions), rows, len(d.Module.Versions), "version")
}
