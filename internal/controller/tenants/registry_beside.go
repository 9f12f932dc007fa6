package tenants

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/share"
	"github.com/terrier-iac/terrier/internal/tenant"
)

const (
	// readPatience is how long a pass waits for a read. Most databases answer sooner.
	readPatience = time.Second

	// passesWait is how many passes wait for reads at once, each of another namespace. The other
	// workers are for registries whose reads are to begin, or have ended.
	passesWait = 2

	// readsAtOnce is how many reads of one namespace go on at once.
	readsAtOnce = 4

	// readTurn is when a registry asks by itself that waits for a read of its namespace to end,
	// should a wake be lost.
	readTurn = time.Minute
)

// reading is one read that goes on beside the passes over its registry.
type reading struct {
	generation  int64 // of the registry
	asked, sync string
	permit      string // the permission for deletions before it began
	last        string // the mark that it must not be less than
	began       time.Time
	stop        context.CancelFunc
	left        atomic.Bool   // no pass waits for it any more
	ended       chan struct{} // closed when the fields below are there

	took     time.Duration
	snapshot tenant.Snapshot
	err      error
}

// beside makes reads beside the passes, so that a database that hangs stops its own
// registry only. A few workers make the passes of all registries, and users choose their
// databases.
//
//	the read ends in time    the pass goes on with it
//	it does not              the pass goes on without rows, which changes nothing that
//	                         depends on them; the end of the read wakes the registry
//	the next reads           are not waited for until one has ended in time
//
// Nor is any while a pass of the namespace waits, or as many passes as may: databases that answer
// just in time would hold all workers.
//
// A registry has one read at a time, and a namespace a few. What waits for one of these is woken.
type beside struct {
	wake     func(types.NamespacedName)
	patience time.Duration
	work     chan func(context.Context)
	places   *share.Places[types.NamespacedName]
	waiters  *share.Places[types.NamespacedName] // passes that wait
}

func newBeside(wake func(types.NamespacedName)) *beside {
	return &beside{
		wake: wake, patience: readPatience, work: make(chan func(context.Context)),
		places:  share.New[types.NamespacedName](share.Bounds{Most: readsAtOnce, Overtake: true}),
		waiters: share.New[types.NamespacedName](share.Bounds{All: passesWait, Most: 1}),
	}
}

// Run makes the reads until ctx ends, and then waits for those that go on, whose contexts
// end with it.
func (b *beside) Run(ctx context.Context) error {
	var reads sync.WaitGroup
	defer reads.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case work := <-b.work:
			reads.Go(func() { work(ctx) })
		}
	}
}

// start starts a read of a registry. It is false if as many as may go on in its namespace.
func (b *beside) start(ctx context.Context, key types.NamespacedName, r *reading, read func(context.Context) (tenant.Snapshot, error)) bool {
	if !b.places.Enter(key.Namespace, key) {
		return false
	}
	r.ended = make(chan struct{})
	stopped, stop := context.WithCancel(context.Background())
	r.stop = stop
	select {
	case b.work <- func(life context.Context) {
		defer stop()
		ctx, cancel := context.WithCancel(life)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		began := time.Now() // as the timer of the pass counts
		r.snapshot, r.err = read(ctx)
		r.took = time.Since(began)
		b.places.End(key.Namespace)
		close(r.ended)
		if r.left.Load() {
			b.wake(key)
		}
		b.wakeNext(key.Namespace)
	}:
	case <-ctx.Done():
		stop()
		b.places.End(key.Namespace)
		r.err = context.Cause(ctx)
		close(r.ended)
		b.wakeNext(key.Namespace)
	}
	return true
}

// withdraw says that a registry does not wait for a read any more.
func (b *beside) withdraw(key types.NamespacedName) {
	if b.places.Withdraw(key) {
		b.wakeNext(key.Namespace)
	}
}

// wakeNext wakes the registries of a namespace that may begin a read now.
func (b *beside) wakeNext(namespace string) {
	for _, key := range b.places.Due(namespace) {
		b.wake(key)
	}
}

// read takes the result of a read that has ended, and starts one if it is time to.
func (c *rowReader) read(ctx context.Context, l *registryPass) {
	defer func() {
		if !l.queued {
			c.beside.withdraw(client.ObjectKeyFromObject(l.obj))
		}
	}()
	m := l.memory
	c.take(l)
	switch {
	case m.reading != nil:
		l.waiting = true
		if m.reading.generation != l.obj.Generation {
			m.reading.stop() // its rows are not asked for any more
		}
		return
	case !c.due(l):
		return
	case l.fresh:
		l.again = true // the next pass begins it: this one acts upon the rows that it has
		return
	}
	c.begin(ctx, l)
	if m.reading == nil {
		return
	}
	c.beside.wait(ctx, client.ObjectKeyFromObject(l.obj), m.reading, m.slow)
	m.slow = true
	c.take(l)
	l.waiting = m.reading != nil
}

// wait waits for the end of a read, unless the last one was slow or others wait.
func (b *beside) wait(ctx context.Context, key types.NamespacedName, r *reading, slow bool) {
	if !slow && b.waiters.Enter(key.Namespace, key) {
		defer b.waiters.End(key.Namespace)
		t := time.NewTimer(b.patience)
		defer t.Stop()
		select {
		case <-r.ended:
			return
		case <-t.C:
		case <-ctx.Done():
		}
	}
	b.waiters.Withdraw(key)
	r.left.Store(true) // its end wakes the registry from now on
}

// begin starts a read, if its namespace has a turn left. An error before it is its result.
func (c *rowReader) begin(ctx context.Context, l *registryPass) {
	m := l.memory
	m.mu.Lock()
	notified := m.now
	m.now = false
	m.mu.Unlock()
	r := &reading{
		generation: l.obj.Generation, asked: asked(l.obj), sync: l.obj.Annotations[tenantsv1.AnnotationSyncNow], permit: l.obj.Annotations[tenantsv1.AnnotationAllowDeletions],
		last: lastMark(l.obj), began: c.Now(),
	}
	read, err := c.query(ctx, l)
	switch {
	case err != nil:
		r.err = err
		c.keep(l, r)
	case c.beside.start(ctx, client.ObjectKeyFromObject(l.obj), r, read):
		m.reading = r
	default:
		l.waiting, l.queued = true, true
		m.mu.Lock()
		m.now = m.now || notified
		m.mu.Unlock()
	}
}

// take keeps the result of a read that has ended, unless the registry is another since.
func (c *rowReader) take(l *registryPass) {
	m := l.memory
	r := m.reading
	if r == nil {
		return
	}
	select {
	case <-r.ended:
	default:
		return
	}
	m.reading = nil
	m.slow = r.took > c.beside.patience
	if r.generation != l.obj.Generation {
		return // another read is due
	}
	c.keep(l, r)
}

// drop stops the read of a registry, and forgets it.
func (c *rowReader) drop(m *remembered) {
	if m.reading != nil {
		m.reading.stop()
		m.reading = nil
	}
}
