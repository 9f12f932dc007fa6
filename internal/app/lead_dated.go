package app

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// datedLease is the Lease as the elector writes it, and knows until when this
// process has it. The elector counts from when it heard that a renewal was
// written, and one that was stopped while the answer was under way hears it when
// it wakes; others count from when it was written, which is no earlier than when
// it was asked for. So that is what counts here.
type datedLease struct {
	resourcelock.Interface
	now func() time.Time

	mu    sync.Mutex
	until time.Time // zero before it was had
}

// Create implements resourcelock.Interface.
func (d *datedLease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return d.write(ctx, r, d.Interface.Create)
}

// Update implements resourcelock.Interface.
func (d *datedLease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return d.write(ctx, r, d.Interface.Update)
}

func (d *datedLease) write(ctx context.Context, r resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	asked := d.now()
	if err := do(ctx, r); err != nil {
		return err // it may have been written; then it is had for longer than is known
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// In whole seconds, as others read it.
	d.until = asked.Add(time.Duration(r.LeaseDurationSeconds) * time.Second)
	return nil
}

// holds reports whether nobody else can have taken the Lease.
func (d *datedLease) holds() bool {
	now := d.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Before(d.until)
}
