package tenants

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// D-13: what a row holds is in a Secret, and nowhere else.
func TestATenantIsItsTemplateAndItsRowIsASecret(t *testing.T) {
	const canary = `{{ env "HOME" }} canary`
	o := newOffice(t)
	o.set("acme", "https://acme.example.com/"+canary, "1", canary)
	o.open()
	r := o.sync()
	o.wantTenants("after a row", "acme-web")
	got := o.tenants()["acme-web"]
	if strings.Contains(fmt.Sprintf("%+v", got), "canary") {
		t.Errorf("a value of the row is in the Tenant: %+v", got)
	}
	if diff := cmp.Diff(map[string]string{tenantsv1.LabelRegistry: "reg", tenantsv1.LabelUID: "acme"}, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if !slices.Equal(got.Finalizers, []string{tenantsv1.TenantFinalizer}) || !metav1.IsControlledBy(&got, r) {
		t.Errorf("finalizers %v, owners %+v", got.Finalizers, got.OwnerReferences)
	}
	if n := got.Spec.ConfigMaps[0].NameTemplate; n != "{{ .uid }}-config" || got.Annotations[tenantsv1.AnnotationTemplateGeneration] != "1" {
		t.Errorf("nameTemplate is %q, annotations are %v", n, got.Annotations)
	}
	row, err := readRow(t.Context(), o.Client, &got)
	want := tenant.Row{UID: "acme", HostOrURL: "https://acme.example.com/" + canary, Activate: "1", Active: true, Extra: map[string]string{"plan": canary}}
	if diff := cmp.Diff(want, row); diff != "" || err != nil {
		t.Errorf("the row (-want +got):\n%s%v", diff, err)
	}
	var s corev1.Secret
	o.get(tenantapi.RowSecret("acme-web"), &s)
	if s.Type != tenantapi.RowSecretType || !metav1.IsControlledBy(&s, &got) {
		t.Errorf("its Secret: %s %+v", s.Type, s.OwnerReferences)
	}
	if st := r.Status; st.Desired != 1 || st.ReferencingTemplates != 1 || st.LastRead.Rows != 1 || st.LastRead.Active != 1 {
		t.Errorf("status %+v", st)
	}
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionTrue, "DatabaseConnected")
	o.wantCondition(o.ofRegistry, "RowsValid", metav1.ConditionTrue, "RowsValid")
	o.wantCondition(o.ofRegistry, "Guarded", metav1.ConditionFalse, "NothingBlocked")
}

