package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// A5, D-05: what depends on a stack is made when the stack is ready for the spec
// that it has now, and not before.
func TestDependentsWaitForTheStack(t *testing.T) {
	l := newLab(t)
	l.tenant("manifests:" + terraform("db", "timeoutSeconds: 60") + "deployments:" + deployment("app", 1, "dependIds: [db]"))
	l.look()
	l.wantStates("at first", "db Progressing NotReady; app Pending DependencyNotReady")
	l.wantThere("Deployment", "acme-app", false)

	l.stackIs("acme-db", "True", "Ready", "applied", 1)
	l.look()
	l.wantStates("with a status of an older generation", "db Progressing NotReady; app Pending DependencyNotReady")

	l.later(2 * time.Minute)
	l.look()
	l.wantStates("after the timeout", "db Failed ReadinessTimeout; app Skipped DependencySkipped")
	if s := l.get().Status; s.FailedResources != 1 || s.SkippedResources != 1 || !slices.Equal(s.SkippedResourceIDs, []string{"app"}) {
		t.Errorf("failed, skipped = %d, %v, want 1, [app]", s.FailedResources, s.SkippedResourceIDs)
	}
	for _, reason := range []string{"ReadinessTimeout", "DependencySkipped"} {
		if n := l.heard.count("Warning " + reason); n != 1 {
			t.Errorf("%s was told %d times, want once", reason, n)
		}
	}

	l.stackIs("acme-db", "True", "Ready", "applied", 0)
	l.look()
	l.wantStates("once the stack is ready", "app Progressing NotReady")
	l.available("acme-app")
	l.look()
	l.wantStates("in the end", "")
	wantCondition(t, l, "Ready", "True", "Reconciled")
	wantCondition(t, l, "Degraded", "False", "Healthy")
}

func wantCondition(t *testing.T, l *lab, kind, status, reason string) {
	t.Helper()
	tenant := l.get()
	for _, c := range tenant.Status.Conditions {
		if c.Type == kind {
			if string(c.Status) != status || c.Reason != reason || c.ObservedGeneration != tenant.Generation {
				t.Errorf("%s = %s/%s of generation %d, want %s/%s of %d: %s", kind, c.Status, c.Reason, c.ObservedGeneration, status, reason, tenant.Generation, c.Message)
			}
			return
		}
	}
	t.Errorf("there is no condition %s", kind)
}

// A13: what is wrong with a module is said on the Tenant, at once.
func TestStalledStackIsSaidOnTheTenant(t *testing.T) {
	l := newLab(t)
	l.tenant("manifests:" + terraform("db"))
	l.look()
	l.stackIs("acme-db", "False", "Stalled", "main.tf:3: two arguments in one line", 0)
	l.look()
	l.wantStates("stalled", "db Failed ResourceFailed")
	tenant := l.get()
	if got := tenant.Status.Resources[0].Message; !strings.Contains(got, "main.tf:3: two arguments in one line") {
		t.Errorf("the message of the resource is %q", got)
	}
	wantCondition(t, l, "Degraded", "True", "ResourceFailures")
	for _, c := range tenant.Status.Conditions {
		if c.Type == "Degraded" && !strings.Contains(c.Message, "main.tf:3") {
			t.Errorf("Degraded says %q", c.Message)
		}
	}
}

// skipOnDependencyFailure false goes on, and says so once.
func TestProceedingInSpiteOfAFailure(t *testing.T) {
	l := newLab(t)
	l.tenant("manifests:" + terraform("db", "timeoutSeconds: 60") + "configMaps:" + configMap("app", "dependIds: [db]", "skipOnDependencyFailure: false"))
	l.look()
	l.wantThere("ConfigMap", "acme-app", false)
	l.later(2 * time.Minute)
	l.look()
	l.wantThere("ConfigMap", "acme-app", true)
	l.look()
	if n := l.heard.count("DependencyFailedButProceeding"); n != 1 {
		t.Errorf("DependencyFailedButProceeding was told %d times, want once", n)
	}
}

