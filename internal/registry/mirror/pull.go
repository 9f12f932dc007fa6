package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/room"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// OpenArchive opens the archive of a key, as Version returned it. If it is not stored, it
// is downloaded, once for all who ask, and verified before this returns. A caller that
// leaves does not end the download, unless that has not begun and no other waits for it.
func (m *Mirror) OpenArchive(ctx context.Context, tenant, key string) (registry.Archive, error) {
	p, v, platform, err := parseKey(key)
	if err != nil {
		return registry.Archive{}, fault.New(fault.Missing, ReasonMissing, err)
	}
	a, err := (&one{m, p, v, platform}).open(ctx, tenant)
	return a, m.counted(tenant, p, err)
}

// Served counts what a client got of an archive. The bytes of a new archive are saved
// from its second download on.
func (m *Mirror) Served(tenant, key string, bytes int64) {
	p, _, _, err := parseKey(key)
	if err != nil {
		return
	}
	m.options.Counts.Served(tenant, p.Host, bytes, bytes-m.unserved.take(key, bytes))
}

// unserved are bytes of new archives that no client got yet, by key.
type unserved struct {
	mu  sync.Mutex
	all map[string]int64
}

func (u *unserved) add(key string, bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = map[string]int64{}
	}
	u.all[key] += bytes
}

// take returns how many of some bytes were not served before.
func (u *unserved) take(key string, bytes int64) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	left, ok := u.all[key]
	if !ok {
		return 0
	}
	taken := min(left, bytes)
	if u.all[key] = left - taken; left == taken {
		delete(u.all, key)
	}
	return taken
}

// one is the archive of a platform.
type one struct {
	*Mirror
	p        address.Provider
	v        address.Version
	platform address.Platform
}

func (o *one) key() string { return ArchiveKey(o.p, o.v, o.platform) }

func (o *one) String() string {
	return fmt.Sprintf("the archive of %s %s for %s", o.p, o.v, o.platform)
}

// of is what a release says about it; nil if it has none for the platform.
func (o *one) of(r *Release) *Package { return r.Packages[o.platform.String()] }

// change changes what the index says about it.
func (o *one) change(ctx context.Context, change func(*Package)) error {
	return o.records.release(ctx, o.p, o.v, func(r *Release) {
		if pkg := o.of(r); pkg != nil {
			change(pkg)
		}
	})
}

func (o *one) open(ctx context.Context, tenant string) (registry.Archive, error) {
	for tries := 0; ; tries++ {
		r, err := o.release(ctx, tenant, o.p, o.v)
		if err != nil {
			return registry.Archive{}, err
		}
		pkg := o.of(r)
		if pkg == nil {
			if u := o.upstreams[o.p.Host]; r.Sums == "" && !u.settings.Offline { // the upstream may have it
				if err := o.down(fmt.Sprintf("%s %s", o.p, o.v)); err != nil {
					return registry.Archive{}, err
				}
			}
			return registry.Archive{}, fault.New(fault.Missing, ReasonMissing, fmt.Errorf("%s %s has no archive for %s", o.p, o.v, o.platform))
		}
		if pkg.here() {
			value, err := o.store.Open(ctx, o.key())
			if err == nil {
				o.used(ctx, pkg)
				return registry.Archive{ReadSeekCloser: value, Name: path.Base(o.key()), Size: value.Size, Modified: pkg.Stored}, nil
			}
			if fault.Of(err) != fault.Missing {
				return registry.Archive{}, err
			}
			// It was deleted, and the index does not say so yet.
		}
		if tries == 2 {
			return registry.Archive{}, fault.New(fault.Later, "ArchiveGone", fmt.Errorf("%s was deleted each time it was stored: check what else deletes in the store of the mirror", o))
		}
		if err := o.share(ctx, tenant); err != nil {
			return registry.Archive{}, err
		}
	}
}

