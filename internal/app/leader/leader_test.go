package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/shard"
	"github.com/terrier-iac/terrier/internal/stack"
)

// wires are the network between the replicas of a test: messages are JSON, as between
// processes.
type wires struct {
	mu       sync.Mutex
	replicas map[string]map[string]func(context.Context, json.RawMessage) (any, error)
	leader   string
}

// cable is the end of one replica.
type cable struct {
	*wires
	me string
}

func (w *wires) to(id string) Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replicas == nil {
		w.replicas = map[string]map[string]func(context.Context, json.RawMessage) (any, error){}
	}
	w.replicas[id] = map[string]func(context.Context, json.RawMessage) (any, error){}
	return Config{Me: id, Calls: cable{w, id}, Now: time.Now, Log: slog.New(slog.DiscardHandler), Current: func() (shard.Member, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return shard.Member{ID: w.leader}, w.leader != ""
	}}
}

// lead changes the leader.
func (w *wires) lead(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = id
}

// end has a replica answer no more.
func (w *wires) end(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.replicas, id)
}

func (w cable) Handle(name string, f func(context.Context, json.RawMessage) (any, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas[w.me][name] = f
}

func (w cable) Call(ctx context.Context, to shard.Member, name string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	w.mu.Lock()
	f := w.replicas[to.ID][name]
	w.mu.Unlock()
	if f == nil {
		return fault.New(fault.Later, "ReplicaUnreachable", errors.New("no such replica"))
	}
	answer, err := f(ctx, data)
	if err != nil {
		return err
	}
	if data, err = json.Marshal(answer); err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// half are the shards of the first or the second of two replicas.
func half(n int) []int {
	var out []int
	for i := range shard.Count {
		if i%2 == n {
			out = append(out, i)
		}
	}
	return out
}

// stackOf is the ID of a stack of one of two replicas.
func stackOf(n, i int) string {
	for try := 0; ; try++ {
		if id := fmt.Sprint("stack-", n, "-", i, "-", try); shard.Of(id)%2 == n {
			return id
		}
	}
}

func queuedAs(id string) schedule.Candidate {
	return schedule.Candidate{Key: schedule.Key{Kind: "Terraform", Namespace: "ns", Name: id}, Tenant: "ns", Class: schedule.Spec}
}

// Two replicas share the slots of one queue: what one frees, the other gets, and the next
// leader counts what the replicas have.
func TestReplicasShareOneQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wires
		var ended sync.WaitGroup
		var mu sync.Mutex
		var woken []string
		var replicas []*Queue
		var ends []context.CancelFunc
		for i := range 2 {
			q := newQueue(w.to(fmt.Sprint("r", i)))
			q.Listen("Terraform", schedule.Listener{Wake: func(k schedule.Key) {
				mu.Lock()
				defer mu.Unlock()
				woken = append(woken, k.Name)
			}})
			q.Claim(1, half(i), nil)
			ctx, end := context.WithCancel(t.Context())
			replicas, ends = append(replicas, q), append(ends, end)
			ended.Go(func() { q.run(ctx) })
		}
		settle := func() { <-time.After(3 * time.Second); synctest.Wait() }
		replicas[0].Lead(schedule.Limits{Runs: 2}.Always())
		w.lead("r0")
		settle()
		a, b, c := stackOf(0, 1), stackOf(1, 1), stackOf(1, 2)
		for id, q := range map[string]*Queue{a: replicas[0], b: replicas[1]} {
			if why := q.Admit(id, queuedAs(id)); why != "" {
				t.Fatalf("Admit() = %q, want a slot in the same call", why)
			}
		}
		if len(woken) != 0 {
			t.Errorf("woken %v, want none: each had its slot at once", woken)
		}
		if why := replicas[1].Admit(c, queuedAs(c)); why != "Waiting for its turn: 2 runs may run at once" {
			t.Errorf("Admit() = %q, want the limit", why)
		}
		if p, ok := replicas[1].Place(c); !ok || p.Class != "spec" || p.Why == "" {
			t.Errorf("Place() = %+v, %v", p, ok)
		}
		if b := replicas[1].Backlog(); b.Running != 2 || b.Waiting != 1 || b.MaxRuns != 2 {
			t.Errorf("Backlog() of the other replica = %+v, want that of the leader", b)
		}
		if l := replicas[1].Line(); len(l.Running) != 2 || len(l.Waiting) != 1 {
			t.Errorf("Line() of the other replica = %+v, want that of the leader", l)
		}

		// The leader ends. The other one leads, and owns everything at last.
		ends[0]()
		w.end("r0")
		settle()
		d := stackOf(1, 3)
		if why := replicas[1].Admit(d, queuedAs(d)); why == "" {
			t.Error("a run starts without a leader")
		}
		replicas[1].Lead(schedule.Limits{Runs: 2}.Always())
		w.lead("r1")
		settle()
		replicas[1].Leave(b)
		settle()
		if len(woken) != 0 {
			t.Errorf("woken %v before all shards were claimed", woken)
		}
		replicas[1].Claim(2, half(0), map[string]schedule.Candidate{a: queuedAs(a)})
		settle()
		if !slices.Equal(woken, []string{c}) {
			t.Errorf("woken %v, want %s, which asked first", woken, c)
		}
		replicas[1].Leave(a)
		settle()
		if !slices.Equal(woken, []string{c, d}) {
			t.Errorf("woken %v, want both", woken)
		}
		ends[1]()
		ended.Wait()
	})
}

