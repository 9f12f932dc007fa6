package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/shard"
)

// Moving carries runs of stacks from one controller to another. A runner whose runs can
// be found by every controller implements it.
type Moving interface {
	// Take finds the runs of the stacks in shards, which another controller may have
	// started.
	Take(ctx context.Context, shards []int) error
	// Give forgets these runs, which go on, and are another controller's from now on.
	Give(ctx context.Context, shards []int) error
}

// shards are the stacks of this controller, of those that several controllers share. A
// nil *shards is all stacks.
type shards struct {
	mu     sync.Mutex
	idle   *sync.Cond
	mine   [shard.Count]bool
	passes [shard.Count]int // that go on
	taken  chan struct{}    // signals that shards were taken
}

// settled is how long no shard is taken before what is about all of them is done.
const settled = 30 * time.Second

func newShards() *shards {
	s := &shards{taken: make(chan struct{}, 1)}
	s.idle = sync.NewCond(&s.mu)
	return s
}

// enter begins work on a stack, if it is one of this controller's; leave ends it.
func (s *shards) enter(id string) (leave func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	i := shard.Of(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mine[i] {
		return nil, false
	}
	s.passes[i]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.passes[i]--
		s.idle.Broadcast()
	}, true
}

// share is the part of all stacks that is this controller's, above 0: a stack of another one is not
// reconciled here.
func (s *shards) share() float64 {
	if s == nil {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, mine := range s.mine {
		if mine {
			n++
		}
	}
	return float64(max(1, n)) / shard.Count
}

// open lets work on shards begin.
func (s *shards) open(which []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range which {
		s.mine[i] = true
	}
	select {
	case s.taken <- struct{}{}:
	default:
	}
}

// close lets no work on shards begin, and returns once none goes on.
func (s *shards) close(which []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range which {
		s.mine[i] = false
	}
	for slices.ContainsFunc(which, func(i int) bool { return s.passes[i] > 0 }) {
		s.idle.Wait()
	}
}

// changed signals that shards were taken; it never does for all stacks.
func (s *shards) changed() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.taken
}

// settle returns once no shards were taken for a while, or ctx has ended.
func (s *shards) settle(ctx context.Context) {
	for {
		select {
		case <-s.taken:
		case <-time.After(settled):
			return
		case <-ctx.Done():
			return
		}
	}
}

// Take begins the work on shards: their runs are found and counted, and then their
// stacks are reconciled. It implements members.Worker.
func (c *Stacks) Take(ctx context.Context, generation uint64, which []int) error {
	in := shard.In(which)
	if err := c.Moves.Take(ctx, which); err != nil {
		return fmt.Errorf("finding the runs of %d shards: %w", len(which), err)
	}
	running, err := c.runsOf(ctx, in)
	if err != nil {
		return err
	}
	c.Queue.Claim(generation, which, running)
	c.shards.open(which)
	return c.wakeAll(ctx, in)
}

// Give ends the work on shards: passes come to their end, and their runs go on without
// this controller. It implements members.Worker.
func (c *Stacks) Give(ctx context.Context, which []int) error {
	c.shards.close(which)
	in := shard.In(which)
	c.Queue.Release(which)
	c.index.dropAll(in)
	if err := c.Moves.Give(ctx, which); err != nil {
		return fmt.Errorf("giving up the runs of %d shards: %w", len(which), err)
	}
	return nil
}

// runsOf are the runs of stacks that go on, as the queue counts them.
func (c *Stacks) runsOf(ctx context.Context, in func(key string) bool) (map[string]schedule.Candidate, error) {
	reports, err := found(c.Runner, c.Log)
	if err != nil {
		return nil, fmt.Errorf("finding the runs that are running: %w", err)
	}
	running := c.steps.turns.lingering.found(in, c.Now)
	for _, r := range reports {
		if r.Phase == runner.Done || r.Beside != "" || !in(r.Stack) {
			continue
		}
		of := startedFor(c.known(), r)
		var n note
		if err := json.Unmarshal(r.Note, &n); err != nil && len(r.Note) > 0 {
			c.Log.Warn("note of a run not read", "run", r.ID, "stack", r.Name, "err", err) // its stack says so; it is counted all the same
			n = note{}
		}
		running[r.Stack] = schedule.Candidate{
			Key:  of.scheduleKey(),
			Kind: r.Kind, Class: n.class(r.Kind), Tenant: cmp.Or(n.Tenant, of.key.Namespace), // which is that of most
			Memory: c.steps.turns.checks.memoryFor(ctx, &entry{id: r.Stack}, r.Kind), Began: r.Started,
		}
	}
	return running, nil
}

