package pages

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/graph"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// graphPage is a stack with its dependencies and dependents.
type graphPage struct {
	Head   stackHead
	Depths []planChip
	W, H   int
	Nodes  []graphNode
	Edges  []graphEdge
	Left   int
	Alone  bool     // nothing is connected to the stack
	Drawn  bool     // there is a picture beside the list
	Why    *Problem // why there is none
}

// RowsAre heads the list.
func (graphPage) RowsAre() string { return "Stack" }

// Linked reports whether the list has dependencies to show.
func (p graphPage) Linked() bool {
	return slices.ContainsFunc(p.Nodes, func(n graphNode) bool { return len(n.Needs) > 0 })
}

// graphNode is a box, and a row of the list.
type graphNode struct {
	X, Y, W, H int
	Name       string // as the box has room for it
	Where      string
	Full       string
	Href       string
	To         string // where its node leads; empty if nowhere
	Pill       ui.Pill
	Self       bool
	Dashed     bool
	Needs      []graphRef
	NeededBy   []graphRef
}

// graphRef is another stack in the list, once with all that connects the two.
type graphRef struct {
	Name string
	Href string
	Kind string // as a person reads it; nothing if only dependsOn names it
	node int
}

type graphEdge struct {
	Path string // as SVG has it
	Kind string
	Back bool
	Self bool // it begins or ends at the stack that was asked for
}

// defaultDepth shows two levels of dependencies and two levels of
// dependents.
const defaultDepth = 2

var graphDepths = []struct {
	depth int
	label string
}{{1, "Direct"}, {2, "Two steps"}, {4, "Four steps"}, {0, "All"}}

// StackGraph shows the dependencies and the dependents of a stack.
func StackGraph(v *Visit) (Page, error) {
	head, err := headOf(v, tabGraph)
	if err != nil {
		return Page{}, err
	}
	p := graphPage{Head: head}
	depth, err := strconv.Atoi(v.Query.Get("depth"))
	if err != nil || depth < 0 {
		depth = defaultDepth
	}
	for _, d := range graphDepths {
		p.Depths = append(p.Depths, planChip{Label: d.label, Tone: ui.ToneIdle, Href: ui.With(v.Path, nil, "depth", strconv.Itoa(d.depth)), Current: d.depth == depth})
	}
	page := stackPage(v, "graph", "Graph", nil)
	g, err := v.Backend.Board.Graph(v.Scope(), v.Key(), depth)
	if p.Why = problemOf("The graph cannot be shown", err); err == nil {
		p.show(g)
		p.draw(v.Backend, g)
		page.Live.Stack, page.Live.Stacks = query.Key{}, true // others in it change, too
	}
	page.Data = p
	return page, nil
}

// Graphs are what all stacks need of each other.
type Graphs interface {
	Whole(scope access.Scope, open string) (nodes []query.WholeNode, edges []query.GraphEdge, left int, err error)
}

// wholeGraph is the page of all stacks.
type wholeGraph struct {
	graphPage
	Picture graphPage // those that need each other
	Open    string    // the namespace whose stacks are shown
	Empty   *ui.Empty
}

// RowsAre heads the list.
func (p wholeGraph) RowsAre() string {
	if p.Open == "" {
		return "Namespace"
	}
	return "Stack or namespace"
}

// Graph shows what all stacks need of each other, by namespace: the stacks of one
// namespace at a time are shown.
func Graph(v *Visit) (Page, error) {
	page := Page{Title: "Graph", Section: "stacks", Template: "graph_all", Live: Live{Stacks: true}}
	p := wholeGraph{Open: v.Query.Get("namespace")}
	if v.Backend.Graphs == nil {
		p.Empty = &ui.Empty{Title: "No graph", Text: "This server does not watch the stacks."}
		page.Data = p
		return page, nil
	}
	nodes, edges, left, err := v.Backend.Graphs.Whole(v.Scope(), p.Open)
	if err != nil {
		return page, err
	}
	p.Left = left
	for _, n := range nodes {
		x := graphNode{Name: n.Name, Where: n.Namespace, Full: n.Key().String(), Pill: statusPill(n.Status), Href: stackPath(n.Key()), To: stackPath(n.Key(), tabGraph)}
		if n.Name == "" {
			x.Name, x.Where, x.Full = n.Namespace, query.Count(n.Total, "stack"), n.Namespace+": "+query.Count(n.Total, "stack")
			x.Href = ui.With(v.Path, nil, "namespace", n.Namespace)
			x.To = x.Href
		}
		p.Nodes = append(p.Nodes, x)
	}
	if len(nodes) == 0 {
		p.Empty = noStacks("/stacks", false)
	}
	p.refer(edges)
	p.picture(v.Backend, edges)
	page.Data = p
	return page, nil
}

