package command_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// lynqKinds installs definitions of Lynq's kinds that take any spec.
func lynqKinds(t *testing.T, c client.Client) {
	t.Helper()
	yes := true
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	for _, kind := range []string{"LynqHub", "LynqForm", "LynqNode"} {
		plural := strings.ToLower(kind) + "s"
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".operator.lynq.sh"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "operator.lynq.sh", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything}}}}},
			},
		}
		// Those of the test before go once the server has seen that nothing has them.
		testkit.Eventually(t, testkit.Patience, kind+" is installed", func(ctx context.Context) error { return c.Create(ctx, crd) })
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
			defer cancel()
			if err := c.Delete(ctx, crd); err != nil {
				t.Logf("deleting the definition of %s: %v", kind, err)
			}
		})
		testkit.Eventually(t, testkit.Patience, kind+" is served", func(ctx context.Context) error {
			var list unstructured.UnstructuredList
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: "operator.lynq.sh", Version: "v1", Kind: kind + "List"})
			return c.List(ctx, &list)
		})
	}
}

const lynqManifest = `
apiVersion: operator.lynq.sh/v1
kind: LynqHub
metadata: {name: customers, labels: {team: shop, operator.lynq.sh/x: z}}
spec:
  source: {type: mysql, syncInterval: 1m, mysql: {host: db, port: 3306, username: reader, database: shop, table: customers, passwordRef: {name: db, key: password}}}
  valueMappings: {uid: id, activate: active}
  extraValueMappings: {plan: plan}
---
apiVersion: operator.lynq.sh/v1
kind: LynqForm
metadata: {name: web, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}
spec:
  hubId: customers
  rollout: {maxSkew: 3}
  dashboard: {color: blue}
  deployments:
  - id: app
    nameTemplate: "{{ .uid }}-{{ .hubId }}"
    skipOnDependencyFailure: false
    spec: {apiVersion: apps/v1, kind: Deployment, metadata: {annotations: {note: "about .hubId"}}, spec: {replicas: "{{ .plan | int }}"}}
---
apiVersion: operator.lynq.sh/v1
kind: LynqNode
metadata: {name: acme-web}
spec: {uid: acme, templateRef: web}
`

// What Lynq has is said in the words of here, with a note wherever something is
// different, and the API server takes it.
func TestImportLynq(t *testing.T) {
	h := hall{Cluster: testkit.Kube(t, tenantsv1.AddToScheme, apiextensionsv1.AddToScheme)}
	h.Tenants, h.kube = h.as(t, h.Config)
	if _, err := h.ImportLynq(t.Context(), h.Namespace); fault.Reason(err, "") != query.ReasonNoLynq {
		t.Errorf("without Lynq, ImportLynq is %v", err)
	}
	lynqKinds(t, h.Client)
	h.Apply(t, lynqManifest)
	i, err := h.ImportLynq(t.Context(), h.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	if len(i.Objects) != 2 || i.Nodes != 1 {
		t.Fatalf("%d objects and %d nodes, want 2 and 1", len(i.Objects), i.Nodes)
	}
	text, err := i.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Terrier has no field spec.dashboard", ".hubId became .registryId", "int, float or bool", "note: about .hubId", "suspend: true", "{{ .uid }}-{{ .registryId }}"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the manifest does not say %q:\n%s", want, text)
		}
	}
	if err := h.WriteImport(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	r := get(t, h, "customers", &tenantsv1.TenantRegistry{})
	if !r.Spec.Suspend || r.Spec.Source.MySQL.PasswordRef.Key != "password" || r.Spec.ExtraValueMappings["plan"] != "plan" || len(r.Labels) != 1 {
		t.Errorf("the registry is %+v", r)
	}
	tpl := get(t, h, "web", &tenantsv1.TenantTemplate{})
	for _, stamp := range kube.Stamps() { // admission writes them for each author
		delete(tpl.Annotations, stamp)
	}
	if tpl.Spec.RegistryID != "customers" || tpl.Spec.Rollout.MaxSkew != 3 || *tpl.Spec.Deployments[0].SkipOnDependencyFailure || len(tpl.Annotations) != 0 {
		t.Errorf("the template is %+v", tpl)
	}
	if err := h.WriteImport(t.Context(), i); fault.Of(err) != fault.Conflict {
		t.Errorf("making them twice is %v, want a conflict", err)
	}
}

