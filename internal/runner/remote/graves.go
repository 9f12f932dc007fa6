package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// grave is a place that is to go. It is written down before anything else about the
// run is removed, so that no place is adopted after its run was forgotten, and none
// stays.
type grave struct {
	Place Place         `json:"place"` // without a UID if only the name is known
	Grace time.Duration `json:"grace"`
	Since time.Time     `json:"since"`
	Fence string        `json:"fence,omitempty"` // a key under which no run may begin as long as the place is there
}

// graves are the places that are to go.
type graves struct {
	dir string
	now func() time.Time

	mu   sync.Mutex
	all  map[string]grave // by file
	wake chan struct{}
}

const (
	dirGraves = "ended" // in DIR

	// patience is how long a place of which only the name is known is searched for: a
	// request to make it may still be on its way.
	patience = time.Minute
	// quick is the grace of a place in which no run goes on.
	quick = 5 * time.Second
)

func openGraves(dir string, now func() time.Time) (*graves, error) {
	g := &graves{dir: filepath.Join(dir, dirGraves), now: now, all: map[string]grave{}, wake: make(chan struct{}, 1)}
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue // half written
		}
		var one grave
		if err := disk.ReadJSON(filepath.Join(g.dir, e.Name()), &one); err != nil {
			return nil, err
		}
		g.all[e.Name()] = one
	}
	return g, nil
}

// file is where the grave of a place is. UIDs are chosen by a cluster, and no path.
func (g *graves) file(p Place) string {
	return fmt.Sprintf("%s-%x.json", p.Name, p.Namespace+"/"+p.UID)
}

// add writes down that a place is to go. It can be repeated.
func (g *graves) add(p Place, grace time.Duration, fence string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := g.file(p)
	if _, there := g.all[name]; there {
		return nil
	}
	one := grave{Place: Place{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Grace: grace, Since: g.now(), Fence: fence}
	if err := disk.WriteJSON(filepath.Join(g.dir, name), one); err != nil {
		return fmt.Errorf("writing down that place %s is to go: %w", p.Name, err)
	}
	g.all[name] = one
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return nil
}

// has reports whether a place is to go.
func (g *graves) has(p Place) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		if one.Place.Name == p.Name && (one.Place.UID == "" || one.Place.same(p)) {
			return true
		}
	}
	return false
}

// fenced reports whether no run may begin under a key, or in a place of this name.
func (g *graves) fenced(key, name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		if one.Fence == key || one.Place.Name == name {
			return true
		}
	}
	return false
}

func (g *graves) list() map[string]grave {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]grave, len(g.all))
	for name, one := range g.all {
		all[name] = one
	}
	return all
}

func (g *graves) remove(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := os.Remove(filepath.Join(g.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(g.all, name)
	return nil
}

// tend ends the places that are to go, and forgets those that are gone.
func (g *graves) tend(ctx context.Context, in Launcher) error {
	var errs []error
	for name, one := range g.list() {
		gone, err := g.end(ctx, in, name, one)
		if err == nil && gone {
			err = g.remove(name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ending place %s: %w", one.Place.Name, err))
		}
	}
	return errors.Join(errs...)
}

// end ends one place, and reports whether it is gone.
func (g *graves) end(ctx context.Context, in Launcher, file string, one grave) (gone bool, err error) {
	p := one.Place
	if p.UID == "" {
		if p, err = named(ctx, in, p.Name); err != nil {
			return false, err
		}
		if p.UID == "" {
			return g.now().Sub(one.Since) > patience, nil
		}
		one.Place = Place{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
		g.mu.Lock()
		g.all[file] = one
		g.mu.Unlock()
	}
	done := failpoint.Act("place.end", "")
	err = in.End(ctx, p, one.Grace)
	done()
	if err != nil {
		return false, err
	}
	life, err := in.Look(ctx, p)
	return err == nil && life.State == Gone, err
}

// named finds a place by its name; it has no UID if there is none.
func named(ctx context.Context, in Launcher, name string) (Place, error) {
	places, err := in.Places(ctx)
	for _, p := range places {
		if p.Name == name {
			return p, err
		}
	}
	return Place{}, err
}
