package runner

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/terrier-iac/terrier/internal/engine"
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
	if _, err := os.Stat(filepath.Join(mirror, p.Address)); err != nil {
		return FromRegistry
	}
	return FromMirror
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
