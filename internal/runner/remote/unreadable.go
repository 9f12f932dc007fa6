package remote

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// This file is about removals whose files cannot be read. The name of a file is a hash of the place,
// so a place that is there tells whether a file is about it. It is then removed like any other,
// with the longest grace, and its stack begins no run before it is gone. A file about no place that
// is there is set aside for a person.

// aside is what the name of a file ends with that was set aside.
const aside = ".unreadable"

// readFile reads one removal.
func (r *removals) readFile(name string) (one removal, err error) {
	path := filepath.Join(r.dir, name)
	if err := disk.ReadJSON(path, &one); err != nil {
		return one, fmt.Errorf("the file of a place that has to be removed cannot be read: %w", err)
	}
	if one.Place.Name == "" {
		return one, fmt.Errorf("the file of a place that has to be removed cannot be read: %s names no place", path)
	}
	return one, nil
}

// unreadOf finds the file that could not be read and is about a place, of which perhaps only the
// name is known, and the place as the file has it. The lock is held.
func (r *removals) unreadOf(p Place) (like Place, file string, found bool) {
	if len(r.unread) == 0 {
		return like, "", false
	}
	for _, like := range []Place{{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, {Namespace: p.Namespace, Name: p.Name}, {Name: p.Name}} {
		name := r.file(like)
		if _, there := r.unread[name]; there {
			return like, name, true
		}
	}
	return like, "", false
}

func (r *removals) unreadable() map[string]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.unread)
}

// recover finds out what the files that could not be read are about. places are all that are there.
// What is about none of them is set aside once no place can come any more that was asked for before.
func (r *removals) recover(places []Place, sealed signer, log *slog.Logger) {
	for name := range r.unreadable() {
		if one, err := r.readFile(name); err == nil {
			r.found(name, one)
		}
	}
	for _, p := range places {
		r.mu.Lock()
		like, name, found := r.unreadOf(p)
		why := r.unread[name]
		r.mu.Unlock()
		if !found {
			continue
		}
		one := removal{Place: like, Grace: runner.DefaultGrace + lastWords, Since: r.now(), Blocks: p.Key, unread: why}
		if what, err := sealed.open(p); err == nil {
			one.Key, one.Blocks = what.First.Key(), what.First.Key()
		}
		r.found(name, one)
		log.Error("a place is removed whose file cannot be read; its stack begins no run before it is gone", "place", p.Namespace+"/"+p.Name, "stack", one.Blocks, "err", why)
	}
	if r.now().Sub(r.opened) <= searchLimit {
		return
	}
	for name, why := range r.unreadable() {
		if err := r.setAside(name); err != nil {
			log.Warn("a file about no place that is there is not set aside yet", "file", filepath.Join(r.dir, name), "err", err)
			continue
		}
		log.Error("a file about no place that is there is set aside: delete it", "file", filepath.Join(r.dir, name+aside), "err", why)
	}
}

// found is what a file says that could not be read.
func (r *removals) found(name string, one removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.unread[name]; !there {
		return // it was found at the same time, and may be gone by now
	}
	delete(r.unread, name)
	r.all[name] = one
	r.poke()
}

func (r *removals) setAside(name string) error {
	path := filepath.Join(r.dir, name)
	if err := os.Rename(path, path+aside); err != nil && !os.IsNotExist(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unread, name)
	return nil
}