// share waits for the one pull of the archive.
func (o *one) share(ctx context.Context, tenant string) error {
	leave := o.slots.enter(o.key(), o.p.Host, tenant)
	defer leave()
	for {
		_, err := o.pulls.Do(ctx, o.key(), func(ctx context.Context) (struct{}, error) {
			if err := o.down(o.key()); err != nil { // the answer needs no slot
				return struct{}{}, err
			}
			over, err := o.slots.take(o.key())
			if err != nil {
				return struct{}{}, err
			}
			defer over()
			return asked(o.Mirror, o.upstreams[o.p.Host], o.key(), func() (struct{}, error) {
				return struct{}{}, o.pull(ctx, tenant)
			})
		})
		if !errors.Is(err, errLeft) {
			return err
		}
		// This client came as the last one left: it asks again.
	}
}

// used records the day of the use of an archive, at most once a day.
func (o *one) used(ctx context.Context, pkg *Package) {
	today := day(o.options.Now())
	if !pkg.Used.Before(today) {
		return
	}
	if err := o.change(ctx, func(now *Package) { now.Used, now.Unused = later(now.Used, today), time.Time{} }); err != nil { // it is served all the same, and kept a day too short
		o.options.Log.Warn("use of an archive not recorded", "provider", o.p.String(), "version", string(o.v), "err", err)
	}
}

