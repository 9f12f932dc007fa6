package prerequisites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/prerequisite"
)

// port is a prerequisite of one of many systems.
func port(n int) prerequisite.Prerequisite {
	return prerequisite.Prerequisite{Name: "p" + strconv.Itoa(n), TCP: &prerequisite.TCP{Host: "a", Port: n}}
}

// stackIn is a stack that wants no wake.
func stackIn(namespace, id string) Stack {
	return Stack{ID: id, Namespace: namespace, Wake: func() {}}
}

// answers is what systems answer, by port: Met if there is nothing.
type answers map[int]prerequisite.Reason

func (a answers) ask(_ context.Context, of prerequisite.Prerequisite) prerequisite.Result {
	if r, ok := a[of.TCP.Port]; ok {
		return is(r, "as the test says")
	}
	return is(prerequisite.Met, "as the test says")
}

// answered carries out all questions, one after another.
func answered(p *Prober) (of []int) {
	for q := p.begin(); q != nil; q = p.begin() {
		of = append(of, q.of.TCP.Port)
		p.end(q, p.ask(context.Background(), q.of), true)
	}
	return of
}

// An answer counts for a while. After that the system is asked again, and what it said last
// is shown until it answers.
func TestAnswersAge(t *testing.T) {
	now, says := time.Unix(1e9, 0), answers{}
	p := NewProber(says.ask, func() time.Time { return now })
	woken := 0
	s := Stack{ID: "s", Namespace: "a", Wake: func() { woken++ }}
	if r := p.Ask(s, port(1)); r.Reason != prerequisite.Checking {
		t.Errorf("at first Ask() = %+v, want that it is being asked", r)
	}
	answered(p)
	says[1] = prerequisite.NoAnswer
	now = now.Add(metFor - time.Second)
	if r := p.Ask(s, port(1)); !r.OK() || r.Stale || woken != 1 {
		t.Errorf("soon after that Ask() = %+v, want the answer; the stack was woken %d times", r, woken)
	}
	now = now.Add(2 * time.Second)
	if r := p.Ask(s, port(1)); !r.OK() || !r.Stale {
		t.Errorf("later Ask() = %+v, want the answer of before, and that it is asked again", r)
	}
	answered(p)
	if r := p.Ask(s, port(1)); r.Reason != prerequisite.NoAnswer || r.Stale {
		t.Errorf("then Ask() = %+v, want the newest answer", r)
	}
	delete(says, 1)
	now = now.Add(unmetFor)
	if r := p.Ask(s, port(1)); r.Reason != prerequisite.NoAnswer || !r.Stale {
		t.Errorf("after a pause Ask() = %+v, want that it is asked again", r)
	}
	answered(p)
	if r := p.Ask(s, port(1)); !r.OK() {
		t.Errorf("at last Ask() = %+v, want that it is met", r)
	}
	if got := (*Prober)(nil).Ask(Stack{}, port(1)); got.Reason != prerequisite.Denied {
		t.Errorf("without systems Ask() = %+v, want to be refused", got)
	}
}

// Stacks of a namespace share a question and its answer, and each is woken. Those of another
// namespace ask for themselves.
func TestANamespaceAsksOnce(t *testing.T) {
	p := NewProber(answers{}.ask, time.Now)
	var woken []string
	for _, of := range []string{"a/1", "a/2", "b/3"} {
		namespace, id, _ := strings.Cut(of, "/")
		p.Ask(Stack{ID: id, Namespace: namespace, Wake: func() { woken = append(woken, of) }}, port(1))
	}
	asked := answered(p)
	slices.Sort(woken)
	if len(asked) != 2 || !slices.Equal(woken, []string{"a/1", "a/2", "b/3"}) {
		t.Errorf("the system was asked %d times, and %q are woken, want once for each namespace, and all", len(asked), woken)
	}
}

