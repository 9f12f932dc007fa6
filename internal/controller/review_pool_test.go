package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/stack"
)

// asking is a pool whose webhooks take as long as their plan's name says.
func asking(t *testing.T) (p *reviewPool, woken func(stack string) time.Duration) {
	t.Helper()
	began := time.Now()
	var mu sync.Mutex
	at := map[string]time.Duration{}
	p = newReviewPool(func(ctx context.Context, q question) reply {
		d, err := time.ParseDuration(q.plan.Name)
		if err != nil {
			t.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return reply{verdict: stack.Verdict{Plan: q.plan.Digest, Passed: ctx.Err() == nil}}
	}, func(key types.NamespacedName) {
		mu.Lock()
		defer mu.Unlock()
		at[key.Name] = time.Since(began)
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p, func(name string) time.Duration {
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

func questionOf(namespace, name, plan, takes string) question {
	return question{
		stack: name, id: plan, key: types.NamespacedName{Namespace: namespace, Name: name},
		plan: stack.Plan{Digest: plan, Name: takes},
	}
}

func TestAnAnswerIsKeptUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, woken := asking(t)
		q := questionOf("a", "one", "d1", "2s")
		for range 2 { // asking twice asks once
			if _, ok := p.answer(q); ok {
				t.Fatal("there is an answer before anybody was asked")
			}
		}
		later(3 * time.Second)
		if got := woken("one"); got != 2*time.Second {
			t.Errorf("the stack was woken after %v, want 2s", got)
		}
		for range 2 { // a pass whose status could not be written takes it again
			if r, ok := p.answer(q); !ok || r.verdict.Plan != "d1" || !r.verdict.Passed {
				t.Errorf("answer() = %+v, %v", r, ok)
			}
		}
		p.drop("one")
		if _, ok := p.answer(q); ok {
			t.Error("what was dropped is still answered")
		}
	})
}

// A namespace whose webhooks hang keeps no other waiting.
func TestHangingWebhooksHoldNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, woken := asking(t)
		for n := range 50 {
			p.answer(questionOf("hostile", fmt.Sprint("hostile-", n), "d", "10s"))
		}
		p.answer(questionOf("honest", "honest", "d", "1s"))
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
		if answered != reviewsPerNamespace {
			t.Errorf("%d were asked at once, want %d", answered, reviewsPerNamespace)
		}
	})
}

func TestNoMoreAreAskedThanThereAreGivenPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, woken := asking(t)
		for n := range 2 * reviewsAtOnce {
			name := fmt.Sprint("s", n)
			p.answer(questionOf(name, name, "d", "1s"))
		}
		later(1500 * time.Millisecond)
		answered := 0
		for n := range 2 * reviewsAtOnce {
			if woken(fmt.Sprint("s", n)) >= 0 {
				answered++
			}
		}
		if answered != reviewsAtOnce {
			t.Errorf("%d were asked at once, want %d", answered, reviewsAtOnce)
		}
	})
}

// A plan that was replaced is not asked about, and its answer is not taken for
// that of the next.
func TestAnotherQuestionTakesThePlaceOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, woken := asking(t)
		p.answer(questionOf("a", "one", "old", "10s"))
		synctest.Wait()
		p.answer(questionOf("a", "one", "new", "1s"))
		later(2 * time.Second)
		if got := woken("one"); got != time.Second {
			t.Errorf("the stack was woken after %v, want 1s: by the new plan", got)
		}
		if r, ok := p.answer(questionOf("a", "one", "new", "1s")); !ok || r.verdict.Plan != "new" {
			t.Errorf("answer() = %+v, %v, want that to the new plan", r, ok)
		}
		if p.working != 0 || len(p.busy) != 0 || len(p.waiting) != 0 {
			t.Errorf("%d work, %v are busy and %d wait, want none", p.working, p.busy, len(p.waiting))
		}
	})
}
