package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// running is a run whose log the test writes.
type running struct {
	mu    sync.Mutex
	log   []byte
	ended bool
}

func (r *running) write(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, text...)
}

func (r *running) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

func (r *running) Current(string) (*runner.Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := runner.Report{ID: "plan-1", Phase: runner.Planning}
	if r.ended {
		report.Phase, report.Outcome, report.Message = runner.Done, stack.Failed, "no quota"
	}
	return &report, nil
}

func (r *running) Open(_, run, _ string) (io.ReadCloser, error) {
	if run != "plan-1" {
		return nil, fault.New(fault.Missing, "FileMissing", errors.New("nothing"))
	}
	return &part{run: r}, nil
}

// part is the open log of a run.
type part struct {
	run *running
	at  int
}

func (p *part) Read(b []byte) (int, error) {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	n := copy(b, p.run.log[p.at:])
	if p.at += n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (*part) Close() error { return nil }

// counting counts how often a log is followed.
type counting struct {
	estate
	followed *atomic.Int32
}

func (c counting) Log(ctx context.Context, key query.Key, run string, o query.LogOptions) (io.ReadCloser, error) {
	if o.Follow {
		c.followed.Add(1)
	}
	return c.estate.Log(ctx, key, run, o)
}

func (c counting) Run(ctx context.Context, key query.Key, run string) (query.Report, error) {
	if run == "" {
		run = "plan-1"
	}
	return c.estate.Run(ctx, key, run)
}

const logPath = "/api/v1/namespaces/apps/stacks/net/runs/plan-1/log"

func serveLog(t *testing.T, live *running, limits Limits) (address string, c *http.Client, followed *atomic.Int32) {
	t.Helper()
	followed = &atomic.Int32{}
	o := options(newRoles())
	o.Limits = limits
	o.Stacks = counting{estate{records: query.NewBlobs(nothing{}, live, time.Millisecond)}, followed}
	u, c := serve(t, o)
	return u.String() + logPath, c, followed
}

func TestLogIsToldByLines(t *testing.T) {
	live := &running{}
	address, c, _ := serveLog(t, live, Limits{})
	live.write("first\nsec")
	l := listen(t, c, address)
	got := l.expect(1)
	live.write("ond\n\nevent: evil\ndata: <script>\rover\r\nlast \xff\x00")
	live.end()
	got = append(got, l.expect(6)...)
	want := []event{
		{"", "6", "first"}, {"", "13", "second"}, {"", "14", ""}, {"", "26", "event: evil"},
		{"", "47", "data: <script>\nover"}, {"", "54", "last \ufffd\ufffd"},
		{"end", "54-end", `{"run":"plan-1","outcome":"` + string(stack.Failed) + `","message":"no quota"}`},
	}
	if diff := cmp.Diff(got, want, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
	if _, err := l.next(); err != io.EOF {
		t.Errorf("after the end comes %v", err)
	}
	again := listen(t, c, address, from("14")).expect(4)
	if diff := cmp.Diff(again, want[3:], cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("from a line on (-got +want):\n%s", diff)
	}
	if got := listen(t, c, address+"?after=47").expect(1); got[0] != want[5] {
		t.Errorf("from a place on comes %+v", got)
	}
	if resp := listen(t, c, address, from("54-end")).resp; resp.StatusCode != http.StatusNoContent {
		t.Errorf("after its end a log is %s, want 204 so that a browser does not come back", resp.Status)
	}
	for _, bad := range []string{"x", "-1", "1.5"} {
		if resp := listen(t, c, address, from(bad)).resp; resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("from %s: %s, want 422", bad, resp.Status)
		}
	}
}

// A client that follows the newest run and reconnects continues with the same run,
// although another one is the newest by then.
func TestNewestLogIsGoneOnWith(t *testing.T) {
	live := &running{}
	address, c, _ := serveLog(t, live, Limits{})
	live.write("first\nsecond\n")
	live.end()
	newest := strings.Replace(address, "/plan-1/", "/newest/", 1)
	end := event{"end", "plan-1:13-end", `{"run":"plan-1","outcome":"` + string(stack.Failed) + `","message":"no quota"}`}
	want := []event{{"", "plan-1:6", "first"}, {"", "plan-1:13", "second"}, end}
	if diff := cmp.Diff(listen(t, c, newest).expect(3), want, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(listen(t, c, newest, from("plan-1:6")).expect(2), want[1:], cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("from a line on (-got +want):\n%s", diff)
	}
	if resp := listen(t, c, newest, from("plan-0:6")).resp; resp.StatusCode != http.StatusNotFound {
		t.Errorf("from a run that is not kept: %s, want 404", resp.Status)
	}
	if resp, body := ask(t, c, http.MethodGet, address+"?follow=true&after=6", bearer); resp.StatusCode != http.StatusOK || body != "second\n" {
		t.Errorf("as text from a place on: %s %q, want the rest", resp.Status, body)
	}
}

// A client that asks for the times of the lines gets them in each form of the log, and
// resumes where it was: positions are of the form that it asked for.
func TestLogIsToldWithItsTimes(t *testing.T) {
	const at = "2026-03-14T15:09:26.535Z "
	live := &running{}
	address, c, _ := serveLog(t, live, Limits{})
	live.write(at + "first\n" + at + "second\n")
	plain := listen(t, c, address)
	if diff := cmp.Diff(plain.expect(2), []event{{"", "6", "first"}, {"", "13", "second"}}, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("events without times (-got +want):\n%s", diff)
	}
	timed := address + "?timestamps=true"
	want := []event{{"", "31", at + "first"}, {"", "63", at + "second"}, {"", "94", at + "third"}}
	first := listen(t, c, timed)
	got := first.expect(2)
	live.write(at + "third\n")
	live.end()
	got = append(got, first.expect(1)...)
	if diff := cmp.Diff(got, want, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("events with times (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(listen(t, c, timed, from("31")).expect(2), want[1:], cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("from a line on (-got +want):\n%s", diff)
	}
	for params, want := range map[string]string{
		"": "first\nsecond\nthird\n", "?timestamps=true": at + "first\n" + at + "second\n" + at + "third\n",
		"?follow=true&after=6": "second\nthird\n", "?follow=true&timestamps=true&after=31": at + "second\n" + at + "third\n",
	} {
		if resp, body := ask(t, c, http.MethodGet, address+params, bearer); resp.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: %s %q, want %q", params, resp.Status, body, want)
		}
	}
	if resp, _ := ask(t, c, http.MethodGet, address+"?timestamps=perhaps", bearer); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("?timestamps=perhaps: %s, want 422", resp.Status)
	}
}

// However many follow a run, it is looked at once for all of them.
func TestFollowersShareOneReader(t *testing.T) {
	live := &running{}
	address, c, followed := serveLog(t, live, Limits{Streams: 300, UserStreams: 300})
	live.write("begun\n")
	const readers = 200
	var all []*listener
	for range readers {
		all = append(all, listen(t, c, address))
	}
	for i := range 100 {
		live.write(strings.Repeat("x", i) + "\n")
	}
	live.end()
	var wait sync.WaitGroup
	for _, l := range all {
		wait.Go(func() {
			lines := 0
			for {
				e, err := l.next()
				if err != nil || e.name == "end" {
					break
				}
				lines++
			}
			if lines != 101 {
				t.Errorf("a reader got %d lines, want 101", lines)
			}
		})
	}
	wait.Wait()
	if n := followed.Load(); n != 1 {
		t.Errorf("the log was followed %d times for %d readers, want once", n, readers)
	}
}

// A reader that is slow gets everything, and nothing is kept for it: what has
// left the memory it reads from the log.
func TestSlowFollowerGetsEverything(t *testing.T) {
	live := &running{}
	var whole strings.Builder
	for i := 0; whole.Len() < 5*tailBytes; i++ {
		whole.WriteString(strings.Repeat(string(rune('a'+i%26)), 1+i%300) + "\n")
	}
	records := query.NewBlobs(nothing{}, live, time.Millisecond)
	at := estate{records: records}
	ts := &tails{follow: func(ctx context.Context, of tailed) (io.ReadCloser, error) {
		return at.Log(ctx, of.key, of.run, query.LogOptions{Follow: true})
	}}
	key := query.Key{Namespace: "apps", Name: "net"}
	it, leave := ts.join(tailed{key: key, run: "plan-1"})
	defer leave()
	f := &follower{tail: it, log: func() (io.ReadCloser, error) { return at.Log(t.Context(), key, "plan-1", query.LogOptions{}) }}
	var got bytes.Buffer
	buf := make([]byte, 10_000)
	rest := whole.String()
	for {
		if len(rest) > 0 {
			n := min(len(rest), 3*len(buf)) // it is written faster than it is read
			live.write(rest[:n])
			if rest = rest[n:]; rest == "" {
				live.end()
			}
		}
		n, wait, err := f.next(buf)
		got.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			<-wait
		}
		it.mu.Lock()
		held := cap(it.window)
		it.mu.Unlock()
		if held > 4*tailBytes {
			t.Fatalf("%d bytes are in memory", held)
		}
	}
	if got.String() != whole.String() {
		t.Errorf("read %d bytes, want the %d that were written", got.Len(), whole.Len())
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

// FuzzLineEvents holds that whatever a log holds, and however it comes, what is
// made of it is the same events with nothing but fields in them.
func FuzzLineEvents(f *testing.F) {
	f.Add([]byte("one\ntwo\r\nevent: end\ndata: x\n\n: y\nid: 7\r\rlast"), uint64(1))
	f.Add([]byte(strings.Repeat("ä", lineBytes)), uint64(2))
	f.Add([]byte(strings.Repeat("x", 3*lineBytes)+"\nend\n"), uint64(3))
	f.Add([]byte("\x00\xff\xfe\u2028\n"), uint64(3))
	f.Fuzz(func(t *testing.T, log []byte, seed uint64) {
		whole, pieces := &lineEvents{}, &lineEvents{}
		whole.add(log)
		whole.rest()
		random := rand.New(rand.NewPCG(seed, 1))
		for rest := log; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			pieces.add(rest[:n])
			rest = rest[n:]
		}
		pieces.rest()
		if whole.at != int64(len(log)) {
			t.Errorf("the last event ends at %d, want %d", whole.at, len(log))
		}
		out := whole.take()
		if !bytes.Equal(out, pieces.take()) {
			t.Error("what comes in pieces is told otherwise")
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\n"), "\n") {
			field, _, _ := strings.Cut(line, ": ")
			if field != "data" && field != "id" && line != "" || strings.ContainsAny(line, "\r\x00") {
				t.Fatalf("%.80q is no line of ours", line)
			}
		}
	})
}
