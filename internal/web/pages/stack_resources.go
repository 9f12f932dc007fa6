package pages

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// StackResources lists the resources in the state of a stack, by module and type.
// Secret values are masked unless the visitor asks for them.
func StackResources(v *Visit) (Page, error) {
	head, err := headOf(v, tabResources)
	if err != nil {
		return Page{}, err
	}
	view := resourceList{Head: head, Text: strings.TrimSpace(v.Query.Get("q")), Version: v.Query.Get("version")}
	if view.Revealed = v.Query.Get("secrets") == "show"; view.Revealed {
		if err := v.Revealed(view.Version); err != nil {
			return Page{}, err
		}
	}
	state, err := v.Backend.Stacks.StateOf(v.Context, v.Key(), view.Version, view.Revealed)
	switch {
	case fault.Of(err) == fault.Missing && view.Version == "":
		view.Empty = noResources("The stack has no state yet. Nothing was created. To see what the stack waits for:", head.Command("explain"))
	case fault.Reason(err, "") == query.ReasonStateForeign:
		view.Empty = noResources("The stack keeps its state in its own backend, not in Terrier. To list the resources, run the engine in a directory that is initialised with that backend:", "tofu state list")
	case err != nil:
		view.Problem = problemOf("The state cannot be shown", err)
	case state.Sealed:
		view.Empty = noResources("The engine encrypts the state, and only a run can read it. To view the resources that the next apply changes:", head.Command("plan"))
	default:
		view.fill(state)
		view.Masked = state.Masked
	}
	show := "show"
	if view.Revealed {
		show = ""
	}
	view.NoMatch = *noResources("The state contains no resources. To plan the module now:", head.Command("replan"))
	if view.Text != "" {
		view.NoMatch = ui.Empty{Title: "No matching resource", Text: "A resource matches if its address or provider contains all words.", Href: ui.With(v.Path, ui.Without(v.Query, "q"), ""), Link: "Show all"}
	}
	view.Toggle = ui.With(v.Path, v.Query, "secrets", show)
	page := stackPage(v, "stack_resources", "Resources", view)
	if view.Revealed {
		page.Live = Live{} // the audit log records each view: a refresh would add entries that no user asked for
	}
	return page, nil
}

// resourcesShown bounds how many resources one page has.
const resourcesShown = 500

type resourceList struct {
	Head    stackHead
	Text    string
	Version string // of the state; empty for the newest
	Masked  string // why every value is masked

	Revealed bool   // secret values are shown
	Toggle   string // this page with or without them
	Serial   uint64
	Engine   string
	Total    int
	Found    int
	Hidden   int // found and not shown
	Modules  []moduleGroup
	Empty    *ui.Empty // there is no state to read
	NoMatch  ui.Empty  // of a state without resources that match
	Problem  *Problem
}

func noResources(text, command string) *ui.Empty {
	return &ui.Empty{Title: "No resources to show", Text: text, Command: command}
}

type moduleGroup struct {
	Name  string // empty for the root module
	Types []typeGroup
	Count int
}

type typeGroup struct {
	Name      string
	Resources []resource
}

type resource struct {
	plan.StateResource
	Short string // its address in its module
	Attrs []field
	More  int // attributes that are not shown
}

func (l *resourceList) fill(s plan.StateView) {
	l.Serial, l.Engine, l.Total = s.Serial, s.Engine, len(s.Resources)
	var found []plan.StateResource
	for _, r := range s.Resources {
		if matches(l.Text, r.Address, r.Provider) {
			found = append(found, r)
		}
	}
	l.Found = len(found)
	slices.SortStableFunc(found, func(a, b plan.StateResource) int {
		am, at, _ := splitAddress(a.Address)
		bm, bt, _ := splitAddress(b.Address)
		if c := strings.Compare(am, bm); c != 0 {
			return c
		}
		if c := strings.Compare(at, bt); c != 0 {
			return c
		}
		return strings.Compare(a.Address, b.Address)
	})
	if len(found) > resourcesShown {
		l.Hidden = len(found) - resourcesShown
		found = found[:resourcesShown]
	}
	for _, r := range found {
		l.add(r)
	}
}

func (l *resourceList) add(r plan.StateResource) {
	module, kind, short := splitAddress(r.Address)
	if n := len(l.Modules); n == 0 || l.Modules[n-1].Name != module {
		l.Modules = append(l.Modules, moduleGroup{Name: module})
	}
	m := &l.Modules[len(l.Modules)-1]
	if n := len(m.Types); n == 0 || m.Types[n-1].Name != kind {
		m.Types = append(m.Types, typeGroup{Name: kind})
	}
	t := &m.Types[len(m.Types)-1]
	x := resource{StateResource: r, Short: short}
	x.Attrs, x.More = attributes(r.Attributes)
	t.Resources = append(t.Resources, x)
	m.Count++
}

// moduleSteps are the modules at the beginning of an address, with their keys;
// a key may hold dots and brackets.
var moduleSteps = regexp.MustCompile(`^(module\.[^.\["]+(\[(\d+|"(\\.|[^"\\])*")\])?\.)+`)

// splitAddress takes an address apart: the module, the type, and the rest.
func splitAddress(address string) (module, kind, short string) {
	module = moduleSteps.FindString(address)
	short = address[len(module):]
	kind, _, _ = strings.Cut(strings.TrimPrefix(short, "data."), ".")
	if strings.HasPrefix(short, "data.") {
		kind = "data." + kind
	}
	return strings.TrimSuffix(module, "."), kind, short
}

// matches reports whether all words of text occur in one of the others.
func matches(text string, in ...string) bool {
	all := strings.ToLower(strings.Join(in, "\n"))
	for _, word := range strings.Fields(strings.ToLower(text)) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}

// Bounds of what is shown of one resource.
const (
	resourceAttributes = 80
	valueLength        = 400
)

// attributes are the values of a resource as text, by name.
func attributes(values map[string]any) (shown []field, more int) {
	names := make([]string, 0, len(values))
	for name, value := range values {
		if value != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > resourceAttributes {
		more = len(names) - resourceAttributes
		names = names[:resourceAttributes]
	}
	for _, name := range names {
		shown = append(shown, field{name, valueText(values[name])})
	}
	return shown, more
}

// valueText is a value as text, cut where it is long.
func valueText(v any) string {
	switch v := v.(type) {
	case string:
		return ui.Cut(valueLength, v)
	case json.RawMessage:
		var s string
		if json.Unmarshal(v, &s) == nil {
			return ui.Cut(valueLength, s)
		}
		return ui.Cut(valueLength, string(v))
	default:
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return fmt.Sprintf("a value that cannot be shown: %v", err)
		}
		return ui.Cut(valueLength, string(b))
	}
}
