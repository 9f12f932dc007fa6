package tenant

import (
	"fmt"

	"github.com/terrier-iac/terrier/internal/tenant/expression"
)

// ReadyWhen evaluates a resource's readyWhen over the live object. An error is no
// more than not ready: what the expression looks at may not be there yet, and the
// error says what.
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
