package command_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// hall is a namespace with a registry, a template and a tenant of both.
type hall struct {
	*testkit.Cluster
	kube client.WithWatch
	*command.Tenants
}

const hallManifest = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: mysql, mysql: {host: db, username: reader, database: shop, table: customers}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
  extraValueMappings: {plan: plan}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec:
  registryId: customers
  configMaps:
  - {id: config, nameTemplate: "{{ .uid }}-config", spec: {apiVersion: v1, kind: ConfigMap, data: {plan: "{{ .plan }}"}}}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: Tenant
metadata:
  name: acme-web
  labels: {kubernetes-tenants.org/registry: customers, kubernetes-tenants.org/uid: acme}
  annotations: {kubernetes-tenants.org/template-generation: "1"}
spec:
  uid: acme
  templateRef: web
  configMaps:
  - {id: config, nameTemplate: "{{ .uid }}-config", spec: {apiVersion: v1, kind: ConfigMap, data: {plan: "{{ .plan }}"}}}
  deployments:
  - {id: app, dependIds: [stack, config], nameTemplate: "{{ .uid }}", spec: {apiVersion: apps/v1, kind: Deployment}}
  - {id: extra, includeWhen: "row.plan == 'gold'", nameTemplate: "{{ .uid }}-x", spec: {apiVersion: apps/v1, kind: Deployment}}
  manifests:
  - {id: stack, dependIds: [config], deletionPolicy: Retain, nameTemplate: "{{ .uid }}", spec: {apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, spec: {}}}
