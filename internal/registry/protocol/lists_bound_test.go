package protocol

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What is kept of lists is bounded in bytes, a list that alone exceeds that is made for each
// request, and all who wait for one list share making it.
func TestKeptListsAreBounded(t *testing.T) {
	const bound = 100_000
	l := newLists(bound, time.Now)
	made := atomic.Int64{}
	get := func(what string, size int) *list {
		t.Helper()
		got, err := l.of(t.Context(), what, "1", func() (any, time.Time) {
			made.Add(1)
			return strings.Repeat("x", size), time.Time{}
		})
		if err != nil || len(got.plain) != size+2 || (got.packed != nil) != (size+2 >= packedFrom) {
			t.Fatalf("%s: %+v, %v", what, got, err)
		}
		return got
	}
	held := func() (n int) {
		for i := range 50 {
			if kept, ok := l.kept.Get(fmt.Sprint(i)); ok {
				n += len(kept.plain) + len(kept.packed)
			}
		}
		return n
	}
	for i := range 50 {
		get(fmt.Sprint(i), 20_000)
	}
	if n := held(); n > bound || n < bound/2 {
		t.Errorf("%d bytes are held, want at most %d, and not far below", n, bound)
	}
	made.Store(0)
	get("49", 20_000)
	if n := made.Load(); n != 0 {
		t.Errorf("a list that is kept was made %d times again", n)
	}
	for range 3 {
		get("large", 2*bound)
	}
	if n := made.Load(); n != 3 {
		t.Errorf("a list that is too large to be kept was made %d times for 3 requests", n)
	}
	if n := held(); n < bound/2 {
		t.Errorf("a list that is too large took the place of others: %d bytes are held", n)
	}
}

// All who wait for a list share making it. One that was made of an earlier edition, and is
// ready only after that of a later one, is not given to those who ask for the later one.
func TestAListIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, made := newLists(1<<20, time.Now), atomic.Int64{}
		slow := make(chan struct{})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				got, err := l.of(context.Background(), "a", "1", func() (any, time.Time) {
					made.Add(1)
					<-slow
					return "old", time.Time{}
				})
				if err != nil || string(got.plain) != `"old"` {
					t.Errorf("the list is %+v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		later := func() {
			t.Helper()
			got, err := l.of(context.Background(), "a", "2", func() (any, time.Time) { return "new", time.Time{} })
			if err != nil || string(got.plain) != `"new"` {
				t.Errorf("the later list is %+v, %v", got, err)
			}
		}
		later()
		close(slow)
		all.Wait()
		if n := made.Load(); n != 1 {
			t.Errorf("the list was made %d times for 20 who asked at once, want once", n)
		}
		later()
	})
}
