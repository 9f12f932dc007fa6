package secretsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/passes"
	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/vault"
)

// Times of a pass, and between two of one object.
const (
	passMost    = time.Minute
	latestRetry = 5 * time.Minute
)

// reconciler serves ExternalSecrets.
type reconciler struct {
	Options
	cache   client.Reader
	guard   *guard
	stores  *stores
	leases  *leases
	turns   *passes.Turns
	pace    pace
	backoff workqueue.TypedRateLimiter[reconcile.Request]
}

// pass is one reconcile of one object.
type pass struct {
	obj    *unstructured.Unstructured
	spec   externalsecret.Spec
	was    status
	secret *corev1.Secret // as it is; nil if there is none
	live   externalsecret.Live

	grace   time.Duration // for workloads whose credentials were replaced
	paced   bool          // Vault is read later, since it was read a moment ago
	read    bool          // Vault was read, and the decision is acted upon
	kept    bool          // what the server made for the Secret lasts
	held    *held         // what was handed out for the object; nil if nothing was, or that is not known
	renewed bool          // the server was asked to renew it
	wrote   externalsecret.Action
	message string
	reason  string
	next    time.Time // of the next pass; zero if none is due
	latest  time.Time // of the next pass after a failure; zero if that does not matter
}

func (p *pass) key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: p.spec.Target.Name}
}

// Reconcile observes, decides, acts and reports.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	leave, ok := r.turns.Enter(req)
	if !ok {
		return ctrl.Result{RequeueAfter: r.turns.Again}, nil
	}
	defer leave()
	p := &pass{obj: object(kindOf)}
	if err := r.cache.Get(ctx, req.NamespacedName, p.obj); err != nil {
		r.backoff.Forget(req)
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		if off, err := r.guard.off(ctx); off || err != nil {
			return ctrl.Result{}, err
		}
		return lessor{r}.deleted(ctx, req)
	}
	if off, err := r.guard.off(ctx); off || err != nil {
		return ctrl.Result{RequeueAfter: recheck}, err
	}
	if !p.obj.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, release(ctx, r.Live, p.obj) // what it owns goes with it
	}
	p.was = statusOf(p.obj)
	work, cancel := context.WithTimeout(ctx, passMost)
	defer cancel()
	err := r.sync(work, p)
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err() // the controller stops, which is no failure
	}
	if err != nil {
		r.keepUp(ctx, p)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil // another program wrote the Secret meanwhile
	}
	if failed := r.report(ctx, p, err); failed != nil {
		if apierrors.IsConflict(failed) {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(failed)
	}
	return r.again(req, p, err), nil
}

// keepUp is lessor.keepUp, with a time of its own: what failed may have taken all of the pass.
func (r *reconciler) keepUp(ctx context.Context, p *pass) {
	work, cancel := context.WithTimeout(ctx, passMost)
	defer cancel()
	lessor{r}.keepUp(work, p)
}

// sync reads what is to be read, if it is time, and writes the Secret.
func (r *reconciler) sync(ctx context.Context, p *pass) error {
	spec, wrong := decode[externalsecret.Spec](p.obj)
	if wrong == nil {
		wrong = spec.Check(p.obj.GetName())
	}
	if interval, err := spec.Interval(); err == nil && interval > 0 && interval < r.MinInterval {
		spec.RefreshInterval = r.MinInterval.String()
	}
	p.spec = spec
	p.spec.Target.Name = cmp.Or(spec.Target.Name, p.obj.GetName())
	grace, err := externalsecret.Grace(p.obj.GetAnnotations())
	p.grace, wrong = grace, cmp.Or(wrong, err)
	if err := r.observe(ctx, p); err != nil {
		return cmp.Or(wrong, err)
	}
	of := lessor{r}
	h, unknown := of.handedOut(ctx, p)
	if p.held = h; wrong != nil {
		return wrong
	}
	restarted := r.finishRestarts(ctx, p) // of an earlier pass; it keeps nothing from being read
	if h != nil && h.Current != nil && h.Current.Of == version(p.obj) {
		return of.leased(ctx, p, h)
	}
	inSync := spec.InSync(p.live, r.digest(p))
	times := externalsecret.Times{Now: r.Now(), Read: p.was.refreshed, Changed: p.was.synced != version(p.obj), Failed: p.was.failed()}
	due, next := spec.Due(times, p.live, inSync)
	other := h != nil && h.Current != nil || unknown == nil && h == nil && p.live.Mark != nil && p.live.Mark.Lease != "" // than the object is now, or of a record that is lost
	if !due && !other {
		p.next = earlier(p.next, next)
		return restarted
	}
	if err := spec.May(p.live); err != nil {
		return err
	}
	if at := r.pace.next(p.obj.GetUID()); r.Now().Before(at) {
		p.paced, p.next = true, earlier(p.next, at)
		return restarted
	}
	content, healthy, err := r.fetch(ctx, p)
	if fault.Reason(err, "") == vault.ReasonMade {
		if unknown != nil {
			return unknown
		}
		return of.leased(ctx, p, h)
	}
	if err != nil {
		return err
	}
	return r.keep(ctx, p, h, content, healthy)
}