`

func newHall(t *testing.T) hall {
	t.Helper()
	h := hall{Cluster: testkit.Kube(t, v1alpha2.AddToScheme, tenantsv1.AddToScheme)}
	h.Apply(t, hallManifest)
	h.Tenants, h.kube = h.as(t, h.Config)
	return h
}

// as is the service for the user of config.
func (h hall) as(t *testing.T, config *rest.Config) (*command.Tenants, client.WithWatch) {
	t.Helper()
	kube, err := access.NewClient(config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	return command.NewTenants(command.New(kube, kinds.All(), nil, func() time.Time { return noon }), config), kube
}

func (h hall) key(name string) query.Key { return query.Key{Namespace: h.Namespace, Name: name} }

func get[T client.Object](t *testing.T, h hall, name string, o T) T {
	t.Helper()
	if err := h.kube.Get(t.Context(), types.NamespacedName{Namespace: h.Namespace, Name: name}, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// stands writes a status as the controller does.
func stands[T client.Object](t *testing.T, h hall, o T, change func()) {
	t.Helper()
	change()
	if err := h.kube.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func because(kind, status, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, LastTransitionTime: metav1.NewTime(noon)}
}

// under way: the ConfigMap is there, the stack is not ready, the Deployment waits.
func (h hall) underWay(t *testing.T) {
	t.Helper()
	h.Apply(t, "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: acme}\nspec: {sourceRef: {kind: GitRepository, name: modules}}\n")
	o := get(t, h, "acme-web", &tenantsv1.Tenant{})
	stands(t, h, o, func() {
		o.Status = tenantsv1.TenantStatus{
			ObservedGeneration: o.Generation, DesiredResources: 3, ReadyResources: 1, TemplateGeneration: 1,
			Conditions: []metav1.Condition{because("Ready", "False", "NotAllResourcesReady")},
			Inventory: []tenantsv1.InventoryItem{
				{ID: "config", Version: "v1", Kind: "ConfigMap", Namespace: h.Namespace, Name: "acme-config"},
				{ID: "stack", Group: "infra.contrib.fluxcd.io", Version: "v1alpha2", Kind: "Terraform", Namespace: h.Namespace, Name: "acme"},
				{ID: "old", Version: "v1", Kind: "Service", Namespace: h.Namespace, Name: "acme-old"},
			},
			Resources: []tenantsv1.ResourceStatus{
				{ID: "stack", State: "Progressing", Reason: tenant.NotReady, Message: "planning", Since: metav1.NewTime(noon)},
				{ID: "app", State: "Pending", Reason: tenant.DependencyNotReady, Since: metav1.NewTime(noon)},
			},
		}
	})
}

// A tenant shows each object in the order of making, what waits for what, what
// its stacks do, and of its row nothing but names.
func TestTenantTree(t *testing.T) {
	h := newHall(t)
	h.underWay(t)
	data, err := tenantapi.RowData(tenant.Row{UID: "acme", HostOrURL: "https://acme", Extra: map[string]string{"plan": "silver", "token": "hunter2"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: tenantapi.RowSecret("acme-web")}, Type: tenantapi.RowSecretType, Data: data}
	if err := h.kube.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	d, err := h.Describe(t.Context(), h.key("acme-web"))
	if err != nil {
		t.Fatal(err)
	}
	type line struct{ ID, State, WaitsFor, Name string }
	var got []line
	for _, o := range d.Objects {
		got = append(got, line{o.ID, o.State, strings.Join(o.WaitsFor, " "), o.Name})
		if (o.Stack != nil) != (o.ID == "stack") {
			t.Errorf("the stack of %s is %v (%s)", o.ID, o.Stack, o.StackUnseen)
		}
	}
	slices.SortStableFunc(got[:2], func(a, b line) int { return strings.Compare(a.ID, b.ID) }) // one level
	want := []line{{"config", "Ready", "", "acme-config"}, {"extra", "LeftOut", "", ""}, {"stack", "Progressing", "", "acme"},
		{"app", "Pending", "stack", ""}, {"old", "Removing", "", "acme-old"}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("the objects are (-got +want):\n%s", diff)
	}
	for _, name := range []string{"host", "hostOrUrl", "plan", "token", "uid"} {
		if !slices.Contains(d.Row.Variables, name) {
			t.Errorf("the variables are %v, want %s among them", d.Row.Variables, name)
		}
	}
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"hunter2", "silver"} {
		if strings.Contains(string(raw), value) {
			t.Errorf("the value %s is shown", value)
		}
	}
	if d.State != query.TenantProgressing || d.Means.Means == "" || len(d.Unseen) > 0 {
		t.Errorf("the tenant is %q, means %q, unseen %q", d.State, d.Means.Means, d.Unseen)
	}
}

// Who may not read Secrets or stacks sees a tenant all the same, and is told what
// is not shown.
func TestTenantAsAUserWithFewRights(t *testing.T) {
	h := newHall(t)
	h.underWay(t)
	user := "visitor-of-" + h.Namespace
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "visitor"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"operator.kubernetes-tenants.org"}, Resources: []string{"tenants"}, Verbs: []string{"get", "list"}}}}
	bound := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "visitor"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}}
	for _, o := range []client.Object{role, bound} {
		if err := h.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(h.Config)
	config.Impersonate.UserName = user
	visitor, _ := h.as(t, config)
	testkit.Eventually(t, testkit.Patience, "the visitor may come in", func(ctx context.Context) error {
		_, err := visitor.Describe(ctx, h.key("acme-web"))
		return err
	})
	d, err := visitor.Describe(t.Context(), h.key("acme-web"))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Unseen) != 3 || len(d.Row.Variables) != 0 || !slices.ContainsFunc(d.Objects, func(o query.TenantObject) bool { return o.StackUnseen != "" }) {
		t.Errorf("unseen is %q, want variables, template, events; objects %+v", d.Unseen, d.Objects)
	}
	list, err := visitor.List(t.Context(), query.TenantFilter{Namespace: h.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || len(list.Alarms) != 2 {
		t.Errorf("the list is %+v, want the tenant and that registries and templates are not shown", list)
	}
	if err := visitor.SuspendRegistry(t.Context(), h.key("customers")); fault.Of(err) != fault.Denied {
		t.Errorf("suspending is %v, want it to be denied by the API server", err)
	}
}

// What holds tenants up is said before all else.
func TestAlarms(t *testing.T) {
	h := newHall(t)
	r := get(t, h, "customers", &tenantsv1.TenantRegistry{})
	stands(t, h, r, func() {
		r.Status.Blocked = &tenantsv1.Blocked{Reason: "TooManyDeletions", Message: "57 of 60", Count: 57, Since: metav1.NewTime(noon), Token: "t1", Tenants: []string{"acme-web"}}
		r.Status.Conditions = []metav1.Condition{because("Ready", "False", "DatabaseConnectionFailed")}
	})
	tpl := get(t, h, "web", &tenantsv1.TenantTemplate{})
	stands(t, h, tpl, func() {
		tpl.Status.Rollout = &tenantsv1.RolloutStatus{Phase: tenantsv1.RolloutFailed, TargetGeneration: 1, Message: "acme-web failed"}
	})
	list, err := h.List(t.Context(), query.TenantFilter{Namespace: h.Namespace, NotReady: true})
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, a := range list.Alarms {
		reasons = append(reasons, a.Reason)
		if !strings.HasPrefix(a.Look, "terrier ") {
			t.Errorf("of %s it is not said where to look: %q", a.Reason, a.Look)
		}
	}
	if want := []string{"TooManyDeletions", "DatabaseConnectionFailed", "RolloutStopped"}; !slices.Equal(reasons, want) {
		t.Errorf("the alarms are %v, want %v", reasons, want)
	}
	if len(list.Items) != 1 || list.Counts[query.TenantNew] != 1 {
		t.Errorf("the list is %+v, want the one tenant, which is new", list)
	}
}

// Deletions that a guard has stopped are let through by what they are: never
// others than those that were shown.
func TestAllow(t *testing.T) {
	h := newHall(t)
	if err := h.Allow(t.Context(), h.key("customers"), "t1"); fault.Reason(err, "") != query.ReasonNotBlocked {
		t.Errorf("with nothing blocked, Allow is %v", err)
	}
	r := get(t, h, "customers", &tenantsv1.TenantRegistry{})
	stands(t, h, r, func() {
		r.Status.Blocked = &tenantsv1.Blocked{Reason: "x", Count: 2, Since: metav1.NewTime(noon), Token: "t2"}
	})
	if err := h.Allow(t.Context(), h.key("customers"), "t1"); fault.Reason(err, "") != query.ReasonTokenChanged {
		t.Errorf("with another set blocked, Allow is %v", err)
	}
	if a := get(t, h, "customers", &tenantsv1.TenantRegistry{}).Annotations[tenantsv1.AnnotationAllowDeletions]; a != "" {
		t.Errorf("%q is allowed, want nothing", a)
	}
	if err := h.Allow(t.Context(), h.key("customers"), "t2"); err != nil {
		t.Fatal(err)
	}
	if a := get(t, h, "customers", &tenantsv1.TenantRegistry{}).Annotations[tenantsv1.AnnotationAllowDeletions]; a != "t2" {
		t.Errorf("%q is allowed, want t2", a)
	}
	v, err := h.Registry(t.Context(), h.key("customers"))
	if err != nil || !v.Blocked.Allowed {
		t.Errorf("the registry is %+v, %v; want it to say that somebody let them pass", v.Blocked, err)
	}
}

func TestReadNow(t *testing.T) {
	h := newHall(t)
	request, err := h.ReadNow(t.Context(), h.key("customers"))
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		query.Registry
		err error
	}
	answers := make(chan answer, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var told []string
	go func() {
		r, err := command.WasRead(ctx, h, h.key("customers"), request, func(what string) { told = append(told, what) })
		answers <- answer{r, err}
	}()
	r := get(t, h, "customers", &tenantsv1.TenantRegistry{})
	stands(t, h, r, func() { r.Status.LastHandledSync = noon.Add(-time.Hour).Format(time.RFC3339Nano) })
	stands(t, h, r, func() {
		r.Status.LastHandledSync = r.Annotations[tenantsv1.AnnotationSyncNow]
		r.Status.LastRead = &tenantsv1.Read{Time: metav1.NewTime(noon), Rows: 3, Active: 2}
	})
	if got := <-answers; got.err != nil || got.Rows != 3 {
		t.Errorf("WasRead() is %+v, %v; want the three rows of the read that was asked for", got.Registry, got.err)
	}
	if len(told) > 0 && !strings.HasPrefix(told[0], "the controller reads the rows of ") {
		t.Errorf("while it waited it was told %q", told)
	}
	if err := h.SuspendRegistry(t.Context(), h.key("customers")); err != nil {
		t.Fatal(err)
	}
	later := noon.Add(time.Hour).Format(time.RFC3339Nano)
	if _, err := command.WasRead(ctx, h, h.key("customers"), later, func(string) {}); fault.Reason(err, "") != query.ReasonRegistryIdle || fault.Of(err) != fault.Invalid {
		t.Errorf("the wait for a registry that is suspended meanwhile ends with %v", err)
	}
	if _, err := h.ReadNow(t.Context(), h.key("customers")); fault.Reason(err, "") != query.ReasonRegistryIdle {
		t.Errorf("of a suspended registry ReadNow is %v", err)
	}
	if err := h.ResumeRegistry(t.Context(), h.key("customers")); err != nil {
		t.Fatal(err)
	}
	short, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	told = nil
	if _, err := command.WasRead(short, h, h.key("customers"), later, func(what string) { told = append(told, what) }); fault.Of(err) != fault.Later || len(told) > 1 {
		t.Errorf("an answer that does not come is %v, want Later; told %q", err, told)
	}
}

// A template becomes what it was in a generation that is kept, unless it has changed
// since the plan of the rollback.
func TestUndo(t *testing.T) {
	h := newHall(t)
	tpl := get(t, h, "web", &tenantsv1.TenantTemplate{})
	if _, err := h.PlanUndo(t.Context(), h.key("web"), 0); fault.Reason(err, "") != query.ReasonNoRevision {
		t.Errorf("with nothing kept, PlanUndo is %v", err)
	}
	first, err := tenantapi.Revision(tpl)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Client.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	good := tpl.Spec.DeepCopy()
	tpl.Spec.ConfigMaps[0].NameTemplate = "{{ .uid }}-broken"
	if err := h.kube.Update(t.Context(), tpl); err != nil {
		t.Fatal(err)
	}
	u, err := h.PlanUndo(t.Context(), h.key("web"), 0)
	if err != nil || u.From != 2 || u.To != 1 || u.Same {
		t.Fatalf("PlanUndo() is %+v, %v; want 2 to become 1", u, err)
	}
	tpl.Spec.ConfigMaps[0].NameTemplate = "{{ .uid }}-other"
	if err := h.kube.Update(t.Context(), tpl); err != nil {
		t.Fatal(err)
	}
	if err := h.Undo(t.Context(), u); fault.Of(err) != fault.Conflict {
		t.Errorf("undoing what has changed since is %v, want a conflict", err)
	}
	if u, err = h.PlanUndo(t.Context(), h.key("web"), 1); err != nil {
		t.Fatal(err)
	}
	// The controller writes to the template at the same time, and changes nothing that was planned.
	counting := interceptor.NewClient(h.kube, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if o := get(t, h, "web", &tenantsv1.TenantTemplate{}); o.Annotations["test"] == "" {
			o.Annotations = map[string]string{"test": "counted"}
			if err := h.kube.Update(ctx, o); err != nil {
				return err
			}
		}
		return c.Patch(ctx, o, p, opts...)
	}})
	if err := command.NewTenants(command.New(counting, kinds.All(), nil, func() time.Time { return noon }), h.Config).Undo(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(get(t, h, "web", &tenantsv1.TenantTemplate{}).Spec, *good); diff != "" {
		t.Errorf("the template is (-got +want):\n%s", diff)
	}
	r, err := h.Rollout(t.Context(), h.key("web"))
	if err != nil || len(r.Generations) != 2 || r.Generations[0].Number != 4 || !r.Generations[1].Kept || r.Generations[1].Tenants != 1 {
		t.Errorf("Rollout() is %+v, %v; want generation 4, and 1 with its tenant", r, err)
	}
}

func TestResumeRollout(t *testing.T) {
	h := newHall(t)
	if _, err := h.ResumeRollout(t.Context(), h.key("web")); fault.Reason(err, "") != query.ReasonNotStopped {
		t.Errorf("with nothing stopped, ResumeRollout is %v", err)
	}
	tpl := get(t, h, "web", &tenantsv1.TenantTemplate{})
	stands(t, h, tpl, func() {
		tpl.Status.Rollout = &tenantsv1.RolloutStatus{Phase: tenantsv1.RolloutFailed, TargetGeneration: 1, FailedNodes: 3}
	})
	if _, err := h.ResumeRollout(t.Context(), h.key("web")); err != nil {
		t.Fatal(err)
	}
	if a := get(t, h, "web", &tenantsv1.TenantTemplate{}).Annotations[tenantsv1.AnnotationRollout]; a != "1-3" {
		t.Errorf("the annotation is %q, want the generation and the failures that were seen", a)
	}
}
