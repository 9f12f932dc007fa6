package command

import (
	"context"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
)

// idle refuses to change a state while a run goes on.
func idle(h *query.StoredState) error {
	if run := h.Object.View.Run; run != nil {
		return fault.New(fault.Later, query.ReasonRunning, fmt.Errorf("the run %s of the stack %s is running", run.ID, h.ID.Key))
	}
	return nil
}

// take takes the lock for a user, who may hold it already, and returns a function
// that frees it again if it was taken now.
func take(ctx context.Context, h *query.StoredState, who, info, id string) (free func() error, err error) {
	l, err := h.Lock(ctx)
	if err != nil {
		return nil, err
	}
	if l != nil && l.Person != "" && l.Person == who {
		return func() error { return nil }, nil
	}
	if id == "" {
		id = newLock()
	}
	err = h.States.Lock(ctx, h.Ref, kube.LockInfo{ID: id, Operation: "manual", Info: info, Who: who, Holder: query.HeldByPerson + who})
	if err != nil {
		return nil, err
	}
	return func() error { return h.States.Unlock(context.WithoutCancel(ctx), h.Ref, id) }, nil
}

// LockState locks the state: until the lock is freed, no run and no other program
// writes it. It returns the lock.
func (s *States) LockState(ctx context.Context, key query.Key, reason string) (query.StateLock, error) {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return query.StateLock{}, err
	}
	if _, err := take(ctx, h, s.person(ctx), reason, ""); err != nil {
		return query.StateLock{}, err
	}
	l, err := h.Lock(ctx)
	if err == nil && l == nil {
		err = fault.New(fault.Conflict, query.ReasonLockChanged, fmt.Errorf("the lock on the state of %s was freed immediately", key))
	}
	if err != nil {
		return query.StateLock{}, err
	}
	return *l, s.wake(ctx, key)
}

// UnlockState frees the lock on a state: the caller's own without an identifier,
// another one only by its exact identifier, and that of a run that goes on never.
func (s *States) UnlockState(ctx context.Context, key query.Key, id string) (query.StateLock, error) {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return query.StateLock{}, err
	}
	l, err := h.Lock(ctx)
	switch {
	case err != nil:
		return query.StateLock{}, err
	case l == nil:
		return query.StateLock{}, fault.New(fault.Conflict, query.ReasonNoLock, fmt.Errorf("the state of %s is not locked", key))
	case id != "" && id != l.ID:
		return *l, fault.New(fault.Conflict, query.ReasonLockChanged, fmt.Errorf("the lock on the state of %s is %s, not %s", key, l.ID, id))
	}
	if run := h.Object.View.Run; run != nil && run.ID == l.ID {
		return *l, fault.New(fault.Later, query.ReasonRunning, fmt.Errorf("the lock is held by the run %s of the stack %s, which is running", l.ID, key))
	}
	if own := l.Person != "" && l.Person == s.person(ctx); !own && id == "" {
		return *l, fault.New(fault.Denied, query.ReasonLocked, fmt.Errorf("the lock on the state of %s is held by %s since %s, not by you: to free it, name its identifier, %s", key, l.Who, l.Since.UTC().Format("2006-01-02T15:04:05Z"), l.ID))
	}
	if err := h.States.Unlock(ctx, h.Ref, l.ID); err != nil {
		return *l, err
	}
	return *l, s.wake(ctx, key)
}
