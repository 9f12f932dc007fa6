// Package policies reads the policies of a cluster, and says which of them judge a stack.
// It watches ClusterPolicy, Policy and the labels of namespaces, compiles them once, and
// wakes the stacks that a change is for. A policy that cannot be compiled, or evaluated,
// holds the plans of its stacks: it never lets one pass. What follows from a judgement is
// decided by package stack.
//
// Start reading at Policies.For.
package policies

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/review"
)

// Options are what Policies need.
type Options struct {
	Live        client.Client // writes the status of policies
	Dialects    dialect.Registry
	TenantLabel string   // whose value is the tenant of a namespace or a stack
	Programs    Programs // nil if there are none: a policy with a program holds its plans
	Signatures  provenance.Reader
	// Recorded reads of the record of an apply what was applied, and what was known of the
	// signature on it; nothing if the record does not open. Nil if there are no records.
	Recorded func(ctx context.Context, uid, key string) (guard.Origin, error)
	// Foresee asks programs about a stack that has no plan yet: what they find whatever the plan
	// will be. It says nothing of a program that cannot be evaluated. Nil if nothing is foreseen.
	Foresee func(ctx context.Context, q Early) []policy.Finding
	// Weave reads Policy objects of the Weave policy agent. Nil if they are not evaluated.
	Weave func(object map[string]any) (Weave, error)
	Leads func() bool
	Now   func() time.Time
	Log   *slog.Logger
}

// Policies know the policies of the cluster. Nil has none.
type Policies struct {
	Options
	cache client.Reader

	builds *builds
	weave  schema.GroupVersionKind // of Policy objects of the Weave policy agent; empty if there are none

	dirty chan struct{} // holds one: something changed
	ready chan struct{} // closed once all policies were read
	now   atomic.Pointer[snapshot]

	mu   sync.Mutex
	wake func(client.Object)

	judged judgedTimes

	stale atomic.Bool // the status of policies says less than is known
	dated time.Time   // when it says another thing next because time passed; only the loop has it
}

// Set are the policies that judge one stack.
type Set struct {
	Digest    string            // of all that judges its plans; empty if no policy does
	Reviewer  review.Reviewer   // nil if Digest is empty
	Approvals []policy.Approval // of the policies that say who approves what they hold
	Guards    bool              // the Reviewer has guards only, and no programs: it answers at once
	Times     policy.Times
	Drift     policy.Drift
	PerHour   []PerHour
	Tenant    string // whose limits of an hour count for the stack
	Invalid   error  // of the guards in the annotations of the stack

	of *Policies
}

// Reviewers are the reviewer, if there is one.
func (s Set) Reviewers() []review.Reviewer {
	if s.Reviewer == nil {
		return nil
	}
	return []review.Reviewer{s.Reviewer}
}

// Setup makes mgr watch policies. It returns nil if the API server does not have their
// kinds: an operator who installs the definitions may leave them out.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Policies, error) {
	kind := v1alpha1.GroupVersion.WithKind(v1alpha1.ClusterPolicyKind)
	if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
		o.Log.Warn("policies are off: their definitions are not installed", "missing", kind.GroupKind().String())
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	p := newPolicies(o)
	p.cache = mgr.GetClient()
	watched := []client.Object{&v1alpha1.ClusterPolicy{}, &v1alpha1.Policy{}, namespaceMeta()}
	if err := findWeave(p, mgr.GetRESTMapper()); err != nil {
		return nil, err
	}
	if !p.weave.Empty() {
		watched = append(watched, weaveObject(p.weave))
	}
	var synced []toolscache.InformerSynced
	for _, obj := range watched {
		informer, err := mgr.GetCache().GetInformer(ctx, obj)
		if err != nil {
			return nil, err
		}
		handle, err := informer.AddEventHandler(p.changes())
		if err != nil {
			return nil, err
		}
		synced = append(synced, handle.HasSynced)
	}
	return p, mgr.Add(kube.Everywhere(func(ctx context.Context) error {
		if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
			p.run(ctx)
		}
		return nil
	}))
}

func newPolicies(o Options) *Policies {
	p := &Policies{Options: o, dirty: make(chan struct{}, 1), ready: make(chan struct{})}
	p.builds = newBuilds(o.Programs, o.Now, o.Log, p.changed)
	return p
}

// changes notices what may change which policies judge a stack.
func (p *Policies) changes() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.changed() },
		DeleteFunc: func(any) { p.changed() },
		UpdateFunc: func(before, after any) {
			was, is := before.(client.Object), after.(client.Object)
			if was.GetGeneration() != is.GetGeneration() || is.GetGeneration() == 0 && was.GetResourceVersion() != is.GetResourceVersion() {
				p.changed() // namespaces have no generation
			}
		},
	}
}

