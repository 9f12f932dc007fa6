package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/stack"
)

var _ remote.Sharer = (*Pods)(nil)

// Shape implements remote.Sharer: it is the manifest without what names the run. A pod is
// for one run if its template gives it an end, another program, or a volume that a run can
// write and the next one would find.
func (p *Pods) Shape(l remote.Launch) (string, error) {
	l.Name, l.Key, l.ID, l.Seal = "", "", "", ""
	job := *l.Job
	job.ID, job.Name, job.Stack = "", "", ""
	l.Job = &job
	pod, err := p.manifest(l)
	if err != nil {
		return "", err
	}
	s := &pod.Spec
	if s.ActiveDeadlineSeconds != nil || len(s.InitContainers) > 0 || len(s.Containers) > 1 ||
		s.HostPID || s.HostIPC || s.ShareProcessNamespace != nil && *s.ShareProcessNamespace {
		return "", nil
	}
	for _, m := range s.Containers[0].VolumeMounts {
		own := m.Name == volumeWork || m.Name == volumeTmp && m.MountPath == dirTmp
		if !own && !m.ReadOnly && writable(s.Volumes, m.Name) {
			return "", nil
		}
	}
	return stack.Digest(pod), nil
}

// writable reports whether a volume can be written where it is not mounted read-only.
func writable(volumes []corev1.Volume, name string) bool {
	for _, v := range volumes {
		if v.Name == name {
			return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.Projected == nil && v.Image == nil
		}
	}
	return true
}

// Reuse implements remote.Sharer: the annotations of the pod name another run from now on.
func (p *Pods) Reuse(ctx context.Context, at remote.Place, l remote.Launch) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	// A patch with the UID of another pod is a conflict.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": at.UID, "annotations": namesOf(l)}})
	if err != nil {
		return fmt.Errorf("encoding the names of run %s: %w", l.ID, err)
	}
	err = p.live.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(kube.FieldManager))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return fault.New(fault.Conflict, "PodGone", fmt.Errorf("the pod %s/%s is gone: %w", at.Namespace, at.Name, err))
	case err != nil:
		return failed(err, client.ObjectKeyFromObject(pod))
	case !pod.DeletionTimestamp.IsZero():
		return fault.New(fault.Conflict, "PodGone", errors.New("it is being deleted"))
	}
	return nil
}
