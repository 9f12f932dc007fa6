package tenant

import (
	"fmt"

	"github.com/terrier-iac/terrier/internal/tenant/expression"
)

// ReadyWhen evaluates a resource's readyWhen over the live object. An error means
// not ready: a field that the expression reads may not exist yet, and the error
// names it.
func ReadyWhen(expr string, object map[string]any) (bool, error) {
	ok, err := expression.OverObject().Eval(expr, object)
	if err != nil {
		return false, fmt.Errorf("readyWhen: %w", err)
	}
	return ok, nil
}
