package bucket_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
)

// A process that may not write any more makes no further attempt of a change that failed when
// it still might. What it reads is no change.
func TestEachAttemptIsFenced(t *testing.T) {
	lost := fault.New(fault.Later, "NotLeading", errors.New("the Lease is lost"))
	for name, change := range map[string]func(context.Context, *bucket.Store, blob.Version) error{
		"Put": func(ctx context.Context, s *bucket.Store, _ blob.Version) error {
			return s.Put(ctx, "a", strings.NewReader("late"))
		},
		"Delete": func(ctx context.Context, s *bucket.Store, _ blob.Version) error { return s.Delete(ctx, "a") },
		"Replace": func(ctx context.Context, s *bucket.Store, was blob.Version) error {
			_, err := s.Replace(ctx, "a", was, strings.NewReader("late"))
			return err
		},
		"Check": func(ctx context.Context, s *bucket.Store, _ blob.Version) error { return s.Check(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			var loses, isLost atomic.Bool
			var changes atomic.Int64
			store := between(t, bucket.Options{Fence: func(context.Context) error {
				if isLost.Load() {
					return lost
				}
				return nil
			}}, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
				if r.Method != http.MethodGet && r.Method != http.MethodHead && loses.Load() {
					changes.Add(1)
					isLost.Store(true) // during this attempt, which fails in a way that may pass
					s3Answer(http.StatusServiceUnavailable, "SlowDown", "")(w)
					return
				}
				s3.ServeHTTP(w, r)
			})
			was := blobtest.Replace(t, store, "a", blob.None, []byte("value"))
			loses.Store(true)
			err := change(t.Context(), store, was)
			if !errors.Is(err, lost) || fault.Reason(err, "") != "NotLeading" || changes.Load() != 1 {
				t.Errorf("%s = %v after %d requests, want that of the fence after one", name, err, changes.Load())
			}
			if !strings.Contains(err.Error(), "does not take the request") {
				t.Errorf("%s = %v, want it to say why the first attempt failed", name, err)
			}
			loses.Store(false)
			if err := change(t.Context(), store, was); !errors.Is(err, lost) {
				t.Errorf("%s = %v, want no attempt at all", name, err)
			}
			if got := string(blobtest.Get(t, store, "a")); got != "value" {
				t.Errorf("the value is %q", got)
			}
		})
	}
}
