package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// severed is a controller whose way to the API server can be made to go wrong.
// The test itself goes to the server directly.
type severed struct {
	*testkit.Cluster
	controller *testkit.Platform
	way        *testkit.Proxy
}

func sever(t *testing.T) *severed {
	t.Helper()
	s := &severed{Cluster: testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme)}
	var behind *testkit.Cluster
	s.way, behind = s.Proxy(t)
	var err error
	s.controller, err = testkit.NewPlatform(testkit.PlatformOptions{
		Dir: filepath.Join(t.TempDir(), "platform"), Cluster: behind, Cold: true,
		Flags: []string{"--lease", "", "--sources=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	witness := s.Witness(t, s.controller)
	t.Cleanup(func() {
		s.way.Fault()
		if t.Failed() {
			t.Logf("%s\nthe controller said:\n%s", s.Story(), s.controller.Log())
		}
		if _, err := s.controller.Stop(); err != nil {
			t.Errorf("ending the controller: %v", err)
		}
		witness.Collect() // what is on disk goes with the controller
		witness.CatchUp()
		witness.Judge(false)
		if err := s.controller.Close(); err != nil {
			t.Errorf("clearing up after the controller: %v", err)
		}
		s.Abandon(t)
	})
	if err := s.controller.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// answers is the status with which the controller's HTTP API answers.
func (s *severed) answers(t *testing.T, path string) int {
	t.Helper()
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: testkit.Patience}
	defer insecure.CloseIdleConnections()
	resp, err := insecure.Get(s.controller.HTTP + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// F19: while the API server is away for ten seconds, an apply goes on to its end and
// a person changes their mind. No process ends, and the work of the meantime is
// written once the server is back; nothing is done twice.
func TestAPIServerIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*testkit.Proxy){
		"refusing":  (*testkit.Proxy).Down,
		"listening": func(p *testkit.Proxy) { p.Fault(testkit.ProxyFault{Hold: true}); p.HangUp() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sever(t)
			w := s.controller.World(t)
			w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hold"})
			s.Apply(t, inline("stack", slowly, chain(w, "first", "a", "b", "c")))
			w.Await(t.Context(), begun("create", "b"))
			s.awaitAnswer(t, "/readyz", http.StatusOK)
			away(s.way)
			s.Apply(t, inline("stack", slowly, chain(w, "second", "a", "b", "c")))
			w.Fault()
			noRuns(t, s.controller)
			made(t, w, "a", "b", "c")
			s.awaitAnswer(t, "/readyz", http.StatusServiceUnavailable)
			if alive := s.answers(t, "/healthz"); alive != http.StatusOK {
				t.Errorf("/healthz answers %d, want 200", alive)
			}
			s.way.Fault()
			s.AwaitReady(t, "stack")
			for _, name := range []string{"a", "b", "c"} {
				if all := w.Named(name); len(all) != 1 || *all[0].Value != "second" || began(w, "create", name) != 1 || began(w, "update", name) != 1 {
					t.Errorf("the world holds %+v after %d creates and %d updates of %s", all, began(w, "create", name), began(w, "update", name), name)
				}
			}
			s.awaitAnswer(t, "/readyz", http.StatusOK)
			verify(t, s.Cluster, w, "stack")
		})
	}
}

// awaitAnswer waits until the controller's HTTP API answers with a status: it looks for the API
// server now and then.
func (s *severed) awaitAnswer(t *testing.T, path string, want int) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, fmt.Sprintf("%s answers %d", path, want), func(context.Context) error {
		if is := s.answers(t, path); is != want {
			return fmt.Errorf("it answers %d", is)
		}
		return nil
	})
}

// eachOf matches the first n requests of each method and path that match does.
func eachOf(n int, match func(*http.Request) bool) func(*http.Request) bool {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(r *http.Request) bool {
		if !match(r) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		key := r.Method + " " + r.URL.Path
		seen[key]++
		return seen[key] <= n
	}
}

func changing(r *http.Request) bool {
	return r.Method == http.MethodPut || r.Method == http.MethodPatch
}

const full = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: mvcc: database space exceeded","code":500}`