// L-03: what is asked to have no replicas is ready when it has none.
func TestNoReplicasAreReady(t *testing.T) {
	l := newLab(t)
	l.tenant("deployments:" + deployment("app", 0))
	l.look()
	l.available("acme-app")
	l.look()
	l.wantStates("without replicas", "")
}

// A8: what was made once is not written again when its template changes.
func TestOnce(t *testing.T) {
	l := newLab(t)
	l.tenant("manifests:" + terraform("db", "creationPolicy: Once"))
	l.look()
	before := l.child("Terraform", "acme-db")
	l.tenant("manifests:" + strings.Replace(terraform("db", "creationPolicy: Once"), "5m", "7m", 1))
	l.look()
	if got := l.child("Terraform", "acme-db"); got.GetResourceVersion() != before.GetResourceVersion() {
		t.Error("it was written again")
	}
	l.wantStates("and it is judged", "db Progressing NotReady")
	if err := l.Client.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	l.look()
	got := l.child("Terraform", "acme-db")
	if got == nil || got.GetUID() == before.GetUID() {
		t.Fatal("what was deleted by hand was not made again")
	}
	if interval, _, _ := unstructured.NestedString(got.Object, "spec", "interval"); interval != "7m" {
		t.Errorf("what was made again has interval %s, want 7m", interval)
	}
}

// Drift is repaired, and a restarted controller does not write what is already
// right.
func TestWhenNeeded(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config"))
	l.look()
	l.edit("ConfigMap", "acme-config", func(o map[string]any) { o["data"] = map[string]any{"host": "mallory"} })
	// A field that another manager has taken is a conflict, unless force is set.
	l.look()
	l.wantStates("after an edit", "config Conflicted ResourceConflict")
	l.tenant("configMaps:" + configMap("config", "conflictPolicy: Force"))
	l.look()
	l.wantStates("with Force", "")
	if got, _, _ := unstructured.NestedString(l.child("ConfigMap", "acme-config").Object, "data", "host"); got != "acme.example.com" {
		t.Errorf("data.host = %q, want acme.example.com", got)
	}
	l.restart()
	l.line.since()
	l.look()
	for _, r := range l.line.since() {
		if !strings.HasPrefix(r, "GET ") && !strings.Contains(r, "dryRun") {
			t.Errorf("a restart made the request %s", r)
		}
	}
}

// D-09: an object of another controller is a conflict, not a failure to apply.
func TestObjectOfAnotherControllerIsAConflict(t *testing.T) {
	l := newLab(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "owner"}}
	if err := l.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if err := l.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "acme-config",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}}}); err != nil {
		t.Fatal(err)
	}
	l.tenant("configMaps:" + configMap("config") + configMap("more", "dependIds: [config]"))
	l.look()
	l.wantStates("with a foreign object", "config Conflicted ResourceConflict; more Skipped DependencySkipped")
	wantCondition(t, l, "Conflicted", "True", "ResourceConflict")
	wantCondition(t, l, "Ready", "False", "ResourcesConflicted")
	if n := l.heard.count("Warning ResourceConflict"); n != 1 {
		t.Errorf("ResourceConflict was told %d times, want once", n)
	}
	l.deleteTenant()
	l.look()
	if !l.gone() {
		t.Errorf("the tenant is still there: %s", l.states())
	}
	l.wantThere("ConfigMap", "acme-config", true)
}

// D-14: the series of a tenant go with it.
func TestSeriesGoWithTheirTenant(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config"))
	l.look()
	if n := l.series(); n != 8 { // four gauges, four conditions
		t.Errorf("%d series of the tenant, want 8", n)
	}
	l.deleteTenant()
	l.look()
	if n := l.series(); n != 0 {
		t.Errorf("%d series of a tenant that is gone", n)
	}
}

