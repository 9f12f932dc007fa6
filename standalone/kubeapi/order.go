package kubeapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
)

// behind lists the group of scripted stacks behind the groups of other definitions. Its
// resource has the name of another one, terraforms, which kubectl takes from the group
// that is listed first: without this from the one whose name comes first.
type behind struct{ aggregated.ResourceManager }

// The group, and a priority below the one that definitions have.
const (
	groupBehind    = "alustan.io"
	priorityBehind = 900
)

func (b behind) SetGroupVersionPriority(gv metav1.GroupVersion, group, version int) {
	if gv.Group == groupBehind {
		group = priorityBehind
	}
	b.ResourceManager.SetGroupVersionPriority(gv, group, version)
}

func (b behind) WithSource(s aggregated.Source) aggregated.ResourceManager {
	return behind{b.ResourceManager.WithSource(s)}
}