// Before a run begins, what is old is asked once more, before all else. An answer that is
// given since then counts, however long the others take.
func TestConfirm(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := NewProber(answers{}.ask, func() time.Time { return now })
	s, all := stackIn("a", "s"), []prerequisite.Prerequisite{{Name: "file", File: &prerequisite.File{}}, port(1), port(2)}
	p.Ask(s, port(1))
	answered(p)
	if asked := p.Confirm(s, all, time.Time{}); !slices.Equal(asked, []string{"p2"}) {
		t.Errorf("Confirm() = %q, want the one that was never asked", asked)
	}
	answered(p)
	now = now.Add(metFor)
	for i := range 3 {
		p.Ask(s, port(10+i))
	}
	p.Ask(s, port(2)) // waits already, behind the others
	if asked := p.Confirm(s, all, time.Time{}); !slices.Equal(asked, []string{"p1", "p2"}) {
		t.Errorf("Confirm() = %q, want both, whose answers are old", asked)
	}
	turn := now
	if asked := answered(p); !slices.Equal(asked, []int{1, 2, 10, 11, 12}) {
		t.Errorf("ports were asked in the order %v, want those that hold up a run first", asked)
	}
	now = now.Add(10 * metFor) // as if the others had taken so long
	if asked := p.Confirm(s, all, turn); len(asked) > 0 {
		t.Errorf("Confirm() = %q, want nothing: all were asked since the turn of the stack", asked)
	}
	if asked := p.Confirm(s, all, now); len(asked) != 2 {
		t.Errorf("Confirm() = %q, want both: they were asked before the turn of the stack", asked)
	}
	if asked := (*Prober)(nil).Confirm(s, all, now); asked != nil {
		t.Errorf("without systems Confirm() = %q, want nothing", asked)
	}
}

// A system that answers no more is not confirmed.
func TestWhatIsGoneIsNotConfirmed(t *testing.T) {
	now, says := time.Unix(1e9, 0), answers{}
	p := NewProber(says.ask, func() time.Time { return now })
	s, all := stackIn("a", "s"), []prerequisite.Prerequisite{port(1)}
	p.Ask(s, port(1))
	answered(p)
	now, says[1] = now.Add(metFor), prerequisite.NoAnswer
	p.Confirm(s, all, time.Time{})
	answered(p)
	if asked := p.Confirm(s, all, now); len(asked) != 1 {
		t.Errorf("Confirm() = %q, want the one that is gone", asked)
	}
	if r := p.Ask(s, port(1)); r.OK() {
		t.Errorf("Ask() = %+v, want that it does not answer", r)
	}
}

// A namespace has so many questions that wait, and is told. Its answers of before stay, and
// what holds up a run is asked nevertheless. Other namespaces notice nothing.
func TestANamespaceAsksNotTooMuch(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := NewProber(answers{}.ask, func() time.Time { return now })
	s := stackIn("loud", "s")
	p.Ask(s, port(1))
	answered(p)
	now = now.Add(metFor)
	for i := range questionsWaiting {
		if r := p.Ask(s, port(1000+i)); r.Reason != prerequisite.Checking {
			t.Fatalf("Ask() = %+v of question %d, want that it is being asked", r, i)
		}
	}
	if r := p.Ask(s, port(2)); r.Reason != prerequisite.TooMany || !strings.Contains(r.Message, fmt.Sprintf("the namespace loud wait for the answers of %d other systems", questionsWaiting)) {
		t.Errorf("Ask() = %+v, want to be told that too many wait", r)
	}
	if r := p.Ask(s, port(1000)); r.Reason != prerequisite.Checking {
		t.Errorf("Ask() = %+v, want that a question which waits is being asked", r)
	}
	if r := p.Ask(s, port(1)); !r.OK() || !r.Stale {
		t.Errorf("Ask() = %+v, want the answer of before", r)
	}
	if r := p.Ask(stackIn("quiet", "q"), port(2)); r.Reason != prerequisite.Checking {
		t.Errorf("in another namespace Ask() = %+v, want that it is being asked", r)
	}
	if asked := p.Confirm(s, []prerequisite.Prerequisite{port(1)}, time.Time{}); len(asked) != 1 || p.begin().of.TCP.Port != 1 {
		t.Errorf("Confirm() = %q, want the one that holds up a run asked next", asked)
	}
	answered(p)
	if r := p.Ask(s, port(2)); r.Reason != prerequisite.Checking {
		t.Errorf("once fewer wait Ask() = %+v, want that it is being asked", r)
	}
}

