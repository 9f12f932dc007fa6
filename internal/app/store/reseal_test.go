package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// dies is a store whose program is killed at one of its writes, before or after it.
type dies struct {
	blob.Versions
	left  int
	after bool
	kill  context.CancelFunc
}

func (d *dies) Replace(ctx context.Context, key string, old blob.Version, r io.Reader) (blob.Version, error) {
	if d.left--; d.left != 0 {
		return d.Versions.Replace(ctx, key, old, r)
	}
	var now blob.Version
	var err error
	if d.after {
		now, err = d.Versions.Replace(ctx, key, old, r)
	}
	d.kill()
	return now, errors.Join(err, ctx.Err())
}

// races is a store in which another writer is faster, once.
type races struct {
	blob.Versions
	key   string
	write func()
}

func (r *races) Replace(ctx context.Context, key string, old blob.Version, v io.Reader) (blob.Version, error) {
	if key == r.key {
		r.write()
	}
	return r.Versions.Replace(ctx, key, old, v)
}

// keysOf is a ring of keys of 32 equal letters, the newest last.
func keysOf(t *testing.T, letters string) *ring {
	t.Helper()
	r := newRing(nil, nil, time.Now)
	for i, letter := range letters {
		key, err := blob.NewKey(bytes.Repeat([]byte(string(letter)), 32))
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint(i)
		r.known[name], r.keys[key.ID()], r.newest = entry{key: key}, key, name
	}
	return r
}

func openedWith(files blob.Versions, keys *ring) *Records {
	return &Records{Store: noting{blob.SealWith(files, keys), keys}, raw: files, keys: keys, now: time.Now}
}

// resealAll has all records encrypted again, and waits until that is certain.
func resealAll(t *testing.T, r *Records) {
	t.Helper()
	err := (rotation{r}).resealOnce(t.Context(), slog.New(slog.DiscardHandler), nil)
	if fault.Reason(err, "") != ReasonOlderKeys || r.ToReseal() != 1 || !r.noted().Certain.IsZero() {
		t.Fatalf("resealOnce() = %v, %+v, want that it is not certain yet", err, r.noted())
	}
	later := r.now().Add(arrives)
	r.now = func() time.Time { return later }
	if err := (rotation{r}).resealOnce(t.Context(), slog.New(slog.DiscardHandler), nil); err != nil {
		t.Fatal(err)
	}
}

const records = 50

func keyOf(i int) string { return fmt.Sprintf("stacks/uid-%02d/state.json", i) }

func valueOf(i int) string { return strings.Repeat(fmt.Sprintf("record %d, ", i), 1+i*200) }

