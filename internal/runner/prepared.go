package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A run that begins in an empty directory would initialise it each time. The run that did so
// leaves what init made, and later runs of the same stack for the same content begin with it:
//
//	init ── workspace ── leave: .terraform without providers, and the lock file   (FilePrepared)
//	                                     │ the controller keeps it under Job.PreparedKey
//	rebuild ── use: put both there ◀─────┘ link the providers into the mirror ── plan
//
// It is left before the engine plans, so before a provider of the stack was started. Providers
// are no part of it: they are large, and the mirror has them. The
// supervisor compares their hashes with the lock file before the engine plans. Only runs whose first
// step is a plan begin so, for a plan can still turn to init.

// maxPrepared bounds what is unpacked, in bytes.
const maxPrepared = 256 << 20

const (
	dirData  = ".terraform"          // what init makes
	lockName = ".terraform.lock.hcl" // beside it
	dirGiven = "given"               // in STACK: what an earlier run left, until it is in its place
)

// PreparedKey names all that a prepared directory depends on, as far as the job says it: the
// runner finds by it what an earlier run of the stack left. It is empty if no run of this job
// can use or leave any.
func (j Job) PreparedKey() string {
	o := j.Options
	if o.InitKey == "" || o.BackendFile != "" || j.Beside != "" || !plansFirst(j.Kind) || j.Script != nil && j.Kind == stack.DestroyRun {
		return ""
	}
	const format = 1
	key, err := json.Marshal([]any{format, o.InitKey, j.Tree.Digest, path.Clean("./" + filepath.ToSlash(j.Tree.Path)), j.Engine, o.Backend,
		j.Workspace, j.Managed, j.Tree.Exclude})
	if err != nil {
		return ""
	}
	return digest(key)
}

// plansFirst reports whether the first step of a run is a plan.
func plansFirst(k stack.RunKind) bool {
	return k == stack.PlanRun || k == stack.CheckRun || k == stack.PreviewRun || k == stack.DestroyRun
}

// handover is the part of a run that takes what an earlier run prepared, and leaves what this
// one did.
type handover struct{ *run }

// use puts into a fresh tree what an earlier run left. ok is false if there is
// nothing that can be used: the engine then initialises the directory.
func (r *handover) use() (lockHash string, ok bool, err error) {
	if r.host.Prepared == "" || r.directory.key == "" || r.job.PreparedKey() == "" || r.job.Options.Upgrade && r.job.Kind == stack.PlanRun {
		return "", false, nil
	}
	given := r.work.path(dirGiven)
	lockHash, err = r.place(given)
	if err != nil {
		r.recorder.logf("The directory that an earlier run prepared cannot be used: %v. The engine initialises another one.", err)
		lockHash = ""
		if err := r.work.rebuild(r.job.Tree, r.host.Archive, r.job.LockFile.Bytes()); err != nil {
			return "", false, err
		}
	}
	return lockHash, err == nil, os.RemoveAll(given)
}

