package access

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authzclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
)

// impersonating is the server's connection while it acts for a user. The cluster
// answers "forbidden" when the user may not, and also when the server may not act
// for that user; only here the two can be told apart.
type impersonating struct {
	next    http.RoundTripper
	missing func(context.Context) error
}

func (i impersonating) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := i.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	if err := i.missing(r.Context()); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// ownRights says which rights the server's own account has to act for users.
type ownRights struct {
	reviews authzclient.SelfSubjectAccessReviewInterface
	lacking cache.Map[string, error] // by user; nil if no right is missing
}

// ownRightTTL is how long an answer about the server's own rights is believed.
const ownRightTTL = 30 * time.Second

// missing returns a Denied that names the right that the server lacks to act for
// u, or nil.
func (o *ownRights) missing(ctx context.Context, u User) error {
	denied, err := o.lacking.Load(ctx, u.key(), func(ctx context.Context) (denied, err error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		if err = o.ask(ctx, u); fault.Of(err) == fault.Denied {
			return err, nil
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	return denied
}

func (o *ownRights) ask(ctx context.Context, u User) error {
	for _, x := range needed(u) {
		all := x
		all.Name = ""
		for _, one := range []authzv1.ResourceAttributes{all, x} {
			ok, err := o.may(ctx, one)
			if err != nil {
				return err
			}
			if ok {
				break
			}
			if one == x {
				return fault.New(fault.Denied, ReasonImpersonate, fmt.Errorf("this server may not act in your name: its own account lacks the right to impersonate %s", describe(x)))
			}
		}
	}
	return nil
}

// needed are the rights that it takes to act for u, in the order in which the API
// server checks them.
func needed(u User) []authzv1.ResourceAttributes {
	var all []authzv1.ResourceAttributes
	add := func(x authzv1.ResourceAttributes) {
		x.Verb = "impersonate"
		all = append(all, x)
	}
	i := u.impersonation()
	account, ok := strings.CutPrefix(i.UserName, "system:serviceaccount:")
	if namespace, name, split := strings.Cut(account, ":"); ok && split {
		add(authzv1.ResourceAttributes{Resource: "serviceaccounts", Namespace: namespace, Name: name})
	} else {
		add(authzv1.ResourceAttributes{Resource: "users", Name: i.UserName})
	}
	for _, g := range i.Groups {
		add(authzv1.ResourceAttributes{Resource: "groups", Name: g})
	}
	const group = "authentication.k8s.io"
	if i.UID != "" {
		add(authzv1.ResourceAttributes{Group: group, Version: "v1", Resource: "uids", Name: i.UID})
	}
	for k, values := range i.Extra {
		for _, v := range values {
			add(authzv1.ResourceAttributes{Group: group, Version: "v1", Resource: "userextras", Subresource: strings.ToLower(k), Name: v})
		}
	}
	slices.SortStableFunc(all, func(a, b authzv1.ResourceAttributes) int { return strings.Compare(a.Group, b.Group) })
	return all
}

func describe(x authzv1.ResourceAttributes) string {
	what := x.Resource
	if x.Subresource != "" {
		what += "/" + x.Subresource
	}
	if x.Group != "" {
		what += "." + x.Group
	}
	return fmt.Sprintf("%s %q", what, x.Name)
}

func (o *ownRights) may(ctx context.Context, x authzv1.ResourceAttributes) (bool, error) {
	review, err := o.reviews.Create(ctx, &authzv1.SelfSubjectAccessReview{Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &x}}, metav1.CreateOptions{})
	if err != nil {
		return false, Fault(err, "what this server may do")
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}
