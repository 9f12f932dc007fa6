package kube

import (
	"context"
	"testing"
	"testing/fstest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/testkit"
)

func definition(group, plural, description string) []byte {
	return []byte(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + plural + `.` + group + `},
spec: {group: ` + group + `, scope: Namespaced, names: {plural: ` + plural + `, kind: K` + plural + `},
versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: "` + description + `"}}}]}}`)
}

func TestInstallDefinitions(t *testing.T) {
	k := testkit.Kube(t, apiextensionsv1.AddToScheme)
	own, shared := k.Namespace+"-own.test", k.Namespace+"-shared.test"
	described := func(name string) string {
		t.Helper()
		var crd apiextensionsv1.CustomResourceDefinition
		if err := k.Client.Get(t.Context(), types.NamespacedName{Name: name}, &crd); err != nil {
			t.Fatal(err)
		}
		return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description
	}
	var theirs apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(definition(shared, "theirs", "theirs"), &theirs); err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Create(t.Context(), &theirs, client.FieldOwner("another-installer")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{"ours." + own, "ours." + shared, "theirs." + shared} {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Name = name
			if err := k.Client.Delete(context.Background(), crd); client.IgnoreNotFound(err) != nil {
				t.Logf("removing %s: %v", name, err)
			}
		}
	})
	for _, text := range []string{"old", "new"} { // the second time is an upgrade
		files := fstest.MapFS{
			"a.yaml": {Data: definition(own, "ours", text)}, "b.yaml": {Data: definition(shared, "ours", text)}, "c.yaml": {Data: definition(shared, "theirs", text)},
		}
		if err := InstallDefinitions(t.Context(), k.Client, files, shared); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"ours." + own: text, "ours." + shared: text, "theirs." + shared: "theirs"} {
			if got := described(name); got != want {
				t.Errorf("%s is described as %q, want %q", name, got, want)
			}
		}
	}
}