// pull brings the archive into the store, and says so in the index. An archive that is in
// the store already is verified like one from the upstream.
func (o *one) pull(ctx context.Context, tenant string) (err error) {
	index, err := o.records.read(ctx, o.p)
	if err != nil {
		return err
	}
	if index == nil || index.Releases[o.v] == nil || o.of(index.Releases[o.v]) == nil {
		return fault.New(fault.Later, "ArchiveGone", fmt.Errorf("the index of %s was deleted: try again", o.p))
	}
	r := index.Releases[o.v]
	file, err := room.Scratch(o.options.Scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	there, size, good, err := o.copyStored(ctx, o.of(r), file)
	if err != nil {
		return err
	}
	again := func() (bool, error) {
		if err := errors.Join(file.Truncate(0), rewind(file)); err != nil {
			return false, err
		}
		there, size, good, err = o.copyStored(ctx, o.of(r), file)
		return good, err
	}
	if !good {
		c, err := o.claimed(ctx, again)
		if err != nil {
			return err
		}
		defer c.end(ctx)
		if c != nil { // another process may have stored it before
			if _, err := again(); err != nil {
				return err
			}
		}
	}
	if !good {
		if err := errors.Join(file.Truncate(0), rewind(file)); err != nil {
			return err
		}
		if size, err = o.fromUpstream(ctx, tenant, r, file); err != nil {
			return err
		}
		if err := o.publish(ctx, there, file, size); err != nil {
			return err
		}
		o.unserved.add(o.key(), size)
	}
	return o.record(ctx, file, size, false)
}

func rewind(file *os.File) error {
	_, err := file.Seek(0, io.SeekStart)
	return err
}

// copyStored is fromStore to a file, as long as the disk has room for that.
func (o *one) copyStored(ctx context.Context, pkg *Package, to *os.File) (there blob.Version, size int64, good bool, err error) {
	claim, err := o.options.Room.Claim(0)
	if err != nil {
		return blob.None, 0, false, err
	}
	defer claim.Close()
	return o.fromStore(ctx, pkg, claim.Writer(to))
}

// fromStore copies the archive of the store. It is good if it is the one of the release.
func (o *one) fromStore(ctx context.Context, pkg *Package, to io.Writer) (there blob.Version, size int64, good bool, err error) {
	value, err := o.store.Open(ctx, o.key())
	if fault.Of(err) == fault.Missing {
		return blob.None, 0, false, nil
	}
	if err != nil {
		return blob.None, 0, false, err
	}
	defer value.Close()
	got, size, err := sum(io.TeeReader(blob.Bounded(ctx, value, o.options.MaxArchive), to))
	if err != nil {
		return blob.None, 0, false, fmt.Errorf("reading %s in the store: %w", o, err)
	}
	if got == pkg.SHA256 {
		return value.Version, size, true, nil
	}
	o.alarm(ctx, o.p, o.v, "the archive for %s in the store had the checksum %s, and the verified one is %s: it is not served", o.platform, got, pkg.SHA256)
	return value.Version, 0, false, nil
}

// fromUpstream downloads the archive to a file, and verifies it.
func (o *one) fromUpstream(ctx context.Context, tenant string, r *Release, to *os.File) (int64, error) {
	u, pkg := o.upstreams[o.p.Host], o.of(r)
	d, err := u.download(ctx, o.p, o.v, o.platform)
	if err != nil {
		return 0, err
	}
	if err := o.compare(ctx, r, d); err != nil {
		return 0, err
	}
	h := sha256.New()
	n, err := u.fetch(ctx, d.archive, io.MultiWriter(to, h), o.String(), o.options.Room)
	o.options.Counts.Fetched(tenant, o.p.Host, n)
	if err != nil {
		return 0, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != pkg.SHA256 {
		return 0, fault.New(fault.Broken, ReasonChecksum, fmt.Errorf("%s sent other bytes for %s than the signed checksum names, and the mirror did not store them: the checksum is %s, and %s is expected", u.host, o, got, pkg.SHA256))
	}
	return n, nil
}

// compare refuses an archive that the upstream names, if it is not the one of the
// release.
func (o *one) compare(ctx context.Context, r *Release, d *download) error {
	u, pkg := o.upstreams[o.p.Host], o.of(r)
	if d.SHA256 != pkg.SHA256 {
		o.alarm(ctx, o.p, o.v, "the upstream names the checksum %s for %s, and the verified one is %s", d.SHA256, o.platform, pkg.SHA256)
		return fault.New(fault.Broken, ReasonChanged, fmt.Errorf("%s has another archive of %s %s for %s than the one that was verified first, and the mirror does not install it: ask the publisher of the provider, or use another version", u.host, o.p, o.v, o.platform))
	}
	if r.Sums == "" {
		return nil
	}
	sums, err := u.file(ctx, d.sums, signature.MaxSums, fmt.Sprintf("SHA256SUMS of %s %s", o.p, o.v))
	if err != nil {
		return err
	}
	digest := sha256.Sum256(sums)
	if now := hex.EncodeToString(digest[:]); now != r.Sums {
		o.alarm(ctx, o.p, o.v, "SHA256SUMS of the upstream has the checksum %s, and the verified one has %s", now, r.Sums)
	}
	return nil
}

// publish puts the verified archive into the store, in place of the version that was
// there. If another process stored it meanwhile, that has to be the same.
func (o *one) publish(ctx context.Context, there blob.Version, file *os.File, size int64) error {
	defer failpoint.Act("mirror.publish", o.key())()
	_, err := o.store.Replace(ctx, o.key(), there, io.NewSectionReader(file, 0, size))
	if fault.Reason(err, "") != blob.Changed {
		return err
	}
	ours, _, err := sum(io.NewSectionReader(file, 0, size))
	if err != nil {
		return err
	}
	_, _, good, err := o.fromStore(ctx, &Package{SHA256: ours}, io.Discard)
	if err == nil && !good {
		err = fault.New(fault.Later, blob.Changed, fmt.Errorf("another process stores %s: try again", o))
	}
	return err
}

// record says in the index that the archive is stored.
func (o *one) record(ctx context.Context, file *os.File, size int64, pinned bool) error {
	h1 := o.hash(file, size)
	defer failpoint.Act("mirror.record", o.p.String())()
	now := o.options.Now().UTC()
	return o.change(ctx, func(pkg *Package) {
		pkg.H1, pkg.Size, pkg.Stored, pkg.Used, pkg.Unused, pkg.Removing = h1, size, now, later(pkg.Used, day(now)), time.Time{}, false
		pkg.Pinned = pkg.Pinned || pinned
	})
}

// hash is the h1 of the archive; empty if it is no zip archive of an ordinary size. It is
// served all the same, since its publisher signed it, and clients say what is wrong.
func (o *one) hash(file *os.File, size int64) string {
	h1, err := archive.HashZip(file, size)
	if err != nil {
		o.options.Log.Warn("archive of a provider not hashed", "provider", o.p.String(), "version", string(o.v), "platform", o.platform.String(), "err", err)
	}
	return h1
}
