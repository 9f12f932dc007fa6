package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

// event is one event as a browser understands it.
type event struct{ name, id, data string }

// listener reads a stream of events.
type listener struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

// listen opens a stream, which is closed when the test ends.
func listen(t *testing.T, c *http.Client, address string, edit ...func(*http.Request)) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	bearer(req)
	req.Header.Set("Accept", "text/event-stream")
	for _, f := range edit {
		f(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); resp.Body.Close() })
	return &listener{t: t, resp: resp, in: bufio.NewReader(resp.Body)}
}

func from(id string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Last-Event-ID", id) }
}

// next is the next event that says something, or io.EOF.
func (l *listener) next() (event, error) {
	var e event
	said := false
	for {
		line, err := l.in.ReadString('\n')
		if err != nil {
			return e, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			if said {
				e.data += "\n"
			}
			e.data, said = e.data+value, true
		case "retry":
		case "":
			if said {
				return e, nil
			}
			e = event{id: e.id}
		default:
			l.t.Fatalf("%q is no line of an event", line)
		}
	}
}

// expect reads events until there are n.
func (l *listener) expect(n int) []event {
	l.t.Helper()
	var out []event
	for range n {
		e, err := l.next()
		if err != nil {
			l.t.Fatalf("after %d of %d events: %v", len(out), n, err)
		}
		out = append(out, e)
	}
	return out
}

// names are the stacks that events are about.
func names(events []event) []string {
	var out []string
	for _, e := range events {
		_, name, _ := strings.Cut(e.data, `"name":"`)
		name, _, _ = strings.Cut(name, `"`)
		out = append(out, strings.TrimSpace(e.name+" "+name))
	}
	return out
}

// crier is a server whose board the test changes.
type crier struct {
	*query.Board
	address string
	client  *http.Client
	auth    *roles

	mu    sync.Mutex
	scope access.Scope
	made  int
}

func newCrier(t *testing.T, limits Limits) *crier {
	t.Helper()
	r := &crier{Board: emptyBoard(), auth: newRoles(), scope: access.Everything}
	o := options(r.auth)
	o.Board, o.Limits = r.Board, limits
	o.Scopes = scopeFunc(func() access.Scope {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.scope
	})
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h) // TLS would take its own time to say goodbye
	t.Cleanup(srv.Close)
	r.address, r.client = srv.URL+"/api/v1/events", srv.Client()
	return r
}

func (r *crier) see(s access.Scope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scope = s
}

// change has a stack changed.
func (r *crier) change(namespace, name string) {
	o := stackObject(namespace, name)
	r.made++
	o.Spec.Path = fmt.Sprint("./", r.made)
	o.ResourceVersion = fmt.Sprint(r.made)
	r.Set(o)
}

// A reader that went away and comes back gets what it missed, once.
func TestEventsGoOnWhereTheyWereLeft(t *testing.T) {
	r := newCrier(t, Limits{})
	first := listen(t, r.client, r.address)
	if _, err := first.in.ReadString('\n'); err != nil { // it has begun
		t.Fatal(err)
	}
	r.change("apps", "a")
	r.change("apps", "b")
	got := first.expect(2)
	if diff := cmp.Diff(names(got), []string{"stack a", "stack b"}); diff != "" {
		t.Fatalf("events (-got +want):\n%s", diff)
	}
	first.resp.Body.Close()
	r.change("apps", "c")
	r.change("infra", "d")
	r.Drop(query.Key{Namespace: "apps", Name: "a"})
	again := listen(t, r.client, r.address, from(got[1].id)).expect(3)
	if diff := cmp.Diff(names(again), []string{"stack c", "stack d", "stack a"}); diff != "" {
		t.Errorf("events after a break (-got +want):\n%s", diff)
	}
	if !strings.Contains(again[2].data, `"gone":true`) {
		t.Errorf("what went is told as %s", again[2].data)
	}
	page, err := r.Page(access.Everything, query.BoardQuery{})
	if err != nil {
		t.Fatal(err)
	}
	r.change("apps", "e")
	if got := names(listen(t, r.client, r.address+"?cursor="+page.Cursor).expect(1)); got[0] != "stack e" {
		t.Errorf("from the cursor of a page on: %v, want e", got)
	}
}

func TestEventsSayWhenToReload(t *testing.T) {
	r := newCrier(t, Limits{})
	r.change("apps", "a")
	l := listen(t, r.client, r.address, from("anothertime-7"))
	e := l.expect(1)[0]
	if e.name != "reset" || e.id == "" || e.id == "anothertime-7" {
		t.Errorf("for a cursor of another board: %+v, want a reset with a cursor of this one", e)
	}
	r.change("apps", "b")
	if got := names(l.expect(1)); got[0] != "stack b" {
		t.Errorf("after the reset: %v, want b", got)
	}
	if resp := listen(t, r.client, r.address, from("nonsense")).resp; resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("what is no cursor: %s, want 422", resp.Status)
	}
}

// A link of another site leads to no stream: each window that it opens would use a
// stream of the user who follows it.
func TestNoLinkOfOthersOpensAStream(t *testing.T) {
	r := newCrier(t, Limits{})
	for site, want := range map[string]int{"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "none": http.StatusOK, "same-origin": http.StatusOK} {
		led := func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", site)
			r.Header.Set("Sec-Fetch-Mode", "navigate")
			r.Header.Set("Sec-Fetch-Dest", "document")
		}
		if resp := listen(t, r.client, r.address, led).resp; resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", site, resp.Status, want)
		}
	}
}

