package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/controller/prerequisites"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// roomy starts every run.
type roomy struct{ runner.Runner }

func (roomy) Start(context.Context, runner.Job) error      { return nil }
func (roomy) Current(string) (*runner.Report, error)       { return nil, nil }
func (roomy) Room(context.Context, runner.Job) error       { return nil }
func (roomy) Cancel(context.Context, string, string) error { return nil }
func (roomy) Forget(string, string) error                  { return nil }

// inbox has the stacks that were woken.
type inbox struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	mu    sync.Mutex
	woken []types.NamespacedName
}

func (b *inbox) Add(r reconcile.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.woken, r.NamespacedName) {
		b.woken = append(b.woken, r.NamespacedName)
	}
}

// next is the stack that was woken first.
func (b *inbox) next() (types.NamespacedName, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.woken) == 0 {
		return types.NamespacedName{}, false
	}
	first := b.woken[0]
	b.woken = b.woken[1:]
	return first, true
}

// waiter is a stack that wants one plan.
type waiter struct {
	entry *entry
	obj   *v1alpha2.Terraform
	needs []prerequisite.Prerequisite
	ports []int

	asked time.Time // when it joined the line, and stayed in it
	turn  time.Time // when its turn had come
	began time.Time
	ends  time.Time
}

// crowded is a queue that is slower than answers age, and the stacks that wait in it.
type crowded struct {
	*apart
	t     *testing.T
	in    inbox
	all   map[types.NamespacedName]*waiter
	lost  *waiter // its system answers at first, and vanishes for good
	seed  uint64
	turns []types.NamespacedName // in the order in which their turn came

	mu       sync.Mutex
	gone     map[int]bool // ports that do not answer
	answered map[int]reply
}

// reply is what a system said last.
type reply struct {
	at  time.Time
	met bool
}

