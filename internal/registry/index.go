package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
)

const (
	mostIndex    = 64 << 20    // bytes of one index; 10,000 versions have 3 MiB
	parsedWeight = 64 << 20    // bytes of all indexes in memory
	entryWeight  = 300         // bytes of one version in memory, about
	listedFor    = time.Minute // how long the answer of a list is used where no index can be written
)

// indexes reads and changes objects of the store in JSON. Values that read returns are
// shared, and are not to be changed.
type indexes[D document] struct {
	store blob.Versions
	log   *slog.Logger

	parsed cache.Map[string, parsed[D]]   // by key, as long as the store has that version
	listed cache.Map[string, *listing[D]] // what has no object: it cannot be written, or there is nothing
}

// document is what an index holds.
type document interface {
	entries() int
}

type parsed[D any] struct {
	version blob.Version
	size    int
	content D
}

type listing[D any] struct{ content D }

func newIndexes[D document](store blob.Versions, o Options) *indexes[D] {
	return &indexes[D]{
		store: store,
		log:   o.Log,
		parsed: cache.Map[string, parsed[D]]{
			Size: 10_000, Weight: parsedWeight, Weigh: func(key string, p parsed[D]) int { return len(key) + p.size },
		},
		listed: cache.Map[string, *listing[D]]{
			Size: 10_000, TTL: listedFor, Now: o.Now,
			Weight: parsedWeight, Weigh: func(key string, l *listing[D]) int { return len(key) + entryWeight*(1+l.content.entries()) },
		},
	}
}

// rebuild makes the content of an index from one list of the store.
type rebuild[D any] func(context.Context) (D, error)

// read returns an index. Where there is none, it is made from a list, and written.
func (x *indexes[D]) read(ctx context.Context, key string, again rebuild[D]) (D, error) {
	var none D
	v, err := x.store.Open(ctx, key)
	if fault.Of(err) == fault.Missing {
		return x.first(ctx, key, again)
	}
	if err != nil {
		return none, err
	}
	defer v.Close()
	if p, ok := x.parsed.Get(key); ok && p.version == v.Version {
		return p.content, nil
	}
	b, err := io.ReadAll(blob.Bounded(ctx, v, mostIndex))
	if err != nil {
		return none, fmt.Errorf("reading the index %s: %w", key, err)
	}
	content, err := decode[D](key, b)
	if err == nil {
		x.parsed.Put(key, parsed[D]{v.Version, len(b), content})
	}
	return content, err
}

// first makes an index at the first request for it. All who wait share one list. The
// answer stays in memory for a while, for what is not there, and for a store that cannot
// be written.
func (x *indexes[D]) first(ctx context.Context, key string, again rebuild[D]) (D, error) {
	l, err := x.listed.Load(ctx, key, func(ctx context.Context) (*listing[D], error) {
		content, err := again(ctx)
		if err != nil || content.entries() == 0 {
			return &listing[D]{content}, err
		}
		err = x.update(ctx, key, func(context.Context) (D, error) { return content, nil }, func(now *D) error {
			content = *now
			return nil
		})
		if err != nil {
			x.log.Warn("index not written", "key", key, "err", err)
		}
		return &listing[D]{content}, nil
	})
	if err != nil {
		var none D
		return none, err
	}
	return l.content, nil
}

// update changes an index, as often as another process was faster. Where there is none,
// it is made from a list.
func (x *indexes[D]) update(ctx context.Context, key string, again rebuild[D], change func(*D) error) error {
	err := blob.Update(ctx, x.store, key, mostIndex, func(old []byte) ([]byte, error) {
		var content D
		var err error
		if old == nil {
			content, err = again(ctx)
		} else {
			content, err = decode[D](key, old)
		}
		if err == nil {
			err = change(&content)
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(content)
	})
	if err == nil {
		x.listed.Delete(key)
	}
	return err
}

func decode[D any](key string, b []byte) (D, error) {
	var content D
	if err := json.Unmarshal(b, &content); err != nil {
		return content, fmt.Errorf("reading the index %s: %w: delete it, and it is made again from the archives", key, err)
	}
	return content, nil
}
