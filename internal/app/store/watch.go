package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/terrier-iac/terrier/internal/app/interval"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// watchEvery is how often a process looks whether the records are still its own, and
// whether their keys are still kept.
const watchEvery = time.Minute

// Watch looks again and again until ctx ends, and warns of what is wrong. It returns an
// error once the records belong to another controller.
func (r *Records) Watch(ctx context.Context, log *slog.Logger) error {
	last := ""
	for range interval.Turns(ctx, watchEvery) {
		err := r.Ours(ctx)
		if err == nil {
			err = errors.Join(r.witness(ctx), r.remember(ctx)) // of a key that was added, and in a Lease that was made
		}
		if taken := r.Taken(); taken != nil {
			return taken
		}
		if err == nil {
			last = ""
		} else if said := err.Error(); said != last && ctx.Err() == nil {
			last = said
			log.Warn("records not checked; this is tried again each minute", "err", err)
		}
	}
	return nil
}

// Taken is an error once the records were found to belong to another controller.
func (r *Records) Taken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// Held is nil if the records belonged to this controller within the last minute. A
// marker that is missing or damaged is no sign of another one.
func (r *Records) Held(ctx context.Context) error {
	if err := r.Taken(); err != nil {
		return err
	}
	_, err := r.owner(ctx, watchEvery)
	if markerless(err) {
		return nil
	}
	return err
}

// markerless reports whether err says that there is no marker to be read.
func markerless(err error) bool {
	return fault.Of(err) == fault.Missing || fault.Reason(err, "") == blob.Damaged
}

// owner reads whose the records are, unless that was read less than fresh ago.
func (r *Records) owner(ctx context.Context, fresh time.Duration) (record.Installation, error) {
	r.mu.Lock()
	is, recent := r.is, r.now().Sub(r.seen) < fresh
	r.mu.Unlock()
	if is.Cluster == "" || recent { // without a cluster, nothing is to be compared
		return is, nil
	}
	now := r.now()
	found, err := record.Marker().Read(ctx, r.Store)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case markerless(err):
		r.seen = now
		fallthrough
	case err != nil:
		return is, fmt.Errorf("reading to which cluster the records belong: %w", err)
	}
	if r.taken = another(found, is); r.taken == nil {
		r.seen = now
	}
	return is, r.taken
}

// witness leaves a record of the newest key, by which a later start notices that it
// lost that key.
func (r *Records) witness(ctx context.Context) error {
	if r.keys.kept == nil {
		return nil
	}
	id := r.keys.Current().ID()
	if id == r.witnessed {
		return nil
	}
	_, err := record.Read(ctx, r.Store, record.Witness(id))
	if fault.Of(err) == fault.Missing {
		err = record.Write(ctx, r.Store, record.Witness(id), []byte(id))
	}
	if err == nil {
		r.witnessed = id
	}
	return err
}
