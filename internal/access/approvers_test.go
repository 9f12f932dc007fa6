package access_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// With the policy of the page, approvers approve and do nothing else, in namespaces with its
// label. Operators change stacks as before.
func TestApproversOnlyApprove(t *testing.T) {
	page, err := os.ReadFile("../../docs/rbac.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(name string) string {
		found := regexp.MustCompile("(?s)<!-- test: " + name + " -->\n```yaml\n(.*?)\n```").FindSubmatch(page)
		if found == nil {
			t.Fatalf("the page has no %s", name)
		}
		return string(found[1])
	}
	c := testkit.Kube(t)
	prefix := c.Namespace + "-" // other tests have the roles of the page, too
	roles := strings.ReplaceAll(block("roles"), "name: terrier-", "name: "+prefix)
	for _, o := range c.Apply(t, roles+"\n---\n"+block("approvers")) {
		t.Cleanup(func() {
			if err := c.Client.Delete(context.Background(), o); err != nil {
				t.Errorf("taking back %s: %v", o.GetName(), err)
			}
		})
	}
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName(c.Namespace)
	if err := c.Client.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"terrier.dev/approvers":"only-approve"}}}`))); err != nil {
		t.Fatal(err)
	}
	stack := c.Apply(t, "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: net, labels: {a: b}, annotations: {guard.terrier.dev/maxDestroys: '0'}}\nspec: {interval: 1h, path: ./a, approvePlan: wait, sourceRef: {kind: GitRepository, name: code}}\n")[0]
	as := func(role string) client.Client {
		user := role + "-of-" + c.Namespace
		bound := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: c.Namespace},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: prefix + role},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}}
		if err := c.Client.Create(t.Context(), bound); err != nil {
			t.Fatal(err)
		}
		config := rest.CopyConfig(c.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		out, err := client.New(config, client.Options{Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper()})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	approver, operator := as("approver"), as("operator")
	try := func(who client.Client, patch string) error {
		return who.Patch(t.Context(), stack.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	const path = `{"spec":{"path":"./b"}}`
	testkit.Eventually(t, testkit.Patience, "the policy is in force", func(context.Context) error {
		if err := try(approver, path); err == nil || !strings.Contains(err.Error(), "you may approve plans of this stack, and not change its spec") {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	for name, tt := range map[string]struct{ patch, refused string }{
		"a plan":            {`{"spec":{"approvePlan":"plan-main-1"}}`, ""},
		"a plan by digest":  {`{"spec":{"approvePlan":"sha256:abc"}}`, ""},
		"no plan":           {`{"spec":{"approvePlan":null}}`, ""},
		"a second approval": {`{"metadata":{"annotations":{"terrier.dev/confirm":"plan-main-1","terrier.dev/comment":"fine"}}}`, ""},
		"a rejection":       {`{"metadata":{"annotations":{"terrier.dev/rejected":"plan-main-1"}}}`, ""},
		"a new plan":        {`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`, ""},
		"all plans":         {`{"spec":{"approvePlan":"auto"}}`, "not all plans"},
		"the code":          {path, "not change its spec"},
		"a new field":       {`{"spec":{"force":true}}`, "not change its spec"},
		"a field less":      {`{"spec":{"path":null}}`, "not change its spec"},
		"a label":           {`{"metadata":{"labels":{"a":"c"}}}`, "not change its labels or annotations"},
		"a guard":           {`{"metadata":{"annotations":{"guard.terrier.dev/maxDestroys":"9"}}}`, "not change its labels or annotations"},
		"a guard less":      {`{"metadata":{"annotations":{"guard.terrier.dev/maxDestroys":null}}}`, "not change its labels or annotations"},
		"a session":         {`{"metadata":{"annotations":{"break-the-glass.tf-controller/requestedAt":"now"}}}`, "not change its labels or annotations"},
	} {
		err := try(approver, tt.patch)
		if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("the approver changes %s: %v, want %q", name, err, tt.refused)
		}
		if err := try(operator, tt.patch); err != nil {
			t.Errorf("the operator changes %s: %v", name, err)
		}
	}
}
