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

// IncludeWhen evaluates a resource's includeWhen over the values of a row.
func IncludeWhen(expr string, v Values) (bool, error) {
	ok, err := expression.OverRow().Eval(expr, map[string]string(v))
	if err != nil {
		return false, fmt.Errorf("includeWhen: %w", err)
	}
	return ok, nil
}
