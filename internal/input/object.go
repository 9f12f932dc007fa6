package input

import (
	"context"
	"strings"

	"github.com/terrier-iac/terrier/internal/stack"
)

// The kinds of objects that are sources.
const (
	Secret    = "Secret"
	ConfigMap = "ConfigMap"
)

// object is a Secret or a ConfigMap.
type object stack.Ref

func openObject(ref stack.Ref) Source {
	if ref.Kind == Secret && strings.HasPrefix(ref.Name, VaultScheme) {
		return vaultSource(ref.Name)
	}
	return object(ref)
}

func (o object) Read(ctx context.Context, r Reader) (Value, error) {
	data, public, err := r.Read(ctx, stack.Ref(o))
	return Value{Data: data, Public: public}, err
}

func (o object) Wakes() []stack.Ref { return []stack.Ref{stack.Ref(o)} }
