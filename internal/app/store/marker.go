package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// systemNamespace is in every cluster, and its UID is taken for that of the cluster.
const systemNamespace = "kube-system"

// join checks that the records are those of this cluster, or marks new ones as such. It
// brings the records of the data directory into a place that is new, and leaves none behind
// that are not known to be old.
//
// A control plane in this process lies beside the records in the data directory: they
// belong together, and need no marker. was is the place that the Lease names.
func (r *Records) join(ctx context.Context, o Options, was string) error {
	if o.Records == "" && !o.InCluster {
		return nil
	}
	uid, err := clusterUID(ctx, r.cluster, true)
	if o.Records == "" && fault.Of(err) == fault.Denied {
		o.Progress("%v; until then the records of deleted stacks stay, and a state in a bucket is not protected from stacks of other clusters", err)
		r.marked = true // Ours fails, and nothing is collected
		return nil
	}
	if err != nil {
		return err
	}
	r.marked = true
	r.is = record.Installation{Cluster: uid, Lease: o.Lease, Since: o.Now().UTC()}
	is, err := record.Marker().Read(ctx, r.Store)
	if err == nil {
		r.is.Formerly = is.Formerly
	}
	ours, unmarked := false, fault.Of(err) == fault.Missing
	switch {
	case unmarked:
		err = r.begin(ctx, o)
	case err == nil && is.Cluster == uid && (is.Lease == o.Lease || o.Lease == ""):
		ours = true
	case err == nil && another(is, r.is) == nil: // an earlier release wrote no Lease
	case err == nil && o.Adopt:
		r.is.Formerly = without(append(slices.Clone(is.Formerly), is.Cluster), uid)
		o.Progress("the records of the cluster %s and its controller %s belong to this one from now on", is.Cluster, is.Lease)
	case err == nil:
		return another(is, r.is)
	case fault.Of(err) == fault.Later: // the store does not answer, or the key is not known now
	case o.Adopt:
		o.Progress("whose the records are cannot be read (%v); they belong to this controller from now on", err)
		err = nil
	default:
		err = fmt.Errorf("whose the records are cannot be read: %w; restore installation.json, or start once with --adopt-records if they are of this cluster", err)
	}
	if err == nil && !unmarked {
		err = o.leavesNone(ctx, r.keys)
	}
	if err == nil && was != "" && was != r.place {
		o.Progress("the records are in %s from now on, and no longer in %s", r.place, was)
	}
	if err != nil || ours {
		return err
	}
	return record.Marker().Write(ctx, r.Store, r.is)
}

// begin brings what the data directory has into a place without a marker. Who takes records
// over has some.
func (r *Records) begin(ctx context.Context, o Options) error {
	if err := o.bring(ctx, r.Store, r.keys); err != nil || !o.Adopt {
		return err
	}
	there, err := recordsIn(ctx, r.Store)
	if err == nil && len(there) == 0 {
		err = fault.New(fault.Denied, ReasonMoved, fmt.Errorf(
			"--adopt-records takes over records, and %s holds none: name the place of the records with --records, and mount its volume; if they are lost, start without --adopt-records",
			cmp.Or(r.place, o.Dir("records"))))
	}
	return err
}

// without is a list without one element, and without repetitions.
func without(list []string, one string) []string {
	list = slices.DeleteFunc(list, func(s string) bool { return s == one })
	slices.Sort(list)
	return slices.Compact(list)
}

// Cluster is the UID of the cluster of this controller, and the UIDs of those whose records
// it adopted. The UID is empty if this program may not read it.
func (r *Records) Cluster(ctx context.Context) (uid string, formerly []string, err error) {
	if r.marked {
		return r.is.Cluster, r.is.Formerly, nil
	}
	uid, err = clusterUID(ctx, r.cluster, true)
	return uid, nil, err
}

// Ours is nil if the API server is still the one of the cluster whose records these
// are. An API server whose store was emptied, or one of another cluster, knows none of
// the stacks, which is no reason to delete their records.
//
// It also fails while a key is missing where keys are kept.
func (r *Records) Ours(ctx context.Context) error {
	err := r.ours(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked = err
	return err
}

// Checked is the outcome of the last call of Ours; nil before the first one.
func (r *Records) Checked() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checked
}

func (r *Records) ours(ctx context.Context) error {
	if err := r.keys.check(ctx); err != nil {
		return err
	}
	if !r.marked {
		return nil
	}
	uid, err := clusterUID(ctx, r.cluster, false)
	if err != nil {
		return err
	}
	if r.is.Cluster == "" {
		return fault.New(fault.Denied, ReasonCluster, fmt.Errorf("this program could not read the namespace %s when it started, and so it does not know whose the records are: restart it", systemNamespace))
	}
	is, err := r.owner(ctx, 0)
	if err != nil {
		return err
	}
	return another(is, record.Installation{Cluster: uid})
}

// another is the error for records that are not those of here.
func another(is, here record.Installation) error {
	switch {
	case is.Cluster != here.Cluster:
		return fault.New(fault.Denied, ReasonCluster, fmt.Errorf(
			"the records belong to another cluster (the UID of its namespace %s is %s, here it is %s): name other records with --records; if that cluster is gone and this one takes its place, start once with --adopt-records",
			systemNamespace, is.Cluster, here.Cluster))
	case is.Lease != "" && here.Lease != "" && is.Lease != here.Lease:
		return fault.New(fault.Denied, ReasonCluster, fmt.Errorf(
			"the records belong to another controller of this cluster (its Lease is %s, here it is %s): name other records with --records; if that controller is gone and this one takes its place, start once with --adopt-records",
			is.Lease, here.Lease))
	}
	return nil
}

// clusterUID returns the UID of the cluster. A control plane that has just started makes
// its namespaces in the first seconds.
func clusterUID(ctx context.Context, c client.Client, wait bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var ns corev1.Namespace
		err := c.Get(ctx, client.ObjectKey{Name: systemNamespace}, &ns)
		switch {
		case err == nil:
			return string(ns.UID), nil
		case apierrors.IsForbidden(err):
			return "", fault.New(fault.Denied, ReasonCluster, fmt.Errorf("this program may not read the namespace %s, by which it knows the cluster: allow it to get that namespace (docs/rbac.md): %w", systemNamespace, err))
		case !apierrors.IsNotFound(err) || !wait:
			return "", fmt.Errorf("reading the namespace %s, by which the cluster is known: %w", systemNamespace, err)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for the namespace %s, by which the cluster is known: %w", systemNamespace, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
