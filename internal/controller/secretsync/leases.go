package secretsync

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// Bounds of what is handed out for one object, and of the attempts to revoke it.
const (
	formerMost  = 4           // former credentials that wait to be revoked
	formerAtEnd = 8           // the same, where the one that the Secret has ends
	retryRevoke = time.Minute // after one that failed
	tryToRevoke = time.Hour   // for how long after its end
	sweepEvery  = time.Minute // how often objects that may be gone are read
)

// handout is what a server made for one Secret: a session of its own, and the leases that were
// made with it, which end with it.
type handout struct {
	externalsecret.Handout
	ID string `json:"id"` // in the mark of the Secret that has it
	By string `json:"by"` // names who signed in where, see signIn.who
	Of string `json:"of"` // the version of the object that it was made for

	Store externalsecret.StoreRef `json:"store,omitzero"` // that gave it; empty in what earlier releases recorded

	URL       string            `json:"url"` // the server as it was then
	Namespace string            `json:"namespace,omitempty"`
	CA        []byte            `json:"ca,omitempty"`
	Token     string            `json:"token"`
	Accessor  string            `json:"accessor"`
	Session   bool              `json:"session,omitempty"` // the session can be renewed
	Leases    []string          `json:"leases,omitempty"`
	Renewable []string          `json:"renewable,omitempty"` // those of the leases that can be renewed
	Secret    string            `json:"secret"`
	Identity  map[string]string `json:"identity,omitempty"` // who signed in, for the audit log

	Revoke time.Time `json:"revoke,omitzero"` // it is revoked then; zero while the Secret has it

	// What the process knows that asked for it: whether a secret was read, and that nothing was.
	read, empty bool
}

// held is all that was handed out for one object, as it is recorded.
type held struct {
	Namespace string    `json:"namespace"` // of the object
	Name      string    `json:"name"`
	Stays     bool      `json:"stays,omitempty"`   // the Secret outlives the object
	Pending   *handout  `json:"pending,omitempty"` // that is being made: the Secret may have it
	Current   *handout  `json:"current,omitempty"` // that the Secret has
	Former    []handout `json:"former,omitempty"`  // that are revoked soon
}

// settle finds out by the mark of the Secret what became of one that was being made, also in
// another process.
func (h *held) settle(mark *externalsecret.Mark, now time.Time, grace time.Duration) {
	n := h.Pending
	if n == nil {
		return
	}
	h.Pending = nil
	if mark == nil || mark.Lease != n.ID {
		h.leave(n, now)
		return
	}
	h.leave(h.Current, now.Add(grace))
	h.Current = n
}

// ends reports whether what the Secret has ends soon, or has ended, and is not renewed.
func (h *held) ends(now time.Time, grace time.Duration) bool {
	c := h.Current
	if c == nil {
		return false
	}
	step, _ := c.Next(now, grace)
	return step == externalsecret.Replace || c.IsLate(now, grace)
}

// leave has one revoked at a time, or when it ends by itself.
func (h *held) leave(one *handout, at time.Time) {
	if one != nil {
		former := *one
		former.Revoke = earlier(at, one.End())
		h.Former = append(h.Former, former)
	}
}

// leaveAll has everything revoked at a time: what is to be revoked later, then too.
func (h *held) leaveAll(at time.Time) {
	for i, f := range h.Former {
		h.Former[i].Revoke = earlier(f.Revoke, at)
	}
	h.leave(h.Pending, at)
	h.leave(h.Current, at)
	h.Pending, h.Current = nil, nil
}

// within has nothing wait longer to be revoked than the grace is now, also after the clock was
// set back. It reports whether that changes anything.
func (h *held) within(now time.Time, grace time.Duration) (changed bool) {
	most := now.Add(max(grace, retryRevoke))
	for i, f := range h.Former {
		if f.Revoke.After(most) {
			h.Former[i].Revoke, changed = most, true
		}
	}
	return changed
}

// next is when something of it is to be revoked; zero if nothing is.
func (h *held) next() (at time.Time) {
	for _, f := range h.Former {
		at = earlier(at, f.Revoke)
	}
	return at
}

