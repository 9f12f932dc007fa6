package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A module that calls no module and needs no provider leaves init nothing to
// install. What init then writes is which backend it has configured, and for a
// managed state that is the same for every stack: http, without a setting. So
// the first such init of an engine is a real one, its result is kept, and later
// runs put that in place instead of starting the engine for it:
//
//	prepare    the tree was rebuilt, and nothing wants init      → a key
//	           what an init wrote for the same is kept           → put it there
//	init       else the engine does it, and the result is kept
//	plan       the engine refuses it → forget, init, plan again
//	           it has planned        → only now the directory is prepared
//
// An apply never begins so: it finds the directory in which it was planned, or
// initialises one. The stored result need not be genuine. Only one form of it is
// used, which has no setting: the place of the state is in the environment, and only
// the supervisor sets that. And an engine compares it with the configuration before
// it believes it.

// maxBackend bounds the file that init writes about a backend, which is less
// than a page.
const maxBackend = 64 << 10

// knownBackend is the result of an init.
type knownBackend struct {
	For     string          `json:"for"` // preparation.backendKey of that time
	Backend json.RawMessage `json:"backend"`
}

// skipInit puts in place what init would write, if it would do nothing else
// and that is known.
func (r *preparation) skipInit() error {
	r.backendKey = r.findBackendKey()
	switch r.job.Kind {
	case stack.PlanRun, stack.CheckRun, stack.PreviewRun, stack.DestroyRun:
	default: // its first step is not a plan, which could still turn to init
		return nil
	}
	if r.backendKey == "" || r.job.Script != nil {
		return nil
	}
	data, err := r.knownBackend()
	if err != nil {
		return nil // none, or nothing to trust: init tells
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := disk.WriteFresh(tree, path.Join(r.work.root, engine.BackendFile), data, 0o644); err != nil {
		return fmt.Errorf("preparing the backend: %w", err)
	}
	if err := r.rightBackend(); err != nil {
		return err
	}
	r.reportFile.set(func(rep *Report) { rep.NoInit = true })
	return nil
}

// findBackendKey names what init would write, by all that it depends on: the
// engine and the file that asks for the backend. It is empty if init may have
// more to do. The tree has to be fresh, so that nothing that ran in it has had
// a say.
func (r *preparation) findBackendKey() string {
	o := r.job.Options
	if r.ready || r.key == "" || r.state.server == nil || o.BackendFile != "" || len(o.Backend) > 0 || r.job.LockFile.Digest != "" {
		return ""
	}
	if _, state := r.state.store.Newest(); state != nil && !state.BuiltIn() {
		return ""
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return ""
	}
	defer tree.Close()
	for _, name := range []string{".terraform", ".terraform.lock.hcl"} {
		if _, err := tree.Lstat(path.Join(r.work.root, name)); !errors.Is(err, fs.ErrNotExist) {
			return ""
		}
	}
	root, err := fs.Sub(tree.FS(), r.work.root)
	if err != nil {
		return ""
	}
	file, err := engine.SelfContained(root)
	if err != nil {
		return ""
	}
	stamp, err := engineStamp(r.host.Engine)
	if err != nil {
		return ""
	}
	for _, f := range r.job.Files {
		if path.Clean(f.Path) == file { // the backend is the one that the caller asks for
			return digest(fmt.Appendf(nil, "1\n%s\n%s\n%s", r.job.Engine, stamp, f.Content))
		}
	}
	return ""
}

// engineStamp tells one engine from another at the same path without reading a
// hundred megabytes. The time of its last change is the kernel's.
func engineStamp(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s has no inode", name)
	}
	return fmt.Sprintln(name, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()), nil
}

// backendName is where what an engine's init writes is kept, below the data
// directory: one file for each path, so that a new engine takes the place of the
// one before it.
func (r *preparation) backendName() string {
	sum := sha256.Sum256([]byte(r.host.Engine))
	return filepath.Join(dirBackends, hex.EncodeToString(sum[:8])+".json")
}

// knownBackend reads what was kept for r.backendKey.
func (r *preparation) knownBackend() ([]byte, error) {
	dir, err := os.OpenRoot(r.layout.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	data, err := disk.ReadHostile(dir, r.backendName(), maxBackend)
	if err != nil {
		return nil, err
	}
	var k knownBackend
	if err := json.Unmarshal(data, &k); err != nil {
		return nil, err
	}
	if k.For != r.backendKey {
		return nil, errors.New("it is another engine's, or for another backend")
	}
	return engine.BareHTTP(k.Backend)
}

// rememberBackend keeps what init has just written, if it was all that there
// was to do. It only saves time: if anything is in its way, the next init tries
// again.
func (r *preparation) rememberBackend() {
	if r.backendKey == "" {
		return
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return
	}
	defer tree.Close()
	data, err := disk.ReadHostile(tree, path.Join(r.work.root, engine.BackendFile), maxBackend)
	if err != nil {
		return
	}
	if data, err = engine.BareHTTP(data); err != nil {
		return
	}
	if data, err = json.Marshal(knownBackend{For: r.backendKey, Backend: data}); err != nil {
		return
	}
	// Written in the run's directory, which goes away with the run: other runs
	// may be doing the same. Without fsync: half a file is none.
	fresh, kept := filepath.Join(r.dir, "backend.tmp"), filepath.Join(r.layout.dir, r.backendName())
	if os.MkdirAll(filepath.Dir(kept), 0o700) == nil && os.WriteFile(fresh, data, 0o600) == nil {
		_ = os.Rename(fresh, kept)
	}
}

// needsInit reports whether a plan has failed for want of an init: the directory
// was prepared without one, or by an earlier run with other variables, on which
// the sources of modules may depend.
func (r *preparation) needsInit(res result, err error) bool {
	e, failed := errors.AsType[ending](err)
	return failed && e.outcome == stack.Failed && r.initialised() && engine.InitRequired(res.output.diagnostics)
}

// initAndRetry initialises the directory as if nothing had been tried. before is
// how many diagnostics there were before the attempt.
func (r *preparation) initAndRetry(ctx context.Context, res result, before int) error {
	r.recorder.logf("The engine does not take the directory without init; initialising it and planning once more.")
	if err := r.providers.stop(); err != nil { // those of the modules before
		return err
	}
	if engine.BackendUnknown(res.output.diagnostics) {
		if err := removeIfThere(filepath.Join(r.layout.dir, r.backendName())); err != nil {
			return err
		}
	} else {
		r.backendKey = "" // there was more to do than was seen
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	// Whatever becomes of this init, the directory is no longer as it was.
	err = removeIfThere(r.work.path(fileInitRecord))
	err = errors.Join(err, tree.RemoveAll(path.Join(r.work.root, ".terraform")), tree.Close())
	if err != nil {
		return err
	}
	r.ready = false
	r.reportFile.set(func(rep *Report) {
		rep.NoInit, rep.InitSkipped, rep.Diagnostics = false, false, rep.Diagnostics[:before]
	})
	for _, step := range []func(context.Context) error{r.init, r.workspace, r.providers.start} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// markPrepared marks a directory as prepared in which the engine has planned
// without init. Before that no run may take it for initialised.
func (r *preparation) markPrepared() error {
	if !r.reportFile.content().NoInit {
		return nil
	}
	return r.keepLockFile()
}