// picture draws the nodes that have an edge: the others would only make it wide.
func (p *wholeGraph) picture(h *Backend, edges []query.GraphEdge) {
	if len(edges) == 0 {
		return
	}
	places := make([]int, len(p.Nodes))
	for i, n := range p.Nodes {
		if len(n.Needs)+len(n.NeededBy) > 0 {
			places[i] = len(p.Picture.Nodes)
			p.Picture.Nodes = append(p.Picture.Nodes, n)
		}
	}
	drawn := make([]query.GraphEdge, 0, len(edges))
	for _, e := range edges {
		drawn = append(drawn, query.GraphEdge{From: places[e.From], To: places[e.To], Kind: e.Kind})
	}
	p.Picture.draw(h, query.Graph{Edges: drawn})
	for i := range p.Picture.Edges {
		p.Picture.Edges[i].Self = false
	}
	p.Why = p.Picture.Why
}

func (p *graphPage) show(g query.Graph) {
	p.Left, p.Alone = g.Left, len(g.Nodes) < 2
	for i, n := range g.Nodes {
		x := graphNode{Self: i == 0, Where: n.Namespace, Full: n.Key().String(), Pill: statusPill(n.Status)}
		x.Name = n.Name
		switch {
		case n.Hidden:
			x.Name, x.Full, x.Where, x.Pill, x.Dashed = "Hidden", "a stack that you may not view", "", ui.NewPill(ui.ToneIdle, "lock", "Hidden"), true
		case n.Missing:
			x.Pill, x.Dashed = ui.PillOf(ui.ToneBad, "Missing"), true
		default:
			x.Href = stackPath(n.Key())
			x.To = stackPath(n.Key(), tabGraph)
		}
		p.Nodes = append(p.Nodes, x)
	}
	p.refer(g.Edges)
}

// refer lists the edges beside the nodes.
func (p *graphPage) refer(edges []query.GraphEdge) {
	for _, e := range edges {
		from, to := &p.Nodes[e.From], &p.Nodes[e.To]
		from.Needs = withRef(from.Needs, graphRef{Name: to.Full, Href: to.Href, node: e.To}, e.Kind)
		to.NeededBy = withRef(to.NeededBy, graphRef{Name: from.Full, Href: from.Href, node: e.From}, e.Kind)
	}
}

// withRef adds what an edge connects to, once: a stack that both names another
// and reads its outputs needs it no more than that.
func withRef(list []graphRef, r graphRef, kind query.EdgeKind) []graphRef {
	i := slices.IndexFunc(list, func(other graphRef) bool { return other.node == r.node })
	switch {
	case i < 0 && kind == query.EdgeOutputs:
		r.Kind = "outputs"
		return append(list, r)
	case i < 0:
		return append(list, r)
	case (kind == query.EdgeOutputs) != (list[i].Kind == "outputs"):
		list[i].Kind = "dependsOn and outputs"
	}
	return list
}

func kindOfEdge(k query.EdgeKind) string {
	if k == query.EdgeOutputs {
		return "outputs"
	}
	return "dependsOn"
}

// The size of a box, and of the text in it.
const (
	boxHeight = 46
	boxMin    = 120
	boxMax    = 270
	boxPad    = 45 // beside the text: the glyph, and room
	textMax   = boxMax - boxPad
)

// textWidth is about how wide a name is in a box, rather too wide than too narrow:
// only the browser knows the font.
func textWidth(name string) (w int) {
	for _, r := range name {
		switch {
		case strings.ContainsRune("ijl.:|!I'", r):
			w += 5
		case strings.ContainsRune("frt-()/[]", r):
			w += 7
		case strings.ContainsRune("mwMW@%…", r) || r > unicode.MaxLatin1:
			w += 14
		default:
			w += 10
		}
	}
	return w
}

