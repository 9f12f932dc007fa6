package audit

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Verify notices every change of the files of an audit log if it knows the head that
// is stored elsewhere.
func TestAnyTamperingIsNoticed(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 900)
	for i := range 24 {
		record(t, j, Entry{What: Planned, Who: fmt.Sprint("person-", i%3), Object: Object{Kind: "Terraform", Namespace: "apps", Name: fmt.Sprint("net-", i)}, Comment: "a <b> & ünïcode"})
	}
	head := j.Head()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole := files(t, dir)
	names := slices.Sorted(maps.Keys(whole))
	if len(names) < 4 {
		t.Fatalf("there are %d segments, want several", len(names))
	}
	rapid.Check(t, func(t *rapid.T) {
		changed := maps.Clone(whole)
		name := rapid.SampledFrom(names).Draw(t, "segment")
		text := bytes.Clone(whole[name])
		lines := bytes.SplitAfter(text, []byte("\n"))
		lines = lines[:len(lines)-1]
		at := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		how := rapid.SampledFrom([]string{"flip", "remove", "swap", "insert", "cut", "drop segment", "add segment", "cut segments", "empty"}).Draw(t, "how")
		switch how {
		case "flip":
			i := rapid.IntRange(0, len(text)-1).Draw(t, "byte")
			text[i] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
			changed[name] = text
		case "remove":
			changed[name] = bytes.Join(slices.Delete(lines, at, at+1), nil)
		case "swap":
			with := rapid.IntRange(0, len(lines)-1).Filter(func(i int) bool { return i != at || len(lines) == 1 }).Draw(t, "with")
			if with == at {
				t.Skip("there is one line")
			}
			lines[at], lines[with] = lines[with], lines[at]
			changed[name] = bytes.Join(lines, nil)
		case "insert":
			from := bytes.SplitAfter(whole[rapid.SampledFrom(names).Draw(t, "from")], []byte("\n"))
			changed[name] = bytes.Join(slices.Insert(lines, at, rapid.SampledFrom(from[:len(from)-1]).Draw(t, "inserted")), nil)
		case "cut":
			changed[name] = text[:rapid.IntRange(0, len(text)-1).Draw(t, "length")]
		case "drop segment":
			if name == names[0] {
				t.Skip("the oldest may be archived")
			}
			delete(changed, name)
		case "add segment":
			changed[segmentName(head.Seq+uint64(rapid.IntRange(2, 9).Draw(t, "beyond")))] = text
		case "cut segments":
			for _, n := range names {
				if n >= name {
					delete(changed, n)
				}
			}
		case "empty":
			changed[name] = nil
		}
		where := filepath.Join(dir, "changed")
		if err := os.RemoveAll(where); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(where, 0o700); err != nil {
			t.Fatal(err)
		}
		for n, text := range changed {
			if err := os.WriteFile(filepath.Join(where, n), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := Verify(where, head); err == nil && r.Bad == nil {
			t.Fatalf("%s of %s was not noticed", how, name)
		}
	})
}

// An audit log that was rewritten as a whole is consistent, but not the one whose
// head was stored.
func TestRewritingIsNoticed(t *testing.T) {
	write := func(who string) (string, Head) {
		dir := t.TempDir()
		j := open(t, dir, 500)
		for range 10 {
			record(t, j, Entry{What: Approved, Who: who})
		}
		return dir, j.Head()
	}
	_, head := write("ann")
	forged, other := write("bob")
	if r := sound(t, forged, other); r.Entries != 10 {
		t.Errorf("the forged audit log has %d entries, want 10", r.Entries)
	}
	r, err := Verify(forged, head)
	if err != nil || r.Bad == nil || r.Bad.Seq != 10 {
		t.Errorf("Verify() = %+v %v, want the entry of the kept head to be another", r, err)
	}
}

func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	names, err := segmentsIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, n := range names {
		if out[n], err = os.ReadFile(filepath.Join(dir, n)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
