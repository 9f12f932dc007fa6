package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// belowDefinitions is a priority below the one that an API server gives to the groups of
// definitions.
const belowDefinitions = 900

// PutBehind has the API server list a group behind those of other definitions, in the form
// of the list that clients before Kubernetes 1.27 read. A client takes a resource that
// several groups have, as terraforms, from the group that is listed first; by default that
// is the one whose name comes first. The label keeps the server from putting back its own
// priority.
func PutBehind(ctx context.Context, c client.Client, of schema.GroupVersion) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"group": of.Group, "version": of.Version, "groupPriorityMinimum": int64(belowDefinitions), "versionPriority": int64(100)},
	}}
	u.SetAPIVersion("apiregistration.k8s.io/v1")
	u.SetKind("APIService")
	u.SetName(of.Version + "." + of.Group)
	u.SetLabels(map[string]string{"kube-aggregator.kubernetes.io/automanaged": "false"})
	return Apply(ctx, c, u)
}