func (r *handover) place(given string) (lockHash string, err error) {
	if err := errors.Join(os.RemoveAll(given), os.Mkdir(given, 0o700)); err != nil {
		return "", err
	}
	f, err := os.Open(r.host.Prepared)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := archive.Extract(f, given, archive.Limits{Bytes: maxPrepared}); err != nil {
		return "", err
	}
	// No program has run in the tree yet, and nothing unpacks a link: paths mean what they say.
	root := r.work.path(dirWork, dirTree, r.work.root)
	if err := os.Rename(filepath.Join(given, dirData), filepath.Join(root, dirData)); err != nil {
		return "", err
	}
	if err := removeIfThere(filepath.Join(root, lockName)); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(given, lockName), filepath.Join(root, lockName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := r.checkBackend(); err != nil {
		return "", err
	}
	lockHash, providers, err := r.linkProviders(root)
	if err != nil {
		return "", err
	}
	if want := r.job.LockFile.Digest; want != "" && want != lockHash {
		return "", errors.New("its dependency lock file is another one than that of the plan")
	}
	return lockHash, disk.WriteJSON(r.work.path(fileInitRecord), initRecord{Key: r.directory.key, LockHash: lockHash, Providers: providers})
}

// checkBackend makes sure that the directory is initialised for the backend of the stack. Of
// the one that the supervisor serves there is one form alone, which has no address in it.
func (r *handover) checkBackend() error {
	if r.state.server == nil {
		return r.directory.rightBackend()
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	name := path.Join(r.work.root, engine.BackendFile)
	data, err := disk.ReadHostile(tree, name, maxBackend)
	if err != nil {
		return err
	}
	if data, err = engine.BareHTTP(data); err != nil {
		return err
	}
	return disk.WriteFresh(tree, name, data, 0o644)
}

// linkProviders links the providers of the lock file into the mirror, as init does, and
// compares their hashes with it.
func (r *handover) linkProviders(root string) (lockHash string, good []provider, err error) {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return "", nil, err
	}
	defer tree.Close()
	data, lockHash, err := r.work.lockFile(tree)
	if err != nil || data == nil {
		return "", nil, err
	}
	locked, err := engine.ParseLockFile(data)
	if err != nil {
		return "", nil, err
	}
	for _, l := range locked {
		link := filepath.Join(root, engine.PackageDir(l, platform))
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return "", nil, err
		}
		if err := os.Symlink(path.Join(r.sandbox.config.PathInside(MirrorInside), l.Address, l.Version, platform), link); err != nil {
			return "", nil, err
		}
		p, err := r.providers.find(tree, l)
		if err == nil {
			_, err = p.verify(nil)
		}
		p.close()
		if err != nil {
			return "", nil, fmt.Errorf("the mirror of providers does not have %s %s as the lock file names it: %w", l.Address, l.Version, err)
		}
		good = append(good, p)
	}
	return lockHash, good, nil
}

// leave leaves what init made for later runs, if the job asks for it and the mirror
// has every provider. It only saves time: a run does not fail because of it.
func (r *handover) leave() error {
	if r.job.Prepared.Keep == 0 || r.directory.key == "" || r.job.PreparedKey() == "" {
		return nil
	}
	if from, err := r.allFromMirror(); err != nil || !from {
		return nil // another run would have to fetch its providers all the same
	}
	path, tmp := filepath.Join(r.dir, FilePrepared), filepath.Join(r.dir, FilePrepared+".tmp")
	err := r.pack(tmp)
	if err == nil {
		return os.Rename(tmp, path)
	}
	r.recorder.logf("What init made is not kept for later runs, which run init again: %v.", err)
	return removeIfThere(tmp)
}

// allFromMirror reports whether every provider of the prepared directory is a link into the
// mirror.
func (r *handover) allFromMirror() (bool, error) {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return false, err
	}
	defer tree.Close()
	data, _, err := r.work.lockFile(tree)
	if err != nil || data == nil {
		return err == nil, err
	}
	locked, err := engine.ParseLockFile(data)
	if err != nil {
		return false, err
	}
	for _, l := range locked {
		p, err := r.providers.find(tree, l)
		linked := err == nil && p.root == nil
		p.close()
		if !linked {
			return false, nil
		}
	}
	return true, nil
}

func (r *handover) pack(to string) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := &bounded{Writer: f, left: r.job.Prepared.Keep}
	err = archive.Pack(r.work.path(dirWork, r.work.module()), notPrepared, w, archive.Limits{Bytes: maxPrepared})
	if w.left < 0 {
		err = fmt.Errorf("packed it has more than %d MiB, which is what the operator allows", r.job.Prepared.Keep>>20)
	}
	return errors.Join(err, f.Close())
}

// notPrepared leaves out all but what init made, and the providers.
func notPrepared(name string, dir bool) bool {
	switch {
	case name == lockName:
		return dir
	case name == dirData:
		return !dir
	case !strings.HasPrefix(name, dirData+"/"):
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(name, dirData+"/"), "/")
	return first == "providers"
}

// bounded fails once more is written than it has left.
type bounded struct {
	io.Writer
	left int64
}

var errBounded = errors.New("there is too much of it")

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errBounded
	}
	return b.Writer.Write(p)
}
