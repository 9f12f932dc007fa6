package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// LockInfo is a state lock as the engine writes it.
type LockInfo struct {
	ID        string
	Operation string
	Info      string
	Who       string
	Version   string
	Created   time.Time
	Path      string

	// Holder says which run of which stack of which installation took the lock;
	// empty if it was no run of Terrier. The engine does not write it.
	Holder string `json:"-"`
}

// LockedError says who holds a state lock.
type LockedError struct {
	Lease  types.NamespacedName
	Holder LockInfo
}

func (e *LockedError) Error() string {
	who := e.Holder.Who
	if who == "" {
		who = "an unknown holder"
	}
	if e.Holder.Info != "" && strings.HasPrefix(e.Holder.Holder, "person/") {
		who += fmt.Sprintf(" (%.200q)", e.Holder.Info)
	}
	return fmt.Sprintf("the state is locked by %s since %s (lock %s, lease %s)", who, e.Holder.Created.UTC().Format(time.RFC3339), e.Holder.ID, e.Lease)
}

// Holder returns who holds the lock, nil if it is free.
func (s States) Holder(ctx context.Context, ref StateRef) (*LockedError, error) {
	lease, err := s.getLease(ctx, ref)
	if err != nil || lease == nil || lease.Spec.HolderIdentity == nil {
		return nil, err
	}
	return &LockedError{Lease: ref.lease(), Holder: holder(lease)}, nil
}

// Lock takes the lock in the name of info.ID, or returns a *LockedError marked
// Later. Taking a lock again that the same ID holds succeeds, unless its Holder is
// another one.
func (s States) Lock(ctx context.Context, ref StateRef, info LockInfo) error {
	if lease, ok := s.Seen.free(ref.lease()); ok {
		if err := s.take(ctx, ref, lease, info); !outdated(err) {
			return err
		}
	}
	lease, err := s.getLease(ctx, ref)
	if err != nil {
		return err
	}
	return s.take(ctx, ref, lease, info)
}

// take writes info into a free lock, and creates the Lease if it is nil.
func (s States) take(ctx context.Context, ref StateRef, lease *coordinationv1.Lease, info LockInfo) error {
	info.Created, info.Path = s.Now().UTC(), ref.secret().String()
	text, err := json.Marshal(info)
	if err != nil {
		return err
	}
	if lease == nil {
		if err := ref.Check(stack.Words{}); err != nil {
			return err
		}
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: ref.lease().Name, Namespace: ref.Namespace, Labels: ref.labels(), Annotations: map[string]string{lockAnnotation: string(text), lockHolder: info.Holder}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &info.ID},
		}
		return s.wrote(ref, lease, s.Client.Create(ctx, lease, client.FieldOwner(FieldManager)))
	}
	if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
		if of := lease.Annotations[lockHolder]; *h == info.ID && (of == "" || info.Holder == "" || of == info.Holder) {
			return nil
		}
		return fault.New(fault.Later, "LockedByOther", &LockedError{Lease: ref.lease(), Holder: holder(lease)})
	}
	lease.Spec.HolderIdentity = &info.ID
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[lockAnnotation], lease.Annotations[lockHolder] = string(text), info.Holder
	return s.wrote(ref, lease, s.Client.Update(ctx, lease, client.FieldOwner(FieldManager)))
}

// Unlock frees the lock if id holds it. It leaves a lock that is free, or that
// another ID holds, as it is.
func (s States) Unlock(ctx context.Context, ref StateRef, id string) error {
	if lease, ok := s.Seen.heldBy(ref.lease(), id); ok {
		if err := s.release(ctx, ref, lease); !outdated(err) {
			return err
		}
	}
	lease, err := s.getLease(ctx, ref)
	if err != nil || lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != id {
		return err
	}
	return s.release(ctx, ref, lease)
}

// release writes a lock without a holder.
func (s States) release(ctx context.Context, ref StateRef, lease *coordinationv1.Lease) error {
	lease.Spec.HolderIdentity = nil
	delete(lease.Annotations, lockAnnotation)
	delete(lease.Annotations, lockHolder)
	return s.wrote(ref, lease, s.Client.Update(ctx, lease, client.FieldOwner(FieldManager)))
}

// wrote caches the server's answer to a write of a lock.
func (s States) wrote(ref StateRef, lease *coordinationv1.Lease, err error) error {
	if err != nil {
		s.Seen.forgetLease(ref.lease())
		return mark(err, "Lease", ref.lease())
	}
	s.Seen.wrote(ref.lease(), lease)
	return nil
}

func (s States) getLease(ctx context.Context, ref StateRef) (*coordinationv1.Lease, error) {
	if err := ref.named(stack.Words{}); err != nil {
		return nil, err
	}
	var lease coordinationv1.Lease
	err := s.Client.Get(ctx, ref.lease(), &lease)
	if apierrors.IsNotFound(err) {
		s.Seen.read(ref.lease(), nil)
		return nil, nil
	}
	if err != nil {
		return nil, mark(err, "Lease", ref.lease())
	}
	s.Seen.read(ref.lease(), &lease)
	return &lease, nil
}

func holder(lease *coordinationv1.Lease) LockInfo {
	var info LockInfo
	if err := json.Unmarshal([]byte(lease.Annotations[lockAnnotation]), &info); err != nil || info.ID == "" {
		// A lock without readable information is still a lock.
		info = LockInfo{ID: *lease.Spec.HolderIdentity, Created: lease.CreationTimestamp.Time}
	}
	info.Holder = lease.Annotations[lockHolder]
	return info
}
