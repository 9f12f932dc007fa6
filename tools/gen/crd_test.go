package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// An API server keeps what kubectl apply writes in an annotation, and bounds
// annotations: a larger CRD cannot be applied from the client's side.
const lastAppliedLimit = 256 << 10

func TestDefinitionsAreValidAndSmall(t *testing.T) {
	for name, c := range definitionFiles(t) {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(raw); got > lastAppliedLimit*3/4 {
				t.Errorf("size is %d bytes, want at most three quarters of %d", got, lastAppliedLimit)
			}
			internal := &apiextensions.CustomResourceDefinition{}
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c, internal, nil); err != nil {
				t.Fatal(err)
			}
			internal.Status.StoredVersions = []string{storage(c)}
			for _, err := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
				t.Error(err)
			}
		})
	}
}

func TestDefinitionsHoldWhatUpstreamPromises(t *testing.T) {
	files := definitionFiles(t)
	type served struct {
		Version             string
		Storage, Deprecated bool
		Warning, Columns    string
	}
	for name, tt := range map[string]struct {
		file       string
		shortNames []string
		want       []served
	}{
		"Terraform is stored at v1alpha2": {
			"infra.contrib.fluxcd.io_terraforms.yaml", []string{"tf"},
			[]served{
				{"v1alpha1", false, true, "v1alpha1 Terraform is deprecated, upgrade to v1alpha2", "Ready Status Age (Plan) (Revision) (Phase)"},
				{"v1alpha2", true, false, "", "Ready Status Age (Plan) (Revision) (Phase)"},
			},
		},
		"GitRepository is stored at v1": {
			"source.toolkit.fluxcd.io_gitrepositories.yaml", []string{"gitrepo"},
			[]served{
				{"v1", true, false, "", "URL Age Ready Status"},
				{"v1beta2", false, true, "v1beta2 GitRepository is deprecated, upgrade to v1", "URL Age Ready Status"},
			},
		},
		"OCIRepository is stored at v1": {
			"source.toolkit.fluxcd.io_ocirepositories.yaml", []string{"ocirepo"},
			[]served{
				{"v1", true, false, "", "URL Ready Status Age"},
				{"v1beta2", false, true, "v1beta2 OCIRepository is deprecated, upgrade to v1", "URL Ready Status Age"},
			},
		},
		"Bucket is stored at v1": {
			"source.toolkit.fluxcd.io_buckets.yaml", nil,
			[]served{
				{"v1", true, false, "", "Endpoint Age Ready Status"},
				{"v1beta2", false, true, "v1beta2 Bucket is deprecated, upgrade to v1", "Endpoint Age Ready Status"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := files[tt.file]
			if c == nil {
				t.Fatalf("there is no %s", tt.file)
			}
			if diff := cmp.Diff(c.Spec.Names.ShortNames, tt.shortNames); diff != "" {
				t.Errorf("short names (-got +want):\n%s", diff)
			}
			var got []served
			for _, v := range c.Spec.Versions {
				s := served{Version: v.Name, Storage: v.Storage, Deprecated: v.Deprecated, Columns: columns(v)}
				if v.DeprecationWarning != nil {
					s.Warning = *v.DeprecationWarning
				}
				if !v.Served || v.Subresources == nil || v.Subresources.Status == nil || v.Subresources.Scale != nil {
					t.Errorf("%s: served %v, subresources %v; want it served, with status only", v.Name, v.Served, v.Subresources)
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("versions (-got +want):\n%s", diff)
			}
		})
	}
}

// The versions of Terraform differ in nothing but the default of status, so
// that what one version wrote the other does not lose.
func TestVersionsOfTerraformAreOneSchema(t *testing.T) {
	versions := definitionFiles(t)["infra.contrib.fluxcd.io_terraforms.yaml"].Spec.Versions
	old, stored := versions[0].Schema.OpenAPIV3Schema, versions[1].Schema.OpenAPIV3Schema
	if got := stored.Properties["status"].Default; got == nil || string(got.Raw) != `{"observedGeneration":-1}` {
		t.Errorf("default of status in v1alpha2 is %v", got)
	}
	for _, s := range []*props{old, stored} {
		edit(s, func(p *props) { p.Default, p.Description = nil, "" }, "status")
	}
	if diff := cmp.Diff(old, stored); diff != "" {
		t.Errorf("v1alpha1 and v1alpha2 (-old +stored):\n%s", diff)
	}
}

// Every manifest in api/testdata is admitted as it is: those of the issues
// that Terrier was asked for in, and those that hold every field.
func TestManifestsAreAdmitted(t *testing.T) {
	s := newServer(t)
	files, err := filepath.Glob("../../api/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			obj := object(t, string(read(t, name)))
			for _, wrong := range s.admit(t, obj) {
				t.Error(wrong)
			}
		})
	}
}

// No field of spec is absent from the manifest that is to hold every field.
func TestEverythingIsEverything(t *testing.T) {
	spec := definitionFiles(t)["infra.contrib.fluxcd.io_terraforms.yaml"].Spec.Versions[1].Schema.OpenAPIV3Schema.Properties["spec"]
	obj := object(t, string(read(t, "../../api/testdata/terraform-everything.yaml")))
	given, _ := obj["spec"].(map[string]any)
	for name := range spec.Properties {
		if _, ok := given[name]; !ok {
			t.Errorf("spec.%s is missing", name)
		}
	}
}

func storage(c *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range c.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// columns lists the printer columns; those of -o wide are in parentheses.
func columns(v apiextensionsv1.CustomResourceDefinitionVersion) string {
	var names []string
	for _, c := range v.AdditionalPrinterColumns {
		name := c.Name
		if c.Priority > 0 {
			name = "(" + name + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}
