package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// holder keeps the next states that it is brought until it is told to go on.
type holder struct {
	command.StackCommands
	mu      sync.Mutex
	holds   int
	entered chan struct{}
	release chan struct{}
}

func (h *holder) PlanPush(_ context.Context, key query.Key, state []byte, _ bool) (command.StateChange, error) {
	h.mu.Lock()
	held := h.holds > 0
	if held {
		h.holds--
	}
	h.mu.Unlock()
	if held {
		h.entered <- struct{}{}
		<-h.release
	}
	return command.StateChange{Key: key, To: stack.StateID{Digest: stack.Digest(string(state))}}, nil
}

// One user who sends states and has the server work on them leaves its memory to others: a
// state has up to 256 MiB, and an unbounded number of them ends the controller for all users.
func TestFewRequestsHoldAStateAtOnce(t *testing.T) {
	auth := newRoles()
	h := &holder{entered: make(chan struct{}), release: make(chan struct{})}
	o := options(auth)
	o.Limits = Limits{UserStates: 2, States: 3, Seat: time.Millisecond}
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: h}, nil }
	u, c := serve(t, o)
	push := func() (*http.Response, error) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, u.String()+"/api/v1/namespaces/apps/stacks/net/state/push?preview=true", strings.NewReader("{}"))
		req.RequestURI = ""
		bearer(req)
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(req)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp, errors.Join(err, resp.Body.Close())
	}
	var held sync.WaitGroup
	hold := func() {
		h.mu.Lock()
		h.holds = 1
		h.mu.Unlock()
		held.Go(func() {
			if resp, err := push(); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("a request with a seat: %v, %v", resp, err)
			}
		})
		<-h.entered
	}
	expect := func(what string, want int) {
		t.Helper()
		resp, err := push()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want || want != http.StatusOK && resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s, Retry-After %q; want %d", what, resp.Status, resp.Header.Get("Retry-After"), want)
		}
	}
	hold()
	expect("a second one of the user", http.StatusOK)
	hold()
	expect("a third one of the user", http.StatusTooManyRequests)
	if resp, said := ask(t, c, http.MethodGet, u.String()+"/api/v1/namespaces/apps/stacks/net/state", bearer); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(said, access.ReasonNoSeat) {
		t.Errorf("reading a state meanwhile: %s %s", resp.Status, said)
	}
	auth.rename("bob")
	expect("one of another user", http.StatusOK)
	hold()
	expect("one more than all seats", http.StatusTooManyRequests)
	close(h.release)
	held.Wait()
	auth.rename("ann")
	expect("when the seats are free again", http.StatusOK)
}

// A request that waits for a seat gets it when another leaves, is told after a while that there
// is none, and stops waiting when it ends.
func TestASeatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seats{each: 1, all: 2, bytes: 10}
		one, err := s.take(t.Context(), "ann", 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.take(t.Context(), "ann", 1, time.Second); fault.Reason(err, "") != access.ReasonNoSeat || fault.Of(err) != fault.Later {
			t.Errorf("a second seat of ann: %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := s.take(ended, "ann", 1, time.Hour); err == nil {
			t.Error("a request that has ended gets a seat")
		}
		const waiting = 20
		order := make(chan *seat, waiting)
		for range waiting {
			go func() {
				one, err := s.take(t.Context(), "ann", 1, time.Hour)
				if err != nil {
					t.Error(err)
				}
				order <- one
			}()
		}
		synctest.Wait()
		for range waiting {
			one.leave()
			synctest.Wait()
			if len(order) != 1 {
				t.Fatalf("%d have a seat when one left, want 1", len(order))
			}
			one = <-order
		}
		one.leave()
		if s.taken != (held{}) || len(s.of) != 0 {
			t.Errorf("when all have left, %+v is taken, %v", s.taken, s.of)
		}
	})
}

// Whatever requests come, they never hold more bytes than all may, no user holds more than half
// beside the first request, and nothing is lost when they leave.
func TestSeatsAreOfBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(1, 100).Draw(t, "most")
		s := &seats{each: 4, all: 8, bytes: most}
		var seated []*seat
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, max(0, len(seated)-1)).Draw(t, "which")
			switch what := rapid.SampledFrom([]string{"take", "take", "shrink", "leave"}).Draw(t, "what"); {
			case what == "take":
				name := rapid.SampledFrom([]string{"ann", "bob", "eve"}).Draw(t, "user")
				bytes := rapid.Int64Range(1, 200).Draw(t, "bytes")
				before := s.taken
				one, _ := s.try(name, min(bytes, most))
				if one != nil {
					seated = append(seated, one)
				} else if before.requests == 0 {
					t.Fatalf("%d bytes of %d find no seat, although all are free", bytes, most)
				}
			case len(seated) == 0:
			case what == "shrink":
				seated[i].shrink(rapid.Int64Range(0, 200).Draw(t, "bytes"))
			default:
				seated[i].leave()
				seated = slices.Delete(seated, i, i+1)
			}
			var all held
			of := map[string]held{}
			for _, one := range seated {
				h := of[one.name]
				of[one.name] = held{h.requests + 1, h.bytes + one.bytes}
				all = held{all.requests + 1, all.bytes + one.bytes}
			}
			if diff := cmp.Diff(of, s.of, cmp.AllowUnexported(held{}), cmpopts.EquateEmpty()); diff != "" || s.taken != all {
				t.Fatalf("taken %+v, want %+v; of users (-want +got):\n%s", s.taken, all, diff)
			}
			if all.bytes > most {
				t.Fatalf("%d bytes are held, and %d may be", all.bytes, most)
			}
			for name, h := range of {
				if h.requests > 1 && h.bytes > most/2 {
					t.Fatalf("%s holds %+v of %d", name, h, most)
				}
			}
		}
	})
}

