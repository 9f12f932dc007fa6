package children

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// store receives the events of the reflector of one kind in one namespace. It
// keeps the keys of objects of tenants and drops all others, so that ten thousand
// Secrets of others cost nothing.
type store struct {
	watches *Watches
	kind    schema.GroupVersionKind
	watch   *kindWatch
	has     map[Key]bool // used by the reflector's goroutine only
	listed  bool
}

var _ cache.ReflectorStore = (*store)(nil)

func (s *store) key(obj any) (Key, *metav1.PartialObjectMetadata, error) {
	o, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return Key{}, nil, fmt.Errorf("a watch of metadata gave %T", obj)
	}
	return Key{Group: s.kind.Group, Version: s.kind.Version, Kind: s.kind.Kind, Namespace: o.Namespace, Name: o.Name}, o, nil
}

func (s *store) Add(obj any) error { return s.Update(obj) }

func (s *store) Update(obj any) error {
	key, o, err := s.key(obj)
	if err != nil {
		return err
	}
	if s.watches.observed(key, o) {
		s.has[key] = true
	} else {
		delete(s.has, key)
	}
	return nil
}

func (s *store) Delete(obj any) error {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	key, _, err := s.key(obj)
	if err != nil {
		return err
	}
	delete(s.has, key)
	s.watches.deleted(key)
	return nil
}

// Replace implements cache.ReflectorStore: objects that are not in the new list
// are gone.
func (s *store) Replace(all []any, _ string) error {
	there := make(map[Key]bool, len(s.has))
	for _, obj := range all {
		key, o, err := s.key(obj)
		if err != nil {
			return err
		}
		if s.watches.observed(key, o) {
			there[key] = true
		}
	}
	for key := range s.has {
		if !there[key] {
			s.watches.deleted(key)
		}
	}
	s.has = there
	if !s.listed {
		s.listed = true
		s.watches.mu.Lock()
		s.watch.synced++
		s.watches.mu.Unlock()
	}
	return nil
}

func (s *store) Resync() error { return nil }
