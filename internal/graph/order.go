package graph

import (
	"cmp"
	"slices"
)

// work is a graph on its way to a layout. Where an edge passes a row it has a
// joint there, which edges from the same box share.
type work struct {
	boxes int // nodes below this number are boxes, the others joints
	size  []Box
	rows  [][]int // the nodes of each row from left to right
	row   []int   // of each node
	into  [][]int // nodes in the row above
	out   [][]int // nodes in the row below
	trunk []map[int]int
	x     []float64 // of each node's centre, see place
}

// maxJoints bounds the joints. Edges that would need more are drawn straight.
const maxJoints = 20 * Ceiling

// build puts boxes into their rows, in the order in which a walk down the
// edges meets them, and joints where edges pass rows.
func build(g Graph, down []Edge, rank []int) *work {
	w := &work{boxes: len(g.Boxes), size: slices.Clone(g.Boxes), row: slices.Clone(rank)}
	for _, r := range rank {
		for r >= len(w.rows) {
			w.rows = append(w.rows, nil)
		}
	}
	w.into, w.out = make([][]int, w.boxes), make([][]int, w.boxes)
	w.trunk = make([]map[int]int, w.boxes)
	short := make([]int, 0, len(down))
	for i, e := range down {
		if e.From != e.To {
			short = append(short, i)
		}
	}
	slices.SortStableFunc(short, func(a, b int) int {
		return cmp.Compare(rank[down[a].To]-rank[down[a].From], rank[down[b].To]-rank[down[b].From])
	})
	for _, i := range short {
		w.join(down[i])
	}
	for _, list := range w.out {
		w.centre(list)
	}
	w.fill()
	return w
}

// join connects the boxes of an edge from row to row.
func (w *work) join(e Edge) {
	at := e.From
	if len(w.row)-w.boxes+w.row[e.To]-w.row[e.From] > maxJoints {
		return
	}
	for r := w.row[e.From] + 1; r < w.row[e.To]; r++ {
		at = w.joint(e.From, at, r)
	}
	if !slices.Contains(w.out[at], e.To) {
		w.link(at, e.To)
	}
}

func (w *work) link(from, to int) {
	w.out[from] = append(w.out[from], to)
	w.into[to] = append(w.into[to], from)
}

// joint is where edges from a box pass a row; they come there from at.
func (w *work) joint(box, at, row int) int {
	if j, ok := w.trunk[box][row]; ok {
		return j
	}
	j := len(w.row)
	w.row = append(w.row, row)
	w.size = append(w.size, Box{})
	w.into, w.out = append(w.into, nil), append(w.out, nil)
	if w.trunk[box] == nil {
		w.trunk[box] = map[int]int{}
	}
	w.trunk[box][row] = j
	w.link(at, j)
	return j
}

// centre puts joints into the middle of a list that may have any order, so that
// a trunk runs down the middle of what hangs on it.
func (w *work) centre(list []int) {
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(one(a >= w.boxes), one(b >= w.boxes)) })
	joints := 0
	for _, v := range list {
		joints += one(v >= w.boxes)
	}
	half := (len(list) - joints) / 2
	right := slices.Clone(list[half : len(list)-joints])
	copy(list[half:], list[len(list)-joints:])
	copy(list[half+joints:], right)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fill puts every node into its row, those beside each other that are met one
// after the other on the way down.
func (w *work) fill() {
	seen := make([]bool, len(w.row))
	var stack []int
	for root := range w.row {
		if len(w.into[root]) > 0 {
			continue
		}
		stack = append(stack[:0], root)
		for len(stack) > 0 {
			v := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[v] {
				continue
			}
			seen[v] = true
			w.rows[w.row[v]] = append(w.rows[w.row[v]], v)
			for _, to := range slices.Backward(w.out[v]) {
				stack = append(stack, to)
			}
		}
	}
}

// sweeps is how often rows are put in order; more changes next to nothing.
const sweeps = 12

// order puts the nodes of each row near what they are connected to, which is
// what makes edges cross less, and keeps the best order that it met.
func (w *work) order() {
	best, fewest := w.snapshot(), w.crossings()
	for i := range sweeps {
		if fewest == 0 {
			return
		}
		w.sweep(i%2 == 0)
		if n := w.crossings(); n < fewest {
			best, fewest = w.snapshot(), n
		}
	}
	w.rows = best
}

func (w *work) snapshot() [][]int {
	out := make([][]int, len(w.rows))
	for i, r := range w.rows {
		out[i] = slices.Clone(r)
	}
	return out
}

// sweep goes through the rows downwards or upwards and puts each in the order
// of the places of its neighbours in the row before.
func (w *work) sweep(down bool) {
	place := make([]float64, len(w.row))
	note := func(row []int) {
		for i, v := range row {
			place[v] = float64(i)
		}
	}
	for i := range w.rows {
		row, near := w.rows[i], w.into
		if !down {
			row, near = w.rows[len(w.rows)-1-i], w.out
		}
		note(row)
		wanted := make(map[int]float64, len(row))
		for _, v := range row {
			wanted[v] = place[v]
			if len(near[v]) > 0 {
				sum := 0.0
				for _, u := range near[v] {
					sum += place[u]
				}
				wanted[v] = sum / float64(len(near[v]))
			}
		}
		slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(wanted[a], wanted[b]) })
		for from := 0; from < len(row); {
			to := from + 1
			for to < len(row) && wanted[row[to]] == wanted[row[from]] {
				to++
			}
			w.centre(row[from:to])
			from = to
		}
		note(row)
	}
}

// crossings counts how often edges cross.
func (w *work) crossings() int {
	total := 0
	place := make([]int, len(w.row))
	for i := range len(w.rows) - 1 {
		below := w.rows[i+1]
		for k, v := range below {
			place[v] = k
		}
		// Of the ends of edges that were met before, those further to the right
		// belong to edges that cross: a tree of sums counts them.
		tree := make([]int, len(below)+1)
		met := 0
		for _, v := range w.rows[i] {
			for _, to := range w.out[v] {
				total += met - sum(tree, place[to]+1)
			}
			for _, to := range w.out[v] {
				add(tree, place[to]+1)
				met++
			}
		}
	}
	return total
}

func sum(tree []int, i int) (n int) {
	for ; i > 0; i -= i & -i {
		n += tree[i]
	}
	return n
}

func add(tree []int, i int) {
	for ; i < len(tree); i += i & -i {
		tree[i]++
	}
}
