package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// Files of a provider wait below their version until a user publishes it.
const waitingPrefix = "waiting/" + providersPrefix

const (
	mostSignature = 64 << 10
	mostManifest  = 64 << 10
	waitingFor    = 7 * 24 * time.Hour // after which files that no user published are deleted

	mostWaitingVersions = 100   // of a namespace, of which files wait
	mostWaitingFiles    = 2_000 // of a namespace
)

// waitingKey is the key of a file that waits. Packages are named by their checksums, so
// that those of two releases of one version do not mix.
func waitingKey(p address.Provider, v address.Version, name string) string {
	return waitingPrefix + p.Namespace + "/" + p.Type + "/" + string(v) + "/" + name
}

// clockSkew is how far the clock of a machine that signs may be ahead: a signature of the
// future counts as expired.
const clockSkew = 10 * time.Minute

func waitingPackage(p address.Provider, v address.Version, sum string) string {
	return waitingKey(p, v, sum+".zip")
}

// StageProvider keeps a file of a version until PublishProvider. Clients do not see it.
func (r *providers) StageProvider(ctx context.Context, p address.Provider, v address.Version, file string, u Upload) error {
	of, end, err := parseFile(p, file)
	if err == nil && of != v {
		err = fault.New(fault.Invalid, UploadInvalid, fmt.Errorf("%.250q is a file of version %s, and the address is of version %s", file, of, v))
	}
	if err != nil {
		return err
	}
	index, err := r.index.read(ctx, providerIndexKey(p), r.listProvider(p))
	if err != nil {
		return err
	}
	if there, ok := index.Versions[v]; ok && !there.incomplete() {
		return fault.New(fault.Conflict, VersionExists, fmt.Errorf("version %s of %s is published, and published content never changes: publish a new version", v, p))
	}
	most, small := map[part]int64{sumsPart: signature.MaxSums, signaturePart: mostSignature, manifestPart: mostManifest}[end]
	if !small {
		most = r.o.MaxArchive
	}
	versions := 1
	if _, ok := index.Versions[v]; ok {
		versions = 0
	}
	if err := errors.Join(r.mayWait(ctx, p, v, file, small), r.usage.fits(ctx, p.Namespace, versions, max(0, u.Size))); err != nil {
		return err
	}
	s, err := r.spool(ctx, p.Namespace, file, u, most)
	if err != nil {
		return err
	}
	if u.Size != s.Size { // the client did not say it
		err = r.usage.fits(ctx, p.Namespace, versions, s.Size)
	}
	key := waitingPackage(p, v, s.SHA256)
	if small {
		key = waitingKey(p, v, file)
	}
	if err == nil {
		err = r.store.Put(ctx, key, s.content())
	}
	return errors.Join(err, s.Close())
}

// mayWait refuses another file of a version of which too many bytes wait, and of a namespace of
// which too many versions or files do.
func (r *providers) mayWait(ctx context.Context, p address.Provider, v address.Version, file string, small bool) error {
	const deleted = "files that were not published within a week are deleted"
	of := waitingPrefix + p.Namespace + "/"
	keys, err := r.store.List(ctx, of)
	if err != nil {
		return err
	}
	versions, here, mine := map[string]bool{}, []string(nil), waitingKey(p, v, "")
	for _, key := range keys {
		versions[path.Dir(key)] = true
		if strings.HasPrefix(key, mine) {
			here = append(here, key)
		}
	}
	switch {
	case small && slices.Contains(here, mine+file): // it is replaced
	case !small && len(keys) >= mostWaitingFiles: // a small file is what publishes a version
		return fault.New(fault.Invalid, WaitingMany, fmt.Errorf("%s was not kept: %d files of the namespace %s are not published yet, and the limit is %d: publish versions, or wait: %s", file, len(keys), p.Namespace, mostWaitingFiles, deleted))
	case len(here) == 0 && len(versions) >= mostWaitingVersions:
		return fault.New(fault.Invalid, WaitingMany, fmt.Errorf("%s was not kept: files of %d versions of providers of the namespace %s are not published yet, and the limit is %d: publish versions, or wait: %s", file, len(versions), p.Namespace, mostWaitingVersions, deleted))
	}
	waits, err := r.sizes(ctx, here)
	if err != nil {
		return err
	}
	if !small && waits >= r.o.MaxWaiting {
		return fault.New(fault.Invalid, blob.TooLarge, fmt.Errorf("%s was not kept: files of %d MiB of version %s of %s are not published yet, and the limit is %d MiB: publish the version, or wait: %s", file, waits>>20, v, p, r.o.MaxWaiting>>20, deleted))
	}
	return nil
}

