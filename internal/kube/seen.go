package kube

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Seen remembers locks and states as this process has read or written them last,
// so that a write need not read first what it goes over.
//
// It never answers what is there: that is always asked of the server. It says
// over which version to write, or that there was nothing, and the server refuses
// the write if that is not so any more. Whoever was refused reads, and decides
// upon what is there. So a write over something remembered says as much as a
// read right before it would have said, and more: nobody wrote in between.
//
// A nil *Seen remembers nothing.
type Seen struct{ leases, states *lru.Cache }

const (
	seenMost  = 1024     // of either; what is between a plan and its apply is worth remembering
	seenBytes = 64 << 10 // of a state: a larger one is read again instead of being taken apart once more
)

// NewSeen remembers nothing yet.
func NewSeen() *Seen { return &Seen{lru.New(seenMost), lru.New(seenMost)} }

// free returns a lock that nobody held, nil if there was none.
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
	return kept.(*coordinationv1.Lease).DeepCopy(), true // of nil it is nil
}

// read remembers a lock that is free, and forgets one that somebody holds: such
// a lock is broken only after another look.
func (s *Seen) read(key types.NamespacedName, lease *coordinationv1.Lease) {
	if lease != nil && lease.Spec.HolderIdentity != nil {
		s.forgetLease(key)
		return
	}
	s.wrote(key, lease)
}

// wrote remembers a lock as it was answered to a write of ours.
func (s *Seen) wrote(key types.NamespacedName, lease *coordinationv1.Lease) {
	if s == nil {
		return
	}
	lease = lease.DeepCopy()
	if lease != nil {
		lease.ManagedFields = nil // the server keeps its own where a write has none
	}
	s.leases.Add(key, lease)
}

func (s *Seen) forgetLease(key types.NamespacedName) {
	if s != nil {
		s.leases.Remove(key)
	}
}

// seenState is a Secret without the state in it.
type seenState struct {
	secret   *corev1.Secret // nil if there was none
	known    stack.Known    // zero if it held no state
	outgrown bool
}

// before returns the Secret of a state if the next version may go over what was
// in it. That it may not is for what is there now to say.
func (s *Seen) before(key types.NamespacedName, next []byte) (secret *corev1.Secret, old Stored, ok bool) {
	if s == nil {
		return nil, Stored{}, false
	}
	kept, ok := s.states.Get(key)
	if !ok {
		return nil, Stored{}, false
	}
	seen := kept.(seenState)
	facts, err := stack.ReadState(next)
	ok = err == nil && (seen.known == stack.Known{} || facts.Follows(seen.known))
	return seen.secret.DeepCopy(), Stored{Outgrown: seen.outgrown}, ok
}

// holds remembers which version of a state a Secret holds.
func (s *Seen) holds(key types.NamespacedName, secret *corev1.Secret, state []byte, outgrown bool) {
	if s == nil {
		return
	}
	seen := seenState{outgrown: outgrown}
	if len(state) > 0 {
		facts, err := stack.ReadState(state)
		if err != nil || len(state) > seenBytes {
			s.forgetState(key)
			return
		}
		seen.known = facts.Known
	}
	if secret != nil {
		for name := range secret.Data {
			if name != stateKey { // somebody keeps more in it, which a write has to bring along
				s.forgetState(key)
				return
			}
		}
		seen.secret = &corev1.Secret{ObjectMeta: *secret.ObjectMeta.DeepCopy(), Type: secret.Type, Immutable: secret.Immutable}
		seen.secret.ManagedFields = nil
	}
	s.states.Add(key, seen)
}

func (s *Seen) forgetState(key types.NamespacedName) {
	if s != nil {
		s.states.Remove(key)
	}
}

// outdated reports whether a write was refused because what it was to go over is
// not there any more.
func outdated(err error) bool {
	kind := fault.Of(err)
	return kind == fault.Conflict || kind == fault.Missing
}
