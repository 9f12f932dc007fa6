package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Objects reads what Secrets and ConfigMaps hold.
type Objects struct{ Client client.Reader }

// Read returns the data of a Secret or ConfigMap, Missing if there is none, and
// which of its keys hold no secret: all of a ConfigMap.
func (o Objects) Read(ctx context.Context, ref stack.Ref) (data map[string][]byte, public []string, err error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if err := checkName(ref); err != nil {
		return nil, nil, err
	}
	switch ref.Kind {
	case "ConfigMap":
		data, err = readConfigMap(ctx, o.Client, key)
		return data, slices.Collect(maps.Keys(data)), err
	case "Secret":
		return ReadSecret(ctx, o.Client, key)
	default:
		return nil, nil, fmt.Errorf("reading %s: %s is neither a Secret nor a ConfigMap", key, ref.Kind)
	}
}

// checkName refuses what no object can be called. Messages have names in commands that
// users copy.
func checkName(ref stack.Ref) error {
	if problems := validation.IsDNS1123Subdomain(ref.Name); len(problems) > 0 {
		return fault.New(fault.Invalid, "", fmt.Errorf("%.80q is no name of a %s: %s", ref.Name, ref.Kind, problems[0]))
	}
	if problems := validation.IsDNS1123Label(ref.Namespace); len(problems) > 0 {
		return fault.New(fault.Invalid, "", fmt.Errorf("%.80q is no name of a namespace: %s", ref.Namespace, problems[0]))
	}
	return nil
}
