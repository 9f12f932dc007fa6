package cache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMapKeepsWhatWasUsedLast(t *testing.T) {
	m := cache.Map[string, int]{Size: 2}
	m.Put("a", 1)
	m.Put("b", 2)
	m.Get("a")
	m.Put("c", 3)
	want(t, &m, map[string]int{"a": 1, "c": 3}, "b")
	if got := m.Len(); got != 2 {
		t.Errorf("Len() = %d, want 2", got)
	}
	m.Put("a", 4)
	want(t, &m, map[string]int{"a": 4, "c": 3})
}

func TestMapHasADefaultSize(t *testing.T) {
	var m cache.Map[int, int]
	for i := range 2 * cache.DefaultSize {
		m.Put(i, i)
	}
	if got := m.Len(); got != cache.DefaultSize {
		t.Errorf("Len() = %d, want %d", got, cache.DefaultSize)
	}
}

func TestMapEntriesExpire(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := cache.Map[string, int]{TTL: time.Minute, Now: func() time.Time { return now }}
	m.Put("a", 1)
	m.PutUntil("long", 2, now.Add(time.Hour))
	m.PutUntil("ever", 3, time.Time{})
	now = now.Add(time.Minute - 1)
	want(t, &m, map[string]int{"a": 1, "long": 2, "ever": 3})
	now = now.Add(1)
	want(t, &m, map[string]int{"long": 2, "ever": 3}, "a")
	if got := m.Len(); got != 2 {
		t.Errorf("Len() = %d, want 2: an expired entry goes when it is asked for", got)
	}
}

func TestMapIsBoundedByWeight(t *testing.T) {
	m := cache.Map[string, string]{Weight: 10, Weigh: func(k, v string) int { return len(v) }}
	m.Put("a", "1234")
	m.Put("b", "1234")
	m.Put("c", "123")
	want(t, &m, map[string]string{"b": "1234", "c": "123"}, "a")
	m.Put("c", "12345678901")
	want(t, &m, map[string]string{"b": "1234"}, "c")
	m.Put("d", "123456")
	want(t, &m, map[string]string{"b": "1234", "d": "123456"})
}

func TestMapIsBoundedByGroup(t *testing.T) {
	m := cache.Map[string, string]{
		Weight: 100, Weigh: func(k, v string) int { return len(v) },
		GroupWeight: 10, Group: func(k string) string { return k[:1] },
	}
	m.Put("b1", "1234")
	for i := range 100 {
		m.Put(fmt.Sprintf("a%d", i), "1234")
	}
	m.Put("a-big", "12345678901")
	want(t, &m, map[string]string{"b1": "1234", "a98": "1234", "a99": "1234"}, "a97", "a-big")
	m.Delete("a98")
	m.Put("a1", "123456")
	want(t, &m, map[string]string{"b1": "1234", "a99": "1234", "a1": "123456"})
}

func TestMapTellsWhatLeaves(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var left []string
	m := cache.Map[string, int]{Size: 2, Now: func() time.Time { return now }, Dropped: func(k string, v int) { left = append(left, fmt.Sprint(k, v)) }}
	m.Put("a", 1)
	m.Put("a", 2)
	m.Put("b", 3)
	m.Put("c", 4)
	m.Delete("b")
	m.PutUntil("d", 5, now.Add(time.Minute))
	m.DropExpired()
	now = now.Add(time.Minute)
	m.DropExpired()
	if diff := cmp.Diff([]string{"a1", "a2", "b3", "d5"}, left); diff != "" || m.Len() != 1 {
		t.Errorf("%d stay, and what left is (-want +got):\n%s", m.Len(), diff)
	}
}

func TestMapDeletes(t *testing.T) {
	var m cache.Map[string, int]
	for i, k := range []string{"a", "b", "c", "d"} {
		m.Put(k, i)
	}
	m.Delete("a")
	m.DeleteFunc(func(k string, v int) bool { return k == "b" || v == 3 })
	want(t, &m, map[string]int{"c": 2}, "a", "b", "d")
}

func TestLoadAsksOnceForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m cache.Map[string, int]
		calls, answer := 0, make(chan int)
		load := func(context.Context) (int, error) { calls++; return <-answer, nil }
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if got, err := m.Load(t.Context(), "a", load); got != 7 || err != nil {
					t.Errorf("Load() = %d, %v, want 7", got, err)
				}
			})
		}
		synctest.Wait()
		answer <- 7
		all.Wait()
		if got, err := m.Load(t.Context(), "a", load); got != 7 || err != nil {
			t.Errorf("Load() = %d, %v, want what is kept", got, err)
		}
		if calls != 1 {
			t.Errorf("load was called %d times, want once", calls)
		}
	})
}

func TestLoadCountsTimeFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := cache.Map[string, int]{TTL: time.Minute, Now: time.Now}
		if _, err := m.Load(t.Context(), "a", func(context.Context) (int, error) {
			<-time.After(50 * time.Second)
			return 1, nil
		}); err != nil {
			t.Fatal(err)
		}
		want(t, &m, map[string]int{"a": 1})
		<-time.After(10 * time.Second)
		want(t, &m, nil, "a")
	})
}

func TestLoadKeepsNoError(t *testing.T) {
	var m cache.Map[string, int]
	down := errors.New("down")
	if _, err := m.Load(t.Context(), "a", func(context.Context) (int, error) { return 1, down }); !errors.Is(err, down) {
		t.Fatalf("Load() = %v, want %v", err, down)
	}
	if got, err := m.Load(t.Context(), "a", func(context.Context) (int, error) { return 2, nil }); got != 2 || err != nil {
		t.Errorf("Load() = %d, %v, want 2", got, err)
	}
}

func TestACallerMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m cache.Map[string, int]
		gone := errors.New("gone")
		ctx, leave := context.WithCancelCause(t.Context())
		answer := make(chan int)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := m.Load(ctx, "a", func(ctx context.Context) (int, error) {
				select {
				case n := <-answer:
					return n, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}); !errors.Is(err, gone) {
				t.Errorf("Load() = %v, want %v", err, gone)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if got, err := m.Load(t.Context(), "a", nil); got != 7 || err != nil {
				t.Errorf("Load() = %d, %v, want 7", got, err)
			}
		})
		synctest.Wait()
		leave(gone)
		synctest.Wait()
		answer <- 7
		all.Wait()
	})
}

func TestDeleteEndsWhatWasLoaded(t *testing.T) {
	for name, del := range map[string]func(*cache.Map[string, int]){
		"by key":      func(m *cache.Map[string, int]) { m.Delete("a") },
		"by function": func(m *cache.Map[string, int]) { m.DeleteFunc(func(string, int) bool { return false }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m cache.Map[string, int]
				old := make(chan int)
				var all sync.WaitGroup
				all.Go(func() {
					if got, err := m.Load(t.Context(), "a", func(context.Context) (int, error) { return <-old, nil }); got != 1 || err != nil {
						t.Errorf("Load() = %d, %v, want 1", got, err)
					}
				})
				synctest.Wait()
				del(&m)
				if got, err := m.Load(t.Context(), "a", func(context.Context) (int, error) { return 2, nil }); got != 2 || err != nil {
					t.Errorf("Load() = %d, %v after the deletion, want 2", got, err)
				}
				old <- 1
				all.Wait()
				want(t, &m, map[string]int{"a": 2})
			})
		})
	}
}

func TestAPanicReachesEveryCaller(t *testing.T) {
	var f cache.Flight[string, int]
	defer func() {
		if got := recover(); got != "broken" {
			t.Errorf("recover() = %v, want broken", got)
		}
		if got, err := f.Do(t.Context(), "a", func(context.Context) (int, error) { return 1, nil }); got != 1 || err != nil {
			t.Errorf("Do() = %d, %v after a panic, want 1", got, err)
		}
	}()
	_, _ = f.Do(t.Context(), "a", func(context.Context) (int, error) { panic("broken") })
}

func TestManyAtOnce(t *testing.T) {
	m := cache.Map[string, int]{Size: 8}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 200 {
				key := fmt.Sprint((i + j) % 12)
				v, err := m.Load(t.Context(), key, func(context.Context) (int, error) { return len(key), nil })
				if v != len(key) || err != nil {
					t.Errorf("Load(%s) = %d, %v, want %d", key, v, err, len(key))
				}
				if j%7 == 0 {
					m.Delete(key)
				}
			}
		})
	}
	all.Wait()
	if got := m.Len(); got > 8 {
		t.Errorf("Len() = %d, want at most 8", got)
	}
}

// want checks which entries a map has, and which it has not.
func want[V comparable](t *testing.T, m *cache.Map[string, V], have map[string]V, gone ...string) {
	t.Helper()
	for k, w := range have {
		if got, ok := m.Get(k); !ok || got != w {
			t.Errorf("Get(%s) = %v, %v, want %v", k, got, ok, w)
		}
	}
	for _, k := range gone {
		if got, ok := m.Get(k); ok {
			t.Errorf("Get(%s) = %v, want nothing", k, got)
		}
	}
}