// Where a tenant may not write, it does not, and says the way out.
func TestOtherNamespacesAreRefused(t *testing.T) {
	l := newLab(t)
	there := strings.Replace(configMap("config"), "  spec:", "  targetNamespace: kube-public\n  spec:", 1)
	l.tenant("configMaps:" + there + "namespaces:\n- id: space\n  nameTemplate: \"{{ .uid }}-space\"\n  spec: {apiVersion: v1, kind: Namespace}")
	l.look()
	l.wantStates("in another namespace", "config Failed NamespaceNotAllowed; space Failed NamespaceNotAllowed")
	if got := l.get().Status.Resources[0].Message; !strings.Contains(got, "--tenant-namespaces") || !strings.Contains(got, "serviceAccountName") {
		t.Errorf("the message is %q, want it to say the way out", got)
	}
	l.c.observer.Namespaces = []string{"kube-*"}
	l.later(time.Hour)
	l.look()
	l.wantStates("where it is allowed", "space Failed NamespaceNotAllowed")
	l.deleteTenant()
	l.look()
	if !l.gone() {
		t.Errorf("the tenant is still there: %s", l.states())
	}
}

// What a ServiceAccount may not do is said with its name, the verb and the kind.
func TestForbiddenNamesTheServiceAccount(t *testing.T) {
	l := newLab(t)
	l.tenant("serviceAccountName: nobody\nconfigMaps:" + configMap("config"))
	l.look()
	l.wantStates("without rights", "config Failed Forbidden")
	got := l.get().Status.Resources[0].Message
	for _, want := range []string{"ServiceAccount " + l.Namespace + "/nobody", "ConfigMap", "configmaps"} {
		if !strings.Contains(got, want) {
			t.Errorf("the message %q does not say %s", got, want)
		}
	}
}

// A user who may write a template, but not read a Secret elsewhere, learns nothing
// of it: not by readyWhen, not by a guess that causes no conflict, and not by what
// another tenant has made once.
func TestAnAccountTellsWhatItMaySee(t *testing.T) {
	l := newLab(t)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: l.Namespace + "-"}}
	if err := l.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: other.Name, Name: "theirs", Annotations: map[string]string{tenantsv1.AnnotationCreatedOnce: "true"},
	}, StringData: map[string]string{"pin": "1234"}}
	if err := l.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	const entry = `
- {id: %s, nameTemplate: %s, targetNamespace: %s, %s, spec: {apiVersion: v1, kind: Secret, stringData: {pin: "%s"}}}`
	l.tenant("serviceAccountName: nobody\nsecrets:" +
		fmt.Sprintf(entry, "once", "theirs", other.Name, `creationPolicy: Once, readyWhen: "object.data.pin != ''"`, "1234"))
	l.look()
	l.wantStates("what was made once", "once Failed Forbidden")
	told := l.get().Status.Resources[0].Message
	for name, guess := range map[string]string{"theirs": "4321", "absent": "1234"} {
		l.tenant("serviceAccountName: nobody\nsecrets:" + fmt.Sprintf(entry, "once", name, other.Name, "patchStrategy: merge", guess))
		l.look()
		got := strings.ReplaceAll(l.get().Status.Resources[0].Message, name, "theirs")
		if got != told {
			t.Errorf("with %s and %s, it is said:\n%s\nwant:\n%s", name, guess, got, told)
		}
	}
}