// fitting cuts a name to the width of a box.
func fitting(name string) string {
	for n := utf8.RuneCountInString(name); textWidth(name) > textMax && n > 1; {
		n--
		name = ui.Cut(n, strings.TrimSuffix(name, "…"))
	}
	return name
}

// draw lays out the graph, with dependencies above dependents.
func (p *graphPage) draw(h *Backend, g query.Graph) {
	var in graph.Graph
	for i := range p.Nodes {
		n := &p.Nodes[i]
		n.Name, n.Where = ui.Visible(n.Name), ui.Visible(n.Where)
		n.Name, n.Where = fitting(n.Name), fitting(n.Where)
		n.W, n.H = min(boxMax, max(boxMin, max(textWidth(n.Name), textWidth(n.Where))+boxPad)), boxHeight
		in.Boxes = append(in.Boxes, graph.Box{W: n.W, H: n.H})
	}
	for _, e := range g.Edges {
		in.Edges = append(in.Edges, graph.Edge{From: e.To, To: e.From})
	}
	l, err := h.graphs.lay(in)
	if err != nil {
		if !errors.Is(err, graph.ErrTooLarge) {
			p.Why = problemOf("The graph cannot be drawn", err)
		} else {
			p.Why = &Problem{Title: "Too many stacks for a graph", Error: "The table below lists all of them.", Hint: "Choose fewer steps."}
		}
		return
	}
	p.Drawn = true
	p.W, p.H = l.W+2*margin, l.H+2*margin
	for i, at := range l.Places {
		p.Nodes[i].X, p.Nodes[i].Y = at.X+margin, at.Y+margin
	}
	for i, r := range l.Routes {
		if r.Points == nil {
			continue
		}
		e := g.Edges[i]
		p.Edges = append(p.Edges, graphEdge{Path: curve(r.Points), Kind: kindOfEdge(e.Kind), Back: r.Back, Self: e.From == 0 || e.To == 0})
	}
	slices.SortStableFunc(p.Edges, func(a, b graphEdge) int { return cmp.Compare(number01(a.Self), number01(b.Self)) })
}

const margin = 8

func number01(b bool) int {
	if b {
		return 1
	}
	return 0
}

// curve is a line through points: straight within a row, bent between rows.
func curve(points []graph.Point) string {
	var b strings.Builder
	put := func(command string, list ...graph.Point) {
		b.WriteString(command)
		for i, p := range list {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strconv.Itoa(p.X+margin) + "," + strconv.Itoa(p.Y+margin))
		}
	}
	put("M", points[0])
	for i := 1; i < len(points); i++ {
		from, to := points[i-1], points[i]
		if from == to {
			continue // an arrow at the end of nothing has no direction
		}
		if from.X == to.X {
			put("L", to)
			continue
		}
		middle := (from.Y + to.Y) / 2
		put("C", graph.Point{X: from.X, Y: middle}, graph.Point{X: to.X, Y: middle}, to)
	}
	return b.String()
}

// layouts are kept by what they are of: a status that changes moves nothing. One
// of the largest has some hundred kilobytes.
type layouts struct {
	kept cache.Map[[sha256.Size]byte, graph.Layout]
}

// lay returns the layout of g, which must not be changed.
func (l *layouts) lay(g graph.Graph) (graph.Layout, error) {
	id := shape(g)
	if known, ok := l.kept.Get(id); ok {
		return known, nil
	}
	made, err := graph.Lay(g, graph.DefaultSpacing)
	if err == nil {
		l.kept.Put(id, made)
	}
	return made, err
}

// shape is the digest of everything that a layout depends on.
func shape(g graph.Graph) [sha256.Size]byte {
	var b []byte
	put := func(list ...int) {
		for _, n := range list {
			b = binary.AppendVarint(b, int64(n))
		}
	}
	put(len(g.Boxes))
	for _, x := range g.Boxes {
		put(x.W, x.H)
	}
	for _, e := range g.Edges {
		put(e.From, e.To)
	}
	return sha256.Sum256(b)
}
