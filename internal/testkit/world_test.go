package testkit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is a world that the provider wrote, in its own tests.
func recorded(t *testing.T) *World {
	t.Helper()
	w := NewWorld(t)
	for _, suffix := range []string{"", ".journal"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "test", "world", "testdata", "world.json"+suffix))
		if err != nil {
			t.Fatal(err)
		}
		w.write(t, suffix, string(text))
	}
	return w
}

func (w *World) write(t *testing.T, suffix, text string) {
	t.Helper()
	if err := os.WriteFile(w.Path+suffix, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWorldReadsWhatTheProviderWrites(t *testing.T) {
	w := recorded(t)
	value := "x"
	want := []WorldThing{{ID: "thing-1", Name: "a", Value: &value, Size: 3, Tags: map[string]string{"k": "v"}}}
	if diff := cmp.Diff(want, w.Things()); diff != "" {
		t.Errorf("Things() (-want +got):\n%s", diff)
	}
	var got []string
	for _, c := range w.Calls() {
		got = append(got, fmt.Sprintf("%s %s %s %s", c.Call, c.Phase, c.Name, c.ID))
	}
	calls := []string{
		"create begin a ", "create done a thing-1", "create begin b ", "create failed b ",
		"create begin b ", "create done b thing-2", "delete begin b thing-2", "delete done b thing-2",
	}
	if diff := cmp.Diff(calls, got); diff != "" {
		t.Errorf("Calls() (-want +got):\n%s", diff)
	}
	deleted := w.Await(t.Context(), func(c WorldCall) bool { return c.Call == "delete" && c.Phase == "done" })
	if deleted.ID != "thing-2" || deleted.Engine != 11 || deleted.PID != 12 {
		t.Errorf("Await() = %+v, want the end of the delete of thing-2 by process 12 of engine 11", deleted)
	}
}

func TestWorldEditIsDrift(t *testing.T) {
	w := recorded(t)
	w.Edit(func(t *WorldThing) bool {
		t.Size = 9
		return true
	})
	if got := w.Named("a"); len(got) != 1 || got[0].Size != 9 {
		t.Errorf("after the edit a is %+v, want size 9", got)
	}
	w.Edit(func(*WorldThing) bool { return false })
	if got := w.Things(); len(got) != 0 {
		t.Errorf("after removing all there is %+v, want nothing", got)
	}
	// An id is never given twice, whatever was removed manually.
	w.change(func(f *worldFile) bool {
		if f.Next != 3 {
			t.Errorf("next id is %d, want 3", f.Next)
		}
		return false
	})
}

func TestWorldCreatedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		file, journal string
		want          []string
	}{
		"one after the other is once": {
			`{"version":1,"next":3,"things":{"thing-2":{"id":"thing-2","name":"a","size":1}}}`,
			`{"call":"create","phase":"done","name":"a","id":"thing-1"}` + "\n" +
				`{"call":"delete","phase":"done","name":"a","id":"thing-1"}` + "\n" +
				`{"call":"create","phase":"done","name":"a","id":"thing-2"}` + "\n", nil,
		},
		"a second beside the first, removed since": {
			`{"version":1,"next":3,"things":{}}`,
			`{"call":"create","phase":"done","name":"a","id":"thing-1"}` + "\n" +
				`{"call":"create","phase":"done","name":"a","id":"thing-2"}` + "\n" +
				`{"call":"delete","phase":"done","name":"a","id":"thing-1"}` + "\n" +
				`{"call":"delete","phase":"done","name":"a","id":"thing-2"}` + "\n", []string{"a"},
		},
		"a first that nobody heard of": {
			`{"version":1,"next":3,"things":{"thing-1":{"id":"thing-1","name":"a","size":1},"thing-2":{"id":"thing-2","name":"a","size":1}}}`,
			`{"call":"create","phase":"begin","name":"a"}` + "\n" +
				`{"call":"create","phase":"done","name":"a","id":"thing-2"}` + "\n", []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t)
			w.write(t, "", c.file)
			w.write(t, ".journal", c.journal)
			if diff := cmp.Diff(c.want, w.CreatedTwice()); diff != "" {
				t.Errorf("CreatedTwice() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorldLeaked(t *testing.T) {
	w := NewWorld(t)
	w.write(t, "", `{"version":1,"next":11,"things":{
		"thing-10":{"id":"thing-10","name":"c","size":1},
		"thing-1":{"id":"thing-1","name":"a","size":1},
		"thing-2":{"id":"thing-2","name":"b","size":1}}}`)
	one := []byte(`{"resources":[{"mode":"managed","type":"world_thing","instances":[{"attributes":{"id":"thing-1"}}]},
		{"mode":"data","type":"world_thing","instances":[{"attributes":{"id":"thing-2"}}]}]}`)
	var got []string
	for _, thing := range w.Leaked(one, []byte(`{}`)) {
		got = append(got, thing.ID)
	}
	if diff := cmp.Diff([]string{"thing-2", "thing-10"}, got); diff != "" {
		t.Errorf("Leaked() (-want +got):\n%s", diff)
	}
}

// failing records that a test was ended, in place of ending it.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}
func (f *failing) Fatal(...any) {
	f.failed = true
	panic(f)
}
func (f *failing) Fatalf(string, ...any) { f.Fatal() }

// What a provider is writing is no call yet, and no reason to end a test.
func TestWorldReadsWholeCalls(t *testing.T) {
	w := &World{Path: filepath.Join(t.TempDir(), "world.json"), tb: t}
	w.write(t, ".journal", `{"call":"create","phase":"begin","name":"a"}`+"\n"+`{"call":"create","pha`)
	if calls := w.Calls(); len(calls) != 1 || calls[0].Name != "a" {
		t.Errorf("the calls are %+v, want that of a", calls)
	}
}

func TestWorldEndsTheTestRatherThanGuess(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		file, journal string
		ask           func(*World)
	}{
		"another version":        {`{"version":2}`, "", func(w *World) { w.Things() }},
		"an unknown field":       {`{"version":1,"colour":"red"}`, "", func(w *World) { w.Things() }},
		"a torn journal":         {"", `{"call":"cre` + "\n", func(w *World) { w.Calls() }},
		"a call that never came": {"", "", func(w *World) { w.Await(ended, func(WorldCall) bool { return true }) }},
		"a state that is none":   {`{"version":1}`, "", func(w *World) { w.Leaked([]byte("secret")) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failing{TB: t}
			w := &World{Path: filepath.Join(t.TempDir(), "world.json"), tb: f}
			if c.file != "" {
				w.write(t, "", c.file)
			}
			w.write(t, ".journal", c.journal)
			func() {
				defer func() { _ = recover() }()
				c.ask(w)
			}()
			if !f.failed {
				t.Error("the test went on")
			}
		})
	}
}
