package graph

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// some draws a graph of any shape, circles, double edges and lone boxes among
// them.
func some(t *rapid.T) Graph {
	n := rapid.IntRange(0, 40).Draw(t, "boxes")
	var g Graph
	for range n {
		g.Boxes = append(g.Boxes, Box{rapid.IntRange(1, 300).Draw(t, "w"), rapid.IntRange(1, 90).Draw(t, "h")})
	}
	if n > 0 {
		for range rapid.IntRange(0, 3*n).Draw(t, "edges") {
			g.Edges = append(g.Edges, Edge{rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")})
		}
	}
	return g
}

func lay(t interface{ Fatalf(string, ...any) }, g Graph) Layout {
	l, err := Lay(g, DefaultSpacing)
	if err != nil {
		t.Fatalf("Lay() = %v", err)
	}
	return l
}

// rect is a box in its place.
type rect struct{ left, top, right, bottom int }

func rects(g Graph, l Layout) []rect {
	var out []rect
	for i, b := range g.Boxes {
		p := l.Places[i]
		out = append(out, rect{p.X, p.Y, p.X + b.W, p.Y + b.H})
	}
	return out
}

func TestBoxesHaveRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := some(t)
		l := lay(t, g)
		all := rects(g, l)
		for i, a := range all {
			if a.left < 0 || a.top < 0 || a.right > l.W || a.bottom > l.H {
				t.Fatalf("box %d at %v is outside of %dx%d", i, a, l.W, l.H)
			}
			for j, b := range all[:i] {
				if a.left < b.right+DefaultSpacing.Edges && b.left < a.right+DefaultSpacing.Edges && a.top < b.bottom && b.top < a.bottom {
					t.Fatalf("boxes %d at %v and %d at %v are too near", i, a, j, b)
				}
			}
		}
	})
}

func TestEdgesLeadDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := some(t)
		l := lay(t, g)
		all := rects(g, l)
		for i, e := range g.Edges {
			r := l.Routes[i]
			if e.From == e.To {
				if r.Points != nil {
					t.Fatalf("the edge %v has points", e)
				}
				continue
			}
			from, to := all[e.From], all[e.To]
			if r.Back {
				from, to = to, from
			}
			if from.bottom >= to.top {
				t.Fatalf("edge %v (back %v) does not lead down: from %v to %v", e, r.Back, from, to)
			}
			for k, p := range r.Points[1:] {
				if was := r.Points[k]; (p.Y < was.Y) != r.Back && p.Y != was.Y {
					t.Fatalf("edge %v (back %v) runs from %v to %v", e, r.Back, was, p)
				}
			}
			first, last := r.Points[0], r.Points[len(r.Points)-1]
			if r.Back {
				first, last = last, first
			}
			if first.Y != from.bottom || last.Y != to.top || first.X < from.left || first.X > from.right || last.X < to.left || last.X > to.right {
				t.Fatalf("edge %v runs from %v to %v, beside %v and %v", e, first, last, from, to)
			}
		}
	})
}

func TestEdgesPassNoBox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := some(t)
		l := lay(t, g)
		for i, e := range g.Edges {
			points := l.Routes[i].Points
			for k := 1; k < len(points); k++ {
				a, b := points[k-1], points[k]
				for n, box := range rects(g, l) {
					if n == e.From || n == e.To || max(a.Y, b.Y) <= box.top || min(a.Y, b.Y) >= box.bottom {
						continue
					}
					if a.X != b.X || a.X > box.left && a.X < box.right {
						t.Fatalf("edge %v passes box %d at %v between %v and %v", e, n, box, a, b)
					}
				}
			}
		}
	})
}

func TestOneGraphHasOneLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := some(t)
		if a, b := lay(t, g), lay(t, g); !reflect.DeepEqual(a, b) {
			t.Fatalf("two layouts of one graph: %v and %v", a, b)
		}
	})
}

func TestOnlyCirclesRunBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := some(t)
		for i, e := range g.Edges {
			g.Edges[i] = Edge{min(e.From, e.To), max(e.From, e.To)} // no circle is possible
		}
		for i, r := range lay(t, g).Routes {
			if r.Back {
				t.Fatalf("edge %v is turned around, and there is no circle", g.Edges[i])
			}
		}
	})
}

func TestShapes(t *testing.T) {
	box := Box{100, 40}
	row := DefaultSpacing.Rows + box.H
	tests := map[string]struct {
		g    Graph
		want []Point
	}{
		"nothing":                     {Graph{}, []Point{}},
		"one box":                     {Graph{Boxes: []Box{box}}, []Point{{0, 0}}},
		"a chain is a column":         {Graph{Boxes: []Box{box, box, box}, Edges: []Edge{{0, 1}, {1, 2}}}, []Point{{0, 0}, {0, row}, {0, 2 * row}}},
		"a fork stands in the middle": {Graph{Boxes: []Box{box, box, box}, Edges: []Edge{{0, 1}, {0, 2}}}, []Point{{62, 0}, {0, row}, {124, row}}},
		"what crosses changes sides":  {Graph{Boxes: []Box{box, box, box, box}, Edges: []Edge{{0, 3}, {1, 2}}}, []Point{{0, 0}, {124, 0}, {124, row}, {0, row}}},
		"a source stands near its use": {Graph{Boxes: []Box{box, box, box, box}, Edges: []Edge{{0, 1}, {1, 2}, {3, 2}}},
			[]Point{{0, 0}, {0, row}, {62, 2 * row}, {124, row}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := lay(t, test.g).Places; !reflect.DeepEqual(got, test.want) {
				t.Errorf("Places = %v, want %v", got, test.want)
			}
		})
	}
}

func TestWideRowsAreSpread(t *testing.T) {
	g := Graph{Boxes: []Box{{100, 40}}}
	for i := range 199 {
		g.Boxes = append(g.Boxes, Box{100, 40})
		g.Edges = append(g.Edges, Edge{0, i + 1})
	}
	if l := lay(t, g); l.W > 20*124 {
		t.Errorf("a hub with 199 boxes is %d wide, want no more than 20 boxes", l.W)
	}
}

func TestWhatCannotBeLaidOut(t *testing.T) {
	if _, err := Lay(Graph{Boxes: make([]Box, Ceiling+1)}, DefaultSpacing); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Lay() of too many boxes = %v, want ErrTooLarge", err)
	}
	if _, err := Lay(Graph{Boxes: make([]Box, 1), Edges: make([]Edge, maxEdges+1)}, DefaultSpacing); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Lay() of too many edges = %v, want ErrTooLarge", err)
	}
	for _, e := range []Edge{{0, 1}, {-1, 0}} {
		if _, err := Lay(Graph{Boxes: make([]Box, 1), Edges: []Edge{e}}, DefaultSpacing); err == nil {
			t.Errorf("Lay() of an edge to nowhere (%v) succeeds", e)
		}
	}
}

// large is a graph as estates have them: most things need a few others.
func large(edges int) Graph {
	r := rand.New(rand.NewPCG(1, 2))
	g := Graph{Boxes: make([]Box, Ceiling)}
	for i := range g.Boxes {
		g.Boxes[i] = Box{190, 44}
	}
	for range edges {
		to := 1 + r.IntN(Ceiling-1)
		g.Edges = append(g.Edges, Edge{r.IntN(to), to})
	}
	return g
}

func TestTheLargestGraphTakesNoTime(t *testing.T) {
	for _, edges := range []int{1500, maxEdges} {
		start := time.Now()
		l := lay(t, large(edges))
		if took := time.Since(start); took > time.Minute { // goal: 300 ms; machines that test are busy
			t.Errorf("%d boxes and %d edges took %s", Ceiling, edges, took)
		}
		t.Logf("%d edges: %dx%d", edges, l.W, l.H)
	}
}

func BenchmarkLay(b *testing.B) {
	g := large(1500)
	for b.Loop() {
		if _, err := Lay(g, DefaultSpacing); err != nil {
			b.Fatal(err)
		}
	}
}
