package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// workDir is a stack's work directory. It stays from run to run, so that a
// check needs no unpacking and no init; whatever belongs to one run is put in
// at its start and wiped at its end.
//
//	STACK/lock         held by the one run that uses the directory
//	STACK/sheet.json   the placement: what to wipe, written before it is put there
//	STACK/marker.json  what the directory is prepared for, written after a good init
//	STACK/uses.json    what the module uses, as it was after that init
//	STACK/shadow/      files of the tree that generated ones stand in for
//	STACK/shown/       the saved plan while it is shown, read-only to the sandbox
//	STACK/programs/    the script of a run, and the programs in its path, likewise
//	STACK/work/tree/   the module tree, with .terraform and the lock file
//	STACK/work/run/    plan, local state
//	STACK/work/home/   home of a run that has files there
//	STACK/work/identity/  tokens of a run that has some
//
// Code of the stack has run in work: everything there is read and written
// through os.Root, and nothing outside is reached by a link in it.
type workDir struct {
	dir  string // STACK
	root string // the root module, below tree; "." is the tree itself
}

// placement says what a run has put into the work directory.
type placement struct {
	Run       string   `json:"run"`
	Root      string   `json:"root"`
	Workspace string   `json:"workspace,omitempty"`
	Lineage   string   `json:"lineage,omitempty"` // of the local state it started from
	Serial    uint64   `json:"serial,omitempty"`
	Local     bool     `json:"local,omitempty"`   // it has a local state
	Writes    bool     `json:"writes,omitempty"`  // it may leave a state behind
	Backend   bool     `json:"backend,omitempty"` // what init keeps of the backend holds secrets
	Files     []string `json:"files,omitempty"`   // relative to the tree; the n-th one's shadow is shadow/n
}

// initRecord says what a work directory is prepared for.
type initRecord struct {
	Key      string `json:"key"`  // of everything that init depends on
	LockHash string `json:"lock"` // sha256 of the dependency lock file after init

	Providers []provider `json:"providers,omitempty"` // that were found to be the lock file's
}

func newWorkDir(dir string, tree Tree) (*workDir, error) {
	root := path.Clean("./" + filepath.ToSlash(tree.Path))
	if !filepath.IsLocal(root) {
		return nil, fault.New(fault.Invalid, "PathInvalid", fmt.Errorf("the path %q leads out of the source", tree.Path))
	}
	return &workDir{dir: dir, root: root}, nil
}

func (p *workDir) path(names ...string) string {
	return filepath.Join(append([]string{p.dir}, names...)...)
}

// module is the root module's directory relative to work.
func (p *workDir) module() string { return path.Join(dirTree, p.root) }

// scratch returns how a file in work/run is called from the root module. It is
// relative, so that it means the same at every level of isolation.
func (p *workDir) scratch(name string) string {
	up := strings.Repeat("../", strings.Count(p.module(), "/")+1)
	return up + path.Join(dirScratch, name)
}

// treeRoot is how the root of the tree is called from the root module, with a
// slash at its end; empty if they are the same.
func (p *workDir) treeRoot() string { return strings.Repeat("../", strings.Count(p.module(), "/")) }

// open opens a directory in work.
func (p *workDir) open(name string) (*os.Root, error) { return os.OpenRoot(p.path(dirWork, name)) }

// matches reports whether the directory is prepared for key, as the last good
// init left it.
func (p *workDir) matches(key string) (lockHash string, ok bool) {
	var m initRecord
	if key == "" || disk.ReadJSON(p.path(fileInitRecord), &m) != nil || m.Key != key {
		return "", false
	}
	tree, err := p.open(dirTree)
	if err != nil {
		return "", false
	}
	defer tree.Close()
	if _, err := tree.Lstat(path.Join(p.root, ".terraform")); err != nil {
		return "", false
	}
	_, hash, err := p.lockFile(tree)
	return hash, err == nil && hash == m.LockHash
}

