package regtoken

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// namespaceUser begins the name of the user of a token of a namespace. The cluster knows
// no such user, so that it gives it no rights.
const namespaceUser = access.OwnUsers + "registry:"

// Of the user of a token of a namespace: what the token says.
const (
	extraNamespace = "terrier.dev/registry-namespace"
	extraVerbs     = "terrier.dev/registry-verbs"
)

// user is the user that a token stands for.
func (k kept) user() access.User {
	if k.Namespace == "" {
		return access.User{Name: k.User, UID: k.UID, Groups: k.Groups, Extra: k.Extra}
	}
	verbs := []string{"get"}
	if k.Write {
		verbs = append(verbs, "update")
	}
	return access.User{
		Name: namespaceUser + k.Namespace + ":" + k.Name, UID: k.ID,
		Extra: map[string][]string{extraNamespace: {k.Namespace}, extraVerbs: verbs},
	}
}

// NamespaceOf is the namespace of the token that a user stands for.
func NamespaceOf(u access.User) (string, bool) {
	in := u.Extra[extraNamespace]
	return strings.Join(in, ""), strings.HasPrefix(u.Name, namespaceUser) && len(in) == 1
}

// Guard is the authority of the cluster, and of tokens of namespaces. It knows no token for
// the registry as one of the cluster: such a token opens the registry alone, and the API
// server never sees it.
type Guard struct{ access.Authority }

var errOnly = fault.New(fault.Denied, ReasonOnly, errors.New("a token for the registry opens nothing but the registry: use a token of the Kubernetes API here"))

// Authenticate implements access.Identifier.
func (g Guard) Authenticate(ctx context.Context, t secret.Text) (access.User, error) {
	if Is(t) {
		return access.User{}, errOnly
	}
	u, err := g.Authority.Authenticate(ctx, t)
	if err == nil && strings.HasPrefix(u.Name, namespaceUser) {
		return access.User{}, fault.New(fault.Denied, access.ReasonUnknownUser, fmt.Errorf("the cluster has a user with the name %q, which belongs to this server", u.Name))
	}
	return u, err
}

// Authorize implements access.Rights.
func (g Guard) Authorize(ctx context.Context, u access.User, x access.Request) error {
	if !strings.HasPrefix(u.Name, namespaceUser) {
		return g.Authority.Authorize(ctx, u, x)
	}
	own, _ := NamespaceOf(u)
	if x.Resource == access.ResourceRegistry && own != "" && x.Namespace == own && slices.Contains(u.Extra[extraVerbs], x.Verb) {
		return nil
	}
	may := "read and publish"
	if !slices.Contains(u.Extra[extraVerbs], "update") {
		may = "read"
	}
	return fault.New(fault.Denied, ReasonOnly, fmt.Errorf("this token may %s modules and providers of the namespace %s, and nothing else", may, own))
}

// Can reports what the caller of a function may do.
type Can func(access.Request) error

// Manage returns nil if a user may see and revoke a token: it stands for that user, or the
// user may publish where it is valid. Without a namespace that is everywhere.
func Manage(t Token, u access.User, can Can) error {
	if t.User != "" && t.User == u.Name {
		return nil
	}
	return can(access.Request{Verb: "update", Resource: access.ResourceRegistry, Namespace: t.Namespace})
}

// Visible are the tokens that a user may see.
func Visible(all []Token, u access.User, can Can) ([]Token, error) {
	var seen []Token
	known := map[string]error{}
	for _, t := range all {
		err := Manage(t, u, func(x access.Request) error {
			err, asked := known[x.Namespace]
			if !asked {
				err = can(x)
				known[x.Namespace] = err
			}
			return err
		})
		switch fault.Of(err) {
		case fault.None:
			seen = append(seen, t)
		case fault.Denied:
		default:
			return nil, err
		}
	}
	return seen, nil
}
