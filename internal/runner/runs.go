package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// Runs are the directories of a runner's runs, each with the report of its run and the
// files that Open opens. It keeps the part of the contract that is about them. What
// carries the runs out is in the Acts.
type Runs struct {
	layout
	acts Acts

	mu   sync.Mutex
	busy map[string]*sync.Mutex // one for each key that was ever used
}

// Acts are what runners do each in their own way. Runs calls them with the lock of the
// key held.
type Acts struct {
	Begin  func(ctx context.Context, job Job) error   // starts the run of a job that was checked; after an error Runs removes the run's directory
	Find   func(key, id string) (*Report, error)      // reads the report of a run; nil if the directory is none of a run
	Cancel func(ctx context.Context, r *Report) error // asks a run that goes on to stop
	Room   func(ctx context.Context, job Job) error   // asks whether a run could begin; nil where there is always room
	Forget func(key, id string) error                 // called before the directory of a run that ended is removed; may be nil
	Unread func() map[string]error                    // the keys of which it is not known whether they have a run, also without a directory, and why; may be nil
}

// OpenRuns opens the runs in a data directory. They are carried out as AsProcesses or
// AsPods; a directory with runs of the other kind is refused.
func OpenRuns(dir, as string, a Acts) (*Runs, error) {
	s := &Runs{layout: layout{dir}, acts: a, busy: map[string]*sync.Mutex{}}
	for _, dir := range []string{s.stacks(), s.runs()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := s.claim(as); err != nil {
		return nil, err
	}
	return s, nil
}

// StackDir is the directory of a key: what is kept from run to run. Remove removes it.
func (s *Runs) StackDir(key string) string { return s.stack(key) }

// Dir is the directory of a run.
func (s *Runs) Dir(key, id string) string { return s.run(key, id) }

// Start starts a run. A run that was started before, whether it is running or
// done, is left alone. While another run of the stack has not been forgotten, Start
// is a Conflict: what that run did, its state above all, has not been recorded yet.
func (s *Runs) Start(ctx context.Context, job Job) error {
	if err := job.Check(); err != nil {
		return err
	}
	defer s.Lock(job.Key())()
	current, err := s.current(job.Key())
	if err != nil {
		return err
	}
	if current != nil && current.ID == job.ID {
		return nil
	}
	if current != nil {
		return busy(job, current)
	}
	if err := s.acts.Begin(ctx, job); err != nil {
		return errors.Join(fmt.Errorf("starting run %s: %w", job.ID, err), RemoveRun(s.run(job.Key(), job.ID)))
	}
	return nil
}

// Room asks whether a run could start now.
func (s *Runs) Room(ctx context.Context, job Job) error {
	if err := job.Check(); err != nil {
		return err
	}
	defer s.Lock(job.Key())()
	current, err := s.current(job.Key())
	switch {
	case err != nil || current != nil && current.ID == job.ID:
		return err
	case current != nil:
		return busy(job, current)
	case s.acts.Room == nil:
		return nil
	}
	return s.acts.Room(ctx, job)
}

// busy is the error about a run that has the key of another one.
func busy(job Job, current *Report) error {
	return fault.New(fault.Conflict, StackBusy, fmt.Errorf("starting run %s: run %s of the same stack comes first", job.ID, current.ID))
}

// Current returns the one run of a key that was not forgotten yet, or nil.
func (s *Runs) Current(key string) (*Report, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	defer s.Lock(key)()
	return s.current(key)
}

// current is Current for a caller that holds the lock of the key.
func (s *Runs) current(key string) (*Report, error) {
	if why := s.unread()[key]; why != nil {
		return nil, why
	}
	ids, err := s.IDs(key)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		r, err := s.acts.Find(key, id)
		if err != nil || r != nil {
			return r, err
		}
	}
	return nil, nil
}

func (s *Runs) unread() map[string]error {
	if s.acts.Unread == nil {
		return nil
	}
	return s.acts.Unread()
}

// Keys lists the keys that have, or had, a run.
func (s *Runs) Keys() ([]string, error) {
	entries, err := os.ReadDir(s.runs())
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, e := range entries {
		if checkKey(e.Name()) == nil {
			keys = append(keys, e.Name())
		}
	}
	return keys, nil
}

