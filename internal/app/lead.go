package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
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
	"github.com/terrier-iac/terrier/internal/app/installation"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
)

// leadership is the Lease held.
type leadership struct {
	elector *leaderelection.LeaderElector
	lease   *datedLease
	client  client.Client
	name    string
	me      string // the identity of this process in the Lease
	stop    context.CancelFunc
	lost    chan struct{} // closed when the leadership has ended
}

// takeLead returns once this process holds the Lease, under the name me. A Lease that it makes has
// the labels from the beginning.
func takeLead(ctx context.Context, config *rest.Config, k ClusterConfig, me string, labels map[string]string, now func() time.Time, say func(string, ...any)) (*leadership, error) {
	c, err := client.New(config, client.Options{Scheme: newScheme(kinds.All())})
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
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &leadership{client: c, name: k.Lease, me: me, stop: stop, lost: make(chan struct{})}
	l.lease = &datedLease{now: now, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, Name: k.Lease},
		Client:    set.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: me}, Labels: labels,
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
					say("waiting: the controller %s is active", who)
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

// newIdentity names this process in Leases.
func newIdentity() string {
	host, _ := os.Hostname() // the random part tells two apart
	return host + "_" + rand.Text()[:8]
}

// claim records that the Lease belongs to the installation of keys and its data directory
// dir, and refuses if it belongs to another one: the plans and runs in that directory
// exist nowhere else.
func (l *leadership) claim(ctx context.Context, keys *installation.Keys, dir string) error {
	id := keys.ID()
	of, err := installation.Of(dir)
	if err != nil {
		return err
	}
	var lease coordinationv1.Lease
	if err := l.client.Get(ctx, client.ObjectKey{Namespace: access.ServerNamespace, Name: l.name}, &lease); err != nil {
		return fmt.Errorf("reading the Lease %s: %w", l.name, err)
	}
	switch was := lease.Annotations[installation.Annotation]; {
	case was == id && of == id:
		return nil
	case was == "":
	default:
		return fault.New(fault.Denied, "DataDirectory", fmt.Errorf(
			"the Lease %s/%s belongs to another data directory than %s, of another controller or of terrier up: use that directory, or delete the Lease if the directory is lost",
			access.ServerNamespace, l.name, dir))
	}
	patch := []byte(`{"metadata":{"annotations":{"` + installation.Annotation + `":"` + id + `"}}}`)
	return l.client.Patch(ctx, &lease, client.RawPatch("application/merge-patch+json", patch), client.FieldOwner(kube.FieldManager))
}

// leaseOfControllers is the default of --lease.
const leaseOfControllers = "terrier-controller"

// reserve records that the cluster belongs to the installation id without holding the
// Lease name. A control plane in this process needs no
// election, but a controller that uses it by mistake would be active beside it.
func reserve(ctx context.Context, c client.Client, name, id string) error {
	u, err := toUnstructured(&coordinationv1.Lease{
		TypeMeta:   typeMeta("coordination.k8s.io/v1", "Lease"),
		ObjectMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, Name: name, Annotations: map[string]string{installation.Annotation: id}},
	})
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(u.Object, "spec") // an earlier controller owns it
	return kube.Apply(ctx, c, u)
}

// check is nil while no other process can hold the Lease. It uses the clock that
// continues while a process is stopped, so a resumed process notices at once.
func (l *leadership) check() error {
	if !l.elector.IsLeader() || !l.lease.holds() {
		return fault.New(fault.Later, "NotLeading", errNotLeading)
	}
	return nil
}

// releaseTime bounds how long the end waits for the release of the Lease.
const releaseTime = 2 * time.Second

// release releases the Lease, so that the next controller need not wait until it has
// expired. The elector would do so, too, but from the record that it saw last: a
// process that was stopped for a while would then take the Lease from its current
// holder.
func (l *leadership) release() {
	leads := l.check() == nil
	l.stop()
	<-l.lost
	if !leads {
		return
	}
	free(l.client, l.name, l.me)
}

func ensureServerNamespace(ctx context.Context, c client.Client) error {
	u, err := toUnstructured(&corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: access.ServerNamespace}})
	if err != nil {
		return err
	}
	return kube.Apply(ctx, c, u)
}

// fence makes every client of the configuration refuse to write once another
// controller may be active.
func fence(c *rest.Config, leads func() error) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return fenced{next, leads} })
}

type fenced struct {
	next  http.RoundTripper
	leads func() error
}

func (f fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		failpoint.Act(asks, "")()
		if err := f.leads(); err != nil {
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}

// asks is the act of checking whether this process is active, which comes before
// every other act: a request from before a process was stopped may be sent
// when it resumes, and every later one is refused.
const asks = "lead.ask"

// fencedRuns starts no run once another controller may be active.
type fencedRuns struct {
	runner.Runner
	leads func() error
}

func (f fencedRuns) Start(ctx context.Context, job runner.Job) error {
	failpoint.Act(asks, "")()
	if err := f.leads(); err != nil {
		return err
	}
	return f.Runner.Start(ctx, job)
}

// fencedBlobs changes no record once another controller may be active, or once the
// records belong to another one.
type fencedBlobs struct {
	blob.Store
	leads func() error
	held  func(context.Context) error
}

func (f fencedBlobs) Put(ctx context.Context, key string, r io.Reader) error {
	if err := f.may(ctx); err != nil {
		return err
	}
	return f.Store.Put(ctx, key, r)
}

func (f fencedBlobs) Delete(ctx context.Context, key string) error {
	if err := f.may(ctx); err != nil {
		return err
	}
	return f.Store.Delete(ctx, key)
}

func (f fencedBlobs) may(ctx context.Context) error {
	if err := f.held(ctx); err != nil {
		return err
	}
	return f.leads() // last, since the other check may take a while
}

// shortLease is the shortest duration that a Lease can have.
const shortLease = time.Second

// check reports invalid settings.
func (k ClusterConfig) check() error {
	if k.Lease != "" && k.LeaseTime < shortLease {
		return fault.New(fault.Invalid, "Usage", fmt.Errorf("--lease-duration: %s is less than %s", k.LeaseTime, shortLease))
	}
	if k.Drain < 0 {
		return usage("--drain: %s is negative", k.Drain)
	}
	if k.Health != "" {
		if _, _, err := net.SplitHostPort(k.Health); err != nil {
			return usage("--health-address %q is not host:port", k.Health)
		}
	}
	if err := installation.Check(k.Keys); err != nil {
		return err
	}
	for _, h := range k.Hosts {
		if strings.ContainsAny(h, ":/ ") && net.ParseIP(strings.Trim(h, "[]")) == nil {
			return fault.New(fault.Invalid, "Usage", fmt.Errorf("--http-host %q: want a name or an address, without scheme and port", h))
		}
	}
	return nil
}
