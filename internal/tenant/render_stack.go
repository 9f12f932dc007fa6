package tenant

func isTerraform(apiVersion, kind string) bool {
	return kind == "Terraform" && groupOf(apiVersion) == "infra.contrib.fluxcd.io"
}

// terraform sets the defaults of a stack of a tenant: it is applied without an
// approval, and destroyed with the tenant, unless its resource is retained. A field
// that the template sets stays.
func (w *writing) terraform(object map[string]any) {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return
	}
	if _, set := spec["approvePlan"]; !set && spec["planOnly"] != true {
		spec["approvePlan"] = "auto"
		w.defaults = append(w.defaults, []string{"spec", "approvePlan"})
	}
	destroy := w.r.Deletion != Retain
	// A merge removes no field: a stack that was to be destroyed until now needs an
	// explicit false. The other strategies leave the field out.
	if _, set := spec["destroyResourcesOnDeletion"]; !set && (destroy || w.r.Patch == Merge) {
		spec["destroyResourcesOnDeletion"] = destroy
		w.defaults = append(w.defaults, []string{"spec", "destroyResourcesOnDeletion"})
	}
}
