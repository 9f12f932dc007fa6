package app

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/stack"
)

// shown is a stack of the quickstart whose Ready condition says something.
func shown(name string, ready metav1.ConditionStatus, phase stack.Reason, says string) *v1alpha2.Terraform {
	return &v1alpha2.Terraform{
		ObjectMeta: metav1.ObjectMeta{Namespace: exampleNamespace, Name: name},
		Status: v1alpha2.TerraformStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: ready, Reason: string(phase), Message: says}},
			Terrier:    &v1alpha2.TerrierStatus{Phase: string(phase)},
		},
	}
}

// customers is a registry of one row.
func customers() *tenantsv1.TenantRegistry {
	r := &tenantsv1.TenantRegistry{ObjectMeta: metav1.ObjectMeta{Namespace: tenantsNamespace, Name: tenantsRegistry}}
	r.Status.LastRead, r.Status.ReferencingTemplates, r.Status.Desired = &tenantsv1.Read{}, 1, 1
	return r
}

// The reason why an example is not ready is printed with the next step when its time
// is over or a user has to decide, and no sooner.
func TestExamplesThatAreNotReadyAreTold(t *testing.T) {
	stacks := func(ctx context.Context, q example, c client.Reader) { q.awaitStacks(ctx, c, quickstartStacks()) }
	scripted := func(ctx context.Context, q example, c client.Reader) { q.awaitStacks(ctx, c, scriptedStacks()) }
	tenants := func(ctx context.Context, q example, c client.Reader) { q.awaitTenants(ctx, c) }
	blocked := customers()
	blocked.Status.Blocked = &tenantsv1.Blocked{Message: "3 tenants would go"}
	for name, c := range map[string]struct {
		await func(context.Context, example, client.Reader)
		there []client.Object
		fails error
		says  []string
		not   string
		takes time.Duration
	}{
		"ready": {stacks, []client.Object{shown("network", "True", stack.NoDrift, "No drift"), shown("app", "True", stack.NoDrift, "No drift")}, nil,
			[]string{"network: No drift", "app: No drift"}, "explain", 0},
		"held": {stacks, []client.Object{shown("network", "True", stack.NoDrift, "No drift"), shown("app", "Unknown", stack.AwaitingApproval, "Plan waits")}, nil,
			[]string{"app needs your decision: ./terrier explain app -n quickstart"}, "explain network", 0},
		"failed": {stacks, []client.Object{shown("network", "False", stack.RetryLater, "no such provider")}, nil,
			[]string{"network is not ready: no such provider", "./terrier explain network -n quickstart", "app is not ready: it has not been reconciled yet", "./terrier explain app -n quickstart"}, "needs your decision", exampleTime},
		"a script that fails": {scripted, nil, nil,
			[]string{"alustan-inline is not ready: it has not been reconciled yet", "./terrier explain terraform.alustan.io/example-terraformconfig -n alustan-inline"}, "", exampleTime},
		"stacks unread": {stacks, nil, errors.New("the store is full"),
			[]string{"could not be read: the store is full", "./terrier explain network -n quickstart"}, "", 0},
		"a tenant that is not ready": {tenants, []client.Object{customers(), &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: tenantsNamespace, Name: "acme-shop"}}}, nil,
			[]string{"not all tenants are ready: ./terrier tenants -n tenants --not-ready"}, "customers:", tenantsTime},
		"a registry that is held": {tenants, []client.Object{blocked}, nil,
			[]string{"customers: 3 tenants would go", "./terrier rows customers -n tenants"}, "not all", 0},
		"tenants unread": {tenants, nil, errors.New("the store is full"),
			[]string{"could not be read: the store is full", "./terrier tenants -n tenants"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := fake.NewClientBuilder().WithScheme(newScheme(kinds.All())).WithObjects(c.there...).WithInterceptorFuncs(interceptor.Funcs{
					Get: func(ctx context.Context, w client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						if c.fails != nil {
							return c.fails
						}
						return w.Get(ctx, k, o, opts...)
					},
				}).Build()
				var told bytes.Buffer
				began := time.Now()
				c.await(t.Context(), example{progress: &told, program: "./terrier"}, kube)
				if took := time.Since(began); took != c.takes {
					t.Errorf("it took %s, want %s", took, c.takes)
				}
				for _, want := range c.says {
					if !strings.Contains(told.String(), want) {
						t.Errorf("it does not say %q:\n%s", want, &told)
					}
				}
				if c.not != "" && strings.Contains(told.String(), c.not) {
					t.Errorf("it says %q:\n%s", c.not, &told)
				}
			})
		})
	}
}

// Examples that cannot be applied do not end what they are examples of.
func TestExamplesThatCannotBeAppliedStopNothing(t *testing.T) {
	var progress, out bytes.Buffer
	q := example{names: []string{exampleQuickstart}, progress: &progress, out: &out, now: time.Now, program: "./terrier"}
	nowhere := Ready{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), HTTP: "https://127.0.0.1:1"}
	if err := q.run(t.Context(), nowhere, &rest.Config{Host: "https://127.0.0.1:1"}); err != nil {
		t.Errorf("the platform is ended with %v", err)
	}
	for _, want := range []string{"the examples could not be applied completely: pushing the quickstart", "connection refused", "Terrier runs without them"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &progress)
		}
	}
	if out.Len() > 0 {
		t.Errorf("it says what to try with what is not there:\n%s", &out)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	progress.Reset()
	if err := q.run(ended, nowhere, &rest.Config{Host: "https://127.0.0.1:1"}); !errors.Is(err, context.Canceled) || strings.Contains(progress.String(), "not all there") {
		t.Errorf("at the end of the platform run() is %v and says\n%s", err, &progress)
	}
}
