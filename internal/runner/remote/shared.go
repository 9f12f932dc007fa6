package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/shard"
)

// This file is about a Runner beside others: several controllers share the stacks, and
// each has the runs of its shards. The places outlive what a Runner knows of them, so a
// run is moved without being touched: one Runner forgets it, and another one adopts its
// place. Only then does an agent that asks get an answer.

// ownKeys are the keys of a Runner that shares them with others.
type ownKeys struct {
	shared  bool          // otherwise all keys are its own
	unread  unread        // of its own
	changes atomic.Uint64 // of mine
	mu      sync.Mutex
	mine    [shard.Count]bool
}

// version has another value after any change of what is owned, or cannot be read yet.
func (k *ownKeys) version() uint64 { return k.changes.Load() + k.unread.changes.Load() }

// owns reports whether the runs of a key are this Runner's. An agent that names no key may be of
// any.
func (k *ownKeys) owns(key string) bool {
	switch {
	case !k.shared:
		return true
	case key == "":
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mine[shardOf(key)]
}

func (k *ownKeys) set(shards []int, mine bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range shards {
		k.mine[i] = mine
	}
	k.changes.Add(1)
}

func shardOf(key string) int {
	stack, _ := runner.SplitKey(key)
	return shard.Of(stack)
}

func keysIn(shards []int) func(key string) bool {
	in := shard.In(shards)
	return func(key string) bool {
		stack, _ := runner.SplitKey(key)
		return in(stack)
	}
}

// Take adopts the places of shards. From then on their runs are this Runner's. A place that
// cannot be adopted is the trouble of its stack alone, whose Current says why.
func (r *Runner) Take(ctx context.Context, shards []int) error {
	in := keysIn(shards)
	if err := (finder{r}).adoptAll(ctx, in); err != nil {
		return err
	}
	for _, run := range r.all() {
		if in(run.key) {
			r.work.Go(func() { r.look(run) })
		}
	}
	r.set(shards, true)
	return nil
}

// removalsLimit bounds how long a Give waits until places that have to be removed are
// gone. The next owner would adopt them as runs that go on, which costs no more than
// that their end is looked at once more.
const removalsLimit = 15 * time.Second

// lookAgain is how long a Give waits between two looks at the places to remove.
const lookAgain = 200 * time.Millisecond

// Give forgets the runs of shards, which go on. It returns once agents are told nothing
// more about them, and once the places of runs that were forgotten are gone.
func (r *Runner) Give(ctx context.Context, shards []int) error {
	r.set(shards, false)
	in := keysIn(shards)
	r.sharing.endAll(func(o *openPlace) bool { return in(o.before.key) })
	late := time.After(removalsLimit)
	for {
		r.removePlaces()
		if len(r.removals.list()) == 0 {
			break
		}
		select {
		case <-time.After(lookAgain):
			continue
		case <-late:
			r.config.Log.Warn("places of forgotten runs are not gone yet, and are another controller's now")
		case <-ctx.Done():
			return ctx.Err()
		}
		break
	}
	for key := range r.unread.all() {
		if in(key) {
			r.giveUnread(key)
		}
	}
	var errs []error
	for _, run := range r.all() {
		if in(run.key) {
			errs = append(errs, r.leave(run))
		}
	}
	return errors.Join(append(errs, r.prepared.dropAll(in))...)
}

// leave forgets a run that is another Runner's now.
func (k *knownRuns) leave(run *placedRun) error {
	defer k.Lock(run.key)()
	run.left.Store(true)
	k.drop(run)
	run.wake()
	return runner.RemoveRun(k.dir(run))
}

// giveUnread forgets a key whose runs could not be taken over. One that takes them over at this
// moment holds the lock of the key.
func (r *Runner) giveUnread(key string) {
	defer r.Lock(key)()
	r.unread.set(key, nil)
}

// former is where the directories of the runs of an earlier process are, of those that
// left a state.
const former = "former"

// leaveEarlier removes the runs in the directory: they may be another Runner's by now,
// to which their agents deliver all again. What one of them left of a state is moved to
// a directory aside, for a person. The error is runner.Unread if it is about some of them.
func (k *knownRuns) leaveEarlier(aside string) error {
	keys, err := k.Keys()
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range keys {
		ids, err := k.IDs(key)
		if err != nil {
			errs = append(errs, fmt.Errorf("the runs of %s: %w", key, err))
		}
		for _, id := range ids {
			if err := setAside(k.Dir(key, id), filepath.Join(aside, key)); err != nil {
				errs = append(errs, fmt.Errorf("run %s of %s: %w", id, key, err))
			}
		}
	}
	if len(errs) > 0 {
		return runner.Unread{Err: errors.Join(errs...)}
	}
	return nil
}

func setAside(dir, to string) error {
	_, err := os.Stat(filepath.Join(dir, runner.FileState))
	if errors.Is(err, fs.ErrNotExist) {
		return runner.RemoveRun(dir)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	to = filepath.Join(to, filepath.Base(dir))
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(dir, to)
}

// notYet answers an agent of a key whose runs could not be taken over yet; nil if they could.
func (k *ownKeys) notYet(key string) error {
	if k.unread.of(key) != nil || key == "" && len(k.unread.all()) > 0 {
		return refused(http.StatusServiceUnavailable, "the controller cannot read the run yet")
	}
	return nil
}

// unknownNow answers an agent whose run was known when its request came. A run that was
// given up goes on, even if its key has come back meanwhile. One of a key that is not this
// Runner's, or whose runs could not be taken over yet, asks again: the answer that its run is
// not known would end it.
func (k *ownKeys) unknownNow(run *placedRun) error {
	if err := k.notYet(run.key); err != nil {
		return err
	}
	if run.left.Load() || !k.owns(run.key) {
		return errElsewhere()
	}
	return errUnknown()
}

// errElsewhere has an agent ask again.
func errElsewhere() error {
	return refused(http.StatusServiceUnavailable, "another controller has the run, or takes it over")
}
