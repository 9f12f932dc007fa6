package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// What is in the data directory comes along to a new place, once.
func TestRecordsAreBrought(t *testing.T) {
	l := newLab(t)
	volume := l.Records
	l.Records = ""
	before := l.must(t)
	put(t, before, outputs, "value")
	l.Records = volume
	after := l.must(t)
	if got := get(t.Context(), after, outputs); got != "value" {
		t.Errorf("the record is %q in its new place", got)
	}
	if !slices.ContainsFunc(l.said, func(s string) bool { return strings.HasPrefix(s, "copying") && strings.HasSuffix(s, ": 1") }) {
		t.Errorf("it said %q, want that records are copied", l.said)
	}
	put(t, after, outputs, "newer")
	if got := get(t.Context(), l.must(t), outputs); got != "newer" {
		t.Errorf("a restart brings back %q", got)
	}
}

// A copy that did not end goes on, and replaces nothing. One that has ended is the last:
// what is left in the data directory is old.
func TestRecordsAreBroughtOnce(t *testing.T) {
	l := newLab(t)
	volume := l.Records
	l.Records = ""
	before := l.must(t)
	put(t, before, outputs, "value")
	put(t, before, record.State("uid"), "state")
	put(t, before, "inventory/x", "of another program")

	l.Records = volume
	if err := os.WriteFile(l.Dir("records-moved.json"), []byte(`{"to":"`+volume+`","done":false}`), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := blob.LoadKey(l.Dir("secrets", "records"))
	if err != nil {
		t.Fatal(err)
	}
	l.Key = "file"
	to, err := blob.OpenFiles(volume, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	put(t, blob.Seal(to, key), outputs, "copied before")
	after := l.must(t)
	if a, b, c := get(t.Context(), after, outputs), get(t.Context(), after, record.State("uid")), get(t.Context(), to, "inventory/x"); a != "copied before" || b != "state" || c == "of another program" {
		t.Errorf("after a copy that went on the records are %q, %q, %q", a, b, c)
	}

	// The mark of the cluster goes, as in a bucket whose objects expire.
	put(t, after, outputs, "newer")
	if err := after.Delete(t.Context(), record.Marker().Key); err != nil {
		t.Fatal(err)
	}
	if got := get(t.Context(), l.must(t), outputs); got != "newer" {
		t.Errorf("without the mark a start brings back %q", got)
	}

	// The data directory, and a place that is new, have nothing to do with it.
	for what, records := range map[string]string{"the old copies": "", "another place": filepath.Join(t.TempDir(), "other")} {
		l.Records = records
		_, err := l.open(t)
		if fault.Reason(err, "") != store.ReasonMoved || !strings.Contains(fmt.Sprint(err), volume) || !strings.Contains(fmt.Sprint(err), "records-moved.json") {
			t.Errorf("Open() of %s = %v, want %s, the place and the file", what, err, store.ReasonMoved)
		}
	}
	if _, err := os.Stat(l.Dir("records")); err != nil {
		t.Errorf("the old copies: %v, want that they stay", err)
	}
}

// Records in both places are not mixed.
func TestRecordsInTwoPlaces(t *testing.T) {
	l := newLab(t)
	volume := l.must(t)
	put(t, volume, outputs, "newer")
	if err := volume.Delete(t.Context(), record.Marker().Key); err != nil {
		t.Fatal(err)
	}
	at := l.Records
	l.Records = ""
	put(t, l.must(t), outputs, "older")
	l.Records = at
	_, err := l.open(t)
	if fault.Reason(err, "") != store.ReasonMoved || !strings.Contains(fmt.Sprint(err), l.Dir("records")) {
		t.Errorf("Open() = %v, want %s and both places", err, store.ReasonMoved)
	}
	if got := get(t.Context(), volume, outputs); got != "newer" {
		t.Errorf("the record is %q, want that it stays", got)
	}
}

// The data directory may be sealed with the keys of the Secret. Records that no key opens
// are no reason to start without them.
func TestRecordsUnderTheSecretAreBrought(t *testing.T) {
	l := newLab(t)
	volume := l.Records
	l.Records, l.Key = "", "secret"
	put(t, l.must(t), outputs, "value")
	l.Records, l.Key = volume, "file"
	if _, err := l.open(t); fault.Reason(err, "") != store.ReasonKey || !strings.Contains(fmt.Sprint(err), "--records-key") {
		t.Errorf("Open() without the key of the data directory = %v, want %s", err, store.ReasonKey)
	}
	l.Key = "secret"
	l.Records = filepath.Join(t.TempDir(), "volume")
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("the record is %q in its new place", got)
	}
}

// What another program keeps in the place is no record: a new key may be made.
func TestAPlaceWithOtherObjects(t *testing.T) {
	l := newLab(t)
	files, err := blob.OpenFiles(l.Records, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	put(t, files, "inventory/2026", "x")
	l.must(t)
	if got := get(t.Context(), files, "inventory/2026"); got != "x" {
		t.Errorf("the other object is %q", got)
	}
}
