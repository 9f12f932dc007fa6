package remote

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/stack"
)

// unread are the keys of which this process does not know whether they have a run, and why: a
// directory or a place could not be taken over. Until one of them can be, no run begins under the
// key, its places are neither adopted nor removed, and their agents are told to ask again. The
// zero unread has none.
type unread struct {
	changes atomic.Uint64
	mu      sync.Mutex
	why     map[string]error // by key
}

func (u *unread) set(key string, why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.why == nil {
		u.why = map[string]error{}
	}
	if u.why[key] = why; why == nil {
		delete(u.why, key)
	}
	u.changes.Add(1)
}

// of is why the runs of a key are not known; nil if they are.
func (u *unread) of(key string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.why[key]
}

func (u *unread) all() map[string]error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.why)
}

// finder is the part of a Runner that finds the runs of an earlier process, or of another one.
type finder struct{ *Runner }

// findEarlier finds the runs of an earlier process. Of those that are shared, it finds
// none before it takes them. Of those that were shared, it finds only the places. A run that
// cannot be taken over is the trouble of its stack, and keeps no other one from its work.
func (r finder) findEarlier(ctx context.Context) error {
	if r.hasDirectories() {
		if err := r.resume(ctx); err != nil {
			return err
		}
		return r.adoptAll(ctx, func(string) bool { return true })
	}
	err := r.leaveEarlier(filepath.Join(r.config.Dir, former))
	if !runner.Listed(err) {
		return err
	}
	if err != nil { // nothing in them is used, and the next start tries again
		r.config.Log.Error("directories of an earlier process stay where they are", "err", err)
	}
	if r.config.Shared {
		return nil
	}
	if err := r.removals.drop(); err != nil {
		return err
	}
	return r.adoptAll(ctx, func(string) bool { return true })
}

// hasDirectories reports whether the directories of runs are those of this process alone.
func (r finder) hasDirectories() bool { return !r.config.Shared && !r.config.Stale }

// resume finds the runs in the directory.
func (r finder) resume(ctx context.Context) error {
	keys, err := r.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := r.resumeKey(ctx, key); err != nil {
			r.cannot(key, err)
		}
	}
	return ctx.Err()
}

// cannot notes that the runs of a key could not be taken over.
func (r finder) cannot(key string, why error) {
	r.unread.set(key, why)
	r.config.Log.Error("run cannot be taken over yet", "key", key, "err", why)
}

// resumeKey finds the runs of a key that are not known yet.
func (r finder) resumeKey(ctx context.Context, key string) error {
	ids, err := r.IDs(key)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if r.of(key, id) != nil {
			continue
		}
		if err := r.resumeRun(ctx, key, id); err != nil {
			return fmt.Errorf("run %s of %s: %w", id, key, err)
		}
	}
	return nil
}

func (r finder) resumeRun(ctx context.Context, key, id string) (err error) {
	dir := r.Dir(key, id)
	var rec record
	if err := disk.ReadJSON(filepath.Join(dir, fileRecord), &rec); err != nil {
		return err
	}
	rep, err := runner.ReadReport(dir)
	if err != nil {
		return err
	}
	if rec.Place.Name == "" && rep.ID != "" {
		return fmt.Errorf("%s has the report of a run and no %s, so this controller cannot tell where the run goes on: restore that file, or move the directory elsewhere once nothing carries the run out", dir, fileRecord)
	}
	if rec.Place.UID == "" || rep.ID == "" {
		// Start did not come to its end, so there is no run. Its place may be there. One that was
		// about to be adopted has a run, and is adopted again.
		if rec.Place.Name != "" && !rec.Adopted {
			if err := r.removals.add(rec.Place, idleGrace, key, ""); err != nil {
				return err
			}
		}
		return runner.RemoveRun(dir)
	}
	run := newPlacedRun(key, id, rec.Place, nil)
	r.add(run)
	defer func() {
		if err != nil {
			r.drop(run) // all of this is done again
		}
	}()
	if rep.Phase != runner.Done && rep.Untouched {
		life, err := r.config.Launcher.Look(ctx, rec.Place)
		run.doubted = err != nil || life.State == Ended || life.State == Gone
	}
	if rep.Phase != runner.Done && !rec.Ordered {
		// The order was in the memory of the earlier process. The record may be older than
		// the run, as one from a backup is. An agent that may be alive answers for itself:
		// if it has no order, it ends with wire.ExitNoOrder.
		if life, err := r.config.Launcher.Look(ctx, rec.Place); err != nil || life.State == Running {
			rec.Ordered = true
			return r.write(run, rec)
		}
		return r.withdraw(run, rep, stack.Interrupted, NeverStarted, "the controller was restarted before the run began; nothing ran")
	}
	return nil
}

