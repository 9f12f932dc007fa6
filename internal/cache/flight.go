package cache

import (
	"context"
	"sync"
)

// Flight lets any number of callers share one call of a function. Its zero value
// is ready. It does what golang.org/x/sync/singleflight does, with keys and
// values of any type, and with callers that may leave.
type Flight[K comparable, V any] struct {
	mu    sync.Mutex
	calls map[K]*call[V]
}

type call[V any] struct {
	done     chan struct{}
	value    V
	err      error
	panicked any
}

// Do calls do once for all who ask for key until it returns, and gives them all
// the same answer. A caller whose ctx ends leaves with the cause of that; do goes
// on for the others and for those to come, so its own context has the values of
// the first caller's and no deadline: do sets one. A panic in do is one in every
// caller.
func (f *Flight[K, V]) Do(ctx context.Context, key K, do func(context.Context) (V, error)) (V, error) {
	f.mu.Lock()
	c, ok := f.calls[key]
	if !ok {
		c = &call[V]{done: make(chan struct{})}
		if f.calls == nil {
			f.calls = map[K]*call[V]{}
		}
		f.calls[key] = c
		go f.run(context.WithoutCancel(ctx), key, c, do)
	}
	f.mu.Unlock()
	select {
	case <-c.done:
		if c.panicked != nil {
			panic(c.panicked)
		}
		return c.value, c.err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

func (f *Flight[K, V]) run(ctx context.Context, key K, c *call[V], do func(context.Context) (V, error)) {
	defer func() {
		c.panicked = recover()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.calls[key] == c {
			delete(f.calls, key)
		}
		close(c.done)
	}()
	c.value, c.err = do(ctx)
}

// Forget makes the next caller for key call its own function, even while another
// call goes on.
func (f *Flight[K, V]) Forget(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.calls, key)
}

// ForgetAll is Forget for every key.
func (f *Flight[K, V]) ForgetAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.calls)
}
