package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/shard"
	"github.com/terrier-iac/terrier/internal/stack"
)

// shares has the controller share stacks, and own the shards of all of them.
func (l *frugal) shares() {
	s := newShards()
	s.open(allShards())
	l.whole.shards, l.removals.shards = s, s
}

func allShards() []int {
	out := make([]int, shard.Count)
	for i := range out {
		out[i] = i
	}
	return out
}

// owns has the controller own the shard of one stack alone.
func (l *frugal) owns(id string) {
	l.whole.shards.close(slices.DeleteFunc(allShards(), func(i int) bool { return i == shard.Of(id) }))
}

// createsElsewhere makes the object again until another shard than that of id has it, and
// returns its UID.
func (l *frugal) createsElsewhere(t *testing.T, id string) string {
	t.Helper()
	for {
		l.creates(t)
		if now := string(l.stored(t).UID); shard.Of(now) != shard.Of(id) {
			return now
		}
		l.removes(t)
	}
}

// reads has passes begin with what the cache says about the object.
func (l *frugal) reads(t *testing.T, cached func(obj client.Object) error) {
	t.Helper()
	w, err := client.NewWithWatch(l.k.Config, client.Options{Scheme: l.k.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	l.whole.Client = interceptor.NewClient(w, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			return cached(obj)
		},
	})
}

// The controller of a stack that was removed by force looks after what is left of it, also
// if an object of another controller has its name by now.
func TestAFormerStackIsLookedAfterByItsOwner(t *testing.T) {
	l := newFrugal(t, "net")
	l.shares()
	l.creates(t)
	former := string(l.stored(t).UID)
	l.works(t, stack.PlanRun)
	l.runs.ends(func(r *runner.Report) { r.Changes, r.ChangesHash = stack.Changes{Add: 1}, "sha256:c" }, map[string]string{runner.FilePlan: "a plan", runner.FileLog: "planned"})
	l.works(t, stack.ApplyRun)
	var n note
	if err := json.Unmarshal(l.runs.report.Note, &n); err != nil {
		t.Fatal(err)
	}
	l.removes(t)
	l.createsElsewhere(t, former)
	l.owns(former)
	if l.looks(t); l.wait != runInterval || l.runs.report == nil {
		t.Errorf("the run of the former stack is looked at in %s, want %s", l.wait, runInterval)
	}
	state := thing("l", 1)
	l.runs.ends(func(r *runner.Report) { r.State, r.Resources = idOf(state), 1 }, map[string]string{runner.FileState: string(state), runner.FileOutputs: "{}", runner.FileLog: "applied"})
	l.looks(t)
	if got, err := l.whole.States.Load(t.Context(), *n.State); err != nil || string(got.State) != string(state) {
		t.Errorf("stored is %s, %v, want the state of the last run", got.State, err)
	}
	if holder, err := l.whole.States.Holder(t.Context(), *n.State); err != nil || holder != nil {
		t.Errorf("the state is locked: %v, %v, want no lock", holder, err)
	}
	if l.runs.report != nil || len(l.remembered()) > 0 {
		t.Errorf("the run is %+v, remembered are %v, want neither", l.runs.report, l.remembered())
	}
	if obj := l.stored(t); len(obj.Finalizers)+len(obj.Status.Conditions) > 0 {
		t.Errorf("the object of the other controller has finalizers %v, conditions %v, want none", obj.Finalizers, obj.Status.Conditions)
	}
}

// A controller that takes over the run of a stack whose object is gone follows the run to
// its end at once: it finds the run when it takes the shard, and when it starts.
func TestTheRunOfAFormerStackIsFollowedByTheNextOwner(t *testing.T) {
	for name, find := range map[string]func(l *frugal) error{
		"takes the shard": func(l *frugal) error {
			return l.whole.wakeAll(t.Context(), func(string) bool { return true })
		},
		"starts": func(l *frugal) error { return l.removals.sweepGone(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newFrugal(t, "net")
			l.creates(t)
			l.works(t, stack.PlanRun)
			l.runs.ends(func(r *runner.Report) { r.Changes, r.ChangesHash = stack.Changes{Add: 1}, "sha256:c" }, map[string]string{runner.FilePlan: "a plan", runner.FileLog: "planned"})
			l.works(t, stack.ApplyRun)
			l.removes(t)
			l.whole.index.dropAll(func(string) bool { return true })
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer q.ShutDown()
			l.whole.wakes.serve(dialect.KindOf(infra.Dialect{}), q)
			if err := find(l); err != nil {
				t.Fatal(err)
			}
			if q.Len() != 1 {
				t.Fatalf("%d stacks are woken, want the former one", q.Len())
			}
			if got, _ := q.Get(); got.NamespacedName != l.key {
				t.Errorf("woken is %s, want %s", got, l.key)
			}
			if l.looks(t); l.wait != runInterval || l.runs.report == nil {
				t.Errorf("the run of the former stack is looked at in %s, want %s", l.wait, runInterval)
			}
			state := thing("l", 1)
			l.runs.ends(func(r *runner.Report) { r.State, r.Resources = idOf(state), 1 }, map[string]string{runner.FileState: string(state), runner.FileOutputs: "{}", runner.FileLog: "applied"})
			if l.looks(t); l.runs.report != nil || len(l.remembered()) > 0 {
				t.Errorf("the run is %+v, remembered are %v, want neither", l.runs.report, l.remembered())
			}
		})
	}
}

