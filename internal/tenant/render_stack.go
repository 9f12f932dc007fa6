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
	if _, said := spec["destroyResourcesOnDeletion"]; !said && w.r.Deletion != Retain {
		spec["destroyResourcesOnDeletion"] = true
		w.defaults = append(w.defaults, []string{"spec", "destroyResourcesOnDeletion"})
	}
}
