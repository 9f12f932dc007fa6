package tenants

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// effect is an action that was done, for the events about it.
type effect struct {
	tenant.Act
	ref    tenant.Ref
	uid    string
	change children.Change
}

// childWriter writes and deletes the objects of Tenants.
type childWriter struct {
	Options
	metrics *metrics
}

// apply does what was decided, one wave after another, and adds the results to the
// observation. A failure of one object is noted there; an error is a failure of
// the server.
func (c *childWriter) apply(ctx context.Context, p *pass, acts []tenant.Act) error {
	for _, wave := range waves(acts) {
		if err := c.wave(ctx, p, wave); err != nil {
			return err
		}
	}
	return nil
}

// waves are the actions that may be done at once; acts are sorted.
func waves(acts []tenant.Act) [][]tenant.Act {
	var all [][]tenant.Act
	for i, a := range acts {
		if i == 0 || a.Wave != acts[i-1].Wave {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], a)
	}
	return all
}

func (c *childWriter) wave(ctx context.Context, p *pass, acts []tenant.Act) error {
	type result struct {
		ref   tenant.Ref
		child tenant.Child
		done  effect
		err   error
	}
	results := make([]result, len(acts))
	var group errgroup.Group // a failure must not stop the others: their results must be known
	group.SetLimit(parallel)
	for i, a := range acts {
		group.Go(func() error {
			r := &results[i]
			switch {
			case a.Write != nil:
				r.ref = tenant.RefOf(a.Write.Rendered)
				r.child, r.done, r.err = c.write(ctx, p, a)
			case a.Untie != nil:
				r.ref = a.Untie.Ref
				r.child, r.done, r.err = c.untie(ctx, p, a)
			default:
				r.ref = itemOf(a).Ref
				r.child, r.done, r.err = c.remove(ctx, p, a)
			}
			return nil
		})
	}
	_ = group.Wait() // every error is in its result
	var errs []error
	for _, r := range results {
		if r.err != nil {
			errs = append(errs, r.err)
			continue
		}
		p.o.Live[r.ref] = r.child
		if r.child.Failure == nil {
			p.effects = append(p.effects, r.done)
		}
	}
	return errors.Join(errs...)
}

func itemOf(a tenant.Act) *tenant.Item {
	if a.Remove != nil {
		return a.Remove
	}
	return a.Orphan
}

// write makes one object as rendered.
func (c *childWriter) write(ctx context.Context, p *pass, a tenant.Act) (tenant.Child, effect, error) {
	o, ref := a.Write, tenant.RefOf(a.Write.Rendered)
	want, n, before := p.wantedDigest(*o), p.memory.get(ref), p.o.Live[ref]
	live, err := p.children.Write(ctx, children.Write{
		Object: o.Rendered, Patch: o.Patch, Force: o.Conflict == tenant.Force, IgnoreFields: o.IgnoreFields,
		Creation: o.Creation, Deletion: o.Deletion, Owner: p.owner, Untied: p.o.Protected, Seen: p.take(ref), Absent: !before.Exists, Defaults: o.Defaults,
	})
	c.metrics.applied(ref.Kind, string(o.Conflict), err)
	if err != nil {
		f, concerns := failureOf(p, "write", ref, err)
		if !concerns {
			lasting := p.unavailable(ctx, "write", ref, err)
			if lasting == nil {
				return tenant.Child{}, effect{}, err
			}
			f = *lasting
		}
		if f.Conflict {
			c.metrics.conflict(p.obj, ref.Kind, string(o.Conflict))
		}
		n.fail(f, p.trial(want, n), p.now)
		p.memory.put(ref, n)
		before.Failure = n.failure
		return before, effect{}, nil
	}
	if live.Object != nil {
		n.seen = withoutStatus(live.Object)
	}
	n.version, n.desired, n.live = live.ResourceVersion, want, n.seen
	n.failure, n.tried, n.attempts = nil, "", 0
	p.memory.outages.over(about{ref, true})
	if o.ReadyWhen != "" && live.Object != nil {
		n.object = live.Object
	}
	p.memory.put(ref, n)
	child := c.childOf(ref, live)
	child.Current, child.Wrote = true, live.Change != children.Unchanged
	if child.Object == nil {
		child.Object = n.object
	}
	return child, effect{Act: a, ref: ref, uid: live.UID, change: live.Change}, nil
}

