package testkit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// World is the cloud of the world provider (test/world): one file, which tells what
// runs really did, whatever they reported.
//
// The methods end the test when the file or the call log is not what the provider
// writes.
type World struct {
	Path  string // absolute; runs must be able to write the directory
	tb    testing.TB
	seen  string // the path for runs; Path if it is empty
	owner int    // the user of runs; that of the sandbox if it is 0
}

// WorldThing is one resource of the world.
type WorldThing struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Value  *string           `json:"value,omitempty"`
	Size   int64             `json:"size"`
	Secret *string           `json:"secret,omitempty"`
	Tags   map[string]string `json:"tags,omitempty"`
}

// WorldFault makes calls go wrong; the provider's documentation of its fault
// block says how. The zero Call, Name and Times mean any and always.
type WorldFault struct {
	Call       string `json:"call,omitempty"` // create, read, update, delete or lookup
	Name       string `json:"name,omitempty"`
	Do         string `json:"do"` // delay, hold (until the fault is replaced), fail, hang, crash-before or crash-after
	Delay      string `json:"delay,omitempty"`
	Times      int    `json:"times,omitempty"`
	IgnoreStop bool   `json:"ignoreStop,omitempty"`
}

// WorldCall is one line of the call log. A call leaves one when it begins and one
// when it ends, unless it died on the way.
type WorldCall struct {
	Time   time.Time `json:"time"`
	Call   string    `json:"call"`
	Phase  string    `json:"phase"` // begin, done or failed
	Name   string    `json:"name"`
	ID     string    `json:"id,omitempty"`
	PID    int       `json:"pid"`    // of the provider, as its sandbox counts
	Engine int       `json:"engine"` // of the provider's parent
	Note   string    `json:"note,omitempty"`
}

type worldFile struct {
	Version int                   `json:"version"`
	Next    int                   `json:"next"`
	Things  map[string]WorldThing `json:"things"`
	Faults  []WorldFault          `json:"faults,omitempty"`
	Fired   map[string]int        `json:"fired,omitempty"`
}

// NewWorld returns an empty world in a directory of its own.
func NewWorld(tb testing.TB) *World {
	tb.Helper()
	return newWorld(tb, tb.TempDir(), podVolume{})
}

func newWorld(tb testing.TB, dir string, v podVolume) *World {
	tb.Helper()
	w := &World{Path: filepath.Join(dir, "world.json"), tb: tb, owner: v.user}
	if v.path != "" {
		w.seen = path.Join(v.path, filepath.Base(dir), "world.json")
	}
	w.change(func(*worldFile) bool { return false }) // the lock belongs to runs, too, before the first one comes
	return w
}

// HCL is the head of a module that lives in this world.
func (w *World) HCL() string {
	return "terraform {\n  required_providers {\n    world = { source = \"terrier-iac/world\" }\n  }\n}\n\n" +
		"provider \"world\" {\n  path = " + strconv.Quote(cmp.Or(w.seen, w.Path)) + "\n}\n"
}

// Things lists what there is, by id.
func (w *World) Things() []WorldThing {
	w.tb.Helper()
	var all []WorldThing
	w.change(func(f *worldFile) bool {
		for _, t := range f.Things {
			all = append(all, t)
		}
		return false
	})
	slices.SortFunc(all, func(a, b WorldThing) int { return serial(a.ID) - serial(b.ID) })
	return all
}

// Named lists the things of one name: more than one if a create ran twice.
func (w *World) Named(name string) []WorldThing {
	w.tb.Helper()
	return slices.DeleteFunc(w.Things(), func(t WorldThing) bool { return t.Name != name })
}

// Edit changes things without the engine, as a user does in a console. change gets every thing and returns whether it stays.
func (w *World) Edit(change func(*WorldThing) (stays bool)) {
	w.tb.Helper()
	w.change(func(f *worldFile) bool {
		for id, t := range f.Things {
			if change(&t) {
				f.Things[id] = t
			} else {
				delete(f.Things, id)
			}
		}
		return true
	})
}

// Fault replaces the faults, and forgets how often they struck. None heal the
// world.
func (w *World) Fault(faults ...WorldFault) {
	w.tb.Helper()
	w.change(func(f *worldFile) bool {
		f.Faults, f.Fired = faults, nil
		return true
	})
}

// Calls reads the call log.
func (w *World) Calls() []WorldCall {
	w.tb.Helper()
	calls, err := w.calls()
	if err != nil {
		w.tb.Fatal(err)
	}
	return calls
}

