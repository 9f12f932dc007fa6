package query

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// opened reads the records of a store.
type opened struct{ blob.Store }

func (o opened) Get(ctx context.Context, key string) ([]byte, error) {
	return record.Read(ctx, o.Store, key)
}

// Records whose key is lost leave the history without decisions, and hide every value.
func TestRecordsWhoseKeyIsLost(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	with := func(b byte) blob.Store {
		key, err := blob.NewKey(bytes.Repeat([]byte{b}, 32))
		if err != nil {
			t.Fatal(err)
		}
		return blob.Seal(files, key)
	}
	id := StackID{Key: Key{Namespace: "apps", Name: "net"}, UID: "uid"}
	known := plan.Remembered{Key: []byte("k")}
	if err := record.Decisions(id.UID).Write(t.Context(), with(1), []stack.Decided{{Rule: "r"}}); err != nil {
		t.Fatal(err)
	}
	if err := record.At[plan.Remembered](record.Secrets(id.UID)).Write(t.Context(), with(1), known); err != nil {
		t.Fatal(err)
	}
	for key, lost := range map[byte]bool{1: false, 2: true} {
		b := NewBlobs(opened{with(key)}, nil, time.Second)
		if got, err := b.Decisions(t.Context(), id); err != nil || len(got) == 0 != lost {
			t.Errorf("lost %v: Decisions() = %v, %v", lost, got, err)
		}
		if _, err := b.SecretPrints(t.Context(), id); err != nil != lost {
			t.Errorf("lost %v: SecretPrints() error = %v", lost, err)
		}
	}
	since := plan.Remembered{Key: []byte("k"), Lost: time.Unix(1, 0)}
	for _, tt := range []struct {
		record plan.Remembered
		hidden bool
	}{{since, true}, {known, false}} {
		if err := record.At[plan.Remembered](record.SecretsBeside(id.UID)).Write(t.Context(), with(2), tt.record); err != nil {
			t.Fatal(err)
		}
		if _, err := NewBlobs(opened{with(2)}, nil, time.Second).SecretPrints(t.Context(), id); err != nil != tt.hidden {
			t.Errorf("with the record beside %+v: SecretPrints() error = %v", tt.record, err)
		}
	}
}
