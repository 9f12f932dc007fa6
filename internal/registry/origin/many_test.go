package origin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// advertises is a git server that lists tags, and has nothing else.
func advertises(t *testing.T, each func(line func(commit, name string))) string {
	t.Helper()
	var refs bytes.Buffer
	packet := func(text string) { fmt.Fprintf(&refs, "%04x%s", len(text)+4, text) }
	packet("# service=git-upload-pack\n")
	refs.WriteString("0000")
	capabilities := "\x00ofs-delta agent=git/2.0"
	each(func(commit, name string) {
		packet(commit + " refs/tags/" + name + capabilities + "\n")
		capabilities = ""
	})
	refs.WriteString("0000")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/info/refs") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = w.Write(refs.Bytes())
	}))
	t.Cleanup(server.Close)
	return server.URL + "/many.git"
}

// A server that lists tens of thousands of tags that contradict one another makes a small
// record, a few events and log lines, and hides no tag that moved.
func TestManyProblems(t *testing.T) {
	const versions = 30_000 // each with two tags
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(module("one"))
	tag(g, "v9.0.0")
	r := b.register(g, nil)
	b.checked(t, r)
	b.told()
	url := advertises(t, func(line func(commit, name string)) {
		for i := range versions {
			line(red, fmt.Sprintf("0.0.%d", i))
			line(blue, fmt.Sprintf("v0.0.%d", i))
		}
		line(blue, "v9.0.0")
		line(blue, "v1.0.0+"+strings.Repeat("x", 60_000))
	})
	r.URL = url
	s := b.checked(t, r)
	if s.Contradictions() != versions+1 || len(s.Problems) != mostProblems || s.Problems[0].Version != "9.0.0" || s.Error != "" {
		t.Errorf("the state names %d of %d problems, the first of them %+v; the error is %q", len(s.Problems), s.Contradictions(), s.Problems[0], s.Error)
	}
	value, err := b.store.store.Open(t.Context(), stateKey(r.Key))
	if err != nil {
		t.Fatal(err)
	}
	if err := value.Close(); err != nil || value.Size > 100<<10 {
		t.Errorf("the record has %d bytes, want at most 100 KiB; %v", value.Size, err)
	}
	told := b.told()
	if len(told) != mostTold+1 || !strings.Contains(told[mostTold], "30001 problems of the repository in all: list the first of them with terrier module repositories network/vpc") {
		t.Errorf("users were told %q, want %d problems, and their number", told, mostTold)
	}
	if lines := strings.Count(b.log.String(), "repository has a problem"); lines != mostTold+1 {
		t.Errorf("the log has %d lines about problems, want %d", lines, mostTold+1)
	}
	b.checked(t, r)
	if told := b.told(); len(told) > 0 {
		t.Errorf("at the next check users were told %q, want nothing", told)
	}
}

// A record that is too large is made again, and one that cannot be read hides no other.
func TestDamagedRecords(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(module("one"))
	tag(g, "v1.0.0")
	large := b.register(g, nil)
	other := b.register(g, func(r *Repository) { r.Key = Key{"platform", "vpc"} })
	b.checked(t, large)
	b.checked(t, other)
	if err := b.o.Store.Put(t.Context(), stateKey(large.Key), io.LimitReader(zeros{}, recordBytes+1)); err != nil {
		t.Fatal(err)
	}
	states := func() map[string]State {
		t.Helper()
		all, err := b.States(t.Context())
		if err != nil || len(all) != 2 {
			t.Fatalf("States() = %+v, %v, want two", all, err)
		}
		return map[string]State{all[0].Namespace: all[0], all[1].Namespace: all[1]}
	}
	if got := states(); got["network"].URL != g.URL || !got["network"].Checked.IsZero() || got["platform"].Versions != 1 {
		t.Errorf("beside a record that is too large the states are %+v", got)
	}
	all, err := b.Repositories(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if due := b.due(t.Context(), all, nil); len(due) != 1 || due[0].Key != large.Key {
		t.Errorf("due are %+v, want the repository whose record is too large", due)
	}
	if s := b.checked(t, large); s.Versions != 1 || s.Error != "" {
		t.Errorf("after the next check the state is %+v, want one version", s)
	}

	failing := &unreadable{Versions: b.o.Store, key: stateKey(large.Key)}
	b.store.store = failing
	if got := states(); !strings.Contains(got["network"].Error, "tell the operator") || strings.Contains(got["network"].Error, "disk") || got["platform"].Versions != 1 {
		t.Errorf("beside a record that cannot be read the states are %+v", got)
	}
	b.running.all = map[Key]*work{} // as after a restart
	b.log.Reset()
	for range 3 {
		if due := b.due(t.Context(), all, nil); len(due) > 0 {
			t.Errorf("due are %+v, want nothing", due)
		}
		b.now = b.now.Add(restUnread / 2)
	}
	if lines := strings.Count(b.log.String(), "not read"); lines != 1 || failing.reads != 3 {
		t.Errorf("in ten seconds the log has %d lines, after %d reads in all, want one line and two reads after the list", lines, failing.reads)
	}
	failing.key = ""
	b.now = b.now.Add(restUnread)
	b.due(t.Context(), all, nil)
	if w := b.running.all[large.Key]; !w.loaded || w.record.Versions != 1 {
		t.Errorf("once the storage answers again, what is known is %+v", w)
	}
}

// A repository whose tags are no modules is not tried for ever.
func TestManyTagsThatAreNoModules(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(map[string]string{"README.md": "no module"})
	tag(g, "v1.0.0")
	r := b.register(g, nil)
	known := record{Known: map[string]Outcome{}}
	known.follow(r)
	for i := range mostKnown {
		name := fmt.Sprintf("v0.0.%d", i)
		known.know(candidate{Tag: source.Tag{Name: name}}, Outcome{Object: red, Text: strings.Repeat("<", 2048)})
	}
	if err := b.store.write(t.Context(), r.Key, known); err != nil {
		t.Fatal(err)
	}
	if got, err := b.store.read(t.Context(), r.Key); err != nil || got.URL != r.URL || got.Known != nil {
		t.Errorf("read() = %+v, %v, want a record without the tags, which would be too large", got.State, err)
	}
	now := known
	for i := range now.Known {
		now.Known[i] = Outcome{Object: "", Text: "no module"}
	}
	if _, err := b.take(t.Context(), r, nil, candidate{Tag: source.Tag{Name: "v1.0.0"}}, &now); err == nil || !strings.Contains(err.Error(), "no further tag is tried: delete tags") {
		t.Errorf("take() = %v, want an error that says what to do", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// unreadable is a storage that cannot read one key.
type unreadable struct {
	blob.Versions
	key   string
	reads int
}

func (u *unreadable) Open(ctx context.Context, key string) (blob.Value, error) {
	if key == u.key {
		u.reads++
		return blob.Value{}, errors.New("disk error")
	}
	return u.Versions.Open(ctx, key)
}
