package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
)

// referenceGrant is the kind by which the owner of a namespace lets objects of other
// namespaces refer to objects there. It is the Gateway API's, and need not exist.
var referenceGrant = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "ReferenceGrant"}

// Referrer is an object that refers to others.
type Referrer struct {
	schema.GroupKind
	Namespace string
}

// Referent is an object that is referred to.
type Referent struct {
	schema.GroupKind
	Namespace, Name string
}

// Grants reads ReferenceGrants. It keeps none: one that is deleted counts no more.
type Grants struct{ Client client.Client }

// Granted reports whether a ReferenceGrant in the namespace of to lets from refer to it.
// It does not read to.
func (g Grants) Granted(ctx context.Context, from Referrer, to Referent) (bool, error) {
	mapping, err := g.Client.RESTMapper().RESTMapping(referenceGrant)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking up the kind ReferenceGrant: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(referenceGrant.Kind + "List"))
	err = g.Client.List(ctx, list, client.InNamespace(to.Namespace))
	switch {
	case apierrors.IsNotFound(err): // the kind was removed meanwhile
		return false, nil
	case apierrors.IsForbidden(err):
		return false, fault.New(fault.Denied, "AccessDenied", fmt.Errorf("this controller may not list the ReferenceGrants of the namespace %s, which could allow the reference: %w", to.Namespace, err))
	case err != nil:
		return false, fmt.Errorf("listing the ReferenceGrants of the namespace %s: %w", to.Namespace, err)
	}
	for i := range list.Items {
		ok, err := grants(&list.Items[i], from, to)
		if err != nil {
			return false, fmt.Errorf("the ReferenceGrant %s/%s: %w", to.Namespace, list.Items[i].GetName(), err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// grants reports whether one ReferenceGrant has both ends of a reference.
func grants(u *unstructured.Unstructured, from Referrer, to Referent) (bool, error) {
	if !u.GetDeletionTimestamp().IsZero() {
		return false, nil
	}
	var grant struct {
		Spec struct {
			From []struct {
				Group     string `json:"group"`
				Kind      string `json:"kind"`
				Namespace string `json:"namespace"`
			} `json:"from"`
			To []struct {
				Group string `json:"group"`
				Kind  string `json:"kind"`
				Name  string `json:"name"` // any if it is empty
			} `json:"to"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &grant); err != nil {
		return false, errors.New("its spec cannot be read")
	}
	for _, f := range grant.Spec.From {
		if f.Group != from.Group || f.Kind != from.Kind || f.Namespace != from.Namespace {
			continue
		}
		for _, t := range grant.Spec.To {
			if t.Group == to.Group && t.Kind == to.Kind && (t.Name == "" || t.Name == to.Name) {
				return true, nil
			}
		}
	}
	return false, nil
}
