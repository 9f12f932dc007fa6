package infra

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestBackendAnnotation(t *testing.T) {
	seed := `{"s3": "store", "dynamoDB": "table", "region": "us-east-1"}`
	plugin := stack.Backend{Kind: stack.Plugin, Plugin: "aws", Suffix: "a", Settings: map[string]string{"s3": "store", "dynamoDB": "table", "region": "us-east-1"}}
	for name, c := range map[string]struct {
		backend, settings string
		config            *v1alpha2.BackendConfig
		want              stack.Backend
		wrong             string
	}{
		"none":                 {want: stack.Backend{Kind: stack.Managed, Suffix: "a", InCluster: true}},
		"aws":                  {backend: "aws", settings: seed, want: plugin},
		"Terrier's own":        {backend: "http", want: stack.Backend{Kind: stack.Managed, Suffix: "a", InCluster: true}},
		"of the operator":      {backend: "shelf", settings: `{"dir": "/x"}`, want: stack.Backend{Kind: stack.Plugin, Plugin: "shelf", Suffix: "a", Settings: map[string]string{"dir": "/x"}}},
		"settings of no name":  {settings: seed, wrong: "the annotation terrier.dev/backend-settings needs the annotation terrier.dev/backend"},
		"no object":            {backend: "aws", settings: `["s3"]`, wrong: "the annotation terrier.dev/backend-settings is no JSON object of texts"},
		"two places":           {backend: "aws", settings: seed, config: &v1alpha2.BackendConfig{}, wrong: "the annotation terrier.dev/backend says where the state is, and so does the spec"},
		"a setting is missing": {backend: "aws", settings: `{"s3": "store"}`, wrong: "the annotation terrier.dev/backend-settings: the setting region is missing"},
		"credentials":          {backend: "aws", settings: `{"access_key": "x"}`, wrong: "the setting access_key is not one of bucket, s3, region, key, dynamodb_table, dynamoDB, use_lockfile, kms_key_id, endpoint, dynamodb_endpoint. Credentials are in the environment of the run"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "team", Annotations: map[string]string{}}}
			obj.Spec = v1alpha2.TerraformSpec{SourceRef: &v1alpha2.SourceRef{Kind: "GitRepository", Name: "s"}, BackendConfig: c.config}
			if c.backend != "" {
				obj.Annotations[Backend] = c.backend
			}
			if c.settings != "" {
				obj.Annotations[BackendSettings] = c.settings
			}
			st, err := Dialect{}.Decode(obj)
			if c.wrong != "" {
				if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("Decode() error = %v, want %q", err, c.wrong)
				}
				return
			}
			if diff := cmp.Diff(c.want, st.Configuration.Backend); err != nil || diff != "" {
				t.Errorf("Decode() = %v, (-want +got):\n%s", err, diff)
			}
		})
	}
}