// lockFile reads the dependency lock file; its hash is empty if there is none.
func (p *workDir) lockFile(tree *os.Root) (data []byte, hash string, err error) {
	data, err = disk.ReadHostile(tree, path.Join(p.root, ".terraform.lock.hcl"), 16<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the dependency lock file: %w", err)
	}
	return data, digest(data), nil
}

// rebuild makes the tree from the archive at a path, if it has one, and puts it in
// the place of the old one in one step. Nothing of the old tree is kept: what code
// of another revision left there must not reach this one.
func (p *workDir) rebuild(tree Tree, archive string, lockFile []byte) error {
	if err := errors.Join(removeIfThere(p.path(fileInitRecord)), removeIfThere(p.path(fileUses))); err != nil {
		return err
	}
	fresh := p.path(dirWork, dirTree+".new")
	if err := sandbox.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return err
	}
	if archive != "" {
		if err := unpack(archive, fresh); err != nil {
			return err
		}
	}
	if err := p.clean(fresh, lockFile, tree); err != nil {
		return err
	}
	defer failpoint.Act("run.tree", "")()
	old := p.path(dirWork, dirTree)
	if err := sandbox.RemoveAll(old); err != nil {
		return err
	}
	return os.Rename(fresh, old)
}

// clean takes out of a fresh tree what would let it choose another backend or
// another provider, and puts the plan's lock file in.
func (p *workDir) clean(fresh string, lockFile []byte, tree Tree) error {
	root, err := os.OpenRoot(fresh)
	if err != nil {
		return err
	}
	defer root.Close()
	if tree.Archive == "" {
		if err := root.MkdirAll(p.root, 0o755); err != nil {
			return err
		}
	}
	info, err := root.Stat(p.root)
	if err != nil || !info.IsDir() {
		return fault.New(fault.Invalid, "PathInvalid", fmt.Errorf("there is no directory %q in the source", tree.Path))
	}
	for _, name := range []string{".terraform", "terraform.tfstate", "errored.tfstate"} {
		if err := root.RemoveAll(path.Join(p.root, name)); err != nil {
			return err
		}
	}
	for _, name := range tree.Exclude {
		if !filepath.IsLocal(name) {
			return fault.New(fault.Invalid, "PathInvalid", fmt.Errorf("the file %q to leave out lies outside the source", name))
		}
		if err := root.RemoveAll(path.Join(p.root, name)); err != nil {
			return err
		}
	}
	if lockFile == nil {
		return nil
	}
	return disk.WriteFresh(root, path.Join(p.root, ".terraform.lock.hcl"), lockFile, 0o644)
}

func unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("opening the source: %w", err)
	}
	defer f.Close()
	if err := archive.Extract(f, dir, archive.Limits{}); err != nil {
		return fmt.Errorf("unpacking the source: %w", err)
	}
	return nil
}

// place puts the generated files of a run in. What they stand in for is kept
// first, then the placement is written, and only then the files: the next
// supervisor can wipe them after any crash.
func (p *workDir) place(s placement, files []workdir.File) error {
	s.Root = p.root
	for _, f := range files {
		name := path.Join(p.root, f.Path)
		if !filepath.IsLocal(f.Path) || !filepath.IsLocal(name) {
			return fault.New(fault.Invalid, "PathInvalid", fmt.Errorf("the generated file %q would lie outside the source", f.Path))
		}
		s.Files = append(s.Files, name)
	}
	tree, err := p.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	for i, name := range s.Files {
		if err := p.keepOriginal(tree, i, name); err != nil {
			return fmt.Errorf("putting %s aside: %w", name, err)
		}
	}
	if err := disk.WriteJSON(p.path(filePlacement), s); err != nil {
		return err
	}
	for i, f := range files {
		if err := disk.WriteFresh(tree, s.Files[i], f.Content, fs.FileMode(f.Mode)&fs.ModePerm); err != nil {
			return fmt.Errorf("writing %s: %w", f.Path, err)
		}
	}
	return nil
}

