package secretsync

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/vault"
)

// lessor is the reconciler of what servers make for Secrets.
type lessor struct{ *reconciler }

// lease keeps what a server makes for the Secret of an object: it renews it in time, and
// replaces it before it ends.
//
//	sign in → record the session → read → record the leases → audit → write the Secret
//	        → record that the Secret has it, and when the former one is revoked → restart
//
// Wherever this ends, the record and the mark of the Secret say what is left to do.
func (r lessor) lease(ctx context.Context, p *pass, h *held) error {
	if err := cmp.Or(p.spec.CheckMade(), p.spec.May(p.live)); err != nil {
		return err
	}
	store, err := r.stores.find(ctx, p.spec.SecretStoreRef, p.obj.GetNamespace())
	if err != nil {
		return err
	}
	step, at, most := externalsecret.Replace, time.Time{}, formerMost
	if r.has(p, h, store) {
		step, at = h.Current.Next(r.Now(), p.grace)
		most = formerAtEnd
	} else if h.ends(r.Now(), p.grace) {
		most = formerAtEnd
	}
	if step == externalsecret.Renew {
		at, err = r.renew(ctx, p, h)
		switch {
		case err == nil:
			if step, at = h.Current.Next(r.Now(), p.grace); step == externalsecret.Renew { // a life of seconds
				step = externalsecret.Hold
			}
		case vault.Ended(err), fault.Reason(err, "") == vault.ReasonDenied, h.Current.IsLate(r.Now(), p.grace):
			r.Log.Info("a credential is replaced, since it cannot be renewed", "object", client.ObjectKeyFromObject(p.obj).String(), "err", err)
			step = externalsecret.Replace
		default:
			return err
		}
	}
	if step == externalsecret.Replace {
		if at := r.pace.next(p.obj.GetUID()); r.Now().Before(at) {
			p.paced, p.next = true, earlier(p.next, at)
			return r.finishRestarts(ctx, p)
		}
		if err := r.handOut(ctx, p, h, store, most); err != nil {
			return err
		}
		_, at = h.Current.Next(r.Now(), p.grace)
		p.wrote = externalsecret.Write
	}
	p.read = p.read || p.was.synced != version(p.obj)
	p.kept, p.reason, p.message = true, externalsecret.ReasonSynced, externalsecret.MessageMade(p.spec.Target.Name)
	p.next = earlier(p.next, at)
	return r.finishRestarts(ctx, p)
}

// has reports whether the Secret holds what was handed out last for the object as it is.
func (r lessor) has(p *pass, h *held, store *usable) bool {
	c := h.Current
	return c != nil && c.Of == version(p.obj) && c.By == store.in.who() && p.spec.InSync(p.live, r.digest(p)) && p.live.Mark != nil && p.live.Mark.Lease == c.ID
}

