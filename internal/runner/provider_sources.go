package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// ProviderSource is where the providers of a run came from.
type ProviderSource string

// The sources. What an engine downloads passes through its own connections, in
// its sandbox, and is not seen outside of it; the unpacked packages are.
const (
	FromRegistry ProviderSource = "registry" // unpacked into the work directory, and the mirror has none that fits
	FromMirror   ProviderSource = "mirror"   // of the mirror: unpacked from it, or only linked
	FromBefore   ProviderSource = "cache"    // in the work directory since an earlier run
)

// ProviderSources lists all of them.
func ProviderSources() []ProviderSource {
	return []ProviderSource{FromRegistry, FromMirror, FromBefore}
}

// measure returns how many bytes the providers have that init made sure of, by
// where they came from. It is a measure: a provider that cannot be measured is
// left out.
func (r *providerProcesses) measure() map[ProviderSource]int64 {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return nil
	}
	defer tree.Close()
	data, _, err := r.work.lockFile(tree)
	if err != nil || data == nil {
		return nil
	}
	locked, err := engine.ParseLockFile(data)
	if err != nil {
		return nil
	}
	out := map[ProviderSource]int64{}
	for _, l := range locked {
		p, err := r.find(tree, l)
		if err == nil {
			out[r.sourceOf(p)] += bytesIn(p.pkg)
		}
		p.close()
	}
	return out
}

func (r *providerProcesses) sourceOf(p provider) ProviderSource {
	mirror := r.host.Mirror
	switch {
	case r.directory.ready:
		return FromBefore
	case p.root == nil: // a link of init, which leads into the mirror
		return FromMirror
	case mirror == "" || !filepath.IsLocal(p.Address), slices.Contains(r.directory.moved, p.Address):
		return FromRegistry
	}
	if slices.Contains(workdir.MirrorVersions(os.DirFS(mirror), p.Address), p.Version) {
		return FromMirror
	}
	return FromRegistry
}

// bytesIn is the size of all files of a package.
func bytesIn(pkg fs.FS) int64 {
	var n int64
	_ = fs.WalkDir(pkg, ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it is a measure
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// providerCache is the part of a run that verifies what init took from a mirror which others
// may have written. See Platform.ProviderLock.
type providerCache struct{ *run }

// name is what people know the mirror of the run by.
func (r *providerCache) name() string {
	if r.host.ProviderLock != nil {
		return "The provider cache (--run-provider-cache)"
	}
	return fmt.Sprintf("The mirror %s (--provider-mirror)", r.host.Mirror)
}

// currentLock is what the dependency lock file names now.
func (r *providerCache) currentLock() (lock knownLock, err error) {
	if r.host.ProviderLock == nil {
		return lock, nil
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return lock, err
	}
	defer tree.Close()
	if lock.data, _, err = r.work.lockFile(tree); err != nil || lock.data == nil {
		return lock, err
	}
	lock.named, lock.strange = engine.ParseLockFile(lock.data)
	return lock, nil
}

// knownLock is a dependency lock file.
type knownLock struct {
	data    []byte // nil if there is none
	named   []engine.Locked
	strange error // why it is not as engines write it
}

// names reports whether a lock file names a package of the same version with one of the hashes.
func names(lock []engine.Locked, l engine.Locked) bool {
	return slices.ContainsFunc(lock, func(o engine.Locked) bool {
		return o.Address == l.Address && o.Version == l.Version && slices.ContainsFunc(o.Hashes, func(h string) bool { return slices.Contains(l.Hashes, h) })
	})
}

// unnamed are the providers that init took from a cache although neither the operator nor the
// lock file that was there before names their package. No provider was started yet.
func (r *providerCache) unnamed(before knownLock) (unnamed []string, err error) {
	if r.host.ProviderLock == nil {
		return nil, nil
	}
	told, err := engine.ParseLockFile(r.host.ProviderLock)
	if err != nil {
		return nil, fault.New(fault.Invalid, ProviderUnnamed, fmt.Errorf("--run-provider-lock: %w", err))
	}
	now, err := r.currentLock()
	if err != nil {
		return nil, err
	}
	if now.strange != nil {
		return nil, fault.New(fault.Denied, ProviderUnnamed, fmt.Errorf("the providers of the cache cannot be verified: %w", now.strange))
	}
	for _, l := range now.named {
		has := r.mirrored(l.Address) && slices.Contains(workdir.MirrorVersions(os.DirFS(r.host.Mirror), l.Address), l.Version)
		if has && !slices.Contains(r.directory.moved, l.Address) && !names(told, l) && !names(before.named, l) {
			unnamed = append(unnamed, l.Address)
		}
	}
	return unnamed, nil
}

// withdraw takes back an init that took providers which are not to be used.
func (r *providerCache) withdraw(unnamed []string, before knownLock) error {
	if len(unnamed) == 0 {
		return nil
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	lock := path.Join(r.work.root, lockName)
	err = errors.Join(tree.RemoveAll(path.Join(r.work.root, dirData)), tree.RemoveAll(lock))
	if err == nil && before.data != nil {
		err = errors.Join(disk.WriteFresh(tree, lock, before.data, 0o644), sandbox.ChownWork(r.work.path(dirWork)))
	}
	return err
}

// denied refuses a run whose providers init may not take from their registries.
func denied(unnamed []string) error {
	return fault.New(fault.Denied, ProviderUnnamed, fmt.Errorf("the provider cache has another package of %s than --run-provider-lock names, and init may not take it from its registry: tell the operator to fill the cache again",
		strings.Join(unnamed, " and ")))
}