// D-12: what happens to objects leads to no query, and what does not happen to
// no write.
func TestOnlyTimeAndPeopleCauseQueries(t *testing.T) {
	o := newOffice(t)
	o.insert(100)
	o.open()
	o.sync()
	o.eventually("all tenants are there", func() error {
		if n := len(o.tenants()); n != 100 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	queries := o.table.queries()
	o.tenantsAreReady()
	o.eventually("all tenants are counted as ready", func() error {
		if s := o.registry().Status; s.Ready != 100 || s.Failed != 0 {
			return fmt.Errorf("%d of 100 are", s.Ready)
		}
		return nil
	})
	o.template("secrets: [{id: more, nameTemplate: \"{{ .uid }}\", spec: {apiVersion: v1, kind: Secret}}]")
	o.eventually("all tenants have it and are ready", func() error {
		if c := meta.FindStatusCondition(o.ofTemplate(), "Applied"); c.Status != metav1.ConditionTrue || c.ObservedGeneration != 2 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	for name, tn := range o.tenants() {
		if len(tn.Spec.Secrets) != 1 || generationOf(&tn) != 2 {
			t.Fatalf("%s has generation %d of the template", name, generationOf(&tn))
		}
	}
	if s := o.web().Status; s.TotalTenants != 100 || s.ReadyTenants != 100 || s.Rollout.Phase != tenantsv1.RolloutComplete || s.Rollout.GoodGeneration != 2 {
		t.Errorf("the template's status is %+v %+v", s, s.Rollout)
	}
	if n := o.table.queries(); n != queries {
		t.Errorf("%d queries while 100 tenants became ready and their template changed, want none", n-queries)
	}
	o.sync()
	o.writes()
	o.sync()
	if w := o.writes(); len(w) != 1 { // that the annotation was seen
		t.Errorf("a read that finds nothing new leads to writes: %v", w)
	}
}

func TestOneChangedRowIsOneSecretAndOneTenant(t *testing.T) {
	o := newOffice(t)
	o.insert(50)
	o.open()
	o.sync()
	o.eventually("everything is counted", func() error {
		if n := o.web().Status.TotalTenants; n != 50 {
			return fmt.Errorf("%d of 50 are", n)
		}
		return nil
	})
	o.sync()
	o.writes()
	o.set("a007", "https://a007.example.com", "1", "silver")
	o.sync()
	var writes []string
	for _, w := range o.writes() {
		if !strings.HasSuffix(w, "/tenantregistries/reg/status") {
			writes = append(writes, w[:strings.Index(w, " ")]+" "+w[strings.LastIndex(w, "/")+1:])
		}
	}
	if diff := cmp.Diff([]string{"PUT terrier-row-a007-web", "PATCH a007-web"}, writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	tn := o.tenants()["a007-web"]
	if row, err := readRow(t.Context(), o.Client, &tn); err != nil || row.Extra["plan"] != "silver" {
		t.Errorf("its row is %+v, %v", row, err)
	}
}

// D-02: DELETE FROM tenants leads to words, and to what the words allow.
func TestDeletingAllRowsDeletesNothing(t *testing.T) {
	o := newOffice(t)
	o.insert(3)
	o.open()
	o.sync()
	o.wantTenants("with three rows", "a000-web", "a001-web", "a002-web")
	o.delete("a000", "a001", "a002")
	o.sync()
	r := o.sync()
	o.wantTenants("with none", "a000-web", "a001-web", "a002-web")
	c := o.wantCondition(o.ofRegistry, "Guarded", metav1.ConditionTrue, "NoRows")
	b := r.Status.Blocked
	if b == nil || b.Count != 3 || !strings.Contains(c.Message, tenantsv1.AnnotationAllowDeletions+"="+b.Token) {
		t.Fatalf("blocked is %+v, the condition says %q", b, c.Message)
	}
	if n := o.heard.count("DeletionsBlocked"); n != 1 {
		t.Errorf("it was told %d times, want once", n)
	}
	o.annotate(o.registry(), tenantsv1.AnnotationAllowDeletions, b.Token)
	o.wantTenants("after somebody allowed it")
	o.eventually("nothing is blocked", func() error {
		if b := o.registry().Status.Blocked; b != nil {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})
}

// S4 upside down: what is inactive goes, at once.
func TestAnInactiveRowGoes(t *testing.T) {
	o := newOffice(t)
	o.insert(3)
	o.open()
	o.sync()
	o.set("a001", "https://a001.example.com", "0", "gold")
	r := o.sync()
	o.wantTenants("after one was deactivated", "a000-web", "a002-web")
	if o.heard.count("TenantDeleting") != 1 || len(r.Status.Departed) != 1 || r.Status.Departed[0].UID != "a001" {
		t.Errorf("told: %v, departed: %+v", o.heard.all, r.Status.Departed)
	}
}

// F25: counters keep their values, and one event tells.
func TestADatabaseThatIsDownChangesNothing(t *testing.T) {
	o := newOffice(t)
	o.insert(2)
	o.open()
	o.tenantsAreReady()
	o.sync()
	o.eventually("both are ready", func() error {
		if n := o.registry().Status.Ready; n != 2 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	o.table.with(func() { o.table.err = errDown })
	for i := range 2 {
		queries := o.table.queries()
		o.annotate(o.registry(), tenantsv1.AnnotationSyncNow, fmt.Sprint("down ", i))
		o.eventually("it was tried", func() error {
			if o.table.queries() == queries {
				return fmt.Errorf("there was no query")
			}
			return nil
		})
	}
	c := o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionFalse, "DatabaseConnectionFailed")
	if s := o.registry().Status; s.Ready != 2 || s.Desired != 2 || !strings.Contains(c.Message, errDown.Error()) {
		t.Errorf("status %+v", s)
	}
	o.eventually("it is told once", func() error { // after the status
		if n := o.heard.count("DatabaseQueryFailed"); n != 1 {
			return fmt.Errorf("it was told %d times", n)
		}
		return nil
	})
	o.table.with(func() { o.table.err = nil })
	o.sync()
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionTrue, "DatabaseConnected")
	o.wantTenants("after all", "a000-web", "a001-web")
}

// A report that loses against another writer tells nothing, because it is made again.
func TestAReportIsToldOnceItIsWritten(t *testing.T) {
	c := testkit.Kube(t, tenantsv1.AddToScheme)
	o := &office{Cluster: c, t: t, heard: &rumours{}}
	o.open()
	registry := o.registry()
	pass := func(obj *tenantsv1.TenantRegistry) *registryPass {
		return &registryPass{obj: obj, before: obj.DeepCopy(), memory: &remembered{err: errDown}}
	}
	late := pass(registry.DeepCopy())
	registry.Labels = map[string]string{"changed": "meanwhile"}
	if err := c.Client.Update(t.Context(), registry); err != nil {
		t.Fatal(err)
	}
	status := registryStatus{Options{Live: c.Client, Events: o.heard, Now: time.Now}}
	if err := status.report(t.Context(), late); !apierrors.IsConflict(err) {
		t.Fatalf("the late report: %v, want a conflict", err)
	}
	if n := o.heard.count("DatabaseQueryFailed"); n != 0 {
		t.Errorf("a report that was not written was told %d times", n)
	}
	if err := status.report(t.Context(), pass(registry)); err != nil {
		t.Fatal(err)
	}
	if n := o.heard.count("DatabaseQueryFailed"); n != 1 {
		t.Errorf("the report was told %d times, want once", n)
	}
}

func TestRowsThatAreWrongAreNamed(t *testing.T) {
	o := newOffice(t)
	o.insert(1)
	o.table.with(func() {
		o.table.odd = [][4]string{{"", "u", "1", ""}, {"twice", "u", "1", ""}, {"twice", "u", "1", ""}, {"Bad Name", "u", "1", ""}}
	})
	o.open()
	r := o.sync()
	o.wantTenants("with one good row", "a000-web")
	o.wantCondition(o.ofRegistry, "RowsValid", metav1.ConditionFalse, "RowErrors")
	var got []string
	for _, e := range r.Status.RowErrors {
		got = append(got, e.Reason)
	}
	if diff := cmp.Diff([]string{"UIDMissing", "UIDInvalid", "UIDDuplicate"}, got); diff != "" || r.Status.RowErrorCount != 3 {
		t.Errorf("row errors (-want +got):\n%s of %d", diff, r.Status.RowErrorCount)
	}
}

func TestDryRunAndSuspend(t *testing.T) {
	o := newOffice(t)
	o.insert(2)
	o.open("dryRun: true")
	r := o.sync()
	want := &tenantsv1.Changes{Create: 2, Tenants: []string{"+a000-web", "+a001-web"}}
	if diff := cmp.Diff(want, r.Status.DryRun); diff != "" {
		t.Errorf("the dry run (-want +got):\n%s", diff)
	}
	o.wantTenants("after a dry run")
	o.change(func(r *tenantsv1.TenantRegistry) { r.Spec.DryRun, r.Spec.Suspend = false, true })
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionFalse, "Suspended")
	queries := o.table.queries()
	o.annotate(o.registry(), tenantsv1.AnnotationSyncNow, "while suspended")
	o.change(func(r *tenantsv1.TenantRegistry) { r.Spec.Suspend = false })
	o.wantTenants("after it went on", "a000-web", "a001-web")
	if n := o.table.queries(); n != queries+1 {
		t.Errorf("%d queries, want one, when it went on", n-queries)
	}
}

// A running installation of Tenant Operator 1.1.8 is taken over in place.
func TestTakingOverATenant(t *testing.T) {
	o := newOffice(t)
	o.open()
	o.sync()
	reg := o.registry()
	old := &tenantsv1.Tenant{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: "a000-web", Finalizers: []string{tenantsv1.TenantFinalizer},
			Labels: map[string]string{tenantsv1.LabelRegistry: "reg", tenantsv1.LabelUID: "a000", "team": "x"},
			Annotations: map[string]string{
				tenantsv1.AnnotationHostOrURL: "https://a000.example.com", tenantsv1.AnnotationActivate: "1",
				tenantsv1.AnnotationExtra: `{"plan":"canary"}`, tenantsv1.AnnotationTemplateGeneration: "1",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "operator.kubernetes-tenants.org/v1", Kind: "TenantRegistry", Name: "reg", UID: reg.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: tenantsv1.TenantSpec{UID: "a000", TemplateRef: "web"},
	}
	old.Spec.ConfigMaps = slices.Clone(o.web().Spec.ConfigMaps)
	old.Spec.ConfigMaps[0].NameTemplate = "a000-config" // rendered
	old.Spec.Services = slices.Clone(o.web().Spec.ConfigMaps)
	if err := o.Client.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	o.insert(1)
	o.sync()
	o.eventually("it was taken over", func() error {
		got := o.tenants()["a000-web"]
		if got.Annotations[tenantsv1.AnnotationRow] == "" {
			return fmt.Errorf("annotations are %v", got.Annotations)
		}
		if got.UID != old.UID || !cmp.Equal(got.Labels, old.Labels) || !cmp.Equal(got.Finalizers, old.Finalizers) || !cmp.Equal(got.OwnerReferences, old.OwnerReferences) {
			t.Errorf("it is another one: %+v", got.ObjectMeta)
		}
		if strings.Contains(fmt.Sprint(got.Annotations), "canary") || got.Spec.ConfigMaps[0].NameTemplate != "{{ .uid }}-config" || got.Spec.Services != nil {
			t.Errorf("values of its row are left: %+v", got)
		}
		return nil
	})
}

func TestARowsSecretThatIsGoneComesBack(t *testing.T) {
	o := newOffice(t)
	o.insert(1)
	o.open()
	o.sync()
	queries := o.table.queries()
	var s corev1.Secret
	o.get(tenantapi.RowSecret("a000-web"), &s)
	if err := o.Client.Delete(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	o.eventually("it is back", func() error {
		return o.Client.Get(t.Context(), client.ObjectKeyFromObject(&s), &corev1.Secret{})
	})
	if n := o.table.queries(); n != queries {
		t.Errorf("it took %d queries, want none", n-queries)
	}
}

func TestADeletedTenantIsCreatedAgain(t *testing.T) {
	o := newOffice(t)
	o.insert(1)
	o.open()
	o.sync()
	was := o.tenants()["a000-web"]
	if err := o.Client.Delete(t.Context(), &was); err != nil {
		t.Fatal(err)
	}
	o.eventually("there is another", func() error {
		if now := o.tenants()["a000-web"]; now.UID == was.UID || now.UID == "" {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

func TestANotificationReads(t *testing.T) {
	o := newOffice(t)
	o.open()
	o.sync()
	o.insert(1)
	o.eventually("it listens", func() error {
		var notify func()
		o.table.with(func() { notify = o.table.listen[string(o.registry().UID)] })
		if notify == nil {
			return fmt.Errorf("not yet")
		}
		notify()
		return nil
	})
	o.wantTenants("after a notification", "a000-web")
}

// D-14: the series of a registry go with it. And a registry that a person
// deletes takes its tenants with it, but those that are protected.
func TestDeletingARegistry(t *testing.T) {
	o := newOffice(t)
	o.insert(12)
	o.open()
	o.sync()
	if n := o.series(); n == 0 {
		t.Error("the registry has no series")
	}
	kept := o.tenants()["a003-web"]
	o.annotate(&kept, tenantsv1.AnnotationDeletionProtection, "true")
	if err := o.Client.Delete(t.Context(), o.registry()); err != nil {
		t.Fatal(err)
	}
	o.wantTenants("after the registry was deleted", "a003-web")
	o.wantCondition(o.ofRegistry, "Guarded", metav1.ConditionTrue, "DeletionProtected")
	o.annotate(&kept, tenantsv1.AnnotationDeletionProtection, "false")
	o.wantTenants("after the protection was lifted")
	o.eventually("the registry is gone", func() error {
		err := o.Client.Get(t.Context(), client.ObjectKey{Namespace: o.Namespace, Name: "reg"}, &tenantsv1.TenantRegistry{})
		if err == nil || o.series() != 0 {
			return fmt.Errorf("it is there (%v), or its %d series are", err == nil, o.series())
		}
		return client.IgnoreNotFound(err)
	})
}

// series are those of registries.
func (o *office) series() (n int) {
	o.t.Helper()
	families, err := o.metrics.Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.Metric)
	}
	return n
}

func TestEveryRowHasItsTenantWhenTheReadWasActedUpon(t *testing.T) {
	const many = 300
	o := newOffice(t)
	o.insert(many)
	o.open()
	r := o.sync()
	if n := len(o.tenants()); n != many || r.Status.Desired != many {
		t.Errorf("%d of %d tenants are there, %d desired", n, many, r.Status.Desired)
	}
}
