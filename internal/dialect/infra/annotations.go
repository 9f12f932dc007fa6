package infra

import (
	"encoding/json"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/stack"
)

// pluggedIn reads the annotations that choose a plug-in for the state.
func pluggedIn(obj *v1alpha2.Terraform, c *stack.Configuration) error {
	name, ok := obj.Annotations[Backend]
	text := obj.Annotations[BackendSettings]
	s := &obj.Spec
	switch {
	case !ok && text == "":
		return nil
	case !ok || name == "":
		return invalid("the annotation "+BackendSettings, "needs the annotation %s, which names the backend", Backend)
	case s.BackendConfig != nil || s.Cloud != nil || len(s.BackendConfigsFrom) > 0:
		return invalid("the annotation "+Backend, "says where the state is, and so does the spec: remove spec.backendConfig, spec.cloud and spec.backendConfigsFrom, or the annotation")
	}
	var settings map[string]string
	if err := json.Unmarshal([]byte(text), &settings); text != "" && err != nil {
		return invalid("the annotation "+BackendSettings, "is no JSON object of texts: %v", err)
	}
	b, err := backend.Of(name, settings, obj.Namespace, obj.Name)
	if err != nil {
		return invalid("the annotation "+BackendSettings+":", "%v", err)
	}
	c.Backend = b
	return nil
}