// handOut has the server make credentials for the Secret, and writes them, unless most former
// ones wait. These are revoked once the workloads have had the time to be restarted.
func (r lessor) handOut(ctx context.Context, p *pass, h *held, store *usable, most int) error {
	if len(h.Former) >= most {
		return externalsecret.TooMany(len(h.Former))
	}
	if err := r.allMade(ctx, p, store); err != nil {
		return err
	}
	s, n, err := r.open(ctx, p, store)
	if err != nil {
		return err
	}
	uid := p.obj.GetUID()
	r.pace.note(uid, r.Now())
	h.Namespace, h.Name, h.Stays, h.Pending = p.obj.GetNamespace(), p.obj.GetName(), p.spec.Target.Stays(), n
	if err := r.leases.put(ctx, uid, h); err != nil {
		h.Pending = nil
		return errors.Join(err, s.End(ctx, nil))
	}
	content, err := r.make(ctx, p, store, s, n)
	if err == nil {
		err = r.leases.put(ctx, uid, h)
	}
	var d externalsecret.Decision
	if err == nil {
		d, err = externalsecret.Decide(externalsecret.Observation{
			Spec: p.spec, Secret: p.live, Content: content, Healthy: true, Digest: r.digest(p), Lease: n.ID, Replaces: h.Current != nil,
		})
	}
	if err == nil && (d.Action != externalsecret.Write || len(content.Data) == 0) { // whatever deletionPolicy says: it is about secrets that stay
		err = fault.New(fault.Invalid, externalsecret.ReasonGone, errors.New("nothing of what Vault makes would be in the Secret: correct the keys in spec.data, or the property in spec.dataFrom"))
	}
	if err != nil { // nothing has it
		n.empty = !n.read
		h.settle(nil, r.Now(), p.grace)
		return errors.Join(err, r.revoke(ctx, p.obj.GetUID(), h))
	}
	if err := r.write(ctx, p, d); err != nil {
		return err // the Secret may have it: the next pass sees that by its mark
	}
	h.settle(p.live.Mark, r.Now(), p.grace)
	p.read = true
	if err := r.leases.put(ctx, uid, h); err != nil {
		return err
	}
	if h.Current == nil || h.Current.ID != n.ID {
		err := fault.New(fault.Invalid, externalsecret.ReasonNotOwned, fmt.Errorf(
			"the Secret %s lost the annotation %s while it was written, so its credential is revoked: let the program that changes Secrets on their way leave the annotation", p.spec.Target.Name, externalsecret.MarkName(p.obj.GetName())))
		return errors.Join(err, r.revoke(ctx, uid, h))
	}
	return nil
}

// reasonStays is of what was made for each reading, and stays now.
const reasonStays = "VaultSecretStays"

// allMade reports which of the secrets the server does not make for each reading.
func (r lessor) allMade(ctx context.Context, p *pass, store *usable) error {
	var made, stays []externalsecret.Read
	for _, read := range p.spec.Reads(store.vault.Path) {
		makes, err := r.stores.makes(ctx, store, read)
		if err != nil {
			return err
		}
		if makes {
			made = append(made, read)
		} else {
			stays = append(stays, read)
		}
	}
	switch {
	case len(stays) == 0:
		return nil
	case len(made) == 0:
		return fault.New(fault.Later, reasonStays, fmt.Errorf("%s stays now, and was made for each reading before: it is read next", stays[0]))
	}
	return externalsecret.Mixed(stays[0], made[0])
}

// open signs in for one handout.
func (r lessor) open(ctx context.Context, p *pass, store *usable) (vault.Session, *handout, error) {
	by, err := store.by(ctx)
	if err != nil {
		return vault.Session{}, nil, fmt.Errorf("signing in to the Vault %s: %w", store.server, err)
	}
	s, err := store.server.SignIn(ctx, by)
	if err != nil {
		return vault.Session{}, nil, store.reach(err)
	}
	if s.Accessor == "" {
		return vault.Session{}, nil, fault.New(fault.Denied, vault.ReasonSignIn, fmt.Errorf(
			"the token of the %s %s may make no token, so credentials that are made with it could not be revoked: allow it auth/token/create, or sign in with another method", store.kind, store.name))
	}
	n := &handout{
		Handout: externalsecret.Handout{Began: r.Now()}, ID: strings.ToLower(rand.Text()), By: store.in.who(), Of: version(p.obj), Store: externalsecret.StoreRef{Kind: store.kind, Name: store.name}, Secret: p.spec.Target.Name, Identity: store.audited(),
		URL: store.vault.Server, Namespace: store.server.Namespace, CA: store.ca, Token: s.Token().Reveal(), Accessor: s.Accessor, Session: s.Renewable,
	}
	n.Lasts(n.Began, s.For, s.Renewable)
	return s, n, nil
}

