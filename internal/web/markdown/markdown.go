// Package markdown reads texts of authors in Markdown, which pages show.
//
// It makes a tree of the few things that a page has, and never HTML: a template writes
// each of them, and escapes every text. Tags, images and links to files are not in the
// tree, so a text can neither run a script nor load anything from anywhere. Start reading
// at Parse.
package markdown

import (
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extended "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Kind is what a part of a text is.
type Kind string

// The kinds.
const (
	Text      Kind = "text"
	Paragraph Kind = "paragraph"
	Plain     Kind = "plain"   // a paragraph of a list without space between its items
	Heading   Kind = "heading" // Level, ID
	List      Kind = "list"    // Ordered, Start
	Item      Kind = "item"
	Quote     Kind = "quote"
	Code      Kind = "code"  // a block; Text, Language
	Span      Kind = "span"  // code in a line; Text
	Rule      Kind = "rule"  // a line
	Break     Kind = "break" // the end of a line
	Emphasis  Kind = "emphasis"
	Strong    Kind = "strong"
	Deleted   Kind = "deleted"
	Link      Kind = "link"  // Href
	Image     Kind = "image" // Text is its description
	Table     Kind = "table"
	Row       Kind = "row"
	Cell      Kind = "cell" // Head
	Check     Kind = "check"
)

// Node is a part of a text.
type Node struct {
	Kind     Kind
	Text     string
	Language string
	Href     string // of the web, or #ID of a heading
	ID       string
	Level    int
	Start    int
	Ordered  bool
	Head     bool // the cell is one of the first row
	Checked  bool
	Nodes    []Node
}

// Bounds of a text. Beyond them it is shown as it is written.
const (
	mostBytes = 256 << 10
	mostMarks = 60_000 // characters that begin something
	mostRun   = 10_000 // of these without an empty line
	mostStart = 200    // characters at the start of a line that begin lists and quotes
	mostDepth = 24
)

// Parse reads a text. IDs of its headings begin with prefix.
func Parse(source, prefix string) []Node {
	source = strings.ToValidUTF8(source, "\uFFFD")
	if tooMuch(source) {
		return []Node{{Kind: Code, Text: source}}
	}
	src := []byte(source)
	r := reader{src: src, prefix: prefix, ids: map[string]int{}}
	return r.nodes(goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList)).Parser().Parse(text.NewReader(src)), 0)
}

// tooMuch reports whether a text would take a parser long: many marks in one paragraph are
// compared with each other, and each list in a list is a level.
func tooMuch(source string) bool {
	if len(source) > mostBytes {
		return true
	}
	all, run := 0, 0
	for line := range strings.Lines(source) {
		if strings.TrimSpace(line) == "" {
			run = 0
			continue
		}
		marks := 0
		for _, c := range line {
			if strings.ContainsRune("[]()*_`<>!~|&\\\"", c) {
				marks++
			}
		}
		all, run = all+marks, run+marks
		start := len(line) - len(strings.TrimLeft(line, ">-+*.)0123456789 \t"))
		if all > mostMarks || run > mostRun || start > mostStart {
			return true
		}
	}
	return false
}

// reader makes the tree.
type reader struct {
	src    []byte
	prefix string
	ids    map[string]int
}

func (r *reader) nodes(parent ast.Node, depth int) []Node {
	if depth > mostDepth {
		return nil
	}
	var all []Node
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		all = append(all, r.node(n, depth)...)
	}
	return all
}

