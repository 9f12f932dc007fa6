package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// A bundle is a directory as `tofu providers mirror` makes it:
//
//	HOST/NAMESPACE/TYPE/index.json
//	HOST/NAMESPACE/TYPE/VERSION.json
//	HOST/NAMESPACE/TYPE/terraform-provider-TYPE_VERSION_OS_ARCH.zip
//
// One that a mirror exports has the signed checksums as well, under the names that they
// have in its store, so that the mirror that imports it verifies the same as this one did.
// An engine takes either as a filesystem_mirror.

// ReasonBundle is the reason of a fault in a bundle.
const ReasonBundle = "BundleInvalid"

// The documents of the network mirror protocol.
type (
	indexFile struct {
		Versions map[string]struct{} `json:"versions"`
	}
	versionFile struct {
		Archives map[string]archiveFile `json:"archives"`
	}
	archiveFile struct {
		URL    string   `json:"url"`
		Hashes []string `json:"hashes"`
	}
)

const mostFile = 64 << 20 // of a document in a bundle

// Imported is what an import did.
type Imported struct {
	Archives int // that were added
	Known    int // that were there already
}

// Import stores the archives of a bundle. An archive of a release that is known has to be
// the one of that release. by is the user who imports it.
func (m *Mirror) Import(ctx context.Context, bundle fs.FS, by string) (Imported, error) {
	var done Imported
	found, err := fs.Glob(bundle, "*/*/*/index.json")
	if err != nil {
		return done, err
	}
	if len(found) == 0 {
		return done, bad("the bundle has no HOST/NAMESPACE/TYPE/index.json: make it with tofu providers mirror DIR, or export it from a mirror")
	}
	var errs []error
	for _, name := range found {
		dir := path.Dir(name)
		p, err := address.ParseProvider(dir)
		if err == nil {
			i := importer{Mirror: m, bundle: bundle, dir: dir, p: p, by: by, done: &done}
			err = i.provider(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("importing %s: %w", dir, err))
		}
	}
	return done, errors.Join(errs...)
}

// importer imports the versions of one provider.
type importer struct {
	*Mirror
	bundle fs.FS
	dir    string // of the provider, in the bundle
	p      address.Provider
	by     string
	done   *Imported
}

