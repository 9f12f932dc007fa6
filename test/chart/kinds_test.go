package chart

import (
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const scripted = "terraforms.alustan.io"

// definition is the error of reading the definition of scripted stacks.
func (p *plane) definition(t *testing.T) error {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return p.Get(t.Context(), client.ObjectKey{Name: scripted}, u)
}

// In a cluster that does not have the other kind of stack, a controller needs neither its
// definition nor rights on it, and does not install it: "kubectl get terraforms" stays the
// same there.
func TestTheOtherKindIsLeftOut(t *testing.T) {
	for _, crds := range []string{"none", "chart", "controller"} {
		t.Run("crds: "+crds, func(t *testing.T) {
			i := rendered(t, "--set", "rbac.namespaces={team-a}", "--set", "runs.as=processes", "--set", "crds="+crds)
			if crds == "none" {
				files, err := filepath.Glob(root + "/config/crd/*.yaml")
				if err != nil {
					t.Fatal(err)
				}
				for _, file := range files {
					if !strings.HasPrefix(filepath.Base(file), "alustan.io_") {
						i.manifest(t, "", read(t, file))
					}
				}
			}
			i.begin(t)
			i.manifest(t, "team-a", inlineStack)
			i.await(t, "team-a", "inline", "becomes ready", isReady)
			if err := i.definition(t); !apierrors.IsNotFound(err) {
				t.Errorf("reading %s: %v, want that there is none", scripted, err)
			}
			if text := i.recorder.denials(); len(text) > 0 {
				t.Errorf("the controller was denied:\n%s", strings.Join(text, "\n"))
			}
		})
	}
}

// A controller that is asked for the other kind installs its definition, and may reconcile it.
func TestTheOtherKindOnRequest(t *testing.T) {
	i := install(t, "--set", "rbac.namespaces={team-a}", "--set", "runs.as=processes", "--set", "kinds={infra.contrib.fluxcd.io,alustan.io}")
	if err := i.definition(t); err != nil {
		t.Error(err)
	}
	i.manifest(t, "team-a", inlineStack)
	i.await(t, "team-a", "inline", "becomes ready", isReady)
	listed := false
	for _, r := range i.recorder.all() {
		listed = listed || r.resource == "terraforms" && r.group == "alustan.io" && r.status < 400
	}
	if text := i.recorder.denials(); len(text) > 0 || !listed {
		t.Errorf("the controller read the other kind: %t, and was denied:\n%s", listed, strings.Join(text, "\n"))
	}
}
