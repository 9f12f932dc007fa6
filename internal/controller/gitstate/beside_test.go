package gitstate

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// patient is how long a pass waits where the test wants the answer, and longer than the test.
const patient = time.Hour

// hanging is a repository whose server takes requests and answers none until it goes on.
type hanging struct {
	*repository
	mu    sync.Mutex
	gate  chan struct{} // closed while the server answers
	asked chan struct{} // gets one for each request that hangs
}

func newHanging(t *testing.T) *hanging {
	t.Helper()
	h := &hanging{repository: newRepository(t), gate: make(chan struct{}), asked: make(chan struct{}, 100)}
	close(h.gate)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h.mu.Lock()
		gate := h.gate
		h.mu.Unlock()
		select {
		case <-gate:
		default:
			h.asked <- struct{}{}
			select {
			case <-gate:
			case <-q.Context().Done():
				return
			}
		}
		h.ServeHTTP(w, q)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(h.goOn) // before the server is closed, which waits for its requests
	h.URL = front.URL + "/repository.git"
	h.ref = h.of("net")
	return h
}

// hang has the server answer nothing from now on.
func (h *hanging) hang() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = make(chan struct{})
}

func (h *hanging) goOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.gate:
	default:
		close(h.gate)
	}
}

// watched is a Beside whose clock the test sets, and that keeps what it wakes.
type watched struct {
	*Beside
	now   *testkit.Ledger
	woken chan string
}

func beside(t *testing.T, s *States, patience time.Duration) *watched {
	t.Helper()
	w := &watched{Beside: NewBeside(s), now: testkit.NewLedger(time.Unix(1700000000, 0)), woken: make(chan string, 100)}
	s.Now, w.patience = w.now.Now, patience
	w.Wake = func(_ context.Context, place string) { w.woken <- place }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// waits sets how long a pass waits.
func (w *watched) waits(long time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patience = long
}

// unanswered fails unless an error says of a stack that its server does not answer.
func unanswered(t *testing.T, what string, err error) {
	t.Helper()
	if fault.Of(err) != fault.Later || fault.Reason(err, "") != string(stack.StateFailed) || !strings.Contains(err.Error(), "the git server 127.0.0.1:") || !strings.Contains(err.Error(), "has not answered in time since 2023-11-14T22:13:20Z") {
		t.Errorf("%s ends with %v, want that the git server does not answer", what, err)
	}
}

// What a server keeps that answers is read and stored within the pass.
func TestAServerThatAnswersInTime(t *testing.T) {
	r := newRepository(t)
	b := beside(t, r.controller(t), patient)
	if err := b.Save(t.Context(), r.ref, owner, stateOf(1, "")); err != nil {
		t.Fatal(err)
	}
	if found, err := b.Load(t.Context(), r.ref); err != nil || !bytes.Equal(found.State, stateOf(1, "")) {
		t.Errorf("Load() = %s, %v", found.State, err)
	}
	if err := b.Replace(t.Context(), r.ref, kube.Replacement{State: stateOf(2, ""), Over: stack.Sum(stateOf(1, "")), Owner: owner, Person: "ann"}); err != nil {
		t.Fatal(err)
	}
	r.out.Store(true) // and so is its failure
	if _, err := b.Load(t.Context(), r.ref); fault.Of(err) != fault.Later || strings.Contains(err.Error(), "in time") {
		t.Errorf("Load() of a server that is out = %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.servers) != 0 || len(b.woken) != 0 {
		t.Errorf("remembered are %v, and %d stacks are woken, want none", b.servers, len(b.woken))
	}
}

// A git server that hangs has a pass wait once, and not for long. Other passes do not wait for
// it, and states elsewhere are read. The stacks are woken when it answers.
func TestAServerThatHangs(t *testing.T) {
	h := newHanging(t)
	s := h.controller(t)
	save(t, s, h.ref, stateOf(1, ""))
	h.hang()
	b := beside(t, s, time.Millisecond)
	_, err := b.Load(t.Context(), h.ref)
	unanswered(t, "the first pass", err)
	<-h.asked

	b.waits(patient) // from here on a pass that waits outlasts the test
	_, err = b.Load(t.Context(), h.ref)
	unanswered(t, "another pass of the same stack", err)
	unanswered(t, "a pass that stores", b.Save(t.Context(), h.ref, owner, stateOf(2, "")))
	for i := range 2 * slowAtOnce {
		_, err := b.Load(t.Context(), h.of(fmt.Sprintf("other-%d", i)))
		unanswered(t, "a pass of another stack", err)
	}
	for range slowAtOnce - 1 {
		<-h.asked
	}
	if n := len(h.asked); n != 0 {
		t.Errorf("the server has %d more requests, want %d at once", n, slowAtOnce)
	}

	healthy := newRepository(t)
	save(t, s, healthy.ref, stateOf(7, ""))
	if found, err := b.Load(t.Context(), healthy.ref); err != nil || !bytes.Equal(found.State, stateOf(7, "")) {
		t.Errorf("Load() of another server = %s, %v", found.State, err)
	}

	h.goOn()
	var woken []string
	for range 2*slowAtOnce + 1 {
		woken = append(woken, <-b.woken)
	}
	if place := h.ref.Git.Key(h.ref.Namespace); !slices.Contains(woken, place) {
		t.Errorf("woken are %q, want %s among them", woken, place)
	}
	testkit.Eventually(t, testkit.Patience, "the state is stored", func(ctx context.Context) error {
		return b.Save(ctx, h.ref, owner, stateOf(2, "")) // unless a call of before goes on
	})
	if found, err := b.Load(t.Context(), h.ref); err != nil || !bytes.Equal(found.State, stateOf(2, "")) {
		t.Errorf("Load() = %s, %v", found.State, err)
	}
	h.clear(t)
}

// What a slow call ended with is told, and the call after it is short: what was fetched is known.
func TestAServerThatIsSlow(t *testing.T) {
	h := newHanging(t)
	s := h.controller(t)
	save(t, s, h.ref, stateOf(1, ""))
	b := beside(t, h.controller(t), time.Millisecond)
	settled := func(slow bool) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, "the call ended", func(context.Context) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if of := b.servers[strings.TrimSuffix(strings.TrimPrefix(h.URL, "http://"), "/repository.git")]; slow && (of == nil || len(of.asked) > 0) || !slow && of != nil {
				return fmt.Errorf("known are %+v", b.servers)
			}
			return nil
		})
	}
	h.hang()
	_, err := b.Load(t.Context(), h.ref)
	unanswered(t, "the first pass", err)
	<-h.asked
	b.now.Pass(time.Minute) // so long it takes
	h.goOn()
	settled(true)
	if _, err = b.Load(t.Context(), h.ref); err != nil { // it asks, and does not wait; it may have the answer all the same
		unanswered(t, "the second pass", err)
	}
	if place := <-b.woken; place != h.ref.Git.Key(h.ref.Namespace) {
		t.Errorf("woken is %s", place)
	}
	settled(false)
	b.waits(patient)
	if found, err := b.Load(t.Context(), h.ref); err != nil || !bytes.Equal(found.State, stateOf(1, "")) {
		t.Errorf("Load() = %s, %v", found.State, err)
	}

	h.objects["Secret push"] = &corev1.Secret{Data: map[string][]byte{"username": []byte("reader"), "password": []byte("wrong")}}
	b.waits(time.Millisecond)
	h.hang()
	_, err = b.Load(t.Context(), h.ref)
	if fault.Of(err) != fault.Later {
		t.Errorf("with other credentials: %v", err)
	}
	<-h.asked
	b.now.Pass(time.Minute)
	h.goOn()
	settled(true)
	h.hang()
	if _, err := b.Load(t.Context(), h.ref); fault.Of(err) != fault.Later || !strings.Contains(err.Error(), "secretRef") {
		t.Errorf("after the server refused them: %v, want it told", err)
	}
	<-h.asked
	h.goOn()
}

