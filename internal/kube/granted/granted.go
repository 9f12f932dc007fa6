// Package granted watches the metadata of Secrets and ConfigMaps in the namespaces that
// hold objects of Terrier, and in no others, as soon as the API server permits it there. So the controller needs no right to the Secrets of the
// whole cluster: the owner of a namespace grants it with a RoleBinding.
//
// It decides nothing, and keeps no content of any object. A namespace that is
// forbidden counts as empty until it is granted.
//
// Start reading at Namespaces.
package granted

import (
	"context"
	"fmt"
	"sync"

	authzv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authzclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/tools/cache"
)

// Everywhere reports whether the client may list and watch a resource in all
// namespaces.
func Everywhere(ctx context.Context, reviews authzclient.SelfSubjectAccessReviewInterface, of schema.GroupVersionResource) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		review := &authzv1.SelfSubjectAccessReview{Spec: authzv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authzv1.ResourceAttributes{Verb: verb, Group: of.Group, Version: of.Version, Resource: of.Resource},
		}}
		answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking whether this controller may %s the %s of all namespaces: %w", verb, of.Resource, err)
		}
		if !answer.Status.Allowed {
			return false, nil
		}
	}
	return true, nil
}

// Namespaces are those with objects of Terrier. The zero value has none.
type Namespaces struct {
	mu      sync.Mutex
	objects map[string]int // by namespace
	watches []*Watch
	follows []cache.InformerSynced
}

// Follow counts the objects of an informer. It is called before any Watch starts.
func (n *Namespaces) Follow(informer interface {
	AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}) error {
	r, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { n.count(o, 1) },
		DeleteFunc: func(o any) { n.count(o, -1) },
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.follows = append(n.follows, r.HasSynced)
	return nil
}

// count opens a namespace with its first object, and closes it after its last one.
func (n *Namespaces) count(o any, by int) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return // informers hold objects only
	}
	namespace := m.GetNamespace()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.objects == nil {
		n.objects = map[string]int{}
	}
	n.objects[namespace] += by
	switch {
	case n.objects[namespace] == 0:
		delete(n.objects, namespace)
		for _, w := range n.watches {
			w.close(namespace)
		}
	case n.objects[namespace] == 1 && by > 0:
		for _, w := range n.watches {
			w.open(namespace)
		}
	}
}

// begin opens the namespaces in use for w, now and from now on.
func (n *Namespaces) begin(ctx context.Context, w *Watch) bool {
	n.mu.Lock()
	follows := n.follows
	n.mu.Unlock()
	if !cache.WaitForCacheSync(ctx.Done(), follows...) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watches = append(n.watches, w)
	for namespace := range n.objects {
		w.open(namespace)
	}
	return true
}
