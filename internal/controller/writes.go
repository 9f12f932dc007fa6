package controller

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
)

// ownWrites remembers up to where each object was written by us, so that a copy
// in the cache can be told from one that does not know our last write: acting
// upon that would start a run twice. What was written before this controller
// led is in the cache since it was filled.
type ownWrites struct {
	mu      sync.Mutex
	written map[types.NamespacedName]string
	copies  *lru.Cache // of what we wrote last, for when the cache has not heard of it yet
}

// ownCopies is how many objects are kept as we wrote them. Those that are looked
// at again before the cache hears of it are few.
const ownCopies = 64

// unseen stands for a version that no copy in the cache can have.
const unseen = "unseen"

// wrote notes the version that a write of ours has made.
func (v *ownWrites) wrote(obj client.Object) {
	key := client.ObjectKeyFromObject(obj)
	v.set(key, obj.GetResourceVersion())
	copied := obj.DeepCopyObject().(client.Object)
	copied.SetManagedFields(nil)
	v.kept().Add(key, copied)
}

func (v *ownWrites) kept() *lru.Cache {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.copies == nil {
		v.copies = lru.New(ownCopies)
	}
	return v.copies
}

// copyOf returns what we wrote last of an object, if nobody doubts it and it is
// the same object; nil if that is not known.
func (v *ownWrites) copyOf(key types.NamespacedName, uid types.UID) client.Object {
	kept, ok := v.kept().Get(key)
	if !ok {
		return nil
	}
	obj := kept.(client.Object)
	v.mu.Lock()
	defer v.mu.Unlock()
	if obj.GetUID() != uid || obj.GetResourceVersion() != v.written[key] {
		return nil
	}
	return obj.DeepCopyObject().(client.Object)
}

// doubt makes the next look at an object ask the server: somebody else wrote
// it, or we let it go, and nobody knows when the cache will hear of it.
func (v *ownWrites) doubt(key types.NamespacedName) { v.set(key, unseen) }

func (v *ownWrites) set(key types.NamespacedName, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.written == nil {
		v.written = map[types.NamespacedName]string{}
	}
	v.written[key] = version
}

func (v *ownWrites) forget(key types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.written, key)
}

// covers reports whether a copy of this version knows all that we wrote.
// Versions of one kind are counted up (Kubernetes 1.35); what is no number is
// never taken for newer.
func (v *ownWrites) covers(key types.NamespacedName, version string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, noted := v.written[key]
	return !noted || last == version || number(last) && number(version) && cmp.Or(cmp.Compare(len(version), len(last)), strings.Compare(version, last)) > 0
}

func number(s string) bool {
	return s != "" && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// look reads an object: from the cache if the copy there knows what we wrote,
// else as we wrote it, and if that is not known either, from the server.
func (c *Stacks) look(ctx context.Context, key types.NamespacedName) (obj client.Object, cached bool, err error) {
	obj = c.Dialect.New()
	if err := c.Client.Get(ctx, key, obj); err == nil {
		if c.writes.covers(key, obj.GetResourceVersion()) {
			return obj, true, nil
		}
		if own := c.writes.copyOf(key, obj.GetUID()); own != nil {
			return own, true, nil
		}
	}
	obj = c.Dialect.New()
	err = c.Live.Get(ctx, key, obj)
	switch {
	case apierrors.IsNotFound(err):
		c.writes.forget(key)
	case err == nil:
		c.writes.wrote(obj) // no older copy from here on
	}
	return obj, false, err
}

// current makes sure that what a pass was decided upon is what the server has,
// before something is begun that cannot be taken back.
func (c *Stacks) current(ctx context.Context, p *pass) error {
	if !p.stale {
		return nil
	}
	now := c.Dialect.New()
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(p.obj), now)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err != nil || now.GetUID() != p.obj.GetUID() || now.GetResourceVersion() != p.obj.GetResourceVersion() {
		return fault.New(fault.Conflict, "ObjectChanged", errors.New("the object changed while it was looked at"))
	}
	p.stale = false
	return nil
}

// anew looks at an object again at once, as the server has it.
func (c *Stacks) anew(obj client.Object) ctrl.Result {
	c.writes.doubt(client.ObjectKeyFromObject(obj))
	return again
}