// IDs lists the runs of a key that have a directory.
func (s *Runs) IDs(key string) ([]string, error) {
	entries, err := os.ReadDir(s.runsOf(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// List returns the current run of every key that has one. Those that cannot be read are in
// the error, which is Unread then, and the others are returned beside it.
func (s *Runs) List() ([]Report, error) {
	keys, err := s.Keys()
	if err != nil {
		return nil, err
	}
	for key := range s.unread() {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	var reports []Report
	var errs []error
	for _, key := range keys {
		r, err := s.Current(key)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the run of %s: %w", key, err))
		case r != nil:
			reports = append(reports, *r)
		}
	}
	if len(errs) > 0 {
		return reports, Unread{errors.Join(errs...)}
	}
	return reports, nil
}

// Files are what a run may leave for Open.
func Files() []string {
	return []string{FileLog, FileEvents, FilePlan, FilePlanDoc, FilePlanRaw, FilePlanTxt, FileState, FileOutputs, FileInventory, FileRescue, FileLockHCL, FilePrepared, FileUses}
}

// Open opens a file that a run left; Missing if it left none.
func (s *Runs) Open(key, id, file string) (io.ReadCloser, error) {
	if err := errors.Join(checkName("ID", id), checkKey(key)); err != nil {
		return nil, err
	}
	if !slices.Contains(Files(), file) {
		return nil, fault.New(fault.Invalid, NameInvalid, fmt.Errorf("a run has no file %.80q", file))
	}
	f, err := os.Open(filepath.Join(s.run(key, id), file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Missing, FileMissing, fmt.Errorf("run %s has left no %s", id, file))
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Cancel asks a run to stop and does not wait until it has. A run that has
// ended is left alone.
func (s *Runs) Cancel(ctx context.Context, key, id string) error {
	if err := errors.Join(checkName("ID", id), checkKey(key)); err != nil {
		return err
	}
	defer s.Lock(key)()
	r, err := s.acts.Find(key, id)
	if err != nil || r == nil || r.Phase == Done {
		return err
	}
	return s.acts.Cancel(ctx, r)
}

// Forget removes what an ended run left. A running run is a Conflict.
func (s *Runs) Forget(key, id string) error {
	if err := errors.Join(checkName("ID", id), checkKey(key)); err != nil {
		return err
	}
	defer s.Lock(key)()
	r, err := s.acts.Find(key, id)
	if err != nil || r == nil {
		return err
	}
	if r.Phase != Done {
		return fault.New(fault.Conflict, StackBusy, fmt.Errorf("run %s is running", id))
	}
	if err := s.forget(key, id); err != nil {
		return err
	}
	defer failpoint.Act("run.remove", "")()
	if err := RemoveRun(s.run(key, id)); err != nil {
		return err
	}
	// The parent stays if it holds another run, which is the only way this
	// fails.
	_ = os.Remove(s.runsOf(key))
	return nil
}

func (s *Runs) forget(key, id string) error {
	if s.acts.Forget == nil {
		return nil
	}
	return s.acts.Forget(key, id)
}

// Remove removes everything about a key, and of a stack also every run beside
// it.
func (s *Runs) Remove(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	keys, err := s.below(key)
	if err != nil {
		return err
	}
	for _, k := range keys {
		defer s.Lock(k)()
	}
	for _, k := range keys {
		r, err := s.current(k)
		if err != nil {
			return err
		}
		if r != nil && r.Phase != Done {
			return fault.New(fault.Conflict, StackBusy, fmt.Errorf("run %s is running", r.ID))
		}
	}
	for _, k := range keys {
		ids, err := s.IDs(k)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := s.forget(k, id); err != nil {
				return err
			}
		}
	}
	defer failpoint.Act("run.remove", "stack")()
	var errs []error
	for _, k := range keys {
		ids, err := s.IDs(k)
		errs = append(errs, err)
		for _, id := range ids {
			errs = append(errs, RemoveRun(s.run(k, id)))
		}
		errs = append(errs, os.RemoveAll(s.runsOf(k)), sandbox.RemoveAll(s.stack(k)))
	}
	return errors.Join(errs...)
}

// below lists a key and, of a stack, the keys of what is beside it, in order.
func (s *Runs) below(key string) ([]string, error) {
	keys := []string{key}
	for _, dir := range []string{s.runs(), s.stacks()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), key+besideMark) {
				keys = append(keys, e.Name())
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// Lock keeps two calls about one key apart. The supervisor's lock on disk keeps
// two writers apart.
func (s *Runs) Lock(key string) (unlock func()) {
	s.mu.Lock()
	m := s.busy[key]
	if m == nil {
		m = &sync.Mutex{}
		s.busy[key] = m
	}
	s.mu.Unlock()
	m.Lock()
	return m.Unlock
}

// NewReport is the first report of the run of a job.
func NewReport(job Job, now time.Time) Report {
	return Report{Version: ReportVersion, ID: job.ID, Stack: job.Stack, ObjectKind: job.ObjectKind, Beside: job.Beside, Name: job.Name, Kind: job.Kind,
		Note: job.Note, Phase: Starting, Since: now, Started: now}
}

// ReadReport reads the report in the directory of a run. Its ID is empty if there is
// none.
func ReadReport(dir string) (Report, error) {
	var r Report
	err := disk.ReadJSON(filepath.Join(dir, fileReport), &r)
	return r, err
}

// RemoveRun removes the directory of a run, the report first. So a directory with a report
// is whole, whenever a crash cuts the removal short.
func RemoveRun(dir string) error {
	if err := os.Remove(filepath.Join(dir, fileReport)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// WriteReport replaces the report in the directory of a run.
func WriteReport(dir string, report json.RawMessage) error {
	return disk.Write(filepath.Join(dir, fileReport), report)
}

// Complete writes the report of a run that died without one of its end: end says how
// it ended, and the newest states are those that it left.
func Complete(dir string, r Report, now time.Time, end func(*Report)) (*Report, error) {
	state, err := readIfThere(filepath.Join(dir, FileState))
	if err != nil {
		return nil, err
	}
	rescued, err := readIfThere(filepath.Join(dir, FileRescue))
	if err != nil {
		return nil, err
	}
	if file, err := managed.Parse(state); err == nil {
		r.State, r.Resources = file.ID(state), file.Managed()
	}
	if file, err := managed.Parse(rescued); err == nil {
		r.Rescued = new(file.ID(rescued))
	}
	end(&r)
	r.Phase, r.Since, r.Finished = Done, now, now
	return &r, updateReport(dir, r)
}

// readIfThere reads a file of ours; nothing if it is not there.
func readIfThere(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// IsReport reports whether the report in the directory of a run is this one.
func IsReport(dir string, report json.RawMessage) bool {
	data, err := os.ReadFile(filepath.Join(dir, fileReport))
	return err == nil && bytes.Equal(data, report)
}
