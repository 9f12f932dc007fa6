package crd

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	notificationv1beta3 "github.com/fluxcd/notification-controller/api/v1beta3"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	sourcev1beta2 "github.com/fluxcd/source-controller/api/v1beta2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"

	alustanv1alpha1 "github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/api/infra/v1alpha1"
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	policyv1alpha1 "github.com/terrier-iac/terrier/api/policy/v1alpha1"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// What is installed and what is compiled in agree: every version that a CRD
// serves has Go types, for one object and for a list.
func TestFilesHaveTypes(t *testing.T) {
	scheme := newScheme(t)
	names, err := fs.Glob(Files, "*.yaml")
	if err != nil || len(names) != 16 {
		t.Fatalf("Files holds %v (%v), want sixteen", names, err)
	}
	for _, name := range names {
		raw, err := Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var c apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(raw, &c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := c.Spec.Group + "_" + c.Spec.Names.Plural + ".yaml"; name != want {
			t.Errorf("file is called %s, want %s", name, want)
		}
		if c.Spec.Group == "pac.weave.works" || c.Spec.Group == "external-secrets.io" {
			continue // read as JSON: another program's
		}
		for _, v := range c.Spec.Versions {
			for _, kind := range []string{c.Spec.Names.Kind, c.Spec.Names.ListKind} {
				gvk := schema.GroupVersionKind{Group: c.Spec.Group, Version: v.Name, Kind: kind}
				if !scheme.Recognizes(gvk) {
					t.Errorf("%s has no Go type", gvk)
				}
			}
		}
	}
}

// A manifest read into the types has no field that they lack, and loses
// nothing when it is written again.
func TestManifestsSurviveTheTypes(t *testing.T) {
	scheme := newScheme(t)
	codec := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: true})
	for name, raw := range manifests(t) {
		t.Run(name, func(t *testing.T) {
			first, _, err := codec.Decode(raw, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			written, err := json.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := codec.Decode(written, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(again, first, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("second reading (-got +want):\n%s", diff)
			}
			if diff := cmp.Diff(first.DeepCopyObject(), first); diff != "" {
				t.Errorf("copy (-got +want):\n%s", diff)
			}
		})
	}
}

// The manifests that hold every field hold no zero value that may be left out,
// so that they are the same text before and after: an explicit false stays.
func TestEverythingIsWrittenAsItWasRead(t *testing.T) {
	scheme := newScheme(t)
	codec := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: true})
	raw := manifests(t)
	for _, name := range []string{"terraform-everything", "terraform-everything-alpha1"} {
		t.Run(name, func(t *testing.T) {
			obj, _, err := codec.Decode(raw[name], nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			written, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tree(t, written), tree(t, raw[name])); diff != "" {
				t.Errorf("written (-got +want):\n%s", diff)
			}
		})
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		alustanv1alpha1.AddToScheme, v1alpha1.AddToScheme, v1alpha2.AddToScheme, tenantsv1.AddToScheme, policyv1alpha1.AddToScheme, sourcev1.AddToScheme, sourcev1beta2.AddToScheme, notificationv1beta3.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// manifests reads api/testdata as JSON.
func manifests(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../api/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	out := map[string][]byte{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := yaml.YAMLToJSONStrict(raw)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".yaml")] = doc
	}
	return out
}

func tree(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Definitions of a group are left out by the names of their files, which begin with it.
func TestWithout(t *testing.T) {
	all, err := fs.Glob(Files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	left, err := fs.Glob(Without([]string{"alustan.io"}), "*.yaml")
	if err != nil || len(left) != len(all)-1 || slices.Contains(left, "alustan.io_terraforms.yaml") {
		t.Errorf("without alustan.io there are %v, %v, of %v", left, err, all)
	}
}