// entries is an audit log that can be full.
type entries struct {
	mu   sync.Mutex
	full bool
	has  []audit.Entry
}

func (e *entries) Record(_ context.Context, entry audit.Entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.full {
		return fault.New(fault.Later, "Full", errors.New("the disk is full"))
	}
	e.has = append(e.has, entry)
	return nil
}

// An entry of any replica is in the log of the leader, or its action does not happen.
func TestTheLeaderRecordsForAllReplicas(t *testing.T) {
	var w wires
	log := &entries{}
	var both []*Leader
	for _, id := range []string{"r0", "r1"} {
		to := w.to(id)
		to.Record = log.Record
		both = append(both, New(to))
	}
	one, other := both[0], both[1]
	if err := one.Record(t.Context(), audit.Entry{What: audit.Approved}); fault.Of(err) != fault.Later {
		t.Errorf("without a leader: %v, want Later", err)
	}
	w.lead("r0")
	if err := other.Record(t.Context(), audit.Entry{What: audit.Approved}); fault.Of(err) != fault.Later {
		t.Errorf("with a leader that has just been elected: %v, want Later", err)
	}
	one.Queue.Lead(schedule.Limits{}.Always())
	for _, a := range both {
		if err := a.Record(t.Context(), audit.Entry{What: audit.Approved, Who: "ann"}); err != nil {
			t.Error(err)
		}
	}
	log.full = true
	if err := other.Record(t.Context(), audit.Entry{What: audit.Approved}); fault.Reason(err, "") != "Full" {
		t.Errorf("%v, want the error of the leader", err)
	}
	if len(log.has) != 2 || log.has[1].Who != "ann" {
		t.Errorf("recorded %+v, want both entries", log.has)
	}
}

