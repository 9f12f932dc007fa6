package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

func TestServerThatIsDownForAWhileGetsEverythingInOrder(t *testing.T) {
	r := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n <= 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	l := newLab(t, to(Generic, r), host(r))
	run(t, l.Dispatcher)
	for n := range 3 {
		l.Notify(event(n))
	}
	done := awaitOutcome(t, l.Dispatcher, Delivered, 3)
	slices.SortFunc(done, func(a, b Delivery) int { return strings.Compare(a.ID, b.ID) })
	if done[0].Attempts != 3 || done[1].Attempts != 1 || done[0].Error != "" || done[0].Address != host(r) {
		t.Errorf("the history is %+v; want three attempts for the first and one for the second", done)
	}
	var plans []string
	for _, got := range r.requests() {
		var e Event
		if err := json.Unmarshal(got.body, &e); err != nil {
			t.Fatal(err)
		}
		plans = append(plans, e.Metadata["plan"])
	}
	if want := []string{"plan-main-0", "plan-main-0", "plan-main-0", "plan-main-1", "plan-main-2"}; !slices.Equal(plans, want) {
		t.Errorf("it was sent %v, want %v", plans, want)
	}
	if left := l.outbox(t); len(left) > 0 {
		t.Errorf("the outbox holds %v after all was delivered", left)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	r := receive(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	l := newLab(t, to(Generic, r), host(r))
	run(t, l.Dispatcher)
	before := time.Now()
	l.Notify(event(1))
	l.Notify(event(2)) // of the same queue: it waits too
	d := awaitOutcome(t, l.Dispatcher, Retrying, 1)[0]
	if wait := d.NextAt.Sub(before); wait < 2*time.Minute || wait > 3*time.Minute {
		t.Errorf("the next attempt comes after %s, want two minutes", wait)
	}
	if n := len(r.requests()); n != 1 {
		t.Errorf("it was asked %d times, want once", n)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "99999999999": time.Hour, "soon": 0, "Sun, 01 Mar 2026 12:00:30 GMT": 30 * time.Second, "Sun, 01 Mar 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("retryAfter(%q) = %s, want %s", header, got, want)
		}
	}
}

func TestServerThatHangsIsLeftInTime(t *testing.T) {
	hang := make(chan struct{})
	r := receive(t, func(_ int, _ http.ResponseWriter, req *http.Request) {
		select {
		case <-hang:
		case <-req.Context().Done():
		}
	})
	defer close(hang)
	d := to(Generic, r)
	d.Timeout = 30 * time.Millisecond
	l := newLab(t, d, host(r))
	run(t, l.Dispatcher)
	l.Notify(event(1))
	got := awaitOutcome(t, l.Dispatcher, Retrying, 1)[0]
	if got.Error != "it did not answer in time" {
		t.Errorf("the error is %q", got.Error)
	}
}

func TestWhatWasAcceptedOutlivesTheProgram(t *testing.T) {
	r := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	l := newLab(t, to(Generic, r), host(r))
	l.Options.Pause = func(int) time.Duration { return time.Hour }
	stop := run(t, l.Dispatcher)
	l.Notify(event(1))
	l.Notify(event(2))
	awaitOutcome(t, l.Dispatcher, Retrying, 1)
	for len(l.outbox(t)) < 2 { // the second is accepted in a moment
		if t.Context().Err() != nil {
			t.Fatal("the outbox never held two messages")
		}
	}
	stop()
	again := l.dispatcher(t, host(r))
	run(t, again)
	done := awaitOutcome(t, again, Delivered, 2)
	if bodies := r.await(t, 3); string(bodies[0].body) != string(bodies[1].body) {
		t.Errorf("after the restart it was sent\n%s\nwant\n%s", bodies[1].body, bodies[0].body)
	}
	if len(again.Deliveries()) != 2 {
		t.Errorf("the history is %+v, want the two that were delivered, each once", done)
	}
	if left := l.outbox(t); len(left) > 0 {
		t.Errorf("the outbox holds %v", left)
	}
}

func TestMessageThatCannotBeReadDoesNotHoldUpTheOthers(t *testing.T) {
	r := receive(t, nil)
	l := newLab(t, to(Generic, r), host(r))
	if err := l.store.Put(context.Background(), record.OutboxMessage("0-broken"), strings.NewReader("{")); err != nil {
		t.Fatal(err)
	}
	run(t, l.Dispatcher)
	l.Notify(event(1))
	awaitOutcome(t, l.Dispatcher, Delivered, 1)
	if left := l.outbox(t); len(left) > 0 {
		t.Errorf("the outbox holds %v", left)
	}
}

func TestWhatWillNotGetBetterIsGivenUp(t *testing.T) {
	r := receive(t, status(http.StatusGone))
	for name, change := range map[string]func(*lab){
		"refused":       func(*lab) {},
		"no provider":   func(l *lab) { l.toErr = errNoProvider },
		"unknown type":  func(l *lab) { l.to.Type = "pager" },
		"not a address": func(l *lab) { l.to.Address = to("", r).Address; l.to.PlainHTTP = false },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, to(Generic, r), host(r))
			change(l)
			run(t, l.Dispatcher)
			l.Notify(event(1))
			d := awaitOutcome(t, l.Dispatcher, Failed, 1)[0]
			if d.Attempts != 1 || d.Error == "" {
				t.Errorf("the history has %+v, want one attempt and why", d)
			}
			if left := l.outbox(t); len(left) > 0 {
				t.Errorf("the outbox holds %v", left)
			}
		})
	}
}

