package review

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// asking is a pool whose reviewers take as long as the question says in By.
func asking(t *testing.T) (p *Pool, question func(namespace, name, plan, takes string) Question, woken func(stack string) time.Duration) {
	t.Helper()
	began := time.Now()
	var mu sync.Mutex
	at := map[string]time.Duration{}
	p = NewPool(func(ctx context.Context, q Question) Reply {
		d, err := time.ParseDuration(q.By)
		if err != nil {
			t.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return Reply{Verdict: stack.Verdict{Plan: q.Plan.Digest, Passed: ctx.Err() == nil}}
	})
	question = func(namespace, name, plan, takes string) Question {
		return Question{Stack: name, ID: plan, Namespace: namespace, By: takes, Plan: &Plan{Digest: plan}, Wake: func() {
			mu.Lock()
			defer mu.Unlock()
			at[name] = time.Since(began)
		}}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p, question, func(name string) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		d, ok := at[name]
		if !ok {
			return -1
		}
		return d
	}
}

// later lets time go by in the bubble of a test, and all that happens meanwhile.
func later(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestAnAnswerIsKeptUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, question, woken := asking(t)
		q := question("a", "one", "d1", "2s")
		for range 2 { // asking twice asks once
			p.Ask(q)
			if _, ok := p.Answer(q); ok {
				t.Fatal("there is an answer before a reviewer was asked")
			}
		}
		later(3 * time.Second)
		if got := woken("one"); got != 2*time.Second {
			t.Errorf("the stack was woken after %v, want 2s", got)
		}
		for range 2 { // a reconcile whose status could not be written takes it again
			if r, ok := p.Answer(q); !ok || r.Verdict.Plan != "d1" || !r.Verdict.Passed {
				t.Errorf("Answer() = %+v, %v", r, ok)
			}
		}
		p.Drop("one")
		if _, ok := p.Answer(q); ok {
			t.Error("what was dropped is still answered")
		}
	})
}

// A namespace whose webhooks hang keeps no other waiting.
func TestHangingWebhooksKeepNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, question, woken := asking(t)
		for n := range 50 {
			p.Ask(question("hostile", fmt.Sprint("hostile-", n), "d", "10s"))
		}
		p.Ask(question("honest", "honest", "d", "1s"))
		later(11 * time.Second)
		if got := woken("honest"); got != time.Second {
			t.Errorf("the other stack was woken after %v, want 1s", got)
		}
		answered := 0
		for n := range 50 {
			if woken(fmt.Sprint("hostile-", n)) >= 0 {
				answered++
			}
		}
		if answered != questionsPerNamespace {
			t.Errorf("%d were asked at once, want %d", answered, questionsPerNamespace)
		}
	})
}

// A namespace whose policies take long keeps no other waiting, and webhooks keep no policies
// waiting.
func TestSlowPoliciesKeepNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, question, woken := asking(t)
		inside := func(q Question) Question {
			q.Inside = true
			return q
		}
		for n := range questionsAtOnce { // all places for webhooks are taken
			p.Ask(question(fmt.Sprint("hooked-", n), fmt.Sprint("hooked-", n), "d", "10s"))
		}
		for n := range 50 {
			p.Ask(inside(question("hostile", fmt.Sprint("hostile-", n), "d", "10s")))
		}
		for n := range 5 {
			name := fmt.Sprint("honest-", n)
			p.Ask(inside(question(name, name, "d", "1s")))
		}
		later(11 * time.Second)
		for n := range 5 {
			if got := woken(fmt.Sprint("honest-", n)); got != time.Second {
				t.Errorf("the stack of another namespace was woken after %v, want 1s", got)
			}
		}
		answered := 0
		for n := range 50 {
			if woken(fmt.Sprint("hostile-", n)) >= 0 {
				answered++
			}
		}
		if answered != insidePerNamespace {
			t.Errorf("%d of one namespace were asked at once, want %d", answered, insidePerNamespace)
		}
	})
}

// A question for which a reviewer had no time is no answer: it is asked again, behind the
// others.
func TestAQuestionThatWasNotAskedIsAskedAgain(t *testing.T) {
	p := NewPool(nil)
	woken := 0
	question := func(name string, r Reviewer) Question {
		return Question{Stack: name, ID: "d", Namespace: "apps", Plan: &Plan{Digest: "d"}, Reviewers: []Reviewer{r}, Wake: func() { woken++ }}
	}
	busy := question("one", reviewing(func() (Answer, error) { return Answer{}, fmt.Errorf("asking: %w", Busy{Why: errors.New("no place")}) }))
	passes := question("two", reviewing(func() (Answer, error) { return Answer{}, nil }))
	p.Ask(busy)
	p.Ask(passes)
	var asked []string
	for range 3 {
		i, ctx := p.begin(t.Context())
		asked = append(asked, i.Stack)
		p.end(i, Ask(ctx, i.Question, time.Now), true)
	}
	if got, want := fmt.Sprint(asked), "[one two one]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if r, ok := p.Answer(busy); ok || !p.Asked(busy) {
		t.Errorf("Answer() = %+v, although the reviewer was busy; asked %v", r, p.Asked(busy))
	}
	if r, ok := p.Answer(passes); !ok || !r.Verdict.Passed || woken != 1 {
		t.Errorf("Answer() = %+v, %v after %d wakes, want the one of the other", r, ok, woken)
	}
	p.Drop("one")
	if i, _ := p.begin(t.Context()); i != nil || p.outside.Busy() != 0 {
		t.Errorf("begin() = %+v after the stack was dropped", i)
	}
}

// reviewing is a reviewer that answers with a function.
type reviewing func() (Answer, error)

func (reviewing) Sees() Document { return Masked }

func (r reviewing) Review(context.Context, *Plan) (Answer, error) { return r() }

func TestNoMoreAreAskedThanThereAreGivenPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, question, woken := asking(t)
		for n := range 2 * questionsAtOnce {
			name := fmt.Sprint("s", n)
			p.Ask(question(name, name, "d", "1s"))
		}
		later(1500 * time.Millisecond)
		answered := 0
		for n := range 2 * questionsAtOnce {
			if woken(fmt.Sprint("s", n)) >= 0 {
				answered++
			}
		}
		if answered != questionsAtOnce {
			t.Errorf("%d were asked at once, want %d", answered, questionsAtOnce)
		}
	})
}

// A plan that was replaced is not asked about, and its answer is not taken for
// that of the next.
func TestAnotherQuestionTakesThePlaceOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, question, woken := asking(t)
		p.Ask(question("a", "one", "old", "10s"))
		synctest.Wait()
		p.Ask(question("a", "one", "new", "1s"))
		later(2 * time.Second)
		if got := woken("one"); got != time.Second {
			t.Errorf("the stack was woken after %v, want 1s: by the new plan", got)
		}
		if r, ok := p.Answer(question("a", "one", "new", "1s")); !ok || r.Verdict.Plan != "new" {
			t.Errorf("Answer() = %+v, %v, want that to the new plan", r, ok)
		}
		if !p.outside.Idle() || !p.inside.Idle() {
			t.Errorf("%d are being asked or others wait, want none", p.outside.Busy()+p.inside.Busy())
		}
	})
}
