package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// slowValue is a value of which nothing more is read until it is let through.
type slowValue struct {
	io.Reader
	begun, open chan struct{}
}

func (s *slowValue) Read(p []byte) (int, error) {
	select {
	case <-s.begun:
	default:
		close(s.begun)
	}
	<-s.open
	return s.Reader.Read(p)
}

// slowWrite is a write that goes on.
type slowWrite struct {
	*slowValue
	done chan error
	last time.Time // when it has arrived at the latest; zero while its controller lives
}

// begins has a controller write a record slowly.
func begins(ctx context.Context, c *Records, key string) *slowWrite {
	w := &slowWrite{slowValue: &slowValue{strings.NewReader("slow"), make(chan struct{}), make(chan struct{})}, done: make(chan error, 1)}
	go func() { w.done <- c.Put(ctx, key, w.slowValue) }()
	<-w.begun
	return w
}

func (w *slowWrite) arrive(t *testing.T) {
	t.Helper()
	close(w.open)
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
}

// learn has a controller read the keys.
func learn(t *testing.T, r *ring, letter string) {
	t.Helper()
	key, err := blob.NewKey(bytes.Repeat([]byte(letter), 32))
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprint(strings.Index("abc", letter))
	r.known[name], r.keys[key.ID()] = entry{key: key}, key
	r.newest = max(r.newest, name)
}

// older lists the records that another key than that of the letter encrypts.
func older(t *testing.T, files blob.Versions, letter string) (found []string) {
	t.Helper()
	all, err := files.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	only := openedWith(files, keysOf(t, letter))
	for _, key := range all {
		if strings.HasPrefix(key, record.Witnesses()) {
			continue
		}
		if _, err := record.Read(t.Context(), only, key); fault.Reason(err, "") == blob.KeyUnknown {
			found = append(found, key)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// Whatever controllers write with the key that they know, when they learn of a newer one, how long
// their writes take, and when they end: once the leader says that all records are encrypted with
// the newest key, none is left that another one encrypts, and none comes.
func TestNoRecordOfAnOlderKeyIsLeft(t *testing.T) {
	ended := 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		files, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
		leader := openedWith(files, keysOf(t, "ab"))
		leader.now = func() time.Time { return now }
		others, slow := map[string]*Records{}, map[string][]*slowWrite{}
		var dead []*slowWrite
		for _, id := range []string{"x", "y", "z"} {
			others[id] = openedWith(files, keysOf(t, "a"))
		}
		writers := func(context.Context) (map[string]string, error) {
			keys := map[string]string{}
			for id, c := range others {
				keys[id] = c.Sealing()
			}
			return keys, nil
		}
		for step := range 120 {
			ids := make([]string, 0, len(others))
			for id := range others {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			who := "none"
			if len(ids) > 0 {
				who = ids[random.IntN(len(ids))]
			}
			key := keyOf(random.IntN(8))
			switch n := random.IntN(12); {
			case n < 3 && others[who] != nil:
				if err := record.Write(t.Context(), others[who], key, []byte("quick")); err != nil {
					t.Fatal(err)
				}
			case n < 5 && others[who] != nil:
				slow[who] = append(slow[who], begins(t.Context(), others[who], key))
			case n < 6 && len(slow[who]) > 0:
				slow[who][0].arrive(t)
				slow[who] = slow[who][1:]
			case n < 7 && others[who] != nil && step > 30:
				learn(t, others[who].keys, "b")
			case n == 7 && others[who] != nil && step > 60: // it ends, and what it sent arrives late
				delete(others, who)
				for _, w := range slow[who] {
					w.last = now.Add(arrives)
					dead = append(dead, w)
				}
				delete(slow, who)
			case n < 10:
				now = now.Add(arrives / 3)
				for len(dead) > 0 && !dead[0].last.After(now) {
					dead[0].arrive(t)
					dead = dead[1:]
				}
			default:
				err := (rotation{leader}).resealOnce(t.Context(), slog.New(slog.DiscardHandler), writers)
				if err != nil && fault.Reason(err, "") != ReasonOlderKeys {
					t.Fatal(err)
				}
			}
			if leader.noted().Certain.IsZero() {
				continue
			}
			if left := older(t, files, "b"); len(left) > 0 {
				t.Fatalf("seed %d, step %d: an older key encrypts %v", seed, step, left)
			}
			ended++
		}
		for _, w := range append(dead, slices.Concat(slow["x"], slow["y"], slow["z"])...) {
			w.arrive(t)
		}
		if err := files.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if ended == 0 {
		t.Error("no rotation came to its end")
	}
}

// What stands in the way of the end of a rotation has a name.
func TestWhoStillHasAnOlderKeyIsNamed(t *testing.T) {
	files, _ := filled(t)
	r := openedWith(files, keysOf(t, "ab"))
	now := r.now()
	r.now = func() time.Time { return now }
	keys := map[string]string{}
	writers := func(context.Context) (map[string]string, error) { return keys, nil }
	said := func() string {
		t.Helper()
		err := (rotation{r}).resealOnce(t.Context(), slog.New(slog.DiscardHandler), writers)
		if err == nil {
			return ""
		}
		if fault.Reason(err, "") != ReasonOlderKeys || r.ToReseal() == 0 {
			t.Errorf("resealOnce() = %v with %d records left", err, r.ToReseal())
		}
		return err.Error()
	}
	old := openedWith(files, keysOf(t, "a"))
	for _, tt := range []struct{ key, want string }{{old.Sealing(), "pod-1 with " + old.Sealing()}, {"", "pod-1 does not say"}} {
		keys = map[string]string{"pod-1": tt.key}
		if got := said(); !strings.Contains(got, tt.want) {
			t.Errorf("it says %q, want %q", got, tt.want)
		}
	}
	keys = map[string]string{"pod-1": r.Sealing()}
	if got := said(); !strings.Contains(got, "may arrive for 10m") {
		t.Errorf("it says %q", got)
	}
	now = now.Add(arrives - time.Second)
	keys["pod-2"] = old.Sealing() // all of it is waited for once more
	if got := said(); !strings.Contains(got, "pod-2") {
		t.Errorf("it says %q", got)
	}
	now = now.Add(arrives)
	delete(keys, "pod-2")
	if got := said(); !strings.Contains(got, "may arrive") {
		t.Errorf("it says %q", got)
	}
	now = now.Add(arrives)
	if got := said(); got != "" || r.ToReseal() != 0 {
		t.Errorf("it says %q with %d records left", got, r.ToReseal())
	}
}
