package graph

import (
	"cmp"
	"math"
	"slices"
)

// turned is the edges of g without circles: those that close one are turned
// around. The search goes through boxes and edges by number, so that it always
// finds the same ones.
func turned(g Graph) []Edge {
	next := make([][]int, len(g.Boxes))
	for i, e := range g.Edges {
		next[e.From] = append(next[e.From], i)
	}
	down := slices.Clone(g.Edges)
	const (
		unseen = iota
		open
		closed
	)
	state := make([]uint8, len(g.Boxes))
	tried := make([]int, len(g.Boxes)) // how many edges of a box were followed
	for root := range g.Boxes {
		if state[root] != unseen {
			continue
		}
		path := []int{root}
		state[root] = open
		for len(path) > 0 {
			at := path[len(path)-1]
			if tried[at] == len(next[at]) {
				state[at] = closed
				path = path[:len(path)-1]
				continue
			}
			i := next[at][tried[at]]
			tried[at]++
			switch to := g.Edges[i].To; state[to] {
			case unseen:
				state[to] = open
				path = append(path, to)
			case open:
				down[i] = Edge{From: to, To: at} // an edge from a box to itself stays what it is
			}
		}
	}
	return down
}

// ranks gives each of n boxes its row: below everything that leads to it, not
// further from that than it must be, and with no row wider than looks well.
func ranks(n int, down []Edge) []int {
	into, out := neighbours(n, down)
	order := sorted(n, into, out)
	rank := make([]int, n)
	for _, v := range order {
		for _, u := range into[v] {
			rank[v] = max(rank[v], rank[u]+1)
		}
	}
	tighten(order, rank, into, out)
	return narrowed(order, rank, into)
}

// neighbours lists for each box which lead to it and where it leads, without
// edges from a box to itself.
func neighbours(n int, edges []Edge) (into, out [][]int) {
	into, out = make([][]int, n), make([][]int, n)
	for _, e := range edges {
		if e.From != e.To {
			into[e.To] = append(into[e.To], e.From)
			out[e.From] = append(out[e.From], e.To)
		}
	}
	return into, out
}

// sorted lists the boxes so that every edge leads to a later one.
func sorted(n int, into, out [][]int) []int {
	missing := make([]int, n)
	order := make([]int, 0, n)
	for v := range n {
		if missing[v] = len(into[v]); missing[v] == 0 {
			order = append(order, v)
		}
	}
	for i := 0; i < len(order); i++ {
		for _, to := range out[order[i]] {
			if missing[to]--; missing[to] == 0 {
				order = append(order, to)
			}
		}
	}
	return order
}

// tighten moves boxes down as long as that makes edges shorter in sum.
func tighten(order, rank []int, into, out [][]int) {
	for i := len(order) - 1; i >= 0; i-- {
		v := order[i]
		if len(out[v]) <= len(into[v]) {
			continue // it would lengthen as many edges as it shortens
		}
		lowest := math.MaxInt
		for _, to := range out[v] {
			lowest = min(lowest, rank[to]-1)
		}
		rank[v] = lowest
	}
}

// narrowed spreads rows that are too wide over several.
func narrowed(order, rank []int, into [][]int) []int {
	widest := max(8, int(math.Ceil(1.2*math.Sqrt(float64(len(rank))))))
	order = slices.Clone(order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	out := make([]int, len(rank))
	var used []int
	for _, v := range order {
		row := rank[v]
		for _, u := range into[v] {
			row = max(row, out[u]+1)
		}
		for row < len(used) && used[row] >= widest {
			row++
		}
		for row >= len(used) {
			used = append(used, 0)
		}
		used[row]++
		out[v] = row
	}
	return out
}
