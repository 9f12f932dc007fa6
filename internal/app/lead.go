package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
)

// leader is a control plane that only one of several processes may use.
type leader interface {
	Leads() error          // nil while this process may act
	Lost() <-chan struct{} // closed when it may not any more
}

// errNotLeading is what everything that acts is told after the Lease was lost.
var errNotLeading = errors.New("this controller was not heard of for too long, and another one may act by now")

// installation is the annotation on the Lease that names the data directory.
const installation = "terrier.dev/installation"

// leadership is the Lease held.
type leadership struct {
	elector *leaderelection.LeaderElector
	lease   *datedLease
	client  client.Client
	name    string
	me      string // as the Lease calls this process
	stop    context.CancelFunc
	lost    chan struct{} // closed when it is over, however it ended
}

// takeLead returns once this process holds the Lease.
func takeLead(ctx context.Context, config *rest.Config, k ClusterConfig, now func() time.Time, say func(string, ...any)) (*leadership, error) {
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, err
	}
	if err := ensureServerNamespace(ctx, c); err != nil {
		return nil, err
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // the random part tells two apart
	me := host + "_" + rand.Text()[:8]
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &leadership{client: c, name: k.Lease, me: me, stop: stop, lost: make(chan struct{})}
	l.lease = &datedLease{now: now, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, Name: k.Lease},
		Client:    set.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: me},
	}}
	began := make(chan struct{})
	l.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          l.lease,
		LeaseDuration: k.LeaseTime, RenewDeadline: k.LeaseTime * 2 / 3, RetryPeriod: k.LeaseTime / 6,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(began) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(who string) {
				if who != me && who != "" {
					say("waiting: the controller %s acts", who)
				}
			},
		},
	})
	if err != nil {
		stop()
		return nil, fault.New(fault.Invalid, "Usage", fmt.Errorf("--lease-duration: %w", err))
	}
	go func() {
		defer close(l.lost)
		l.elector.Run(electing)
	}()
	select {
	case <-began:
		return l, nil
	case <-ctx.Done():
		l.release()
		return nil, ctx.Err()
	}
}

// claim writes down that the Lease belongs to the data directory dir, and
// refuses if it belongs to another: what that one holds, plans and runs and the
// records of what was built, nobody else has.
func (l *leadership) claim(ctx context.Context, dir string) error {
	id, err := installationOf(dir)
	if err != nil {
		return err
	}
	var lease coordinationv1.Lease
	if err := l.client.Get(ctx, client.ObjectKey{Namespace: access.ServerNamespace, Name: l.name}, &lease); err != nil {
		return fmt.Errorf("reading the Lease %s: %w", l.name, err)
	}
	switch lease.Annotations[installation] {
	case id:
		return nil
	case "":
	default:
		return fault.New(fault.Denied, "DataDirectory", fmt.Errorf(
			"the Lease %s/%s belongs to another data directory than %s, that of another controller or of terrier up: give this controller that one, or, if it is lost for good, delete the Lease",
			access.ServerNamespace, l.name, dir))
	}
	patch := []byte(`{"metadata":{"annotations":{"` + installation + `":"` + id + `"}}}`)
	return l.client.Patch(ctx, &lease, client.RawPatch("application/merge-patch+json", patch), client.FieldOwner(kube.FieldManager))
}

// leaseOfControllers is what --lease is if nobody says otherwise.
const leaseOfControllers = "terrier-controller"

// reserve writes down that the cluster belongs to the data directory dir without
// holding the Lease name. A control plane in this process needs nobody to be
// chosen, but a controller that is pointed at it by mistake would act beside it.
func reserve(ctx context.Context, c client.Client, name, dir string) error {
	id, err := installationOf(dir)
	if err != nil {
		return err
	}
	u, err := toUnstructured(&coordinationv1.Lease{
		TypeMeta:   typeMeta("coordination.k8s.io/v1", "Lease"),
		ObjectMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, Name: name, Annotations: map[string]string{installation: id}},
	})
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(u.Object, "spec") // that of a controller that was here is its own
	return kube.Apply(ctx, c, u)
}

