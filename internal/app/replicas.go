package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/app/installation"
	"github.com/terrier-iac/terrier/internal/app/leader"
	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/kube/members"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// replica is this controller as one of several that share the stacks. It holds a Lease of
// its own as long as it is active. Another Lease elects the leader among them.
type replica struct {
	member *leadership
	leads  *datedLease   // the Lease of the leader
	leader chan struct{} // closed once this controller is the leader
	group  string        // the name of the Lease of the leader
	lasts  time.Duration
	client client.Client
}

// fileMember names the Lease of the last process of a data directory that shared stacks.
const fileMember = "member"

// join takes a Lease for this controller alone. The caller holds the lock of the data
// directory dir: so a former process of it has ended, and its Lease is released.
func (c cluster) join(ctx context.Context, config *rest.Config, dir string) (*replica, error) {
	own := c.ClusterConfig
	me := newIdentity()
	own.Lease = members.LeaseName(c.Lease, me)
	member, err := takeLead(ctx, config, own, me, map[string]string{members.LabelGroup: c.Lease}, c.now, c.say)
	if err != nil {
		return nil, err
	}
	r := &replica{member: member, leader: make(chan struct{}), group: c.Lease, lasts: c.LeaseTime, client: member.client}
	path := filepath.Join(dir, fileMember)
	if was, err := os.ReadFile(path); err == nil {
		name, id, _ := strings.Cut(strings.TrimSpace(string(was)), " ")
		free(r.client, name, id)
	}
	if err := os.WriteFile(path, []byte(own.Lease+" "+me+"\n"), 0o600); err != nil {
		member.release()
		return nil, err
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		member.release()
		return nil, err
	}
	member.lease.final = true
	r.leads = &datedLease{now: c.now, final: true, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, Name: c.Lease},
		Client:    set.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: me},
	}}
	return r, nil
}

// claim is leadership.claim for a Lease that another controller may hold.
func (r *replica) claim(ctx context.Context, keys *installation.Keys) error {
	var lease coordinationv1.Lease
	err := r.client.Get(ctx, client.ObjectKey{Namespace: access.ServerNamespace, Name: r.group}, &lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the Lease %s: %w", r.group, err)
	}
	switch was := lease.Annotations[installation.Annotation]; was {
	case keys.ID():
		return nil
	case "":
		return reserve(ctx, r.client, r.group, keys.ID())
	default:
		return fault.New(fault.Denied, installation.ReasonAnother, fmt.Errorf(
			"the Lease %s/%s belongs to another installation: use its Secret %s, or delete the Lease if that is lost", access.ServerNamespace, r.group, installation.SecretName))
	}
}

// check is nil while no other process can have taken over anything of this one. A leader
// whose Lease has expired is no member any more, either: it ends.
func (r *replica) check() error {
	if r.leads.lapsed() {
		return fault.New(fault.Later, "NotLeading", errNotLeading)
	}
	return r.member.check()
}

// isLeader reports whether this controller is the leader, and no other one can be.
func (r *replica) isLeader() bool { return r.leads.holds() && r.member.check() == nil }

// release gives up both Leases, so that the others need not wait until they have expired.
func (r *replica) release() {
	if r.leads.holds() {
		free(r.client, r.group, r.member.me)
	}
	r.member.release()
}

// elect has a manager run for the leadership. What the leader alone does begins once it
// is won, and the manager ends with an error when it is lost.
func (r *replica) elect(o *ctrl.Options) {
	renew, retry := r.lasts*2/3, r.lasts/6
	o.LeaderElection, o.LeaderElectionResourceLockInterface = true, r.leads
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &r.lasts, &renew, &retry
}

// free releases a Lease if a process still holds it under its name.
func free(c client.Client, name, holder string) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	var lease coordinationv1.Lease
	if err := c.Get(ctx, client.ObjectKey{Namespace: access.ServerNamespace, Name: name}, &lease); err != nil {
		return // it expires
	}
	if h := lease.Spec.HolderIdentity; h == nil || *h != holder {
		return
	}
	none := ""
	lease.Spec.HolderIdentity = &none
	// The API server refuses it if another process has written in between.
	_ = c.Update(ctx, &lease, client.FieldOwner(kube.FieldManager))
}

