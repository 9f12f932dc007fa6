package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// PlaceAnnotation of the Lease of a controller names the place of its records, if that is
// not the data directory. A place that holds no records may be new. It may also be a typing
// error, or a volume that is not mounted, and then only the Lease knows better.
const PlaceAnnotation = "terrier.dev/records"

// lease is the Lease of the controller; without a name if it has none.
func (o Options) lease() client.ObjectKey {
	namespace, name, _ := strings.Cut(o.Lease, "/")
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// remembered is the place of the records that the Lease of this controller names; empty if
// it names none, or does not exist. Records in the data directory lie beside the control
// plane of this process, which is not asked.
func (r *Records) remembered(ctx context.Context, o Options) (string, error) {
	if r.lease.Name == "" || r.place == "" && !o.InCluster {
		return "", nil
	}
	var lease coordinationv1.Lease
	if err := client.IgnoreNotFound(r.cluster.Get(ctx, r.lease, &lease)); err != nil {
		return "", fmt.Errorf("reading the Lease %s, which says where the records are: %w", r.lease, err)
	}
	return lease.Annotations[PlaceAnnotation], nil
}

// remember has the Lease of this controller name the place of the records, once they were
// opened there. Without a Lease there is nothing to write yet: the leader makes it.
func (r *Records) remember(ctx context.Context) error {
	if r.place == "" || r.lease.Name == "" || r.placed {
		return nil
	}
	var lease coordinationv1.Lease
	switch err := r.cluster.Get(ctx, r.lease, &lease); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the Lease %s: %w", r.lease, err)
	}
	if lease.Annotations[PlaceAnnotation] != r.place {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{PlaceAnnotation: r.place}}})
		if err != nil {
			return err
		}
		if err := r.cluster.Patch(ctx, &lease, client.RawPatch("application/merge-patch+json", patch), client.FieldOwner(kube.FieldManager)); err != nil {
			return fmt.Errorf("writing down in the Lease %s where the records are: %w", r.lease, err)
		}
	}
	r.placed = true
	return nil
}

// expected refuses to begin without the records that the Lease knows of: no key is made yet.
func (r *Records) expected(was string) error {
	here := r.place + " holds none"
	if r.place == "" {
		here = "here they would be those of the data directory"
	}
	return fault.New(fault.Denied, ReasonMoved, fmt.Errorf(
		"the records of this controller are in %s, as its Lease %s says, and %s: name that place with --records, and mount its volume; to begin without these records, remove the annotation %s from the Lease",
		was, r.lease, here, PlaceAnnotation))
}
