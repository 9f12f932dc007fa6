package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// provider is a provider whose package was found to be the one that the lock
// file names.
type provider struct {
	engine.Locked
	Dir     string `json:"dir"`     // of its package, on the host
	Program string `json:"program"` // the file in it
	Stamp   string `json:"stamp"`   // of the package's files when it was hashed

	inside string   // the program's path in the sandbox
	pkg    fs.FS    // the package
	root   *os.Root // of pkg, if it is in the work directory
}

// stampOf tells without reading whether the files of a package can be the same
// as before. The time of a file's last change is the kernel's, and no
// program in a sandbox can set it.
func stampOf(pkg fs.FS) (string, error) {
	var all bytes.Buffer
	err := fs.WalkDir(pkg, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s has no inode", name)
		}
		fmt.Fprintln(&all, name, st.Dev, st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
		return nil
	})
	return digest(all.Bytes()), err
}

// maxReused bounds how many providers are started at once for one run; the
// others are the engine's.
const maxReused = 32

// platform is the last part of a package's path.
const platform = runtime.GOOS + "_" + runtime.GOARCH

// reusable lists the providers of the prepared directory that one process can
// serve for the whole run. A provider is left out when anything about it is not
// as expected: the engine then starts it, having checked it by itself.
func (r *providerProcesses) reusable() ([]provider, error) {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	data, _, err := r.work.lockFile(tree)
	if err != nil || data == nil {
		return nil, err
	}
	locked, err := engine.ParseLockFile(data)
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	configured, err := r.work.configurations(tree)
	if err != nil {
		return nil, err
	}
	refused, err := r.work.refusals()
	if err != nil {
		return nil, err
	}
	var m initRecord
	if err := disk.ReadJSON(r.work.path(fileInitRecord), &m); err != nil {
		return nil, err
	}
	var good []provider
	changed := false
	for _, l := range locked {
		if !configured.Once(l) || refused.holds(l, r.now()) || len(good) == maxReused {
			continue
		}
		p, err := r.find(tree, l)
		if err != nil {
			continue
		}
		known, err := p.verify(m.Providers)
		if err == nil {
			good = append(good, p)
			changed = changed || !known
		}
		p.close()
	}
	if changed && m.Key != "" {
		m.Providers = good
		return good, disk.WriteJSON(r.work.path(fileInitRecord), m)
	}
	return good, nil
}

// find locates a provider's package: in the work directory, or where a link of
// init leads, if that is into the mirror.
func (r *providerProcesses) find(tree *os.Root, l engine.Locked) (p provider, err error) {
	p.Locked = l
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	name := path.Join(r.work.root, engine.PackageDir(l, platform))
	info, err := tree.Lstat(name)
	if err != nil {
		return p, err
	}
	var dir string // in the sandbox
	if info.Mode()&fs.ModeSymlink == 0 {
		if p.root, err = tree.OpenRoot(name); err != nil {
			return p, err
		}
		p.pkg, p.Dir, dir = p.root.FS(), r.work.path(dirWork, dirTree, name), r.sandbox.config.PathInside(path.Join("/work", dirTree, name))
	} else {
		if dir, err = tree.Readlink(name); err != nil {
			return p, err
		}
		rest, ok := strings.CutPrefix(dir, r.sandbox.config.PathInside(MirrorInside)+"/")
		if !ok || r.host.Mirror == "" || !filepath.IsLocal(rest) {
			return p, fmt.Errorf("the package of %s is at %q", l.Address, dir)
		}
		p.Dir = filepath.Join(r.host.Mirror, rest)
		p.pkg = os.DirFS(p.Dir)
	}
	if p.Program, err = engine.Executable(p.pkg, l); err != nil {
		return p, err
	}
	p.inside = path.Join(dir, p.Program)
	return p, nil
}

func (p *provider) close() {
	if p.root != nil {
		_ = p.root.Close()
	}
	p.root, p.pkg = nil, nil
}

// verify makes sure that the package is the one that the lock file names.
// known are those that were verified before; one whose files are untouched
// since needs no second look.
func (p *provider) verify(known []provider) (seen bool, err error) {
	if p.Stamp, err = stampOf(p.pkg); err != nil {
		return false, err
	}
	if slices.ContainsFunc(known, p.same) {
		return true, nil
	}
	hash, err := archive.HashPackage(p.pkg)
	if err != nil {
		return false, err
	}
	if !slices.Contains(p.Hashes, hash) {
		return false, fmt.Errorf("the package of %s is not one that the lock file names", p.Address)
	}
	return false, nil
}

func (p *provider) same(o provider) bool {
	return p.Address == o.Address && p.Version == o.Version && slices.Equal(p.Hashes, o.Hashes) &&
		p.Dir == o.Dir && p.Program == o.Program && p.Stamp == o.Stamp
}

// configurations tells which providers of the prepared module are configured
// more than once.
func (p *workDir) configurations(tree *os.Root) (engine.Configured, error) {
	root, err := fs.Sub(tree.FS(), p.root)
	if err != nil {
		return nil, err
	}
	var list struct{ Modules []struct{ Dir string } }
	data, err := disk.ReadHostile(tree, path.Join(p.root, ".terraform/modules/modules.json"), 16<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("reading the list of modules: %w", err)
		}
	}
	seen := map[string]bool{p.root: true}
	var calls []fs.FS
	for _, m := range list.Modules {
		dir := path.Join(p.root, m.Dir)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		module, err := fs.Sub(tree.FS(), dir)
		if err != nil {
			return nil, err
		}
		calls = append(calls, module)
	}
	return engine.Configurations(root, calls)
}

// refusals are the providers that an engine does better to start itself, by
// address and version. They outlive the prepared directory.
type refusals map[string]refusal

type refusal struct {
	Reason string    `json:"reason"`
	Until  time.Time `json:"until,omitzero"` // zero: for good
}

func (r refusals) holds(l engine.Locked, now time.Time) bool {
	f, ok := r[l.Address+" "+l.Version]
	return ok && (f.Until.IsZero() || now.Before(f.Until))
}

func (p *workDir) refusals() (refusals, error) {
	r := refusals{}
	return r, disk.ReadJSON(p.path(fileRefusals), &r)
}

// refuse remembers that the engine has to start a provider.
func (p *workDir) refuse(l engine.Locked, f refusal) error {
	all, err := p.refusals()
	if err != nil {
		return err
	}
	for key := range all { // of other versions: their time is over
		if strings.HasPrefix(key, l.Address+" ") {
			delete(all, key)
		}
	}
	all[l.Address+" "+l.Version] = f
	return disk.WriteJSON(p.path(fileRefusals), all)
}
