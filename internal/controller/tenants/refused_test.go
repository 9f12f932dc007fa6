package tenants

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// keeping has the API server refuse to delete objects of a resource in the test's
// namespace, and returns what takes that back. Probe is one that is there; it is
// not deleted.
func keeping(t *testing.T, c *testkit.Cluster, group, version, resource string, probe client.Object) (stop func()) {
	t.Helper()
	name := "keep-" + resource + "." + c.Namespace
	always := metav1.ObjectMeta{Name: name}
	fail := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: always, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.Namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Delete},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
			}}},
		},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "the auditors want to see it first"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: always, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	for _, o := range []client.Object{policy, binding} {
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	gone := false
	takeBack := func(ctx context.Context) error {
		if gone {
			return nil
		}
		gone = true
		return errors.Join(c.Client.Delete(ctx, binding), c.Client.Delete(ctx, policy))
	}
	t.Cleanup(func() {
		if err := takeBack(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	refused := func(want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			err := c.Client.Delete(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
			if got := err != nil && strings.Contains(err.Error(), "auditors"); got != want {
				return errors.New("the API server does not do so yet")
			}
			return nil
		}
	}
	testkit.Eventually(t, testkit.Patience, "deletions are refused", refused(true))
	return func() {
		t.Helper()
		if err := takeBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, testkit.Patience, "deletions are let through", refused(false))
	}
}

// An object whose deletion the API server denies is reported with the server's
// message and the time of the next attempt. It is deleted when the server allows it.
func TestADeletionThatIsRefusedSaysByWhat(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config"))
	l.look()
	stop := keeping(t, l.Cluster, "", "v1", "configmaps", l.child("ConfigMap", "acme-config"))
	l.deleteTenant()
	result := l.look()
	l.wantStates("while its deletion is refused", "config Deleting "+tenant.CleanupFailed)
	s := l.get().Status
	for _, want := range []string{"ConfigMap " + l.Namespace + "/acme-config", "ValidatingAdmissionPolicy 'keep-configmaps." + l.Namespace + "'", "the auditors want to see it first", "retries the deletion by itself"} {
		if !strings.Contains(s.Resources[0].Message, want) {
			t.Errorf("it says %q, want %q in it", s.Resources[0].Message, want)
		}
	}
	wantCondition(t, l, "Degraded", "True", "ResourceFailures")
	if c := meta.FindStatusCondition(s.Conditions, "Degraded"); c == nil || !strings.Contains(c.Message, "the auditors want to see it first") {
		t.Errorf("Degraded says %+v, want who refuses it", c)
	}
	if s.Resources[0].NextAttempt == nil || result.RequeueAfter <= 0 || result.RequeueAfter > firstPause {
		t.Errorf("it is looked at again after %s, and says %v; want another attempt within %s", result.RequeueAfter, s.Resources[0].NextAttempt, firstPause)
	}
	if n := l.heard.count("auditors"); n != 1 {
		t.Errorf("it was told %d times, want once:\n%s", n, strings.Join(l.heard.all, "\n"))
	}
	stop()
	l.later(firstPause)
	l.look()
	if !l.gone() {
		t.Errorf("nothing refuses it, and it is still there: %s", l.text())
	}
}

// A Tenant whose deletion the API server denies is reported by its registry, and is
// also deleted when the server allows it.
func TestATenantThatMayNotGoIsSaid(t *testing.T) {
	o := newOffice(t)
	o.insert(12)
	o.open()
	o.sync()
	tenants := o.tenants()
	probe := tenants["a001-web"]
	stop := keeping(t, o.Cluster, tenantsv1.GroupVersion.Group, "v1", "tenants", &probe)
	o.set("a000", "https://a000.example.com", "0", "gold")
	o.annotate(o.registry(), tenantsv1.AnnotationSyncNow, "now")
	o.eventually("it is said who refuses it", func() error {
		for _, e := range o.registry().Status.RowErrors {
			if e.UID == "a000" && e.Reason == rowRefused && strings.Contains(e.Message, "the auditors want to see it first") && strings.Contains(e.Message, "by itself") {
				return nil
			}
		}
		return errors.New("status.rowErrors does not say so")
	})
	stop()
	o.eventually("the tenant goes and nothing more is said", func() error {
		if _, there := o.tenants()["a000-web"]; there || len(o.registry().Status.RowErrors) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// What the API server says of a long value ends with the error, and so does the
// message about the object.
func TestALongRefusalKeepsItsEnd(t *testing.T) {
	l := newLab(t)
	key := strings.Repeat("k", 1000)
	l.tenant("configMaps:\n- id: c\n  nameTemplate: \"{{ .uid }}-c\"\n  spec:\n    apiVersion: v1\n    kind: ConfigMap\n    data:\n      ? " + key + "\n      : x")
	l.look()
	l.wantStates("with a long key", "c Failed ApplyFailed")
	got := l.get().Status.Resources[0].Message
	if !strings.HasPrefix(got, `ConfigMap "acme-c" is invalid: data[kkk`) || !strings.HasSuffix(got, "must be no more than 253 characters") || len(got) > messageBytes {
		t.Errorf("the message has %d bytes: %s", len(got), got)
	}
	ready := meta.FindStatusCondition(l.get().Status.Conditions, "Degraded")
	if !strings.HasSuffix(ready.Message, "must be no more than 253 characters") {
		t.Errorf("the condition is %s", ready.Message)
	}
}