// Requests that may hold the largest state each have fewer seats where the memory is small. One
// whose answer begins holds what the answer takes.
func TestSeatsFitIntoTheMemory(t *testing.T) {
	auth := newRoles()
	h := &holder{entered: make(chan struct{}), release: make(chan struct{})}
	o := options(auth)
	o.Limits = Limits{StateBytes: 3 * stateBytes, Seat: time.Millisecond}
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: h}, nil }
	u, c := serve(t, o)
	push := func(body io.Reader) (status int, after string) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, u.String()+"/api/v1/namespaces/apps/stacks/net/state/push?preview=true", body)
		req.RequestURI = ""
		bearer(req)
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(req)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		if _, err = io.Copy(io.Discard, resp.Body); errors.Join(err, resp.Body.Close()) != nil {
			t.Error(err)
		}
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	h.holds = 1
	var held sync.WaitGroup
	held.Go(func() {
		if got, _ := push(io.MultiReader(strings.NewReader("{}"))); got != http.StatusOK { // of unknown length
			t.Errorf("a state of unknown length: %d", got)
		}
	})
	<-h.entered
	if got, after := push(strings.NewReader("{}")); got != http.StatusTooManyRequests || after == "" {
		t.Errorf("a second state of one user: %d, Retry-After %q; want 429 in seconds", got, after)
	}
	auth.rename("bob")
	if got, after := push(io.MultiReader(strings.NewReader("{}"))); got != http.StatusTooManyRequests || after == "" {
		t.Errorf("a second one that may have 256 MiB: %d, Retry-After %q; want 429 in seconds", got, after)
	}
	h.mu.Lock()
	h.holds = 0
	h.mu.Unlock()
	close(h.release)
	held.Wait()
	if got, _ := push(io.MultiReader(strings.NewReader("{}"))); got != http.StatusOK {
		t.Errorf("when the memory is free again: %d", got)
	}

	s := &seats{each: 4, all: 16, bytes: 4 * stateBytes}
	one, err := s.take(t.Context(), "ann", copiesHeld*stateBytes, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		header string
		text   string
		want   int64
	}{
		"an answer as a whole":       {"", strings.Repeat("x", 1000), 2000},
		"the first part of a file":   {"600", "x", 1200},
		"a length that is no number": {"much", "xx", 4},
	} {
		one.shrink(0)
		s.add("ann", 0, copiesHeld*stateBytes)
		one.bytes = copiesHeld * stateBytes
		recorder := httptest.NewRecorder()
		ctx, _ := gin.CreateTestContext(recorder)
		if tt.header != "" {
			ctx.Writer.Header().Set("Content-Length", tt.header)
		}
		w := &seatedWriter{ctx.Writer, one}
		for range 2 { // what comes later changes nothing
			if _, err := w.WriteString(tt.text); err != nil {
				t.Fatal(err)
			}
		}
		if one.bytes != tt.want || s.taken.bytes != tt.want {
			t.Errorf("%s: the request holds %d bytes, all hold %d; want %d", name, one.bytes, s.taken.bytes, tt.want)
		}
	}
}

// What a request may hold follows from its row and from the length of its body.
func TestMostHeld(t *testing.T) {
	for name, tt := range map[string]struct {
		body, length, want int64
	}{
		"it reads a state":                {commandBytes, 10, 2 * stateBytes},
		"it brings a small state":         {stateBytes, 10, stateBytes + 10},
		"it brings one of unknown length": {stateBytes, -1, 2 * stateBytes},
		"it brings a large document":      {2 * stateBytes, -1, 3 * stateBytes},
	} {
		if got := mostHeld(route{body: tt.body}, tt.length); got != tt.want {
			t.Errorf("%s: mostHeld() = %d, want %d", name, got, tt.want)
		}
	}
}

// Each route whose body may be a state takes a seat, and so does each operation that reads one.
func TestWhatHoldsAStateTakesASeat(t *testing.T) {
	limits := Limits{}.filled()
	s, err := newServer(options(newRoles()).filled())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range s.routes() {
		registry := strings.HasPrefix(r.path, registryPrefix+"/")
		if r.body >= limits.File && !r.parts && !registry && !r.whole {
			t.Errorf("%s %s takes %d bytes and no seat", r.method, r.path, r.body)
		}
		if r.whole && r.operation.id != "" {
			ids = append(ids, r.operation.id)
		}
	}
	slices.Sort(ids)
	want := []string{"acceptDrift", "acceptState", "decryptState", "encryptState", "getDrift", "getDriftPatch", "getOutgrownState", "getPlan", "getPlanDocument", "getRetainedState", "getState", "getStateFile", "getStateInGit",
		"getStateVersion", "keepOutgrownState", "listInputs", "listResources", "listStates", "pushState", "replaceStateInGit", "rollBackState"}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("operations that take a seat (-want +got):\n%s", diff)
	}
}
