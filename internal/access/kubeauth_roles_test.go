package access_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// The roles that the page about rights begins with give what it says, and no
// more.
func TestRolesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/rbac.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- test: roles -->\n```yaml\n(.*?)\n```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page holds no roles to test")
	}
	c := testkit.Kube(t)
	for _, role := range c.Apply(t, string(block[1])) {
		t.Cleanup(func() {
			if err := c.Client.Delete(context.Background(), role); err != nil {
				t.Errorf("taking back a role: %v", err)
			}
		})
	}
	auth, err := access.NewKubeAuth(c.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	rights := []access.Request{
		{Verb: "list", Resource: access.ResourceStacks}, {Verb: "get", Resource: access.ResourceLog}, {Verb: "get", Resource: access.ResourcePlan},
		{Verb: "patch", Resource: access.ResourceStacks}, {Verb: "get", Resource: access.ResourceOutputs}, {Verb: "get", Resource: access.ResourceState},
		{Verb: "get", Resource: access.ResourceAudit}, {Verb: "get", Resource: access.ResourceNotifications}, {Verb: "update", Resource: access.ResourceRegistry},
		{Verb: "list", Resource: access.ResourceTenants}, {Verb: "list", Resource: access.ResourceSources},
	}
	for role, may := range map[string]string{ // one letter for each of the rights above
		"viewer":   "yyy------yy",
		"approver": "yyyy-------",
		"operator": "yyyyyyyyyyy",
		"auditor":  "y-----yy---",
	} {
		t.Run(role, func(t *testing.T) {
			user := access.User{Name: role + "-of-" + c.Namespace}
			bound := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: c.Namespace},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "terrier-" + role},
				Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user.Name}}}
			if err := c.Client.Create(t.Context(), bound); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, testkit.Patience, "the role gives what the page says", func(ctx context.Context) error {
				for n, x := range rights {
					x.Namespace = c.Namespace
					got := auth.Authorize(ctx, user, x)
					if k := fault.Of(got); k != fault.None && k != fault.Denied {
						return got
					}
					if (got == nil) != (may[n] == 'y') {
						return fmt.Errorf("%s %s is %v, and the page says %c", x.Verb, x.Resource, got, may[n])
					}
					x.Namespace = "default"
					if auth.Authorize(ctx, user, x) == nil {
						return fmt.Errorf("%s %s holds in another namespace", x.Verb, x.Resource)
					}
				}
				return nil
			})
		})
	}
}
