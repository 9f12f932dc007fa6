package graph_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/graph"
)

// A way back is found if there is one, and only then, whatever changed before.
func TestCyclesAreWhatLeadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"})
		var c graph.Cycles
		edges := map[string][]string{}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			of := name.Draw(t, "node")
			switch rapid.IntRange(0, 4).Draw(t, "change") {
			case 0:
				c.Forget(of, c.ID(of))
				delete(edges, of)
			case 1:
				c.Forget(of, "of an earlier node")
			default:
				edges[of] = rapid.SliceOfN(name, 0, 3).Draw(t, "edges")
				c.Set(of, "id", edges[of])
			}
			for from, all := range edges {
				for _, to := range all {
					checkWay(t, &c, edges, from, to)
				}
			}
		}
	})
}

func checkWay(t *rapid.T, c *graph.Cycles, edges map[string][]string, from, to string) {
	t.Helper()
	way := c.Through(from, to)
	back := distance(edges, to, from)
	if (way == nil) != (back < 0) {
		t.Fatalf("through %s and %s the way is %+v among %v", from, to, way, edges)
	}
	if way == nil {
		return
	}
	if way.Nodes != back+1 || len(way.First)+len(way.Last) > way.Nodes || way.First[0] != from {
		t.Fatalf("through %s and %s the way is %+v among %v, want one of %d nodes", from, to, way, edges, back+1)
	}
	parts := [][]string{way.First, append(slices.Clone(way.Last), from)}
	if len(way.Last) == 0 {
		parts = [][]string{append(slices.Clone(way.First), from)}
	}
	for _, part := range parts {
		for i, node := range part[1:] {
			if !slices.Contains(edges[part[i]], node) {
				t.Fatalf("the way %+v has no edge from %s to %s among %v", way, part[i], node, edges)
			}
		}
	}
}

// distance is how many edges lead from one node to another, -1 if none do.
func distance(edges map[string][]string, from, to string) int {
	far, queue := map[string]int{from: 0}, []string{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at == to {
			return far[at]
		}
		for _, next := range edges[at] {
			if _, met := far[next]; !met {
				far[next] = far[at] + 1
				queue = append(queue, next)
			}
		}
	}
	return -1
}

// Of a cycle of thousands a short part is named, and a chain as long as that needs no stack.
func TestALongCycle(t *testing.T) {
	const nodes = 5000
	var c graph.Cycles
	name := func(i int) string { return fmt.Sprint(i % nodes) }
	for i := range nodes - 1 {
		c.Set(name(i), "id", []string{name(i + 1)})
	}
	if way := c.Through("0", "1"); way != nil {
		t.Errorf("a chain has the cycle %+v", way)
	}
	c.Set(name(nodes-1), "id", []string{"0"})
	way := c.Through("7", "8")
	if way == nil || way.Nodes != nodes || !slices.Equal(way.First, []string{"7", "8", "9", "10"}) || !slices.Equal(way.Last, []string{"5", "6"}) {
		t.Errorf("the cycle is %+v", way)
	}
}
