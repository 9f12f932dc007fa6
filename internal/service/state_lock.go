package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// heldByPerson begins the holder of a lock that a person took.
const heldByPerson = "person/"

// lock is who holds the lock, nil if nobody does.
func (h *held) lock(ctx context.Context) (*StateLock, error) {
	l, err := h.states.Holder(ctx, h.ref)
	if err != nil || l == nil {
		return nil, err
	}
	person, ok := strings.CutPrefix(l.Holder.Holder, heldByPerson)
	if !ok {
		person = ""
	}
	return &StateLock{ID: l.Holder.ID, Who: l.Holder.Who, Info: l.Holder.Info, Since: l.Holder.Created, Person: person}, nil
}

// resting refuses to touch a state while a run is at work.
func (h *held) resting() error {
	if t := h.object.Status.Terrier; t != nil && t.Run != nil {
		return fault.New(fault.Later, ReasonRunning, fmt.Errorf("the run %s of the stack %s is at work", t.Run.ID, h.id.Key))
	}
	return nil
}

// take takes the lock for a person, who may hold it already, and returns what
// frees it again if it was taken now.
func (h *held) take(ctx context.Context, who, info, id string) (free func() error, err error) {
	l, err := h.lock(ctx)
	if err != nil {
		return nil, err
	}
	if l != nil && l.Person != "" && l.Person == who {
		return func() error { return nil }, nil
	}
	if id == "" {
		id = newLock()
	}
	err = h.states.Lock(ctx, h.ref, kube.LockInfo{ID: id, Operation: "by hand", Info: info, Who: who, Holder: heldByPerson + who})
	if err != nil {
		return nil, err
	}
	return func() error { return h.states.Unlock(context.WithoutCancel(ctx), h.ref, id) }, nil
}

// person is the caller as the cluster knows them.
func (s *Stacks) person(ctx context.Context) string {
	if who := s.whoami(ctx); who != "" {
		return who
	}
	return "somebody"
}

// LockState keeps every run that writes, and every other program, off the state
// until the lock is freed. It returns the lock.
func (s *Stacks) LockState(ctx context.Context, key Key, reason string) (StateLock, error) {
	h, err := s.kept(ctx, key)
	if err != nil {
		return StateLock{}, err
	}
	if _, err := h.take(ctx, s.person(ctx), reason, ""); err != nil {
		return StateLock{}, err
	}
	l, err := h.lock(ctx)
	if err == nil && l == nil {
		err = fault.New(fault.Conflict, ReasonLockChanged, fmt.Errorf("the lock on the state of %s was freed at once", key))
	}
	if err != nil {
		return StateLock{}, err
	}
	return *l, s.wake(ctx, key)
}

// UnlockState frees the lock on a state: the caller's own without more, any
// other one only by its exact identifier, and that of a run that is at work
// never.
func (s *Stacks) UnlockState(ctx context.Context, key Key, id string) (StateLock, error) {
	h, err := s.kept(ctx, key)
	if err != nil {
		return StateLock{}, err
	}
	l, err := h.lock(ctx)
	switch {
	case err != nil:
		return StateLock{}, err
	case l == nil:
		return StateLock{}, fault.New(fault.Conflict, ReasonNoLock, fmt.Errorf("nobody holds the lock on the state of %s", key))
	case id != "" && id != l.ID:
		return *l, fault.New(fault.Conflict, ReasonLockChanged, fmt.Errorf("the lock on the state of %s is %s, not %s", key, l.ID, id))
	}
	if t := h.object.Status.Terrier; t != nil && t.Run != nil && t.Run.ID == l.ID {
		return *l, fault.New(fault.Later, ReasonRunning, fmt.Errorf("the lock is held by the run %s of the stack %s, which is at work", l.ID, key))
	}
	if own := l.Person != "" && l.Person == s.person(ctx); !own && id == "" {
		return *l, fault.New(fault.Denied, ReasonLocked, fmt.Errorf("the lock on the state of %s is held by %s since %s, not by you: name it to free it all the same, %s", key, l.Who, l.Since.UTC().Format("2006-01-02T15:04:05Z"), l.ID))
	}
	if err := h.states.Unlock(ctx, h.ref, l.ID); err != nil {
		return *l, err
	}
	return *l, s.wake(ctx, key)
}
