package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// provision makes a volume for each claim of the default storage class, until the
// context ends.
func provision(ctx context.Context, client kubernetes.Interface) {
	controller.NewProvisionController(ctx, client, "terrier.test/local", volumes{"/var/lib/volumes"},
		controller.LeaderElection(false), controller.MetricsPort(0)).Run(ctx)
}

// volumes are the directories below one.
type volumes struct{ dir string }

// Provision makes a directory. The volume is a local one, so that the kubelet
// gives it the group that a pod asks for, as it does for a disk.
func (v volumes) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(v.dir, o.PVName)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("making a volume: %w", err)
	}
	here := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{here}}},
			}},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the directory of a volume that Provision made.
func (v volumes) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if err := os.RemoveAll(filepath.Join(v.dir, filepath.Base(volume.Name))); err != nil {
		return fmt.Errorf("removing a volume: %w", err)
	}
	return nil
}
