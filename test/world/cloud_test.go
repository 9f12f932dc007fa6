package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func newCloud(t *testing.T, faults ...fault) *cloud {
	t.Helper()
	return &cloud{path: filepath.Join(t.TempDir(), "world.json"), faults: faults}
}

func (c *cloud) create(ctx context.Context, t thing) error {
	return c.do(ctx, callCreate, t.Name, "", func(w *world) (string, error) { return w.add(t), nil })
}

func (c *cloud) entries(t *testing.T) []entry {
	t.Helper()
	text, err := os.ReadFile(c.path + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	for line := range bytes.Lines(text) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("journal line %q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

func TestCallsOfManyProcessesDoNotMix(t *testing.T) {
	const n = 40
	path := newCloud(t).path
	var g sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		// The lock belongs to the open file, so two clouds contend as two processes do.
		g.Go(func() { errs[i] = (&cloud{path: path}).create(t.Context(), thing{Name: fmt.Sprint("n", i)}) })
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	c := &cloud{path: path}
	w, err := c.load()
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Things) != n || w.Next != n+1 {
		t.Errorf("world has %d things and next %d, want %d and %d", len(w.Things), w.Next, n, n+1)
	}
	if got := len(c.entries(t)); got != 2*n {
		t.Errorf("journal has %d lines, want %d", got, 2*n)
	}
}

func TestStrangeWorldIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"another version":    `{"version": 2}`,
		"not JSON":           `things`,
		"a fault of no kind": `{"version": 1, "faults": [{"do": "sulk"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t)
			if err := os.WriteFile(c.path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.create(t.Context(), thing{Name: "a"}); err == nil {
				t.Error("create succeeded")
			}
			if got, _ := os.ReadFile(c.path); string(got) != text {
				t.Errorf("world is now %s, want it untouched", got)
			}
		})
	}
}

func TestFaultCheck(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault
		ok    bool
	}{
		"fail needs nothing else":    {fault{Do: doFail}, true},
		"delay says how long":        {fault{Do: doDelay, Delay: "2s"}, true},
		"delay without a duration":   {fault{Do: doDelay}, false},
		"hold needs nothing else":    {fault{Do: doHold}, true},
		"delay on a crash":           {fault{Do: doCrashAfter, Delay: "2s"}, false},
		"an unknown deed":            {fault{Do: "sulk"}, false},
		"an unknown call":            {fault{Call: "destroy", Do: doFail}, false},
		"a call, a name and a count": {fault{Call: callCreate, Name: "a", Do: doFail, Times: 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.fault.check(); (err == nil) != c.ok {
				t.Errorf("check() = %v, want ok %v", err, c.ok)
			}
		})
	}
}

func TestFaultStrikesOnlyWhatItNames(t *testing.T) {
	c := newCloud(t, fault{Call: callCreate, Name: "a", Do: doFail, Times: 2})
	var got []bool
	for _, name := range []string{"b", "a", "a", "a"} {
		got = append(got, c.create(t.Context(), thing{Name: name}) == nil)
	}
	if want := []bool{true, false, false, true}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("creates of b, a, a, a succeeded %v, want %v", got, want)
	}
}

// A call that is held works once the world has the fault no longer, or ends by a stop.
func TestHold(t *testing.T) {
	c := newCloud(t)
	set := func(faults ...fault) {
		if err := c.update(func(w *world) (bool, error) { w.Faults = faults; return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	set(fault{Call: callCreate, Name: "a", Do: doHold})
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := c.create(stopped, thing{Name: "a"}); !errors.Is(err, errStopped) {
		t.Errorf("create = %v, want %v", err, errStopped)
	}
	done := make(chan error, 1)
	go func() { done <- c.create(t.Context(), thing{Name: "a"}) }()
	if err := c.create(t.Context(), thing{Name: "b"}); err != nil {
		t.Errorf("create of another thing = %v", err)
	}
	select {
	case err := <-done:
		t.Errorf("a held create ended with %v", err)
	default:
	}
	set()
	if err := <-done; err != nil {
		t.Errorf("create = %v after the hold", err)
	}
	if err := newCloud(t, fault{Do: doHold}).create(t.Context(), thing{Name: "a"}); err == nil || !strings.Contains(err.Error(), "only the world") {
		t.Errorf("a configuration that holds: %v, want to be refused", err)
	}
}

func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault
		want  error
	}{
		"ends a delay":                         {fault{Do: doDelay, Delay: "1h"}, errStopped},
		"ends a hang":                          {fault{Do: doHang}, errStopped},
		"does not end a delay that ignores it": {fault{Do: doDelay, Delay: "1ms", IgnoreStop: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			stop()
			if err := newCloud(t, c.fault).create(ctx, thing{Name: "a"}); !errors.Is(err, c.want) {
				t.Errorf("create = %v, want %v", err, c.want)
			}
		})
	}
}

// The golden files are the contract with those who read worlds and journals:
// the test kit of the main module reads the same two files in its own tests.
func TestFormat(t *testing.T) {
	c := newCloud(t, fault{Call: callCreate, Name: "b", Do: doFail, Times: 1})
	value := "x"
	_ = c.create(t.Context(), thing{Name: "a", Value: &value, Size: 3, Tags: map[string]string{"k": "v"}})
	_ = c.create(t.Context(), thing{Name: "b", Size: 1}) // fails, as told
	_ = c.create(t.Context(), thing{Name: "b", Size: 1})
	err := c.do(t.Context(), callDelete, "b", "thing-2", func(w *world) (string, error) {
		delete(w.Things, "thing-2")
		return "thing-2", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "world.json", text)
	var journal strings.Builder
	for _, e := range c.entries(t) {
		if e.PID != os.Getpid() || e.Engine != os.Getppid() || e.Time.IsZero() {
			t.Errorf("entry %+v has not this process, its parent and a time", e)
		}
		e.PID, e.Engine, e.Time = 12, 11, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		journal.Write(append(line, '\n'))
	}
	golden(t, "world.json.journal", []byte(journal.String()))
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}
