package store_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// The first start makes a key and a marker, and later ones use them.
func TestAKeyIsMadeOnce(t *testing.T) {
	l := newLab(t)
	first := l.must(t)
	put(t, first, outputs, "value")
	before := l.secret(t)
	for name, key := range before.Data {
		if !strings.HasPrefix(name, "2026-11-29T080000Z-") || len(key) != 32 || len(before.Data) != 1 {
			t.Errorf("the Secret has %d keys, and one of %d bytes by the name %s, want one of 32 bytes by its time", len(before.Data), len(key), name)
		}
	}
	l.now = l.now.Add(48 * time.Hour)
	second := l.must(t)
	if got := get(t.Context(), second, outputs); got != "value" {
		t.Errorf("after a restart the record is %q", got)
	}
	if after := l.secret(t); after.ResourceVersion != before.ResourceVersion {
		t.Error("the second start changed the Secret")
	}
	if err := second.Ours(t.Context()); err != nil {
		t.Errorf("Ours() = %v, want that the records are of this cluster", err)
	}
}

// Records without their key are refused, and no other key takes its place.
func TestRecordsWithoutTheirKey(t *testing.T) {
	l := newLab(t)
	put(t, l.must(t), outputs, "value")
	secret := l.secret(t)
	if err := l.cluster.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	_, err := l.open(t)
	if fault.Reason(err, "") != store.ReasonKey || !strings.Contains(fmt.Sprint(err), l.Namespace+"/"+store.SecretName) {
		t.Errorf("Open() without the Secret = %v, want %s and its name", err, store.ReasonKey)
	}
	if err := l.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the Secret: %v, want that none was made", err)
	}
	other := &corev1.Secret{Data: map[string][]byte{"2026-12-01": bytes.Repeat([]byte{7}, 32)}}
	other.Namespace, other.Name = l.Namespace, store.SecretName
	if err := l.cluster.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if _, err = l.open(t); fault.Reason(err, "") != store.ReasonKey || !strings.Contains(fmt.Sprint(err), "restore that key") {
		t.Errorf("Open() with another key = %v, want %s", err, store.ReasonKey)
	}
	other.Data["2026-12-02"] = []byte("short")
	if err := l.cluster.Client.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if _, err = l.open(t); fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), "2026-12-02") {
		t.Errorf("Open() with half a key = %v, want its name", err)
	}

	// The same holds for a key in a file.
	l.Records, l.Key = filepath.Join(t.TempDir(), "volume"), "file"
	put(t, l.must(t), outputs, "value")
	if err := os.Remove(l.Dir("secrets", "records")); err != nil {
		t.Fatal(err)
	}
	if _, err = l.open(t); fault.Reason(err, "") != store.ReasonKey {
		t.Errorf("Open() without the file = %v, want %s", err, store.ReasonKey)
	}
}

// A key that is added seals what is new. Processes that began before it learn of it when
// they meet it, and the older key opens what is old.
func TestKeysAreRotated(t *testing.T) {
	l := newLab(t)
	old := l.must(t)
	put(t, old, outputs, "old")
	secret := l.secret(t)
	secret.Data["2026-12-01"] = bytes.Repeat([]byte{9}, 32)
	if err := l.cluster.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	fresh := l.must(t)
	if got := get(t.Context(), fresh, outputs); got != "old" {
		t.Errorf("the new process reads %q", got)
	}
	put(t, fresh, outputs, "new")
	l.now = l.now.Add(time.Minute)
	if got := get(t.Context(), old, outputs); got != "new" {
		t.Errorf("the process from before the new key reads %q", got)
	}
	files, err := blob.OpenFiles(l.Records, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	key, err := blob.NewKey(secret.Data["2026-12-01"])
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t.Context(), blob.Seal(files, key), outputs); got != "new" {
		t.Errorf("the new key alone reads %q", got)
	}
}

// A Secret that was restored from before a rotation is noticed at the start.
func TestALostKeyIsNoticed(t *testing.T) {
	l := newLab(t)
	l.must(t)
	secret := l.secret(t)
	before := maps.Clone(secret.Data)
	l.write(t, secret, "2026-12-01", bytes.Repeat([]byte{9}, 32))
	put(t, l.must(t), outputs, "value")
	secret.Data = before
	if err := l.cluster.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if _, err := l.open(t); fault.Reason(err, "") != store.ReasonKey {
		t.Errorf("Open() with the keys from before the rotation = %v, want %s", err, store.ReasonKey)
	}
}

// A process makes a Secret again that was deleted: the keys exist nowhere else.
func TestADeletedSecretIsMadeAgain(t *testing.T) {
	l := newLab(t)
	r := l.must(t)
	put(t, r, outputs, "value")
	secret := l.secret(t)
	if err := l.cluster.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := r.Ours(t.Context()); err != nil {
		t.Errorf("Ours() = %v", err)
	}
	if again := l.secret(t); !maps.EqualFunc(again.Data, secret.Data, bytes.Equal) {
		t.Error("the Secret has other keys than before")
	}
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("after a restart the record is %q", got)
	}
}

// A process forgets no key, whatever happens to the Secret, and says so until the
// Secret has all keys again.
func TestAKeyThatWentFromTheSecret(t *testing.T) {
	l := newLab(t)
	r := l.must(t)
	put(t, r, outputs, "value")
	secret := l.secret(t)
	name := slices.Collect(maps.Keys(secret.Data))[0]
	works := func(when string) {
		t.Helper()
		put(t, r, record.State("uid"), when)
		if got := get(t.Context(), r, outputs) + get(t.Context(), r, record.State("uid")); got != "value"+when {
			t.Errorf("%s the records are %q", when, got)
		}
	}

	l.write(t, secret, "z", []byte("short"))
	if err := r.Ours(t.Context()); fault.Of(err) != fault.Invalid {
		t.Errorf("Ours() with half a key = %v", err)
	}
	works("with half a key")
	delete(secret.Data, "z")

	l.write(t, secret, name, bytes.Repeat([]byte{9}, 32)) // it takes the place of the first
	for range 2 {
		if err := r.Ours(t.Context()); fault.Reason(err, "") != store.ReasonKey || !strings.Contains(fmt.Sprint(err), "delete the Secret") {
			t.Errorf("Ours() = %v, want %s and the way out", err, store.ReasonKey)
		}
	}
	works("without the key")

	if err := l.cluster.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := r.Ours(t.Context()); err != nil || len(l.secret(t).Data) != 2 {
		t.Errorf("Ours() = %v, and the Secret has %d keys, want both", err, len(l.secret(t).Data))
	}
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("after a restart the record is %q", got)
	}
}
