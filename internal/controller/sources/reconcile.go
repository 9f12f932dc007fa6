package sources

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/controller/passes"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
)

// reconciler serves one kind.
type reconciler struct {
	Options
	kind    kind
	client  client.Client
	live    client.Reader
	backoff workqueue.TypedRateLimiter[reconcile.Request]
	turns   *passes.Turns
}

// pass is one reconcile of one object.
type pass struct {
	obj     client.Object
	before  client.Object // as it was read
	adapter adapter
	fields  fields
	key     source.Key

	fetcher source.Fetcher
	found   source.Found
	fresh   bool // a new artifact was made

	search     string // names the search of the artifact for pointers; empty if none is due
	unrepaired error  // why pointers stay in it, which is told once
}

// Reconcile observes, decides, acts and reports.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p := &pass{obj: r.kind.make(), key: r.kind.key(req.Namespace, req.Name)}
	if err := r.client.Get(ctx, req.NamespacedName, p.obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.backoff.Forget(req)
			r.turns.Withdraw(req)
			return ctrl.Result{}, r.Store.Remove(p.key)
		}
		return ctrl.Result{}, fmt.Errorf("reading the source: %w", err)
	}
	p.before = p.obj.DeepCopyObject().(client.Object)
	p.adapter = r.kind.wrap(p.obj)
	p.fields = p.adapter.fields()

	if !p.obj.GetDeletionTimestamp().IsZero() || p.fields.suspended {
		r.turns.Withdraw(req)
	} else {
		done, ok := r.turns.Enter(req)
		if !ok {
			return ctrl.Result{RequeueAfter: r.turns.Again}, nil
		}
		defer done()
	}
	work, cancel := context.WithTimeout(ctx, p.fields.within())
	defer cancel()
	o := r.observe(work, p)
	err := o.failure
	switch decide(o) {
	case release:
		return ctrl.Result{}, r.release(ctx, p)
	case leave:
		return ctrl.Result{}, nil
	case build:
		err = r.build(work, p)
	case repair:
		r.repair(work, p)
	case hold:
		p.searched()
	case fail:
		if !o.pointers {
			p.searched()
		}
	}
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err() // the controller stops, which is no failure
	}
	if err := r.report(ctx, p, o, err); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return r.again(req, p, err), nil
}

// The time for one reconcile of a source: of one that does not say, and at most. Until then it
// holds a worker.
const (
	usualTimeout   = time.Minute
	longestTimeout = 10 * time.Minute
)

func (f fields) within() time.Duration {
	if f.timeout == nil || f.timeout.Duration <= 0 {
		return usualTimeout
	}
	return min(f.timeout.Duration, longestTimeout)
}

// observe gathers the inputs of decide.
func (r *reconciler) observe(ctx context.Context, p *pass) observation {
	o := observation{
		deleting: !p.obj.GetDeletionTimestamp().IsZero(), suspended: p.fields.suspended,
		artifact: *p.fields.artifact, shaped: p.adapter.shaped(),
	}
	if o.deleting || o.suspended {
		return o
	}
	if a := o.artifact; a != nil && a.Size != nil {
		own := strings.HasPrefix(a.Path, p.key.Kind+"/"+p.key.Namespace+"/"+p.key.Name+"/")
		stored := source.Stored{Path: a.Path, Digest: a.Digest, Size: *a.Size}
		o.stored = own && r.Store.Has(stored)
		o.pointers = o.stored && r.kind.name == sourcev1.GitRepositoryKind && a.Metadata[source.LFSFetched] == "" && r.findPointers(ctx, p, stored)
	}
	in := inputs{namespace: p.obj.GetNamespace(), live: r.live, out: r.Out, scratch: r.Scratch, limits: r.Limits, pull: r.Pull, hosts: r.KnownHosts, trusted: r.TrustedRoot}
	if p.fetcher, o.failure = p.adapter.fetcher(ctx, in); o.failure != nil {
		return o
	}
	o.unsigned, o.unproven = !p.signed(r.Key), p.unproven(r.Key)
	p.found, o.failure = p.fetcher.Resolve(ctx)
	o.revision = p.found.Revision
	for k, v := range p.found.Metadata {
		o.shaped = o.shaped && o.artifact != nil && o.artifact.Metadata[k] == v
	}
	return o
}

// unproven reports whether a user has asked for a reconcile of a source from whose URL its
// artifact is not for certain: an earlier release made it, the URL was changed since, or a user
// wrote it.
func (p *pass) unproven(key secret.Text) bool {
	token, asked := meta.ReconcileAnnotationValue(p.obj.GetAnnotations())
	obj, ok := p.obj.(provenance.Source)
	return asked && token != *p.fields.handled && ok && provenance.Origin(p.obj) != "" && provenance.Key{Text: key}.From(obj) == ""
}

