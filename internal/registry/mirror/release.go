package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// Reasons of releases that are not verified.
const (
	ReasonSignature = "SignatureInvalid" // no key of the upstream signed SHA256SUMS
	ReasonChecksum  = "ChecksumMismatch" // an archive is not the one that SHA256SUMS names
	ReasonChanged   = "ReleaseChanged"   // the upstream has another release under the same version
)

// mostAsked is for how many platforms an upstream is asked for one release.
const mostAsked = 40

func archiveName(p address.Provider, v address.Version, platform address.Platform) string {
	return signature.Archive(p.Type, string(v), platform.String())
}

// release returns a verified release: the known one, that of the store, or that of the
// upstream.
func (m *Mirror) release(ctx context.Context, tenant string, p address.Provider, v address.Version) (*Release, error) {
	u, err := m.upstream(tenant, p)
	if err == nil {
		err = m.rules.of(tenant, p).version(v)
	}
	if err != nil {
		return nil, err
	}
	index, err := m.records.read(ctx, p)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%s %s", p, v)
	verify := func(ctx context.Context) (*Release, error) {
		return m.releases.Do(ctx, what, func(ctx context.Context) (*Release, error) {
			return asked(m, u, what, func() (*Release, error) { return m.verified(ctx, u, p, v) })
		})
	}
	if index == nil || index.Releases[v] == nil {
		return strange(m, u, tenant, p, index, func() (*Release, error) { return verify(ctx) })
	}
	known := index.Releases[v]
	if known.Sums != "" || u.settings.Offline {
		return known, nil
	}
	// An imported release without checksums has the archives of its bundle alone.
	r, err := soon(ctx, m, u, what, "verify "+what, verify)
	if err == nil || ctx.Err() != nil {
		return r, err
	}
	m.options.Log.Warn("imported release not verified, its imported archives are served", "provider", p.String(), "version", string(v), "err", err)
	return known, nil
}

// verified verifies a release that has no signed checksums in the index, and puts it there.
func (m *Mirror) verified(ctx context.Context, u *upstream, p address.Provider, v address.Version) (*Release, error) {
	r, err := m.storedRelease(ctx, p, v)
	if err == nil && r == nil {
		r, err = m.fetchRelease(ctx, u, p, v)
	}
	if err != nil {
		return nil, err
	}
	var other string // the platform whose imported archive is another one
	var result *Release
	err = m.records.update(ctx, p, func(i *Index) {
		known := i.Releases[v]
		other, result = "", known
		if known != nil && known.Sums != "" { // another process was faster
			return
		}
		if known != nil {
			if other = r.differs(known); other != "" {
				return
			}
		}
		merged := *r
		merged.Packages = maps.Clone(r.Packages)
		if known != nil {
			maps.Copy(merged.Packages, known.Packages)
		}
		i.Releases[v], result = &merged, &merged
	})
	if err != nil || other == "" {
		return result, err
	}
	m.alarm(ctx, p, v, "the signed checksum for %s is %s, and the imported archive has %s", other, r.Packages[other].SHA256, result.Packages[other].SHA256)
	return nil, fault.New(fault.Broken, ReasonChanged, fmt.Errorf("%s has another archive of %s %s for %s than the imported one, and the mirror installs the imported archives of this version alone: ask the publisher of the provider, or use another version", u.host, p, v, other))
}

// differs is a platform for which another release has another archive; empty if there is
// none.
func (r *Release) differs(other *Release) string {
	for platform, pkg := range other.Packages {
		if mine := r.Packages[platform]; mine != nil && mine.SHA256 != pkg.SHA256 {
			return platform
		}
	}
	return ""
}