// make reads the secrets, each once: the server makes them for that.
func (r lessor) make(ctx context.Context, p *pass, store *usable, s vault.Session, n *handout) (externalsecret.Content, error) {
	values := map[externalsecret.Read]externalsecret.Value{}
	for _, read := range p.spec.Reads(store.vault.Path) {
		got, err := s.Read(ctx, vault.Wanted{Path: read.Path, Version: read.Version})
		if err != nil {
			return externalsecret.Content{}, store.reach(err)
		}
		n.read = true
		if got.Lease != "" {
			n.Leases = append(n.Leases, got.Lease)
			if got.Renewable {
				n.Renewable = append(n.Renewable, got.Lease)
			}
		}
		n.Lasts(r.Now(), got.For, got.Renewable && got.Lease != "")
		if err := r.audit(ctx, p, store, read, got); err != nil {
			return externalsecret.Content{}, err
		}
		if got.Lease == "" && got.For == 0 {
			return externalsecret.Content{}, fault.New(fault.Invalid, externalsecret.ReasonInvalid, fmt.Errorf("%s is made for each reading and has no lease, so nothing says when it ends: name a secret that has one", read))
		}
		values[read] = externalsecret.Value{Whole: got.Whole}
	}
	return p.spec.Assemble(store.vault.Path, values)
}

// renew lets what the Secret has last longer, and returns when it is to be renewed again. It
// counts once it is in the audit log.
func (r lessor) renew(ctx context.Context, p *pass, h *held) (time.Time, error) {
	p.renewed = true
	s, err := r.stores.resume(h.Current)
	if err != nil {
		return time.Time{}, err
	}
	next := *h.Current
	next.Again(r.Now())
	if next.Session {
		long, err := s.Renew(ctx)
		if err != nil {
			return time.Time{}, err
		}
		next.Lasts(r.Now(), long, true)
	}
	for _, lease := range next.Renewable {
		long, err := s.RenewLease(ctx, lease)
		if err != nil {
			return time.Time{}, err
		}
		next.Lasts(r.Now(), long, true)
	}
	if err := r.auditHandout(ctx, audit.SecretRenewed, p.obj.GetUID(), h, &next); err != nil {
		return time.Time{}, err
	}
	h.Current = &next
	_, at := next.Next(r.Now(), p.grace)
	return at, r.leases.put(ctx, p.obj.GetUID(), h)
}

// keepUp renews what the Secret has after a pass that failed, however the object or its store
// are now, and says when the next pass is due.
func (r lessor) keepUp(ctx context.Context, p *pass) {
	h := p.held
	if h == nil || h.Current == nil {
		return
	}
	step, at := h.Current.Next(r.Now(), p.grace)
	if step == externalsecret.Renew && !p.renewed {
		err := r.vouched(ctx, p, h.Current)
		if k := fault.Of(err); k == fault.Missing || k == fault.Denied || k == fault.Invalid {
			r.Log.Warn("a credential ends, since its store does not give it any more", "object", client.ObjectKeyFromObject(p.obj).String(), "store", h.Current.Identity["store"], "err", err)
			p.latest = h.next()
			return
		}
		if err == nil {
			at, err = r.renew(ctx, p, h)
		}
		if err == nil {
			step = externalsecret.Hold
		} else {
			r.Log.Warn("a credential is not renewed", "object", client.ObjectKeyFromObject(p.obj).String(), "err", err)
		}
	}
	if step != externalsecret.Hold {
		at = h.Current.RetryBy(r.Now())
	}
	p.latest = earlier(at, h.next())
}

// vouched returns why the store that gave a handout would not give it to the object now; nil if
// it would. The store that the object names now may be another one.
func (r lessor) vouched(ctx context.Context, p *pass, c *handout) error {
	store, err := r.stores.find(ctx, cmp.Or(c.Store, p.spec.SecretStoreRef), p.obj.GetNamespace())
	if err == nil && store.in.who() != c.By {
		err = fault.New(fault.Denied, externalsecret.ReasonStore, fmt.Errorf("the %s %s signs in elsewhere, or as another, than when it gave the credential", store.kind, store.name))
	}
	return err
}

