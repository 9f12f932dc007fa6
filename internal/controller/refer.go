package controller

import (
	"context"
	"fmt"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Grants knows what owners of namespaces let objects of other namespaces refer to.
type Grants interface {
	Granted(ctx context.Context, from kube.Referrer, to kube.Referent) (bool, error)
}

// referrals decides which objects a stack may refer to. Every reference that can name a
// namespace passes it.
type referrals struct {
	config Config
	grants Grants // nil grants nothing
}

// check returns a Denied error unless an object of a dialect may refer to another object.
// It does not read that object, so the error tells nothing about it.
func (rf *referrals) check(ctx context.Context, d dialect.Dialect, from client.Object, to kube.Referent) error {
	if to.Namespace == from.GetNamespace() || rf.config.CrossNamespace {
		return nil
	}
	referrer := kube.Referrer{GroupKind: d.Kind().GroupKind(), Namespace: from.GetNamespace()}
	if rf.grants != nil {
		if granted, err := rf.grants.Granted(ctx, referrer, to); err != nil || granted {
			return err
		}
	}
	return fault.New(fault.Denied, "", fmt.Errorf("%s %s/%s is in another namespace, and no ReferenceGrant there lets a %s of %s refer to it. "+
		"The owner of the namespace %[2]s can create one: docs/rbac.md, References to other namespaces", to.Kind, to.Namespace, to.Name, referrer.Kind, referrer.Namespace))
}

// sourceReferent is a source as the object of a reference.
func sourceReferent(kind string, key client.ObjectKey) kube.Referent {
	return kube.Referent{GroupKind: schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: kind}, Namespace: key.Namespace, Name: key.Name}
}

// stackReferent is a stack as the object of a reference.
func stackReferent(of objectRef) kube.Referent {
	return kube.Referent{GroupKind: of.dialect.Kind().GroupKind(), Namespace: of.key.Namespace, Name: of.key.Name}
}

// inputReferent is a source of inputs as the object of a reference: a Secret or a
// ConfigMap, which are of the group that has no name.
func inputReferent(ref stack.Ref) kube.Referent {
	return kube.Referent{GroupKind: schema.GroupKind{Kind: ref.Kind}, Namespace: ref.Namespace, Name: ref.Name}
}

// refer is check for the inputs of a stack.
func (rf *referrals) refer(p *pass) input.Refer {
	return func(ctx context.Context, ref stack.Ref) error {
		return rf.check(ctx, p.dialect, p.obj, inputReferent(ref))
	}
}
