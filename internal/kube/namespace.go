package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespace is a namespace of the cluster as it is now. One that is deleted and created again
// has another UID. The zero Namespace does not exist.
type Namespace struct {
	UID     string
	Created time.Time
}

// FindNamespace returns the namespace that has a name now, the zero one if there is none. It
// lists, since controllers and servers may list namespaces and need no other right. It is
// Denied if c may not.
func FindNamespace(ctx context.Context, c client.Reader, name string) (Namespace, error) {
	found, err := namespaces(ctx, c, client.MatchingFields{"metadata.name": name})
	return found[name], mark(err, "Namespace", types.NamespacedName{Name: name})
}

// Namespaces returns all namespaces, by their names. It is Denied if c may not list them.
func Namespaces(ctx context.Context, c client.Reader) (map[string]Namespace, error) {
	found, err := namespaces(ctx, c)
	return found, mark(err, "Namespace", types.NamespacedName{Name: "*"})
}

func namespaces(ctx context.Context, c client.Reader, which ...client.ListOption) (map[string]Namespace, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.List(ctx, list, which...); err != nil {
		return nil, err
	}
	found := make(map[string]Namespace, len(list.Items))
	for _, n := range list.Items {
		found[n.Name] = Namespace{UID: string(n.UID), Created: n.CreationTimestamp.Time}
	}
	return found, nil
}

// Origin says in which namespace a stack was. Records that outlive their stack have it: a
// namespace that is created again under the name of a deleted one may belong to other users.
type Origin struct {
	// NamespaceUID is empty in records of earlier releases, and where it could not be told.
	NamespaceUID string `json:"namespaceUID,omitempty"`
	// StackCreated is the time at which the API server created the object of the stack. It is
	// zero in records of earlier releases, and of an object that its controller never saw.
	StackCreated time.Time `json:"stackCreated,omitzero"`
}

// clockSkew bounds by how much the clocks of controllers and API servers differ.
const clockSkew = 30 * time.Second

// OriginOf is the origin of a stack, if n has the name of its namespace now. Existed is a time
// at which the stack existed, by the clock of a controller; zero if none is known. Here says
// that its object exists: then n is its namespace, also if another API server with another
// clock created one of the two. It is not if n is much younger: a namespace can be removed by
// force, with its objects left in the database.
func OriginOf(n Namespace, created, existed time.Time, here bool) Origin {
	o := Origin{StackCreated: created}
	if o.In(n, existed) || here && n.UID != "" && !created.Add(clockSkew).Before(n.Created) {
		o.NamespaceUID = n.UID
	}
	return o
}

// In reports whether the stack was in n, and not in a former namespace of its name. What is
// in doubt was in a former one. Existed is as OriginOf takes it. It counts only without both of
// the other facts.
func (o Origin) In(n Namespace, existed time.Time) bool {
	switch {
	case n.UID == "":
		return false
	case o.NamespaceUID != "":
		return o.NamespaceUID == n.UID
	case !o.StackCreated.IsZero():
		return !o.StackCreated.Before(n.Created)
	default:
		return !existed.IsZero() && !existed.Before(n.Created.Add(clockSkew))
	}
}
