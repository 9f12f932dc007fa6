package children

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/kube"
)

// maxAccounts bounds the clients that are kept for ServiceAccounts.
const maxAccounts = 256

// shared belongs to a Cluster and to those that As made of it.
type shared struct {
	config  *rest.Config
	reader  dynamic.Interface
	mapper  meta.RESTMapper
	types   *Types
	watches *Watches
	claims  *claims

	accounts cache.Map[string, dynamic.Interface]
}

// New returns the Cluster of a configuration. It starts nothing, and sends no
// request before it is used.
func New(c Config) (*Cluster, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.HTTP == nil {
		var err error
		if c.HTTP, err = rest.HTTPClientFor(c.REST); err != nil {
			return nil, err
		}
	}
	reader, err := dynamic.NewForConfigAndClient(c.REST, c.HTTP)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(c.REST, c.HTTP) // discovers unknown kinds again
	if err != nil {
		return nil, err
	}
	mapper = sureMapper{mapper}
	kinds, err := newTypes(c, mapper)
	if err != nil {
		return nil, err
	}
	watches, err := newWatches(c, mapper)
	if err != nil {
		return nil, err
	}
	s := &shared{
		config: c.REST, reader: reader, mapper: mapper, types: kinds, watches: watches, claims: &claims{reader: reader, now: c.Now},
		accounts: cache.Map[string, dynamic.Interface]{Size: maxAccounts},
	}
	return &Cluster{shared: s, writer: reader}, nil
}

// As returns a Cluster that writes and deletes as a ServiceAccount, so that the
// cluster's RBAC says what it may do. It also reads as that account outside the
// namespace of the Tenant.
func (c *Cluster) As(namespace, serviceAccount string) (*Cluster, error) {
	user, err := kube.AccountUser(types.NamespacedName{Namespace: namespace, Name: serviceAccount})
	if err != nil {
		return nil, err
	}
	writer, ok := c.accounts.Get(user)
	if !ok {
		config := rest.CopyConfig(c.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user} // the API server adds the groups of an account itself
		if writer, err = dynamic.NewForConfig(config); err != nil {
			return nil, err
		}
		c.accounts.Put(user, writer)
	}
	return &Cluster{shared: c.shared, writer: writer}, nil
}

// at is the resource of a key, for one of the clients.
func (c *Cluster) at(asked dynamic.Interface, key Key) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(schema.GroupKind{Group: key.Group, Kind: key.Kind}, key.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return asked.Resource(mapping.Resource), nil
	}
	return asked.Resource(mapping.Resource).Namespace(key.Namespace), nil
}

// Read reads an object. One that does not exist is no error.
func (c *Cluster) Read(ctx context.Context, key Key, owner Owner) (Live, error) {
	reader := c.reader
	if key.Namespace != owner.Namespace {
		// The author of the template learns the state of the object, and may have no
		// rights there but those of the account.
		reader = c.writer
	}
	objects, err := c.at(reader, key)
	if err != nil {
		return Live{}, err
	}
	u, err := objects.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) && reader != c.writer { // the controller has no role for this kind
		if objects, err = c.at(c.writer, key); err != nil {
			return Live{}, err
		}
		u, err = objects.Get(ctx, key.Name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		c.watches.forget(key)
		if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) { // the API has no such path: the kind is gone
			return Live{}, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: key.Group, Kind: key.Kind}, SearchedVersions: []string{key.Version}}
		}
		return Live{}, nil
	}
	if err != nil {
		return Live{}, err
	}
	return c.found(ctx, key, u, owner), nil
}

// found assesses an object that the server returned, and caches the result.
func (c *Cluster) found(ctx context.Context, key Key, u *unstructured.Unstructured, owner Owner) Live {
	l := liveOf(u, owner)
	l.State, l.Message = readiness(u, c.types)
	if u.GroupVersionKind().GroupKind() == claimKind && l.State == Progressing && !l.Deleting {
		if l.State, l.Message = c.claims.judge(ctx, u); l.State != Ready {
			l.Depends = true
			c.watches.forget(key) // no watch tells when a class appears
			return l
		}
	}
	c.watches.remember(key, owner, l)
	return l
}

// Delete deletes the object with this UID. An object that is gone already, or
// whose name another object has by now, is no error.
func (c *Cluster) Delete(ctx context.Context, key Key, uid string) error {
	objects, err := c.at(c.writer, key)
	if err != nil {
		return err
	}
	id, background := types.UID(uid), metav1.DeletePropagationBackground
	err = objects.Delete(ctx, key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id}, PropagationPolicy: &background})
	if apierrors.IsConflict(err) {
		// Only the message of the server says which conflict it is.
		if now, reading := objects.Get(ctx, key.Name, metav1.GetOptions{}); reading == nil && now.GetUID() == id {
			return err
		} else if reading != nil && !apierrors.IsNotFound(reading) {
			return reading
		}
		return nil
	}
	return ignoreNotFound(err)
}
