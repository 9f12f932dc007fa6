package plan

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

// did is the event of one stage of an operation.
func did(stage, action, addr, id string) string {
	key := ""
	if id != "" {
		key = `,"id_key":"id","id_value":"` + id + `"`
	}
	return `{"@message":"m","type":"apply_` + stage + `","hook":{"resource":{"addr":"` + addr + `"},"action":"` + action + `"` + key + `}}` + "\n"
}

func told(addr, summary string) string {
	return `{"@message":"m","type":"diagnostic","diagnostic":{"severity":"error","summary":"` + summary + `","address":"` + addr + `"}}` + "\n"
}

// held is a state of one x.a.
func held(instances string) string {
	return `{"resources":[{"mode":"managed","type":"x","name":"a","instances":[` + instances + `]}]}`
}

func instance(id string) string { return `{"attributes":{"id":"` + id + `"}}` }

func TestUnrecorded(t *testing.T) {
	const new, old = "new", "old"
	finished := []stack.UntrackedResource{{Address: "x.a", ID: new, Finished: true}}
	maybe := []stack.UntrackedResource{{Address: "x.a"}}
	created := did("start", "create", "x.a", "") + did("complete", "create", "x.a", new)
	begun := did("start", "create", "x.a", "")
	failed := begun + did("errored", "create", "x.a", "")
	deleted := did("start", "delete", "x.a", old) + did("complete", "delete", "x.a", old)
	for name, tt := range map[string]struct {
		before, events, after string
		want                  []stack.UntrackedResource
	}{
		"what is in the state is recorded":                       {"", created, held(instance(new)), nil},
		"what is in no state is not":                             {"", created, "", finished},
		"what was begun may exist":                               {"", begun, "", maybe},
		"what was begun and is there already is recorded":        {"", begun, held(instance(new)), nil},
		"a replacement is not what it replaces":                  {held(instance(old)), deleted + created, held(instance(old)), finished},
		"nor where the old one goes last":                        {held(instance(old)), created, held(instance(old)), finished},
		"nor where the old one is deposed":                       {held(instance(old)), created, held(`{"deposed":"0a","attributes":{"id":"old"}}`), finished},
		"a replacement that was begun may exist":                 {held(instance(old)), begun, held(instance(old)), maybe},
		"a replacement in the state is recorded":                 {held(instance(old)), deleted + created, held(instance(new)), nil},
		"one that was begun and is in the state, too":            {held(instance(old)), deleted + begun, held(instance(new)), nil},
		"what failed and was not told may exist":                 {"", failed, "", maybe},
		"what failed and was told does not":                      {"", failed + told("x.a", "quota"), "", nil},
		"where the provider went silent it may":                  {"", failed + told("x.b", "quota") + told("x.a", "Plugin did not respond"), "", maybe},
		"where it is not said about what":                        {"", failed + told("x.b", "quota") + told("", "Plugin did not respond"), "", maybe},
		"what failed by itself beside it does not":               {"", failed + told("", "Plugin did not respond") + told("x.a", "quota"), "", nil},
		"silence about another one changes nothing":              {"", failed + told("x.b", "Plugin did not respond"), "", nil},
		"a warning tells nothing":                                {"", failed + strings.Replace(told("x.a", "old"), `"error"`, `"warning"`, 1), "", maybe},
		"what failed and is tainted is recorded":                 {"", failed + told("x.a", "provisioner"), held(instance(new)), nil},
		"an id that was hidden is no proof that it is not there": {"", did("start", "create", "x.a", "") + did("complete", "create", "x.a", Mask), held(instance(new)), nil},
		"changes and deletions are the next plan's":              {held(instance(old)), deleted + did("start", "update", "x.b", "b"), held(instance(old)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := BeforeApply([]byte(tt.before), time.Unix(1, 0))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Unrecorded(strings.NewReader(string(bytes.Join(before, []byte("\n")))+"\ntext\n"+tt.events), []byte(tt.after))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("Unrecorded() (-want +got):\n%s", d)
			}
		})
	}
}

func TestUnrecordedByInstance(t *testing.T) {
	var events strings.Builder
	for _, addr := range []string{`module.m.x.a[\"k\"]`, `x.a[1]`, `x.a[0]`} {
		events.WriteString(did("start", "create", addr, "") + did("complete", "create", addr, "i"))
	}
	state := `{"resources":[{"module":"module.m","mode":"managed","type":"x","name":"a","instances":[{"index_key":"k","attributes":{"id":"i"}}]},` +
		`{"mode":"managed","type":"x","name":"a","instances":[{"index_key":1,"attributes":{"id":"i"}}]}]}`
	got, err := Unrecorded(strings.NewReader(events.String()), []byte(state))
	if err != nil || len(got) != 1 || got[0].Address != "x.a[0]" {
		t.Errorf("Unrecorded() = %+v, %v; want x.a[0] alone", got, err)
	}
	if _, err := Unrecorded(strings.NewReader(""), []byte("half a sta")); err == nil {
		t.Error("a state that cannot be read is taken for an empty one")
	}
}

