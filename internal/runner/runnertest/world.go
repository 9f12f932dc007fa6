package runnertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Call is a line of the call log: a call that has begun, or has ended.
type Call struct {
	Call, Phase, Name, ID string
}

// Calls reads the call log.
func (m *Mirror) Calls() []Call {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.Cloud, "world.json.journal"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	var calls []Call
	for line := range bytes.Lines(data) {
		var c Call
		if json.Unmarshal(line, &c) == nil { // the last one may be half there
			calls = append(calls, c)
		}
	}
	return calls
}

// Count counts the calls of a kind that came this far.
func (m *Mirror) Count(call, phase string) int {
	m.t.Helper()
	return len(slices.DeleteFunc(m.Calls(), func(c Call) bool { return c.Call != call || c.Phase != phase }))
}

// Await waits until so many calls of a kind came this far.
func (m *Mirror) Await(call, phase string, n int) {
	m.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for m.Count(call, phase) < n {
		select {
		case <-tick.C:
		case <-deadline:
			m.t.Fatalf("the world was asked for %+v, want %d %s %s", m.Calls(), n, call, phase)
		}
	}
}

// Things lists the address of each thing by its id. Things are named by the last
// part of their address.
func (m *Mirror) Things() map[string]string {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.Cloud, "world.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var w struct {
		Things map[string]struct{ Name string }
	}
	if err = errors.Join(err, json.Unmarshal(data, &w)); err != nil {
		m.t.Fatal(err)
	}
	things := map[string]string{}
	for id, t := range w.Things {
		things[id] = "world_thing." + t.Name
	}
	return things
}

// Exact compares the untracked resources of an apply with the cloud: each finished
// resource is listed with its id and nothing else is, and any other existing one is
// listed as one that may exist.
func (m *Mirror) Exact(d Done, state []byte) []stack.UntrackedResource {
	m.t.Helper()
	untracked, err := plan.Unrecorded(bytes.NewReader(d.Events), state)
	if err != nil {
		m.t.Fatal(err)
	}
	untracked = slices.DeleteFunc(untracked, func(u stack.UntrackedResource) bool { return !strings.HasPrefix(u.Address, "world_thing.") })
	missing := m.Things()
	for id := range missing {
		if Has(`"id":"`+id+`"`, state) || Has(`"id": "`+id+`"`, state) {
			delete(missing, id)
		}
	}
	maybe := map[string]bool{}
	for _, u := range untracked {
		switch {
		case !u.Finished:
			maybe[u.Address] = true
		case missing[u.ID] != u.Address:
			m.t.Errorf("%s is listed as %q, and in the world or its state is another: %v", u.Address, u.ID, m.Things())
		default:
			delete(missing, u.ID)
		}
	}
	for id, addr := range missing {
		if !maybe[addr] {
			m.t.Errorf("%s exists as %s and is neither in the state nor listed: %+v\n%s", addr, id, untracked, d.Events)
		}
	}
	return untracked
}