// placeHome makes the home directory of a run that has files there. They are
// gone with the directory when the run is wiped.
func (p *workDir) placeHome(files []workdir.File) error {
	if len(files) == 0 {
		return nil
	}
	if err := os.RemoveAll(p.path(dirWork, dirHome)); err != nil {
		return err
	}
	if err := os.Mkdir(p.path(dirWork, dirHome), 0o700); err != nil {
		return err
	}
	home, err := p.open(dirHome)
	if err != nil {
		return err
	}
	defer home.Close()
	for _, f := range files {
		if !filepath.IsLocal(f.Path) {
			return fault.New(fault.Invalid, "PathInvalid", fmt.Errorf("the file %q would lie outside the home directory", f.Path))
		}
		if err := home.MkdirAll(path.Dir(f.Path), 0o700); err != nil {
			return err
		}
		if err := disk.WriteFresh(home, f.Path, f.Content, fs.FileMode(f.Mode)&fs.ModePerm); err != nil {
			return fmt.Errorf("writing %s at home: %w", f.Path, err)
		}
	}
	return nil
}

// keepOriginal keeps the file of the tree that a generated one will stand in
// for.
func (p *workDir) keepOriginal(tree *os.Root, n int, name string) error {
	info, err := tree.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	if err != nil {
		return err
	}
	data, err := disk.ReadHostile(tree, name, 64<<20)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.path(dirOriginals), 0o700); err != nil {
		return err
	}
	return disk.WriteSynced(p.path(dirOriginals, strconv.Itoa(n)), data)
}

// wipe takes out everything that belongs to one run and brings back what its
// files stood in for. It does nothing the second time.
func (p *workDir) wipe() error {
	s, err := p.placement()
	if err != nil {
		return err
	}
	defer failpoint.Act("run.wipe", "")()
	err = p.restore(s)
	if errors.Is(err, fs.ErrPermission) {
		// A program of the run may have made directories unwritable.
		if err = sandbox.OpenDirs(p.path(dirWork)); err == nil {
			err = p.restore(s)
		}
	}
	if err != nil {
		return fmt.Errorf("wiping the work directory: %w", err)
	}
	// Without a placement nothing is wiped, so the originals go after it.
	if err := removeIfThere(p.path(filePlacement)); err != nil {
		return err
	}
	return os.RemoveAll(p.path(dirOriginals))
}

// restore makes the directory as it was before a placement.
func (p *workDir) restore(s placement) error {
	errs := []error{os.RemoveAll(p.path(dirWork, dirScratch)), os.RemoveAll(p.path(dirWork, dirHome)), os.RemoveAll(p.path(dirWork, dirIdentity)), os.RemoveAll(p.path(dirShown)), os.RemoveAll(p.path(dirPrograms))}
	if tree, err := p.open(dirTree); err == nil {
		defer tree.Close()
		for i, name := range s.Files {
			errs = append(errs, p.restoreOriginal(tree, i, name))
		}
		for _, name := range []string{"errored.tfstate", "terraform.tfstate", "terraform.tfstate.backup", "crash.log"} {
			errs = append(errs, tree.RemoveAll(path.Join(path.Clean("./"+s.Root), name)))
		}
		if s.Backend {
			errs = append(errs, tree.RemoveAll(path.Join(path.Clean("./"+s.Root), ".terraform", "terraform.tfstate")))
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// placement returns what the last run has put in; empty if that has been wiped.
func (p *workDir) placement() (placement, error) {
	var s placement
	err := disk.ReadJSON(p.path(filePlacement), &s)
	return s, err
}

func (p *workDir) restoreOriginal(tree *os.Root, n int, name string) error {
	if err := tree.RemoveAll(name); err != nil {
		return err
	}
	data, err := os.ReadFile(p.path(dirOriginals, strconv.Itoa(n)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return disk.WriteFresh(tree, name, data, 0o644)
}

// backend returns the type of the backend that init configured.
func (p *workDir) backend() (string, error) {
	tree, err := p.open(dirTree)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	data, err := disk.ReadHostile(tree, path.Join(p.root, ".terraform", "terraform.tfstate"), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return engine.BackendType(data)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
