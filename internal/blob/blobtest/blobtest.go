// Package blobtest says, as tests, what every blob.Store must do. An
// implementation runs them all; they need nothing but a way to make a Store.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Files is a store of one test, for so many bytes.
func Files(t *testing.T, most int64) *blob.Files {
	t.Helper()
	files, err := blob.OpenFiles(t.TempDir(), most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	return files
}

// Run tests the stores that open makes, each empty and for values of at least
// two megabytes.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	for name, test := range map[string]func(*testing.T, blob.Store){
		"values come back as they were put":     comesBack,
		"a value is replaced as a whole":        replaced,
		"what is not there is missing":          absent,
		"a failed put changes nothing":          failedPut,
		"a cancelled put changes nothing":       cancelledPut,
		"an open value stays what it is":        openValue,
		"keys are listed by prefix":             listed,
		"siblings are in no list":               siblings,
		"one key may go on where another ends":  nested,
		"what is not a key is refused":          refused,
		"concurrent puts do not mix":            concurrent,
		"concurrent puts and deletes get along": churn,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// Put keeps a value and fails the test if it cannot.
func Put(t *testing.T, s blob.Store, key string, value []byte) {
	t.Helper()
	if err := s.Put(t.Context(), key, bytes.NewReader(value)); err != nil {
		t.Fatalf("Put(%s): %v", key, err)
	}
}

// Get returns a value and fails the test if it cannot.
func Get(t *testing.T, s blob.Store, key string) []byte {
	t.Helper()
	value, err := Read(t.Context(), s, key)
	if err != nil {
		t.Fatalf("Get(%s): %v", key, err)
	}
	return value
}

// Read returns a value.
func Read(ctx context.Context, s blob.Store, key string) ([]byte, error) {
	r, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	value, err := io.ReadAll(r)
	return value, errors.Join(err, r.Close())
}

func comesBack(t *testing.T, s blob.Store) {
	for _, size := range []int{0, 1, 100, 64<<10 - 1, 64 << 10, 64<<10 + 1, 128 << 10, 1<<20 + 7} {
		key := fmt.Sprintf("sizes/of-%d", size)
		want := pattern(size, byte(size))
		Put(t, s, key, want)
		if got := Get(t, s, key); !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back as %d others", size, len(got))
		}
	}
	if err := s.Put(t.Context(), "slow", trickle{strings.NewReader("one byte at a time")}); err != nil {
		t.Fatal(err)
	}
	if got := string(Get(t, s, "slow")); got != "one byte at a time" {
		t.Errorf("a slow reader's value came back as %q", got)
	}
}

// trickle gives out one byte at a time.
type trickle struct{ r io.Reader }

func (o trickle) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

// pattern returns bytes that show where they come from.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ seed
	}
	return b
}

func replaced(t *testing.T, s blob.Store) {
	Put(t, s, "a", pattern(100_000, 1))
	Put(t, s, "a", []byte("short"))
	if got := string(Get(t, s, "a")); got != "short" {
		t.Errorf("after a replacement: %d bytes, want the new value alone", len(got))
	}
}

func absent(t *testing.T, s blob.Store) {
	Put(t, s, "there/it-is", nil)
	for _, key := range []string{"nowhere", "no/where", "there", "there/it-is/below"} {
		if _, err := s.Get(t.Context(), key); fault.Of(err) != fault.Missing {
			t.Errorf("Get(%s) error = %v, want Missing", key, err)
		}
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete(%s) = %v, want no error", key, err)
		}
	}
	for range 2 {
		if err := s.Delete(t.Context(), "there/it-is"); err != nil {
			t.Errorf("Delete() = %v, want no error", err)
		}
	}
	if _, err := s.Get(t.Context(), "there/it-is"); fault.Of(err) != fault.Missing {
		t.Errorf("Get() after Delete() error = %v, want Missing", err)
	}
}

var errBroken = errors.New("the source broke")

func failedPut(t *testing.T, s blob.Store) {
	Put(t, s, "a", []byte("old"))
	broken := io.MultiReader(bytes.NewReader(pattern(200_000, 2)), errReader{})
	for _, key := range []string{"a", "b/new"} {
		if err := s.Put(t.Context(), key, broken); !errors.Is(err, errBroken) {
			t.Errorf("Put(%s) error = %v, want that of the reader", key, err)
		}
		broken = io.MultiReader(errReader{})
	}
	if got := string(Get(t, s, "a")); got != "old" {
		t.Errorf("after a failed put: %q, want the old value", got)
	}
	keys, err := s.List(t.Context(), "")
	if err != nil || !slices.Equal(keys, []string{"a"}) {
		t.Errorf("List() = %v, %v; want only the old key", keys, err)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

func cancelledPut(t *testing.T, s blob.Store) {
	Put(t, s, "a", []byte("old"))
	ctx, cancel := context.WithCancel(t.Context())
	r := io.MultiReader(bytes.NewReader(pattern(200_000, 3)), cancelReader{cancel}, bytes.NewReader(pattern(200_000, 4)))
	if err := s.Put(ctx, "a", r); !errors.Is(err, context.Canceled) {
		t.Errorf("Put() error = %v, want that of the context", err)
	}
	if got := string(Get(t, s, "a")); got != "old" {
		t.Errorf("after a cancelled put: %d bytes, want the old value", len(got))
	}
}

type cancelReader struct{ cancel func() }

func (c cancelReader) Read([]byte) (int, error) { c.cancel(); return 0, io.EOF }

func openValue(t *testing.T, s blob.Store) {
	old := pattern(300_000, 5)
	Put(t, s, "a", old)
	r, err := s.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	head := make([]byte, 10)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatal(err)
	}
	Put(t, s, "a", []byte("new"))
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(append(head, rest...), old) {
		t.Errorf("an open value gave %d bytes (%v), want all of the old one", len(head)+len(rest), err)
	}
}

func listed(t *testing.T, s blob.Store) {
	for _, key := range []string{"runs/b/log", "runs/a/plan", "runs/a/log", "runs-old/x", "states/z"} {
		Put(t, s, key, nil)
	}
	for prefix, want := range map[string][]string{
		"":            {"runs-old/x", "runs/a/log", "runs/a/plan", "runs/b/log", "states/z"},
		"runs":        {"runs-old/x", "runs/a/log", "runs/a/plan", "runs/b/log"},
		"runs/":       {"runs/a/log", "runs/a/plan", "runs/b/log"},
		"runs/a":      {"runs/a/log", "runs/a/plan"},
		"runs/a/p":    {"runs/a/plan"},
		"runs/a/plan": {"runs/a/plan"},
		"nothing":     nil,
		"no/thing/":   nil,
		"states/z/":   nil,
	} {
		got, err := s.List(t.Context(), prefix)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("List(%q) = %v, %v; want %v", prefix, got, err, want)
		}
	}
}