// An object that has the name of a former stack stays the newest one of that name.
func TestAFormerStackIsNotTheNewest(t *testing.T) {
	var x index
	of := objectRef{infra.Dialect{}, types.NamespacedName{Namespace: "ns", Name: "a"}}
	now := x.make("now", of)
	x.makeFormer("former", of)
	if got := x.newest(of); got != now || len(x.all(of)) != 2 {
		t.Errorf("newest() = %+v of %d, want the object that exists", got, len(x.all(of)))
	}
}

// A pass that began for a former stack does nothing for an object that was created since
// and is another controller's.
func TestAPassIsOfTheStacksThatItBeganFor(t *testing.T) {
	l := newFrugal(t, "net")
	l.shares()
	l.creates(t)
	former := string(l.stored(t).UID)
	l.works(t, stack.PlanRun)
	l.removes(t)
	l.createsElsewhere(t, former)
	l.owns(former)
	l.reads(t, func(client.Object) error { return apierrors.NewNotFound(schema.GroupResource{}, l.key.Name) })
	if r, err := l.whole.reconcile(t.Context(), l.ref()); err != nil || r != again {
		t.Errorf("reconcile() = %+v, %v, want another pass", r, err)
	}
	if got := l.remembered(); !slices.Equal(got, []string{former}) {
		t.Errorf("remembered are %v, want the former stack alone", got)
	}
	if obj := l.stored(t); len(obj.Finalizers) > 0 {
		t.Errorf("the object of the other controller has finalizers %v, want none", obj.Finalizers)
	}
}

// A stack is not taken for a former one because the cache has an older object of its name.
func TestAStackIsNotFormerBecauseTheCacheIsOld(t *testing.T) {
	l := newFrugal(t, "net")
	l.shares()
	l.creates(t)
	l.applies(t, 1)
	l.looks(t)
	id := string(l.stored(t).UID)
	l.owns(id)
	older := id
	for i := 0; shard.Of(older) == shard.Of(id); i++ {
		older = fmt.Sprint("older-", i)
	}
	l.reads(t, func(obj client.Object) error { obj.SetUID(types.UID(older)); return nil })
	l.looks(t)
	if got := l.remembered(); !slices.Equal(got, []string{id}) {
		t.Errorf("remembered are %v, want the stack", got)
	}
	if kept, err := l.whole.Blobs.List(t.Context(), record.AllRetained()); err != nil || len(kept) > 0 {
		t.Errorf("written down as gone: %v, %v, want nothing", kept, err)
	}
}

// moved is a runner of which nothing has to be found first.
type moved struct{ foundRuns }

func (moved) Take(context.Context, []int) error { return nil }
func (moved) Give(context.Context, []int) error { return nil }

// A run that cannot be read concerns its stack alone: the runs beside it are counted, and the
// controller starts and takes its shards. Without a list nothing is known, and neither is done.
func TestARunThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	unread := runner.Unread{Err: errors.New("the run of a: its state cannot be saved")}
	ref := objectRef{infra.Dialect{}, nn("ns", "gone")}
	for name, begin := range map[string]func(c *Stacks) error{
		"starts":       func(c *Stacks) error { return c.countRuns(t.Context()) },
		"takes shards": func(c *Stacks) error { return c.Take(t.Context(), 1, allShards()) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{unread, errors.New("no list")} {
				found := foundRuns{fail: err}
				if runner.Listed(err) {
					found.reports = []runner.Report{{Stack: "gone", Name: "ns/gone", Kind: stack.ApplyRun, Phase: runner.Applying}}
				}
				c := takeApart(&Stacks{
					LeftOut: dialect.NewRegistry(infra.Dialect{}), // so that no API server is asked for objects
					Blobs:   openRecords(t), Runner: found, Moves: moved{found}, Queue: queueOf(1), Log: slog.New(slog.DiscardHandler),
				}).whole
				c.shards = newShards()
				q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer q.ShutDown()
				c.wakes.serve(dialect.KindOf(ref.dialect), q)
				if got := begin(c); (got == nil) != runner.Listed(err) {
					t.Fatalf("after the error %q: %v", err, got)
				}
				if !runner.Listed(err) {
					continue
				}
				if why := c.Queue.Admit("new", schedule.Candidate{Key: objectRef{infra.Dialect{}, nn("ns", "new")}.scheduleKey(), Tenant: "ns"}); why == "" {
					t.Error("a run was admitted to the slot of the one that goes on")
				}
				if name == "takes shards" && q.Len() != 1 {
					t.Errorf("%d stacks are woken, want the one whose run goes on", q.Len())
				}
			}
		})
	}
}