// An address of this machine is refused although a provider names it, and the
// error tells nothing of the path, which is what lets one in.
func TestAddressesOfThisMachineAreRefused(t *testing.T) {
	r := receive(t, nil)
	l := newLab(t, to(Slack, r)) // nothing is allowed
	run(t, l.Dispatcher)
	l.Notify(event(1))
	d := awaitOutcome(t, l.Dispatcher, Failed, 1)[0]
	if len(r.requests()) > 0 || !strings.Contains(d.Error, "loopback") {
		t.Errorf("it was asked %d times, and the error is %q; want none, and why", len(r.requests()), d.Error)
	}
	if all := fmt.Sprintf("%+v", l.Deliveries()); strings.Contains(all, canary) {
		t.Errorf("the history shows a secret: %s", all)
	}
}

// What servers answer may hold what they were sent.
func TestErrorsShowNoSecrets(t *testing.T) {
	r := receive(t, func(_ int, w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "no %s for %s\x1b[2J", req.Header.Get("Authorization"), req.URL.Path)
	})
	l := newLab(t, to(Generic, r), host(r))
	run(t, l.Dispatcher)
	l.Notify(event(1))
	d := awaitOutcome(t, l.Dispatcher, Failed, 1)[0]
	if strings.Contains(d.Error, canary) || strings.Contains(d.Error, "\x1b") || !strings.Contains(d.Error, "403") {
		t.Errorf("the error is %q", d.Error)
	}
}

func TestTheSameIsSentOnce(t *testing.T) {
	r := receive(t, nil)
	l := newLab(t, to(Generic, r), host(r))
	run(t, l.Dispatcher)
	for range 5 {
		l.Notify(event(1))
	}
	l.Notify(event(2))
	awaitOutcome(t, l.Dispatcher, Delivered, 2)
	dropped := awaitOutcome(t, l.Dispatcher, Dropped, 1)
	if len(r.requests()) != 2 || len(dropped) != 1 || !strings.HasPrefix(dropped[0].Error, "an equal message was sent at ") {
		t.Errorf("%d messages came, and %+v were dropped; want two, and one entry for all repetitions", len(r.requests()), dropped)
	}
}

