package main

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-tools/pkg/crd"
)

type props = apiextensionsv1.JSONSchemaProps

// edit lets f change the schema at the end of path, a list of property names;
// lists on the way are entered. A path that leads nowhere is a broken
// invariant: the types were changed and this program was not.
func edit(p *props, f func(*props), path ...string) {
	if len(path) == 0 {
		f(p)
		return
	}
	if p.Items != nil {
		edit(p.Items.Schema, f, path...)
		return
	}
	q, ok := p.Properties[path[0]]
	if !ok {
		panic(fmt.Sprintf("no property %s", path[0]))
	}
	edit(&q, f, path[1:]...)
	p.Properties[path[0]] = q // the map holds values
}

// merge adds to dst the properties that only src has, at every level. Where
// both have one, dst decides.
func merge(dst *props, src props) {
	for name, theirs := range src.Properties {
		mine, ok := dst.Properties[name]
		if ok {
			merge(&mine, theirs)
		} else {
			mine = theirs
		}
		dst.Properties[name] = mine
	}
	if dst.Items != nil && src.Items != nil {
		merge(dst.Items.Schema, *src.Items.Schema)
	}
}

// inlineOrSource says that a module comes from a source, or is written under
// values.hcl and nothing beside it. CEL cannot say it: it does not see into a
// field that may hold any value.
func inlineOrSource(spec *props) {
	spec.AnyOf = []props{
		{Required: []string{"sourceRef"}},
		{
			Required: []string{"values"},
			Properties: map[string]props{"values": {
				Required:      []string{"hcl"},
				MaxProperties: ptr.To[int64](1),
			}},
		},
	}
}

// ourKindsToo lets alerts be about kinds that Flux does not list, although its
// controller would take their events.
func ourKindsToo(kind *props) {
	for _, name := range []string{"Terraform", "TenantRegistry", "TenantTemplate", "Tenant"} {
		kind.Enum = append(kind.Enum, apiextensionsv1.JSON{Raw: []byte(`"` + name + `"`)})
	}
}

// undescribed drops the descriptions inside Kubernetes' own types. They are
// most of the text, and kubectl explain pod has them.
func undescribed(spec *props) {
	for _, path := range [][]string{
		{"cliConfigSecretRef"},
		{"vars", "valueFrom"},
		{"runnerPodTemplate", "spec", "env"},
		{"runnerPodTemplate", "spec", "envFrom"},
		{"runnerPodTemplate", "spec", "affinity"},
		{"runnerPodTemplate", "spec", "tolerations"},
		{"runnerPodTemplate", "spec", "volumes"},
		{"runnerPodTemplate", "spec", "volumeMounts"},
		{"runnerPodTemplate", "spec", "initContainers"},
		{"runnerPodTemplate", "spec", "hostAliases"},
		{"runnerPodTemplate", "spec", "securityContext"},
		{"runnerPodTemplate", "spec", "resources"},
	} {
		edit(spec, func(p *props) {
			own := p.Description
			crd.TruncateDescription(p, 0)
			p.Description = own
		}, path...)
	}
}
