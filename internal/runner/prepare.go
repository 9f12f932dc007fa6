package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// preparation is the part of a run that makes its work directory ready for the
// engine.
type preparation struct {
	*run
	key        string   // fingerprint of all that the prepared work directory depends on
	ready      bool     // the work directory was prepared when the run began
	backendKey string   // names the backend that init writes down if it has nothing else to do; empty if it may have
	moved      []string // providers that init took from their registries, since the mirror has none that fits
	overrules  bool     // the variables of the stack overrule a file of the module that the engine loads by itself
}

// prepare makes the work directory fit the run: unpacked if it is not the
// right tree, and with the run's own files in place.
func (r *preparation) prepare(context.Context) error {
	r.key = r.initKey()
	lockHash, ready := r.work.matches(r.key)
	if !ready || r.job.Options.Upgrade && r.job.Kind == stack.PlanRun {
		ready = false
		if err := r.reportFile.enter(Unpacking); err != nil {
			return err
		}
		if err := r.work.rebuild(r.job.Tree, r.host.Archive, r.job.LockFile.Bytes()); err != nil {
			return err
		}
		var err error
		if lockHash, ready, err = r.handover.use(); err != nil {
			return err
		}
	}
	r.ready = ready
	r.reportFile.set(func(rep *Report) {
		rep.InitSkipped, rep.LockHash = ready && r.job.Options.BackendFile == "", lockHash
	})
	r.sandbox.configure()
	s := placement{Run: r.job.ID, Writes: r.job.Kind.Writes(), Local: r.state.locally, Workspace: r.job.Workspace,
		Backend: r.job.Options.BackendFile != ""}
	if r.state.locally {
		if err := r.state.seed(&s); err != nil {
			return err
		}
	}
	if err := r.work.place(s, r.job.Files); err != nil {
		return err
	}
	if err := r.work.placeHome(r.job.Home); err != nil {
		return err
	}
	if err := os.MkdirAll(r.work.path(dirWork, dirScratch), 0o700); err != nil {
		return err
	}
	if err := r.findVarFiles(); err != nil {
		return err
	}
	if err := r.overrule(); err != nil {
		return err
	}
	if err := r.skipInit(); err != nil {
		return err
	}
	if r.initialised() {
		r.uses.recall()
	}
	return sandbox.ChownWork(r.work.path(dirWork))
}

// initKey covers all that a prepared directory depends on; it is empty if the
// job does not say.
func (r *preparation) initKey() string {
	o := r.job.Options
	if o.InitKey == "" {
		return ""
	}
	key, err := json.Marshal([]any{o.InitKey, r.job.Tree.Digest, r.work.root, r.job.Engine, r.host.Engine, o.Backend,
		r.job.Workspace, r.job.Managed, r.job.Tree.Exclude})
	if err != nil {
		return ""
	}
	return digest(key)
}

// initialised reports whether the directory needs no init.
func (r *preparation) initialised() bool {
	rep := r.reportFile.content()
	return rep.InitSkipped || rep.NoInit
}

// init initialises the directory unless it already is.
func (r *preparation) init(ctx context.Context) error {
	if r.initialised() {
		return nil
	}
	// A directory that is ready has its providers: only its backend is configured
	// again.
	args, err := engine.Init(engine.InitOptions{
		Backend: r.backendConfig(), File: r.job.Options.BackendFile, Upgrade: r.job.Options.Upgrade && !r.ready, VarFiles: r.varFiles(),
	})
	if err != nil {
		return err
	}
	if err := r.enter(ctx, Initializing, "init"); err != nil {
		return err
	}
	if err := r.install(ctx, command{step: "init", args: args, events: true, installs: true}); err != nil {
		return err
	}
	if err := r.registry.completeLockFile(); err != nil {
		return err
	}
	provided := r.providers.measure()
	r.reportFile.set(func(rep *Report) { rep.Providers = provided })
	if err := r.rightBackend(); err != nil {
		return err
	}
	r.rememberBackend()
	return nil
}

func (r *preparation) backendConfig() []string {
	if r.state.locally {
		return []string{"workspace_dir=" + r.work.scratch(localStates)}
	}
	return r.job.Options.Backend
}

