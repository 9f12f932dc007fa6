package rows

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxBackoff bounds the pause between attempts to listen.
const maxBackoff = time.Minute

// Listen calls notify for each notification of c.Channel, and each time that it
// begins to listen, since earlier notifications are lost. It returns when ctx or the
// Pools end, or key is dropped; it listens again after each end of a connection. An
// error is always one of the configuration.
//
// Calls of notify come one after another, and however many notifications there
// are, no more often than Options.Quiet.
func (p *Pools) Listen(ctx context.Context, key string, c Config, notify func()) error {
	if c.Kind != PostgreSQL || c.Channel == "" || len(c.Channel) > 63 {
		return refuse(ConfigInvalid, "listening needs PostgreSQL and a channel of at most 63 bytes")
	}
	r, err := p.reader(c, nil)
	if err != nil {
		return err
	}
	ctx, done, err := p.listener(ctx, key)
	if err != nil {
		return nil
	}
	defer done()
	rang := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.listenUntilDone(ctx, func() {
			select {
			case rang <- struct{}{}:
			default: // one is waiting already
			}
		})
	}()
	for {
		select {
		case <-ctx.Done():
			<-ended
			return nil
		case <-rang:
			notify()
			pause(ctx, p.options.Quiet)
		}
	}
}

// listener registers a listener for Drop and Close.
func (p *Pools) listener(ctx context.Context, key string) (context.Context, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	p.listeners++
	id := p.listeners
	if p.listening[key] == nil {
		p.listening[key] = map[int]context.CancelFunc{}
	}
	p.listening[key][id] = cancel
	p.running.Add(1)
	return ctx, func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		if delete(p.listening[key], id); len(p.listening[key]) == 0 {
			delete(p.listening, key)
		}
		p.running.Done()
	}, nil
}

// listenUntilDone listens until ctx ends, again after each failure.
func (r *reader) listenUntilDone(ctx context.Context, ring func()) {
	backoff := r.options.Backoff
	for ctx.Err() == nil {
		if r.hearOnce(ctx, ring) {
			backoff = r.options.Backoff
		}
		pause(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// hearOnce listens on one connection, and reports whether it got that far.
func (r *reader) hearOnce(ctx context.Context, ring func()) bool {
	soon, cancel := context.WithTimeout(ctx, r.config.timeout())
	defer cancel()
	var m *meter
	cfg, err := postgresConfig(r.config, r.options, func(dialled *meter) { m = dialled })
	if err != nil {
		return false
	}
	cfg.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { ring() }
	conn, err := pgconn.ConnectConfig(soon, cfg)
	if err != nil {
		return false
	}
	p := &postgresConn{conn: conn, meter: m, options: r.options}
	defer p.close()
	if err := p.exec(soon, "LISTEN "+r.ident(r.config.Channel)); err != nil {
		return false
	}
	ring()
	for conn.WaitForNotification(ctx) == nil {
		m.reset(r.options)
	}
	return true
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
