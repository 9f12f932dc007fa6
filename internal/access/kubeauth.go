// Package access says who a user is, what that user may do, and lends the
// server's connection to the cluster to that user. Kubernetes is the only
// authority: nothing is allowed here that its RBAC does not allow.
//
// Start reading at KubeAuth, then at Scopes and Impersonation.
package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authnclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authzclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// User is the user that a token stands for.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Resource is what a right is about: stacks, or a part of them that has a right of
// its own, since a user who may see a stack may not see its secrets.
type Resource string

// The resources. In Kubernetes they are terraforms and its subresources.
const (
	ResourceStacks   Resource = "stacks"
	ResourceLog      Resource = "stacks/log"
	ResourcePlan     Resource = "stacks/plan"
	ResourceOutputs  Resource = "stacks/outputs"
	ResourceState    Resource = "stacks/state"
	ResourceStateKey Resource = "stacks/state-key" // keys that decrypt states outside of Terrier
	ResourceRegistry Resource = "registry"         // repositories of the registry; the first part of a name is its namespace

	ResourceWindows Resource = "stacks/windows" // the windows and freezes of policies, for one plan of a stack

	ResourceAudit         Resource = "stacks/audit"         // entries of the audit log about the stacks of a namespace
	ResourceNotifications Resource = "stacks/notifications" // notifications about objects of a namespace, and their outcome
	ResourceHook          Resource = "stacks/hook"          // what metacontroller asks of stacks of all namespaces

	ResourceTenants    Resource = "tenants"
	ResourceTemplates  Resource = "templates"  // of tenants
	ResourceRegistries Resource = "registries" // of tenants

	ResourceSources Resource = "sources" // GitRepositories, OCIRepositories and Buckets; the right to the first is the right to all
)

// Part is the part of a stack that a resource is; empty if it is none.
func (r Resource) Part() string {
	_, part, _ := strings.Cut(string(r), "/")
	return part
}

// Resources lists all of them.
func Resources() []Resource {
	return []Resource{
		ResourceStacks, ResourceLog, ResourcePlan, ResourceOutputs, ResourceState, ResourceStateKey, ResourceWindows, ResourceRegistry, ResourceAudit, ResourceNotifications, ResourceHook,
		ResourceTenants, ResourceTemplates, ResourceRegistries, ResourceSources,
	}
}

// Request is one thing that a user wants to do.
type Request struct {
	Verb      string // get, list, create or update
	Resource  Resource
	Kind      string // of the stack, as query.Key has it
	Namespace string // all if empty
	Name      string
}

// KubeAuth asks the Kubernetes API which user a token stands for and what a user
// may do: there is no other authority.
type KubeAuth struct {
	stacks   dialect.Registry
	tokens   authnclient.TokenReviewInterface
	accesses authzclient.SubjectAccessReviewInterface
}

// NewKubeAuth returns a KubeAuth that asks the API of config, whose user must
// be allowed to create TokenReviews and SubjectAccessReviews.
func NewKubeAuth(config *rest.Config, stacks dialect.Registry) (*KubeAuth, error) {
	config = compact(config) // some pages need a thousand reviews
	authn, err := authnclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	authz, err := authzclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &KubeAuth{stacks: stacks, tokens: authn.TokenReviews(), accesses: authz.SubjectAccessReviews()}, nil
}

// Authenticate returns the user that token stands for. A token that is unknown, or
// stands for any user, is Denied.
func (a *KubeAuth) Authenticate(ctx context.Context, token secret.Text) (User, error) {
	denied := func(why string) (User, error) {
		return User{}, fault.New(fault.Denied, ReasonUnknownUser, errors.New(why))
	}
	if token.Empty() {
		return denied("no token was presented")
	}
	review, err := a.tokens.Create(ctx, &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token.Reveal()}}, metav1.CreateOptions{})
	if err != nil {
		return User{}, Fault(err, "the review of a token")
	}
	u := review.Status.User
	switch {
	case !review.Status.Authenticated:
		return denied("the cluster does not know the token")
	case u.Username == "":
		return denied("the token stands for no user")
	case u.Username == "system:anonymous", slices.Contains(u.Groups, "system:unauthenticated"):
		return denied("the token stands for anonymous users")
	}
	user := User{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string][]string{}}
	for k, v := range u.Extra {
		user.Extra[k] = v
	}
	return user, nil
}

// Authorize returns nil if u may do what x says, and Denied if not.
func (a *KubeAuth) Authorize(ctx context.Context, u User, x Request) error {
	of, sub, err := a.resource(x)
	if err != nil {
		return err
	}
	extra := map[string]authzv1.ExtraValue{}
	for k, v := range u.Extra {
		extra[k] = v
	}
	review, err := a.accesses.Create(ctx, &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups, Extra: extra,
		ResourceAttributes: &authzv1.ResourceAttributes{
			Group: of.Group, Version: of.Version, Resource: of.Resource, Subresource: sub,
			Verb: x.Verb, Namespace: x.Namespace, Name: x.Name,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return Fault(err, "the review of an access")
	}
	if s := review.Status; s.Denied || !s.Allowed {
		return fault.New(fault.Denied, ReasonAccessDenied, fmt.Errorf("%s may not %s %s", u.Name, x.Verb, x.what(of.GroupResource(), sub)))
	}
	return nil
}

// resource is what roles call the resource of a request, and the part of it. A part
// of a stack belongs to the group of the kind of the stack.
func (a *KubeAuth) resource(x Request) (of schema.GroupVersionResource, sub string, err error) {
	switch x.Resource {
	case ResourceStacks, ResourceLog, ResourcePlan, ResourceOutputs, ResourceState, ResourceStateKey, ResourceWindows, ResourceAudit, ResourceNotifications, ResourceHook, ResourceRegistry:
		d := a.stacks.Named(x.Kind)
		if d == nil {
			return of, "", fault.New(fault.Missing, ReasonNotFound, fmt.Errorf("%.80q is not a kind of stack", x.Kind))
		}
		of, sub = dialect.ResourceOf(d), x.Resource.Part()
		if x.Resource == ResourceRegistry {
			sub = "registry"
		}
	case ResourceTenants:
		of = tenantsv1.GroupVersion.WithResource("tenants")
	case ResourceTemplates:
		of = tenantsv1.GroupVersion.WithResource("tenanttemplates")
	case ResourceRegistries:
		of = tenantsv1.GroupVersion.WithResource("tenantregistries")
	case ResourceSources:
		of = sourcev1.GroupVersion.WithResource("gitrepositories")
	default:
		return of, "", fmt.Errorf("%q is no resource", x.Resource)
	}
	return of, sub, nil
}

func (x Request) what(of schema.GroupResource, sub string) string {
	resource := of.Resource
	if sub != "" {
		resource += "/" + sub
	}
	resource += "." + of.Group
	switch {
	case x.Name != "":
		return resource + " " + x.Namespace + "/" + x.Name
	case x.Namespace != "":
		return resource + " in the namespace " + x.Namespace
	default:
		return resource + " in all namespaces"
	}
}
