package mirror

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// The keys of a mirror. Those of archives are the keys of boring-registry.
//
//	mirror/providers/HOST/NAMESPACE/TYPE/terraform-provider-TYPE_VERSION_OS_ARCH.zip
//	mirror/providers/HOST/NAMESPACE/TYPE/terraform-provider-TYPE_VERSION_SHA256SUMS, and .sig
//	mirror/providers/HOST/NAMESPACE/signing-keys.json
//	index/mirror/HOST/NAMESPACE/TYPE.json
const (
	// Prefix begins the keys of archives.
	Prefix  = "mirror/providers/"
	indexes = "index/mirror/"
)

func dirKey(p address.Provider) string { return Prefix + p.String() + "/" }

func indexKey(p address.Provider) string { return indexes + p.String() + ".json" }

func keysKey(p address.Provider) string {
	return Prefix + p.Host + "/" + p.Namespace + "/signing-keys.json"
}

// parseKey reads the key of an archive. Neither a version nor a platform has an
// underscore, and the type of the provider is known.
func parseKey(key string) (p address.Provider, v address.Version, platform address.Platform, err error) {
	name, ok := strings.CutPrefix(key, Prefix)
	if p, err = address.ParseProvider(path.Dir(name)); err != nil {
		return p, v, platform, err
	}
	version, rest, _ := strings.Cut(strings.TrimPrefix(path.Base(name), "terraform-provider-"+p.Type+"_"), "_")
	if v, err = address.ParseVersion(version); err != nil {
		return p, v, platform, err
	}
	if platform, err = address.ParsePlatform(strings.TrimSuffix(rest, ".zip")); err != nil {
		return p, v, platform, err
	}
	if !ok || key != ArchiveKey(p, v, platform) {
		err = fmt.Errorf("%.300q is no archive of the mirror", key)
	}
	return p, v, platform, err
}

// ArchiveKey is the key of an archive of a provider.
func ArchiveKey(p address.Provider, v address.Version, platform address.Platform) string {
	return dirKey(p) + signature.Archive(p.Type, string(v), platform.String())
}

func sumsKey(p address.Provider, v address.Version) string {
	return dirKey(p) + signature.SumsName(p.Type, string(v))
}

// Index is what the mirror knows about one provider. What it says of a release never
// changes, except whether an archive is stored.
type Index struct {
	Listed   map[address.Version][]string `json:"listed,omitempty"` // versions and platforms in the last list of the upstream
	ListedAt time.Time                    `json:"listedAt,omitzero"`
	Releases map[address.Version]*Release `json:"releases,omitempty"` // those that are verified
	Alarms   []Alarm                      `json:"alarms,omitempty"`   // the newest last

	version blob.Version // of the object that it was read from
}

// Release is a verified version of a provider.
type Release struct {
	Sums     string              `json:"sums,omitempty"`  // the SHA-256 of SHA256SUMS; empty for an imported release that has none
	KeyID    string              `json:"keyID,omitempty"` // the key of its signature; empty if it is unsigned
	Expired  bool                `json:"expired,omitempty"`
	From     string              `json:"from"` // the upstream, or who imported it
	Verified time.Time           `json:"verified"`
	Compared time.Time           `json:"compared,omitzero"` // with the upstream, last
	Packages map[string]*Package `json:"packages"`          // by platform
}

// Package is what a release has for one platform.
type Package struct {
	SHA256 string    `json:"sha256"`           // of the archive, in hex, as SHA256SUMS has it
	File   string    `json:"file,omitempty"`   // its name in SHA256SUMS, if that is not the usual one
	H1     string    `json:"h1,omitempty"`     // of the files in it; known since it was stored first
	Size   int64     `json:"size,omitempty"`   // in bytes; known since it was stored first
	Told   int64     `json:"told,omitempty"`   // its size as the upstream said before it was stored
	Stored time.Time `json:"stored,omitzero"`  // zero: the archive is not here
	Used   time.Time `json:"used,omitzero"`    // the day of the last download
	Pinned bool      `json:"pinned,omitempty"` // an operator imported it: it stays

	Unused   time.Time `json:"unused,omitzero"`    // when a sweep found it unused first, since its last use
	Removing bool      `json:"removing,omitempty"` // a sweep deletes the archive
}

// here reports whether the archive is stored, and was verified by this mirror.
func (p *Package) here() bool { return p != nil && !p.Stored.IsZero() && p.Size > 0 }

func (p *Package) hashes() []string {
	all := []string{"zh:" + p.SHA256}
	if p.H1 != "" {
		all = append(all, p.H1)
	}
	return all
}

// stored reports whether an archive of the release is here.
func (r *Release) stored() bool {
	for _, p := range r.Packages {
		if !p.Stored.IsZero() {
			return true
		}
	}
	return false
}

// mostIndex bounds an index, and parsedWeight all that are held in memory.
const (
	mostIndex    = 64 << 20
	parsedWeight = 64 << 20
)

// readFor is how long reading an index may take, for all who wait for it.
const readFor = time.Minute

// records reads and changes indexes. What read returns is shared, and not to be changed.
type records struct {
	store   blob.Versions
	parsed  cache.Map[string, parsed]    // by key, as long as the store has that version
	reading cache.Flight[string, parsed] // by key and version
}

type parsed struct {
	size  int
	index *Index // nil if there is none
}

func newRecords(store blob.Versions) *records {
	return &records{store: store, parsed: cache.Map[string, parsed]{
		Size: 10_000, Weight: parsedWeight, Weigh: func(key string, p parsed) int { return len(key) + p.size },
	}}
}

