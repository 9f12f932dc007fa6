package crd_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	examples "github.com/terrier-iac/terrier/examples/alustan"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// The API server keeps each field of the manifests that the documents of Alustan have,
// variables and settings of the backend included.
func TestScriptsAreKept(t *testing.T) {
	c := testkit.Kube(t)
	for _, name := range []string{"inline.yaml", "configmap.yaml"} {
		text, err := examples.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		docs := strings.Split(string(text), "\n---\n")
		var want map[string]any
		if err := yaml.Unmarshal([]byte(docs[len(docs)-1]), &want); err != nil {
			t.Fatal(err)
		}
		applied := c.Apply(t, strings.ReplaceAll(string(text), "  namespace: default\n", ""))
		stored := applied[len(applied)-1]
		if diff := cmp.Diff(want["spec"], stored.Object["spec"]); diff != "" {
			t.Errorf("%s: the API server has another spec (-manifest +stored):\n%s", name, diff)
		}
		if err := c.Client.Delete(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
	}
}

// A client that writes a status back which it read before Terrier wrote the next one is
// refused, in every kind and version.
func TestAnOlderStatusIsRefused(t *testing.T) {
	c := testkit.Kube(t)
	for _, version := range []string{"alustan.io/v1alpha1", "infra.contrib.fluxcd.io/v1alpha1", "infra.contrib.fluxcd.io/v1alpha2"} {
		t.Run(version, func(t *testing.T) {
			name := strings.NewReplacer("/", "-", ".", "-").Replace(version)
			spec := `{interval: 1h, approvePlan: auto, sourceRef: {kind: GitRepository, name: none}}`
			if strings.HasPrefix(version, "alustan") {
				spec = `{scripts: {apply: {inline: exit}}, gitRepo: {url: "https://git.example/org/repo"}}`
			}
			o := c.Apply(t, "apiVersion: "+version+"\nkind: Terraform\nmetadata: {name: "+name+"}\nspec: "+spec)[0]
			// replace does what metacontroller does: it reads the newest object, and writes
			// a status that it had before.
			replace := func(terrier map[string]any) error {
				newest := &unstructured.Unstructured{}
				newest.SetGroupVersionKind(o.GroupVersionKind())
				if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), newest); err != nil {
					t.Fatal(err)
				}
				newest.Object["status"] = map[string]any{"terrier": terrier}
				return c.Client.Status().Update(t.Context(), newest)
			}
			for _, step := range []struct {
				status  map[string]any
				refused bool
			}{
				{map[string]any{"phase": "Applying"}, false}, // of an earlier release
				{map[string]any{"phase": "Applying", "writes": int64(7)}, false},
				{map[string]any{"phase": "Applied", "writes": int64(8)}, false},
				{map[string]any{"phase": "Applying", "writes": int64(7)}, true},
				{map[string]any{"phase": "Applied", "writes": int64(8)}, false},
				{map[string]any{"phase": "Applied"}, false}, // by an earlier release again, which does not know the field
			} {
				err := replace(step.status)
				switch {
				case step.refused && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "an older status must not replace a newer one")):
					t.Errorf("%v: %v, want it refused", slices.Sorted(maps.Keys(step.status)), err)
				case !step.refused && err != nil:
					t.Errorf("%v: %v", step.status, err)
				}
			}
		})
	}
}
