package query

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// A namespace that is created again under the name of a deleted one may belong to other users.
// What is recorded of the former one is not theirs, and rights are rights to a name.

// Namespaces finds the namespace that has a name now. It is the zero one if there is none.
type Namespaces func(ctx context.Context, name string) (kube.Namespace, error)

// NamespacesIn are those that c may list. It is Later if c may not.
func NamespacesIn(c client.Reader) Namespaces {
	return func(ctx context.Context, name string) (kube.Namespace, error) {
		found, err := kube.FindNamespace(ctx, c, name)
		return found, cannotTell(err)
	}
}

// AllNamespaces are all that c may list, by their names. It is Later if c may not.
func AllNamespaces(ctx context.Context, c client.Reader) (map[string]kube.Namespace, error) {
	found, err := kube.Namespaces(ctx, c)
	return found, cannotTell(err)
}

// cannotTell says what follows for users if this program may not list namespaces. Others than
// such errors it leaves as they are.
func cannotTell(err error) error {
	if fault.Of(err) != fault.Denied {
		return err
	}
	return fault.New(fault.Later, ReasonNamespaces, fmt.Errorf("this server may not list namespaces, and cannot tell which records are of a namespace and which are of a former one of its name: let it list them (docs/rbac.md): %w", err))
}

// own returns a function that reports whether something is of the namespace that has a name
// now: what happened before it was created is of a former one. An error is kept, and nothing
// is of any namespace then. Without namespaces everything is.
func (n Namespaces) own(ctx context.Context) (is func(namespace string, at time.Time) bool, failed func() error) {
	var mu sync.Mutex
	var kept error
	known := map[string]kube.Namespace{}
	is = func(namespace string, at time.Time) bool {
		if n == nil {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		found, asked := known[namespace]
		if !asked && kept == nil {
			if found, kept = n(ctx, namespace); kept == nil {
				known[namespace] = found
			}
		}
		return kept == nil && found.UID != "" && !at.Before(found.Created)
	}
	return is, func() error {
		mu.Lock()
		defer mu.Unlock()
		return kept
	}
}
