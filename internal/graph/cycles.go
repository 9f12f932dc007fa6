package graph

import (
	"slices"
	"sync"
)

// Cycles knows which nodes of a graph lead back to themselves, while its edges change. They are
// found once after a change, for all nodes together, in a time that grows as nodes and edges do.
// The zero value has no nodes. It may be used by several goroutines.
type Cycles struct {
	mu    sync.Mutex
	edges map[string]edgesOf
	found *components             // nil after a change
	ways  map[[2]string]*Circular // found since then, by their first two nodes
}

// edgesOf are the edges that begin at one node.
type edgesOf struct {
	id string
	to []string
}

// Circular is a way that leads back to where it begins.
type Circular struct {
	First []string // its first nodes, in their order; all of them if the way is short
	Last  []string // of a long one the last nodes before the first node comes again
	Nodes int      // how many there are
}

// How many nodes of a long way are named.
const (
	firstNodes = 4
	lastNodes  = 2
)

// Set says where the edges of a node lead. The ID tells the node from an earlier one of its name.
func (c *Cycles) Set(name, id string, to []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.edges[name]
	if len(to) == 0 {
		delete(c.edges, name)
	} else {
		if c.edges == nil {
			c.edges = map[string]edgesOf{}
		}
		c.edges[name] = edgesOf{id, slices.Clone(to)}
	}
	if !slices.Equal(was.to, to) {
		c.found = nil
	}
}

// ID returns the ID of a node, empty if no edge begins there.
func (c *Cycles) ID(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.edges[name].id
}

// Forget removes a node, unless it has another ID by now.
func (c *Cycles) Forget(name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is, ok := c.edges[name]; ok && is.id == id {
		delete(c.edges, name)
		c.found = nil
	}
}

// Through returns a shortest way that begins with an edge from one node to another, and leads
// back; nil if there is none. Two calls without a change in between return the same way, which
// the caller does not change.
func (c *Cycles) Through(from, to string) *Circular {
	if from == to {
		return &Circular{First: []string{from}, Nodes: 1}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil {
		c.found, c.ways = componentsOf(c.edges), map[[2]string]*Circular{}
	}
	a, known := c.found.number[from]
	b, leads := c.found.number[to]
	if !known || !leads || c.found.of[a] != c.found.of[b] {
		return nil
	}
	key := [2]string{from, to}
	way, ok := c.ways[key]
	if !ok {
		way = c.found.back(a, b)
		c.ways[key] = way
	}
	return way
}

// components are the nodes at which an edge begins, by number. Two nodes are of the same one if
// each leads to the other.
type components struct {
	names  []string
	number map[string]int
	to     [][]int
	of     []int // by node
}

func componentsOf(edges map[string]edgesOf) *components {
	g := &components{number: make(map[string]int, len(edges)), names: make([]string, 0, len(edges)), of: make([]int, len(edges)), to: make([][]int, len(edges))}
	for name := range edges {
		g.number[name] = len(g.names)
		g.names = append(g.names, name)
	}
	for v, name := range g.names {
		for _, to := range edges[name].to {
			if w, ok := g.number[to]; ok { // another one leads nowhere
				g.to[v] = append(g.to[v], w)
			}
		}
	}
	g.divide()
	return g
}

// divide is the algorithm of Tarjan, without recursion: a chain may be as long as there are nodes.
func (g *components) divide() {
	const open = -1 // on the stack, in no component yet
	order, low := make([]int, len(g.names)), make([]int, len(g.names))
	type visit struct{ node, next int }
	var stack []int
	met, done := 0, 0
	for root := range g.names {
		if order[root] != 0 {
			continue
		}
		way := []visit{{node: root}}
		for len(way) > 0 {
			at := &way[len(way)-1]
			v := at.node
			if at.next == 0 {
				met++
				order[v], low[v], g.of[v] = met, met, open
				stack = append(stack, v)
			}
			if at.next < len(g.to[v]) {
				w := g.to[v][at.next]
				at.next++
				switch {
				case order[w] == 0:
					way = append(way, visit{node: w})
				case g.of[w] == open:
					low[v] = min(low[v], order[w])
				}
				continue
			}
			way = way[:len(way)-1]
			if len(way) > 0 {
				u := way[len(way)-1].node
				low[u] = min(low[u], low[v])
			}
			if low[v] != order[v] {
				continue
			}
			done++
			for {
				w := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				g.of[w] = done
				if w == v {
					break
				}
			}
		}
	}
}

// back is a shortest way from a to b, and from there back to a, all in one component.
func (g *components) back(a, b int) *Circular {
	before, queue := map[int]int{b: a}, []int{b}
	for len(queue) > 0 && queue[0] != a {
		v := queue[0]
		queue = queue[1:]
		for _, w := range g.to[v] {
			if _, met := before[w]; !met && g.of[w] == g.of[a] {
				before[w] = v
				queue = append(queue, w)
			}
		}
	}
	nodes := []string{g.names[a]}
	for v := before[a]; v != a; v = before[v] {
		nodes = append(nodes, g.names[v])
	}
	slices.Reverse(nodes[1:])
	out := &Circular{First: nodes, Nodes: len(nodes)}
	if len(nodes) > firstNodes+lastNodes {
		out.First, out.Last = slices.Clone(nodes[:firstNodes]), slices.Clone(nodes[len(nodes)-lastNodes:])
	}
	return out
}
