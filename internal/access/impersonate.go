package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	authzclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Impersonation lends the server's connection to users: what one of them asks or
// commands goes to the cluster in the name of that user, and the cluster decides.
type Impersonation struct {
	shared  *rest.Config // connections that all users share
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	known   cache.Map[string, Hands]
	lending lending
}

// Hands are clients of the cluster that act in the name of one user.
type Hands struct {
	Kube   client.WithWatch
	Config *rest.Config
}

// How many users are remembered, and for how long. Nothing depends on it: the
// clients of a user that is forgotten are made again, which costs a few
// allocations.
const (
	peopleKept = 256
	personKept = 10 * time.Minute
)

// NewImpersonation returns the Impersonation of the cluster of config, whose user
// must be allowed to impersonate every user that may sign in.
func NewImpersonation(config *rest.Config, now func() time.Time) (*Impersonation, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	// The transport brings TLS and who the server is.
	shared := &rest.Config{Host: address.String(), Transport: transport, UserAgent: cmp.Or(config.UserAgent, "terrier"), QPS: -1}
	own, err := authzclient.NewForConfig(shared)
	if err != nil {
		return nil, err
	}
	return &Impersonation{
		shared: shared, lending: lending{own.SelfSubjectAccessReviews(), cache.Map[string, error]{Size: peopleKept, TTL: lendingKept, Now: now}},
		scheme: scheme, mapper: mapper, known: cache.Map[string, Hands]{Size: peopleKept, TTL: personKept, Now: now},
	}, nil
}

// As returns the hands of u. Who u is has been established by a token or by an
// issuer that the operator trusts; nothing is added to it here.
func (i *Impersonation) As(u User) (Hands, error) {
	if err := u.somebody(); err != nil {
		return Hands{}, err
	}
	key := u.key()
	if hands, ok := i.known.Get(key); ok {
		return hands, nil
	}
	config := rest.CopyConfig(i.shared)
	config.Impersonate = u.impersonation()
	config.Transport = lent{i.shared.Transport, func(ctx context.Context) error { return i.lending.lacks(ctx, u) }}
	kube, err := client.NewWithWatch(config, client.Options{Scheme: i.scheme, Mapper: i.mapper})
	if err != nil {
		return Hands{}, fmt.Errorf("making a client for %s: %w", u.Name, err)
	}
	hands := Hands{Kube: served{kube}, Config: config}
	i.known.Put(key, hands)
	return hands, nil
}

// The names that Kubernetes gives to who is nobody in particular.
const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
	authenticated   = "system:authenticated"
)

// OwnUsers begins the names of the server's own programs, which the cluster
// knows nothing of.
const OwnUsers = "system:terrier:"

// somebody refuses to act for nobody: without a name, a request would be made
// as the server itself.
func (u User) somebody() error {
	switch {
	case u.Name == "", u.Name == anonymous, slices.Contains(u.Groups, unauthenticated):
		return fault.New(fault.Denied, ReasonUnknownUser, errors.New("it is not known who asks"))
	case strings.HasPrefix(u.Name, OwnUsers):
		return fault.New(fault.Denied, ReasonAccessDenied, fmt.Errorf("%s is a program of this server and no person", u.Name))
	}
	return nil
}

// impersonation is u in the words of a client. That everybody is authenticated
// is added by the API server, which wants no right for it.
func (u User) impersonation() rest.ImpersonationConfig {
	groups := slices.DeleteFunc(slices.Clone(u.Groups), func(g string) bool { return g == authenticated })
	return rest.ImpersonationConfig{UserName: u.Name, UID: u.UID, Groups: groups, Extra: u.Extra}
}

// key is the same for the same person with the same groups, and for nobody
// else. It tells nothing about them.
func (u User) key() string {
	groups := slices.Sorted(slices.Values(u.Groups))
	extra := make([]any, 0, 2*len(u.Extra))
	for _, k := range slices.Sorted(maps.Keys(u.Extra)) {
		extra = append(extra, k, u.Extra[k])
	}
	b, err := json.Marshal([]any{u.Name, u.UID, groups, extra})
	if err != nil {
		panic("service: encoding strings: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ReasonImpersonate is of a server that may not act for people, and
// ReasonCertificateOnly of people whom only the API server can know.
const (
	ReasonImpersonate     = "ImpersonationDenied"
	ReasonCertificateOnly = "CertificateOnly"
)
