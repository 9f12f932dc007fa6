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

// lent is the server's connection in the hands of a person. The cluster says
// "forbidden" when the person may not, and likewise when the server may not act
// for that person; only here is it known who is meant.
type lent struct {
	next  http.RoundTripper
	lacks func(context.Context) error
}

// RoundTrip implements http.RoundTripper.
func (l lent) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	if err := l.lacks(r.Context()); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// lending answers what the server's own account may do for others.
type lending struct {
	reviews authzclient.SelfSubjectAccessReviewInterface
	known   cache.Map[string, error] // by person
}

// lendingKept is how long it is believed what the server may do.
const lendingKept = 30 * time.Second

// lacks returns the right that the server lacks to act for u, or nil.
func (l *lending) lacks(ctx context.Context, u User) error {
	key := u.key()
	if err, ok := l.known.Get(key); ok {
		return err
	}
	err := l.ask(ctx, u)
	if err == nil || fault.Of(err) == fault.Denied {
		l.known.Put(key, err)
	}
	return err
}

func (l *lending) ask(ctx context.Context, u User) error {
	for _, x := range disguise(u) {
		all := x
		all.Name = ""
		for _, one := range []authzv1.ResourceAttributes{all, x} {
			ok, err := l.may(ctx, one)
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

// disguise is what it takes to act for u, in the order in which it is checked.
func disguise(u User) []authzv1.ResourceAttributes {
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

func (l *lending) may(ctx context.Context, x authzv1.ResourceAttributes) (bool, error) {
	review, err := l.reviews.Create(ctx, &authzv1.SelfSubjectAccessReview{Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &x}}, metav1.CreateOptions{})
	if err != nil {
		return false, Fault(err, "what this server may do")
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}