// findPointers reports whether an artifact of an earlier release stalls a stack, since a
// file of its root module is a pointer of Git LFS. The metadata of the artifact keep
// what was searched, and what was tried in vain, so that it is done once.
func (r *reconciler) findPointers(ctx context.Context, p *pass, a source.Stored) bool {
	roots, err := r.Roots(ctx, r.kind.name, client.ObjectKeyFromObject(p.obj))
	if err == nil && len(roots) > 0 {
		slices.Sort(roots)
		roots = slices.Compact(roots)
		token, _ := meta.ReconcileAnnotationValue(p.obj.GetAnnotations())
		p.search = fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s %d %q %q", a.Digest, p.obj.GetGeneration(), token, roots)))
		if (*p.fields.artifact).Metadata[lfsSearched] == p.search {
			return false
		}
		var name string
		if name, err = r.Store.FindPointer(a, roots, r.Scratch, r.Limits); err == nil {
			return name != ""
		}
	}
	if err != nil {
		p.search = ""
		r.Log.Warn("artifact not searched for pointers of git lfs", "source", p.key, "err", err)
	}
	return false
}

// lfsSearched is in the metadata of artifacts of git that an earlier release made. Its
// value names the directories that were searched for pointers of Git LFS, and what the
// object asked for at that time.
const lfsSearched = "terrier.dev/lfs-searched"

// searched remembers that the artifact was searched for pointers, and needs no repair.
func (p *pass) searched() {
	if p.search == "" {
		return
	}
	a := *p.fields.artifact
	if a.Metadata == nil {
		a.Metadata = map[string]string{}
	}
	a.Metadata[lfsSearched] = p.search
}

// repair makes an artifact again whose pointers of Git LFS stall a stack. If that
// fails, the artifact is as good as before, and the source stays ready. A failure that
// does not pass by itself is told, and not tried again before the object changes.
func (r *reconciler) repair(ctx context.Context, p *pass) {
	err := r.build(ctx, p)
	switch fault.Of(err) {
	case fault.None:
		return
	case fault.Invalid, fault.Denied, fault.Missing:
		p.searched()
		p.unrepaired = err
	case fault.Conflict, fault.Later, fault.Broken:
	}
	r.Log.Warn("artifact keeps pointers of git lfs", "source", p.key, "err", err)
}

// build makes the artifact for what was found.
func (r *reconciler) build(ctx context.Context, p *pass) error {
	var metadata map[string]string
	stored, err := r.Store.Put(p.key, func(w io.Writer) (err error) {
		metadata, err = p.fetcher.Fetch(ctx, p.found, w)
		return err
	})
	if err != nil {
		return err
	}
	*p.fields.artifact = &meta.Artifact{
		Digest: stored.Digest, Path: stored.Path, Revision: p.found.Revision,
		LastUpdateTime: metav1.NewTime(r.Now()), Size: &stored.Size, Metadata: metadata,
	}
	p.sign(r.Key)
	a := *p.fields.artifact
	a.Metadata = provenance.Key{Text: r.Key}.Fetched(p.obj, a.Revision, a.Digest, a.Metadata)
	p.adapter.note()
	p.fresh = true
	r.Log.Info("artifact stored", "source", p.key, "revision", p.found.Revision, "digest", stored.Digest, "bytes", stored.Size)
	return nil
}

// release releases an object that is being deleted. It removes Flux's finalizer,
// since no other controller is left to do so.
func (r *reconciler) release(ctx context.Context, p *pass) error {
	if err := r.Store.Remove(p.key); err != nil {
		return err
	}
	if !controllerutil.RemoveFinalizer(p.obj, sourcev1.SourceFinalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(p.before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, p.obj, patch, client.FieldOwner(manager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing the source: %w", err)
	}
	return nil
}

// again is the time until the next check. A failure that may pass is retried soon,
// and less and less often; everything else after the interval, even a stalled
// source: the fix may come from the origin.
func (r *reconciler) again(req ctrl.Request, p *pass, err error) ctrl.Result {
	after := max(p.fields.interval, r.MinInterval)
	if err == nil {
		r.backoff.Forget(req)
		return ctrl.Result{RequeueAfter: after}
	}
	if stalled(err) {
		return ctrl.Result{RequeueAfter: after}
	}
	wait := r.backoff.When(req)
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.After > 0 {
		wait = f.After
	}
	return ctrl.Result{RequeueAfter: min(wait, after)}
}