// keep makes the Secret hold what stays.
func (r *reconciler) keep(ctx context.Context, p *pass, h *held, content externalsecret.Content, healthy bool) error {
	spec := p.spec
	d, err := externalsecret.Decide(externalsecret.Observation{
		Spec: spec, Secret: p.live, Content: content, Healthy: healthy, Digest: r.digest(p), Replaces: h != nil && h.Current != nil,
	})
	if err != nil {
		return err
	}
	if err := r.write(ctx, p, d); err != nil {
		return err
	}
	if h != nil { // it has secrets that stay now
		at := r.Now()
		if d.Action != externalsecret.Remove {
			at = at.Add(p.grace)
		}
		h.leaveAll(at)
		if err := r.leases.put(ctx, p.obj.GetUID(), h); err != nil {
			return err
		}
		p.next = h.next()
	}
	p.read, p.wrote, p.reason, p.message = true, d.Action, d.Reason, d.Message
	if interval, err := spec.Interval(); err == nil && interval > 0 && spec.RefreshPolicy == externalsecret.Periodic {
		p.next = earlier(p.next, r.Now().Add(interval))
	}
	return r.finishRestarts(ctx, p)
}

// handedOut is what was handed out for the object: what a pass that did not end left is settled,
// and what is to be revoked by now is. It is nil if there is nothing. The error says that this
// is not known, which keeps no secret that stays from being read.
func (r lessor) handedOut(ctx context.Context, p *pass) (*held, error) {
	name := client.ObjectKeyFromObject(p.obj)
	next, err := r.gone(ctx, name, p.obj.GetUID())
	if err != nil {
		return nil, err
	}
	h, err := r.leases.of(ctx, p.obj.GetUID())
	if err != nil || h == nil {
		p.next = next
		return nil, err
	}
	if h.within(r.Now(), p.grace) || h.Pending != nil {
		h.settle(p.live.Mark, r.Now(), p.grace)
		if err := r.leases.put(ctx, p.obj.GetUID(), h); err != nil {
			return nil, err
		}
	}
	if err := r.revoke(ctx, p.obj.GetUID(), h); err != nil {
		return nil, err
	}
	p.next = earlier(next, h.next())
	return h, nil
}

// leased is lease, for an object for which nothing may be handed out yet.
func (r lessor) leased(ctx context.Context, p *pass, h *held) error {
	if h == nil {
		h = &held{}
	}
	p.held = h
	err := r.lease(ctx, p, h)
	if fault.Reason(err, "") == reasonStays && h.Current != nil {
		h.leaveAll(r.Now().Add(p.grace))
		return errors.Join(err, r.leases.put(ctx, p.obj.GetUID(), h))
	}
	if err == nil {
		p.next = earlier(p.next, h.next())
	}
	return err
}

// observe reads the Secret as it is.
func (r *reconciler) observe(ctx context.Context, p *pass) error {
	p.secret, p.live = nil, externalsecret.Live{}
	if p.spec.Target.CreationPolicy == externalsecret.None {
		return nil
	}
	found := &corev1.Secret{}
	err := r.Live.Get(ctx, p.key(), found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return lacks(fmt.Errorf("reading the Secret %s: %w", p.spec.Target.Name, err), err)
	}
	p.saw(found)
	if p.spec.Target.CreationPolicy == externalsecret.Merge {
		p.live.Writer, err = r.writer(ctx, p)
	}
	return err
}

// writer is another object that writes the Secret as a whole, by its mark; empty if none does. A
// mark outlives its object.
func (r *reconciler) writer(ctx context.Context, p *pass) (string, error) {
	marks := externalsecret.Wholes(p.live.Annotations)
	if delete(marks, externalsecret.MarkName(p.obj.GetName())); len(marks) == 0 {
		return "", nil
	}
	all := list(kindOf)
	if err := r.cache.List(ctx, all, client.InNamespace(p.obj.GetNamespace())); err != nil {
		return "", fmt.Errorf("listing the ExternalSecrets that write the Secret %s: %w", p.spec.Target.Name, err)
	}
	for _, o := range all.Items {
		if !marks[externalsecret.MarkName(o.GetName())] || !o.GetDeletionTimestamp().IsZero() {
			continue
		}
		spec, _ := decode[externalsecret.Spec](&o) // what can be read of it
		if cmp.Or(spec.Target.Name, o.GetName()) == p.spec.Target.Name && spec.Target.Whole() {
			return o.GetName(), nil
		}
	}
	return "", nil
}

