package controller

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sound remembers what was as it should be when it was looked at last, by the
// UIDs of stacks.
type sound struct {
	mu      sync.Mutex
	states  map[string]bool
	outputs map[string]outputsAt
}

// outputsAt is a Secret, and the version at which it holds what was written to it.
type outputsAt struct{ secret, version string }

// state notes whether a state was found to be the stack's own and what it should
// be.
func (s *sound) state(id string, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil {
		s.states = map[string]bool{}
	}
	if well {
		s.states[id] = true
	} else {
		delete(s.states, id)
	}
}

// stateOf reports whether the state of a stack was sound when it was looked at
// last.
func (s *sound) stateOf(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[id]
}

// published notes at which version a Secret holds the outputs of a stack, empty
// if that says nothing.
func (s *sound) published(id, secret, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outputs == nil {
		s.outputs = map[string]outputsAt{}
	}
	s.outputs[id] = outputsAt{secret, version}
}

func (s *sound) outputsOf(id string) outputsAt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outputs[id]
}

func (s *sound) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.states, id)
	delete(s.outputs, id)
}

// untouched reports whether the watch of Secrets has the outputs of a stack at
// the version at which they were what they should be. A watch that lags behind
// shows another version, or none, and then the server is asked; a change that it
// has not heard of yet wakes the stack once it has.
func (c *Stacks) untouched(ctx context.Context, id string, key types.NamespacedName) bool {
	known := c.sound.outputsOf(id)
	if known.version == "" || known.secret != key.Name {
		return false
	}
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return c.Client.Get(ctx, key, seen) == nil && seen.ResourceVersion == known.version
}
