package controller

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func nn(ns, name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }

func TestQueueAdmits(t *testing.T) {
	type ask struct {
		key      types.NamespacedName
		priority int
	}
	for name, tt := range map[string]struct {
		limit int
		asks  []ask
		want  []string // in the order in which they get the one slot
	}{
		"in the order of asking": {1, []ask{{nn("a", "1"), changed}, {nn("a", "2"), changed}, {nn("a", "3"), changed}}, []string{"1", "2", "3"}},
		"an apply before a plan before drift": {1, []ask{{nn("a", "1"), changed}, {nn("a", "2"), idle}, {nn("a", "3"), changed}, {nn("a", "4"), first}},
			[]string{"1", "4", "3", "2"}},
		"fair over namespaces": {2, []ask{{nn("a", "1"), changed}, {nn("a", "2"), changed}, {nn("a", "3"), changed}, {nn("b", "4"), changed}},
			[]string{"1", "2", "4", "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			var woken, got []string
			q := newQueue(tt.limit, func(k types.NamespacedName) { woken = append(woken, k.Name) })
			asks := map[string]ask{}
			var running []types.NamespacedName
			try := func(a ask) {
				if q.admit(a.key, a.priority) == "" && !slices.Contains(got, a.key.Name) {
					got = append(got, a.key.Name)
					running = append(running, a.key)
				}
			}
			for _, a := range tt.asks {
				asks[a.key.Name] = a
				try(a)
			}
			for len(running) > 0 {
				woken = nil
				q.leave(running[0])
				running = running[1:]
				for _, name := range slices.Compact(woken) {
					try(asks[name])
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("admitted %v, want %v", got, tt.want)
			}
		})
	}
}

func TestQueueForgetsWhoLeaves(t *testing.T) {
	var woken []string
	q := newQueue(1, func(k types.NamespacedName) { woken = append(woken, k.Name) })
	q.admit(nn("a", "1"), changed)
	q.admit(nn("a", "gone"), changed)
	q.admit(nn("a", "2"), changed)
	q.leave(nn("a", "gone"))
	q.leave(nn("a", "1"))
	if !slices.Equal(woken, []string{"2"}) {
		t.Errorf("woken %v, want only the one that still waits", woken)
	}
	if why := q.admit(nn("a", "2"), changed); why != "" {
		t.Errorf("admit() = %q, want a slot", why)
	}
}
