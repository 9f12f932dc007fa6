package testkit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// AwaitRights returns when the API server lets a ServiceAccount of the test's
// namespace do there what rule says: the server learns of a role and its binding a
// moment after it has stored them.
func AwaitRights(tb testing.TB, c *Cluster, account string, rule rbacv1.PolicyRule) {
	tb.Helper()
	for _, group := range rule.APIGroups {
		for _, name := range rule.Resources {
			for _, verb := range rule.Verbs {
				resource, sub, _ := strings.Cut(name, "/")
				Eventually(tb, Patience, account+" may "+verb+" "+name, func(ctx context.Context) error {
					review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
						User:               "system:serviceaccount:" + c.Namespace + ":" + account,
						ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: verb, Group: group, Resource: resource, Subresource: sub},
					}}
					err := c.Client.Create(ctx, review)
					if err == nil && !review.Status.Allowed {
						err = fmt.Errorf("it may not: %s", review.Status.Reason)
					}
					return err
				})
			}
		}
	}
}