// filled is a store with records of the key a, and its directory.
func filled(t *testing.T) (*blob.VersionedFiles, string) {
	t.Helper()
	dir := t.TempDir()
	files, err := blob.OpenVersionedFiles(dir, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	before := openedWith(files, keysOf(t, "a"))
	for i := range records {
		if err := record.Write(t.Context(), before, keyOf(i), []byte(valueOf(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := record.Write(t.Context(), before, record.Witness("a"), []byte("a")); err != nil {
		t.Fatal(err)
	}
	return files, dir
}

// check reads every record with the keys.
func check(t *testing.T, r *Records, but ...int) {
	t.Helper()
	for i := range records {
		if got, err := record.Read(t.Context(), r, keyOf(i)); err != nil || string(got) != valueOf(i) && len(but) == 0 {
			t.Errorf("%s = %.40q, %v", keyOf(i), got, err)
		}
	}
}

// Records of an older key are encrypted again, whatever the moment at which the program is
// killed; each of them reads the same at all times, and in the end with the newest key alone.
func TestRecordsAreEncryptedAgain(t *testing.T) {
	for _, after := range []bool{false, true} {
		for _, at := range []int{1, 2, records / 2, records} {
			t.Run(fmt.Sprintf("killed at write %d, after it: %v", at, after), func(t *testing.T) {
				files, dir := filled(t)
				ctx, kill := context.WithCancel(t.Context())
				killed := openedWith(files, keysOf(t, "ab"))
				killed.raw = &dies{files, at, after, kill}
				if err := (rotation{killed}).resealOnce(ctx, slog.New(slog.DiscardHandler), nil); err == nil {
					t.Fatal("the program was not killed")
				}
				check(t, openedWith(files, keysOf(t, "ab")))
				next := openedWith(files, keysOf(t, "ab"))
				resealAll(t, next)
				if n := next.ToReseal(); n != 0 || next.noted().Certain.IsZero() {
					t.Errorf("%d records are left: %+v", n, next.noted())
				}
				newest := openedWith(files, keysOf(t, "b"))
				check(t, newest)
				if got, err := record.Read(t.Context(), openedWith(files, keysOf(t, "a")), record.Witness("a")); err != nil || string(got) != "a" {
					t.Errorf("the witness of the older key reads %q, %v", got, err)
				}
				// Nothing is written once all is done.
				before := modified(t, dir)
				again := openedWith(files, keysOf(t, "ab"))
				if err := (rotation{again}).resealOnce(t.Context(), slog.New(slog.DiscardHandler), nil); err != nil || modified(t, dir) != before {
					t.Errorf("all is done, and it is done again: %v", err)
				}
			})
		}
	}
}

// modified tells when files were written.
func modified(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&all, path, info.ModTime().UnixNano(), info.Size())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// What is written or removed meanwhile is not overwritten with what was there before.
func TestWhatIsWrittenMeanwhileStays(t *testing.T) {
	files, _ := filled(t)
	r := openedWith(files, keysOf(t, "ab"))
	r.raw = &races{files, keyOf(3), func() {
		if err := record.Write(t.Context(), r, keyOf(3), []byte("newer")); err != nil {
			t.Error(err)
		}
	}}
	resealAll(t, r)
	if got, err := record.Read(t.Context(), openedWith(files, keysOf(t, "b")), keyOf(3)); err != nil || string(got) != "newer" {
		t.Errorf("what was written meanwhile reads %.40q, %v", got, err)
	}
}

// A record that no key opens stays as it is, and holds no other one up.
func TestWhatNoKeyOpensStays(t *testing.T) {
	files, _ := filled(t)
	lost := openedWith(files, keysOf(t, "x"))
	if err := record.Write(t.Context(), lost, keyOf(7), []byte("of a key that is lost")); err != nil {
		t.Fatal(err)
	}
	r := openedWith(files, keysOf(t, "ab"))
	resealAll(t, r)
	if at := r.noted(); at.Failed != 1 || at.Resealed != records-1 {
		t.Errorf("the progress is %+v", at)
	}
	if got, err := record.Read(t.Context(), lost, keyOf(7)); err != nil || string(got) != "of a key that is lost" {
		t.Errorf("it reads %q, %v", got, err)
	}
}

// With one key nothing is read.
func TestWithoutARotationNothingIsRead(t *testing.T) {
	files, _ := filled(t)
	r := openedWith(files, keysOf(t, "a"))
	if err := (rotation{r}).resealOnce(t.Context(), slog.New(slog.DiscardHandler), nil); err != nil || r.noted() != (record.Resealing{}) {
		t.Errorf("%+v, %v", r.noted(), err)
	}
}

// The keys of states are those of records: with a newer one, both are known.
func TestStateKeys(t *testing.T) {
	r := openedWith(nil, keysOf(t, "ab"))
	all, err := r.StateKeys(t.Context(), "Secret a/b", "")
	if err != nil || len(all) != 2 || all[0].ID != r.keys.Current().ID() || bytes.Equal(all[0].Bytes, all[1].Bytes) {
		t.Fatalf("StateKeys() = %v, %v; want two, the newest first", all, err)
	}
	for _, want := range all {
		if got, err := r.StateKeys(t.Context(), "Secret a/b", want.ID); err != nil || len(got) != 1 || !bytes.Equal(got[0].Bytes, want.Bytes) {
			t.Errorf("StateKeys(%s) = %v, %v", want.ID, got, err)
		}
	}
	if got, err := r.StateKeys(t.Context(), "Secret a/b", "0123456789abcdef"); err != nil || len(got) != 0 {
		t.Errorf("StateKeys() of an unknown key = %v, %v", got, err)
	}
}