func TestBeforeApply(t *testing.T) {
	var many []string
	for i := range beforeMost + 1 {
		many = append(many, fmt.Sprintf(`{"index_key":%d,"attributes":{"id":"%d"}}`, i, i))
	}
	lines, err := BeforeApply([]byte(held(strings.Join(many, ","))), time.Unix(1, 0))
	if err != nil || len(lines) != 2 {
		t.Fatalf("BeforeApply() = %d lines, %v; want two", len(lines), err)
	}
	known := map[string]bool{}
	for _, line := range lines {
		e, err := ParseEvent(line)
		b, ok := e.(Before)
		if err != nil || !ok {
			t.Fatalf("ParseEvent() = %#v, %v", e, err)
		}
		maps.Copy(known, b.Objects)
	}
	if len(known) != len(many) || !known["x 0"] {
		t.Errorf("%d objects are known, want %d", len(known), len(many))
	}
	if lines, err := BeforeApply(nil, time.Unix(1, 0)); lines != nil || err != nil {
		t.Errorf("BeforeApply(nil) = %s, %v, want nothing", lines, err)
	}
}

func TestStillUnrecorded(t *testing.T) {
	missing := []stack.UntrackedResource{
		{Address: "x.in", ID: "1", Finished: true},
		{Address: `module.m.x.in["k"]`, ID: "2", Finished: true},
		{Address: "x.another", ID: "3", Finished: true},
		{Address: "x.unknown"},
		{Address: "x.out", ID: "5", Finished: true},
	}
	state := `{"version":4,"resources":[
		{"mode":"managed","type":"x","name":"in","instances":[{"attributes":{"id":"1"}}]},
		{"module":"module.m","mode":"managed","type":"x","name":"in","instances":[{"index_key":"k","attributes":{"id":"2"}}]},
		{"mode":"managed","type":"x","name":"another","instances":[{"attributes":{"id":"33"}}]},
		{"mode":"managed","type":"x","name":"unknown","instances":[{"attributes":{"id":"4"}}]},
		{"mode":"managed","type":"x","name":"out","instances":[{"deposed":"0","attributes":{"id":"5"}}]}]}`
	got, err := StillUnrecorded(missing, []byte(state))
	if err != nil || !slices.Equal(got, missing[2:]) {
		t.Errorf("StillUnrecorded() = %v, %v; want %v", got, err, missing[2:])
	}
	if got, err := StillUnrecorded(missing, nil); err != nil || len(got) != len(missing) {
		t.Errorf("StillUnrecorded() of no state = %v, %v; want all of %v", got, err, missing)
	}
}

// Of a state that only its engine saw, no more is missing than what that engine
// never heard the end of.
func TestUnheard(t *testing.T) {
	begun := did("start", "create", "x.a", "")
	failed := begun + did("errored", "create", "x.a", "")
	maybe := []stack.UntrackedResource{{Address: "x.a"}}
	for name, tt := range map[string]struct {
		events string
		want   []stack.UntrackedResource
	}{
		"what was created is in the state":       {begun + did("complete", "create", "x.a", "new"), nil},
		"what was changed was there":             {did("start", "update", "x.a", "a"), nil},
		"what failed and was told is known":      {failed + told("x.a", "quota"), nil},
		"where the provider went silent it may":  {failed + told("x.a", "Plugin did not respond"), maybe},
		"where it is not said about what":        {failed + told("", "Plugin did not respond"), maybe},
		"what was begun and has no end may, too": {begun, maybe},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Unheard(strings.NewReader(tt.events))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("Unheard() (-want +got):\n%s", d)
			}
		})
	}
}

// A line that is longer than any event hides none of those after it, which may be the only trace
// of what was created.
func TestUnrecordedAfterALongLine(t *testing.T) {
	created := did("start", "create", "x.a", "") + did("complete", "create", "x.a", "new")
	want := []stack.UntrackedResource{{Address: "x.a", ID: "new", Finished: true}}
	for name, before := range map[string]string{
		"text":              strings.Repeat("a", eventLine+1) + "\n",
		"an event":          `{"@message":"` + strings.Repeat("a", 2*eventLine) + `","type":"log"}` + "\n",
		"several":           strings.Repeat(strings.Repeat("a", eventLine+1)+"\n", 3),
		"as long as it may": strings.Repeat("a", eventLine-1) + "\n",
		"an empty line":     "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, events := range []string{before + created, created + before, before + strings.TrimSuffix(created, "\n")} {
				if got, err := Unrecorded(strings.NewReader(events), nil); err != nil || !slices.Equal(got, want) {
					t.Errorf("Unrecorded() = %+v, %v, want %+v", got, err, want)
				}
			}
		})
	}
}

// However long identifiers are, the events that say what there was can be read again.
func TestBeforeApplyWithLongIdentifiers(t *testing.T) {
	var all []string
	for i := range 3 * beforeMost / 2 {
		all = append(all, fmt.Sprintf(`{"index_key":%d,"attributes":{"id":"%d%s"}}`, i, i, strings.Repeat("<", 1000)))
	}
	lines, err := BeforeApply([]byte(held(strings.Join(all, ","))), time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	if err := eachLine(bytes.NewReader(bytes.Join(lines, []byte("\n"))), func(line []byte) {
		if e, err := ParseEvent(line); err == nil {
			known += len(e.(Before).Objects)
		}
	}); err != nil || known != len(all) {
		t.Errorf("%d of %d objects are known, %v", known, len(all), err)
	}
}
