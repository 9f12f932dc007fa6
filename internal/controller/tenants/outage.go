package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// patience is how long a failure of the API server only ends passes, which are made again
// soon: most failures pass. One that lasts for longer is reported.
const patience = 10 * time.Second

// outages are the failures that go on, by what they are about. The zero value has none.
type outages[K comparable] struct {
	mu  sync.Mutex
	all map[K]outage
}

// outage is one of them.
type outage struct {
	since time.Time
	times int // how often it was reported
}

// lasts notes a failure, and reports whether it has lasted for longer than patience. Then
// again is the pause until the next attempt, which grows with each report.
func (s *outages[K]) lasts(what K, now time.Time) (again time.Duration, lasting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.all[what]
	if !known {
		o.since = now
	}
	if lasting = now.Sub(o.since) >= patience; lasting {
		again = pause(firstPause, o.times)
		o.times++
	}
	if s.all == nil {
		s.all = map[K]outage{}
	}
	s.all[what] = o
	return again, lasting
}

// over ends an outage.
func (s *outages[K]) over(what K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, what)
}

// only ends all outages but those of objects that a Tenant has.
func (s *outages[K]) only(has func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(what K, _ outage) bool { return !has(what) })
}

// about is what an outage of a Tenant is about: the reads or the writes of an object. An object
// that can be read may be one that cannot be written.
type about struct {
	tenant.Ref
	write bool
}

// What a Tenant needs besides its objects. No object has such a Ref.
var (
	rowOfTenant    = about{Ref: tenant.Ref{Kind: "row"}}
	kindsOfCluster = about{Ref: tenant.Ref{Kind: "kinds"}}
)

// patient is an error as long as it may pass, and nil once it lasts.
func (p *pass) patient(ctx context.Context, what about, err error) error {
	if _, lasting := p.memory.outages.lasts(what, p.now); lasting && ctx.Err() == nil {
		return nil
	}
	return err
}

// unavailable is the failure of one object about which the API server, or the aggregated
// API of its kind, has not answered for a while. Until then it is nil.
func (p *pass) unavailable(ctx context.Context, verb string, ref tenant.Ref, err error) *tenant.Failure {
	if ctx.Err() != nil {
		return nil // the controller stops
	}
	again, lasting := p.memory.outages.lasts(about{ref, verb != "get"}, p.now)
	if !lasting {
		return nil
	}
	return &tenant.Failure{
		Reason: tenant.Unavailable, RetryAt: p.now.Add(again),
		Message: shorten(p.redacted(fmt.Sprintf("the request to %s %s fails: %v; if the API of this kind is aggregated, see kubectl get apiservices", verb, ref, err))),
	}
}

// retriedPass ends the message of a pass that failed.
const retriedPass = ". Terrier retries by itself; until then everything stays as it is"

// reported is an error that the status has already.
type reported struct{ error }

func (r reported) Unwrap() error { return r.error }

// passes end with errors now and then. Those that go on doing so are reported: nothing else
// in the status would say why it does not change.
type passes struct {
	Options
	outages outages[types.NamespacedName]

	fresh      func() client.Object // of the kind
	conditions func(client.Object) *[]metav1.Condition
	says       map[string]bool // the conditions that report it, and whether each is then true
}

// ended takes the end of a pass over obj: an error that does not pass is reported. Redacted
// removes secret values from a text.
func (s *passes) ended(ctx context.Context, obj client.Object, result ctrl.Result, err error, redacted func(string) string) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(obj)
	if err == nil {
		s.outages.over(key)
		return result, nil
	}
	if ctx.Err() != nil {
		return ctrl.Result{}, err // the controller stops
	}
	again, lasting := s.outages.lasts(key, s.Now())
	_, told := errors.AsType[reported](err)
	switch {
	case !lasting && apierrors.IsConflict(err):
		return requeue, nil // another writer was faster
	case lasting && !told:
		err = errors.Join(err, s.report(ctx, obj, "the last passes over this object ended early: "+redacted(err.Error())+retriedPass, again == firstPause))
	}
	return ctrl.Result{}, err
}

// report writes the conditions of an object whose passes end early, and an event if they are
// new, or if they cannot be written and this is the first attempt.
func (s *passes) report(ctx context.Context, obj client.Object, message string, first bool) error {
	now := s.fresh() // obj may be what the pass was about to write
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(obj), now); err != nil || now.GetUID() != obj.GetUID() {
		return client.IgnoreNotFound(err)
	}
	before := now.DeepCopyObject().(client.Object)
	message = shorten(message)
	same := true
	all := s.conditions(now)
	for kind, status := range s.says {
		was := meta.FindStatusCondition(*all, kind)
		same = same && was != nil && was.Reason == reasonReconcileFailed && was.Message == message
		setCondition(all, now.GetGeneration(), s.Now(), kind, status, reasonReconcileFailed, message)
	}
	if same {
		return nil
	}
	err := s.patchStatus(ctx, now, before)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the next pass reports it
	}
	if err == nil || first {
		s.Events.Event(now, corev1.EventTypeWarning, reasonReconcileFailed, message)
	}
	if err != nil {
		return fmt.Errorf("reporting that: %w", err)
	}
	return nil
}

// asItIs is the redacted of passes that have no secret values.
func asItIs(text string) string { return text }

func freshTenant() client.Object   { return &tenantsv1.Tenant{} }
func freshRegistry() client.Object { return &tenantsv1.TenantRegistry{} }
func freshTemplate() client.Object { return &tenantsv1.TenantTemplate{} }

func conditionsOfTenant(o client.Object) *[]metav1.Condition {
	return &o.(*tenantsv1.Tenant).Status.Conditions
}

func conditionsOfRegistry(o client.Object) *[]metav1.Condition {
	return &o.(*tenantsv1.TenantRegistry).Status.Conditions
}

func conditionsOfTemplate(o client.Object) *[]metav1.Condition {
	return &o.(*tenantsv1.TenantTemplate).Status.Conditions
}