// The command names what Terrier refuses before it creates anything, and leaves out
// what no controller would read.
func TestImportSaysWhatWillBeRefused(t *testing.T) {
	h := hall{Cluster: testkit.Kube(t, tenantsv1.AddToScheme, apiextensionsv1.AddToScheme)}
	h.Tenants, h.kube = h.as(t, h.Config)
	lynqKinds(t, h.Client)
	h.Apply(t, `
apiVersion: operator.lynq.sh/v1
kind: LynqHub
metadata: {name: customers}
spec:
  source: {type: mysql, syncInterval: 1m, mysql: {host: db, port: 3306, username: reader, database: shop, table: "customers WHERE live", charset: utf8}}
  valueMappings: {uid: id, activate: active}
---
apiVersion: operator.lynq.sh/v1
kind: LynqForm
metadata: {name: lost}
spec: {hubId: nobody, configMaps: {}}
---
apiVersion: operator.lynq.sh/v1
kind: LynqForm
metadata: {name: web}
spec:
  hubId: customers
  configMaps:
  - {id: a, fancy: true, nameTemplate: "{{ .uid }}", spec: {apiVersion: v1, kind: ConfigMap, data: {at: "{{ now }}", plan: "{{ .plan }}"}}}
---
apiVersion: operator.lynq.sh/v1
kind: LynqForm
metadata: {name: zero}
spec: {hubId: nobody}
`)
	i, err := h.ImportLynq(t.Context(), h.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	text, err := i.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`# ! the API server will refuse it: spec.source.mysql: table "customers WHERE live" is not the name of a table`,
		"# ! Terrier has no field spec.source.mysql.charset, so it was left out",
		"# ! Terrier has no field spec.configMaps[0].fancy, so it was left out",
		"# ! the API server will refuse it: a: spec.data.at: the function now is refused",
		"# ! the API server will refuse it: a: spec.data.plan: there is no variable plan",
		"# ! this namespace has no LynqHub nobody for it",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the manifest does not say %q:\n%s", want, text)
		}
	}
	if n := strings.Count(string(text), "the API server will refuse it"); n != 4 {
		t.Errorf("%d things will be refused, want 4: %s", n, text)
	}
	for _, left := range []string{"charset:", "fancy:"} {
		if strings.Contains(string(text), left) {
			t.Errorf("the manifest still has %s\n%s", left, text)
		}
	}
}

// What docs/migrate-from-tenant-operator.md tells people to do with the fields
// of an object of Lynq: with the manager renamed, a later change is no conflict,
// and nothing of the object is written for it but metadata.
func TestFieldsOfLynqChangeHands(t *testing.T) {
	c := testkit.Kube(t)
	object := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": c.Namespace, "name": "acme-config"}, "data": map[string]any{"plan": value}}}
	}
	apply := func(o *unstructured.Unstructured, manager string) error {
		return c.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager))
	}
	if err := apply(object("gold"), "lynq-operator"); err != nil {
		t.Fatal(err)
	}
	if err := apply(object("silver"), tenantsv1.FieldManager); !apierrors.IsConflict(err) {
		t.Fatalf("before, a change is %v, want a conflict", err)
	}
	o := object("")
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	fields := o.GetManagedFields()
	for i := range fields {
		if fields[i].Manager == "lynq-operator" {
			fields[i].Manager = tenantsv1.FieldManager
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.GetResourceVersion(), "managedFields": fields}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(o.Object, "data", "plan"); got != "gold" {
		t.Errorf("the object says %q by then, want what it said", got)
	}
	if err := apply(object("silver"), tenantsv1.FieldManager); err != nil {
		t.Errorf("afterwards, a change is %v", err)
	}
}
