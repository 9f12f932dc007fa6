// Package graph lays out directed graphs in layers: boxes in rows, so that
// what an edge leads to is below what it comes from, with few crossings. It is
// arithmetic only: the same graph has the same layout always and everywhere,
// and what boxes and edges mean, or how they are drawn, is no concern of it.
// Cycles finds what leads back to itself in a graph that changes.
//
// Start reading at Lay; its steps are in the files ranks.go, order.go and
// place.go, in this order.
package graph

import (
	"errors"
	"fmt"
)

// Ceiling is how many boxes a layout may have.
const Ceiling = 1000

// ErrTooLarge says that a graph has more than Ceiling boxes, or edges out of
// all proportion to that.
var ErrTooLarge = errors.New("the graph is too large to lay out")

// maxEdges bounds the edges of a graph.
const maxEdges = 8 * Ceiling

// Graph is what is laid out: boxes by their number, and edges between them.
type Graph struct {
	Boxes []Box
	Edges []Edge
}

// Box is the size of one box.
type Box struct{ W, H int }

// Edge leads from one box down to another.
type Edge struct{ From, To int }

// Point is a place; y grows downwards.
type Point struct{ X, Y int }

// Layout is where everything is.
type Layout struct {
	W, H   int
	Places []Point // of the upper left corner of each box
	Routes []Route // of each edge
}

// Route is how an edge runs. An edge that had to be turned around to break a
// circle runs upwards and is marked as Back; one from a box to itself has no
// points.
type Route struct {
	Points []Point // from the border of one box to that of the other, at least two
	Back   bool
}

// Spacing is how much room there is between things.
type Spacing struct {
	Boxes int // between boxes side by side
	Rows  int // between rows
	Edges int // between edges, and between an edge and a box
}

// DefaultSpacing suits boxes of a line or two of text.
var DefaultSpacing = Spacing{Boxes: 24, Rows: 56, Edges: 14}

// Lay lays out g.
func Lay(g Graph, s Spacing) (Layout, error) {
	if err := check(g); err != nil {
		return Layout{}, err
	}
	down := turned(g)
	w := build(g, down, ranks(len(g.Boxes), down))
	w.order()
	w.place(s)
	return w.layout(g, down, s), nil
}

func check(g Graph) error {
	if len(g.Boxes) > Ceiling || len(g.Edges) > maxEdges {
		return fmt.Errorf("%w: it has %d boxes and %d edges, and may have %d and %d", ErrTooLarge, len(g.Boxes), len(g.Edges), Ceiling, maxEdges)
	}
	for i, e := range g.Edges {
		if min(e.From, e.To) < 0 || max(e.From, e.To) >= len(g.Boxes) {
			return fmt.Errorf("edge %d leads from %d to %d, and there are %d boxes", i, e.From, e.To, len(g.Boxes))
		}
	}
	return nil
}
