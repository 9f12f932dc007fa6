package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// formatVersion names the layout of the world file; readers refuse another.
const formatVersion = 1

// world is the content of the file.
type world struct {
	Version int              `json:"version"`
	Next    int              `json:"next"`             // the number of the next id; never reused
	Things  map[string]thing `json:"things"`           // by id: names need not be unique
	Faults  []fault          `json:"faults,omitempty"` // set by tests, besides those of the provider block
	Fired   map[string]int   `json:"fired,omitempty"`  // how often each fault has struck
}

// thing is one resource. Absent and empty differ, so that what a person leaves
// out comes back as null.
type thing struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Value  *string           `json:"value,omitempty"`
	Size   int64             `json:"size"`
	Secret *string           `json:"secret,omitempty"`
	Tags   map[string]string `json:"tags,omitempty"`
}

// entry is one line of the journal. A call leaves one when it begins, before
// any fault strikes, and one when it ends; a call with no end died on the way.
type entry struct {
	Time   time.Time `json:"time"`
	Call   string    `json:"call"`
	Phase  string    `json:"phase"` // begin, done or failed
	Name   string    `json:"name"`
	ID     string    `json:"id,omitempty"` // unknown when a create begins
	PID    int       `json:"pid"`          // this provider process
	Engine int       `json:"engine"`       // its parent: the engine, or the process that started the provider for it
	Note   string    `json:"note,omitempty"`
}

// The calls and the phases.
const (
	callCreate = "create"
	callRead   = "read"
	callUpdate = "update"
	callDelete = "delete"
	callLookup = "lookup"

	phaseBegin  = "begin"
	phaseDone   = "done"
	phaseFailed = "failed"
)

var errGone = errors.New("no such thing")

// cloud is the file at path, with its journal at path.journal and the lock
// that serialises all processes at path.lock.
type cloud struct {
	path   string
	faults []fault // of the provider block
}

// do runs one call: it journals the beginning, lets the faults strike, changes
// the world with act and journals the end. act returns the id it dealt with.
func (c *cloud) do(ctx context.Context, call, name, id string, act func(*world) (string, error)) error {
	// Faults are counted before another process can read that the call has begun,
	// and kill us for it.
	due, err := c.due(call, name)
	if err != nil {
		return err
	}
	if err := c.journal(call, phaseBegin, name, id, ""); err != nil {
		return err
	}
	after, err := c.strike(ctx, due, call, name)
	if err == nil {
		err = c.update(func(w *world) (bool, error) {
			var err error
			id, err = act(w)
			return call == callCreate || call == callUpdate || call == callDelete, err
		})
	}
	if err != nil {
		return errors.Join(err, c.journal(call, phaseFailed, name, id, err.Error()))
	}
	after()
	return c.journal(call, phaseDone, name, id, "")
}

// update reads the world, lets change work on it and, if it says so, replaces
// the file so that every reader sees the whole old or the whole new one.
func (c *cloud) update(change func(*world) (write bool, err error)) error {
	lock, err := os.OpenFile(c.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening the world's lock: %w", err)
	}
	defer lock.Close() // releases it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking the world: %w", err)
	}
	w, err := c.load()
	if err != nil {
		return err
	}
	write, err := change(&w)
	if err != nil || !write {
		return err
	}
	return c.save(w)
}

func (c *cloud) load() (world, error) {
	w := world{Version: formatVersion, Next: 1}
	text, err := os.ReadFile(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // an empty world
	case err != nil:
		return w, fmt.Errorf("reading the world: %w", err)
	default:
		if err := json.Unmarshal(text, &w); err != nil {
			return w, fmt.Errorf("parsing the world %s: %w", c.path, err)
		}
	}
	if w.Version != formatVersion {
		return w, fmt.Errorf("the world %s has version %d, not %d", c.path, w.Version, formatVersion)
	}
	if w.Things == nil {
		w.Things = map[string]thing{}
	}
	if w.Fired == nil {
		w.Fired = map[string]int{}
	}
	return w, nil
}

func (c *cloud) save(w world) error {
	text, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the world: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(c.path), filepath.Base(c.path)+".*")
	if err != nil {
		return fmt.Errorf("writing the world: %w", err)
	}
	defer os.Remove(f.Name()) // no longer there after the rename
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing the world: %w", err)
	}
	if err := os.Rename(f.Name(), c.path); err != nil {
		return fmt.Errorf("replacing the world: %w", err)
	}
	return syncDir(filepath.Dir(c.path))
}

// syncDir makes a rename in dir last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening the world's directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func (c *cloud) journal(call, phase, name, id, note string) error {
	line, err := json.Marshal(entry{
		Time: time.Now().UTC(), Call: call, Phase: phase, Name: name, ID: id,
		PID: os.Getpid(), Engine: os.Getppid(), Note: note,
	})
	if err != nil {
		return fmt.Errorf("journalling %s: %w", call, err)
	}
	f, err := os.OpenFile(c.path+".journal", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the world's journal: %w", err)
	}
	_, err = f.Write(append(line, '\n')) // one write: lines of several processes do not mix
	return errors.Join(err, f.Close())
}

func (w *world) add(t thing) string {
	t.ID = fmt.Sprintf("thing-%d", w.Next)
	w.Next++
	w.Things[t.ID] = t
	return t.ID
}

func (w *world) named(name string) ([]thing, error) {
	var found []thing
	for _, t := range w.Things {
		if t.Name == name {
			found = append(found, t)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("looking up %q: %w", name, errGone)
	}
	return found, nil
}
