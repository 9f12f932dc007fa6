package graph

import (
	"math"
	"slices"
)

// passes is how often nodes are moved towards their neighbours.
const passes = 10

// place finds the x of every node: as near to its neighbours as the order of
// its row and the room between nodes allow.
func (w *work) place(s Spacing) {
	w.x = make([]float64, len(w.row))
	for _, row := range w.rows {
		at := 0.0
		for i, v := range row {
			if i > 0 {
				at += w.apart(row[i-1], v, s)
			}
			w.x[v] = at
		}
	}
	for i := range passes {
		for k := range w.rows {
			row := w.rows[k]
			if i%2 == 1 {
				row = w.rows[len(w.rows)-1-k]
			}
			w.settle(row, s)
		}
	}
}

// apart is how far the centres of two nodes side by side have to be apart.
func (w *work) apart(a, b int, s Spacing) float64 {
	gap := s.Boxes
	if a >= w.boxes || b >= w.boxes {
		gap = s.Edges
	}
	return float64(w.size[a].W+w.size[b].W)/2 + float64(gap)
}

// settle moves the nodes of a row as near to where their neighbours want them
// as their order allows, by least squares. With the room that has to be between
// them taken off, that is the regression of the wanted places by values that
// never fall; neighbours that fall are pooled until none does.
func (w *work) settle(row []int, s Spacing) {
	type pool struct {
		sum, weight float64
		nodes       int
	}
	pools := make([]pool, 0, len(row))
	room := 0.0
	for i, v := range row {
		if i > 0 {
			room += w.apart(row[i-1], v, s)
		}
		at, weight := w.wanted(v)
		pools = append(pools, pool{(at - room) * weight, weight, 1})
		for n := len(pools); n > 1 && pools[n-2].sum*pools[n-1].weight > pools[n-1].sum*pools[n-2].weight; n-- {
			pools[n-2].sum += pools[n-1].sum
			pools[n-2].weight += pools[n-1].weight
			pools[n-2].nodes += pools[n-1].nodes
			pools = pools[:n-1]
		}
	}
	i, room := 0, 0.0
	for _, p := range pools {
		for range p.nodes {
			if i > 0 {
				room += w.apart(row[i-1], row[i], s)
			}
			w.x[row[i]] = p.sum/p.weight + room
			i++
		}
	}
}

// straight is how much more it matters that an edge runs straight down through
// rows than that a box stands near its neighbours.
const straight = 8

// wanted is where the neighbours of v want it, and how much that counts. What
// has no neighbours wants to stay.
func (w *work) wanted(v int) (at, weight float64) {
	for _, side := range [][]int{w.into[v], w.out[v]} {
		for _, u := range side {
			n := 1.0
			if v >= w.boxes && u >= w.boxes {
				n = straight
			}
			at += n * w.x[u]
			weight += n
		}
	}
	if weight == 0 {
		return w.x[v], 0.1
	}
	return at / weight, weight
}

// layout turns places into whole numbers and edges into points.
func (w *work) layout(g Graph, down []Edge, s Spacing) Layout {
	l := Layout{Places: make([]Point, len(g.Boxes)), Routes: make([]Route, len(g.Edges))}
	if len(g.Boxes) == 0 {
		return l
	}
	x := w.whole(s, &l)
	top, height := w.tops(s)
	for v, b := range g.Boxes {
		l.Places[v] = Point{x[v] - b.W/2, top[w.row[v]] + (height[w.row[v]]-b.H)/2}
	}
	last := len(top) - 1
	l.H = top[last] + height[last]
	for i, e := range down {
		if e.From == e.To {
			continue
		}
		points := []Point{{x[e.From], l.Places[e.From].Y + g.Boxes[e.From].H}}
		points = append(points, Point{x[e.From], top[w.row[e.From]] + height[w.row[e.From]]})
		for r := w.row[e.From] + 1; r < w.row[e.To]; r++ {
			if j, ok := w.trunk[e.From][r]; ok {
				points = append(points, Point{x[j], top[r]}, Point{x[j], top[r] + height[r]})
			}
		}
		points = append(points, Point{x[e.To], top[w.row[e.To]]}, Point{x[e.To], l.Places[e.To].Y})
		back := e != g.Edges[i]
		if back {
			slices.Reverse(points)
		}
		l.Routes[i] = Route{Points: points, Back: back}
	}
	return l
}

// whole is the x of every node in whole numbers from the left border on, with
// no less room between nodes than before.
func (w *work) whole(s Spacing, l *Layout) []int {
	left := math.Inf(1)
	for v, at := range w.x {
		left = min(left, at-float64(w.size[v].W)/2)
	}
	x := make([]int, len(w.x))
	for _, row := range w.rows {
		for i, v := range row {
			x[v] = int(math.Round(w.x[v] - left))
			if i > 0 {
				x[v] = max(x[v], x[row[i-1]]+int(math.Ceil(w.apart(row[i-1], v, s))))
			}
			x[v] = max(x[v], w.size[v].W/2)
			l.W = max(l.W, x[v]+(w.size[v].W+1)/2)
		}
	}
	return x
}

// tops is where each row begins and how high it is.
func (w *work) tops(s Spacing) (top, height []int) {
	top, height = make([]int, len(w.rows)), make([]int, len(w.rows))
	y := 0
	for i, row := range w.rows {
		for _, v := range row {
			height[i] = max(height[i], w.size[v].H)
		}
		top[i] = y
		y += height[i] + s.Rows
	}
	return top, height
}
