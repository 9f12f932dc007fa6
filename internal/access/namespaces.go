package access

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Namespace is a namespace of the cluster as it is now. One that is deleted and made again
// has another UID.
type Namespace struct {
	UID         string
	Created     time.Time
	Annotations map[string]string
	Labels      map[string]string
}

// Namespaces reads namespaces of the cluster by their names, as this program itself.
type Namespaces struct{ kube coreclient.NamespaceInterface }

// NewNamespaces returns those of the cluster of config.
func NewNamespaces(config *rest.Config) (Namespaces, error) {
	kube, err := coreclient.NewForConfig(compact(config))
	if err != nil {
		return Namespaces{}, err
	}
	return Namespaces{kube.Namespaces()}, nil
}

// Namespace returns the one that has a name now. It is Missing if the cluster has none, and
// Denied if this program may not read it.
func (n Namespaces) Namespace(ctx context.Context, name string) (Namespace, error) {
	of, err := n.kube.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Namespace{}, Fault(err, "the namespace "+name)
	}
	return Namespace{UID: string(of.UID), Created: of.CreationTimestamp.Time, Annotations: of.Annotations, Labels: of.Labels}, nil
}
