package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/app/namespaces"
	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/machine"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// This file has what follows from the options, and from the rights to what they name.

// runsShare is the default share of the memory of this machine for all runs
// together. The rest is for this program, the control plane
// and the file cache of the kernel.
const runsShare = 0.7

// progress tells the user of the command line what happens.
func (o Options) progress(format string, args ...any) {
	fmt.Fprintf(o.Stderr, "terrier: "+format+"\n", args...)
}

// dir is a directory below the data directory.
func (o Options) dir(below ...string) string {
	return filepath.Join(append([]string{o.Config.DataDir}, below...)...)
}

// hosts are the names of the HTTP API for other machines.
func (o Options) hosts() []string {
	if o.Cluster == nil {
		return nil
	}
	return o.Cluster.Hosts
}

// watched are the namespaces that are reconciled, nil for all.
func (o Options) watched() []string {
	if o.Cluster == nil {
		return nil
	}
	return o.Cluster.Namespaces
}

// leaveOut leaves out the watched namespaces to which this controller has no rights.
func leaveOut(ctx context.Context, p *parts) error {
	if len(p.watched()) == 0 {
		return nil
	}
	c, err := client.New(p.plane.rest(), client.Options{})
	if err != nil {
		return err
	}
	closed, err := namespaces.Rights{Client: c, Kinds: p.kinds.All(), Pods: p.Pods != nil}.Closed(ctx, p.watched(), namespaces.Patience)
	if err != nil || len(closed) == 0 {
		return err
	}
	named := *p.Cluster
	named.Namespaces = slices.DeleteFunc(slices.Clone(named.Namespaces), func(n string) bool { return slices.Contains(closed, n) })
	p.named, p.Cluster, p.closed = p.watched(), &named, closed
	p.log.Error("namespaces are left out, and no stack of theirs is reconciled: this controller may not list stacks there, or pods where runs are pods. "+
		"Create the namespaces that are gone, and bind the roles of the controller in them; it starts again once it may", "namespaces", closed)
	return nil
}

// awaitRights has the process start again once a namespace that was left out can be reconciled, or
// the rights to one that is reconciled are gone.
func awaitRights(p *parts, mgr ctrl.Manager) error {
	if len(p.watched()) == 0 {
		return nil
	}
	c, err := client.New(p.plane.rest(), client.Options{})
	if err != nil {
		return err
	}
	r := namespaces.Rights{Client: c, Kinds: p.kinds.All(), Pods: p.Pods != nil}
	return mgr.Add(kube.Everywhere(r.Changes(p.watched(), p.closed, namespaces.Calm, namespaces.Again, p.log))) // not the leader alone: each has informers and lists pods
}

// namespaces are the same for a cache.
func (o Options) namespaces() map[string]cache.Config {
	if len(o.watched()) == 0 {
		return nil
	}
	named := map[string]cache.Config{}
	for _, n := range o.watched() {
		named[n] = cache.Config{}
	}
	return named
}

// account is the ServiceAccount of stacks that name none.
func (o Options) account() string {
	if o.Pods == nil {
		return defaultRunAccount
	}
	return cmp.Or(o.Pods.Account, defaultRunAccount)
}

// room is the number of runs, and the memory for them, of this machine.
func (o Options) room() schedule.Limits {
	l := schedule.Limits{Runs: o.Config.MaxRuns, PerTenant: o.Config.MaxTenantRuns, Memory: int64(o.Config.RunsMemory) << 20}
	l.PerClass, _ = o.Config.perClass() // it was checked with the others
	if o.asPods() != nil {
		l.Memory = 0 // they take the memory of nodes, which the scheduler of the cluster knows
		return l
	}
	if l.Memory == 0 {
		// After a restart runs may be active, which are counted: the memory that is
		// free now does not matter.
		l.Memory = int64(float64(machine.Memory(os.DirFS("/"))) * runsShare)
	}
	return l
}

// slotsOf are the slots of the limits that drift checks may take.
func slotsOf(l schedule.Limits) query.Slots {
	return query.Slots{Runs: l.Runs, Checks: l.PerClass[schedule.Drift], PerTenant: l.PerTenant}
}

// mirror is the directory of providers that runs can read; empty without one.
func (o Options) mirror() (string, error) {
	if o.asPods() != nil {
		return "", nil // it is in the image, or nowhere
	}
	dir := o.Config.Mirror
	if dir == "" {
		dir = beside("mirror")
	}
	if dir == "" {
		return "", nil
	}
	return filepath.Abs(dir)
}

// writable are the directories of this machine that every run may write.
func (o Options) writable() []string {
	if o.Config.Quickstart {
		return append(slices.Clone(o.Config.Writable), o.dir(estateDir))
	}
	return o.Config.Writable
}

// tenantNamespaces are the namespaces that tenants may write to besides their
// own: all of them on one machine, none in a cluster.
func (o Options) tenantNamespaces() []string {
	if o.Config.TenantNamespaces == nil && o.Cluster == nil {
		return []string{"*"}
	}
	return o.Config.TenantNamespaces
}

// sqliteDirs are the directories below which registries may read files. On one
// machine these are the current and the data directory by default; in a
// cluster none.
func (o Options) sqliteDirs() ([]string, error) {
	if o.Config.SQLiteDirs != nil || o.Cluster != nil {
		return o.Config.SQLiteDirs, nil
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	return []string{here, o.Config.DataDir}, nil
}

// settings returns the operator's settings for all stacks.
func (o Options) settings() (controller.Config, error) {
	c := controller.Config{
		Pods: o.asPods() != nil, CrossNamespace: o.Config.CrossNamespace, TenantLabel: o.Config.TenantLabel,
		Network: o.Config.Network, HostNetwork: o.Config.HostNetwork, MinLevel: o.Config.Isolation,
		MirrorOnly: !o.Config.Registries, Settable: o.Config.StackEnv, Backends: backendNames(o.Config.Backends),
		NoReattach: !o.Config.Reuse, StackMetrics: o.Config.StackMetrics, Patience: controller.Patience,
		BreakGlass: controller.BreakGlass{Allowed: o.Config.Glass, Lasts: o.Config.GlassLasts},
		Limits: runner.Limits{
			Init: o.Config.RunTimeout, Plan: o.Config.RunTimeout, Apply: o.Config.RunTimeout, Grace: o.Config.RunGrace,
			Memory: int64(o.Config.RunMemory) << 20, Processes: o.Config.RunProcesses, FileBytes: int64(o.Config.RunFile) << 20,
		},
	}
	if c.Account = o.account(); o.Config.ReadAsAccount {
		c.ReadAs = c.Account
	}
	if o.Config.Quickstart {
		estate := o.dir(estateDir)
		if err := errors.Join(os.MkdirAll(estate, 0o700), sandbox.ChownWork(estate)); err != nil {
			return c, fmt.Errorf("creating the estate of the quickstart: %w", err)
		}
	}
	mirror, err := o.mirror()
	if err != nil || mirror == "" {
		return c, err
	}
	c.MirrorProviders, err = workdir.MirrorProviders(os.DirFS(mirror))
	return c, err
}

// backendNames are the names of the operator's own plug-ins, in order.
func backendNames(entries []string) []string {
	var names []string
	for _, entry := range entries {
		name, _, _ := strings.Cut(entry, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
