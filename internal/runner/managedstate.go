package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/managed"
)

// A managed stack in another workspace than the default one runs on the
// engine's local backend: the only one besides the remote ones that knows
// workspaces. Its file is seeded with a valid state, because an engine that
// starts from a missing one forgets, in its intermediate snapshots, all but the
// last object; and what it writes is taken over while it works, because it
// truncates the file in place.

const (
	localStates   = "state" // in work/run
	localInterval = time.Second
)

// managedState is the part of a run that serves a state which Terrier keeps.
type managedState struct {
	*run
	store   *managed.Store  // nil unless the state is managed
	server  *managed.Server // in the default workspace
	locally bool            // in another workspace: the engine's local backend on a seeded file
}

// serve chooses how the engine reaches a managed state. The http backend knows
// no workspaces, and terraform.workspace must read the right name, so another
// workspace than the default one gets the engine's local backend.
func (r *managedState) serve() error {
	if r.job.Workspace != "" && r.job.Workspace != "default" {
		r.locally = true
		return nil
	}
	var err error
	r.server, err = managed.NewServer(r.store)
	return err
}

// stored is called for every version of the state that is safe on disk.
func (r *managedState) stored(id StateID, file *managed.File) {
	r.script.learn(file)
	// A report that cannot be written now is written at the next change of
	// phase; the state itself is safe, and the engine waits for that answer.
	_ = r.reportFile.update(func(rep *Report) { rep.State, rep.Resources = id, file.Managed() })
}

// rescue keeps a state that the engine could store nowhere. If it is one that
// we serve, the failure may be over by now.
func (r *managedState) rescue(data []byte) error {
	if r.store != nil && r.store.Accept(data) == nil {
		return nil
	}
	id, err := keepRescued(r.dir, data, r.reportFile.reserve)
	if err != nil {
		return err
	}
	r.reportFile.set(func(rep *Report) { rep.Rescued = &id })
	return nil
}

// localFile is the state file below work/run.
func localFile(workspace string) string {
	return path.Join(localStates, workspace, "terraform.tfstate")
}

// seed puts the state where the local backend looks for it.
func (r *managedState) seed(s *placement) error {
	data, file := r.store.Newest()
	if data == nil {
		if !r.job.Kind.Writes() {
			return nil
		}
		var err error
		if data, err = managed.Empty(); err != nil {
			return err
		}
		if file, err = managed.Parse(data); err != nil {
			return err
		}
	}
	s.Lineage, s.Serial = file.Lineage, file.Serial
	if err := os.MkdirAll(r.work.path(dirWork, dirScratch), 0o700); err != nil {
		return err
	}
	root, err := r.work.open(dirScratch)
	if err != nil {
		return err
	}
	defer root.Close()
	return disk.WriteFresh(root, localFile(r.job.Workspace), data, 0o600)
}

// watchLocal says when to look at the local state.
func (r *managedState) watchLocal() (<-chan time.Time, func()) {
	if !r.locally || !r.job.Kind.Writes() {
		return nil, func() {}
	}
	t := time.NewTicker(localInterval)
	return t.C, t.Stop
}

// acceptLocal takes the local state over if it is newer. A file that is being
// written cannot be read, and is read the next time.
func (r *managedState) acceptLocal() {
	if !r.locally || !r.job.Kind.Writes() {
		return
	}
	if data, err := localState(r.work, r.job.Workspace); err == nil {
		r.recorder.keepError(r.takeOver(data))
	}
}

func (r *managedState) takeOver(data []byte) error {
	_, file := r.store.Newest()
	next, err := managed.Parse(data)
	if err != nil || file != nil && next.Serial <= file.Serial {
		return nil // it is half written, or known
	}
	return r.store.Accept(data)
}

func localState(w *workDir, workspace string) ([]byte, error) {
	root, err := w.open(dirScratch)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return disk.ReadHostile(root, localFile(workspace), managed.MaxBytes)
}

// collect keeps a state that the engine could not store, and what of the local state was not
// taken over yet. Only an engine that writes has one; any other file of that name was left by
// the module. The error comes with whether the work directory may hold the only copy.
func (r *managedState) collect() (unsaved bool, err error) {
	if !r.job.Kind.Writes() {
		return false, nil
	}
	if r.locally {
		data, err := localState(r.work, r.job.Workspace)
		switch {
		case disk.NoFile(err):
			err = nil // the last one taken over stands
		case err == nil:
			err = r.takeOver(data) // which may fail as the read of no file does
		}
		if err != nil && !errors.Is(err, managed.ErrRefused) {
			return true, fmt.Errorf("taking over the state of the workspace %s: %w", r.job.Workspace, err)
		}
	}
	data, err := erroredState(r.work, r.work.root)
	if err != nil || data == nil {
		return err != nil && !disk.NoFile(err), err
	}
	err = r.rescue(r.foreign.legible(data))
	return err != nil, err
}

// erroredState returns the state that an engine wrote beside the module because
// its backend refused it.
func erroredState(w *workDir, module string) ([]byte, error) {
	tree, err := w.open(dirTree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	data, err := disk.ReadHostile(tree, path.Join(path.Clean("./"+module), "errored.tfstate"), managed.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("rescuing errored.tfstate: %w", err)
	}
	return data, nil
}

// keepRescued stores a rescued state in the run's directory.
func keepRescued(dir string, data []byte, space *disk.Reserve) (StateID, error) {
	id := StateID{Digest: digest(data)}
	if file, err := managed.Parse(data); err == nil {
		id = file.ID(data)
	}
	path := filepath.Join(dir, FileRescue)
	err := disk.Write(path, data)
	if space != nil && disk.IsNoSpace(err) {
		err = space.WriteState(path, data)
	}
	return id, err
}

// recoverState saves the states that a run left in the work directory when its
// supervisor died: a refused state, and a local one newer than the last that was
// saved. runs is the directory of the stack's runs. After an error the directory must not be
// wiped: it may hold the only copy. The engine of the run is waited for as long as patience says.
func recoverState(w *workDir, runs string, patience time.Duration) error {
	s, err := w.placement()
	if err != nil || s.Run == "" {
		return err
	}
	dir := filepath.Join(runs, s.Run)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // forgotten: its results were recorded
	} else if err != nil {
		return err
	}
	traces, err := tracesIn(dir)
	if err != nil {
		return err
	}
	for _, t := range traces {
		if err := t.ensureDead(patience); err != nil {
			return err
		}
	}
	if !s.Writes {
		return nil
	}
	data, err := erroredState(w, s.Root)
	if err != nil && !disk.NoFile(err) { // what is no file was left by the module
		return err
	}
	if data != nil {
		if _, err := keepRescued(dir, data, nil); err != nil {
			return err
		}
	}
	if !s.Local {
		return nil
	}
	data, err = localState(w, s.Workspace)
	switch {
	case disk.NoFile(err):
		return nil // the last one taken over stands
	case err != nil:
		return fmt.Errorf("reading the state of the workspace %s: %w", s.Workspace, err)
	}
	return recoverLocal(dir, s, data)
}

// recoverLocal takes data over if it follows what the run had.
func recoverLocal(dir string, s placement, data []byte) error {
	next, err := managed.Parse(data)
	if err != nil {
		return nil // the engine died while it wrote: the last one taken over stands
	}
	last := &managed.File{Lineage: s.Lineage, Serial: s.Serial}
	kept, err := os.ReadFile(filepath.Join(dir, FileState))
	if err == nil {
		last, err = managed.Parse(kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if next.Lineage != last.Lineage || next.Serial <= last.Serial {
		return nil
	}
	return disk.Write(filepath.Join(dir, FileState), data)
}