// More than may wait: errors stay, of the others the oldest go, and the history
// says so.
func TestOldestInfoGoesFirst(t *testing.T) {
	l := newLab(t, Destination{})
	ctx := t.Context()
	bad := event(-1)
	bad.Severity = Error
	l.accept(ctx, bad)
	for n := range waiting + 1 {
		l.accept(ctx, event(n))
	}
	var gone []string
	for _, d := range l.Deliveries() {
		if d.Outcome == Dropped {
			gone = append(gone, d.Message)
		}
	}
	if want := []string{event(0).Message, event(1).Message}; !slices.Equal(gone, want) {
		t.Errorf("dropped are %v, want %v", gone, want)
	}
	if kept := l.outbox(t); len(kept) != waiting {
		t.Errorf("the outbox holds %d messages, want %d", len(kept), waiting)
	}
}

// A namespace that sends more than may wait loses its own messages, and none of another, however
// urgent its own are.
func TestANamespaceLosesNoMessageToAnother(t *testing.T) {
	l := newLab(t, Destination{})
	l.accept(t.Context(), event(0))
	l.routes = []Route{{Namespace: "loud", Provider: "one"}, {Namespace: "loud", Provider: "two"}}
	for n := range waiting/2 + 1 {
		e := event(n + 1)
		e.Severity = Error
		l.accept(t.Context(), e)
	}
	dropped := 0
	for _, d := range l.Deliveries() {
		if d.Outcome == Dropped {
			dropped++
			if d.Message == event(0).Message {
				t.Error("the message of the other namespace was dropped")
			}
		}
	}
	if dropped != 3 {
		t.Errorf("%d messages were dropped, want 3", dropped)
	}
}

// So it is with the messages to Flux's controller, which have one queue for all namespaces: those of
// a namespace that sends too much while that controller is down take no place of another one.
func TestANamespaceLosesNoMessageToFluxToAnother(t *testing.T) {
	l := newLab(t, Destination{})
	l.Options.Upstream = func(context.Context, Event) error { return errors.New("it is down") }
	l.routes = nil
	of := func(namespace string, n int) Event {
		e := event(n)
		e.InvolvedObject.Namespace = namespace
		return e
	}
	const others = 5
	for n := range others {
		l.accept(t.Context(), of(fmt.Sprint("quiet-", n), n))
	}
	l.routes = []Route{{Namespace: "quiet-0", Provider: "hook"}}
	l.accept(t.Context(), of("quiet-0", others))
	l.routes = nil
	for n := range waiting {
		e := of("loud", 10+n)
		e.Severity = Error
		l.accept(t.Context(), e)
	}
	dropped := 0
	for _, d := range l.Deliveries() {
		if d.Outcome == Dropped {
			dropped++
			if d.Namespace != "loud" {
				t.Errorf("%q of %s was dropped", d.Message, d.Namespace)
			}
		}
	}
	if dropped != others+2 {
		t.Errorf("%d messages were dropped, want %d", dropped, others+2)
	}
}

// Of the messages that are due those of the namespace go first that has the fewest deliveries:
// receivers that do not answer keep those of other namespaces waiting for one of them at most.
func TestNamespacesTakeTurns(t *testing.T) {
	l := newLab(t, Destination{})
	began, gate := make(chan string, 200), make(chan struct{})
	l.Send = func(_ context.Context, _ Destination, e Event) error {
		began <- e.Message
		<-gate
		return nil
	}
	l.routes = nil
	for n := range 100 {
		l.routes = append(l.routes, Route{Namespace: "loud", Provider: fmt.Sprint(n)})
	}
	loud, quiet := event(1), event(2)
	l.accept(t.Context(), loud)
	var all sync.WaitGroup
	l.start(t.Context(), &all)
	for range atOnce {
		if got := <-began; got != loud.Message {
			t.Errorf("delivered is %q, want %q", got, loud.Message)
		}
	}
	l.routes = []Route{{Namespace: "team", Provider: "hook"}}
	l.accept(t.Context(), quiet)
	gate <- struct{}{}
	for free := false; !free; {
		<-l.wake
		l.mu.Lock()
		free = l.places.Busy() < atOnce
		l.mu.Unlock()
	}
	l.start(t.Context(), &all)
	if got := <-began; got != quiet.Message {
		t.Errorf("delivered next is %q, want that of the other namespace", got)
	}
	close(gate)
	all.Wait()
}