// fetchRelease verifies a release of the upstream, and stores its list of checksums.
func (m *Mirror) fetchRelease(ctx context.Context, u *upstream, p address.Provider, v address.Version) (*Release, error) {
	what := fmt.Sprintf("%s %s", p, v)
	platforms, err := m.platforms(ctx, u, p, v)
	if err != nil {
		return nil, err
	}
	first, d, err := firstDownload(ctx, u, p, v, platforms)
	if err != nil {
		return nil, err
	}
	sums, err := u.file(ctx, d.sums, signature.MaxSums, "SHA256SUMS of "+what)
	if err != nil {
		return nil, err
	}
	var signed []byte
	if len(d.Signing.Keys) > 0 {
		if signed, err = u.file(ctx, d.signature, mostSignature, "the signature of "+what); err != nil {
			return nil, err
		}
	}
	r, list, err := check(m.options.Now().UTC(), p, v, sums, signed, d.Signing.Keys, u.unsigned())
	if err != nil {
		return nil, fault.New(fault.Broken, fault.Reason(err, ReasonSignature), fmt.Errorf("the release %s of %s is not verified, and not installed: %w", what, u.host, err))
	}
	r.From = u.host
	for _, platform := range platforms {
		if r.Packages[platform.String()] != nil {
			continue
		}
		// Its archive has a name of its own, or is not there.
		d := d
		if platform != first {
			if d, err = u.download(ctx, p, v, platform); fault.Of(err) == fault.Missing {
				continue
			} else if err != nil {
				return nil, err
			}
		}
		if sum, ok := list[d.Filename]; ok {
			r.Packages[platform.String()] = &Package{SHA256: sum, File: d.Filename}
		}
	}
	if pkg := r.Packages[first.String()]; pkg == nil || pkg.SHA256 != d.SHA256 {
		return nil, fault.New(fault.Broken, ReasonChecksum, fmt.Errorf("the release %s of %s is not verified, and not installed: the registry names another checksum for %q than SHA256SUMS", what, u.host, d.Filename))
	}
	if err := m.records.addKeys(ctx, p, d.Signing.Keys); err != nil {
		return nil, err
	}
	return r, m.records.addSums(ctx, p, v, sums, signed)
}

// platforms are those of a version in the list of the upstream, with the most common one
// first: any of them leads to the checksums of all.
func (m *Mirror) platforms(ctx context.Context, u *upstream, p address.Provider, v address.Version) ([]address.Platform, error) {
	index, err := m.list(ctx, u, p)
	if err != nil {
		return nil, err
	}
	names, ok := index.Listed[v]
	if !ok {
		return nil, fault.New(fault.Missing, ReasonMissing, fmt.Errorf("%s does not have %s %s", u.host, p, v))
	}
	common := address.Platform{OS: "linux", Arch: "amd64"}
	all := []address.Platform{}
	for _, name := range names {
		if platform, err := address.ParsePlatform(name); err == nil {
			all = append(all, platform)
		}
	}
	slices.SortFunc(all, func(a, b address.Platform) int { return strings.Compare(a.String(), b.String()) })
	if len(all) == 0 { // a registry may leave them out
		all = append(all, common)
	}
	if i := slices.Index(all, common); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, common)
	}
	return all[:min(len(all), mostAsked)], nil
}

// firstDownload is the document of the first platform that has one.
func firstDownload(ctx context.Context, u *upstream, p address.Provider, v address.Version, platforms []address.Platform) (platform address.Platform, d *download, err error) {
	for _, platform = range platforms {
		if d, err = u.download(ctx, p, v, platform); fault.Of(err) != fault.Missing {
			return platform, d, err
		}
	}
	return platform, nil, err
}

// unsigned reports whether releases without a key are accepted.
func (u *upstream) unsigned() bool { return u.settings.Unsigned || u.host == publicHost }

// check verifies the list of checksums of a release. Where the registry names keys, one
// of them has to have signed it.
func check(now time.Time, p address.Provider, v address.Version, sums, signed []byte, keys []signature.Key, unsigned bool) (*Release, signature.Sums, error) {
	digest := sha256.Sum256(sums)
	r := &Release{Sums: hex.EncodeToString(digest[:]), Verified: now, Compared: now, Packages: map[string]*Package{}}
	switch {
	case len(keys) > 0:
		signer, err := signature.Verify(sums, signed, keys, now)
		if err != nil {
			return nil, nil, fault.New(fault.Broken, ReasonSignature, err)
		}
		r.KeyID, r.Expired = signer.KeyID, signer.Expired
	case !unsigned:
		return nil, nil, fault.New(fault.Broken, ReasonSignature, errors.New("the registry names no key for its signature: set unsigned: true for this upstream in the settings of the mirror to accept such releases"))
	}
	list, err := signature.ParseSums(sums)
	if err != nil {
		return nil, nil, fault.New(fault.Broken, ReasonUnreadable, err)
	}
	for platform, sum := range list.Platforms(p.Type, string(v)) {
		r.Packages[platform] = &Package{SHA256: sum}
	}
	return r, list, nil
}