// saw keeps what is known of the Secret.
func (p *pass) saw(found *corev1.Secret) {
	p.secret = found
	p.live = externalsecret.Live{
		Exists: true, Type: string(found.Type), Data: found.Data, Labels: found.Labels, Annotations: found.Annotations,
		Mark: externalsecret.ReadMark(found.Annotations[externalsecret.MarkName(p.obj.GetName())]),
	}
	if of := metav1.GetControllerOf(found); of != nil {
		if p.live.Ours = of.UID == p.obj.GetUID(); !p.live.Ours {
			p.live.Controller = of.Kind + " " + of.Name
		}
	}
}

// lacks says which right the controller needs, if the API server refused a request.
func lacks(err, cause error) error {
	if apierrors.IsForbidden(cause) {
		return fault.New(fault.Denied, "AccessDenied", fmt.Errorf("%w: let the controller use the namespace: bind the ClusterRole of the chart there (docs/rbac.md)", err))
	}
	return err
}

func (r *reconciler) digest(p *pass) func(map[string][]byte) string {
	return func(data map[string][]byte) string {
		return externalsecret.Digest(r.Key, p.obj.GetNamespace(), p.spec.Target.Name, data)
	}
}

// fetch reads the secrets. The second result reports whether the server said afterwards
// that it can be used; it is asked only where that counts.
func (r *reconciler) fetch(ctx context.Context, p *pass) (externalsecret.Content, bool, error) {
	store, err := r.stores.find(ctx, p.spec.SecretStoreRef, p.obj.GetNamespace())
	if err != nil {
		return externalsecret.Content{}, false, err
	}
	values := map[externalsecret.Read]externalsecret.Value{}
	for _, read := range p.spec.Reads(store.vault.Path) {
		got, err := r.stores.read(ctx, store, read)
		if fault.Reason(err, "") == vault.ReasonNoSecret {
			continue // it is not there
		}
		if err != nil {
			return externalsecret.Content{}, false, err
		}
		if err := r.audit(ctx, p, store, read, got); err != nil {
			return externalsecret.Content{}, false, err
		}
		if len(values) == 0 { // also if the next one cannot be read
			r.pace.note(p.obj.GetUID(), r.Now())
		}
		values[read] = externalsecret.Value{Whole: got.Whole}
	}
	content, err := p.spec.Assemble(store.vault.Path, values)
	if err != nil || len(content.Gone) == 0 {
		return content, err == nil, err
	}
	h, err := store.server.Health(ctx)
	return content, err == nil && h.Problem() == nil, nil
}

// audit records that a secret was read, by which identity and for which object. It names no
// value.
func (r *reconciler) audit(ctx context.Context, p *pass, store *usable, read externalsecret.Read, got vault.Secret) error {
	details := store.audited()
	details["path"], details["keys"], details["secret"] = read.Path, strconv.Itoa(len(got.Data)), p.spec.Target.Name
	if got.Lease != "" {
		details["lease"] = got.Lease
	}
	if got.RequestID != "" {
		details["requestID"] = got.RequestID
	}
	if got.Version != 0 {
		details["version"] = strconv.Itoa(got.Version)
	}
	err := r.Audit.Record(ctx, audit.Entry{
		What: audit.SecretRead, Via: audit.ViaController, Details: details,
		Object: audit.Object{Kind: kindOf, Namespace: p.obj.GetNamespace(), Name: p.obj.GetName(), UID: string(p.obj.GetUID())},
	})
	if err != nil {
		return fmt.Errorf("recording in the audit log that %s was read: %w", read.Path, err)
	}
	return nil
}

// again is the time until the next pass. A failure that may pass is retried soon, and less
// and less often.
func (r *reconciler) again(req ctrl.Request, p *pass, err error) ctrl.Result {
	if err == nil {
		if !p.paced {
			r.backoff.Forget(req)
		}
		if p.next.IsZero() {
			return ctrl.Result{}
		}
		return ctrl.Result{RequeueAfter: max(p.next.Sub(r.Now()), time.Millisecond)}
	}
	most := latestRetry
	if !p.latest.IsZero() {
		most = min(most, max(p.latest.Sub(r.Now()), time.Second))
	}
	if fault.Of(err) == fault.Invalid {
		return ctrl.Result{RequeueAfter: most} // the object, its store or its Secret has to change
	}
	wait := min(r.backoff.When(req), most)
	if interval, err := p.spec.Interval(); err == nil && interval > 0 && p.held == nil { // it does not count for what is made
		wait = min(wait, interval)
	}
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.After > 0 {
		wait = f.After
	}
	return ctrl.Result{RequeueAfter: wait}
}