// An annotation of an object takes the place of no fact that the controller says.
func TestAnnotationsReplaceNoFacts(t *testing.T) {
	e := event(1)
	e.Metadata["event.toolkit.fluxcd.io/plan"], e.Metadata["event.toolkit.fluxcd.io/env"] = "plan-harmless", "prod"
	for range 50 { // in the order of a map
		got := e.plain(map[string]string{"plan": "of the alert", "env": "of the alert", "team": "a"}).Metadata
		if got["plan"] != "plan-main-1" || got["env"] != "prod" || got["team"] != "a" {
			t.Fatalf("the metadata are %v, want the plan of the controller, the annotation env, and the team of the alert", got)
		}
	}
}

// Metadata of an object or of an Alert are bounded, however large these are: a thousand messages
// that wait must not fill the disk.
func TestMetadataAreBounded(t *testing.T) {
	l := newLab(t, Destination{})
	long := strings.Repeat("ä", 1<<19)
	l.routes[0].Metadata = map[string]string{"summary": "short", "z-long": long}
	e := event(1)
	for n := range 100 {
		e.Metadata[fmt.Sprintf("event.toolkit.fluxcd.io/y-%03d", n)] = long
	}
	l.Notify(e)
	l.accept(t.Context(), <-l.events)
	kept := l.outbox(t)
	if len(kept) != 1 {
		t.Fatalf("the outbox holds %d messages, want one", len(kept))
	}
	b, err := read(t.Context(), l.Store, kept[0])
	if err != nil || len(b) > 3*metadataBytes {
		t.Errorf("the message has %d bytes, %v, want at most %d", len(b), err, 3*metadataBytes)
	}
	for _, want := range []string{`"summary":"short"`, `plan":"plan-main-1"`, `"commit":"sha1:abc"`, "ä…"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the message lacks %s", want)
		}
	}
}

// One message that a server cannot take does not hold up those behind it.
func TestPoisonedMessageLetsOthersPass(t *testing.T) {
	r := receive(t, nil)
	r.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
		if strings.Contains(string(r.requests()[n-1].body), "plan-main-0") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	l := newLab(t, to(Generic, r), host(r))
	run(t, l.Dispatcher)
	l.Notify(event(0))
	l.Notify(event(1))
	if d := awaitOutcome(t, l.Dispatcher, Delivered, 1)[0]; d.Message != event(1).Message {
		t.Errorf("delivered is %+v", d)
	}
}

func TestTellNeverWaits(t *testing.T) {
	l := newLab(t, Destination{})
	for n := range queued + 10 { // no test reads them
		l.Notify(event(n))
	}
	if l.lost != 10 {
		t.Errorf("%d events were lost, want 10", l.lost)
	}
}

// Flux's controller gets everything as it is, prefixes of metadata included,
// and nothing is kept for it.
func TestFluxGetsEveryEvent(t *testing.T) {
	r := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	l := newLab(t, Destination{}, host(r))
	send := l.Options.Send
	l.Options.Upstream = func(ctx context.Context, e Event) error { return send(ctx, to(Generic, r), e) }
	l.Options.Directory = nil
	run(t, l.Dispatcher)
	l.Notify(event(1))
	got := r.await(t, 2)
	var e Event
	if err := json.Unmarshal(got[1].body, &e); err != nil {
		t.Fatal(err)
	}
	want := event(1)
	if fmt.Sprint(e) != fmt.Sprint(want) {
		t.Errorf("it was sent %+v, want %+v", e, want)
	}
	if h := got[1].header.Get("Gotk-Component"); h != "terrier" {
		t.Errorf("Gotk-Component is %q", h)
	}
	if kept := l.outbox(t); len(kept) > 0 {
		t.Errorf("the outbox holds %v", kept)
	}
}

