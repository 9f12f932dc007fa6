package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// Two groups have the resource terraforms. A client that names no group, as kubectl does,
// gets that of the first kind, although the name of the other group comes first.
func TestTerraformsAreThoseOfTheFirstKind(t *testing.T) {
	c := testkit.Kube(t)
	d, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		t.Fatal(err)
	}
	var with []string
	for _, g := range groups {
		for _, resources := range g.VersionedResources {
			for _, r := range resources {
				if r.Name == "terraforms" && (g.Group.Name == "alustan.io" || g.Group.Name == "infra.contrib.fluxcd.io") {
					with = append(with, g.Group.Name)
				}
			}
		}
	}
	if len(with) < 2 {
		t.Fatalf("of the groups with terraforms there are %v, want both", with)
	}
	got, err := restmapper.NewDiscoveryRESTMapper(groups).ResourceFor(schema.GroupVersionResource{Resource: "terraforms"})
	if err != nil || got.Group != "infra.contrib.fluxcd.io" {
		t.Errorf("ResourceFor(terraforms) = %v, %v", got, err)
	}
}
