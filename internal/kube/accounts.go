package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// maxAccounts bounds the clients that Accounts keeps.
const maxAccounts = 256

// Accounts makes clients that act as ServiceAccounts, by impersonation: the RBAC of the
// cluster decides what each may do.
type Accounts struct {
	config *rest.Config
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	clients cache.Map[types.NamespacedName, client.Client]
}

// NewAccounts returns Accounts that act through config. They send no request before one
// of them is used.
func NewAccounts(config *rest.Config, scheme *runtime.Scheme, mapper meta.RESTMapper) *Accounts {
	a := &Accounts{config: config, scheme: scheme, mapper: mapper}
	a.clients.Size = maxAccounts
	return a
}

// CheckAccountName reports a serviceAccountName that no ServiceAccount can have.
func CheckAccountName(name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fault.New(fault.Invalid, "", fmt.Errorf("serviceAccountName: %.80q is no name of a ServiceAccount: %s", name, problems[0]))
	}
	return nil
}

// AccountUser is the name by which the API server knows a ServiceAccount.
func AccountUser(account types.NamespacedName) (string, error) {
	if err := CheckAccountName(account.Name); err != nil {
		return "", err
	}
	if problems := validation.IsDNS1123Label(account.Namespace); len(problems) > 0 {
		return "", fault.New(fault.Invalid, "", fmt.Errorf("%.80q is no namespace of a ServiceAccount: %s", account.Namespace, problems[0]))
	}
	return "system:serviceaccount:" + account.Namespace + ":" + account.Name, nil
}

// As returns a reader with the rights of a ServiceAccount. The account need not exist:
// one that does not exist has the rights that were granted to its name.
func (a *Accounts) As(account types.NamespacedName) (client.Reader, error) {
	user, err := AccountUser(account)
	if err != nil {
		return nil, err
	}
	if c, ok := a.clients.Get(account); ok {
		return c, nil
	}
	config := rest.CopyConfig(a.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user} // the API server adds the groups of an account itself
	c, err := client.New(config, client.Options{Scheme: a.scheme, Mapper: a.mapper})
	if err != nil {
		return nil, err
	}
	a.clients.Put(account, c)
	return c, nil
}

// AccountObjects reads what Secrets and ConfigMaps hold, with the rights of a
// ServiceAccount.
type AccountObjects struct {
	Accounts interface {
		As(types.NamespacedName) (client.Reader, error)
	}
	Account types.NamespacedName
	All     []stack.Ref // everything that will be read: an error names each of them that may not be
}

// Read is Objects.Read as the ServiceAccount. An error about a missing right names all
// rights that the account lacks, and the Role that grants them.
func (o AccountObjects) Read(ctx context.Context, ref stack.Ref) (data map[string][]byte, public []string, err error) {
	as, err := o.Accounts.As(o.Account)
	if err != nil {
		return nil, nil, err
	}
	objects := Objects{Client: as}
	data, public, err = objects.Read(ctx, ref)
	if !apierrors.IsForbidden(err) {
		return data, public, err
	}
	if cannotImpersonate(err) {
		return nil, nil, fault.New(fault.Denied, "AccessDenied", fmt.Errorf(
			"this controller may not act as the ServiceAccount %s of the namespace %s, with whose rights it reads what stacks refer to: bind the ClusterRole of the chart that lets it use the namespace (docs/operate.md): %w", o.Account.Name, o.Account.Namespace, err))
	}
	lacks := []stack.Ref{refused(err, ref)}
	for _, other := range o.All {
		if other.Namespace != ref.Namespace || other == ref {
			continue
		}
		_, _, err := objects.Read(ctx, other)
		if other = refused(err, other); apierrors.IsForbidden(err) && !slices.Contains(lacks, other) {
			lacks = append(lacks, other)
		}
	}
	return nil, nil, fault.New(fault.Denied, "AccessDenied", lackOf(o.Account, lacks))
}

// cannotImpersonate reports whether the API server refused the impersonation, and not
// the request itself. Only its message tells: its details are sometimes of the one,
// sometimes of the other. All names in it were checked.
func cannotImpersonate(err error) bool {
	return strings.Contains(err.Error(), "cannot impersonate")
}

// refused is the object that err is about: ref itself, or a Secret with a part of its
// outputs.
func refused(err error, ref stack.Ref) stack.Ref {
	if s, ok := errors.AsType[*apierrors.StatusError](err); ok && s.ErrStatus.Details != nil && s.ErrStatus.Details.Name != "" {
		ref.Name = s.ErrStatus.Details.Name
	}
	return ref
}

// lackOf says that an account may not get some objects of one namespace, and how its
// owner grants that.
func lackOf(account types.NamespacedName, lacks []stack.Ref) error {
	var resources, names, said []string
	add := func(list *[]string, s string) {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	for _, ref := range lacks {
		add(&resources, strings.ToLower(ref.Kind)+"s")
		add(&names, "--resource-name="+ref.Name)
		add(&said, ref.Kind+" "+ref.Name)
	}
	namespace, role := lacks[0].Namespace, account.Name+"-inputs"
	return fmt.Errorf("the ServiceAccount %s of the namespace %s lacks the right to get in the namespace %s: %s. This Role grants it: "+
		"kubectl -n %[3]s create role %[5]s --verb=get --resource=%[6]s %[7]s && kubectl -n %[3]s create rolebinding %[5]s --role=%[5]s --serviceaccount=%[2]s:%[1]s",
		account.Name, account.Namespace, namespace, strings.Join(said, ", "), role, strings.Join(resources, ","), strings.Join(names, " "))
}
