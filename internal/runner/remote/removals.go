package remote

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/stack"
)

// removal is a place that has to be removed. It is written down before anything else about the
// run is removed, so that no place is adopted after its run was forgotten, and none
// stays.
type removal struct {
	Place  Place         `json:"place"` // without a UID if only the name is known
	Grace  time.Duration `json:"grace"`
	Since  time.Time     `json:"since"`
	Blocks string        `json:"blocks,omitempty"` // a key under which no run may begin as long as the place is there
	Key    string        `json:"key,omitempty"`    // of the run that the place was for; empty if that is not certain
	Tenant string        `json:"tenant,omitempty"` // of that run, as far as it is known

	unread error // why its file could not be read, so that this is what the place says of itself

	asked time.Time // when its end was asked for last
	open  bool      // it may have another run, and is not removed yet
	ended bool      // nothing runs there any more
}

// removals are the places that have to be removed.
type removals struct {
	dir string
	now func() time.Time

	vacated func(runner.Remain) // called once nothing runs in a place any more; under no lock

	mu     sync.Mutex
	all    map[string]removal // by file
	unread map[string]error   // why a file could not be read, by its name; its place is not found yet
	opened time.Time
	wake   chan struct{}
}

const (
	// searchLimit is how long a place of which only the name is known is searched for: a
	// request to make it may still be on its way. One that comes later is a Conflict for
	// the next Launch, or is found by the sweep.
	searchLimit = 5 * time.Second
	// idleGrace is the grace of a place in which no run goes on.
	idleGrace = 5 * time.Second
)

func openRemovals(dir string, now func() time.Time) (*removals, error) {
	r := &removals{dir: filepath.Join(dir, runner.DirRemovals), now: now, all: map[string]removal{}, unread: map[string]error{}, opened: now(), wake: make(chan struct{}, 1)}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue // half written
		}
		one, err := r.readFile(e.Name())
		if err != nil { // it concerns one place, and keeps no other one from its work
			r.unread[e.Name()] = err
			continue
		}
		r.all[e.Name()] = one
	}
	return r, nil
}

// file is where the removal of a place is. Names and UIDs are chosen by a cluster, are no
// paths, and may be as long as the name of a file.
func (r *removals) file(p Place) string {
	return fmt.Sprintf("%x.json", sha256.Sum256([]byte(p.Namespace+"/"+p.Name+"/"+p.UID)))
}

// add writes down that a place has to be removed, which was for the run of key. It can be
// repeated. A place that blocks is removed, and blocks, also after an error: the next
// process finds it again.
func (r *removals) add(p Place, grace time.Duration, key, blocks string) error {
	return r.put(removal{Place: Place{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Grace: grace, Since: r.now(), Blocks: blocks, Key: key})
}

// postpone is add for a place that may have another run, until due is called. The next
// process removes it.
func (r *removals) postpone(p Place, key, tenant string) error {
	return r.put(removal{Place: Place{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Grace: idleGrace, Since: r.now(), Key: key, Tenant: tenant, open: true})
}

// due has a place removed that was postponed.
func (r *removals) due(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, there := r.all[name]; there {
		one.open = false
		r.all[name] = one
	}
	r.poke()
}

func (r *removals) put(one removal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, blocks := one.Place, one.Blocks
	name := r.file(p)
	if _, there := r.all[name]; there {
		return nil
	}
	err := disk.WriteJSON(filepath.Join(r.dir, name), one)
	if err != nil {
		err = fmt.Errorf("writing down that place %s has to be removed: %w", p.Name, err)
	}
	if err != nil && blocks == "" {
		return err
	}
	r.all[name] = one
	r.poke()
	return err
}

func (r *removals) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// lastWords is what the agent of a place may take to deliver what its run left, beyond
// the grace of the engine.
const lastWords = time.Minute

// tell ends the place of a run that may have begun: its agent interrupts it once.
func (r *removals) tell(p Place, key string, kind stack.RunKind) error {
	grace := runner.ReadGrace
	if kind.Writes() {
		grace = runner.DefaultGrace
	}
	return r.add(p, grace+lastWords, key, "")
}

// mayExist has a place removed that a Launch may have made although it failed.
func (r *removals) mayExist(p Place, key string, err error) error {
	switch fault.Of(err) {
	case fault.Later, fault.Invalid, fault.Denied:
		return nil
	default:
		return r.add(p, idleGrace, key, "")
	}
}

// has reports whether a place has to be removed.
func (r *removals) has(p Place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if one.Place.covers(p) {
			return true
		}
	}
	_, _, found := r.unreadOf(p)
	return found
}

// covers reports whether p may be the place o, of which perhaps only the name is known, or
// the name and the namespace.
func (o Place) covers(p Place) bool {
	return o.same(p) || o.UID == "" && o.Name == p.Name && (o.Namespace == "" || o.Namespace == p.Namespace)
}

// blocks says why no run may begin in a namespace under a key, or in a place of this name; it is
// nil if one may. A place of another namespace blocks nothing: those who may make pods there
// chose its key and its name.
func (r *removals) blocks(namespace, key, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if (one.Place.Namespace == "" || one.Place.Namespace == namespace) && (one.Blocks == key || one.Place.Name == name) {
			return errors.Join(errors.New("the place of an earlier run of the stack is still being removed"), one.unread)
		}
	}
	if _, file, found := r.unreadOf(Place{Namespace: namespace, Name: name}); found {
		return errors.Join(errors.New("the place of an earlier run of the stack may still have to be removed"), r.unread[file])
	}
	return nil
}

