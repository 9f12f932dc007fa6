package controller

import (
	"cmp"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Priorities of runs: what is half done or takes something down goes first,
// what nobody waits for goes last.
const (
	first = iota // apply, destroy
	asked        // a person asked
	changed
	idle // drift
)

func priority(kind stack.RunKind, cause stack.Cause) int {
	switch {
	case kind.Writes():
		return first
	case cause.Request != "":
		return asked
	case kind == stack.CheckRun:
		return idle
	default:
		return changed
	}
}

// queue admits runs up to a limit: by priority, among equals the namespace
// with the fewest runs at work, then in the order of asking.
type queue struct {
	limit int
	wake  func(types.NamespacedName) // must not call back into the queue

	mu      sync.Mutex
	turn    uint64
	working map[types.NamespacedName]bool
	waiting map[types.NamespacedName]place
}

type place struct {
	priority int
	turn     uint64
}

func newQueue(limit int, wake func(types.NamespacedName)) *queue {
	return &queue{limit: limit, wake: wake, working: map[types.NamespacedName]bool{}, waiting: map[types.NamespacedName]place{}}
}

// admit lets a stack start a run, or says what it waits for. A stack that
// waits is woken when it is its turn.
func (q *queue) admit(key types.NamespacedName, priority int) (why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.working[key] {
		return ""
	}
	if w, ok := q.waiting[key]; !ok || w.priority != priority {
		q.turn++
		q.waiting[key] = place{priority, q.turn}
	}
	if len(q.working) < q.limit {
		if next, _ := q.next(); next == key {
			delete(q.waiting, key)
			q.working[key] = true
			q.call() // there may be room for one more
			return ""
		}
		q.call()
	}
	return fmt.Sprintf("Waiting for a free slot: %d runs are at work", len(q.working))
}

// took counts a run that was found at work.
func (q *queue) took(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.working[key] = true
	delete(q.waiting, key)
}

// leave frees the slot or the place of a stack that does not run, or no longer
// wants to.
func (q *queue) leave(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waited := q.waiting[key]
	if !q.working[key] && !waited {
		return
	}
	delete(q.working, key)
	delete(q.waiting, key)
	q.call()
}

// call wakes whose turn it is, if there is room.
func (q *queue) call() {
	if len(q.working) >= q.limit {
		return
	}
	if next, ok := q.next(); ok {
		q.wake(next)
	}
}

// next is whose turn it is.
func (q *queue) next() (types.NamespacedName, bool) {
	busy := map[string]int{}
	for key := range q.working {
		busy[key.Namespace]++
	}
	var best types.NamespacedName
	found := false
	for key, w := range q.waiting {
		b := q.waiting[best]
		if !found || cmp.Or(
			cmp.Compare(w.priority, b.priority),
			cmp.Compare(busy[key.Namespace], busy[best.Namespace]),
			cmp.Compare(w.turn, b.turn)) < 0 {
			best, found = key, true
		}
	}
	return best, found
}
