package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// A process notices within a minute that another one took its records.
func TestRecordsThatAreTaken(t *testing.T) {
	l := newLab(t)
	r := l.must(t)
	if err := r.Held(t.Context()); err != nil {
		t.Errorf("Held() = %v at the start", err)
	}
	if err := record.Marker().Write(t.Context(), r, record.Installation{Cluster: "another"}); err != nil {
		t.Fatal(err)
	}
	l.now = l.now.Add(2 * time.Minute)
	if err := r.Held(t.Context()); fault.Reason(err, "") != store.ReasonCluster || r.Taken() == nil {
		t.Errorf("Held() = %v, want %s", err, store.ReasonCluster)
	}
	if err := r.Delete(t.Context(), record.Marker().Key); err != nil {
		t.Fatal(err)
	}
	r = l.must(t)
	files, err := blob.OpenFiles(l.Records, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for name, destroy := range map[string]func() error{
		"damaged": func() error { return files.Put(t.Context(), record.Marker().Key, strings.NewReader("flipped")) },
		"missing": func() error { return files.Delete(t.Context(), record.Marker().Key) },
	} {
		if err := errors.Join(record.Marker().Write(t.Context(), r, record.Installation{Cluster: "another"}), destroy()); err != nil {
			t.Fatal(err)
		}
		l.now = l.now.Add(2 * time.Minute)
		if err := r.Held(t.Context()); err != nil {
			t.Errorf("Held() with a %s marker = %v: it says of none that the records are its own", name, err)
		}
		if err := r.Ours(t.Context()); err == nil {
			t.Errorf("Ours() = nil with a %s marker", name)
		}
	}
}

func uid(t *testing.T, l *lab) string {
	t.Helper()
	is, err := record.Marker().Read(t.Context(), l.must(t))
	if err != nil {
		t.Fatal(err)
	}
	return is.Cluster
}

// Two controllers of one cluster do not share records by mistake.
func TestRecordsOfAnotherController(t *testing.T) {
	l := newLab(t)
	if err := record.Marker().Write(t.Context(), l.must(t), record.Installation{Cluster: uid(t, l)}); err != nil {
		t.Fatal(err) // as earlier releases did
	}
	l.Lease = "terrier-system/one"
	l.must(t)
	l.must(t)
	l.Lease = "terrier-system/two"
	if _, err := l.open(t); fault.Reason(err, "") != store.ReasonCluster || !strings.Contains(fmt.Sprint(err), "terrier-system/one") {
		t.Errorf("Open() = %v, want %s and the Lease", err, store.ReasonCluster)
	}
	l.Adopt = true
	l.must(t)
	l.Adopt, l.Lease = false, "terrier-system/one"
	if _, err := l.open(t); fault.Reason(err, "") != store.ReasonCluster {
		t.Errorf("Open() of the former one = %v, want %s", err, store.ReasonCluster)
	}
}

// Records of another cluster are refused, until a user says that it is gone.
func TestRecordsOfAnotherCluster(t *testing.T) {
	l := newLab(t)
	r := l.must(t)
	put(t, r, outputs, "value")
	if err := record.Marker().Write(t.Context(), r, record.Installation{Cluster: "another"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Ours(t.Context()); fault.Reason(err, "") != store.ReasonCluster {
		t.Errorf("Ours() = %v, want %s", err, store.ReasonCluster)
	}
	_, err := l.open(t)
	if fault.Reason(err, "") != store.ReasonCluster || !strings.Contains(fmt.Sprint(err), "--adopt-records") {
		t.Errorf("Open() = %v, want %s and the way out", err, store.ReasonCluster)
	}
	l.Adopt = true
	r = l.must(t)
	if got := get(t.Context(), r, outputs); got != "value" {
		t.Errorf("after the takeover the record is %q", got)
	}
	if err := r.Ours(t.Context()); err != nil {
		t.Errorf("Ours() = %v after the takeover", err)
	}
	// It stays known whose place this cluster took, and that it took none of its own.
	for _, adopt := range []bool{false, true} {
		l.Adopt = adopt
		is, formerly, err := l.must(t).Cluster(t.Context())
		if err != nil || is != uid(t, l) || !slices.Equal(formerly, []string{"another"}) {
			t.Errorf("Cluster() = %q, %q, %v, want the UID of this one, and the other one", is, formerly, err)
		}
	}
}

// A marker that is damaged stops a start, which says how to go on.
func TestMarkerThatIsDamaged(t *testing.T) {
	l := newLab(t)
	r := l.must(t)
	put(t, r, outputs, "value")
	put(t, r, "installation.json", "{")
	if _, err := l.open(t); !strings.Contains(fmt.Sprint(err), "--adopt-records") {
		t.Errorf("Open() = %v, want an error with the way out", err)
	}
	l.Adopt = true
	r = l.must(t)
	if got := get(t.Context(), r, outputs); got != "value" {
		t.Errorf("after the takeover the record is %q", got)
	}
	l.Adopt = false
	l.must(t)
}
