package query

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/kube"
)

// A user who may read the audit log of some namespaces gets a page in time, although the
// cluster is asked about each namespace: page by page every entry comes once. What is asked
// for by a request that has ended is not read to the end.
func TestEntriesOfManyNamespacesComeInTime(t *testing.T) {
	const namespaces = 30
	files, err := audit.Open(t.TempDir(), audit.Options{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range namespaces {
		if err := files.Record(t.Context(), AuditEntry{What: audit.Applied, Object: AuditObjectOf(Key{Namespace: fmt.Sprintf("team-%02d", i), Name: "net"})}); err != nil {
			t.Fatal(err)
		}
	}
	log := NewAuditLog(files, kube.Anchor{}, nil)
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		sight := AuditSight{In: func(string) bool {
			asked++
			<-time.After(time.Second)
			return asked%2 == 0
		}}
		var q AuditQuery
		var got, pages int
		for more := true; more; more = q.Before != 0 {
			began := time.Now()
			page, err := log.Entries(t.Context(), sight, q)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > searched+2*time.Second { // the line that it ends with counts, and so may the one before
				t.Errorf("a page took %s", took)
			}
			got, pages, q.Before = got+len(page.Items), pages+1, page.Next
		}
		if got != namespaces/2 || asked != namespaces || pages < 2 {
			t.Errorf("%d pages have %d entries and asked about %d namespaces, want each namespace once", pages, got, asked)
		}
		gone := errors.New("the client is gone")
		ctx, end := context.WithCancelCause(t.Context())
		asked = 0
		sight.In = func(string) bool {
			asked++
			end(gone)
			return false
		}
		if page, err := log.Entries(ctx, sight, AuditQuery{}); !errors.Is(err, gone) || asked > 2 {
			t.Errorf("%+v, %v after %d questions, want none after the request", page, err, asked)
		}
	})
}