// F20: whatever the API server says to writes, they are made in the end, and no
// work is done again because of it.
func TestAPIServerRefusesWrites(t *testing.T) {
	t.Parallel()
	s := sever(t)
	for name, fault := range map[string]testkit.ProxyFault{
		"too many requests":      {Match: eachOf(2, testkit.Writing()), Status: http.StatusTooManyRequests},
		"a conflict":             {Match: eachOf(3, changing), Status: http.StatusConflict},
		"an error":               {Match: eachOf(2, testkit.Writing()), Status: http.StatusInternalServerError},
		"done, but nobody hears": {Match: eachOf(1, testkit.Writing()), Lose: true},
		"slow":                   {Delay: 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			w := s.controller.World(t)
			s.way.Fault(fault)
			stack := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			s.Apply(t, inline(stack, own(stack), chain(w, "x", "a", "b")))
			s.AwaitReady(t, stack)
			if struck := s.way.Struck()[0]; struck == 0 {
				t.Error("the fault never struck")
			}
			s.way.Fault()
			s.onePlanOneApply(t, w, stack)
		})
	}
	// The storage stays full until a user acts. A run that ends meanwhile keeps its
	// results.
	t.Run("its storage is full", func(t *testing.T) {
		w := s.controller.World(t)
		w.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "hold"})
		s.Apply(t, inline("full", own("full"), chain(w, "x", "a", "b")))
		w.Await(t.Context(), begun("create", "a"))
		s.way.Fault(testkit.ProxyFault{Match: testkit.Writing(), Status: http.StatusInternalServerError, Body: full, Header: http.Header{"Content-Type": {"application/json"}}})
		w.Fault()
		noRuns(t, s.controller)
		testkit.Eventually(t, testkit.Patience, "it was tried more than once", func(context.Context) error {
			if n := s.way.Struck()[0]; n < 3 {
				return fmt.Errorf("%d refusals", n)
			}
			return nil
		})
		s.way.Fault()
		s.AwaitReady(t, "full")
		s.onePlanOneApply(t, w, "full")
	})
}

// own is slowly, with a Secret of its own for the outputs of each stack.
func own(stack string) string { return strings.Replace(slowly, "{name: out}", "{name: "+stack+"}", 1) }

// onePlanOneApply expects a stack of a and b to have cost no more than that.
func (s *severed) onePlanOneApply(t *testing.T, w *testkit.World, name string) {
	t.Helper()
	made(t, w, "a", "b")
	if a, b := began(w, "create", "a"), began(w, "create", "b"); a != 1 || b != 1 {
		t.Errorf("a was made %d times and b %d times", a, b)
	}
	verify(t, s.Cluster, w, name)
}

// F21: of a watch that is cut, that says nothing, or whose place in history is
// gone, nothing is missed: everything is listed again.
func TestWatchesAreCut(t *testing.T) {
	t.Parallel()
	s := sever(t)
	w := s.controller.World(t)
	s.Apply(t, inline("changed", slowly, things(w, "first", "a")))
	s.Apply(t, inline("deleted", kept, things(w, "first", "b")))
	s.AwaitReady(t, "changed")
	s.AwaitReady(t, "deleted")

	s.way.Fault(testkit.ProxyFault{Match: testkit.Watching, Hold: true})
	s.way.HangUp()
	s.Apply(t, inline("changed", slowly, things(w, "second", "a")))
	s.Apply(t, inline("new", own("new"), things(w, "first", "c")))
	s.Delete(t, "deleted")
	testkit.Eventually(t, testkit.Patience, "every watch is held", func(context.Context) error {
		if n := s.way.Struck()[0]; n < 5 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	if len(w.Things()) != 2 {
		t.Errorf("the world holds %+v; the events came through", w.Things())
	}
	gone := testkit.ProxyFault{Match: eachOf(1, testkit.Watching), Status: http.StatusGone}
	s.way.Fault(gone)
	s.AwaitReady(t, "changed")
	s.AwaitReady(t, "new")
	s.AwaitGone(t, "deleted")
	made(t, w, "a", "c")
	if all := w.Named("a"); *all[0].Value != "second" {
		t.Errorf("a is %q, want what was asked for last", *all[0].Value)
	}

	// A line that is cut again and again still lets through what happens.
	s.way.Fault()
	ctx, stop := context.WithCancel(t.Context())
	var cutting sync.WaitGroup
	cutting.Go(func() {
		// Each time a little later: a machine may be too busy for an answer between two cuts.
		for pause := 100 * time.Millisecond; ctx.Err() == nil; pause += pause / 20 {
			s.way.HangUp()
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
	s.Apply(t, inline("changed", slowly, things(w, "third", "a")))
	s.AwaitReady(t, "changed")
	stop()
	cutting.Wait()
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "third" {
		t.Errorf("the world holds %+v, want one a of the third kind", all)
	}
	for _, problem := range s.Oracle(t, w, "changed", "new") {
		t.Error(problem)
	}
}
