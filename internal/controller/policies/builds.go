package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// builds compile programs beside everything else: a program that takes long keeps no other
// policy from changing. What is in use is kept, however many programs there are, and so are
// the errors of texts that cannot be compiled. Errors of sources may pass: those texts are
// read again by themselves.
type builds struct {
	programs Programs
	now      func() time.Time
	log      *slog.Logger
	changed  func()        // a build ended
	more     chan struct{} // holds one: there may be something to begin

	mu      sync.Mutex
	known   map[string]*build // by the ID of the text
	waiting []*build
	busy    map[string]int // by namespace
}

// build is one text on its way to a program.
type build struct {
	text      Text
	namespace string // of the policy; empty if it is one of the cluster

	running bool
	built   *built    // nil until it was compiled once
	again   time.Time // when a text whose source had an error is read again; zero if it is not
	failed  int       // in a row
}

// built is what came of a text.
type built struct {
	program Program
	digest  string
	err     error // Invalid if the text is wrong; any other may pass
}

// passes reports whether the error may pass without a change of the policy.
func (b *built) passes() bool { return b.err != nil && fault.Of(b.err) != fault.Invalid }

// Times of builds.
const (
	buildMost  = time.Minute // for one text, with the time to fetch it
	soonAgain  = 5 * time.Second
	latestSoon = 5 * time.Minute
)

func newBuilds(programs Programs, now func() time.Time, log *slog.Logger, changed func()) *builds {
	return &builds{programs: programs, now: now, log: log, changed: changed, more: make(chan struct{}, 1), known: map[string]*build{}, busy: map[string]int{}}
}

// of is what came of a text, nil if it is not known yet: it is compiled then, and changed is
// called once it is.
func (b *builds) of(t Text, namespace string) *built {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.known[t.ID]
	if known == nil {
		known = &build{text: t, namespace: namespace}
		b.known[t.ID] = known
		b.wait(known)
	}
	return known.built
}

// keep forgets all texts but these.
func (b *builds) keep(ids map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.known {
		if !ids[id] {
			delete(b.known, id)
		}
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(w *build) bool { return b.known[w.text.ID] != w })
}

// retry compiles again what failed because of a source, each in its time. It says when the
// next one is due; zero if none is.
func (b *builds) retry() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var next time.Time
	for _, k := range b.known {
		switch {
		case k.again.IsZero() || k.running:
		case !b.now().Before(k.again):
			k.again = time.Time{}
			b.wait(k)
		case next.IsZero() || k.again.Before(next):
			next = k.again
		}
	}
	return next
}

func (b *builds) wait(k *build) {
	b.waiting = append(b.waiting, k)
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// run compiles until ctx ends.
func (b *builds) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))
	for {
		for k := b.begin(len(slots) < cap(slots)); k != nil; k = b.begin(len(slots) < cap(slots)) {
			slots <- struct{}{}
			running.Go(func() {
				built := b.compile(ctx, k.text)
				<-slots
				b.end(k, built, ctx.Err() == nil)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-b.more:
		}
	}
}

// begin takes the next text: those of the cluster first, and of the others one of the
// namespace that has the fewest, so that no namespace keeps another one waiting. A namespace
// has one at a time.
func (b *builds) begin(room bool) *build {
	b.mu.Lock()
	defer b.mu.Unlock()
	best := -1
	for n, k := range b.waiting {
		if k.running || k.namespace != "" && b.busy[k.namespace] > 0 {
			continue
		}
		if best < 0 || k.namespace == "" && b.waiting[best].namespace != "" {
			best = n
		}
	}
	if best < 0 || !room {
		return nil
	}
	k := b.waiting[best]
	b.waiting = slices.Delete(b.waiting, best, best+1)
	k.running = true
	b.busy[k.namespace]++
	return k
}

// compile compiles a text. A panic is an error of the text.
func (b *builds) compile(ctx context.Context, t Text) (out built) {
	defer func() {
		if p := recover(); p != nil {
			out = built{err: fault.New(fault.Invalid, "PolicyInvalid", fmt.Errorf("compiling the policy broke off: %.200v", p))}
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, buildMost, fmt.Errorf("it took longer than %v", buildMost))
	defer cancel()
	program, digest, err := b.programs.Compile(ctx, t)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return built{program, digest, err}
}

// end keeps what came of a text. A build that the end of the process cut short is none.
func (b *builds) end(k *build, out built, whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.running = false
	if b.busy[k.namespace]--; b.busy[k.namespace] == 0 {
		delete(b.busy, k.namespace)
	}
	select {
	case b.more <- struct{}{}:
	default:
	}
	if b.known[k.text.ID] != k || !whole {
		return
	}
	same := k.built != nil && k.built.digest == out.digest && says(k.built.err) == says(out.err)
	if out.passes() {
		k.again = b.now().Add(min(latestSoon, soonAgain<<min(k.failed, 10)))
		k.failed++
		if !same {
			b.log.Warn("program of a policy not read", "err", out.err) // read again by itself
		}
	} else {
		k.failed = 0
	}
	k.built = &out
	b.changed() // also to know when it is due again
}

func says(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSpace(cmp.Or(err.Error(), "an error"))
}