// check is nil while nobody else can hold the Lease. It goes by the clock that
// runs on while a process is stopped, so one that wakes up knows at once.
func (l *leadership) check() error {
	if !l.elector.IsLeader() || !l.lease.holds() {
		return fault.New(fault.Later, "NotLeading", errNotLeading)
	}
	return nil
}

// releaseTime bounds how long the end waits for the Lease to be given back.
const releaseTime = 2 * time.Second

// release gives the Lease back, so that the next one need not wait until it has
// run out. The elector would do so as well, but by what it saw last, and then a
// process that was held up takes the Lease away from who has it by now.
func (l *leadership) release() {
	leads := l.check() == nil
	l.stop()
	<-l.lost
	if !leads {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	var lease coordinationv1.Lease
	if err := l.client.Get(ctx, client.ObjectKey{Namespace: access.ServerNamespace, Name: l.name}, &lease); err != nil {
		return // it runs out
	}
	if h := lease.Spec.HolderIdentity; h == nil || *h != l.me {
		return
	}
	nobody := ""
	lease.Spec.HolderIdentity = &nobody
	// Refused if somebody else has written in between; and otherwise it runs out.
	_ = l.client.Update(ctx, &lease, client.FieldOwner(kube.FieldManager))
}

func ensureServerNamespace(ctx context.Context, c client.Client) error {
	u, err := toUnstructured(&corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: access.ServerNamespace}})
	if err != nil {
		return err
	}
	return kube.Apply(ctx, c, u)
}

// fence makes every client of the configuration refuse to write once another
// controller may act.
func fence(c *rest.Config, leads func() error) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return fenced{next, leads} })
}

type fenced struct {
	next  http.RoundTripper
	leads func() error
}

// RoundTrip implements http.RoundTripper.
func (f fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		failpoint.Act(asks, "")()
		if err := f.leads(); err != nil {
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}

// asks is the act of asking whether this process may act, which comes before
// every other: what was asked for before a process was stopped may be on its way
// when it wakes, and what is asked for after that is refused.
const asks = "lead.ask"

// fencedRuns starts no run once another controller may act.
type fencedRuns struct {
	*runner.Processes
	leads func() error
}

// Start implements runner.Runner.
func (f fencedRuns) Start(ctx context.Context, job runner.Job) error {
	failpoint.Act(asks, "")()
	if err := f.leads(); err != nil {
		return err
	}
	return f.Processes.Start(ctx, job)
}

// whileLeading ends ctx, with the reason as its cause, when p.plane is lost.
func (p *parts) whileLeading(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l, ok := p.plane.(leader)
	if !ok {
		return ctx, func() { cancel(nil) }
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-l.Lost():
			cancel(errNotLeading)
		case <-over:
		}
	}()
	return ctx, func() { close(over); cancel(nil) }
}

// leads is nil while this process may act.
func (p *parts) leads() error {
	if l, ok := p.plane.(leader); ok {
		return l.Leads()
	}
	return nil
}

// rest is how the API server is reached, by whoever acts for stacks.
func (p *parts) rest() *rest.Config {
	c := p.plane.Config()
	bound(c, requestTime)
	kube.CountWrites(c)
	if l, ok := p.plane.(leader); ok {
		fence(c, l.Leads) // around the other: what is refused was not done
	}
	return c
}

// shortLease is the least that the API server can write down.
const shortLease = time.Second

// check reports what of a ClusterConfig cannot work.
func (k ClusterConfig) check() error {
	if k.Lease != "" && k.LeaseTime < shortLease {
		return fault.New(fault.Invalid, "Usage", fmt.Errorf("--lease-duration: %s is less than %s", k.LeaseTime, shortLease))
	}
	for _, h := range k.Hosts {
		if strings.ContainsAny(h, ":/ ") && !strings.HasPrefix(h, "[") {
			return fault.New(fault.Invalid, "Usage", fmt.Errorf("--http-host %q is a name or an address, without a scheme and without a port", h))
		}
	}
	return nil
}
