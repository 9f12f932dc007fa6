package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// Output is one value that a stack published.
type Output struct {
	Name      string          `json:"name"`
	Value     json.RawMessage `json:"value,omitempty"` // absent where it is not shown
	Sensitive bool            `json:"sensitive,omitempty"`
}

// Outputs returns what a stack published, read from its Secret as the caller.
// The values of sensitive ones are left out unless show says otherwise; what
// was published by somebody who does not say is sensitive.
func (s *Stacks) Outputs(ctx context.Context, key Key, show bool) ([]Output, error) {
	o, err := s.read(ctx, key)
	if err != nil {
		return nil, err
	}
	if o.Spec.WriteOutputsToSecret == nil {
		return nil, fault.New(fault.Missing, ReasonNoOutputs, fmt.Errorf("the stack %s publishes no outputs", key))
	}
	name := types.NamespacedName{Namespace: key.Namespace, Name: o.Spec.WriteOutputsToSecret.Name}
	data, public, err := kube.ReadSecret(ctx, s.kube, name)
	if fault.Of(err) == fault.Missing {
		return nil, fault.New(fault.Missing, ReasonUnpublished, fmt.Errorf("the stack %s has not published its outputs yet", key))
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the stack %s published: %w", key, err)
	}
	values, err := kube.DecodeOutputs(data)
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", name, err)
	}
	out := make([]Output, 0, len(values))
	for name, value := range values {
		v := Output{Name: name, Sensitive: !slices.Contains(public, name)}
		if show || !v.Sensitive {
			v.Value = value
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Output) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
