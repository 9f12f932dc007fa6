package rows

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// Pools holds at most one idle connection for each registry.
type Pools struct {
	options Options

	mu        sync.Mutex
	pools     map[string]*pool
	listening map[string]map[int]context.CancelFunc
	listeners int // ever started; names them
	closed    bool
	running   sync.WaitGroup // listeners
}

// New returns pools that nothing is connected by yet.
func New(o Options) *Pools {
	if o.MaxCell <= 0 {
		o.MaxCell = 256 << 10
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 128 << 20
	}
	if o.Quiet <= 0 {
		o.Quiet = time.Second
	}
	if o.Backoff <= 0 {
		o.Backoff = time.Second
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Control: refuseLinkLocal, KeepAlive: 15 * time.Second}).DialContext
	}
	return &Pools{options: o, pools: map[string]*pool{}, listening: map[string]map[int]context.CancelFunc{}}
}

// Read reads the given columns of all rows: all from one moment, or an error.
// Calls for one key wait for one another; a connection is kept for the next.
func (p *Pools) Read(ctx context.Context, key string, c Config, columns []string) (tenant.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	r, err := p.reader(c, columns)
	if err != nil {
		return tenant.Snapshot{}, err
	}
	var s tenant.Snapshot
	err = p.with(ctx, key, c, r.dialect, func(conn conn) error {
		var err error
		s, err = r.read(ctx, conn)
		return err
	})
	if err == nil {
		return s, nil
	}
	return tenant.Snapshot{}, p.diagnose(ctx, key, c, columns, r.explain(ctx, err))
}

// Describe returns the names of all columns that there are to ask for.
func (p *Pools) Describe(ctx context.Context, key string, c Config) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	r, err := p.reader(c, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	err = p.with(ctx, key, c, r.dialect, func(conn conn) error {
		var err error
		names, err = r.describe(ctx, conn)
		return err
	})
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	return names, nil
}

// Drop closes what is kept for key and ends its listeners.
func (p *Pools) Drop(key string) {
	p.mu.Lock()
	old := p.pools[key]
	delete(p.pools, key)
	for _, stop := range p.listening[key] {
		stop()
	}
	p.mu.Unlock()
	if old != nil {
		old.retire()
	}
}

// Close closes everything and waits for listeners to end. Reads that are under
// way keep their connection until they are done; later ones are refused.
func (p *Pools) Close() {
	p.mu.Lock()
	p.closed = true
	keys := slices.Concat(slices.Collect(maps.Keys(p.pools)), slices.Collect(maps.Keys(p.listening)))
	p.mu.Unlock()
	for _, key := range keys {
		p.Drop(key)
	}
	p.running.Wait()
}

// errClosed is what becomes of calls after Close.
var errClosed = errors.New("the controller is shutting down")

// pool returns that of key, replacing one that leads elsewhere.
func (p *Pools) pool(key string, c Config) (*pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	at := c.place()
	old := p.pools[key]
	if old != nil && old.place == at {
		return old, nil
	}
	if old != nil {
		old.retire()
	}
	fresh := &pool{place: at, turn: make(chan struct{}, 1)}
	p.pools[key] = fresh
	return fresh, nil
}

// with runs one read-only transaction. A connection that was idle may have died
// since: if it cannot even begin, a fresh one is tried. Only a connection that
// did all that was asked of it is kept.
func (p *Pools) with(ctx context.Context, key string, c Config, d dialect, do func(conn) error) error {
	pool, err := p.pool(key, c)
	if err != nil {
		return err
	}
	if err := pool.enter(ctx); err != nil {
		return err
	}
	defer pool.leave()
	conn := pool.awake(ctx)
	if conn == nil {
		if conn, err = d.connect(ctx, c, p.options); err != nil {
			return atConnect(err)
		}
		if err := conn.begin(ctx, left(ctx)); err != nil {
			conn.close()
			return err
		}
	}
	err = do(conn)
	if err == nil {
		err = conn.end(ctx)
	}
	if err != nil || !d.kept {
		conn.close()
		return err
	}
	pool.keep(conn)
	return nil
}

// idleFor is how long a connection is kept without being used.
const idleFor = 5 * time.Minute

// pool is the one connection of a registry.
type pool struct {
	place place
	turn  chan struct{} // holds the user of the connection

	mu      sync.Mutex
	idle    conn
	expires *time.Timer
	retired bool
}

func (p *pool) enter(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pool) leave() { <-p.turn }

// take returns the idle connection, if there is one.
func (p *pool) take() conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.idle
	p.idle = nil
	if p.expires != nil {
		p.expires.Stop()
	}
	return c
}

// awake returns the idle connection if a transaction can be begun on it. It is
// not waited for as long as a read may take: a connection that a firewall has
// forgotten does not answer at all.
func (p *pool) awake(ctx context.Context) conn {
	c := p.take()
	if c == nil {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, left(ctx)/4)
	defer cancel()
	if c.begin(short, left(ctx)) != nil {
		c.close()
		return nil
	}
	return c
}

// keep keeps a connection for the next read.
func (p *pool) keep(c conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		c.close()
		return
	}
	p.idle = c
	p.expires = time.AfterFunc(idleFor, func() {
		if old := p.take(); old != nil {
			old.close()
		}
	})
}

// retire closes what is idle and keeps nothing any more.
func (p *pool) retire() {
	p.mu.Lock()
	p.retired = true
	p.mu.Unlock()
	if c := p.take(); c != nil {
		c.close()
	}
}
