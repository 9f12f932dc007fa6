package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// How often the progress of a rotation is recorded and told.
const (
	resealRecorded = 200 // records
	resealTold     = time.Minute
)

// Reseal encrypts records again that an older key encrypted, whenever there is a newer one,
// until ctx ends. Records can be read and written meanwhile. Where it stopped it goes on, also
// after the end of this program.
func (r *Records) Reseal(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := ""; ; {
		err := r.resealOnce(ctx, log)
		if err == nil {
			last = ""
		} else if said := err.Error(); said != last && ctx.Err() == nil {
			last = said
			log.Warn("records not encrypted again; this is tried again each minute", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ToReseal is how many records are still to be encrypted again, as far as this process knows.
func (r *Records) ToReseal() int {
	at := r.noted()
	return at.Records - at.Done
}

func (r *Records) noted() record.Resealing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resealing
}

// resealOnce goes through all records, unless that was done for the current key.
func (r *Records) resealOnce(ctx context.Context, log *slog.Logger) error {
	if len(r.keys.all()) < 2 {
		return nil // there is none that is older
	}
	current := r.keys.Current().ID()
	if at := r.noted(); at.Key == current && !at.Ended.IsZero() {
		return nil
	}
	at, err := record.Reseal().Read(ctx, r.Store)
	if err != nil && fault.Of(err) != fault.Missing && fault.Reason(err, "") != blob.Damaged && fault.Reason(err, "") != blob.KeyUnknown {
		return fmt.Errorf("reading how far records are encrypted again: %w", err)
	}
	if err != nil || at.Key != current {
		at = record.Resealing{Key: current, Began: r.now().UTC()}
	}
	if at.Ended.IsZero() {
		if at, err = r.resealFrom(ctx, log, at); err != nil {
			return err
		}
	}
	r.note(at)
	return nil
}

func (r *Records) note(at record.Resealing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resealing = at
}

// resealFrom goes on where it stopped. Records that are written from now on have the current
// key, so that those which are not listed yet need nothing.
func (r *Records) resealFrom(ctx context.Context, log *slog.Logger, at record.Resealing) (record.Resealing, error) {
	all, err := r.raw.List(ctx, "")
	if err != nil {
		return at, fmt.Errorf("listing the records: %w", err)
	}
	at.Records = len(all)
	keep := func() error {
		r.note(at)
		return record.Reseal().Write(ctx, r.Store, at)
	}
	told := r.now()
	for i, key := range all {
		if key <= at.After || key == record.Reseal().Key || strings.HasPrefix(key, record.Witnesses()) { // a witness is of its own key
			continue
		}
		resealed, err := blob.Reseal(ctx, r.raw, r.keys, key)
		switch {
		case ctx.Err() != nil:
			return at, ctx.Err() // what is not recorded is looked at once more
		case fault.Reason(err, "") == blob.KeyUnknown || fault.Reason(err, "") == blob.Damaged:
			at.Failed++
			log.Warn("a record is not encrypted again: it stays as it is", "record", key, "err", err)
		case err != nil:
			return at, errors.Join(err, keep())
		case resealed:
			at.Resealed++
		}
		at.After, at.Done = key, i+1
		if at.Done%resealRecorded == 0 {
			if err := keep(); err != nil {
				return at, err
			}
		}
		if now := r.now(); now.Sub(told) >= resealTold {
			told = now
			log.Info("records are encrypted again", "key", at.Key, "done", at.Done, "records", at.Records)
		}
	}
	at.Done, at.Ended = at.Records, r.now().UTC()
	log.Info("all records are encrypted with the newest key", "key", at.Key, "records", at.Records, "resealed", at.Resealed, "failed", at.Failed)
	return at, keep()
}