// alone waits until no controller shares stacks under the Lease of this one, which shares
// nothing: those go on with their stacks when their leader has ended.
func (c cluster) alone(ctx context.Context, config *rest.Config, log *slog.Logger) error {
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	others := members.New(members.Config{API: set, Namespace: access.ServerNamespace, Group: c.Lease, Now: c.now, Log: log})
	for said := false; ; {
		ids, err := members.Others(ctx, others)
		if apierrors.IsForbidden(err) && !said {
			c.say("whether controllers share stacks cannot be seen without the right to list Leases in %s: waiting for %s, until a Lease of one would have expired", access.ServerNamespace, c.LeaseTime)
			return sleep(ctx, c.LeaseTime)
		}
		if err != nil || len(ids) == 0 {
			return err
		}
		if !said {
			c.say("waiting: controllers that share stacks are active: %s", strings.Join(ids, ", "))
			said = true
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// sleep returns once a while has passed, or with the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// fileShards names the division of shards that the last process of a data directory which
// shared no stacks found.
const fileShards = "shards"

// division is how controllers that shared the stacks divided them last.
type division struct {
	path  string // where it is noted; empty if it need not be
	now   string
	stale bool // the stacks were shared since the data directory was used by a process that did not share
}

// divided finds out whether other controllers had the runs since a process that shared no
// stacks used the data directory dir. No member is alive any more.
func (c cluster) divided(ctx context.Context, config *rest.Config, dir string, log *slog.Logger) (division, error) {
	d := division{path: filepath.Join(dir, fileShards)}
	was, err := os.ReadFile(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return d, err
	}
	d.now, err = members.Division(ctx, members.New(members.Config{API: set, Namespace: access.ServerNamespace, Group: c.Lease, Now: c.now, Log: log}))
	if apierrors.IsForbidden(err) {
		return division{}, nil // the role is of a release in which nothing was shared
	}
	if err != nil {
		return d, fmt.Errorf("reading whether controllers shared the stacks: %w", err)
	}
	d.stale = d.now != string(was)
	return d, nil
}

// note writes down that what the data directory has of runs is of this process, or later.
func (d division) note() error {
	if !d.stale {
		return nil
	}
	return disk.Write(d.path, []byte(d.now))
}

// division is how the stacks were shared before this process, which does not share them.
func (p plane) division() division {
	if s, ok := p.Running.(*joined); ok {
		return s.shards
	}
	return division{}
}

// sharing is a control plane whose stacks several controllers share.
type sharing interface{ Replica() *replica }

// Replica implements shared.
func (j *joined) Replica() *replica { return j.replica }

// replica is this controller as one of several; nil if it shares no stacks.
func (p plane) replica() *replica {
	if s, ok := p.Running.(sharing); ok {
		return s.Replica()
	}
	return nil
}

// leader reports whether this process does what one of several controllers does for all.
func (p plane) leader() bool {
	if r := p.replica(); r != nil {
		return r.isLeader()
	}
	return p.leads() == nil
}

// leading is nil while this process is the leader.
func (p plane) leading() error {
	if !p.leader() {
		return fault.New(fault.Later, "NotLeading", errors.New("this controller is not the leader"))
	}
	return nil
}

// openMembers finds the controllers that share stacks with this one, without announcing it
// to them. There are none if it shares no stacks.
func openMembers(p plane, sealing func() string, now func() time.Time, log *slog.Logger) (*members.Members, error) {
	r := p.replica()
	if r == nil {
		return nil, nil
	}
	set, err := kubernetes.NewForConfig(p.rest())
	if err != nil {
		return nil, err
	}
	return members.New(members.Config{
		API: set, Namespace: access.ServerNamespace, Group: r.group, ID: r.member.me, Lease: r.member.name, Lasts: r.lasts, Every: r.lasts / 6, Now: now, Log: log, Sealing: sealing,
	}), nil
}

// writersOf are the controllers that write records beside this one; nil if it shares no stacks.
func writersOf(m *members.Members) store.Writers {
	if m == nil {
		return nil
	}
	return func(ctx context.Context) (map[string]string, error) { return members.Keys(ctx, m) }
}

// follow has the stacks of this controller be those that the leader gives to it.
func follow(mgr ctrl.Manager, m *members.Members, stacks members.Worker) error {
	if m == nil {
		return nil
	}
	return errors.Join(
		mgr.Add(kube.Everywhere(func(ctx context.Context) error { return m.Follow(ctx, stacks) })),
		mgr.Add(leaderOnly(m.Lead)),
	)
}

// askLeader talks to the leader of several controllers while a manager runs.
func askLeader(mgr ctrl.Manager, l *leader.Leader) error {
	if l == nil {
		return nil
	}
	return mgr.Add(kube.Everywhere(l.Run))
}

// leaderOnly is work of a manager that only the leader of several controllers does.
type leaderOnly func(context.Context) error

// Start implements manager.Runnable.
func (f leaderOnly) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (leaderOnly) NeedLeaderElection() bool { return true }

// announce tells the other controllers where this one is: at host, or host:port.
func announce(ctx context.Context, m *members.Members, host string, listens net.Addr) error {
	_, port, _ := net.SplitHostPort(listens.String()) // always valid
	if h, given, err := net.SplitHostPort(host); err == nil {
		host, port = h, given
	}
	return m.Announce(ctx, "https://"+net.JoinHostPort(host, port))
}

// checkShare reports what does not go together with sharing stacks.
func (o Options) checkShare() error {
	k := o.Cluster
	if k == nil || !k.Share {
		return nil
	}
	switch {
	case k.Lease == "":
		return usage("--share-stacks needs --lease, which elects the leader of the controllers")
	case o.asPods() == nil:
		return usage("--share-stacks needs --runs-as=pods: a process ends with its controller, and cannot be another one's")
	case o.Config.Records == "":
		return usage("--share-stacks needs --records: all controllers need the same records")
	case k.Keys != installation.InSecret:
		return usage("--share-stacks needs --installation-keys=secret: all controllers need the same keys")
	case k.Address == "":
		return usage("--share-stacks needs --replica-address, where the other controllers reach this one: in a pod, its own address (status.podIP)")
	case o.Pods.ChecksPerPod > 1:
		return usage("--checks-per-pod: checks cannot share pods with --share-stacks yet: leave it at 1")
	case len(k.Hosts) == 0:
		return usage("--share-stacks needs --http-host, the name in the certificates of the controllers")
	}
	return nil
}
