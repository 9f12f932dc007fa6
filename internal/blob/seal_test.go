package blob_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/fault"
)

func key(t testing.TB, seed byte) blob.Key {
	t.Helper()
	k, err := blob.NewKey(bytes.Repeat([]byte{seed}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealed(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return blob.Seal(files(t, t.TempDir()), key(t, 1)) })
}

// secretText fills two chunks and a bit.
var secretText = []byte(strings.Repeat("canary in the plan. ", 7000))

// sealedValue returns a sealed store, the store below it, and a key of 140,000
// bytes in it.
func sealedValue(t *testing.T) (sealed, plain blob.Store) {
	plain = files(t, t.TempDir())
	sealed = blob.Seal(plain, key(t, 1))
	blobtest.Put(t, sealed, "a", secretText)
	return sealed, plain
}

func TestNothingShowsThroughTheSeal(t *testing.T) {
	sealed, plain := sealedValue(t)
	raw := blobtest.Get(t, plain, "a")
	if bytes.Contains(raw, []byte("canary")) {
		t.Error("the sealed value shows its content")
	}
	blobtest.Put(t, sealed, "b", secretText)
	if again := blobtest.Get(t, plain, "b"); bytes.Equal(raw[31:], again[31:]) {
		t.Error("the same value sealed twice is the same")
	}
}

// wantDamaged checks that a value cannot be read, and that nothing that was
// read before the error was found is anything but the truth.
func wantDamaged(t *testing.T, s blob.Store, name, what string) {
	t.Helper()
	got, err := blobtest.Read(t.Context(), s, name)
	if fault.Of(err) != fault.Broken || fault.Reason(err, "") != blob.Damaged {
		t.Errorf("%s: read %d bytes and %v, want %s", what, len(got), err, blob.Damaged)
	}
	if !bytes.HasPrefix(secretText, got) {
		t.Errorf("%s: bytes that were never put came out before the error", what)
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	sealed, plain := sealedValue(t)
	raw := blobtest.Get(t, plain, "a")
	// Each byte of the header and of the first tag's surroundings, and some of
	// every chunk.
	positions := []int{31, 32, 65_566, 65_567, 65_582, 65_583, 65_599, 131_100, len(raw) - 1}
	for i := range 31 {
		positions = append(positions, i)
	}
	for _, i := range positions {
		changed := bytes.Clone(raw)
		changed[i] ^= 1 << (i % 8)
		blobtest.Put(t, plain, "a", changed)
		if 4 <= i && i < 12 { // the ID of the key
			if got, err := blobtest.Read(t.Context(), sealed, "a"); fault.Reason(err, "") != blob.KeyUnknown || len(got) > 0 {
				t.Errorf("byte %d: read %d bytes and %v, want %s", i, len(got), err, blob.KeyUnknown)
			}
			continue
		}
		wantDamaged(t, sealed, "a", fmt.Sprintf("byte %d", i))
	}
}

func TestEveryCutIsNoticed(t *testing.T) {
	sealed, plain := sealedValue(t)
	raw := blobtest.Get(t, plain, "a")
	const chunk = 64<<10 + 16
	for _, n := range []int{0, 1, 4, 30, 31, 32, 47, 31 + 16, 31 + chunk - 1, 31 + chunk, 31 + chunk + 1, 31 + 2*chunk, len(raw) - 1} {
		blobtest.Put(t, plain, "a", raw[:n])
		wantDamaged(t, sealed, "a", fmt.Sprintf("cut to %d bytes", n))
	}
	for what, changed := range map[string][]byte{
		"a byte more":         append(bytes.Clone(raw), 0),
		"a chunk twice":       append(bytes.Clone(raw[:31+chunk]), raw[31:]...),
		"chunks changed over": append(append(append(bytes.Clone(raw[:31]), raw[31+chunk:31+2*chunk]...), raw[31:31+chunk]...), raw[31+2*chunk:]...),
		"a chunk left out":    append(bytes.Clone(raw[:31+chunk]), raw[31+2*chunk:]...),
	} {
		blobtest.Put(t, plain, "a", changed)
		wantDamaged(t, sealed, "a", what)
	}
	blobtest.Put(t, plain, "a", raw)
	if got := blobtest.Get(t, sealed, "a"); !bytes.Equal(got, secretText) {
		t.Error("the value that was left alone does not open")
	}
}

func TestAValueOpensOnlyUnderItsKey(t *testing.T) {
	sealed, plain := sealedValue(t)
	blobtest.Put(t, sealed, "b", []byte("another"))
	a, b := blobtest.Get(t, plain, "a"), blobtest.Get(t, plain, "b")
	blobtest.Put(t, plain, "a", b)
	blobtest.Put(t, plain, "b", a)
	for _, name := range []string{"a", "b"} {
		if got, err := blobtest.Read(t.Context(), sealed, name); fault.Reason(err, "") != blob.Damaged || len(got) > 0 {
			t.Errorf("swapped %s: read %d bytes and %v, want %s", name, len(got), err, blob.Damaged)
		}
	}
}

func TestKeysMayBeReplaced(t *testing.T) {
	_, plain := sealedValue(t)
	other := blob.Seal(plain, key(t, 2))
	if _, err := other.Get(t.Context(), "a"); fault.Reason(err, "") != blob.KeyUnknown || !strings.Contains(fmt.Sprint(err), key(t, 1).ID()) {
		t.Errorf("Get() with another key error = %v, want %s with the id of the right one", err, blob.KeyUnknown)
	}
	both := blob.Seal(plain, key(t, 2), key(t, 1))
	if got := blobtest.Get(t, both, "a"); !bytes.Equal(got, secretText) {
		t.Error("what was sealed with an older key does not open")
	}
	blobtest.Put(t, both, "a", []byte("new"))
	if got := string(blobtest.Get(t, other, "a")); got != "new" {
		t.Errorf("what is put after the change reads %q with the new key", got)
	}
}

func TestAnySizeComesBack(t *testing.T) {
	s := blob.Seal(files(t, t.TempDir()), key(t, 1))
	rapid.Check(t, func(rt *rapid.T) {
		value := bytes.Repeat([]byte{rapid.Byte().Draw(rt, "byte")}, rapid.IntRange(0, 200_000).Draw(rt, "size"))
		if err := s.Put(t.Context(), "a", bytes.NewReader(value)); err != nil {
			rt.Fatal(err)
		}
		if got, err := blobtest.Read(t.Context(), s, "a"); err != nil || !bytes.Equal(got, value) {
			rt.Fatalf("%d bytes came back as %d (%v)", len(value), len(got), err)
		}
	})
}

func TestAKeyDoesNotShowItself(t *testing.T) {
	k := key(t, 'K')
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s %q %x", k, k, k, k, k, k), fmt.Sprintf("%+v", struct{ K blob.Key }{k})} {
		if strings.Contains(text, "KKKK") || strings.Contains(text, "75 75") || strings.Contains(text, "4b4b") {
			t.Errorf("shown: %s", text)
		}
		if !strings.Contains(text, k.ID()) {
			t.Errorf("%s does not name the key", text)
		}
	}
	if _, err := blob.NewKey([]byte("short")); err == nil {
		t.Error("NewKey() accepts a short key")
	}
}

func TestLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	ids := make([]string, 8)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			k, err := blob.LoadKey(path)
			if err != nil {
				t.Errorf("LoadKey(): %v", err)
				return
			}
			ids[i] = k.ID()
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("keys %v, want one for all", ids)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 32 {
		t.Errorf("the key's file is %v of %d bytes (%v), want 0600 and 32", info.Mode(), info.Size(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v is left beside the key (%v)", entries, err)
	}
}

func TestLoadKeyRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		size int
		mode os.FileMode
		want fault.Kind
	}{
		"a key that others can read": {32, 0o640, fault.Denied},
		"half a key":                 {16, 0o600, fault.Invalid},
		"more than a key":            {33, 0o600, fault.Invalid},
		"an empty file":              {0, 0o600, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, make([]byte, tt.size), tt.mode); err != nil {
				t.Fatal(err)
			}
			if _, err := blob.LoadKey(path); fault.Of(err) != tt.want {
				t.Errorf("LoadKey() error = %v, want %s", err, tt.want)
			}
		})
	}
	if _, err := blob.LoadKey(filepath.Join(t.TempDir(), "no", "such", "dir", "key")); err == nil {
		t.Error("LoadKey() in a directory that is not there is accepted")
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte("TRB1"))
	f.Add(bytes.Repeat([]byte{0}, 100))
	s := &one{}
	sealed := blob.Seal(s, key(f, 1))
	if err := sealed.Put(f.Context(), "a", strings.NewReader("value")); err != nil {
		f.Fatal(err)
	}
	good := bytes.Clone(s.value)
	f.Add(good)
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := &one{value: raw}
		got, err := blobtest.Read(t.Context(), blob.Seal(s, key(t, 1)), "a")
		if err == nil && !bytes.Equal(raw, good) {
			t.Errorf("%x opens to %q", raw, got)
		}
	})
}

// one is a Store of a single value; the rest of it is not used.
type one struct {
	blob.Store
	value []byte
}

func (o *one) Put(_ context.Context, _ string, r io.Reader) (err error) {
	o.value, err = io.ReadAll(r)
	return err
}

func (o *one) Get(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(o.value)), nil
}
