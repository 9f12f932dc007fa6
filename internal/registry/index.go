package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
)

const (
	mostIndex    = 64 << 20    // bytes of one index; 10,000 versions of a provider for 6 platforms have 7 MiB
	parsedWeight = 64 << 20    // bytes of all indexes in memory
	entryWeight  = 300         // bytes of one version in memory, about
	listedFor    = time.Minute // how long the answer of a list is used where no index can be written
	readFor      = time.Minute // how long reading an index may take, for all who wait for it
)

// Edition tells the contents of an index apart: what was made of one edition is right as long
// as the registry answers with the same. Another process may call the same content otherwise.
type Edition string

// Listed are the versions of a module or a provider, the lowest first, those that are retracted
// included.
type Listed[V any] struct {
	Versions []V // shared, and not to be changed
	Edition  Edition
}

// indexes reads and changes objects of the store in JSON. Values that read returns are
// shared, and are not to be changed.
type indexes[D document[D]] struct {
	store blob.Versions
	log   *slog.Logger

	parsed  cache.Map[string, parsed[D]]    // by key, as long as the store has that version
	reading cache.Flight[string, parsed[D]] // by key and version
	listed  cache.Map[string, *listing[D]]  // what has no object: it cannot be written, or there is nothing
	lists   atomic.Int64                    // that were made, and are the editions of what has no object
}

// document is what an index holds.
type document[D any] interface {
	entries() int
	arranged() D // with its entries in order, for those who read it
}

type parsed[D any] struct {
	version blob.Version
	size    int
	content D
}

type listing[D any] struct {
	content D
	edition Edition
}

func newIndexes[D document[D]](store blob.Versions, o Options) *indexes[D] {
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
	content, _, err := x.edition(ctx, key, again)
	return content, err
}

// edition is read with the edition of what it returns. All who wait for a new edition share
// reading it: a large one takes ten times its size of memory.
func (x *indexes[D]) edition(ctx context.Context, key string, again rebuild[D]) (D, Edition, error) {
	var none D
	v, err := x.store.Open(ctx, key)
	if fault.Of(err) == fault.Missing {
		l, err := x.first(ctx, key, again)
		if err != nil {
			return none, "", err
		}
		return l.content, l.edition, nil
	}
	if err != nil {
		return none, "", err
	}
	defer v.Close()
	p, ok := x.parsed.Get(key)
	if !ok || p.version != v.Version {
		if p, err = x.reading.Do(ctx, key+"\n"+string(v.Version), func(ctx context.Context) (parsed[D], error) { return x.parse(ctx, key) }); err != nil {
			return none, "", err
		}
	}
	return p.content, Edition(p.version), nil
}

// parse reads an index. It opens it by itself, since the caller that did so may leave.
func (x *indexes[D]) parse(ctx context.Context, key string) (parsed[D], error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	v, err := x.store.Open(ctx, key)
	if err != nil {
		return parsed[D]{}, err
	}
	defer v.Close()
	if p, ok := x.parsed.Get(key); ok && p.version == v.Version {
		return p, nil
	}
	b, err := io.ReadAll(blob.Bounded(ctx, v, mostIndex))
	if err != nil {
		return parsed[D]{}, fmt.Errorf("reading the index %s: %w", key, err)
	}
	content, err := decode[D](key, b)
	if err != nil {
		return parsed[D]{}, err
	}
	p := parsed[D]{v.Version, len(b), content.arranged()}
	x.parsed.Put(key, p)
	return p, nil
}

// first makes an index at the first request for it. All who wait share one list. The
// answer stays in memory for a while, for what is not there, and for a store that cannot
// be written.
func (x *indexes[D]) first(ctx context.Context, key string, again rebuild[D]) (*listing[D], error) {
	return x.listed.Load(ctx, key, func(ctx context.Context) (*listing[D], error) {
		content, err := again(ctx)
		if err != nil || content.entries() == 0 {
			return &listing[D]{content: content}, err
		}
		err = x.update(ctx, key, func(context.Context) (D, error) { return content, nil }, func(now *D) error {
			content = *now
			return nil
		})
		if err != nil {
			x.log.Warn("index not written", "key", key, "err", err)
		}
		return &listing[D]{content.arranged(), Edition(fmt.Sprintf("list %d", x.lists.Add(1)))}, nil
	})
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
