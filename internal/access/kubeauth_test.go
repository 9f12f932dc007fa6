package access_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// reader makes a service account that may do what the rule says in the
// namespace of the test, and returns a token for it.
func reader(t *testing.T, c *testkit.Cluster, rule rbacv1.PolicyRule) secret.Text {
	t.Helper()
	kube, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, meta := t.Context(), metav1.ObjectMeta{Name: "reader", Namespace: c.Namespace}
	if _, err := kube.CoreV1().ServiceAccounts(c.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.RbacV1().Roles(c.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: c.Namespace}}}
	if _, err := kube.RbacV1().RoleBindings(c.Namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.AwaitRights(t, c, "reader", rule)
	token, err := kube.CoreV1().ServiceAccounts(c.Namespace).CreateToken(ctx, "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret.New(token.Status.Token)
}

// To see a stack is one right, to see its log or its plan is another.
func TestKubeAuth(t *testing.T) {
	c := testkit.Kube(t)
	token := reader(t, c, rbacv1.PolicyRule{APIGroups: []string{"infra.contrib.fluxcd.io"}, Resources: []string{"terraforms", "terraforms/log"}, Verbs: []string{"get"}})
	auth, err := access.NewKubeAuth(c.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	user, err := auth.Authenticate(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if want := "system:serviceaccount:" + c.Namespace + ":reader"; user.Name != want {
		t.Errorf("the token stands for %q, want %q", user.Name, want)
	}
	for name, tt := range map[string]struct {
		access access.Request
		want   fault.Kind
	}{
		"a stack of the namespace":   {access.Request{Verb: "get", Resource: access.ResourceStacks, Namespace: c.Namespace, Name: "net"}, fault.None},
		"its log":                    {access.Request{Verb: "get", Resource: access.ResourceLog, Namespace: c.Namespace, Name: "net"}, fault.None},
		"its plan":                   {access.Request{Verb: "get", Resource: access.ResourcePlan, Namespace: c.Namespace, Name: "net"}, fault.Denied},
		"its outputs":                {access.Request{Verb: "get", Resource: access.ResourceOutputs, Namespace: c.Namespace, Name: "net"}, fault.Denied},
		"the list of stacks":         {access.Request{Verb: "list", Resource: access.ResourceStacks, Namespace: c.Namespace}, fault.Denied},
		"a stack elsewhere":          {access.Request{Verb: "get", Resource: access.ResourceStacks, Namespace: "default", Name: "net"}, fault.Denied},
		"stacks everywhere":          {access.Request{Verb: "get", Resource: access.ResourceStacks}, fault.Denied},
		"a push to the registry":     {access.Request{Verb: "update", Resource: access.ResourceRegistry, Namespace: c.Namespace}, fault.Denied},
		"what is no resource at all": {access.Request{Verb: "get", Resource: "secrets", Namespace: c.Namespace}, fault.Broken},
	} {
		t.Run(name, func(t *testing.T) {
			if err := auth.Authorize(t.Context(), user, tt.access); fault.Of(err) != tt.want {
				t.Errorf("Authorize(%+v) is %v, want %s", tt.access, err, tt.want)
			}
		})
	}
}

func TestKubeAuthKnowsNoUser(t *testing.T) {
	c := testkit.Kube(t)
	auth, err := access.NewKubeAuth(c.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{"no token": "", "a token that nobody has": "nobody", "a token that is none": "a.b.c"} {
		if u, err := auth.Authenticate(t.Context(), secret.New(token)); fault.Of(err) != fault.Denied || u.Name != "" {
			t.Errorf("%s stands for %q, %v; want it to be denied", name, u.Name, err)
		}
	}
}