func (i *importer) provider(ctx context.Context) error {
	if i.upstreams[i.p.Host] == nil {
		return bad("the registry %s is no upstream of this mirror: add it to upstreams in the settings, with offline: true if it cannot be reached", i.p.Host)
	}
	var index indexFile
	if err := readJSON(i.bundle, path.Join(i.dir, "index.json"), &index); err != nil {
		return err
	}
	var errs []error
	for text := range index.Versions {
		v, err := address.ParseVersion(text)
		if err == nil {
			err = i.version(ctx, v)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (i *importer) version(ctx context.Context, v address.Version) error {
	var version versionFile
	if err := readJSON(i.bundle, path.Join(i.dir, string(v)+".json"), &version); err != nil {
		return err
	}
	if err := i.release(ctx, v); err != nil {
		return err
	}
	for name, a := range version.Archives {
		platform, err := address.ParsePlatform(name)
		if err != nil {
			return err
		}
		file, err := url.PathUnescape(a.URL)
		if err != nil || file == "" || strings.ContainsAny(file, "/\\?#") || file == ".." {
			return bad("%s.json names the archive %.200q: only files in the same directory are imported", v, a.URL)
		}
		if err := i.archive(ctx, file, v, platform, a.Hashes); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// release takes the signed checksums of a bundle, if it has them and the release is not
// known yet.
func (i *importer) release(ctx context.Context, v address.Version) error {
	index, err := i.records.read(ctx, i.p)
	if err != nil || index != nil && index.Releases[v] != nil && index.Releases[v].Sums != "" {
		return err
	}
	name := path.Join(i.dir, signature.SumsName(i.p.Type, string(v)))
	sums, err := readFile(i.bundle, name, signature.MaxSums)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	signed, err := readFile(i.bundle, name+".sig", mostSignature)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an unsigned release; its archives are imported as those of any bundle
	}
	if err != nil {
		return err
	}
	text, err := readFile(i.bundle, path.Join(path.Dir(i.dir), "signing-keys.json"), mostFile)
	if err != nil {
		return err
	}
	keys, err := decodeKeys(text)
	if err != nil {
		return bad("%v", err)
	}
	r, _, err := check(i.options.Now().UTC(), i.p, v, sums, signed, keys, false)
	if err != nil {
		return fault.New(fault.Invalid, ReasonSignature, fmt.Errorf("the release %s in the bundle is not verified: %w", v, err))
	}
	r.From = "a bundle of " + i.by
	keys = slices.DeleteFunc(keys, func(k signature.Key) bool { return !strings.EqualFold(k.ID, r.KeyID) })
	if err := errors.Join(i.records.addKeys(ctx, i.p, keys), i.records.addSums(ctx, i.p, v, sums, signed)); err != nil {
		return err
	}
	return i.records.update(ctx, i.p, func(index *Index) {
		known := index.Releases[v]
		if known != nil && known.Sums != "" {
			return
		}
		for platform, pkg := range r.Packages { // those that an unsigned bundle brought stay, if they are the same
			if known != nil && known.Packages[platform] != nil && known.Packages[platform].SHA256 == pkg.SHA256 {
				r.Packages[platform] = known.Packages[platform]
			}
		}
		index.Releases[v] = r
	})
}

// archive stores one archive, if it is the one of its release.
func (i *importer) archive(ctx context.Context, name string, v address.Version, platform address.Platform, hashes []string) error {
	from, err := i.bundle.Open(path.Join(i.dir, name))
	if err != nil {
		return fault.New(fault.Invalid, ReasonBundle, err)
	}
	defer from.Close()
	file, err := i.options.Room.Spool(ctx, i.options.Scratch, from, i.options.MaxArchive)
	if fault.Reason(err, "") == blob.TooLarge {
		return bad("it is larger than %d bytes", i.options.MaxArchive)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	o := &one{i.Mirror, i.p, v, platform}
	if !fits(hashes, "zh:", "zh:"+file.SHA256) || !fits(hashes, "h1:", o.hash(file.File, file.Size)) {
		return fault.New(fault.Invalid, ReasonChecksum, fmt.Errorf("it is not the archive that %s.json of the bundle names", v))
	}
	known, err := i.known(ctx, o, file.SHA256)
	if err != nil {
		return err
	}
	if known.here() && known.Pinned {
		i.done.Known++
		return nil
	}
	there, _, good, err := o.fromStore(ctx, known, io.Discard)
	if err == nil && !good {
		err = o.publish(ctx, there, file.File, file.Size)
	}
	if err != nil {
		return err
	}
	i.done.Archives++
	return o.record(ctx, file.File, file.Size, true)
}

// known is what the index says about an archive with a checksum. A release that has no
// signed checksums gets it.
func (i *importer) known(ctx context.Context, o *one, got string) (*Package, error) {
	now := i.options.Now().UTC()
	var known *Package
	err := i.records.update(ctx, i.p, func(index *Index) {
		r := index.Releases[o.v]
		if r == nil {
			r = &Release{From: "a bundle of " + i.by, Verified: now, Compared: now, Packages: map[string]*Package{}}
			index.Releases[o.v] = r
		}
		known = o.of(r)
		if known == nil && r.Sums == "" {
			known = &Package{SHA256: got}
			r.Packages[o.platform.String()] = known
		}
	})
	switch {
	case err != nil:
		return nil, err
	case known == nil:
		return nil, fault.New(fault.Invalid, ReasonChanged, fmt.Errorf("SHA256SUMS of %s %s has no archive for %s", o.p, o.v, o.platform))
	case known.SHA256 != got:
		return nil, fault.New(fault.Invalid, ReasonChanged, fmt.Errorf("%s that was verified first has the checksum %s, and this one has %s: check where the bundle comes from", o, known.SHA256, got))
	}
	return known, nil
}

// fits reports whether a hash is among those of its kind, if there are any.
func fits(hashes []string, kind, hash string) bool {
	of := slices.DeleteFunc(slices.Clone(hashes), func(h string) bool { return !strings.HasPrefix(h, kind) })
	return len(of) == 0 || slices.Contains(of, hash)
}

// Selection is what of a mirror is exported: everything that is stored, if it is empty.
type Selection struct {
	Providers []Pattern
	Platforms []address.Platform
}

func (s Selection) has(p address.Provider, v address.Version, platform address.Platform) bool {
	return (len(s.Providers) == 0 || slices.ContainsFunc(s.Providers, func(x Pattern) bool { return x.provider(p) && x.version(v) })) &&
		(len(s.Platforms) == 0 || slices.Contains(s.Platforms, platform))
}

// Export writes stored archives to a directory, as a bundle, and returns how many. A
// bundle that is there is added to.
func (m *Mirror) Export(ctx context.Context, dir string, s Selection) (int, error) {
	for i, p := range s.Providers {
		if err := p.check(); err != nil {
			return 0, fault.New(fault.Invalid, ReasonBundle, fmt.Errorf("providers[%d]: %w", i, err))
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("exporting a bundle: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("exporting a bundle: %w", err)
	}
	defer root.Close()
	providers, err := m.records.providers(ctx)
	if err != nil {
		return 0, err
	}
	written := 0
	for _, p := range providers {
		n, err := (&exporter{m, root, p, s}).provider(ctx)
		written += n
		if err != nil {
			return written, fmt.Errorf("exporting %s: %w", p, err)
		}
	}
	return written, nil
}

// exporter exports the versions of one provider.
type exporter struct {
	*Mirror
	root      *os.Root
	p         address.Provider
	selection Selection
}

func (e *exporter) provider(ctx context.Context) (int, error) {
	index, err := e.records.read(ctx, e.p)
	if err != nil || index == nil {
		return 0, err
	}
	written := 0
	versions := indexFile{Versions: map[string]struct{}{}}
	for v, r := range index.Releases {
		n, err := e.release(ctx, v, r)
		if err != nil {
			return written, fmt.Errorf("%s: %w", v, err)
		}
		if n > 0 {
			versions.Versions[string(v)] = struct{}{}
			written += n
		}
	}
	if written == 0 {
		return 0, nil
	}
	if err := e.copy(ctx, keysKey(e.p), path.Join(e.p.Host, e.p.Namespace, "signing-keys.json")); err != nil {
		return written, err
	}
	return written, merge(e.root, path.Join(e.p.String(), "index.json"), func(there *indexFile) {
		for v := range there.Versions {
			versions.Versions[v] = struct{}{}
		}
		*there = versions
	})
}

func (e *exporter) release(ctx context.Context, v address.Version, r *Release) (int, error) {
	archives := map[string]archiveFile{}
	for name, pkg := range r.Packages {
		platform, err := address.ParsePlatform(name)
		if err != nil || !pkg.here() || !e.selection.has(e.p, v, platform) {
			continue
		}
		file := archiveName(e.p, v, platform)
		if err := e.archive(ctx, file, ArchiveKey(e.p, v, platform), pkg); err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		archives[name] = archiveFile{URL: file, Hashes: pkg.hashes()}
	}
	if len(archives) == 0 {
		return 0, nil
	}
	for _, end := range []string{"", ".sig"} {
		if r.Sums == "" {
			break // those in the store, if any, are not of these archives
		}
		if err := e.copy(ctx, sumsKey(e.p, v)+end, path.Join(e.p.String(), signature.SumsName(e.p.Type, string(v))+end)); err != nil {
			return 0, err
		}
	}
	return len(archives), merge(e.root, path.Join(e.p.String(), string(v)+".json"), func(there *versionFile) {
		if there.Archives == nil {
			there.Archives = map[string]archiveFile{}
		}
		maps.Copy(there.Archives, archives)
	})
}

// copy copies a small value of the store, if it is there.
func (e *exporter) copy(ctx context.Context, key, name string) error {
	text, err := e.records.small(ctx, key, mostFile)
	if err != nil || text == nil {
		return err
	}
	return writeFile(e.root, name, text)
}

// archive copies an archive, and verifies it on the way.
func (e *exporter) archive(ctx context.Context, file, key string, pkg *Package) error {
	value, err := e.store.Open(ctx, key)
	if err != nil {
		return err
	}
	defer value.Close()
	return write(e.root, path.Join(e.p.String(), file), func(w io.Writer) error {
		got, _, err := sum(io.TeeReader(value, w))
		if err == nil && got != pkg.SHA256 {
			err = fault.New(fault.Broken, ReasonChecksum, fmt.Errorf("the stored archive has the checksum %s, and the verified one is %s", got, pkg.SHA256))
		}
		return err
	})
}

// merge changes a document of a bundle.
func merge[D any](root *os.Root, name string, change func(*D)) error {
	var d D
	text, err := root.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	change(&d)
	text, err = json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(root, name, append(text, '\n'))
}

func writeFile(root *os.Root, name string, text []byte) error {
	return write(root, name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// write makes a file that is whole or not there.
func write(root *os.Root, name string, fill func(io.Writer) error) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	temp := path.Join(path.Dir(name), "."+path.Base(name))
	file, err := root.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(file), file.Sync(), file.Close()); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return root.Rename(temp, name)
}

func readJSON(bundle fs.FS, name string, into any) error {
	text, err := readFile(bundle, name, mostFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return bad("%s is no document of the network mirror protocol: %v", path.Base(name), err)
	}
	return nil
}

func readFile(bundle fs.FS, name string, most int64) ([]byte, error) {
	f, err := bundle.Open(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, ReasonBundle, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, bad("%s is larger than %d bytes", path.Base(name), most)
	}
	return text, nil
}

func bad(format string, args ...any) error {
	return fault.New(fault.Invalid, ReasonBundle, fmt.Errorf(format, args...))
}
