package pages

import (
	"bytes"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// parsed is a page as a browser would understand it, checked for what every page
// of ours owes its readers.
type parsed struct {
	t    *testing.T
	root *html.Node
}

// parse renders p and holds it to the rules of the house.
func parse(t *testing.T, v *Visit, p Page) parsed {
	t.Helper()
	r, err := NewRenderer("v1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Render(v, p)
	if err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	d := parsed{t, root}
	d.inert()
	d.addresses()
	d.headings()
	d.labels()
	d.tables()
	d.ids()
	return d
}

// all returns the elements that want chooses, in the order of the document.
func (d parsed) all(want func(*html.Node) bool) []*html.Node {
	var out []*html.Node
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode && want(n) {
			out = append(out, n)
		}
	}
	return out
}

func is(tags ...atom.Atom) func(*html.Node) bool {
	return func(n *html.Node) bool {
		for _, a := range tags {
			if n.DataAtom == a {
				return true
			}
		}
		return false
	}
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	for _, a := range n.Attr {
		if a.Key == name {
			return true
		}
	}
	return false
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// inert: nothing runs but our own files, whatever the texts of users contain.
func (d parsed) inert() {
	for _, n := range d.all(func(*html.Node) bool { return true }) {
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcdoc" {
				d.t.Errorf("<%s> has %s=%q", n.Data, a.Key, a.Val)
			}
		}
		switch n.DataAtom {
		case atom.Script, atom.Link:
			if address := attr(n, "src") + attr(n, "href"); !strings.HasPrefix(address, StaticPrefix+"/") || n.FirstChild != nil {
				d.t.Errorf("<%s> of %q", n.Data, address)
			}
		case atom.Iframe, atom.Object, atom.Embed, atom.Base, atom.Style, atom.Img:
			d.t.Errorf("there is a <%s>", n.Data)
		}
	}
}

// scheme is every address that a page may lead to.
var scheme = regexp.MustCompile(`^/($|(stacks|approvals|drift|graph|status|queue|tenants|sources|audit|notifications|retained|tokens|about|api|sign-in)$` +
	`|stacks/[^/]+/[^/]+(/(runs(/[^/]+(/log)?)?|plan|resources|outputs|inputs|graph|states(/[^/]+/file)?|drift|events|manifest|repair|break-glass))?$` +
	`|(tenants|registries|templates|sources/[^/]+)/[^/]+/[^/]+$|audit/export$|retained/[^/]+/[^/]+/state$|api/v1/openapi\.json$` +
	`|api/v1/namespaces/[^/]+/stacks/[^/]+/(plan|runs/[^/]+/log)$)`)

// posts is every address that a form may post to.
var posts = regexp.MustCompile(`^/(stacks$|stacks/[^/]+/[^/]+/(approve|override-window|reject|replan|rerun-steps|rollback|suspend|resume|unlock|cancel|preview-destroy|repair|drift/accept|break-glass(/(run|end))?|states/(rollback|push|store|accept|lock|unlock))$|sign-out$|login/authorize$|tokens/[^/]+/revoke$|audit/verify$|retained/[^/]+/[^/]+/forget$|registries/[^/]+/[^/]+/(allow|read|suspend|resume)$|templates/[^/]+/[^/]+/(resume|undo)$)`)

func (d parsed) addresses() {
	check := func(n *html.Node, address string, want *regexp.Regexp) {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" {
			d.t.Errorf("<%s> leads to %q", n.Data, address)
			return
		}
		if u.Path != "" && !want.MatchString(u.EscapedPath()) {
			d.t.Errorf("<%s> leads to %q, which is no address of ours", n.Data, address)
		}
	}
	for _, n := range d.all(is(atom.A)) {
		if strings.HasPrefix(attr(n, "href"), "https://") && strings.Contains(attr(n, "rel"), "noopener noreferrer") {
			continue // somewhere else, which learns nothing of us
		}
		check(n, attr(n, "href"), scheme)
		if textOf(n) == "" {
			d.t.Errorf("a link to %q has no text", attr(n, "href"))
		}
	}
	for _, n := range d.all(is(atom.Form)) {
		switch attr(n, "method") {
		case "post":
			check(n, attr(n, "action"), posts)
		case "get":
			check(n, attr(n, "action"), scheme)
		default:
			d.t.Errorf("a form has the method %q", attr(n, "method"))
		}
	}
	for _, n := range d.all(is(atom.Button)) {
		if a := attr(n, "formaction"); a != "" {
			check(n, a, posts)
		}
		if textOf(n) == "" {
			d.t.Error("a button has no text")
		}
	}
}

