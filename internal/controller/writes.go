package controller

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
}

// unseen stands for a version that no copy in the cache can have.
const unseen = "unseen"

// wrote notes the version that a write of ours has made.
func (v *ownWrites) wrote(obj client.Object) {
	v.set(client.ObjectKeyFromObject(obj), obj.GetResourceVersion())
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
// else from the server.
func (c *Stacks) look(ctx context.Context, key types.NamespacedName) (obj client.Object, cached bool, err error) {
	obj = c.Dialect.New()
	if err := c.Client.Get(ctx, key, obj); err == nil && c.writes.covers(key, obj.GetResourceVersion()) {
		return obj, true, nil
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