// earlier is the earlier time of two; zero is no time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// leases keeps what was handed out, sealed, and knows for which objects something was. Only the
// process that reconciles the objects writes it.
type leases struct {
	records Records
	cache   client.Reader
	log     *slog.Logger
	wakes   chan event.GenericEvent

	mu    sync.Mutex
	known map[types.UID]types.NamespacedName // nil until they were listed
}

func newLeases(o Options, cached client.Reader) *leases {
	return &leases{records: o.Records, cache: cached, log: o.Log, wakes: make(chan event.GenericEvent)}
}

// load lists the objects for which something was handed out, once.
func (l *leases) load(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known != nil {
		return nil
	}
	keys, err := l.records.List(ctx, record.AllSecretLeases())
	if err != nil {
		return fault.New(fault.Later, externalsecret.ReasonRecords, fmt.Errorf("listing the records of credentials that Secrets have: %w", err))
	}
	known := map[types.UID]types.NamespacedName{}
	for _, key := range keys {
		uid, ok := record.SecretLeasesOf(key)
		if !ok {
			continue
		}
		h, err := record.At[held](key).Read(ctx, l.records)
		switch {
		case err == nil:
		case ctx.Err() != nil, fault.Of(err) == fault.Later:
			// The next pass reads it. A credential that counts as unknown would be replaced.
			return fault.New(fault.Later, externalsecret.ReasonRecords, fmt.Errorf("reading the record of credentials that a Secret has: %w", err))
		default:
			l.log.Error("credentials that a Secret has are not known: they are neither renewed nor revoked, and end by themselves", "record", key, "err", err)
			continue
		}
		known[types.UID(uid)] = types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
	}
	l.known = known
	return nil
}

// of is what was handed out for an object; nil if nothing was.
func (l *leases) of(ctx context.Context, uid types.UID) (*held, error) {
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	_, ok := l.known[uid]
	l.mu.Unlock()
	if !ok {
		return nil, nil
	}
	h, err := record.At[held](record.SecretLeases(string(uid))).Read(ctx, l.records)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Later, externalsecret.ReasonRecords, fmt.Errorf("reading which credentials the Secret has: %w", err))
	}
	return &h, nil
}

// named are the objects of a name for which something was handed out, besides one.
func (l *leases) named(ctx context.Context, name types.NamespacedName, but types.UID) ([]types.UID, error) {
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []types.UID
	for uid, of := range l.known {
		if of == name && uid != but {
			all = append(all, uid)
		}
	}
	slices.Sort(all)
	return all, nil
}

// put records what was handed out for an object. Nothing of it leaves no record.
func (l *leases) put(ctx context.Context, uid types.UID, h *held) error {
	key := record.SecretLeases(string(uid))
	if h.Pending == nil && h.Current == nil && len(h.Former) == 0 {
		if err := l.records.Delete(ctx, key); err != nil {
			return fault.New(fault.Later, externalsecret.ReasonRecords, fmt.Errorf("removing the record of credentials that have ended: %w", err))
		}
		l.mu.Lock()
		delete(l.known, uid)
		l.mu.Unlock()
		return nil
	}
	if err := record.At[held](key).Write(ctx, l.records, *h); err != nil {
		return fault.New(fault.Later, externalsecret.ReasonRecords, fmt.Errorf("recording which credentials the Secret has: %w", err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[uid] = types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
	return nil
}

// Start implements manager.Runnable: it wakes the objects that are gone and for which something
// was handed out, so that it is revoked, also after a start. Objects that are there have passes
// of their own, at times of their own.
func (l *leases) Start(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := l.load(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("credentials that Secrets have are not known yet", "err", err) // the next turn asks again
		}
		for _, o := range l.gone(ctx) {
			select {
			case l.wakes <- event.GenericEvent{Object: o}:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// gone are the objects with a record that the cache does not have. It may be of fewer namespaces
// than before, so that this is no proof.
func (l *leases) gone(ctx context.Context) (all []client.Object) {
	l.mu.Lock()
	known := maps.Clone(l.known)
	l.mu.Unlock()
	for uid, name := range known {
		o := object(kindOf)
		if err := l.cache.Get(ctx, name, o); err == nil && o.GetUID() == uid {
			continue
		}
		o = object(kindOf)
		o.SetNamespace(name.Namespace)
		o.SetName(name.Name)
		all = append(all, o)
	}
	return all
}