// What no stack asks for is forgotten: servers, and the turns of writers.
func TestServersAreForgotten(t *testing.T) {
	h := newHanging(t)
	s := h.controller(t)
	save(t, s, h.ref, stateOf(1, ""))
	if n := len(s.writing.of); n != 0 {
		t.Errorf("%d repositories are remembered that no state is stored in", n)
	}
	h.hang()
	b := beside(t, s, time.Millisecond)
	_, err := b.Load(t.Context(), h.ref)
	unanswered(t, "a pass", err)
	<-h.asked
	b.now.Pass(time.Minute)
	h.goOn()
	testkit.Eventually(t, testkit.Patience, "the call ended", func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, of := range b.servers {
			if len(of.asked) > 0 {
				return fmt.Errorf("the server is asked for %v", of.asked)
			}
		}
		return nil
	})
	b.now.Pass(rememberSlow + time.Second)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server("another.example.org", b.now.Now()); len(b.servers) != 1 {
		t.Errorf("known are %v, want the other server alone", b.servers)
	}
}

// Writers of one repository take turns, and one that gives up holds up no other.
func TestTurns(t *testing.T) {
	var all turns
	done, err := all.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := all.take(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.take(ended, "a"); err == nil {
		t.Error("two have the turn")
	}
	got := make(chan struct{})
	go func() {
		defer close(got)
		second, err := all.take(t.Context(), "a")
		if err != nil {
			t.Error(err)
			return
		}
		second()
	}()
	done()
	<-got
	if len(all.of) != 0 {
		t.Errorf("remembered are %v", all.of)
	}
}
