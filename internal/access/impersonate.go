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
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Impersonation lends the server's connection to users: what one of them asks or
// commands goes to the cluster in the name of that user, and the cluster decides.
type Impersonation struct {
	shared  *rest.Config // connections that all users share
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	clients cache.Map[string, Clients] // by user
	own     ownRights
}

// Clients act in the cluster in the name of one user.
type Clients struct {
	Kube   client.WithWatch
	Config *rest.Config
}

// How many users have clients that are ready, and for how long.
const (
	clientsCached = 256
	clientTTL     = 10 * time.Minute
)

// NewImpersonation returns the Impersonation of the cluster of config, whose user
// must be allowed to impersonate every user that may sign in.
func NewImpersonation(config *rest.Config, stacks dialect.Registry, now func() time.Time) (*Impersonation, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	scheme, mapper, err := kinds(stacks)
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
		shared: shared, scheme: scheme, mapper: mapper,
		own:     ownRights{reviews: own.SelfSubjectAccessReviews(), lacking: cache.Map[string, error]{Size: clientsCached, TTL: ownRightTTL, Now: now}},
		clients: cache.Map[string, Clients]{Size: clientsCached, TTL: clientTTL, Now: now},
	}, nil
}

// As returns the clients that act as u. A token, or an issuer that the operator
// trusts, has established who u is; nothing is added to it here.
func (i *Impersonation) As(u User) (Clients, error) {
	if err := u.identified(); err != nil {
		return Clients{}, err
	}
	key := u.key()
	if c, ok := i.clients.Get(key); ok {
		return c, nil
	}
	config := rest.CopyConfig(i.shared)
	config.Impersonate = u.impersonation()
	config.Transport = impersonating{i.shared.Transport, func(ctx context.Context) error { return i.own.missing(ctx, u) }}
	kube, err := client.NewWithWatch(config, client.Options{Scheme: i.scheme, Mapper: i.mapper})
	if err != nil {
		return Clients{}, fmt.Errorf("making a client for %s: %w", u.Name, err)
	}
	c := Clients{Kube: managed{kube}, Config: config}
	i.clients.Put(key, c)
	return c, nil
}

// The names that Kubernetes gives to users that it does not know.
const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
	authenticated   = "system:authenticated"
	accounts        = "system:serviceaccount"
	accountGroup    = "system:serviceaccounts"
)

// OwnUsers begins the names of the server's own programs, which the cluster
// does not know.
const OwnUsers = "system:terrier:"

// identified refuses a user without a name: the request would be made as the
// server itself.
func (u User) identified() error {
	switch {
	case u.Name == "", u.Name == anonymous, slices.Contains(u.Groups, unauthenticated):
		return fault.New(fault.Denied, ReasonUnknownUser, errors.New("the request says nothing of its user"))
	case strings.HasPrefix(u.Name, OwnUsers):
		return fault.New(fault.Denied, ReasonAccessDenied, fmt.Errorf("%s is a program of this server and no user", u.Name))
	}
	return nil
}

// impersonation is u for a client. The API server itself adds the group of all
// authenticated users and, if no group is named, those of a ServiceAccount. That
// needs no right.
func (u User) impersonation() rest.ImpersonationConfig {
	groups := slices.DeleteFunc(slices.Clone(u.Groups), func(g string) bool { return g == authenticated })
	if account, ok := strings.CutPrefix(u.Name, accounts+":"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		own := []string{accountGroup, accountGroup + ":" + namespace}
		if !slices.ContainsFunc(groups, func(g string) bool { return !slices.Contains(own, g) }) {
			groups = nil
		}
	}
	return rest.ImpersonationConfig{UserName: u.Name, UID: u.UID, Groups: groups, Extra: u.Extra}
}

// key identifies a user with all its groups, and reveals neither.
func (u User) key() string {
	groups := slices.Sorted(slices.Values(u.Groups))
	extra := make([]any, 0, 2*len(u.Extra))
	for _, k := range slices.Sorted(maps.Keys(u.Extra)) {
		extra = append(extra, k, u.Extra[k])
	}
	b, err := json.Marshal([]any{u.Name, u.UID, groups, extra})
	if err != nil {
		panic("access: encoding strings: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ReasonImpersonate is of a server that may not act for users, and
// ReasonCertificateOnly of users that only the API server can know.
const (
	ReasonImpersonate     = "ImpersonationDenied"
	ReasonCertificateOnly = "CertificateOnly"
)
