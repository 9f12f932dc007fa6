package policies

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
)

// The labels of namespaces, by which policies select. A stack may be seen before its
// namespace is: the two come to the cache on their own ways.

func namespaceMeta() *metav1.PartialObjectMetadata {
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return n
}

// labels are the labels of a namespace as they are in the cache now, and those of the server
// if the cache does not have the namespace yet.
func (p *Policies) labels(ctx context.Context, namespace string) (labels.Set, error) {
	n := namespaceMeta()
	err := p.cache.Get(ctx, client.ObjectKey{Name: namespace}, n)
	if apierrors.IsNotFound(err) {
		return p.liveLabels(ctx, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the labels of the namespace %s: %w", namespace, err)
	}
	return n.Labels, nil
}

// liveLabels are the labels of a namespace on the server. The error is Later if there is no
// such namespace. It is a list, since the controller may list namespaces, and needs no other
// right.
func (p *Policies) liveLabels(ctx context.Context, namespace string) (labels.Set, error) {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := p.Live.List(ctx, all, client.MatchingFields{"metadata.name": namespace}); err != nil {
		return nil, fmt.Errorf("reading the labels of the namespace %s: %w", namespace, err)
	}
	for _, n := range all.Items {
		if n.Name == namespace {
			return n.Labels, nil
		}
	}
	return nil, fault.New(fault.Later, "NamespaceUnknown", fmt.Errorf("the namespace %s is not known: policies select stacks by its labels", namespace))
}