// rightBackend makes sure that the code of the stack did not choose where its
// state goes, whatever means it tried.
func (r *preparation) rightBackend() error {
	want := r.job.Options.BackendType
	switch {
	case r.state.locally:
		want = "local"
	case r.job.Managed:
		want = "http"
	}
	if want == "" {
		return nil
	}
	got, err := r.work.backend()
	if err != nil {
		return err
	}
	if got != want {
		return fault.New(fault.Denied, "BackendDenied",
			fmt.Errorf("the module configures the backend %q, where %q is the stack's", got, want))
	}
	return nil
}

// workspace selects the workspace of a foreign backend, and then writes down
// what the directory is now prepared for.
func (r *preparation) workspace(ctx context.Context) error {
	if r.initialised() {
		return nil
	}
	if w := r.job.Workspace; !r.job.Managed && w != "" && w != "default" {
		args, err := engine.SelectWorkspace(w)
		if err != nil {
			return err
		}
		if _, err := r.engine.execute(ctx, command{step: "workspace", args: args}); err != nil {
			return err
		}
	}
	if err := r.keepLockFile(); err != nil {
		return err
	}
	r.uses.find()
	return r.handover.leave()
}

// keepLockFile publishes the dependency lock file and marks the directory as
// prepared.
func (r *preparation) keepLockFile() error {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	data, hash, err := r.work.lockFile(tree)
	if err != nil {
		return err
	}
	if data != nil {
		if err := disk.WriteSynced(filepath.Join(r.dir, FileLockHCL), data); err != nil {
			return err
		}
	}
	r.reportFile.set(func(rep *Report) { rep.LockHash = hash })
	if r.key == "" {
		return nil
	}
	return disk.WriteJSON(r.work.path(fileInitRecord), initRecord{Key: r.key, LockHash: hash})
}

// unlock breaks the lock that the job names. If that fails the lock is gone or
// still held, and the next step tells which.
func (r *preparation) unlock(ctx context.Context) error {
	if r.job.Options.ForceUnlock == "" || r.job.Managed {
		return nil
	}
	args, err := engine.ForceUnlock(r.job.Options.ForceUnlock)
	if err != nil {
		return err
	}
	_, err = r.engine.execute(ctx, command{step: "unlock", args: args})
	if e, ok := errors.AsType[ending](err); ok && (e.outcome == stack.Failed || e.outcome == stack.Locked) {
		r.reportFile.set(func(rep *Report) { rep.Lock = nil })
		return nil
	}
	return err
}

// usesList is what the module uses. It is read right after init, before a provider of the
// stack is started, and kept where no program of the sandbox can write it. A run that finds
// the directory prepared leaves it only with a plan: the last list stands otherwise. No run
// fails because of it.
type usesList struct {
	*run
	list []byte // a usage.Usage; nil if it is not known
}

// find reads what the prepared directory uses, and leaves it for the controller.
func (r *usesList) find() {
	r.list = r.read()
	r.leave(r.list)
	if r.list != nil {
		r.written(disk.Write(r.work.path(fileUses), r.list))
	}
}

// recall takes what an earlier run has found in the same directory. It is not there in one
// that came from elsewhere, that needs no init, or that an earlier release prepared.
func (r *usesList) recall() {
	data, err := os.ReadFile(r.work.path(fileUses))
	if err != nil || r.reportFile.content().NoInit {
		r.find()
		return
	}
	r.list = data
}

// leave leaves a list for the controller.
func (r *usesList) leave(list []byte) {
	if list != nil {
		r.written(disk.Write(filepath.Join(r.dir, FileUses), list))
	}
}

func (r *usesList) written(err error) {
	if err != nil {
		r.recorder.logf("Which modules and providers the stack uses is not kept: %v.", err)
	}
}

// read reads the directory; it is nil if that is not possible.
func (r *usesList) read() []byte {
	data, err := r.readTree()
	if err != nil {
		r.written(err)
		return nil
	}
	return r.hide.RedactJSON(data)
}

func (r *usesList) readTree() ([]byte, error) {
	tree, err := r.work.open(dirTree)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	lock, _, err := r.work.lockFile(tree)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(engine.Uses(tree.FS(), r.work.root, r.job.Engine.Name, lock))
	if err == nil && len(data) > usage.MaxBytes {
		err = fmt.Errorf("the list has %d bytes, and at most %d are kept", len(data), usage.MaxBytes)
	}
	return data, err
}