// read returns the index of a provider, or nil if there is none. All who wait for a new version
// of it share reading it.
func (r *records) read(ctx context.Context, p address.Provider) (*Index, error) {
	key := indexKey(p)
	v, err := r.store.Open(ctx, key)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Close()
	if known, ok := r.parsed.Get(key); ok && known.index.version == v.Version {
		return known.index, nil
	}
	now, err := r.reading.Do(ctx, key+"\n"+string(v.Version), func(ctx context.Context) (parsed, error) { return r.parse(ctx, key) })
	return now.index, err
}

// parse reads an index. It opens it by itself, since the caller that did so may leave.
func (r *records) parse(ctx context.Context, key string) (parsed, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	v, err := r.store.Open(ctx, key)
	if fault.Of(err) == fault.Missing { // deleted meanwhile
		return parsed{}, nil
	}
	if err != nil {
		return parsed{}, err
	}
	defer v.Close()
	text, err := io.ReadAll(blob.Bounded(ctx, v, mostIndex))
	if err != nil {
		return parsed{}, fmt.Errorf("reading the index %s: %w", key, err)
	}
	index, err := decode(key, text)
	if err != nil {
		return parsed{}, err
	}
	index.version = v.Version
	p := parsed{len(text), index}
	r.parsed.Put(key, p)
	return p, nil
}

// providers are those that have an index, by one list of the store.
func (r *records) providers(ctx context.Context) ([]address.Provider, error) {
	keys, err := r.store.List(ctx, indexes)
	if err != nil {
		return nil, err
	}
	var all []address.Provider
	for _, key := range keys {
		p, err := address.ParseProvider(strings.TrimSuffix(strings.TrimPrefix(key, indexes), ".json"))
		if err == nil && indexKey(p) == key {
			all = append(all, p)
		}
	}
	return all, nil
}

// update changes the index of a provider, as often as another process was faster.
func (r *records) update(ctx context.Context, p address.Provider, change func(*Index)) error {
	key := indexKey(p)
	return blob.Update(ctx, r.store, key, mostIndex, func(old []byte) ([]byte, error) {
		index := &Index{}
		if old != nil {
			var err error
			if index, err = decode(key, old); err != nil {
				return nil, err
			}
		}
		if index.Releases == nil {
			index.Releases = map[address.Version]*Release{}
		}
		change(index)
		return json.Marshal(index)
	})
}

// release changes what the index says of one release, if it is there.
func (r *records) release(ctx context.Context, p address.Provider, v address.Version, change func(*Release)) error {
	return r.update(ctx, p, func(i *Index) {
		if found := i.Releases[v]; found != nil {
			change(found)
		}
	})
}

func decode(key string, text []byte) (*Index, error) {
	var i Index
	if err := json.Unmarshal(text, &i); err != nil {
		return nil, fmt.Errorf("reading the index %s: %w: delete it, and the mirror makes it again from the archives", key, err)
	}
	return &i, nil
}

// addKeys adds the keys of an upstream to those of a namespace, as a bucket of
// boring-registry has them. A key that is there stays as it is.
func (r *records) addKeys(ctx context.Context, p address.Provider, keys []signature.Key) error {
	return blob.Update(ctx, r.store, keysKey(p), mostIndex, func(old []byte) ([]byte, error) {
		all, err := decodeKeys(old)
		if err != nil {
			return nil, err
		}
		added := false
		for _, k := range keys {
			if !hasKey(all, k) {
				all, added = append(all, k), true
			}
		}
		if !added {
			return old, nil
		}
		return json.Marshal(keyFile{Keys: all})
	})
}

func hasKey(all []signature.Key, k signature.Key) bool {
	for _, known := range all {
		if known.ID == k.ID && known.Armor == k.Armor {
			return true
		}
	}
	return false
}

// keys are those of a namespace.
func (r *records) keys(ctx context.Context, p address.Provider) ([]signature.Key, error) {
	text, err := r.small(ctx, keysKey(p), mostIndex)
	if err != nil {
		return nil, err
	}
	return decodeKeys(text)
}

// keyFile is signing-keys.json. Older ones have a single key.
type keyFile struct {
	Keys []signature.Key `json:"gpg_public_keys"`
}

func decodeKeys(text []byte) ([]signature.Key, error) {
	if text == nil {
		return nil, nil
	}
	var all struct {
		keyFile
		signature.Key
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("reading the keys of signatures: %w", err)
	}
	if all.Key.Armor != "" {
		return append(all.Keys, all.Key), nil
	}
	return all.Keys, nil
}

// addSums keeps the list of checksums of a release that was verified, and its signature.
// What is there is of no release that was verified. The list comes last: where it is, the
// signature is.
func (r *records) addSums(ctx context.Context, p address.Provider, v address.Version, sums, signed []byte) error {
	key := sumsKey(p, v)
	if signed != nil {
		if err := r.store.Put(ctx, key+".sig", bytes.NewReader(signed)); err != nil {
			return err
		}
	}
	return r.store.Put(ctx, key, bytes.NewReader(sums))
}

// small reads a value whole; nil if there is none.
func (r *records) small(ctx context.Context, key string, most int64) ([]byte, error) {
	v, err := r.store.Open(ctx, key)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Close()
	text, err := io.ReadAll(blob.Bounded(ctx, v, most))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return text, nil
}

// day is the time to which the use of an archive is recorded, so that a day costs one
// write of the index however often the archive is used.
func day(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// later is the later one of two times.
func later(a, b time.Time) time.Time {
	if cmp.Compare(a.UnixNano(), b.UnixNano()) < 0 {
		return b
	}
	return a
}
