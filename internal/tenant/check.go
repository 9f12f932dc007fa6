package tenant

// Check finds everything that is wrong with a template as far as that can be
// known without a row, all of it at once. With vars, the variables of its
// registry (see VariablesOf), names of variables are checked, too; nil says that
// nobody knows them yet.
func Check(t Template, vars []string) []ResourceError {
	return orderErrors(t.Resources)
}

// VariablesOf are the names of the variables that a registry with this mapping
// gives to templates, in order.
func VariablesOf(m Mapping) []string {
	r := Row{Extra: map[string]string{}}
	for name := range m.Extra {
		r.Extra[name] = ""
	}
	return ValuesOf(r, "", "").names()
}