// What the row holds is in no message: not as it is, and not as others quote it,
// take it apart or cut it.
func TestValuesOfRowsAreInNoMessage(t *testing.T) {
	const key = "-----BEGIN KEY-----\nMIIs3cr3t\"line+one/ABC\nMIIs3cr3t line two\n-----END KEY-----"
	long := "s3cr3t!" + strings.Repeat("x", 200)
	l := newLab(t)
	values, err := json.Marshal(map[string]string{"token": "no address, s3cr3t!", "key": key, "long": long})
	if err != nil {
		t.Fatal(err)
	}
	service := func(id, spec string) string {
		return "\n- id: " + id + "\n  nameTemplate: \"{{ .uid }}-" + id + "\"\n  spec: {apiVersion: v1, kind: Service, spec: {" + spec + ", ports: [{port: 80}]}}"
	}
	l.tenant("services:"+service("web", `clusterIP: "{{ .token }}"`)+service("key", `clusterIP: "{{ .key }}"`)+service("one", `clusterIP: '{{ .key | splitList "\n" | rest | first }}'`)+
		"\nconfigMaps:"+configMap("label", `labelsTemplate: {x: "{{ .key }}"}`)+configMap("cut", `labelsTemplate: {x: "a {{ .long }}"}`)+configMap("fail", `labelsTemplate: {x: "{{ fail .long }}"}`),
		"kubernetes-tenants.org/extra: "+strconv.Quote(string(values)))
	l.look()
	l.wantStates("refused by the server or by us", "web Failed ApplyFailed; key Failed ApplyFailed; one Failed ApplyFailed; "+
		"label Failed TemplateRenderError; cut Failed TemplateRenderError; fail Failed TemplateRenderError")
	if text := l.text(); strings.Contains(text, "s3cr3t") {
		t.Errorf("the status holds a value of the row: %s", text)
	}
	if l.heard.count("s3cr3t") > 0 {
		t.Error("an event holds a value of the row")
	}
}

// A row that is not there yet, or not readable, changes nothing. It is written
// after its Tenant, so that for the first moments that is no failure.
func TestWithoutARowNothingGoes(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config"))
	l.look()
	l.tenant("configMaps:"+configMap("config"), "terrier.dev/row: other")
	l.look()
	wantCondition(t, l, "Ready", "True", "Reconciled")
	l.later(rowTimeout)
	l.look()
	l.wantThere("ConfigMap", "acme-config", true)
	wantCondition(t, l, "Ready", "False", "VariablesBuildError")
	wantCondition(t, l, "Degraded", "True", "VariablesBuildError")
}

// keeper has one Secret.
type keeper struct {
	client.Reader
	secret corev1.Secret
}

func (k keeper) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	k.secret.DeepCopyInto(o.(*corev1.Secret))
	return nil
}

// The row of a former Tenant of this name, whose Secret is still to be collected,
// is not taken for the one that is on its way, which may say something else.
func TestTheRowOfAFormerTenantIsNotTaken(t *testing.T) {
	former, now := &tenantsv1.Tenant{}, &tenantsv1.Tenant{}
	former.UID, now.UID = "former", "now"
	now.Annotations = map[string]string{tenantsv1.AnnotationRow: "coming"}
	data, err := tenantapi.RowData(tenant.Row{UID: "acme", HostOrURL: "https://acme.example.com", Activate: "1"})
	if err != nil {
		t.Fatal(err)
	}
	of := func(owner *tenantsv1.Tenant) keeper {
		refs := []metav1.OwnerReference{*metav1.NewControllerRef(owner, tenantsv1.GroupVersion.WithKind(tenantsv1.TenantKind))}
		return keeper{secret: corev1.Secret{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refs}, Type: tenantapi.RowSecretType, Data: data}}
	}
	if row, err := readRow(t.Context(), of(former), now); fault.Of(err) != fault.Later {
		t.Errorf("the row of the former one: %+v, %v; want that it is not there yet", row, err)
	}
	if row, err := readRow(t.Context(), of(now), now); err != nil || row.UID != "acme" {
		t.Errorf("its own row: %+v, %v", row, err)
	}
}

// A Tenant that was just made says nothing of a row that is on its way.
func TestARowOnItsWayIsNoFailure(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:"+configMap("config"), "terrier.dev/row: coming")
	l.look()
	if s := l.get().Status; len(s.Conditions) > 0 || len(s.Resources) > 0 {
		t.Errorf("it is said: %s", l.text())
	}
	if n := l.heard.count("VariablesBuildError"); n > 0 {
		t.Errorf("%d events tell of the missing row", n)
	}
}
