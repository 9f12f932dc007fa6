package crd_test

import (
	"encoding/json"
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

// The API server keeps each field that the kind had in any of its four lives, in the spec
// and in the status, as each of them wrote it.
func TestEachLifeIsKept(t *testing.T) {
	c := testkit.Kube(t)
	for _, life := range []struct{ name, spec, status string }{
		{
			"v0", `
variables: {var1: value1, var2: value2}
backend: {provider: vault, vaultAddress: "https://vault.example.org"}
scripts: {apply: "terraform apply -auto-approve\n", destroy: "terraform destroy -auto-approve\n"}
gitRepo: {url: "git@git.example.org:org/repo", branch: main, sshKey: none}
containerRegistry: {imageName: registry.example.org/team/infrastructure, secretRef: {name: login}}
`, `{state: Failed, message: exit status 1}`,
		},
		{
			"v1", `
variables: {var1: value1, var2: value2}
backend: {provider: aws, s3: store, dynamoDB: table, region: us-east-1}
scripts:
  apply: {inline: "terraform apply -auto-approve"}
  destroy: {configMapRef: {name: terraform-scripts, key: destroy-script.sh}}
gitRepo: {url: "https://git.example.org/org/repo/terraform", branch: main, sshKeySecret: {name: my-ssh-secret, key: ssh-privatekey}}
containerRegistry: {imageName: registry.example.org/team/infrastructure, secretRef: {name: login, key: config.json}}
`, `{state: Success, message: Successfully applied}`,
		},
		{
			"v2", `
provider: aws
variables: {TF_VAR_workspace: staging, TF_VAR_region: us-east-1}
scripts: {deploy: deploy, destroy: destroy -c}
postDeploy: {script: deploy -a, args: {workspace: TF_VAR_workspace, region: TF_VAR_region}}
gitRepo: {url: "https://git.example.org/org/repo", branch: main}
containerRegistry: {imageName: docker.io/team/infrastructure}
`, `
state: Completed
message: Processing completed successfully
observedGeneration: 1
output: {vpc: {value: vpc-1, sensitive: false}}
ingressURLs: {default: ["https://a.example.org", "https://b.example.org"]}
credentials: {argocdUsername: admin, argocdPassword: none, grafanaUsername: admin, grafanaPassword: none}
cloudResources: {EC2: [{InstanceId: i-1, Tags: [{Key: Blueprint, Value: staging}]}], S3: []}
`,
		},
		{
			"v3", `
environment: staging
variables: {workspace: staging}
scripts: {deploy: deploy, destroy: destroy -c}
postDeploy: {script: report.sh, args: {workspace: workspace}}
containerRegistry: {provider: ghcr, imageName: team/infrastructure, semanticVersion: "~1.0.0"}
`, `
state: Error
message: the run failed
observedGeneration: 1
postDeployOutput: {url: {value: "https://staging.example"}, nested: {value: {list: [1, two, {three: true}]}}}
`,
		},
	} {
		t.Run(life.name, func(t *testing.T) {
			read := func(text string) map[string]any {
				out := map[string]any{}
				if err := yaml.Unmarshal([]byte(text), &out); err != nil {
					t.Fatal(err)
				}
				return out
			}
			o := &unstructured.Unstructured{Object: map[string]any{"spec": read(life.spec)}}
			o.SetAPIVersion("alustan.io/v1alpha1")
			o.SetKind("Terraform")
			o.SetNamespace(c.Namespace)
			o.SetName(life.name)
			if err := c.Client.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			o.Object["status"] = read(life.status)
			if err := c.Client.Status().Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			stored := &unstructured.Unstructured{}
			stored.SetGroupVersionKind(o.GroupVersionKind())
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), stored); err != nil {
				t.Fatal(err)
			}
			for part, want := range map[string]string{"spec": life.spec, "status": life.status} {
				if diff := cmp.Diff(asJSON(t, read(want)), asJSON(t, stored.Object[part])); diff != "" {
					t.Errorf("the API server has another %s (-written +stored):\n%s", part, diff)
				}
			}
		})
	}
}

// asJSON has the numbers of a value as JSON has them.
func asJSON(t *testing.T, value any) (out any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
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