// Whatever namespaces ask, and however long systems take: no namespace has more than its
// places, one that asks waits for a place no longer than each of the others has had one, and
// nothing that was asked is forgotten.
func TestNamespacesTakeTurns(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 63))
		p := NewProber(answers{}.ask, time.Now)
		namespaces := 2 + r.IntN(2*questionsAtOnce) // with more than half of them, none has all its places
		var going []*question
		passed := map[string]int{} // questions of others that began since a namespace with none being asked waits
		left, ended := 0, 0
		for n := range 2000 {
			for i := range r.IntN(4) {
				in := r.IntN(namespaces)
				if i == 0 {
					in = 0 // the first is loud
				}
				if n >= 1500 {
					break
				}
				if p.Ask(stackIn(strconv.Itoa(in), "s"), port(10*n+i)).Reason == prerequisite.Checking {
					left++
				}
			}
			for q := p.begin(); q != nil; q = p.begin() {
				going = append(going, q)
				delete(passed, q.key.namespace)
				for of, l := range p.lines {
					if l.first() != nil && l.busy == 0 && of != q.key.namespace {
						if passed[of]++; passed[of] > namespaces {
							t.Fatalf("seed %d: the namespace %s waits while %d questions of others begin", seed, of, passed[of])
						}
					}
				}
			}
			busy := map[string]int{}
			for _, q := range going {
				busy[q.key.namespace]++
			}
			for of, n := range busy {
				if n > questionsPerNamespace || n != p.lines[of].busy || len(going) > questionsAtOnce {
					t.Fatalf("seed %d: %d questions of the namespace %s are being asked, of %d", seed, n, of, len(going))
				}
			}
			if len(going) > 0 && (n >= 1500 || r.IntN(3) == 0) {
				i := r.IntN(len(going))
				q := going[i]
				going = slices.Delete(going, i, i+1)
				p.end(q, is(prerequisite.Met, ""), true)
				ended++
			}
		}
		for len(going) > 0 {
			for _, q := range going {
				p.end(q, is(prerequisite.Met, ""), true)
				ended++
			}
			going = nil
			for q := p.begin(); q != nil; q = p.begin() {
				going = append(going, q)
			}
		}
		if ended != left || len(p.lines) > 0 || len(p.asked) > 0 || p.running != 0 {
			t.Fatalf("seed %d: %d of %d questions have ended; left are %d namespaces, %d questions, %d places", seed, ended, left, len(p.lines), len(p.asked), p.running)
		}
	}
}

// Questions are asked beside the reconciles, and end with the process.
func TestQuestionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProber(func(ctx context.Context, of prerequisite.Prerequisite) prerequisite.Result {
			if of.TCP.Port == 1 {
				return is(prerequisite.Met, "it answers")
			}
			<-ctx.Done()
			return is(prerequisite.NoAnswer, "cut short")
		}, time.Now)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		woken := make(chan int, 2)
		for n := range 2 {
			p.Ask(Stack{ID: strconv.Itoa(n), Namespace: "a", Wake: func() { woken <- n }}, port(n))
		}
		if n := <-woken; n != 1 {
			t.Errorf("the stack %d was woken, want that whose system answers", n)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(woken) > 0 {
			t.Error("a question that was cut short woke its stack")
		}
		if r := p.Ask(stackIn("a", "0"), port(0)); r.Reason != prerequisite.Checking {
			t.Errorf("Ask() = %+v, want no answer of a question that was cut short", r)
		}
	})
}