// storedRelease verifies a release from the store, nil if it has no list of checksums
// that a key of the namespace signed. The store of another program has such, and that of
// a mirror that ended before it wrote its index.
func (m *Mirror) storedRelease(ctx context.Context, p address.Provider, v address.Version) (*Release, error) {
	sums, err := m.records.small(ctx, sumsKey(p, v), signature.MaxSums)
	if err != nil || sums == nil {
		return nil, err
	}
	signed, err := m.records.small(ctx, sumsKey(p, v)+".sig", mostSignature)
	if err != nil || signed == nil {
		return nil, err
	}
	keys, err := m.records.keys(ctx, p)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	r, _, err := check(m.options.Now().UTC(), p, v, sums, signed, keys, false)
	if err != nil {
		m.options.Log.Warn("a release in the store is not verified, and is asked for again", "provider", p.String(), "version", string(v), "err", err)
		return nil, nil
	}
	r.From, r.Compared = p.Host, r.Compared.AddDate(-1, 0, 0) // the upstream is asked about it soon
	return r, nil
}

// rebuild makes the index of a provider from one list of the store; nil if there is
// nothing. Archives are verified when they are asked for.
func (m *Mirror) rebuild(ctx context.Context, p address.Provider) (*Index, error) {
	keys, err := m.store.List(ctx, dirKey(p))
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	made := map[address.Version]*Release{}
	for _, key := range keys {
		v, err := address.ParseVersion(between(path.Base(key), "terraform-provider-"+p.Type+"_", "_SHA256SUMS"))
		if err != nil {
			continue
		}
		r, err := m.storedRelease(ctx, p, v)
		if err != nil {
			return nil, err
		}
		if r == nil {
			continue
		}
		for name, pkg := range r.Packages {
			if platform, err := address.ParsePlatform(name); err == nil && slices.Contains(keys, ArchiveKey(p, v, platform)) {
				pkg.Stored, pkg.Used = r.Verified, day(r.Verified)
			}
		}
		made[v] = r
	}
	if len(made) == 0 {
		return nil, nil
	}
	err = m.records.update(ctx, p, func(i *Index) {
		for v, r := range made {
			if i.Releases[v] == nil {
				i.Releases[v] = r
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return m.records.read(ctx, p)
}

func between(text, before, after string) string {
	text, ok := strings.CutPrefix(text, before)
	rest, ended := strings.CutSuffix(text, after)
	if !ok || !ended {
		return ""
	}
	return rest
}

// Compare asks the upstream whether a release is what it was when it was verified, and
// raises an alarm if not.
func (m *Mirror) Compare(ctx context.Context, p address.Provider, v address.Version) error {
	u, ok := m.upstreams[p.Host]
	if !ok {
		return nil
	}
	index, err := m.records.read(ctx, p)
	if err != nil || index == nil || index.Releases[v] == nil {
		return err
	}
	r := index.Releases[v]
	for name, pkg := range r.Packages {
		platform, err := address.ParsePlatform(name)
		if err != nil || !pkg.here() {
			continue
		}
		d, err := u.download(ctx, p, v, platform)
		if fault.Of(err) == fault.Missing {
			break // withdrawn: what is stored stays
		}
		if err != nil {
			return err
		}
		if err := (&one{m, p, v, platform}).compare(ctx, r, d); err != nil && fault.Reason(err, "") != ReasonChanged {
			return err
		}
		break
	}
	now := m.options.Now().UTC()
	return m.records.release(ctx, p, v, func(r *Release) { r.Compared = now })
}

// sum reads to the end and returns the SHA-256, in hex.
func sum(r io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