func TestHistoryIsBoundedAndKept(t *testing.T) {
	l := newLab(t, Destination{})
	now := time.Now()
	l.history.load(t.Context(), now, l.Log)
	for n := range historyKept + 5 {
		l.history.put(Delivery{ID: messageID(now, n), At: now, Namespace: "team", Outcome: Delivered})
	}
	l.history.put(Delivery{ID: "old", At: now.Add(-historyAge - time.Hour), Namespace: "gone", Outcome: Delivered})
	l.history.put(Delivery{ID: "none", At: now, Outcome: Delivered})
	l.history.flush(t.Context(), l.Log)
	again := newHistory(l.store, l.Damage)
	again.load(t.Context(), now, l.Log)
	counts := map[string]int{}
	for _, d := range again.all() {
		counts[d.Namespace]++
		if d.ID == messageID(now, 0) {
			t.Error("the oldest of too many is kept")
		}
	}
	if counts["team"] != historyKept || counts[""] != 1 || counts["gone"] != 0 {
		t.Errorf("kept are %v, want %d of team, one without a namespace, none of long ago", counts, historyKept)
	}
}

// A store that fails for a while costs neither a message nor a delivery in the history.
func TestStoreThatFailsForAWhile(t *testing.T) {
	for name, tt := range map[string]struct{ list, get bool }{"listing": {list: true}, "reading": {get: true}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, Destination{})
			now := time.Now()
			if err := l.keep(t.Context(), &message{ID: messageID(now, 1), Namespace: "team", Provider: "hook", Accepted: now, Event: event(1)}); err != nil {
				t.Fatal(err)
			}
			l.history.load(t.Context(), now, l.Log)
			l.history.put(Delivery{ID: "before", At: now, Namespace: "team", Outcome: Delivered})
			l.history.flush(t.Context(), l.Log)

			broken := &failing{Store: l.store, list: tt.list, get: tt.get}
			d := l.dispatcher(t)
			d.Store, d.history.store, d.began = broken, broken, now.Add(time.Second)
			d.restore(t.Context())
			d.history.load(t.Context(), now, d.Log)
			d.history.put(Delivery{ID: "now", At: now, Namespace: "team", Outcome: Delivered})
			d.history.flush(t.Context(), d.Log)
			if left := l.outbox(t); len(left) != 1 || d.waiting != 0 {
				t.Fatalf("the outbox holds %v while the store fails, want the message", left)
			}

			broken.list, broken.get = false, false
			for range 2 { // nothing is read twice
				d.restore(t.Context())
				d.history.load(t.Context(), now, d.Log)
				d.history.flush(t.Context(), d.Log)
			}
			if d.waiting != 1 {
				t.Errorf("%d messages wait, want the stored one", d.waiting)
			}
			again := newHistory(l.store, l.Damage)
			again.load(t.Context(), now, l.Log)
			var ids []string
			for _, delivery := range again.all() {
				ids = append(ids, delivery.ID)
			}
			if want := []string{"before", "now"}; !slices.Equal(ids, want) {
				t.Errorf("the stored history is %v, want %v", ids, want)
			}
		})
	}
}

// failing is a store that does not answer for now.
type failing struct {
	Store
	list, get bool
}

func (f *failing) List(ctx context.Context, prefix string) ([]string, error) {
	if f.list {
		return nil, fault.New(fault.Later, "", errors.New("the bucket does not answer"))
	}
	return f.Store.List(ctx, prefix)
}

func (f *failing) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if f.get {
		return nil, fault.New(fault.Later, "", errors.New("the bucket does not answer"))
	}
	return f.Store.Get(ctx, key)
}
