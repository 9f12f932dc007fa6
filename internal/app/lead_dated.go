package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// datedLease is the Lease as the elector writes it, and knows until when this
// process holds it. The elector counts from the answer to a renewal, and a process
// that was stopped meanwhile receives the answer when it resumes. Other controllers
// count from the write, which is no earlier than the request. So datedLease counts
// from the request.
type datedLease struct {
	resourcelock.Interface
	now   func() time.Time
	final bool // once it has expired it is not renewed

	mu    sync.Mutex
	until time.Time // zero before the Lease was held
}

func (d *datedLease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return d.write(ctx, r, d.Interface.Create)
}

func (d *datedLease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return d.write(ctx, r, d.Interface.Update)
}

var errLapsed = errors.New("the Lease has expired, and another process may have taken over since")

// write refuses to renew a final Lease that has expired, also if no other process took it:
// others may have seen that it expired, and counted on it.
func (d *datedLease) write(ctx context.Context, r resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	asked := d.now()
	if d.final && d.lapsed() {
		return errLapsed
	}
	if err := do(ctx, r); err != nil {
		return err // if it was written all the same, the Lease is held for longer than this assumes
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// In whole seconds, as other controllers read it.
	d.until = asked.Add(time.Duration(r.LeaseDurationSeconds) * time.Second)
	return nil
}

// lapsed reports whether the Lease was held and has expired.
func (d *datedLease) lapsed() bool {
	now := d.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.until.IsZero() && !now.Before(d.until)
}

// holds reports whether no other process can hold the Lease.
func (d *datedLease) holds() bool {
	now := d.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Before(d.until)
}
