package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Graph is a stack with what it needs, and what needs it, directly or through
// others. What else needs the same things is not in it.
type Graph struct {
	Nodes []GraphNode `json:"nodes"` // the first is the stack that was asked for; nearer ones come first
	Edges []GraphEdge `json:"edges"`
	Left  int         `json:"left,omitempty"` // nodes that there was no room for
}

// GraphNode is one stack.
type GraphNode struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Kind      string `json:"kind,omitempty"` // as Key has it
	Status    Status `json:"status,omitempty"`
	Missing   bool   `json:"missing,omitempty"` // a stack depends on it, and it does not exist
	Hidden    bool   `json:"hidden,omitempty"`  // the visitor may not see it: it has no name here, and nothing behind it is shown
}

// Key names the stack; it is zero if the node is hidden.
func (n GraphNode) Key() Key { return Key{Namespace: n.Namespace, Name: n.Name, Kind: n.Kind} }

// GraphEdge says that the stack From needs the stack To. Both are places in
// Graph.Nodes, and never the same.
type GraphEdge struct {
	From int      `json:"from"`
	To   int      `json:"to"`
	Kind EdgeKind `json:"kind"`
}

// EdgeKind is why one stack needs another.
type EdgeKind string

// The kinds of edge.
const (
	EdgeDependsOn EdgeKind = "dependsOn" // it says so
	EdgeOutputs   EdgeKind = "outputs"   // it reads what the other publishes
)

// graphNodes bounds how many stacks one picture holds.
const graphNodes = 200

// publishersShown bounds how many stacks that publish to one Secret are drawn. One of them owns
// the Secret and the others fail; without a bound a namespace whose stacks all publish to it and
// read it has the square of its stacks in edges.
const publishersShown = 8

// Graph returns a stack with what it needs and what needs it, up to depth steps
// away, or however far if depth is 0. The rights of the user to the stack have been checked
// itself; the scope is what they may see of others.
func (b *Board) Graph(scope access.Scope, key Key, depth int) (Graph, error) {
	if depth < 0 {
		return Graph{}, fault.New(fault.Invalid, ReasonQuery, fmt.Errorf("depth is not negative, and %d was given", depth))
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return Graph{}, errNotReady
	}
	if b.rows[key] == nil {
		return Graph{}, fault.New(fault.Missing, access.ReasonNotFound, fmt.Errorf("stack %s does not exist", key))
	}
	needs, neededBy := b.edges()
	w := walk{scope: scope, start: key, depth: depth, place: map[Key]int{key: 0}, order: []Key{key}}
	w.spread(needs, neededBy)
	return w.graph(b, needs), nil
}

// WholeGraph answers what all stacks need of each other.
type WholeGraph struct{ board *Board }

// NewWholeGraph returns the graph of all stacks of board.
func NewWholeGraph(board *Board) WholeGraph { return WholeGraph{board} }

// WholeNode is one stack, or all stacks of a namespace: then it has no name.
type WholeNode struct {
	GraphNode
	Counts map[Status]int // of a namespace
	Total  int            // likewise
}

// Whole returns the stacks of one namespace, and each other namespace as one node;
// without a namespace, all of them as one node each. What is outside of scope is
// left out. Nodes that there is no room for are counted in left.
func (g WholeGraph) Whole(scope access.Scope, open string) (nodes []WholeNode, edges []GraphEdge, left int, err error) {
	b := g.board
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return nil, nil, 0, errNotReady
	}
	places := map[Key]int{}
	sees := func(k Key) bool { return scope.Of(k.Kind).Has(k.Namespace) }
	at := func(k Key) (place int, seen bool) {
		if !sees(k) {
			return 0, false
		}
		if k.Namespace != open {
			k = Key{Namespace: k.Namespace}
		}
		place, seen = places[k]
		return place, seen
	}
	for _, c := range b.order {
		if !sees(c.key) {
			continue
		}
		k := c.key
		if k.Namespace != open {
			k = Key{Namespace: k.Namespace}
		}
		i, known := places[k]
		switch {
		case !known && len(nodes) == graphNodes:
			left++
			continue
		case !known:
			i = len(nodes)
			places[k] = i
			nodes = append(nodes, WholeNode{GraphNode: GraphNode{Namespace: k.Namespace, Name: k.Name, Kind: k.Kind}, Counts: map[Status]int{}})
		}
		nodes[i].Total++
		nodes[i].Counts[c.row.Status]++
		if worst := nodes[i].Status; worst == "" || c.row.Status.rank() < worst.rank() {
			nodes[i].Status = c.row.Status
		}
	}
	needs, _ := b.edges()
	known := map[GraphEdge]bool{}
	for _, c := range b.order {
		from, seen := at(c.key)
		for _, n := range needs[c.key] {
			to, reached := at(n.key)
			if e := (GraphEdge{from, to, n.kind}); seen && reached && from != to && !known[e] {
				known[e] = true
				edges = append(edges, e)
			}
		}
	}
	return nodes, edges, left, nil
}

// need is one edge as it is seen from one of its ends.
type need struct {
	key  Key
	kind EdgeKind
}