// revoke ends what is to be ended by now, and records what is left. A server that refuses or
// does not answer is asked again, until it has ended by itself.
func (r lessor) revoke(ctx context.Context, uid types.UID, h *held) error {
	now := r.Now()
	var left []handout
	changed := false
	for _, f := range h.Former {
		if now.Before(f.Revoke) {
			left = append(left, f)
			continue
		}
		changed = true
		err := r.end(ctx, uid, h, &f)
		if err == nil {
			continue
		}
		over := cmp.Or(f.End(), f.Revoke).Add(tryToRevoke)
		if now.After(over) {
			r.Log.Warn("a credential is not revoked: it has ended by itself", "namespace", h.Namespace, "name", h.Name, "err", err)
			continue
		}
		r.Log.Warn("a credential is not revoked yet", "namespace", h.Namespace, "name", h.Name, "err", err)
		f.Revoke = now.Add(retryRevoke)
		left = append(left, f)
	}
	h.Former = left
	if !changed {
		return nil
	}
	return r.leases.put(ctx, uid, h)
}

// end ends one handout, and records that, unless nothing was made with it. What has ended
// already is ended again after a crash.
func (r lessor) end(ctx context.Context, uid types.UID, h *held, one *handout) error {
	s, err := r.stores.resume(one)
	if err == nil {
		err = s.End(ctx, one.Leases)
	}
	if err != nil || one.empty {
		return err
	}
	return r.auditHandout(ctx, audit.SecretRevoked, uid, h, one)
}

// gone revokes what objects had that are not there any more, and returns when to look at them
// again; zero for never. The object of the name that is there now is none of them.
func (r lessor) gone(ctx context.Context, name types.NamespacedName, but types.UID) (again time.Time, err error) {
	all, err := r.leases.named(ctx, name, but)
	if err != nil || len(all) == 0 {
		return time.Time{}, err
	}
	for _, uid := range all {
		h, err := r.leases.of(ctx, uid)
		if err != nil {
			return time.Time{}, err
		}
		if h == nil {
			continue
		}
		if now := r.Now(); !h.Stays {
			h.leaveAll(now)
		} else if c := h.Current; c != nil { // it ends by itself, with nothing to renew it
			if h.leave(h.Pending, now); c.End().IsZero() || now.Before(c.End()) {
				again = earlier(again, c.End())
			} else {
				h.Current = nil
			}
			h.Pending = nil
		}
		if err := r.revoke(ctx, uid, h); err != nil {
			return time.Time{}, err
		}
		if err := r.leases.put(ctx, uid, h); err != nil {
			return time.Time{}, err
		}
		again = earlier(again, h.next())
	}
	return again, nil
}

// deleted is the pass for an object that the cache does not have. Only the API server says that
// it is gone.
func (r lessor) deleted(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if all, err := r.leases.named(ctx, req.NamespacedName, ""); err != nil || len(all) == 0 {
		return ctrl.Result{}, err
	}
	found := object(kindOf)
	err := r.Live.Get(ctx, req.NamespacedName, found)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	again, err := r.gone(ctx, req.NamespacedName, found.GetUID())
	if err != nil || again.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(again.Sub(r.Now()), time.Second)}, nil
}

// auditHandout records what was done with a handout. It names no value.
func (r lessor) auditHandout(ctx context.Context, what audit.What, uid types.UID, h *held, one *handout) error {
	details := maps.Clone(one.Identity)
	if details == nil {
		details = map[string]string{}
	}
	maps.Copy(details, map[string]string{"secret": one.Secret, "lease": strings.Join(one.Leases, ", ")})
	if at, err := url.Parse(one.URL); err == nil {
		details["vault"] = vault.Server{URL: at, Namespace: one.Namespace}.String()
	}
	if end := one.End(); what == audit.SecretRenewed && !end.IsZero() {
		details["until"] = end.UTC().Format(time.RFC3339)
	}
	err := r.Audit.Record(ctx, audit.Entry{
		What: what, Via: audit.ViaController, Details: details, Object: audit.Object{Kind: kindOf, Namespace: h.Namespace, Name: h.Name, UID: string(uid)},
	})
	if err != nil {
		return fmt.Errorf("recording in the audit log what became of a credential: %w", err)
	}
	return nil
}