func (w *World) calls() ([]WorldCall, error) {
	text, err := os.ReadFile(w.Path + ".journal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the world's journal: %w", err)
	}
	var calls []WorldCall
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written: a read may come between the pages of one write
		}
		var c WorldCall
		if err := strict(line, &c); err != nil {
			return nil, fmt.Errorf("parsing the world's journal at %q: %w", line, err)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// Await returns the first call that match says yes to, and ends the test if
// ctx ends before.
func (w *World) Await(ctx context.Context, match func(WorldCall) bool) WorldCall {
	w.tb.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		calls := w.Calls()
		if i := slices.IndexFunc(calls, match); i >= 0 {
			return calls[i]
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			w.tb.Fatalf("waiting for a call: %v; there were %+v", context.Cause(ctx), calls)
		}
	}
}

// CreatedTwice lists the names that ever had two things at the same time, even
// if one was removed again.
func (w *World) CreatedTwice() []string {
	w.tb.Helper()
	live := map[string]map[string]bool{} // name → ids
	var twice []string
	for _, c := range w.Calls() {
		switch {
		case c.Call == "create" && c.Phase == "done":
			if live[c.Name] == nil {
				live[c.Name] = map[string]bool{}
			}
			live[c.Name][c.ID] = true
		case c.Call == "delete" && c.Phase == "done":
			delete(live[c.Name], c.ID)
		}
		if len(live[c.Name]) > 1 {
			twice = append(twice, c.Name)
		}
	}
	named := map[string]int{} // a create that crashed after its effect is not done in the call log
	for _, t := range w.Things() {
		if named[t.Name]++; named[t.Name] > 1 {
			twice = append(twice, t.Name)
		}
	}
	slices.Sort(twice)
	return slices.Compact(twice)
}

// Leaked lists the things that none of the states knows.
func (w *World) Leaked(states ...[]byte) []WorldThing {
	w.tb.Helper()
	known := map[string]bool{}
	for _, state := range states {
		for _, id := range stateIDs(w.tb, state) {
			known[id] = true
		}
	}
	return slices.DeleteFunc(w.Things(), func(t WorldThing) bool { return known[t.ID] })
}

// stateIDs lists the ids of the things that a state holds.
func stateIDs(tb testing.TB, state []byte) []string {
	tb.Helper()
	var s struct {
		Resources []struct {
			Mode, Type string
			Instances  []struct {
				Attributes struct{ ID string }
			}
		}
	}
	if err := json.Unmarshal(state, &s); err != nil {
		tb.Fatalf("parsing a state: %v", err)
	}
	var ids []string
	for _, r := range s.Resources {
		if r.Mode == "managed" && r.Type == "world_thing" {
			for _, i := range r.Instances {
				ids = append(ids, i.Attributes.ID)
			}
		}
	}
	return ids
}

// change works on the file under the lock that the provider takes too.
func (w *World) change(change func(*worldFile) (write bool)) {
	w.tb.Helper()
	lock, err := os.OpenFile(w.Path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		w.tb.Fatal(err)
	}
	defer lock.Close() // releases it
	defer w.own()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		w.tb.Fatal(err)
	}
	f := worldFile{Version: 1, Next: 1, Things: map[string]WorldThing{}}
	text, err := os.ReadFile(w.Path)
	if err == nil {
		err = strict(text, &f)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.tb.Fatalf("reading the world %s: %v", w.Path, err)
	}
	if f.Version != 1 {
		w.tb.Fatalf("the world %s has version %d, not 1", w.Path, f.Version)
	}
	if !change(&f) {
		return
	}
	if text, err = json.MarshalIndent(f, "", "  "); err != nil {
		w.tb.Fatal(err)
	}
	if err := os.WriteFile(w.Path+".new", append(text, '\n'), 0o600); err != nil {
		w.tb.Fatal(err)
	}
	if err := os.Rename(w.Path+".new", w.Path); err != nil {
		w.tb.Fatal(err)
	}
}

// own gives the world to the user of sandboxed runs.
func (w *World) own() {
	w.tb.Helper()
	if err := own(filepath.Dir(w.Path), w.owner); err != nil {
		w.tb.Fatal(err)
	}
}

// strict refuses fields that this file does not know: the provider's format
// has moved on.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// serial is the number in an id, thing-12.
func serial(id string) int {
	var n int
	if _, err := fmt.Sscanf(id, "thing-%d", &n); err != nil {
		return 0
	}
	return n
}