// untie takes the tie of one object to its Tenant off. The next pass reads the object again.
func (c *childWriter) untie(ctx context.Context, p *pass, a tenant.Act) (tenant.Child, effect, error) {
	item := a.Untie
	before, n := p.o.Live[item.Ref], p.memory.get(item.Ref)
	if err := p.children.Untie(ctx, item.Ref, item.UID, item.Deletion, p.owner); err != nil {
		f, concerns := failureOf(p, "patch", item.Ref, err)
		if !concerns {
			lasting := p.unavailable(ctx, "patch", item.Ref, err)
			if lasting == nil {
				return tenant.Child{}, effect{}, err
			}
			f = *lasting
		}
		f.Message = "Kubernetes may delete the object with its Tenant, since its ownerReference cannot be removed: " + f.Message
		n.fail(f, p.trial(p.wantedAt(item.Ref), n), p.now)
		p.memory.put(item.Ref, n)
		before.Failure = n.failure
		return before, effect{}, nil
	}
	before.Tied, before.Deletion, before.Failure = false, item.Deletion, nil
	return before, effect{Act: a, ref: item.Ref, uid: before.UID}, nil
}

// retriedDeletion ends the message of a refused deletion.
const retriedDeletion = "; Terrier retries the deletion by itself"

// remove deletes one object, or marks it as retained.
func (c *childWriter) remove(ctx context.Context, p *pass, a tenant.Act) (tenant.Child, effect, error) {
	item := itemOf(a)
	before, n, key := p.o.Live[item.Ref], p.memory.get(item.Ref), item.Ref
	verb := "delete"
	var err error
	if a.Orphan != nil {
		verb = "patch"
		err = p.children.Orphan(ctx, key, before.UID, a.Why, p.owner, p.now)
	} else {
		err = p.children.Delete(ctx, key, before.UID)
	}
	if err != nil {
		f, concerns := failureOf(p, verb, item.Ref, err)
		if !concerns {
			lasting := p.unavailable(ctx, verb, item.Ref, err)
			if lasting == nil {
				return tenant.Child{}, effect{}, err
			}
			f = *lasting
		}
		if f.Reason == tenant.ApplyFailed {
			f.Reason = tenant.CleanupFailed
		}
		f.Message += retriedDeletion
		n.fail(f, p.trial("", n), p.now)
		p.memory.put(item.Ref, n)
		before.Failure = n.failure
		return before, effect{}, nil
	}
	done := effect{Act: a, ref: item.Ref, uid: before.UID}
	if a.Orphan != nil {
		before.Orphaned, before.Owned, before.Failure = true, false, nil
		return before, done, nil
	}
	live, err := c.leaving(ctx, p, key) // most objects are gone at once
	if err != nil {
		return tenant.Child{}, effect{}, fmt.Errorf("reading %s after its deletion: %w", item.Ref, err)
	}
	n.version, n.seen, n.failure = live.ResourceVersion, withoutStatus(live.Object), nil
	p.memory.put(item.Ref, n)
	child := c.childOf(key, live)
	child.Deleting = live.Exists && (live.Deleting || live.UID == before.UID)
	return child, done, nil
}

// failureOf is the failure of one object by an error; concerns is false for an
// error that is about the server, and not about the object.
func failureOf(p *pass, verb string, ref tenant.Ref, err error) (f tenant.Failure, concerns bool) {
	f = tenant.Failure{Reason: tenant.ApplyFailed, Message: shorten(p.redacted(err.Error()))}
	if conflict, ok := errors.AsType[*children.ConflictError](err); ok {
		f.Conflict, f.Reason, f.Message = true, tenant.ResourceConflict, shorten(p.redacted(conflict.Error()))
		return f, true
	}
	if _, silent := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err); silent && !meta.IsNoMatchError(err) {
		f.Reason, f.Message = tenant.KindUnknown, fmt.Sprintf("the API %s does not answer, so that the kind %s is unknown; see kubectl get apiservices", ref.APIVersion(), ref.Kind)
		return f, true
	}
	if meta.IsNoMatchError(err) {
		f.Reason, f.Message = tenant.KindUnknown, fmt.Sprintf("the cluster has no kind %s of %s; install its definition", ref.Kind, ref.APIVersion())
		return f, true
	}
	var status apierrors.APIStatus
	ok := errors.As(err, &status)
	switch {
	case tooLarge(err):
		f.Message += "; the object is larger than the API server stores: split it"
		return f, true
	case ok && apierrors.IsForbidden(err):
		f.Reason = tenant.Forbidden
		if p.account != "" {
			f.Message = fmt.Sprintf("ServiceAccount %s may not %s %s: %s", p.account, verb, ref, f.Message)
		} else {
			f.Message = fmt.Sprintf("the controller may not %s %s: %s", verb, ref, f.Message)
		}
		return f, true
	case ok && status.Status().Code < http.StatusInternalServerError:
		return f, !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err) && !apierrors.IsUnauthorized(err)
	case ok && apierrors.IsInternalError(err):
		return f, true // such as a webhook that does not answer
	case ok:
		return f, false
	}
	return f, slices.Contains([]fault.Kind{fault.Invalid, fault.Denied, fault.Missing}, fault.Of(err))
}
