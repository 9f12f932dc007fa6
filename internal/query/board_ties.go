package query

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

// ties are what binds a stack to others. Names of Secrets are those of its own
// namespace.
type ties struct {
	needs  []Key
	reads  []string
	writes string
}

// tiesOf reads the ties of a stack. One that reads a Secret is tied to whoever
// publishes to it, in whatever part of the object it is named.
func tiesOf(o *v1alpha2.Terraform) ties {
	var t ties
	for _, r := range o.Spec.DependsOn {
		t.needs = append(t.needs, Key{cmp.Or(r.Namespace, o.Namespace), r.Name})
	}
	if w := o.Spec.WriteOutputsToSecret; w != nil {
		t.writes = w.Name
	}
	read := func(name string) {
		if name != "" && !slices.Contains(t.reads, name) {
			t.reads = append(t.reads, name)
		}
	}
	for _, r := range o.Spec.ReadInputsFromSecrets {
		read(r.Name)
	}
	for _, r := range o.Spec.VarsFrom {
		if r.Kind == "Secret" {
			read(r.Name)
		}
	}
	ref := func(from *corev1.EnvVarSource) {
		if from != nil && from.SecretKeyRef != nil {
			read(from.SecretKeyRef.Name)
		}
	}
	for _, v := range o.Spec.Vars {
		ref(v.ValueFrom)
	}
	for _, v := range o.Spec.RunnerPodTemplate.Spec.Env {
		ref(v.ValueFrom)
	}
	for _, from := range o.Spec.RunnerPodTemplate.Spec.EnvFrom {
		if from.SecretRef != nil {
			read(from.SecretRef.Name)
		}
	}
	return t
}
