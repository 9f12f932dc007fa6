package kube

import (
	"context"
	"fmt"

	authzv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Right is to do something to a subresource of an object. Nothing of it need exist: roles give it.
type Right struct {
	Verb, Subresource string
	Resource          schema.GroupVersionResource
	Object            client.ObjectKey
}

func (r Right) String() string {
	return fmt.Sprintf("%s %s/%s", r.Verb, r.Resource.Resource, r.Subresource)
}

func (r Right) attributes() *authzv1.ResourceAttributes {
	return &authzv1.ResourceAttributes{
		Namespace: r.Object.Namespace, Name: r.Object.Name, Verb: r.Verb, Subresource: r.Subresource,
		Group: r.Resource.Group, Version: r.Resource.Version, Resource: r.Resource.Resource,
	}
}

// Allowed asks the API server whether a user of these groups has a right.
func Allowed(ctx context.Context, c client.Client, user string, groups []string, r Right) (bool, error) {
	review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: r.attributes()}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether %s may %s: %w", user, r, err)
	}
	return review.Status.Allowed, nil
}

// SelfAllowed asks the API server whether the user of the client has a right.
func SelfAllowed(ctx context.Context, c client.Client, r Right) (bool, error) {
	review := &authzv1.SelfSubjectAccessReview{Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: r.attributes()}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether you may %s: %w", r, err)
	}
	return review.Status.Allowed, nil
}