// Whatever replica begins a run, all of them together destroy no more in an hour than is allowed,
// also once another one leads, which has the same audit log.
func TestTheLeaderLimitsDestroysOfAllReplicas(t *testing.T) {
	var w wires
	now, dir := time.Unix(1e9, 0).UTC(), t.TempDir()
	clock := func() time.Time { return now }
	logs, both := map[string]*audit.Log{}, map[string]*Leader{}
	for _, id := range []string{"r0", "r1"} {
		logs[id] = audit.Unopened(dir, audit.Options{Now: clock})
		to := w.to(id)
		to.Record, to.Hours = logs[id].Record, policies.NewHours(logs[id], clock)
		both[id] = New(to)
	}
	lead := func(id string) {
		w.lead(id)
		both[id].Queue.Lead(schedule.Limits{}.Always())
		if err := logs[id].Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	limits := []policies.PerHour{{Policy: "ClusterPolicy/p", Tenant: "a", Most: 5}}
	begin := func(id, of string, n int) error {
		return both[id].Begin(t.Context(), policies.Beginning{Limits: limits, Entry: audit.Entry{
			ID: of + "/apply-started/r", What: audit.ApplyStarted, Run: "r", Object: audit.Object{UID: of}, Details: map[string]string{policies.TenantDetail: "a"}, Changes: changes(n),
		}})
	}
	if err := begin("r0", "s", 1); fault.Of(err) != fault.Later {
		t.Errorf("without a leader: %v, want Later", err)
	}
	lead("r0")
	if err := begin("r1", "s1", 3); err != nil {
		t.Error(err)
	}
	if err := begin("r0", "s2", 3); fault.Of(err) != fault.Conflict || fault.Reason(err, "") != policies.Changed {
		t.Errorf("more than both may: %v, want a Conflict", err)
	}
	if err := begin("r0", "s3", 1); err != nil {
		t.Error(err)
	}
	if err := logs["r0"].Close(); err != nil {
		t.Fatal(err)
	}
	w.end("r0")
	lead("r1")
	if got, err := both["r1"].Destroyed(t.Context(), "a"); err != nil || len(got) != 2 {
		t.Errorf("Destroyed() = %+v, %v; want the runs of both", got, err)
	}
	if err := begin("r1", "s4", 2); fault.Of(err) != fault.Conflict {
		t.Errorf("at the next leader: %v, want a Conflict", err)
	}
	if err := logs["r1"].Close(); err != nil {
		t.Fatal(err)
	}
}

func changes(destroy int) (c stack.Changes) {
	c.Destroy = destroy
	return c
}

// What happens at a replica reaches the leader in order and once, also if there was none
// for a while or an answer was lost.
func TestARelayBringsEverythingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var w wires
		var mu sync.Mutex
		var got []int
		leads := false
		take := func(n int) bool {
			mu.Lock()
			defer mu.Unlock()
			if leads {
				got = append(got, n)
			}
			return leads
		}
		newRelay(w.to("r0"), "numbers", take)
		r := newRelay(w.to("r1"), "numbers", take)
		send, lost := r.send, 0
		r.send = func(ctx context.Context, n numbered[int]) (struct{}, error) {
			_, err := send(ctx, n)
			if lost++; err == nil && lost%3 == 0 {
				err = errors.New("the answer is lost")
			}
			return struct{}{}, err
		}
		var ended sync.WaitGroup
		ended.Go(func() { r.run(ctx) })
		var want []int
		for n := range 20 {
			r.add(n)
			want = append(want, n)
		}
		<-time.After(10 * time.Second)
		w.lead("r0")
		<-time.After(10 * time.Second)
		mu.Lock()
		leads = true
		mu.Unlock()
		<-time.After(time.Minute)
		synctest.Wait()
		if !slices.Equal(got, want) {
			t.Errorf("the leader got %v, want %v", got, want)
		}
		for n := range relayed + 10 {
			r.add(n) // more than fits: the caller does not wait
		}
		end()
		ended.Wait()
	})
}

// slow is a log to which a record takes its time.
type slow struct{ slog.Handler }

func (slow) Enabled(context.Context, slog.Level) bool { return true }

func (slow) Handle(context.Context, slog.Record) error {
	<-time.After(2 * firstPause)
	return nil
}

// A relay tries again, too, if its pause is over before it begins to wait.
func TestARelayGoesOnAfterASlowLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var w wires
		to := w.to("r0")
		to.Log = slog.New(slow{slog.DiscardHandler})
		got := make(chan int, 1)
		r := newRelay(to, "numbers", func(n int) bool { got <- n; return true })
		var ended sync.WaitGroup
		ended.Go(func() { r.run(ctx) })
		r.add(1)
		<-time.After(time.Minute)
		w.lead("r0")
		<-time.After(time.Minute)
		synctest.Wait()
		if len(got) != 1 {
			t.Error("the relay has stopped: the leader did not get what happened")
		}
		end()
		ended.Wait()
	})
}
