package tenant

// ReadyWhen evaluates a resource's readyWhen over the live object.
func ReadyWhen(expr string, object map[string]any) (bool, error) { return false, errUnbuilt }

// IncludeWhen evaluates a resource's includeWhen over the values of a row.
func IncludeWhen(expr string, v Values) (bool, error) { return false, errUnbuilt }