func (r *reader) node(n ast.Node, depth int) []Node {
	below := func(kind Kind) []Node { return []Node{{Kind: kind, Nodes: r.nodes(n, depth+1)}} }
	switch n := n.(type) {
	case *ast.Text:
		return r.text(n)
	case *ast.String:
		return []Node{{Kind: Text, Text: string(n.Value)}}
	case *ast.Paragraph:
		return below(Paragraph)
	case *ast.TextBlock:
		return below(Plain)
	case *ast.Heading:
		return []Node{{Kind: Heading, Level: n.Level, ID: r.id(n), Nodes: r.nodes(n, depth+1)}}
	case *ast.List:
		return []Node{{Kind: List, Ordered: n.IsOrdered(), Start: n.Start, Nodes: r.nodes(n, depth+1)}}
	case *ast.ListItem:
		return below(Item)
	case *ast.Blockquote:
		return below(Quote)
	case *ast.FencedCodeBlock:
		return []Node{{Kind: Code, Text: r.lines(n), Language: string(n.Language(r.src))}}
	case *ast.CodeBlock:
		return []Node{{Kind: Code, Text: r.lines(n)}}
	case *ast.ThematicBreak:
		return []Node{{Kind: Rule}}
	case *ast.CodeSpan:
		return []Node{{Kind: Span, Text: r.flat(n)}}
	case *ast.Emphasis:
		if n.Level > 1 {
			return below(Strong)
		}
		return below(Emphasis)
	case *extended.Strikethrough:
		return below(Deleted)
	case *ast.Link:
		return r.link(string(n.Destination), r.nodes(n, depth+1))
	case *ast.AutoLink:
		href := string(n.URL(r.src))
		if n.AutoLinkType == ast.AutoLinkEmail {
			href = "mailto:" + href
		}
		return r.link(href, []Node{{Kind: Text, Text: string(n.Label(r.src))}})
	case *ast.Image:
		return []Node{{Kind: Image, Text: r.flat(n)}}
	case *extended.TaskCheckBox:
		return []Node{{Kind: Check, Checked: n.IsChecked}}
	case *extended.Table:
		return below(Table)
	case *extended.TableHeader, *extended.TableRow:
		_, head := n.(*extended.TableHeader)
		cells := r.nodes(n, depth+1)
		for i := range cells {
			cells[i].Head = head
		}
		return []Node{{Kind: Row, Head: head, Nodes: cells}}
	case *extended.TableCell:
		return below(Cell)
	case *ast.HTMLBlock, *ast.RawHTML:
		return nil
	default:
		return r.nodes(n, depth+1)
	}
}

func (r *reader) text(n *ast.Text) []Node {
	value := string(n.Value(r.src))
	switch {
	case n.HardLineBreak():
		return []Node{{Kind: Text, Text: value}, {Kind: Break}}
	case n.SoftLineBreak():
		value += "\n"
	}
	return []Node{{Kind: Text, Text: value}}
}

// link is a link into the web, or to a heading of the same text. Others have no target on
// a page, and are shown without one.
func (r *reader) link(href string, inside []Node) []Node {
	u, err := url.Parse(href)
	switch {
	case err != nil:
		return inside
	case (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil, u.Scheme == "mailto" && u.Opaque != "":
		return []Node{{Kind: Link, Href: u.String(), Nodes: inside}}
	case u.Scheme == "" && u.Host == "" && u.Path == "" && u.Fragment != "":
		return []Node{{Kind: Link, Href: "#" + r.prefix + slug(u.Fragment), Nodes: inside}}
	default:
		return inside
	}
}

// lines is the content of a block of code.
func (r *reader) lines(n ast.Node) string {
	var b strings.Builder
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		b.Write(line.Value(r.src))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// flat is the text below a node.
func (r *reader) flat(n ast.Node) string {
	var b strings.Builder
	depth := 0
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			depth--
			return ast.WalkContinue, nil
		}
		if depth++; depth > mostDepth {
			depth--
			return ast.WalkSkipChildren, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Value(r.src))
			if n.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// id is that of a heading, which no other one has.
func (r *reader) id(n ast.Node) string {
	name := slug(r.flat(n))
	r.ids[name]++
	if times := r.ids[name]; times > 1 {
		name += "-" + strconv.Itoa(times-1)
	}
	return r.prefix + name
}

// slug is a heading as links name it.
func slug(heading string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.IsLetter(c), unicode.IsDigit(c), c == '-', c == '_':
			return unicode.ToLower(c)
		case c == ' ':
			return '-'
		default:
			return -1
		}
	}, strings.TrimSpace(heading))
}
