package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/stack"
)

// find reads one run. A directory without a report is left by a failed start,
// and is removed.
func (p *Processes) find(key, id string) (*Report, error) {
	dir := p.run(key, id)
	// First the proof of life, then the report: the other way round a run could
	// end in between and look dead.
	alive, err := disk.IsLocked(filepath.Join(dir, fileLock))
	if err != nil {
		return nil, err
	}
	r, err := ReadReport(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case r.ID == "" && !alive:
		return nil, os.RemoveAll(dir)
	case r.ID == "":
		stack, beside := SplitKey(key)
		return &Report{ID: id, Stack: stack, Beside: beside, Phase: Starting}, nil
	case r.Phase != Done && !alive:
		return p.completeKilled(r)
	}
	return &r, nil
}

// completeKilled completes the report of a run whose supervisor died, after
// saving the states that the engine may have left in the work directory.
func (p *Processes) completeKilled(r Report) (*Report, error) {
	if err := os.MkdirAll(p.stack(r.Key()), 0o700); err != nil {
		return nil, err
	}
	lock, err := disk.TryLock(filepath.Join(p.stack(r.Key()), fileLock))
	if err != nil {
		return nil, err
	}
	if lock == nil {
		// The supervisor that holds the stack now recovers its state first.
		return &r, nil
	}
	defer lock.Close()
	w := &workDir{dir: p.stack(r.Key())}
	if err := errors.Join(recoverState(w, p.runsOf(r.Key())), w.wipe()); err != nil {
		return nil, err
	}
	dir := p.run(r.Key(), r.ID)
	if err := errors.Join(disk.ReleaseReserve(dir), recoverEvents(dir)); err != nil {
		return nil, err
	}
	return Complete(dir, r, p.config.Now(), func(r *Report) {
		r.Outcome, r.Message = stack.Killed, fmt.Sprintf("the supervisor died while the run was %s", r.Phase)
	})
}
