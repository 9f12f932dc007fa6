package app

import (
	"os"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatTenantsMayReachByDefault(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for rule, c := range map[string]struct {
		config           Config
		cluster          *ClusterConfig
		namespaces, dirs []string
	}{
		"one machine":                   {Config{DataDir: "/data"}, nil, []string{"*"}, []string{here, "/data"}},
		"one machine, told":             {Config{TenantNamespaces: []string{"team-*"}, SQLiteDirs: []string{"/srv"}}, nil, []string{"team-*"}, []string{"/srv"}},
		"one machine, told nothing":     {Config{TenantNamespaces: []string{}, SQLiteDirs: []string{}}, nil, nil, nil},
		"a cluster":                     {Config{DataDir: "/data"}, &ClusterConfig{}, nil, nil},
		"a cluster, told":               {Config{TenantNamespaces: []string{"*"}, SQLiteDirs: []string{"/srv"}}, &ClusterConfig{}, []string{"*"}, []string{"/srv"}},
		"a cluster that watches a part": {Config{}, &ClusterConfig{Namespaces: []string{"a"}}, nil, nil},
	} {
		t.Run(rule, func(t *testing.T) {
			p := Options{Config: c.config, Cluster: c.cluster}
			dirs, err := p.sqliteDirs()
			if err != nil || !slices.Equal(dirs, c.dirs) {
				t.Errorf("files may be in %v (%v), want %v", dirs, err, c.dirs)
			}
			if got := p.tenantNamespaces(); !slices.Equal(got, c.namespaces) {
				t.Errorf("tenants may write to %v, want %v", got, c.namespaces)
			}
		})
	}
}

func TestTheCacheKnowsWhoseARowIs(t *testing.T) {
	for name, owners := range map[string]int{"terrier-row-acme-web": 1, "password": 0} {
		o, err := slim(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "apps", Name: name, Labels: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{Name: "acme-web"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if m := o.(*metav1.PartialObjectMetadata); len(m.OwnerReferences) != owners || m.Labels != nil {
			t.Errorf("of %s the cache keeps %+v", name, m.ObjectMeta)
		}
	}
	o, err := slim(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "apps", Labels: map[string]string{"a": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if m := o.(*metav1.PartialObjectMetadata); m.Labels["a"] != "b" {
		t.Errorf("of a namespace the cache keeps %+v, want the labels, by which policies select", m.ObjectMeta)
	}
}
