package gitstate

import (
	"context"
	"sync"
)

// turns has callers that want the same thing go one after another. What has no caller any more is
// forgotten. Its zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

// turn is a thing that callers want: one of them has it.
type turn struct {
	free chan struct{} // holds one while it is free
	want int
}

// take waits for the turn. The caller has it until it calls done.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	t.mu.Lock()
	one := t.of[key]
	if one == nil {
		one = &turn{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		if t.of == nil {
			t.of = map[string]*turn{}
		}
		t.of[key] = one
	}
	one.want++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.want--; one.want == 0 {
			delete(t.of, key)
		}
	}
	select {
	case <-one.free:
		return func() { one.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