func TestEventsAreChosen(t *testing.T) {
	for params, want := range map[string]string{
		"":                        "stack net",
		"?namespace=infra":        "stack dns",
		"?stack=infra/dns":        "stack dns",
		"?q=DN":                   "stack dns",
		"?q=infra+dns":            "stack dns",
		"?namespace=apps&q=store": "stack store",
	} {
		r := newCrier(t, Limits{})
		page, err := r.Page(access.Everything, query.BoardQuery{})
		if err != nil {
			t.Fatal(err)
		}
		r.change("apps", "net")
		r.change("infra", "dns")
		r.change("apps", "store")
		if got := names(listen(t, r.client, r.address+params, from(page.Cursor)).expect(1)); got[0] != want {
			t.Errorf("%s: the first event is %v, want %s", params, got, want)
		}
	}
	r := newCrier(t, Limits{})
	for params, want := range map[string]int{"?stack=net": 422, "?stack=a/b/c": 422, "?namespace=A": 422, "?colour=red": 422} {
		if resp := listen(t, r.client, r.address+params).resp; resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", params, resp.Status, want)
		}
	}
}

// A namespace whose rights are revoked is gone from the stream; when none is left,
// the stream ends.
func TestEventsEndWithTheRights(t *testing.T) {
	r := newCrier(t, Limits{Recheck: 2 * time.Millisecond})
	r.see(access.Scope{In: map[string]bool{"apps": true, "infra": true}})
	l := listen(t, r.client, r.address)
	if _, err := l.in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r.change("secret", "x")
	r.change("infra", "dns")
	if got := names(l.expect(1)); got[0] != "stack dns" {
		t.Fatalf("%v, want nothing of a namespace out of sight", got)
	}
	only := listen(t, r.client, r.address+"?namespace=infra")
	r.see(access.Scope{In: map[string]bool{"apps": true}})
	if _, err := io.Copy(io.Discard, only.in); err != nil {
		t.Errorf("the stream of the namespace that was taken away ends with %v", err)
	}
	r.change("infra", "dns")
	r.change("apps", "net")
	// No event before the next check of the rights is about infra.
	for {
		e, err := l.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.name == "reset" {
			break
		}
	}
	r.change("infra", "dns")
	r.change("apps", "web")
	for got := ""; got != "stack web"; {
		got = names(l.expect(1))[0]
		if got == "stack dns" {
			t.Error("a namespace that was taken away is still told of")
		}
	}
	r.see(access.Scope{})
	if _, err := io.Copy(io.Discard, l.in); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
	if resp := listen(t, r.client, r.address).resp; resp.StatusCode != http.StatusForbidden {
		t.Errorf("another one is %s, want 403", resp.Status)
	}
}

// A user with few rights does not wait until all scopes are known, and gets an event
// when more are.
func TestEventsBeginBeforeAllIsKnown(t *testing.T) {
	r := newCrier(t, Limits{Recheck: 2 * time.Millisecond})
	r.see(access.Scope{In: map[string]bool{}, Unasked: 2})
	l := listen(t, r.client, r.address)
	if l.resp.StatusCode != http.StatusOK {
		t.Fatalf("while it is being found out what somebody may see: %s", l.resp.Status)
	}
	r.see(access.Scope{In: map[string]bool{"apps": true}})
	if e := l.expect(1)[0]; e.name != "reset" {
		t.Errorf("when more can be seen comes %+v, want a reset", e)
	}
	r.change("apps", "web")
	if got := names(l.expect(1)); got[0] != "stack web" {
		t.Errorf("after that: %v, want web", got)
	}
	r.see(access.Scope{})
	if _, err := io.Copy(io.Discard, l.in); err != nil {
		t.Errorf("when nothing can be seen the stream ends with %v", err)
	}
}

// A token that is no longer known ends what it began.
func TestEventsEndWithTheToken(t *testing.T) {
	r := newCrier(t, Limits{Recheck: 2 * time.Millisecond})
	l := listen(t, r.client, r.address)
	r.auth.rename("bob")
	if _, err := io.Copy(io.Discard, l.in); err != nil {
		t.Errorf("the stream of somebody else ends with %v", err)
	}
}

func TestStreamsOfOneUserAreBounded(t *testing.T) {
	r := newCrier(t, Limits{})
	got := map[int]int{}
	for range 500 {
		got[listen(t, r.client, r.address).resp.StatusCode]++
	}
	if diff := cmp.Diff(got, map[int]int{http.StatusOK: 16, http.StatusTooManyRequests: 484}); diff != "" {
		t.Errorf("500 streams of one user (-got +want):\n%s", diff)
	}
}

// A stream that has nothing to say says that it is there, and how far it is.
func TestEventsBeat(t *testing.T) {
	r := newCrier(t, Limits{Beat: time.Millisecond})
	l := listen(t, r.client, r.address+"?namespace=apps")
	r.change("infra", "dns")
	page, err := r.Page(access.Everything, query.BoardQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for beat, at := false, false; !beat || !at; {
		line, err := l.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		beat = beat || strings.HasPrefix(line, ":")
		at = at || line == "id: "+page.Cursor+"\n"
	}
}

// Readers that take nothing cost nothing, and are dropped.
func TestEventsAreNotStoredPerReader(t *testing.T) {
	r := newCrier(t, Limits{UserStreams: 20, Stall: 20 * time.Millisecond})
	for range 20 {
		listen(t, r.client, r.address)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	free := false
	for i := 0; i < 200_000 && !free; i++ {
		r.change("apps", fmt.Sprint("stack-", i%50))
		if i%1000 == 999 {
			free = listen(t, r.client, r.address).resp.StatusCode == http.StatusOK
		}
	}
	if !free {
		t.Error("no place of a reader that takes nothing was given to another")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
}