// waits is how many bytes wait below a prefix.
func (r *providers) waits(ctx context.Context, prefix string) (int64, error) {
	keys, err := r.store.List(ctx, prefix)
	if err != nil {
		return 0, err
	}
	return r.sizes(ctx, keys)
}

// sizes adds up values of the store.
func (r *providers) sizes(ctx context.Context, keys []string) (int64, error) {
	var bytes atomic.Int64
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(indexesAtOnce)
	for _, key := range keys {
		group.Go(func() error {
			value, err := r.store.Open(within, key)
			if fault.Of(err) == fault.Missing {
				return nil
			}
			if err == nil {
				bytes.Add(value.Size)
				err = value.Close()
			}
			return err
		})
	}
	err := group.Wait()
	return bytes.Load(), err
}

// incomplete reports whether an index was made from a list that had the version: another
// program published it, or this one crashed before it wrote the index.
func (v ProviderVersion) incomplete() bool { return v.Published.IsZero() }

// Sweep deletes files of providers that were uploaded a week ago and not published.
func (r *providers) Sweep(ctx context.Context) error {
	return DeleteBefore(ctx, r.store, waitingPrefix, r.o.Now().Add(-waitingFor))
}

// DeleteBefore deletes what was stored below a prefix before a time.
func DeleteBefore(ctx context.Context, store blob.Versions, prefix string, before time.Time) error {
	keys, err := store.List(ctx, prefix)
	if err != nil {
		return err
	}
	for _, key := range keys {
		v, err := store.Open(ctx, key)
		if fault.Of(err) == fault.Missing {
			continue
		}
		if err == nil {
			err = v.Close()
		}
		if err == nil && v.Modified.Before(before) {
			err = store.Delete(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// release is a version that is being published: what was uploaded of it, verified.
type release struct {
	provider  address.Provider
	version   address.Version
	sums      []byte // the list of checksums
	signature []byte // on it
	manifest  []byte // nil: there is none
	made      ProviderVersion
}

// PublishProvider verifies the files that were uploaded of a version, and publishes it.
// Without protocols, those of the manifest count, else 5.0.
//
// The signed list of checksums is stored first, and only once: it decides which packages
// the version has. After a crash, another PublishProvider goes on with the same list.
func (r *providers) PublishProvider(ctx context.Context, p address.Provider, v address.Version, by string, protocols []string) (ProviderVersion, error) {
	index, err := r.index.read(ctx, providerIndexKey(p), r.listProvider(p))
	if err != nil {
		return ProviderVersion{}, err
	}
	if there, ok := index.Versions[v]; ok && !there.incomplete() {
		return r.publishedAlready(ctx, p, v, there, nil)
	}
	rel, err := r.verify(ctx, p, v, protocols)
	deed := r.deed(ProviderPublished, by, p.Namespace, p, v)
	deed.Details = rel.made.said()
	if _, ok := index.Versions[v]; err == nil && !ok {
		err = r.usage.fits(ctx, p.Namespace, 1, 0)
	}
	if err == nil && index.entries() == 0 { // once it is stored, a list of the store has it
		err = deed.done(ctx)
	}
	if err == nil {
		rel.made.By, rel.made.Published = by, r.o.Now().UTC().Truncate(time.Second)
		err = r.storeRelease(ctx, rel)
	}
	if err != nil {
		return r.publishedMeanwhile(ctx, rel, err)
	}
	if err := r.addName(ctx, Providers, p.Namespace, p.Type); err != nil {
		return ProviderVersion{}, err
	}
	err = r.index.update(ctx, providerIndexKey(p), r.listProvider(p), func(index *providerIndex) error {
		if index.Versions == nil {
			index.Versions = map[address.Version]ProviderVersion{}
		}
		there, ok := index.Versions[v]
		if ok && !there.incomplete() {
			there.Version = v
			rel.made = there // another publish of the same list was faster
			return nil
		}
		made := rel.made
		made.Retracted = there.Retracted
		index.Versions[v] = made
		return deed.done(ctx)
	})
	if err != nil {
		return ProviderVersion{}, err
	}
	return rel.made, r.clear(ctx, p, v, rel.made)
}

// said is what a record of the version says.
func (v ProviderVersion) said() map[string]string {
	var bytes int64
	for _, p := range v.Packages {
		bytes += p.Size
	}
	return map[string]string{"key": v.Key, "platforms": strconv.Itoa(len(v.Packages)), "bytes": strconv.FormatInt(bytes, 10)}
}

// publishedMeanwhile is the answer where files of a release are gone: another publish of
// the version deletes them as soon as the index names it.
func (r *providers) publishedMeanwhile(ctx context.Context, rel release, gone error) (ProviderVersion, error) {
	reason := fault.Reason(gone, "")
	if fault.Of(gone) != fault.Missing && reason != UploadMissing && reason != blob.Changed {
		return ProviderVersion{}, gone
	}
	p, v := rel.provider, rel.version
	index, err := r.index.read(ctx, providerIndexKey(p), r.listProvider(p))
	if err != nil {
		return ProviderVersion{}, err
	}
	if there, ok := index.Versions[v]; ok && !there.incomplete() {
		return r.publishedAlready(ctx, p, v, there, rel.sums)
	}
	return ProviderVersion{}, gone
}

// publishedAlready is the answer for a version that is published: the same list of
// checksums again is no error. Without a list, the one that waits counts, if there is one.
func (r *providers) publishedAlready(ctx context.Context, p address.Provider, v address.Version, there ProviderVersion, again []byte) (ProviderVersion, error) {
	file := fileOf(p, v, sumsPart)
	if again == nil {
		var err error
		if again, err = r.whole(ctx, waitingKey(p, v, file), signature.MaxSums); err != nil && fault.Of(err) != fault.Missing {
			return ProviderVersion{}, err
		}
	}
	if again != nil {
		sums, err := r.whole(ctx, ProviderKey(p, file), signature.MaxSums)
		if err != nil {
			return ProviderVersion{}, err
		}
		if !bytes.Equal(again, sums) {
			return ProviderVersion{}, errExists(p, v)
		}
	}
	if there.Retracted != nil {
		return ProviderVersion{}, fault.New(fault.Conflict, VersionRetracted, fmt.Errorf("version %s of %s was retracted: %s: restore it, or publish a new version", v, p, there.Retracted.Reason))
	}
	there.Version = v
	return there, r.clear(ctx, p, v, there)
}

// clear deletes what waited, after the index names the version.
func (r *providers) clear(ctx context.Context, p address.Provider, v address.Version, there ProviderVersion) error {
	var errs []error
	for _, part := range []part{sumsPart, signaturePart, manifestPart} {
		errs = append(errs, r.store.Delete(ctx, waitingKey(p, v, fileOf(p, v, part))))
	}
	for _, made := range there.Packages {
		errs = append(errs, r.store.Delete(ctx, waitingPackage(p, v, made.SHA256)))
	}
	return errors.Join(errs...)
}

// verify checks everything that was uploaded of a version.
func (r *providers) verify(ctx context.Context, p address.Provider, v address.Version, protocols []string) (rel release, err error) {
	rel = release{provider: p, version: v, made: ProviderVersion{Version: v, Protocols: protocols, Packages: map[address.Platform]Package{}}}
	if rel.sums, err = r.waiting(ctx, p, v, sumsPart, signature.MaxSums); err != nil {
		return rel, err
	}
	if rel.signature, err = r.waiting(ctx, p, v, signaturePart, mostSignature); err != nil {
		return rel, err
	}
	if rel.made.Key, err = r.verifySignature(ctx, p, rel.sums, rel.signature); err != nil {
		return rel, err
	}
	listed, err := signature.ParseSums(rel.sums)
	if err != nil {
		return rel, fault.New(fault.Invalid, UploadInvalid, err)
	}
	rel.manifest, err = r.waiting(ctx, p, v, manifestPart, mostManifest)
	if err != nil && fault.Reason(err, "") != UploadMissing {
		return rel, err
	}
	if err := rel.protocols(listed); err != nil {
		return rel, err
	}
	return rel, r.verifyPackages(ctx, rel, listed)
}

// waiting reads a small file that was uploaded.
func (r *providers) waiting(ctx context.Context, p address.Provider, v address.Version, part part, most int64) ([]byte, error) {
	file := fileOf(p, v, part)
	b, err := r.whole(ctx, waitingKey(p, v, file), most)
	if fault.Of(err) == fault.Missing {
		err = fault.New(fault.Invalid, UploadMissing, fmt.Errorf("%s is missing: upload it, and publish the version again", file))
	}
	return b, err
}

// verifySignature returns the ID of the key of the namespace that made a signature.
func (r *providers) verifySignature(ctx context.Context, p address.Provider, sums, sig []byte) (string, error) {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, SignatureInvalid, fmt.Errorf(format, args...))
	}
	if bytes.HasPrefix(sig, []byte("-----BEGIN")) {
		return "", invalid("the signature is in ASCII armour, which clients cannot read: make it with gpg --detach-sign, without --armor")
	}
	keys, err := r.Keys(ctx, p.Namespace)
	if err != nil {
		return "", err
	}
	if len(keys) == 0 {
		return "", invalid("the namespace %s has no key for signatures: add the public key, as gpg --armor --export prints it", p.Namespace)
	}
	switch by, err := signature.Verify(sums, sig, keys, r.o.Now().Add(clockSkew)); {
	case errors.Is(err, signature.ErrUnknown):
		return "", invalid("no key of the namespace %s made the signature on SHA256SUMS: sign it with one of them, or add the public key", p.Namespace)
	case err != nil:
		return "", invalid("the signature on SHA256SUMS is not valid: %w", err)
	case by.Expired:
		return "", invalid("the key %s, which signed SHA256SUMS, has expired: extend it, and add it again", by.KeyID)
	default:
		return by.KeyID, nil
	}
}

// protocols takes the protocols of plug-ins from the manifest, unless the user named them.
func (rel *release) protocols(listed signature.Sums) error {
	var manifest struct {
		Metadata struct {
			Protocols []string `json:"protocol_versions"`
		} `json:"metadata"`
	}
	if rel.manifest != nil {
		file := fileOf(rel.provider, rel.version, manifestPart)
		if sum := sha256.Sum256(rel.manifest); listed[file] != hex.EncodeToString(sum[:]) {
			return fault.New(fault.Invalid, UploadInvalid, fmt.Errorf("%s does not have the checksum that SHA256SUMS has for it: upload the file that was signed", file))
		}
		if err := json.Unmarshal(rel.manifest, &manifest); err != nil {
			return fault.New(fault.Invalid, UploadInvalid, fmt.Errorf("reading %s: %w", file, err))
		}
	}
	if len(rel.made.Protocols) == 0 {
		rel.made.Protocols = manifest.Metadata.Protocols
	}
	if len(rel.made.Protocols) == 0 {
		rel.made.Protocols = []string{"5.0"}
	}
	for _, protocol := range rel.made.Protocols {
		if !protocolGrammar.MatchString(protocol) {
			return fault.New(fault.Invalid, UploadInvalid, fmt.Errorf("%.80q is no protocol of plug-ins: write it as 5.0 or 6.0", protocol))
		}
	}
	return nil
}

var protocolGrammar = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}$`)

// verifyPackages checks the package of each platform that the list of checksums names.
func (r *providers) verifyPackages(ctx context.Context, rel release, listed signature.Sums) error {
	sums := listed.Platforms(rel.provider.Type, string(rel.version))
	if len(sums) == 0 {
		return fault.New(fault.Invalid, UploadInvalid, fmt.Errorf("SHA256SUMS names no archive of version %s of %s: its archives are called %s", rel.version, rel.provider, fileOf(rel.provider, rel.version, "OS_ARCH.zip")))
	}
	var missing []string
	for _, text := range slices.Sorted(maps.Keys(sums)) {
		platform, err := address.ParsePlatform(text)
		if err != nil {
			return err
		}
		file := PackageFile(rel.provider, rel.version, platform)
		v, err := r.store.Open(ctx, waitingPackage(rel.provider, rel.version, sums[text]))
		if fault.Of(err) == fault.Missing {
			missing = append(missing, file)
			continue
		}
		if err != nil {
			return err
		}
		made, err := r.verifyPackage(ctx, rel.provider, file, sums[text], v)
		if err = errors.Join(err, v.Close()); err != nil {
			return err
		}
		rel.made.Packages[platform] = made
	}
	if len(missing) > 0 {
		return fault.New(fault.Invalid, UploadMissing, fmt.Errorf("SHA256SUMS names archives that were not uploaded with the checksums that it has: upload %s as it was signed, and publish the version again", strings.Join(missing, ", ")))
	}
	return nil
}

// Limits of the unpacked package of a provider.
const (
	mostUnpacked     = 8 << 30
	mostUnpackedFile = 4 << 30
)

func (r *providers) verifyPackage(ctx context.Context, p address.Provider, file, sum string, content io.Reader) (Package, error) {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, UploadInvalid, fmt.Errorf(format, args...))
	}
	s, err := r.spool(ctx, p.Namespace, file, Upload{Content: content}, r.o.MaxArchive)
	if err != nil {
		return Package{}, err
	}
	defer s.Close()
	if s.SHA256 != sum {
		return Package{}, fmt.Errorf("%s has changed in the store: it has the checksum %s, and had %s", file, s.SHA256, sum)
	}
	format, files, err := archive.Inspect(s.File, s.Size, archive.Limits{Bytes: mostUnpacked, File: mostUnpackedFile})
	if err != nil {
		return Package{}, fmt.Errorf("%s: %w", file, err)
	}
	program := "terraform-provider-" + p.Type
	if format != archive.Zip || !slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(f, program) }) {
		return Package{}, invalid("%s is no package of a provider: it is a zip archive with a program whose name begins with %s", file, program)
	}
	h1, err := archive.HashZip(s.File, s.Size)
	if err != nil {
		return Package{}, fmt.Errorf("%s: %w", file, err)
	}
	return Package{SHA256: sum, H1: h1, Size: s.Size}, nil
}

// storeRelease stores a verified version. The list of checksums is first, and the
// signature last: without both, a list of the store shows no version.
func (r *providers) storeRelease(ctx context.Context, rel release) error {
	p, v := rel.provider, rel.version
	if same, err := r.putBytes(ctx, ProviderKey(p, fileOf(p, v, sumsPart)), rel.sums); err != nil {
		return err
	} else if !same {
		return errExists(p, v)
	}
	for platform, made := range rel.made.Packages {
		if err := r.copy(ctx, waitingPackage(p, v, made.SHA256), ProviderKey(p, PackageFile(p, v, platform)), made.SHA256); err != nil {
			return err
		}
	}
	for part, content := range map[part][]byte{manifestPart: rel.manifest, signaturePart: rel.signature} {
		if content == nil {
			continue
		}
		if err := r.store.Put(ctx, ProviderKey(p, fileOf(p, v, part)), bytes.NewReader(content)); err != nil {
			return err
		}
	}
	return nil
}
