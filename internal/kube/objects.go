package kube

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Objects reads what Secrets and ConfigMaps hold.
type Objects struct{ Client client.Reader }

// Read returns the data of a Secret or ConfigMap, Missing if there is none, and
// which of its keys hold no secret: all of a ConfigMap.
func (o Objects) Read(ctx context.Context, ref stack.Ref) (data map[string][]byte, public []string, err error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if ref.Kind == "ConfigMap" {
		data, err = readConfigMap(ctx, o.Client, key)
		return data, slices.Collect(maps.Keys(data)), err
	}
	return ReadSecret(ctx, o.Client, key)
}
