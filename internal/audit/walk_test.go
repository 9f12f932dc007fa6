package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// walkedAuditLog is an audit log of several segments, and a walk that has read it
// all.
func walkedAuditLog(t *testing.T) (*Log, *Walk, []Head, []string) {
	t.Helper()
	j := open(t, t.TempDir(), 900)
	heads := []Head{{}}
	for i := range 24 {
		record(t, j, Entry{What: Planned, Object: Object{Kind: "Terraform", Namespace: "apps", Name: fmt.Sprint("net-", i)}})
		heads = append(heads, j.Head())
	}
	w := NewWalk(j)
	steps := 0
	for whole := false; !whole; steps++ {
		r, done, err := w.Step(1)
		if err != nil || r.Bad != nil {
			t.Fatal(r.Bad, err)
		}
		if !done && r.Head.Seq >= j.Head().Seq {
			t.Fatalf("%+v after %d steps, and not all of it", r, steps)
		}
		whole = done
	}
	names, err := segmentsIn(j.dir)
	if err != nil || len(names) < 4 || steps != len(names)-1 {
		t.Fatalf("%d steps through the segments %v (%v), want a step for each that is full", steps, names, err)
	}
	return j, w, heads, names
}

// step is one that reads whatever there is.
func step(t *testing.T, w *Walk, anchors ...Head) Report {
	t.Helper()
	r, whole, err := w.Step(1<<30, anchors...)
	if err != nil || !whole {
		t.Fatalf("%v, whole %v", err, whole)
	}
	return r
}

// A walk comes to what Verify comes to, and reads what is full once.
func TestWalkIsVerify(t *testing.T) {
	j, w, heads, _ := walkedAuditLog(t)
	record(t, j, Entry{What: Approved}, Entry{What: Applied})
	names, err := segmentsIn(j.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, anchors := range [][]Head{nil, {heads[2]}, {heads[24]}, {{Seq: 99, Hash: "x"}}} {
		want, err := j.Verify(anchors...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step(t, w, anchors...), want); diff != "" {
			t.Errorf("with the anchors %v (-walk +verify):\n%s", anchors, diff)
		}
	}
	if r := step(t, w, Head{Seq: 2, Hash: heads[3].Hash}); r.Bad == nil || !strings.Contains(r.Bad.What, "entry 2") {
		t.Errorf("an anchor of another entry: %+v", r.Bad)
	}
	if len(w.done) != len(names)-1 {
		t.Fatalf("%d segments count as read, want all of %d but the one that grows", len(w.done), len(names))
	}
	w.done[len(w.done)-1].then.Entries += 1000
	if r := step(t, w); r.Entries != 1026 {
		t.Errorf("%d entries, want what is full not to be read again", r.Entries)
	}
}

// Whatever is done to a segment after it was read, the next step says so.
func TestWalkNoticesChanges(t *testing.T) {
	for name, change := range map[string]func(path string, text []byte) error{
		"written over": func(path string, text []byte) error {
			return os.WriteFile(path, bytes.Replace(text, []byte("planned"), []byte("applied"), 1), 0o600)
		},
		"another file in its place": func(path string, text []byte) error {
			if err := os.WriteFile(path+".new", bytes.Replace(text, []byte("planned"), []byte("applied"), 1), 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"cut":     func(path string, text []byte) error { return os.Truncate(path, int64(len(text)-5)) },
		"removed": func(path string, _ []byte) error { return os.Remove(path) },
	} {
		t.Run(name, func(t *testing.T) {
			j, w, _, names := walkedAuditLog(t)
			path := filepath.Join(j.dir, names[1])
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := change(path, text); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); err == nil {
				// A file system tells times apart that are some milliseconds apart.
				if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			if r := step(t, w); r.Bad == nil {
				t.Errorf("it is found sound: %+v", r)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if r := step(t, w); r.Bad != nil || r.Entries != 24 {
				t.Errorf("as it was again, it is %+v", r)
			}
		})
	}
}

// Old segments may be archived under the eyes of a walk.
func TestWalkGoesOnWithoutTheArchived(t *testing.T) {
	j, w, heads, names := walkedAuditLog(t)
	for _, name := range names[:2] {
		if err := os.Remove(filepath.Join(j.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := firstOf(names[2])
	if r := step(t, w, heads[1]); r.Bad != nil || r.First != first || r.Entries != 24-first+1 {
		t.Errorf("%+v, want the entries from %d on", r, first)
	}
}
