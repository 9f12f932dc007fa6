package children

import (
	"context"
	"log/slog"
	"sync"
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
)

// maxAccounts bounds the clients that are kept for ServiceAccounts.
const maxAccounts = 256

// shared is what a Cluster and those that As made of it have in common.
type shared struct {
	config  *rest.Config
	reader  dynamic.Interface
	mapper  meta.RESTMapper
	types   *Types
	watches *Watches

	mu       sync.Mutex
	accounts map[string]dynamic.Interface
}

// New returns the Cluster of a configuration. It starts nothing, and asks for
// nothing before it is used.
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
	mapper, err := apiutil.NewDynamicRESTMapper(c.REST, c.HTTP) // asks again for what it does not know
	if err != nil {
		return nil, err
	}
	kinds, err := newTypes(c, mapper)
	if err != nil {
		return nil, err
	}
	watches, err := newWatches(c, mapper)
	if err != nil {
		return nil, err
	}
	s := &shared{config: c.REST, reader: reader, mapper: mapper, types: kinds, watches: watches, accounts: map[string]dynamic.Interface{}}
	return &Cluster{shared: s, writer: reader}, nil
}

// As returns a Cluster that writes and deletes as a ServiceAccount, so that the
// cluster's own rules say what that may do. It also reads as that account what is
// not in the namespace of the Tenant.
func (c *Cluster) As(namespace, serviceAccount string) (*Cluster, error) {
	user := "system:serviceaccount:" + namespace + ":" + serviceAccount
	c.mu.Lock()
	defer c.mu.Unlock()
	writer, ok := c.accounts[user]
	if !ok {
		config := rest.CopyConfig(c.config)
		config.Impersonate = rest.ImpersonationConfig{
			UserName: user,
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		}
		var err error
		if writer, err = dynamic.NewForConfig(config); err != nil {
			return nil, err
		}
		if len(c.accounts) >= maxAccounts {
			clear(c.accounts)
		}
		c.accounts[user] = writer
	}
	return &Cluster{shared: c.shared, writer: writer}, nil
}

// at is where objects of a key are, for whoever asks.
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

func (c *Cluster) look(ctx context.Context, key Key, owner Owner) (Live, error) {
	reader := c.reader
	if key.Namespace != owner.Namespace {
		// What is found out about an object, the author of the template learns,
		// who may have no rights there but those of the account.
		reader = c.writer
	}
	objects, err := c.at(reader, key)
	if err != nil {
		return Live{}, err
	}
	u, err := objects.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.watches.forget(key)
		if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) { // there is no such path: the kind is gone
			return Live{}, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: key.Group, Kind: key.Kind}, SearchedVersions: []string{key.Version}}
		}
		return Live{}, nil
	}
	if err != nil {
		return Live{}, err
	}
	return c.found(key, u, owner), nil
}

// found is what there is to say of an object that the server gave out.
func (c *Cluster) found(key Key, u *unstructured.Unstructured, owner Owner) Live {
	l := liveOf(u, owner)
	l.State, l.Message = judge(u, c.types)
	c.watches.remember(key, owner, l)
	return l
}

// Delete asks for the end of the object with this UID. One that is gone already,
// or whose name another object has by now, is no error.
func (c *Cluster) Delete(ctx context.Context, key Key, uid string) error {
	objects, err := c.at(c.writer, key)
	if err != nil {
		return err
	}
	id, background := types.UID(uid), metav1.DeletePropagationBackground
	err = objects.Delete(ctx, key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id}, PropagationPolicy: &background})
	if apierrors.IsConflict(err) {
		// The server says only in words what the conflict is.
		if now, looked := objects.Get(ctx, key.Name, metav1.GetOptions{}); looked == nil && now.GetUID() == id {
			return err
		} else if looked != nil && !apierrors.IsNotFound(looked) {
			return looked
		}
		return nil
	}
	return ignoreNotFound(err)
}
