package controller

import (
	"cmp"
	"context"
	"errors"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
)

// unseen stands for a version that no copy in the cache can have.
const unseen = "unseen"

// doubt makes the next pass read the object from the server: something else
// wrote it, or it was released, and it is unknown when the cache has that.
func (e *entry) doubt() { e.written = unseen }

// covers reports whether a copy of this version has all that this controller
// wrote: acting upon one that has not would start a run twice. What was written
// before this controller led is in the cache since the cache was filled. Versions
// of one kind are counted up (Kubernetes 1.35); text that is no number is never
// taken for a newer version.
func (e *entry) covers(version string) bool {
	last := ""
	if e != nil {
		last = e.written
	}
	return last == "" || last == version || number(last) && number(version) && cmp.Or(cmp.Compare(len(version), len(last)), strings.Compare(version, last)) > 0
}

func number(s string) bool {
	return s != "" && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// readObject reads an object: from the cache if the copy there has what this controller
// wrote, else as this controller wrote it, and if that is unknown from the server.
func (ld *loader) readObject(ctx context.Context, of objectRef) (obj client.Object, cached bool, err error) {
	obj = of.dialect.New()
	e := ld.index.newest(of)
	if err := ld.cache.Get(ctx, of.key, obj); err == nil {
		if e.covers(obj.GetResourceVersion()) {
			return obj, true, nil
		}
		if string(obj.GetUID()) == e.id {
			if own := ld.index.copyOf(e); own != nil {
				return own, true, nil
			}
		}
	}
	obj = of.dialect.New()
	if err = ld.live.Get(ctx, of.key, obj); err == nil {
		ld.index.wrote(of, obj) // no older copy from here on
	}
	return obj, false, err
}

// confirm makes sure that what a pass was decided upon is what the server has,
// before something begins that cannot be undone.
func (ld *loader) confirm(ctx context.Context, p *pass) error {
	if !p.stale {
		return nil
	}
	now := p.dialect.New()
	err := ld.live.Get(ctx, client.ObjectKeyFromObject(p.obj), now)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err != nil || now.GetUID() != p.obj.GetUID() || now.GetResourceVersion() != p.obj.GetResourceVersion() {
		return fault.New(fault.Conflict, "ObjectChanged", errors.New("the object changed during the pass"))
	}
	p.stale = false
	return nil
}

// requeue makes a pass over the object at once, as the server has it.
func (ld *loader) requeue(e *entry) ctrl.Result {
	e.doubt()
	return again
}
