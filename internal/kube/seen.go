package kube

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Seen caches locks and states as this process has read or written them last, so
// that a write need not read the object first.
//
// It never answers a read: the server does. It gives the version to write over,
// or says that there was no object, and the server refuses the write if that has
// changed. A caller that was refused reads the object and decides again. So a
// write over a cached version proves as much as a read right before it, and more:
// no other write came in between.
//
// A nil *Seen remembers nothing.
type Seen struct {
	leases cache.Map[types.NamespacedName, *coordinationv1.Lease]
	states cache.Map[types.NamespacedName, seenState]
}

const (
	seenMost  = 1024     // of either; enough for the stacks between a plan and its apply
	seenBytes = 64 << 10 // of a state: parsing a larger one costs more than reading it again
)

// NewSeen returns an empty cache.
func NewSeen() *Seen {
	return &Seen{
		leases: cache.Map[types.NamespacedName, *coordinationv1.Lease]{Size: seenMost},
		states: cache.Map[types.NamespacedName, seenState]{Size: seenMost},
	}
}

// free returns a lock without a holder, nil if there was no Lease.
func (s *Seen) free(key types.NamespacedName) (lease *coordinationv1.Lease, ok bool) {
	lease, ok = s.lease(key)
	return lease, ok && (lease == nil || lease.Spec.HolderIdentity == nil)
}

// heldBy returns a lock that this process took in the name of id.
func (s *Seen) heldBy(key types.NamespacedName, id string) (lease *coordinationv1.Lease, ok bool) {
	lease, ok = s.lease(key)
	return lease, ok && lease != nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == id
}

func (s *Seen) lease(key types.NamespacedName) (*coordinationv1.Lease, bool) {
	if s == nil {
		return nil, false
	}
	kept, ok := s.leases.Get(key)
	if !ok {
		return nil, false
	}
	return kept.DeepCopy(), true // nil of nil
}

// read caches a lock that is free, and forgets one that is held: a held lock is
// broken only after another read.
func (s *Seen) read(key types.NamespacedName, lease *coordinationv1.Lease) {
	if lease != nil && lease.Spec.HolderIdentity != nil {
		s.forgetLease(key)
		return
	}
	s.wrote(key, lease)
}

// wrote caches a lock as the server answered a write.
func (s *Seen) wrote(key types.NamespacedName, lease *coordinationv1.Lease) {
	if s == nil {
		return
	}
	lease = lease.DeepCopy()
	if lease != nil {
		lease.ManagedFields = nil // the server keeps its own where a write has none
	}
	s.leases.Put(key, lease)
}

func (s *Seen) forgetLease(key types.NamespacedName) {
	if s != nil {
		s.leases.Delete(key)
	}
}

// seenState is a Secret without the state in it.
type seenState struct {
	secret    *corev1.Secret // nil if there was none
	known     stack.StateID  // zero if it held no state
	outgrown  bool
	encrypted bool
}

// before returns the Secret of a state if the next version may replace the cached
// one. Only the stored state can say that it may not.
func (s *Seen) before(key types.NamespacedName, next []byte) (secret *corev1.Secret, old Stored, ok bool) {
	if s == nil {
		return nil, Stored{}, false
	}
	seen, ok := s.states.Get(key)
	if !ok {
		return nil, Stored{}, false
	}
	facts, err := stack.ReadState(next)
	ok = err == nil && (seen.known == stack.StateID{} || facts.Follows(seen.known))
	return seen.secret.DeepCopy(), Stored{Outgrown: seen.outgrown, Encrypted: seen.encrypted}, ok
}

// holds caches which version of a state a Secret holds.
func (s *Seen) holds(key types.NamespacedName, secret *corev1.Secret, found Stored) {
	if s == nil {
		return
	}
	seen, state := seenState{outgrown: found.Outgrown, encrypted: found.Encrypted}, found.State
	if len(state) > 0 {
		facts, err := stack.ReadState(state)
		if err != nil || len(state) > seenBytes {
			s.forgetState(key)
			return
		}
		seen.known = facts.StateID
	}
	if secret != nil {
		for name := range secret.Data {
			if name != stateKey { // another writer keeps more data in it, which a write has to preserve
				s.forgetState(key)
				return
			}
		}
		seen.secret = &corev1.Secret{ObjectMeta: *secret.ObjectMeta.DeepCopy(), Type: secret.Type, Immutable: secret.Immutable}
		seen.secret.ManagedFields = nil
	}
	s.states.Put(key, seen)
}

func (s *Seen) forgetState(key types.NamespacedName) {
	if s != nil {
		s.states.Delete(key)
	}
}

// outdated reports whether a write was refused because the version that it was to
// replace has gone.
func outdated(err error) bool {
	kind := fault.Of(err)
	return kind == fault.Conflict || kind == fault.Missing
}