// found are the runs that can be read. One that cannot be is the trouble of its stack, whose
// passes say so, and keeps no other stack from its work. It takes no slot: as a rule it has
// died, and what it left cannot be saved yet.
func found(runs runner.Runner, log *slog.Logger) ([]runner.Report, error) {
	reports, err := runs.List()
	if !runner.Listed(err) {
		return nil, err
	}
	if err != nil {
		log.Error("some runs cannot be read, and their stacks wait", "err", err)
	}
	return reports, nil
}

// known are the kinds of all stacks that may have runs and records.
func (c *Stacks) known() dialect.Registry {
	return dialect.NewRegistry(append(c.Dialects.All(), c.LeftOut.All()...)...)
}

// startedFor is the object that a run was started for.
func startedFor(dialects dialect.Registry, r runner.Report) objectRef {
	namespace, name, _ := strings.Cut(r.Name, "/")
	return objectRef{dialects.Found(r.ObjectKind), types.NamespacedName{Namespace: namespace, Name: name}}
}

// wakeAll has the stacks in shards reconciled, also those that have a run and whose objects
// are gone: the end of the run wakes no stack that is not known.
func (c *Stacks) wakeAll(ctx context.Context, in func(key string) bool) error {
	exists := map[string]bool{}
	if err := c.Dialects.EachStack(ctx, c.Client, func(d dialect.Dialect, obj client.Object) error {
		id := string(obj.GetUID())
		if exists[id] = true; in(id) {
			c.wakes.late(objectRef{d, client.ObjectKeyFromObject(obj)})
		}
		return nil
	}); err != nil {
		return err
	}
	reports, err := found(c.Runner, c.Log)
	if err != nil {
		return fmt.Errorf("finding the runs of stacks that are gone: %w", err)
	}
	for _, r := range reports {
		if of := startedFor(c.known(), r); in(r.Stack) && !exists[r.Stack] && of.key.Name != "" {
			c.index.makeFormer(r.Stack, of)
			c.wakes.late(of)
		}
	}
	return nil
}

// entered are the stacks of one name that a pass works on.
type entered struct {
	object string          // the UID of the object that has the name now; empty if there is none
	ids    map[string]bool // nil if all stacks are this controller's
	leaves []func()
}

func (e *entered) has(id string) bool { return e.ids == nil || e.ids[id] }

// formerOnly reports whether the object that has the name now is another controller's.
func (e *entered) formerOnly() bool { return e.object != "" && !e.has(e.object) }

func (e *entered) leave() {
	for _, leave := range e.leaves {
		leave()
	}
}

// enter begins a pass of an object, if a stack of its name is one of this controller's:
// the object, or those whose objects had the name before, which may be in other shards. It
// is nil if there is none.
func (c *Stacks) enter(ctx context.Context, of objectRef) (*entered, error) {
	if c.shards == nil {
		return &entered{}, nil
	}
	obj := of.dialect.New()
	if err := c.Client.Get(ctx, of.key, obj); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	e := &entered{object: string(obj.GetUID()), ids: map[string]bool{}}
	ids := []string{e.object}
	for _, former := range c.index.all(of) {
		ids = append(ids, former.id)
	}
	for _, id := range ids {
		if id == "" || e.ids[id] {
			continue
		}
		if leave, ok := c.shards.enter(id); ok {
			e.ids[id], e.leaves = true, append(e.leaves, leave)
		}
	}
	if len(e.ids) == 0 {
		return nil, nil
	}
	return e, nil
}

var errShared = errors.New("a controller that shares stacks needs a runner whose runs can be moved")
