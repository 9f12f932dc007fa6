package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// in gives the controller another data directory.
func (l *lab) in(data string) {
	l.Dir = func(parts ...string) string { return filepath.Join(append([]string{data}, parts...)...) }
}

// refused demands that a start is refused because records would stay behind, and that the
// error has all of these.
func (l *lab) refused(t *testing.T, when string, all ...string) {
	t.Helper()
	_, err := l.open(t)
	if fault.Reason(err, "") != store.ReasonMoved {
		t.Errorf("Open() %s = %v, want %s", when, err, store.ReasonMoved)
	}
	for _, want := range all {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("Open() %s = %v, want it to have %s", when, err, want)
		}
	}
}

// A start with an empty data directory marks a place. A later one with the records of before
// uses that place only once a user has decided which of the two count.
func TestRecordsStayBehindAtNoStart(t *testing.T) {
	l := newLab(t)
	volume, full := l.Records, l.Dir()
	l.Records = ""
	put(t, l.must(t), outputs, "older")

	l.Records = volume
	l.in(t.TempDir()) // as three controllers have, each of its own
	put(t, l.must(t), outputs, "newer")

	l.in(full)                                                   // one controller again, with the claim of before
	for _, lease := range []string{"", "terrier-system/other"} { // with a new Lease the mark is written again
		l.Lease = lease
		l.refused(t, "of the marked place", volume, l.Dir("records"))
	}
	l.Lease = ""
	if err := os.WriteFile(l.Dir("records-moved.json"), []byte(`{"to":"`+volume+`","done":false}`), 0o600); err != nil {
		t.Fatal(err)
	}
	l.refused(t, "after a copy that did not end", volume, l.Dir("records"))
	if err := os.WriteFile(l.Dir("records-moved.json"), []byte(`{"to":"`+volume+`","done":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := get(t.Context(), l.must(t), outputs); got != "newer" {
		t.Errorf("with records that moved the record is %q", got)
	}
	if err := os.Remove(l.Dir("records-moved.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(l.Dir("records"), l.Dir("away")); err != nil {
		t.Fatal(err)
	}
	if got := get(t.Context(), l.must(t), outputs); got != "newer" {
		t.Errorf("after the older records were moved away the record is %q", got)
	}
}

// Where the records went is known without the copies that were left, which users delete.
func TestAMoveIsKnownWithoutTheOldCopies(t *testing.T) {
	l := newLab(t)
	volume := l.Records
	l.Records = ""
	put(t, l.must(t), outputs, "value")
	l.Records = volume
	l.must(t)
	if err := os.RemoveAll(l.Dir("records")); err != nil {
		t.Fatal(err)
	}
	l.Records = filepath.Join(t.TempDir(), "typing-error")
	l.refused(t, "of a place that is empty", l.Records, volume)
	l.Records = volume
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("the record is %q", got)
	}
}

// The Lease knows where the records are, also without the data directory: a typing error, a
// volume that is not mounted or a flag that was forgotten begins no new records.
func TestTheLeaseKnowsThePlace(t *testing.T) {
	l := newLab(t)
	l.Lease = l.Namespace + "/terrier-controller"
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = l.Namespace, "terrier-controller"
	l.must(t) // the leader has not made its Lease yet
	if err := l.cluster.Client.Create(t.Context(), lease.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	volume := l.Records
	put(t, l.must(t), outputs, "value")
	says := func(when, want string) {
		t.Helper()
		if err := l.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
			t.Fatal(err)
		}
		if got := lease.Annotations[store.PlaceAnnotation]; got != want {
			t.Errorf("%s the Lease names %q, want %q", when, got, want)
		}
	}
	says("after a start", volume)

	l.in(t.TempDir())
	for when, records := range map[string]string{
		"with a typing error": filepath.Join(t.TempDir(), "volum"),
		"without --records":   "",
	} {
		l.Records = records
		l.refused(t, when, volume, l.Lease, store.PlaceAnnotation)
	}
	l.Records = volume
	if err := os.Rename(volume, volume+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	secret := l.secret(t)
	if err := l.cluster.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	l.refused(t, "without the volume", volume, l.Lease)
	if err := l.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the Secret after a start that was refused: %v, want that no key was made", err)
	}
	secret.ResourceVersion = ""
	if err := l.cluster.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	says("after refusals", volume)

	// A user copied the records, and the Lease follows.
	l.Records = volume + "-elsewhere"
	l.said = nil
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("in the place of the copy the record is %q", got)
	}
	says("after a move", l.Records)
	if !slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, volume) && strings.Contains(s, l.Records) }) {
		t.Errorf("it said %q, want both places", l.said)
	}

	// An operator says that the records are lost.
	delete(lease.Annotations, store.PlaceAnnotation)
	if err := l.cluster.Client.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	l.Records = filepath.Join(t.TempDir(), "new")
	l.must(t)
	says("after a new beginning", l.Records)
}

// Who takes over the records of another cluster finds some.
func TestNoRecordsAreTakenOver(t *testing.T) {
	l := newLab(t)
	l.Adopt = true
	l.refused(t, "with --adopt-records of an empty place", "--adopt-records", l.Records)
	l.Adopt = false
	if err := record.Marker().Write(t.Context(), l.must(t), record.Installation{Cluster: "another"}); err != nil {
		t.Fatal(err)
	}
	l.Adopt = true
	l.must(t)
}
