package controller

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// restoreStatus gives a stack whose status was lost what must survive it. A stack
// that was taken for a new one would create untracked resources a second time, and
// release those in a backend of its own.
func (ld *loader) restoreStatus(ctx context.Context, p *pass) error {
	if !p.o.Status.Blank() {
		return nil
	}
	l, err := record.Checkpoint(p.id).Read(ctx, ld.blobs)
	if fault.Of(err) == fault.Missing {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what must survive the status: %w", err)
	}
	if l.Same(stack.Checkpoint{}) {
		return nil
	}
	p.o.Status = p.o.Status.Restored(l)
	ld.events.Event(p.obj, warning, "StatusRestored", "The status of this stack was lost. The records have its created and its untracked resources; a new plan finds the rest")
	return nil
}

// completeStatus has the pass know what the object has no room to show.
func (ld *loader) completeStatus(ctx context.Context, p *pass) error {
	if !stack.Incomplete(p.st.Status) {
		return nil
	}
	l, err := record.Checkpoint(p.id).Read(ctx, ld.blobs)
	if fault.Of(err) == fault.Missing || fault.Reason(err, "") == blob.Damaged {
		return nil // what is shown is all that is left
	}
	if err != nil {
		return fmt.Errorf("reading the untracked resources that the status has no room for: %w", err)
	}
	p.st.Status = stack.Completed(p.st.Status, l)
	return nil
}

// saveCheckpoint keeps what must survive the status, before the status says it.
func (cm *committer) saveCheckpoint(ctx context.Context, p *pass) error {
	l := p.o.Status.Checkpoint()
	if l.Same(p.st.Status.Checkpoint()) {
		return nil
	}
	if err := record.Checkpoint(p.id).Write(ctx, cm.blobs, l); err != nil {
		return fmt.Errorf("keeping what must survive the status: %w", err)
	}
	return nil
}

// statusLost wakes a stack whose status was removed: one that waits for a person is
// woken by nothing else, and its status would stay empty.
func (wt *watches) statusLost() predicate.Predicate {
	blank := func(o client.Object) bool {
		st, err := wt.decode(o)
		return st.Status.Blank() && fault.Of(err) != fault.Broken // which is there, and cannot be read
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return blank(e.ObjectNew) && !blank(e.ObjectOld) }}
}
