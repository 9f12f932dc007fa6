package controller

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
)

// spoilt is a store in which one value does not open.
type spoilt struct {
	records.Blobs
	key string
}

func (s spoilt) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if key == s.key {
		return nil, fault.New(fault.Broken, blob.Damaged, errors.New("it is not what was written"))
	}
	return s.Blobs.Get(ctx, key)
}

// A record of one stack that does not open is no reason to leave others alone: the sweep writes
// down which other stacks are gone, and drops what has been gone for long. It does not drop what
// it cannot read.
func TestARecordThatDoesNotOpenHoldsUpNoSweep(t *testing.T) {
	long := kube.Retained{At: time.Now().Add(-kube.RetainedFor - time.Hour)}
	scheme := runtime.NewScheme()
	if err := (infra.Dialect{}).AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	other := asTerraform("other", 0, func(*v1alpha2.Terraform) {})
	for name, tt := range map[string]struct {
		key   string
		fails bool
	}{
		"the state of a stack that is gone":   {record.State("a-spoilt"), true},
		"the record that a stack is gone":     {record.Retained("a-spoilt", record.RetainedFile), false},
		"what runs of a stack have forgotten": {record.Retained("a-spoilt", record.ForgottenFile), true},
	} {
		t.Run(name, func(t *testing.T) {
			blobs := openRecords(t)
			c := takeApart(&Stacks{
				Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(other.DeepCopy()).Build(), Dialects: dialect.NewRegistry(infra.Dialect{}), Blobs: spoilt{blobs, tt.key},
				Runner: &script{}, Audit: &diary{}, Queue: queueOf(1), Now: time.Now, Log: slog.New(slog.DiscardHandler), Ours: theirs(nil),
			})
			put := func(key string) {
				t.Helper()
				if err := c.records.Put(t.Context(), key, []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
			put(tt.key)
			put(record.Outputs("a-spoilt"))
			put(record.Outputs("b-gone"))
			put(record.Outputs("c-long-gone"))
			if err := record.At[kube.Retained](record.Retained("c-long-gone", record.RetainedFile)).Write(t.Context(), blobs, long); err != nil {
				t.Fatal(err)
			}
			if err := c.removals.sweepGone(t.Context()); (err != nil) != tt.fails {
				t.Errorf("sweepGone() = %v", err)
			}
			for key, want := range map[string]bool{
				record.Retained("b-gone", record.RetainedFile): true, record.Outputs("c-long-gone"): false,
				tt.key: true, record.Outputs("a-spoilt"): true,
			} {
				_, err := record.Read(t.Context(), blobs, key)
				if got := err == nil; got != want {
					t.Errorf("%s is there: %v, want %v (%v)", key, got, want, err)
				}
			}
		})
	}
}
