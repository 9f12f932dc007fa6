package pages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/graph"
	"github.com/terrier-iac/terrier/internal/query"
)

// connected is a board with one graph.
type connected struct {
	board
	graph query.Graph
	depth *int
}

func (c connected) Graph(_ access.Scope, _ query.Key, depth int) (query.Graph, error) {
	*c.depth = depth
	return c.graph, nil
}

func graphVisit(t *testing.T, g query.Graph, address string) (*Visit, *int) {
	t.Helper()
	e := town()
	v := visitor(t, e, address)
	depth := new(int)
	v.Backend.Board = connected{board{e}, g, depth}
	return v, depth
}

// estateGraph has a stack with everything that can be beside it.
func estateGraph() query.Graph {
	return query.Graph{
		Nodes: []query.GraphNode{
			{Namespace: "apps", Name: "checkout", Status: query.StatusPending}, {Namespace: "net", Name: "vpc", Status: query.StatusDrifted}, {Namespace: "net", Name: "dns", Status: query.StatusLocked},
			{Namespace: "apps", Name: "gone", Missing: true}, {Hidden: true}, {Namespace: "apps", Name: strings.Repeat("long-", 20), Status: "unheard of"}, {Namespace: "apps", Name: "hostile" + hostile, Status: query.StatusFailed},
		},
		Edges: []query.GraphEdge{{From: 0, To: 1, Kind: query.EdgeDependsOn}, {From: 0, To: 2, Kind: query.EdgeOutputs}, {From: 0, To: 3, Kind: query.EdgeDependsOn}, {From: 4, To: 0, Kind: query.EdgeDependsOn},
			{From: 5, To: 0, Kind: query.EdgeOutputs}, {From: 2, To: 5, Kind: query.EdgeDependsOn}, {From: 6, To: 1, Kind: query.EdgeDependsOn}, {From: 6, To: 6, Kind: query.EdgeDependsOn}},
		Left: 3,
	}
}

func TestGraphsKeepTheRules(t *testing.T) {
	alone := query.Graph{Nodes: estateGraph().Nodes[:1]}
	large := query.Graph{}
	for i := range graph.Ceiling + 1 {
		large.Nodes = append(large.Nodes, query.GraphNode{Namespace: "apps", Name: fmt.Sprintf("s-%d", i), Status: query.StatusReady})
	}
	for name, tt := range map[string]struct {
		g    query.Graph
		want string
	}{
		"a bit of everything": {estateGraph(), "3 more stacks are not shown"}, "alone": {alone, "No dependencies"}, "too many": {large, "Too many stacks for a graph"}, "nothing": {query.Graph{}, "No dependencies"},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := graphVisit(t, tt.g, "/stacks/apps/checkout/graph")
			p, err := StackGraph(v)
			if err != nil {
				t.Fatal(err)
			}
			if got := parse(t, v, p).text(); !strings.Contains(got, tt.want) {
				t.Errorf("the page does not say %q", tt.want)
			}
		})
	}
}

// Every stack of the picture is in the list, and leads to the same place.
func TestThePictureAndTheListAgree(t *testing.T) {
	v, _ := graphVisit(t, estateGraph(), "/stacks/apps/checkout/graph")
	p, err := StackGraph(v)
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, v, p)
	nodes := d.all(func(n *html.Node) bool { return n.Data == "g" && strings.Contains(attr(n, "class"), "node ") })
	rows := d.all(is(atom.Tr))
	if len(nodes) != 7 || len(rows) != 8 {
		t.Fatalf("%d boxes and %d rows, want 7 and 8", len(nodes), len(rows))
	}
	links := 0
	for _, n := range nodes {
		for _, a := range (parsed{t, n}).all(is(atom.A)) {
			links++
			if !strings.HasSuffix(attr(a, "href"), "/graph") {
				t.Errorf("a box leads to %q", attr(a, "href"))
			}
		}
	}
	if links != 5 {
		t.Errorf("%d boxes are links, want those 5 that exist and may be seen", links)
	}
	if text := textOf(rows[1]); !strings.Contains(text, "net/vpc") || !strings.Contains(text, "net/dns (outputs)") || !strings.Contains(text, "a stack that you may not view") {
		t.Errorf("the row of the stack says %q", text)
	}
	if edges := d.all(func(n *html.Node) bool { return strings.HasPrefix(attr(n, "class"), "edge ") }); len(edges) != 7 {
		t.Errorf("%d edges are drawn, want 7: all but the one to itself", len(edges))
	}
}

