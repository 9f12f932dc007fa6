package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// SensitiveAnnotation on a Secret with outputs names those of its keys that the
// module marks sensitive, separated by commas. Where it is absent, all are.
const SensitiveAnnotation = "terrier.dev/sensitive-outputs"

// Output is one value that a stack published.
type Output struct {
	Name      string          `json:"name"`
	Value     json.RawMessage `json:"value,omitempty"` // absent where it is not shown
	Sensitive bool            `json:"sensitive,omitempty"`
}

// Outputs returns what a stack published, read from its Secret as the caller.
// The values of sensitive ones are left out unless show says otherwise.
func (s *Stacks) Outputs(ctx context.Context, key Key, show bool) ([]Output, error) {
	o, err := s.read(ctx, key)
	if err != nil {
		return nil, err
	}
	if o.Spec.WriteOutputsToSecret == nil {
		return nil, fault.New(fault.Missing, ReasonNoOutputs, fmt.Errorf("the stack %s publishes no outputs", key))
	}
	var published corev1.Secret
	name := types.NamespacedName{Namespace: key.Namespace, Name: o.Spec.WriteOutputsToSecret.Name}
	if err := s.kube.Get(ctx, name, &published); err != nil {
		return nil, kubeFault(err, "the Secret "+name.String()+" that outputs are published to")
	}
	values, err := kube.DecodeOutputs(published.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", name, err)
	}
	marked, known := published.Annotations[SensitiveAnnotation]
	hidden := strings.Split(marked, ",")
	out := make([]Output, 0, len(values))
	for name, value := range values {
		v := Output{Name: name, Sensitive: !known || slices.Contains(hidden, name)}
		if show || !v.Sensitive {
			v.Value = value
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Output) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