// adoptAll takes over the places of keys that the directory does not know.
func (r finder) adoptAll(ctx context.Context, in func(key string) bool) error {
	places, err := r.config.Launcher.Places(ctx)
	if err != nil {
		return fmt.Errorf("listing the places: %w", err)
	}
	r.removals.recover(places, r.signer, r.config.Log)
	for _, p := range places {
		key := r.keyOf(p)
		if !in(key) || r.unread.of(key) != nil {
			continue
		}
		if err := r.adopt(ctx, p); err != nil {
			r.cannot(key, fmt.Errorf("adopting place %s: %w", p.Name, err))
		}
	}
	return ctx.Err()
}

// keyOf is the key of the run of a place, as its seal has it, or else as the place says.
func (r finder) keyOf(p Place) string {
	if what, err := r.signer.open(p); err == nil {
		return what.First.Key()
	}
	return p.Key
}

// adopt takes over a place that the directory does not know. Its agent proves with its
// first delivery that it had the order. A place that this installation did not seal
// keeps its stack from beginning a run for as long as it is there, for it may have been
// sealed with a key that is lost.
func (r finder) adopt(ctx context.Context, p Place) error {
	if r.at(p) != nil || r.removals.has(p) {
		return nil
	}
	what, err := r.signer.open(p)
	if err != nil {
		r.config.Log.Warn("place of another installation key is removed", "place", p.Namespace+"/"+p.Name, "err", err)
		if err := r.removals.add(p, runner.DefaultGrace, "", p.Key); err != nil {
			r.config.Log.Warn("place of another installation key is removed, but that is not written down", "place", p.Namespace+"/"+p.Name, "err", err)
		}
		return nil
	}
	life, err := r.config.Launcher.Look(ctx, p)
	if err != nil {
		return err
	}
	key, id := what.First.Key(), what.First.ID
	if life.State == Gone {
		return nil
	}
	if life.State == Ended && life.Exit == wire.ExitForgotten || r.of(key, id) != nil {
		return r.removals.add(p, idleGrace, key, "")
	}
	run := newPlacedRun(key, id, Place{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, nil)
	rec := record{Place: run.place, Made: r.config.Now(), Ordered: true, Adopted: true, sealed: what}
	if err := r.prepare(run, rec, ""); err != nil {
		return err
	}
	r.add(run)
	r.config.Log.Info("run adopted", "stack", what.First.Name, "run", id, "place", p.Namespace+"/"+p.Name)
	return nil
}

// again tries to take over the runs that could not be.
func (r finder) again() {
	ctx, cancel := context.WithTimeout(r.ctx, lookLimit)
	defer cancel()
	if l, ok := r.listUnread(ctx); ok {
		r.readAll(ctx, l)
	}
}

// listed is what there is to be taken over, and where. Once shards were given or taken it is old:
// a key may have come back with another place.
type listed struct {
	keys    map[string]error
	places  []Place
	changes uint64 // of the shards of this Runner by then
}

func (r finder) listUnread(ctx context.Context) (l listed, ok bool) {
	l.changes, l.keys = r.changes.Load(), r.unread.all()
	if len(l.keys) == 0 && len(r.removals.unreadable()) == 0 {
		return l, false
	}
	var err error
	if l.places, err = r.config.Launcher.Places(ctx); err != nil {
		r.config.Log.Warn("places not listed", "err", err)
		return l, false
	}
	r.removals.recover(l.places, r.signer, r.config.Log)
	return l, true
}

func (r finder) readAll(ctx context.Context, l listed) {
	for key, before := range l.keys {
		if r.ctx.Err() != nil {
			return
		}
		if err := r.readAgain(ctx, key, l); err != nil && err.Error() != before.Error() {
			r.config.Log.Error("run cannot be taken over yet", "key", key, "err", err)
		}
	}
}

// readAgain takes over the runs of one key, unless it was given away. All of them are known
// before any call or any agent learns that they are.
func (r finder) readAgain(ctx context.Context, key string, l listed) (err error) {
	defer r.Lock(key)()
	if r.unread.of(key) == nil || r.changes.Load() != l.changes {
		return nil // a later list is of it, if it is not read by then
	}
	defer func() { r.unread.set(key, err) }()
	if r.hasDirectories() {
		if err := r.resumeKey(ctx, key); err != nil {
			return err
		}
	}
	for _, p := range l.places {
		if r.keyOf(p) != key {
			continue
		}
		if err := r.adopt(ctx, p); err != nil {
			return fmt.Errorf("adopting place %s: %w", p.Name, err)
		}
	}
	return nil
}