// A stack that is connected in two ways is named once.
func TestAStackIsNamedOnceInTheList(t *testing.T) {
	edge := func(from, to int, kind query.EdgeKind) query.GraphEdge {
		return query.GraphEdge{From: from, To: to, Kind: kind}
	}
	p := graphPage{}
	p.show(query.Graph{
		Nodes: []query.GraphNode{{Namespace: "apps", Name: "checkout"}, {Namespace: "net", Name: "vpc"}, {Hidden: true}, {Hidden: true}},
		Edges: []query.GraphEdge{edge(0, 1, query.EdgeDependsOn), edge(0, 2, query.EdgeOutputs), edge(0, 1, query.EdgeOutputs), edge(0, 3, query.EdgeDependsOn), edge(0, 1, query.EdgeOutputs), edge(0, 2, query.EdgeOutputs)},
	})
	said := func(list []graphRef) (out []string) {
		for _, r := range list {
			out = append(out, r.Name+"|"+r.Kind)
		}
		return out
	}
	const hidden = "a stack that you may not view"
	if got, want := said(p.Nodes[0].Needs), []string{"net/vpc|dependsOn and outputs", hidden + "|outputs", hidden + "|"}; !slices.Equal(got, want) {
		t.Errorf("it needs %q, want %q", got, want)
	}
	if got, want := said(p.Nodes[1].NeededBy), []string{"apps/checkout|dependsOn and outputs"}; !slices.Equal(got, want) {
		t.Errorf("it is needed by %q, want %q", got, want)
	}
}

func TestHowFarAGraphReaches(t *testing.T) {
	for params, want := range map[string]int{"": defaultDepth, "?depth=0": 0, "?depth=4": 4, "?depth=-1": defaultDepth, "?depth=x": defaultDepth} {
		v, depth := graphVisit(t, estateGraph(), "/stacks/apps/checkout/graph"+params)
		if _, err := StackGraph(v); err != nil {
			t.Fatal(err)
		}
		if *depth != want {
			t.Errorf("%q asks for the depth %d, want %d", params, *depth, want)
		}
	}
}

// A changed status does not cause a new layout; a new edge does.
func TestLayoutsAreKept(t *testing.T) {
	var k layouts
	g := graph.Graph{Boxes: []graph.Box{{W: 10, H: 10}, {W: 10, H: 10}}}
	for range 3 {
		if _, err := k.lay(g); err != nil {
			t.Fatal(err)
		}
	}
	g.Edges = []graph.Edge{{From: 0, To: 1}}
	if _, err := k.lay(g); err != nil || k.kept.Len() != 2 {
		t.Errorf("%d layouts are kept (%v), want 2", k.kept.Len(), err)
	}
	for i := range 2 * cache.DefaultSize {
		g.Boxes[0].W = 20 + i
		if _, err := k.lay(g); err != nil {
			t.Fatal(err)
		}
	}
	if k.kept.Len() != cache.DefaultSize {
		t.Errorf("%d layouts are kept, want %d", k.kept.Len(), cache.DefaultSize)
	}
}

// A label stays in its rectangle, however wide its letters are.
func TestLabelsFitTheirNodes(t *testing.T) {
	for _, name := range []string{"net", strings.Repeat("m", 60), strings.Repeat("i", 60), strings.Repeat("W", 23), "a-very-long-name-of-a-stack-that-a-template-made", strings.Repeat("🦮", 40)} {
		got := fitting(name)
		if w := textWidth(got); w > textMax || w+boxPad > boxMax {
			t.Errorf("%q is %d wide, and a node has room for %d", got, w, textMax)
		}
		if got != name && !strings.HasSuffix(got, "…") {
			t.Errorf("%q is cut to %q, which does not say so", name, got)
		}
	}
}

// folded is three namespaces, of which one is open.
type folded struct{}

func (folded) Whole(_ access.Scope, open string) ([]query.WholeNode, []query.GraphEdge, int, error) {
	nodes := []query.WholeNode{
		{GraphNode: query.GraphNode{Namespace: "alone", Status: query.StatusReady}, Total: 1},
		{GraphNode: query.GraphNode{Namespace: "apps", Status: query.StatusFailed}, Total: 12},
		{GraphNode: query.GraphNode{Namespace: "net", Status: query.StatusReady}, Total: 3},
	}
	if open == "net" {
		nodes[2] = query.WholeNode{GraphNode: query.GraphNode{Namespace: "net", Name: "vpc", Status: query.StatusReady}, Total: 1}
	}
	return nodes, []query.GraphEdge{{From: 1, To: 2, Kind: query.EdgeDependsOn}}, 4, nil
}

// The graph of all stacks folds each namespace but one, and draws what needs each other.
func TestTheGraphOfAllStacks(t *testing.T) {
	for address, want := range map[string]string{"/graph": "/graph?namespace=net", "/graph?namespace=net": "/stacks/net/vpc/graph"} {
		v := visitor(t, town(), address)
		v.Backend.Graphs = folded{}
		p, err := Graph(v)
		if err != nil {
			t.Fatal(err)
		}
		d := parse(t, v, p)
		if len(d.all(func(n *html.Node) bool { return n.DataAtom == atom.A && attr(n, "href") == want })) == 0 {
			t.Errorf("%s: no link leads to %s", address, want)
		}
		if got := len(p.Data.(wholeGraph).Picture.Nodes); got != 2 {
			t.Errorf("%s: %d nodes are drawn, want those that need each other", address, got)
		}
		if text := d.text(); !strings.Contains(text, "apps: 12 stacks") || !strings.Contains(text, "4 more stacks are not shown") {
			t.Errorf("%s: the page says %s", address, text)
		}
	}
}
