package store_test

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/terrier-iac/terrier/internal/testkit"
)

// lab is a controller of a cluster, its data directory, and a volume for its records.
type lab struct {
	store.Options
	cluster *testkit.Cluster
	now     time.Time
	said    []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{cluster: testkit.Kube(t), now: time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)}
	data := t.TempDir()
	l.Options = store.Options{
		Records: filepath.Join(t.TempDir(), "volume"), Namespace: l.cluster.Namespace, InCluster: true, REST: l.cluster.Config,
		Dir:     func(parts ...string) string { return filepath.Join(append([]string{data}, parts...)...) },
		Environ: func(string) string { return "" },
		Now:     func() time.Time { return l.now },
		Progress: func(format string, args ...any) {
			l.said = append(l.said, fmt.Sprintf(format, args...))
		},
	}
	return l
}

func (l *lab) open(t *testing.T) (*store.Records, error) {
	t.Helper()
	r, err := store.Open(t.Context(), l.Options)
	if err == nil {
		t.Cleanup(func() { _ = r.Close() })
	}
	return r, err
}

func (l *lab) must(t *testing.T) *store.Records {
	t.Helper()
	r, err := l.open(t)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (l *lab) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := l.cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: l.Namespace, Name: store.SecretName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, to record.Writer, key, value string) {
	t.Helper()
	if err := record.Write(t.Context(), to, key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func get(ctx context.Context, from record.Reader, key string) string {
	b, err := record.Read(ctx, from, key)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

var outputs = record.Outputs("uid")

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

func (l *lab) write(t *testing.T, secret *corev1.Secret, name string, key []byte) {
	t.Helper()
	secret.Data[name] = key
	if err := l.cluster.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
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

// A scheme is the same in upper case, and never a directory.
func TestSchemesInUpperCase(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := store.Open(t.Context(), store.Options{
		Records: "S3://bucket/p?region=r", Dir: func(parts ...string) string { return filepath.Join(append([]string{t.TempDir()}, parts...)...) },
		Environ: func(string) string { return "" },
	})
	if err == nil {
		t.Error("Open() of a bucket without credentials is accepted")
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("the working directory holds %v, %v, want nothing", entries, err)
	}
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct{ records, key, says string }{
		{"", "", ""},
		{"/var/lib/records", "file", ""},
		{"s3://b/p?region=r", "secret", ""},
		{"records", "", "absolute path"},
		{"s3://b", "", "region="},
		{"s3://u:canary@b?region=r", "", "credentials"},
		{"S3://b/p?region=r", "", ""},
		{"azblob://c/p?account=x&sig=canary", "", "--records azblob://c/p: the parameter \"sig\""},
		{"canary@example.com:b", "", "--records URL"},
		{"s3://b?region=r&endpoint=https://u:canary@h", "", "endpoint="},
		{"s3://b?region=r&credentials=canary", "", "credentials="},
		{"s3://b?region=r&path-style=canary", "", "path-style="},
		{"", "vault", "neither file nor secret"},
	} {
		err := store.Check(tt.records, tt.key, func(string) string { return "" })
		if (err == nil) != (tt.says == "") || !strings.Contains(fmt.Sprint(err), tt.says) && err != nil || strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("Check(%s, %s) = %v, want it to say %q", tt.records, tt.key, err, tt.says)
		}
	}
}
