package command_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Registries and templates are there before any tenant comes from them, with how
// they were set up: by what is written, or by what holds where nothing is.
func TestEstate(t *testing.T) {
	h := newHall(t)
	h.Apply(t, `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: partners}
spec:
  source: {type: mysql, mysql: {host: db, username: reader, database: shop, table: partners}}
  valueMappings: {uid: id, activate: active}
  activeValues: ["yes"]
  guard: {maxDeletions: 3, maxDeletionPercent: 0, gracePeriod: 2h, vanishedRows: Keep, allowEmpty: true}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: batch}
spec:
  registryId: partners
  serviceAccountName: writer
  deletionProtection: true
  rollout:
    maxSkew: 5
    maxFailures: 2
    progressDeadlineSeconds: 120
    waves:
    - {name: canary, selector: {matchLabels: {tier: canary, area: eu}, matchExpressions: [{key: plan, operator: In, values: [gold, silver]}]}}
    - {name: tenth, percent: 10}
  configMaps:
  - {id: config, nameTemplate: "{{ .uid }}-config", spec: {apiVersion: v1, kind: ConfigMap}}
  deployments:
  - {id: app, dependIds: [config], nameTemplate: "{{ .uid }}", spec: {apiVersion: apps/v1, kind: Deployment}}
`)
	ctx := t.Context()
	registries, err := h.Registries(ctx, h.Namespace)
	if err != nil || len(registries) != 2 || registries[0].Name != "customers" || registries[1].Name != "partners" {
		t.Errorf("Registries() = %+v, %v; want both, by name", registries, err)
	}
	templates, err := h.Templates(ctx, h.Namespace)
	if err != nil || len(templates) != 2 || templates[0].Name != "batch" || templates[1].Registry != "customers" || templates[1].Valid != "Unknown" || templates[1].Phase != query.RolloutIdle {
		t.Errorf("Templates() = %+v, %v; want both, by name", templates, err)
	}
	r, err := h.RegistryDetail(ctx, h.key("customers"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(query.GuardInfo{MaxDeletions: 10, MaxPercent: 10, Grace: time.Minute}, r.Guard); diff != "" {
		t.Errorf("the guard of which nothing is said (-want +got):\n%s", diff)
	}
	if want := []query.Mapped{{Variable: "activate", Column: "active"}, {Variable: "hostOrUrl", Column: "url"}, {Variable: "plan", Column: "plan"}, {Variable: "uid", Column: "id"}}; !slices.Equal(r.Mapping, want) {
		t.Errorf("mapping %v, want %v", r.Mapping, want)
	}
	if r, err = h.RegistryDetail(ctx, h.key("partners")); err != nil || !slices.Equal(r.Yes, []string{"yes"}) {
		t.Errorf("active values %v, %v", r.Yes, err)
	}
	if diff := cmp.Diff(query.GuardInfo{AllowEmpty: true, MaxDeletions: 3, Grace: 2 * 3600e9, KeepVanished: true}, r.Guard); diff != "" {
		t.Errorf("the guard (-want +got):\n%s", diff)
	}
	d, err := h.TemplateDetail(ctx, h.key("batch"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []query.WaveInfo{{Name: "canary", Which: "area=eu, tier=canary, plan In gold,silver"}, {Name: "tenth", Percent: 10}}; !slices.Equal(d.Waves, want) {
		t.Errorf("waves %v, want %v", d.Waves, want)
	}
	if d.MaxSkew != 5 || d.MaxFailures != 2 || d.Deadline != 120 || d.Account != "writer" || !d.Protected {
		t.Errorf("TemplateDetail() = %+v, want what is written", d)
	}
	var resources []string
	for _, o := range d.Resources {
		resources = append(resources, o.Kind+" "+o.ID)
	}
	if !slices.Contains(resources, "ConfigMap config") || !slices.Contains(resources, "Deployment app") || len(resources) != 2 {
		t.Errorf("resources %v", resources)
	}
	for name, err := range map[string]error{
		"registry": func() error { _, err := h.RegistryDetail(ctx, h.key("none")); return err }(),
		"template": func() error { _, err := h.TemplateDetail(ctx, h.key("none")); return err }(),
	} {
		if fault.Reason(err, "") != query.ReasonNoSuchThing {
			t.Errorf("a %s that is not there: %v", name, err)
		}
	}
}

// What going back changes can be read before it is done.
func TestUndoingSaysWhatItChanges(t *testing.T) {
	h := newHall(t)
	tpl := get(t, h, "web", &tenantsv1.TenantTemplate{})
	first, err := tenantapi.Revision(tpl)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Client.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	tpl.Spec.ConfigMaps[0].NameTemplate = "{{ .uid }}-broken"
	if err := h.kube.Update(t.Context(), tpl); err != nil {
		t.Fatal(err)
	}
	u, err := h.PlanUndo(t.Context(), h.key("web"), 1)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := u.Diff()
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for _, l := range lines {
		if l.Sign != ' ' {
			changed = append(changed, string(rune(l.Sign))+l.Text)
		}
	}
	if want := []string{"-  nameTemplate: '{{ .uid }}-broken'", "+  nameTemplate: '{{ .uid }}-config'"}; !slices.Equal(changed, want) {
		t.Errorf("Diff() changes %q, want %q", changed, want)
	}
}

// With a cluster, the row is that of a tenant, and types are the cluster's own.
func TestRenderWithTheRowOfATenant(t *testing.T) {
	h := newHall(t)
	h.Apply(t, strings.Replace(hallManifest[strings.LastIndex(hallManifest, "---"):], `template-generation: "1"}`,
		`template-generation: "1", kubernetes-tenants.org/extra: '{"plan":"gold"}'}`, 1))
	r, err := h.Render(t.Context(), h.key("web"), nil, "acme")
	if err != nil || r.Fault() != nil || len(r.Objects) != 1 {
		t.Fatalf("Render() is %+v, %v", r, err)
	}
	text, err := r.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# config\n", "name: acme-config", "plan: gold", "namespace: " + h.Namespace} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the manifest does not say %q:\n%s", want, text)
		}
	}
	if _, err := h.Render(t.Context(), h.key("web"), nil, "nobody"); fault.Of(err) != fault.Missing {
		t.Errorf("of a uid that is not there, Render() is %v", err)
	}
}