// headings: one h1, and no step left out below it.
func (d parsed) headings() {
	level, first := 0, 0
	for _, n := range d.all(is(atom.H1, atom.H2, atom.H3, atom.H4)) {
		at := int(n.Data[1] - '0')
		if at == 1 {
			first++
		}
		if at > level+1 {
			d.t.Errorf("the heading %q is an h%d below an h%d", textOf(n), at, level)
		}
		if textOf(n) == "" {
			d.t.Errorf("an h%d has no text", at)
		}
		level = at
	}
	if first != 1 {
		d.t.Errorf("%d h1, want one", first)
	}
}

// labels: whatever can be filled in says what it is.
func (d parsed) labels() {
	for _, n := range d.all(is(atom.Input, atom.Select, atom.Textarea)) {
		if attr(n, "type") == "hidden" || attr(n, "aria-label") != "" {
			continue
		}
		named := false
		for p := n.Parent; p != nil; p = p.Parent {
			named = named || p.DataAtom == atom.Label && textOf(p) != ""
		}
		if !named {
			d.t.Errorf("the field %q has no label", attr(n, "name"))
		}
	}
	for _, n := range d.all(is(atom.Nav)) {
		if attr(n, "aria-label") == "" {
			d.t.Error("a nav has no label")
		}
	}
	for _, n := range d.all(is(atom.Svg)) {
		switch {
		case attr(n, "aria-hidden") == "true", attr(n, "role") == "group":
		case attr(n, "role") == "img":
			d.named(n)
		default:
			d.t.Error("a glyph is heard")
		}
	}
}

// named: a picture says what it shows, and its figures are in a table beside it.
func (d parsed) named(svg *html.Node) {
	for id := range strings.FieldsSeq(attr(svg, "aria-labelledby")) {
		if found := d.all(func(n *html.Node) bool { return attr(n, "id") == id }); len(found) != 1 || textOf(found[0]) == "" {
			d.t.Errorf("a picture is named by %q, which says nothing", id)
		}
	}
	if attr(svg, "aria-labelledby") == "" || len((parsed{d.t, svg.Parent}).all(is(atom.Table))) == 0 {
		d.t.Error("a picture has no name, or no table of its figures")
	}
}

// tables: each says what it lists, and its columns what they are.
func (d parsed) tables() {
	for _, n := range d.all(is(atom.Table)) {
		sub := parsed{d.t, n}
		if len(sub.all(is(atom.Caption))) == 0 {
			d.t.Error("a table has no caption")
		}
		for _, th := range sub.all(is(atom.Th)) {
			if attr(th, "scope") == "" {
				d.t.Errorf("the heading %q of a table has no scope", textOf(th))
			}
		}
		head := len(parsed{d.t, sub.all(is(atom.Thead))[0]}.all(is(atom.Th)))
		for _, tr := range sub.all(is(atom.Tr)) {
			cells, span := 0, 0
			for c := range tr.ChildNodes() {
				if c.DataAtom == atom.Td || c.DataAtom == atom.Th {
					cells++
					if has(c, "colspan") {
						span++
					}
				}
			}
			if span == 0 && cells != head {
				d.t.Errorf("a row has %d cells, and the table %d columns", cells, head)
			}
		}
	}
}

func (d parsed) ids() {
	seen := map[string]bool{}
	for _, n := range d.all(func(n *html.Node) bool { return has(n, "id") }) {
		if id := attr(n, "id"); seen[id] || id == "" {
			d.t.Errorf("the id %q is there twice", id)
		} else {
			seen[id] = true
		}
	}
	regions := map[string]bool{}
	for _, n := range d.all(func(n *html.Node) bool { return has(n, "data-region") }) {
		if name := attr(n, "data-region"); regions[name] {
			d.t.Errorf("the region %q is there twice", name)
		} else {
			regions[name] = true
		}
	}
}

// form is a form of a page as it would be sent by its first button.
type form struct {
	To     string
	Fields url.Values
}

// forms returns the forms that post to an address that ends in suffix.
func (d parsed) forms(suffix string) []form {
	var out []form
	for _, n := range d.all(is(atom.Form)) {
		if attr(n, "method") != "post" || !strings.HasSuffix(attr(n, "action"), suffix) {
			continue
		}
		f := form{attr(n, "action"), url.Values{}}
		for _, in := range (parsed{d.t, n}).all(is(atom.Input)) {
			if attr(in, "type") == "checkbox" {
				continue
			}
			f.Fields.Add(attr(in, "name"), attr(in, "value"))
		}
		out = append(out, f)
	}
	return out
}

// text is all that can be read on the page.
func (d parsed) text() string { return textOf(d.root) }