// Prefixes of registries: one is the beginning of another, and still not above it.
func siblings(t *testing.T, s blob.Store) {
	for _, key := range []string{
		"hashicorp/aws/1.0.1/a", "hashicorp/aws/1.0.10/b", "hashicorp/awscc/1.0.1/c", "hashicorp/aws", "hashicorp/aws.d/d", "hashicorp/aws-x/e",
	} {
		Put(t, s, key, nil)
	}
	for prefix, want := range map[string][]string{
		"hashicorp/aws/":        {"hashicorp/aws/1.0.1/a", "hashicorp/aws/1.0.10/b"},
		"hashicorp/awscc/":      {"hashicorp/awscc/1.0.1/c"},
		"hashicorp/aws/1.0.1/":  {"hashicorp/aws/1.0.1/a"},
		"hashicorp/aws/1.0.10/": {"hashicorp/aws/1.0.10/b"},
		"hashicorp/aws/1.0.1":   {"hashicorp/aws/1.0.1/a", "hashicorp/aws/1.0.10/b"},
		"hashicorp/aw/":         nil,
	} {
		got, err := s.List(t.Context(), prefix)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("List(%q) = %v, %v; want %v", prefix, got, err, want)
		}
	}
	if err := s.Delete(t.Context(), "hashicorp/aws/1.0.1/a"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.List(t.Context(), "hashicorp/aws/"); err != nil || !slices.Equal(got, []string{"hashicorp/aws/1.0.10/b"}) {
		t.Errorf("List() after Delete() = %v, %v, want the other version", got, err)
	}
}

func nested(t *testing.T, s blob.Store) {
	keys := []string{"a", "a/b", "a/b/c"}
	for _, key := range keys {
		Put(t, s, key, []byte(key))
	}
	for _, key := range keys {
		if got := string(Get(t, s, key)); got != key {
			t.Errorf("Get(%s) = %q", key, got)
		}
	}
	if err := s.Delete(t.Context(), "a/b"); err != nil {
		t.Fatal(err)
	}
	got, err := s.List(t.Context(), "")
	if err != nil || !slices.Equal(got, []string{"a", "a/b/c"}) {
		t.Errorf("List() = %v, %v; want the two others", got, err)
	}
}

func refused(t *testing.T, s blob.Store) {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".hidden", "a/.partial", "a\\b", "a b", "a\x00b", "a~", "ä", "a:b", "a%2fb",
		strings.Repeat("x", 201), strings.Repeat("x/", 500) + "x",
	} {
		if err := s.Put(t.Context(), key, strings.NewReader("x")); fault.Of(err) != fault.Invalid {
			t.Errorf("Put(%q) error = %v, want Invalid", key, err)
		}
		if _, err := s.Get(t.Context(), key); fault.Of(err) != fault.Invalid {
			t.Errorf("Get(%q) error = %v, want Invalid", key, err)
		}
		if err := s.Delete(t.Context(), key); fault.Of(err) != fault.Invalid {
			t.Errorf("Delete(%q) error = %v, want Invalid", key, err)
		}
	}
	for _, prefix := range []string{"/", "..", "../", "a//", ".partial"} {
		if _, err := s.List(t.Context(), prefix); fault.Of(err) != fault.Invalid {
			t.Errorf("List(%q) error = %v, want Invalid", prefix, err)
		}
	}
}

func concurrent(t *testing.T, s blob.Store) {
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			value := bytes.Repeat([]byte{byte('a' + i)}, 100_000)
			for range 5 {
				if err := s.Put(t.Context(), "shared", bytes.NewReader(value)); err != nil {
					t.Errorf("Put(): %v", err)
				}
				got, err := Read(t.Context(), s, "shared")
				if err != nil || len(got) != len(value) || bytes.Count(got, got[:1]) != len(got) {
					t.Errorf("read %d bytes (%v), want one whole value", len(got), err)
				}
			}
		})
	}
	group.Wait()
}

func churn(t *testing.T, s blob.Store) {
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			key := fmt.Sprintf("dir/of/many/%d", i)
			for range 20 {
				if err := s.Put(t.Context(), key, strings.NewReader(key)); err != nil {
					t.Errorf("Put(%s): %v", key, err)
				}
				if got, err := Read(t.Context(), s, key); err != nil || string(got) != key {
					t.Errorf("Get(%s) = %q, %v", key, got, err)
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Errorf("Delete(%s): %v", key, err)
				}
			}
		})
	}
	group.Wait()
	if keys, err := s.List(t.Context(), ""); err != nil || len(keys) > 0 {
		t.Errorf("List() = %v, %v; want nothing left", keys, err)
	}
}