// answer is what a system says, after a while.
func (w *crowded) answer(ctx context.Context, of prerequisite.Prerequisite) prerequisite.Result {
	port := of.TCP.Port
	select {
	case <-time.After(time.Duration(port%50) * 100 * time.Millisecond):
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered[port] = reply{time.Now(), !w.gone[port]}
	if w.gone[port] {
		return prerequisite.Result{Reason: prerequisite.NoAnswer, Message: "gone"}
	}
	return prerequisite.Result{Reason: prerequisite.Met, Message: "there"}
}

// pass reconciles a stack that wants to be planned.
func (w *crowded) pass(of types.NamespacedName) {
	w.t.Helper()
	s := w.all[of]
	if s == nil || !s.began.IsZero() {
		return
	}
	p := &pass{dialect: infra.Dialect{}, id: s.entry.id, entry: s.entry, obj: s.obj, job: &runner.Job{}, note: note{State: &kube.StateRef{}}}
	p.o = stack.Observation{Now: time.Now(), Spec: stack.Spec{Mode: stack.Auto}, PlanInputs: stack.PlanInputs{Source: "main@sha1:1", Inputs: "i"}}
	p.st.Configuration.Prerequisites = s.needs
	if err := w.observer.gates.observe(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	p.decision = stack.Decide(p.o)
	if start, ok := p.decision.Action.(stack.Start); ok {
		if err := w.launch(w.t.Context(), p, start.Kind, stack.Cause{PlanInputs: p.o.PlanInputs}, ""); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.whole.steps.turns.leaveQueue(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	switch {
	case p.o.Run != nil || p.confirming:
		if s.turn.IsZero() {
			s.turn = time.Now()
			w.turns = append(w.turns, of)
		}
		if p.o.Run != nil {
			s.began = time.Now()
			w.fresh(of, s)
		}
	case p.o.Queued != "":
		if s.asked.IsZero() {
			s.asked = time.Now()
		}
	default: // it waits for a prerequisite, and for no slot
		if s != w.lost && !s.asked.IsZero() {
			w.t.Fatalf("seed %d: %s, which waits since %s, lost its place: %s", w.seed, of, s.asked, p.decision.Message)
		}
		s.asked, s.turn = time.Time{}, time.Time{}
	}
}

// fresh reports a run that begins although a system is gone, or on an answer that is neither
// young nor of its turn.
func (w *crowded) fresh(of types.NamespacedName, s *waiter) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, port := range s.ports {
		if said := w.answered[port]; !said.met || s.began.Sub(said.at) > 30*time.Second && said.at.Before(s.turn) {
			w.t.Fatalf("seed %d: %s begins at %s on the answer %+v; its turn came at %s", w.seed, of, s.began, said, s.turn)
		}
	}
}

// In a queue that is slower than answers age, a stack keeps its place while its systems are
// asked again: stacks of a tenant have their turns in the order in which they came, and each
// runs in the end. None runs on an old answer, and one whose system is gone runs not at all and
// holds up no other.
func TestPrerequisitesInABusyQueue(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { crowd(t, seed) })
	}
}

func crowd(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 55))
	slots := 1 + r.IntN(2)
	w := &crowded{t: t, seed: seed, all: map[types.NamespacedName]*waiter{}, gone: map[int]bool{}, answered: map[int]reply{}}
	queue := queueOf(slots)
	c := &Stacks{
		Dialects: dialect.NewRegistry(infra.Dialect{}), States: &lockOnly{}, Blobs: openRecords(t), Runner: roomy{}, Queue: queue,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	c.wakes.serve(dialect.KindOf(infra.Dialect{}), &w.in)
	c.prober = prerequisites.NewProber(w.answer, time.Now)
	w.apart = takeApart(c)
	queue.Listen(dialect.KindOf(infra.Dialect{}), schedule.Listener{Wake: func(k schedule.Key) {
		w.in.Add(reconcile.Request{NamespacedName: nn(k.Namespace, k.Name)})
	}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.prober.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	var order []types.NamespacedName
	tenants := 1 + r.IntN(3)
	for i := range 8 + r.IntN(8) {
		of := nn("team-"+strconv.Itoa(i%tenants), fmt.Sprintf("s%02d", i))
		s := &waiter{entry: &entry{id: of.Name, objectRef: objectRef{infra.Dialect{}, of}}, obj: &v1alpha2.Terraform{}}
		s.obj.Namespace, s.obj.Name, s.obj.UID = of.Namespace, of.Name, types.UID(of.Name)
		for n := range 1 + r.IntN(3) {
			port := 1000*(i+1) + r.IntN(900) + n
			s.ports = append(s.ports, port)
			s.needs = append(s.needs, prerequisite.Prerequisite{Name: "p" + strconv.Itoa(n), TCP: &prerequisite.TCP{Host: "a", Port: port}})
		}
		w.all[of], order = s, append(order, of)
	}
	w.lost = w.all[order[r.IntN(len(order))]]
	started := 0
	for step := 0; started < len(order)-1; step++ {
		if step > 4000 {
			t.Fatalf("seed %d: after %d passes %d of %d stacks have run", seed, step, started, len(order))
		}
		synctest.Wait()
		if of, ok := w.in.next(); ok {
			w.pass(of)
		} else {
			<-time.After(time.Duration(1+r.IntN(15000)) * time.Millisecond)
			w.pass(order[r.IntN(len(order))]) // as after a change, or a pause
		}
		if !w.lost.asked.IsZero() && r.IntN(4) == 0 {
			w.mu.Lock()
			w.gone[w.lost.ports[0]] = true
			w.mu.Unlock()
		}
		running := 0
		for of, s := range w.all {
			switch {
			case s.began.IsZero() || s.ends.Equal(s.began):
				continue
			case s.ends.IsZero():
				s.ends = s.began.Add(time.Duration(20+r.IntN(100)) * time.Second)
				if s != w.lost {
					started++
				}
			case !time.Now().Before(s.ends):
				s.ends = s.began // its slot is free
				queue.Leave(s.entry.id)
				continue
			}
			if running++; running > slots {
				t.Fatalf("seed %d: with %s %d runs go on at once, want %d at most", seed, of, running, slots)
			}
		}
	}
	if slots == 1 {
		w.inOrder()
	}
}

// inOrder reports stacks whose turns came in another order than they joined the line.
func (w *crowded) inOrder() {
	last := map[string]time.Time{}
	for _, of := range w.turns {
		s := w.all[of]
		if s == w.lost || s.asked.IsZero() { // without a wait it overtook none
			continue
		}
		if s.asked.Before(last[of.Namespace]) {
			w.t.Fatalf("seed %d: %s, which waits since %s, had its turn after one that came at %s", w.seed, of, s.asked, last[of.Namespace])
		}
		last[of.Namespace] = s.asked
	}
}
