package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// memory is a Copy that can fail.
type memory struct {
	segments map[string][]byte
	failing  error
}

func (m *memory) Segments(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(m.segments)), m.failing
}

func (m *memory) Load(_ context.Context, name string) ([]byte, error) {
	return slices.Clone(m.segments[name]), m.failing
}

func (m *memory) Save(_ context.Context, name string, content []byte) error {
	if m.failing == nil {
		m.segments[name] = slices.Clone(content)
	}
	return m.failing
}

func TestCopy(t *testing.T) {
	c := &memory{segments: map[string][]byte{}}
	open := func(dir string, with Copy) *Log {
		t.Helper()
		j, err := Open(dir, Options{Now: time.Now, SegmentBytes: 600, Copy: with})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		return j
	}
	record := func(j *Log, n int) {
		t.Helper()
		for i := range n {
			if err := j.Record(t.Context(), Entry{What: Applied, Why: fmt.Sprint("why ", i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	holds := func(j *Log, n int) {
		t.Helper()
		p, err := j.Read(Query{Limit: 100})
		if err != nil || len(p.Items) != n {
			t.Errorf("the log has %d entries, want %d (%v)", len(p.Items), n, err)
		}
		if r, err := j.Verify(); err != nil || r.Bad != nil {
			t.Errorf("the log is %+v (%v)", r.Bad, err)
		}
	}
	end := func(j *Log) {
		t.Helper()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")

	// A log that had no copy is copied; another process goes on with it, and the first
	// one after that.
	a := open(first, nil)
	record(a, 5)
	end(a)
	a = open(first, c)
	record(a, 4)
	end(a)
	b := open(second, c)
	holds(b, 9)
	record(b, 6)
	head := b.Head()
	end(b)
	a = open(first, c)
	holds(a, 15)
	if a.Head() != head {
		t.Errorf("the head is %v, want %v", a.Head(), head)
	}

	// An entry that was not copied is not recorded, and the next one is.
	c.failing = errors.New("out of reach")
	if err := a.Record(t.Context(), Entry{What: Applied}); !errors.Is(err, c.failing) {
		t.Errorf("Record() = %v, want %v", err, c.failing)
	}
	holds(a, 15)
	c.failing = nil
	record(a, 1)
	end(a)

	// A directory that went on without the copy wins.
	a = open(first, nil)
	record(a, 3)
	end(a)
	end(open(first, c))
	holds(open(second, c), 19)
}