func (r *removals) list() map[string]removal {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]removal, len(r.all))
	for name, one := range r.all {
		all[name] = one
	}
	return all
}

func (r *removals) remove(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.Remove(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(r.all, name)
	return nil
}

// drop forgets all removals. A file that cannot be read is set aside.
func (r *removals) drop() error {
	for name := range r.unreadable() {
		if err := r.setAside(name); err != nil {
			return err
		}
	}
	for name := range r.list() {
		if err := r.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// removeAll asks for the end of the places for which that was not done lately, and
// forgets those that are gone.
func (r *removals) removeAll(ctx context.Context, in Launcher) error {
	var errs []error
	for name, one := range r.list() {
		if one.open {
			continue
		}
		if since := r.now().Sub(one.asked); since >= 0 && since < removeEvery {
			continue
		}
		state, err := r.end(ctx, in, name, one)
		if err := r.see(name, state, err); err != nil {
			errs = append(errs, fmt.Errorf("removing place %s: %w", one.Place.Name, err))
		}
	}
	return errors.Join(errs...)
}

// changed looks at a place that changed, if it has to be removed.
func (r *removals) changed(ctx context.Context, in Launcher, p Place) error {
	r.mu.Lock()
	name := r.file(p)
	one, there := r.all[name]
	r.mu.Unlock()
	if !there || one.asked.IsZero() {
		return nil
	}
	life, err := in.Look(ctx, p)
	return r.see(name, life.State, err)
}

// see takes note of what became of a place.
func (r *removals) see(name string, state State, err error) error {
	if err != nil || state != Ended && state != Gone {
		return err
	}
	r.mu.Lock()
	one, there := r.all[name]
	first := there && !one.ended
	if there {
		one.ended = true
		r.all[name] = one
	}
	r.mu.Unlock()
	if first && one.Key != "" {
		r.vacated(one.remain(name))
	}
	if state == Ended {
		return nil
	}
	return r.remove(name)
}

func (one removal) remain(name string) runner.Remain {
	stack, _ := runner.SplitKey(one.Key)
	return runner.Remain{Stack: stack, Place: name, Namespace: one.Place.Namespace, Tenant: one.Tenant}
}

// end asks for the end of one place, and returns what became of it.
func (r *removals) end(ctx context.Context, in Launcher, file string, one removal) (State, error) {
	p := one.Place
	if p.UID == "" {
		var err error
		if p, err = find(ctx, in, p); err != nil {
			return "", err
		}
		if p.UID == "" {
			if r.now().Sub(one.Since) > searchLimit {
				return Gone, nil
			}
			return Pending, nil
		}
		one.Place = Place{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	}
	one.asked = r.now()
	r.mu.Lock()
	r.all[file] = one
	r.mu.Unlock()
	done := failpoint.Act("place.end", "")
	err := in.End(ctx, p, one.Grace)
	done()
	if err != nil {
		return "", err
	}
	life, err := in.Look(ctx, p)
	return life.State, err
}

// find finds a place of which the UID is not known; it has none if there is no such place.
func find(ctx context.Context, in Launcher, like Place) (Place, error) {
	places, err := in.Places(ctx)
	for _, p := range places {
		if like.covers(p) {
			return p, err
		}
	}
	return Place{}, err
}
