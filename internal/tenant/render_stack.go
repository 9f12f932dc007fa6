package tenant

func isTerraform(apiVersion, kind string) bool {
	return kind == "Terraform" && groupOf(apiVersion) == "infra.contrib.fluxcd.io"
}

// terraform makes a stack do what people expect of a tenant's: it is applied
// without anybody's approval, and destroyed with the tenant, unless its resource
// is retained. What the template says stands, whatever it is.
func (w *writing) terraform(object map[string]any) {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return
	}
	if _, said := spec["approvePlan"]; !said && spec["planOnly"] != true {
		spec["approvePlan"] = "auto"
		w.defaults = append(w.defaults, []string{"spec", "approvePlan"})
	}
	destroy := w.r.Deletion != Retain
	// A merge takes nothing away: one that was to be destroyed until now has to be
	// told. The other strategies leave the field out.
	if _, said := spec["destroyResourcesOnDeletion"]; !said && (destroy || w.r.Patch == Merge) {
		spec["destroyResourcesOnDeletion"] = destroy
		w.defaults = append(w.defaults, []string{"spec", "destroyResourcesOnDeletion"})
	}
}
