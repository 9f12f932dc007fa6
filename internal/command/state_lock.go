package command

import (
	"context"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
)

// resting refuses to touch a state while a run is at work.
func resting(h *query.StoredState) error {
	if t := h.Object.Status.Terrier; t != nil && t.Run != nil {
		return fault.New(fault.Later, query.ReasonRunning, fmt.Errorf("the run %s of the stack %s is at work", t.Run.ID, h.ID.Key))
	}
	return nil
}

// take takes the lock for a person, who may hold it already, and returns what
// frees it again if it was taken now.
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
	err = h.States.Lock(ctx, h.Ref, kube.LockInfo{ID: id, Operation: "by hand", Info: info, Who: who, Holder: query.HeldByPerson + who})
	if err != nil {
		return nil, err
	}
	return func() error { return h.States.Unlock(context.WithoutCancel(ctx), h.Ref, id) }, nil
}

// LockState keeps every run that writes, and every other program, off the state
// until the lock is freed. It returns the lock.
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
		err = fault.New(fault.Conflict, query.ReasonLockChanged, fmt.Errorf("the lock on the state of %s was freed at once", key))
	}
	if err != nil {
		return query.StateLock{}, err
	}
	return *l, s.wake(ctx, key)
}

// UnlockState frees the lock on a state: the caller's own without more, any
// other one only by its exact identifier, and that of a run that is at work
// never.
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
		return query.StateLock{}, fault.New(fault.Conflict, query.ReasonNoLock, fmt.Errorf("nobody holds the lock on the state of %s", key))
	case id != "" && id != l.ID:
		return *l, fault.New(fault.Conflict, query.ReasonLockChanged, fmt.Errorf("the lock on the state of %s is %s, not %s", key, l.ID, id))
	}
	if t := h.Object.Status.Terrier; t != nil && t.Run != nil && t.Run.ID == l.ID {
		return *l, fault.New(fault.Later, query.ReasonRunning, fmt.Errorf("the lock is held by the run %s of the stack %s, which is at work", l.ID, key))
	}
	if own := l.Person != "" && l.Person == s.person(ctx); !own && id == "" {
		return *l, fault.New(fault.Denied, query.ReasonLocked, fmt.Errorf("the lock on the state of %s is held by %s since %s, not by you: name it to free it all the same, %s", key, l.Who, l.Since.UTC().Format("2006-01-02T15:04:05Z"), l.ID))
	}
	if err := h.States.Unlock(ctx, h.Ref, l.ID); err != nil {
		return *l, err
	}
	return *l, s.wake(ctx, key)
}
