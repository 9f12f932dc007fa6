package controller

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// A drift check that finds nothing must not cost a write to the API server, so
// what checks leave of a stack is a record beside its status.

// driftRecords knows when drift was checked last, and what memory runs take.
type driftRecords struct {
	blobs  records.Blobs
	config Config
	log    *slog.Logger
}

// driftChecks returns what is known of a stack, from its record the first time.
func (ck *driftRecords) driftChecks(ctx context.Context, e *entry) (record.Check, error) {
	if e.checks != nil {
		return *e.checks, nil
	}
	k, err := record.Checked(e.id).Read(ctx, ck.blobs)
	if fault.Of(err) == fault.Missing || fault.Reason(err, "") == blob.Damaged || fault.Reason(err, "") == blob.KeyUnknown {
		k, err = record.Check{}, nil // the next drift check writes it again
	}
	if err != nil {
		return record.Check{}, fmt.Errorf("reading when drift was checked: %w", err)
	}
	e.checks = &k
	return k, nil
}

// noteDriftCheck writes down that drift was checked.
func (ck *driftRecords) noteDriftCheck(ctx context.Context, e *entry, at time.Time) error {
	k, err := ck.driftChecks(ctx, e)
	if err != nil {
		return err
	}
	k.At = at.UTC()
	return ck.putDriftChecks(ctx, e, k)
}

func (ck *driftRecords) putDriftChecks(ctx context.Context, e *entry, k record.Check) error {
	if err := record.Checked(e.id).Write(ctx, ck.blobs, k); err != nil {
		return err
	}
	e.checks = &k
	return nil
}
