package client

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/access"
)

// NamespaceLabels are the labels of the namespaces of the cluster, by name. They are nil if
// the user may not list them, or if there is only a server: its API does not have them.
func (c Connection) NamespaceLabels(ctx context.Context) (map[string]map[string]string, error) {
	if c.Direct() {
		return nil, nil
	}
	config, _, err := c.config()
	if err != nil {
		return nil, err
	}
	kube, err := access.NewClient(config, c.StackKinds())
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	switch err := kube.List(ctx, list); {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing the namespaces: %w", access.Fault(err, "the namespaces"))
	}
	out := map[string]map[string]string{}
	for _, n := range list.Items {
		out[n.Name] = n.Labels
	}
	return out, nil
}
