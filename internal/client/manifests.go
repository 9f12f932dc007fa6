package client

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// plainKinds are kinds of objects that users write and that are no Secrets, besides the kinds
// of stacks.
var plainKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Pod"},
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	{Group: "batch", Version: "v1", Kind: "CronJob"}, {Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "operator.kubernetes-tenants.org", Version: "v1", Kind: "TenantTemplate"}, {Group: "operator.kubernetes-tenants.org", Version: "v1", Kind: "TenantRegistry"},
	{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}, {Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"},
}

// manifestPage is how many objects are read at once.
const manifestPage = 200

// Manifests hands each object to do that users write and that is no Secret: stacks, templates,
// ConfigMaps, workloads, Kustomizations and HelmReleases of the namespace of the command, or
// of all. An object that a controller owns is passed over, and so is what the API server adds
// to an object. Kinds that the cluster does not have are passed over; those that the user may
// not list are returned.
func (c Connection) Manifests(ctx context.Context, everywhere bool, do func(name string, object []byte) error) (denied []string, err error) {
	if c.Direct() {
		return nil, fault.New(fault.Invalid, ReasonNeedsCluster, fmt.Errorf("reading the objects of a cluster takes a kubeconfig: the HTTP API does not have them"))
	}
	config, namespace, err := c.config()
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("reading the kubeconfig: %w", err))
	}
	if namespace = cmp.Or(namespace, "default"); everywhere {
		namespace = ""
	}
	kinds := plainKinds
	for _, d := range c.StackKinds().All() {
		kinds = append(kinds[:len(kinds):len(kinds)], d.Kind())
	}
	for _, kind := range kinds {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		err := eachObject(ctx, objects.Resource(resource).Namespace(namespace), func(o *unstructured.Unstructured) error { return plainManifest(o, do) })
		switch {
		case apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err):
			denied = append(denied, resource.GroupResource().String())
		case err != nil:
			return denied, fmt.Errorf("listing %s: %w", resource.GroupResource(), access.Fault(err, resource.Resource))
		}
	}
	return denied, nil
}

func eachObject(ctx context.Context, objects dynamic.ResourceInterface, do func(*unstructured.Unstructured) error) error {
	options := metav1.ListOptions{Limit: manifestPage}
	for {
		list, err := objects.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// plainManifest hands on an object as its author wrote it.
func plainManifest(o *unstructured.Unstructured, do func(string, []byte) error) error {
	if metav1.GetControllerOf(o) != nil {
		return nil
	}
	kind := o.GroupVersionKind().GroupKind().String()
	delete(o.Object, "status")
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration") // it is the object once more
	o.SetAnnotations(annotations)
	text, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	return do(kind+"/"+query.Key{Namespace: o.GetNamespace(), Name: o.GetName()}.String(), text)
}