// edges lists the needs of all stacks, from either end, each in order.
func (b *Board) edges() (needs, neededBy map[Key][]need) {
	needs, neededBy = map[Key][]need{}, map[Key][]need{}
	publishers := map[types.NamespacedName][]Key{} // by Secret
	for _, c := range b.order {
		if s := c.ties.writes; s != "" {
			secret := types.NamespacedName{Namespace: c.key.Namespace, Name: s}
			if known := publishers[secret]; len(known) < publishersShown {
				publishers[secret] = append(known, c.key)
			}
		}
	}
	known := map[need]bool{} // of one stack
	for _, c := range b.order {
		clear(known)
		tie := func(to Key, kind EdgeKind) {
			if n := (need{to, kind}); to != c.key && !known[n] {
				known[n] = true
				needs[c.key] = append(needs[c.key], n)
				neededBy[to] = append(neededBy[to], need{c.key, kind})
			}
		}
		for _, to := range c.ties.needs {
			tie(to, EdgeDependsOn)
		}
		for _, secret := range c.ties.reads {
			for _, to := range publishers[types.NamespacedName{Namespace: c.key.Namespace, Name: secret}] {
				tie(to, EdgeOutputs)
			}
		}
	}
	return needs, neededBy
}

// walk collects the nodes of a graph.
type walk struct {
	scope access.Scope
	start Key
	depth int
	place map[Key]int
	order []Key
}

// spread walks in both directions at once, a step at a time, so that what is
// nearest comes first. Each direction goes its own way only: from what a stack
// needs it does not come back to what else needs that.
func (w *walk) spread(directions ...map[Key][]need) {
	seen := make([]map[Key]bool, len(directions))
	edge := make([][]Key, len(directions))
	for i := range directions {
		seen[i], edge[i] = map[Key]bool{w.start: true}, []Key{w.start}
	}
	for step, more := 0, true; more && (w.depth == 0 || step < w.depth); step++ {
		more = false
		for i, next := range directions {
			edge[i] = w.step(edge[i], next, seen[i])
			more = more || len(edge[i]) > 0
		}
	}
}

// step takes in the neighbours of what was reached last.
func (w *walk) step(edge []Key, next map[Key][]need, seen map[Key]bool) []Key {
	var reached []Key
	for _, from := range edge {
		if w.hides(from) {
			continue // nothing behind what is hidden is shown
		}
		for _, n := range next[from] {
			if !seen[n.key] {
				seen[n.key] = true
				reached = append(reached, n.key)
			}
		}
	}
	slices.SortFunc(reached, compareKeys)
	for _, k := range reached {
		if _, known := w.place[k]; !known {
			w.place[k] = len(w.order)
			w.order = append(w.order, k)
		}
	}
	return reached
}

// graph shows as many of the nodes as there is room for, and the edges between
// them.
func (w *walk) graph(b *Board, needs map[Key][]need) Graph {
	shown := min(len(w.order), graphNodes)
	g := Graph{Nodes: []GraphNode{}, Edges: []GraphEdge{}, Left: len(w.order) - shown}
	for _, key := range w.order[:shown] {
		g.Nodes = append(g.Nodes, w.node(b, key))
	}
	for from, key := range w.order[:shown] {
		for _, n := range needs[key] {
			to, reached := w.place[n.key]
			if !reached || to >= shown || g.Nodes[from].Hidden && g.Nodes[to].Hidden {
				continue // between two that are hidden there is nothing to see
			}
			g.Edges = append(g.Edges, GraphEdge{from, to, n.kind})
		}
	}
	slices.SortFunc(g.Edges, func(x, y GraphEdge) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To), cmp.Compare(x.Kind, y.Kind))
	})
	return g
}

// hides reports whether a stack may not be seen.
func (w *walk) hides(key Key) bool { return key != w.start && !w.scope.Of(key.Kind).Has(key.Namespace) }

func (w *walk) node(b *Board, key Key) GraphNode {
	if w.hides(key) {
		return GraphNode{Hidden: true}
	}
	n := GraphNode{Namespace: key.Namespace, Name: key.Name, Kind: key.Kind}
	if c := b.rows[key]; c != nil {
		n.Status = c.row.Status
	} else {
		n.Missing = true
	}
	return n
}

// ties are what binds a stack to others. Names of Secrets are those of its own
// namespace.
type ties struct {
	needs  []Key
	reads  []string
	writes string
}

// tiesOf are the ties of a stack. A stack that reads a Secret is tied to the
// stack that publishes to it, in whatever field the Secret is named.
func tiesOf(kinds Kinds, o *Object) ties {
	var t ties
	refs := input.References(o.Legible, o.GetNamespace())
	for _, r := range refs.DependsOn {
		t.needs = append(t.needs, keyOf(kinds, o.Dialect, r))
	}
	if refs.Writes != nil {
		t.writes = refs.Writes.Name
	}
	known := map[string]bool{}
	for _, r := range refs.Reads {
		if r.Kind == input.Secret && r.Namespace == o.GetNamespace() && !known[r.Name] {
			known[r.Name] = true
			t.reads = append(t.reads, r.Name)
		}
	}
	return t
}

// keyOf names the stack that another one refers to.
func keyOf(kinds Kinds, by dialect.Dialect, r stack.Ref) Key {
	return Key{Namespace: r.Namespace, Name: r.Name, Kind: kinds.Word(kinds.Meant(r.Kind, by))}
}

// wordOf is the word of a kind that an object or a record names, with or without its
// group.
func wordOf(kinds Kinds, kind string) string {
	if d := kinds.Of(kind); d != nil {
		return kinds.Word(d)
	}
	return strings.ToLower(kind)
}
