package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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

// ReasonOlderKeys is the reason of the error that a record may still be written with an older key.
const ReasonOlderKeys = "RecordsOlderKeyInUse"

// arrives is how long a request may be on its way to the place of the records: one that a
// controller sent before it ended, or before it knew the newest key.
const arrives = 10 * time.Minute

// Writers are the other processes that may write records, each with the ID of the oldest key that
// it may use; the ID is empty if the process does not say it.
type Writers func(context.Context) (map[string]string, error)

// rotation is the part of Records that encrypts records again.
type rotation struct{ *Records }

// Reseal encrypts records again that an older key encrypted, whenever there is a newer one,
// until ctx ends. Records can be read and written meanwhile. Where it stopped it goes on, also
// after the end of this program.
//
// It goes through all records twice: at once, and again once no process can write with an older
// key any more. Only then it says that all are done. Without writers, no other process writes.
func (r *Records) Reseal(ctx context.Context, log *slog.Logger, writers Writers) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := ""; ; {
		err := rotation{r}.resealOnce(ctx, log, writers)
		if err == nil {
			last = ""
		} else if said := err.Error(); said != last && ctx.Err() == nil {
			last = said
			if fault.Reason(err, "") == ReasonOlderKeys {
				log.Info("records may still be written with an older key; the controllers are asked once more each minute", "why", err)
			} else {
				log.Warn("records not encrypted again; this is tried again each minute", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sealing is the ID of the oldest key that this process may still encrypt a record with.
func (r *Records) Sealing() string { return r.keys.oldest() }

// ToReseal is how many records are still to be encrypted again, as far as this process knows; at
// least one until it is certain that there is none.
func (r *Records) ToReseal() int {
	at := r.noted()
	if at.Key == "" || !at.Certain.IsZero() {
		return 0
	}
	return max(1, at.Records-at.Done)
}

func (r *Records) noted() record.Resealing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resealing
}

// resealOnce goes through all records, unless that was done for the current key.
func (r rotation) resealOnce(ctx context.Context, log *slog.Logger, writers Writers) error {
	if r.keys.kept != nil { // the leader may be the last one to know a key
		if _, err := r.keys.reread(ctx); err != nil {
			return err
		}
	}
	if len(r.keys.all()) < 2 {
		return nil // there is none that is older
	}
	current := r.keys.Current().ID()
	if at := r.noted(); at.Key == current && !at.Certain.IsZero() {
		return nil
	}
	at, err := record.Reseal().Read(ctx, r.Store)
	if err != nil && fault.Of(err) != fault.Missing && fault.Reason(err, "") != blob.Damaged && fault.Reason(err, "") != blob.KeyUnknown {
		return fmt.Errorf("reading how far records are encrypted again: %w", err)
	}
	if err != nil || at.Key != current {
		at = record.Resealing{Key: current, Began: r.now().UTC()}
	}
	r.note(at)
	if at.Ended.IsZero() {
		if at, err = r.resealFrom(ctx, log, at); err != nil || at.Ended.IsZero() {
			return err
		}
	}
	if at.Again.IsZero() {
		if err := r.settle(ctx, current, writers); err != nil {
			return err
		}
		at.After, at.Done, at.Failed, at.Again = "", 0, 0, r.now().UTC()
	}
	if at.Certain.IsZero() {
		_, err = r.resealFrom(ctx, log, at)
	}
	return err
}

func (r rotation) note(at record.Resealing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resealing = at
}

// settled is since when all processes that may write are known to have the newest key. Only Reseal
// uses it.
type settled struct {
	key   string // its ID
	since time.Time
}

// settle is nil once no record can be written with a key that is older than the current one: no
// process has an older one, and what was sent before has arrived.
func (r rotation) settle(ctx context.Context, current string, writers Writers) error {
	if r.settled.key != current {
		r.settled = settled{key: current}
	}
	keys := map[string]string{}
	if writers != nil {
		var err error
		if keys, err = writers(ctx); err != nil {
			r.settled.since = time.Time{}
			return fmt.Errorf("asking with which key the controllers encrypt records: %w", err)
		}
	}
	keys["this controller"] = r.keys.oldest()
	var behind []string
	for _, who := range slices.Sorted(maps.Keys(keys)) {
		switch id := keys[who]; id {
		case current:
		case "":
			behind = append(behind, who+" does not say with which key")
		default:
			behind = append(behind, who+" with "+id)
		}
	}
	now := r.now()
	switch {
	case len(behind) > 0:
		r.settled.since = time.Time{}
		return stillOlder(fmt.Errorf("not every controller encrypts records with the newest key %s yet: %s; each of them reads the keys every minute: if one does not follow, its log says why", current, strings.Join(behind, ", ")))
	case r.settled.since.IsZero():
		r.settled.since = now
	}
	if now.Sub(r.settled.since) < arrives {
		return stillOlder(fmt.Errorf("every controller encrypts records with the newest key %s since %s; what was sent before may arrive for %v, and then all records are looked at once more",
			current, r.settled.since.UTC().Format(time.RFC3339), arrives))
	}
	return nil
}

func stillOlder(err error) error { return fault.New(fault.Later, ReasonOlderKeys, err) }

// resealFrom goes on where it stopped. If a newer key comes meanwhile, it stops: all begins again.
func (r rotation) resealFrom(ctx context.Context, log *slog.Logger, at record.Resealing) (record.Resealing, error) {
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
		resealed, err := r.resealOne(ctx, key)
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
	if r.keys.Current().ID() != at.Key {
		return at, nil
	}
	at.Done = at.Records
	if at.Again.IsZero() {
		at.Ended = r.now().UTC()
		log.Info("records that an older key encrypted are encrypted again; older keys are still needed until this is certain",
			"key", at.Key, "records", at.Records, "resealed", at.Resealed, "failed", at.Failed)
		return at, keep()
	}
	at.Certain = r.now().UTC()
	say := log.Info
	if at.Failed > 0 {
		say = log.Warn
	}
	say("all records that open are encrypted with the newest key", "key", at.Key, "records", at.Records, "resealed", at.Resealed, "failed", at.Failed)
	return at, keep()
}

func (r rotation) resealOne(ctx context.Context, key string) (resealed bool, err error) {
	defer r.keys.writing()()
	return blob.Reseal(ctx, r.raw, r.keys, key)
}