// Changed says that a policy may say another thing than before, as when its source has
// another artifact.
func (p *Policies) Changed() { p.changed() }

func (p *Policies) changed() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// Wake has wake called for each stack that a change of the policies is for.
func (p *Policies) Wake(wake func(client.Object)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake = wake
}

// For returns the policies that judge a stack. It waits until all policies were read once:
// until then it is not known which plans they hold. Its error is Later while a program of
// these policies is not compiled yet, and while the namespace of the stack is not known.
func (p *Policies) For(ctx context.Context, stack client.Object) (Set, error) {
	if p == nil {
		return (&snapshot{}).set(ctx, &Policies{}, stack, nil) // the guards of its own
	}
	select {
	case <-p.ready:
	case <-ctx.Done():
		return Set{}, context.Cause(ctx)
	}
	of, err := p.labels(ctx, stack.GetNamespace())
	if err != nil {
		return Set{}, err
	}
	return p.now.Load().set(ctx, p, stack, of)
}

// Confirm makes sure that a stack is judged by the same policies still, with the labels that
// its namespace has on the server, before something begins that cannot be undone. Its error is
// Conflict if it is not.
func (s Set) Confirm(ctx context.Context, stack client.Object) error {
	p := s.of
	if p == nil || p.now.Load() == nil || len(p.now.Load().policies) == 0 {
		return nil
	}
	of, err := p.liveLabels(ctx, stack.GetNamespace())
	if err != nil {
		return err
	}
	now, err := p.now.Load().set(ctx, p, stack, of)
	if err == nil && (now.Digest != s.Digest || !reflect.DeepEqual(now.Times, s.Times) || !slices.Equal(now.PerHour, s.PerHour)) {
		err = fault.New(fault.Conflict, Changed, errors.New("the policies of the stack changed during the pass"))
	}
	return err
}

// statusEvery is how often the status of policies is written, if it has changed.
const statusEvery = 10 * time.Second

// run reads the policies whenever they changed, until ctx ends.
func (p *Policies) run(ctx context.Context) {
	var building sync.WaitGroup
	defer building.Wait()
	building.Go(func() { p.builds.run(ctx) })
	p.read(ctx)
	close(p.ready)
	p.stale.Store(true)
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.dirty:
			p.read(ctx)
			p.stale.Store(true)
			again.Reset(0)
		case <-again.C:
			if next := p.builds.retry(); !next.IsZero() {
				again.Reset(max(time.Second, next.Sub(p.Now())))
			}
		case <-tick.C:
			if next := p.dated; !next.IsZero() && !p.Now().Before(next) {
				p.dated = time.Time{}
				p.stale.Store(true)
			}
			if (p.Leads == nil || p.Leads()) && p.stale.Swap(false) {
				p.dated = p.now.Load().dated(p.Now())
				p.report(ctx)
			}
		}
	}
}

// read takes over the policies as they are now, and wakes the stacks for which that
// changes anything.
func (p *Policies) read(ctx context.Context) {
	next, err := p.snapshot(ctx)
	if err != nil {
		p.Log.Error("policies not read", "err", err) // the cache is there: only the end of the process comes in its way
		p.changed()
		return
	}
	before := p.now.Swap(next)
	p.judged.keep(next)
	if before == nil {
		return // every stack is reconciled in the beginning
	}
	p.mu.Lock()
	wake := p.wake
	p.mu.Unlock()
	changed := before.differs(next)
	if wake == nil || changed == nil {
		return
	}
	err = p.Dialects.EachStack(ctx, p.cache, func(d dialect.Dialect, obj client.Object) error {
		if changed(obj, p) {
			wake(obj)
		}
		return nil
	})
	if err != nil {
		p.Log.Error("stacks not woken by a change of policies", "err", err)
		p.changed()
	}
}

// Judged says that policies judged a plan, so that their status is written again. The status
// of the stack does not tell when it says the same as before.
func (p *Policies) Judged(by []policy.Judge, at time.Time) {
	if p != nil {
		p.judged.note(by, at)
		p.stale.Store(true)
	}
}

// judgedTimes are when policies judged a plan last, by name, as far as this controller knows.
type judgedTimes struct {
	mu  sync.Mutex
	all map[string]time.Time
}

func (j *judgedTimes) note(by []policy.Judge, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.all == nil {
		j.all = map[string]time.Time{}
	}
	for _, one := range by {
		if at.After(j.all[one.Policy]) {
			j.all[one.Policy] = at
		}
	}
}

func (j *judgedTimes) of(name string) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all[name]
}

// keep forgets policies that are gone.
func (j *judgedTimes) keep(s *snapshot) {
	names := map[string]bool{}
	for _, c := range s.policies {
		names[c.source.Policy] = true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.DeleteFunc(j.all, func(name string, _ time.Time) bool { return !names[name] })
}
