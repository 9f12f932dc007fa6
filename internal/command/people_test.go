package command_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/controller/asker"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// bind gives a subject a role of its own in the namespace of the test.
func bind(t *testing.T, c *testkit.Cluster, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: name}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{subject}},
	} {
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

var editStacks = rbacv1.PolicyRule{APIGroups: []string{"infra.contrib.fluxcd.io"}, Resources: []string{"terraforms"}, Verbs: []string{"get", "patch"}}

// settled asks until the API server has noticed the roles, which takes it a moment.
func settled(ask func() error) func() error {
	return func() error {
		err := ask()
		for deadline := time.Now().Add(testkit.Patience); fault.Of(err) == fault.Denied && time.Now().Before(deadline); {
			err = ask()
		}
		return err
	}
}

// What a person commands is done in that person's name: their rights count,
// those of their groups do, and the server's own do not.
func TestPeopleActAsThemselves(t *testing.T) {
	c := newCluster(t)
	people, err := command.NewPeople(c.Config, kinds.All(), nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	group := "operators-of-" + c.Namespace
	bind(t, c.Cluster, "operators", rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: group}, editStacks)
	suspend := func(u access.User) func() error {
		person, err := people.As(u)
		if err != nil {
			t.Fatal(err)
		}
		return func() error { return person.Stacks.Suspend(t.Context(), c.key()) }
	}
	ann := access.User{Name: "ann", UID: "1", Groups: []string{group, "system:authenticated"}, Extra: map[string][]string{"example.com/team": {"net", "ops"}}}
	if err := settled(suspend(ann))(); err != nil {
		t.Errorf("ann, whose group may: %v", err)
	}
	if !c.object().Spec.Suspend {
		t.Error("the stack is not suspended")
	}
	if err := suspend(access.User{Name: "bob", Groups: []string{"others"}})(); fault.Reason(err, "") != access.ReasonAccessDenied {
		t.Errorf("bob, who may not: %v", err)
	}
	ann.Groups = nil
	if err := suspend(ann)(); fault.Reason(err, "") != access.ReasonAccessDenied {
		t.Errorf("ann, who has left her group: %v", err)
	}
}

// The object says by which way a user decided: the audit log names an approval over
// the HTTP API as one.
func TestWhatIsApprovedOverTheAPIIsJournaledSo(t *testing.T) {
	c := newCluster(t)
	people, err := command.NewPeople(c.Config, kinds.All(), nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ann, err := people.As(access.User{Name: "ann", Groups: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	for way, ctx := range map[audit.Via]context.Context{
		audit.ViaUI: t.Context(), audit.ViaAPI: access.Via(t.Context(), query.ViaAPI), audit.ViaCLI: access.Via(t.Context(), query.ViaCLI),
	} {
		c.spec(func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "" })
		c.status(waits(t, shown.Name, shown.Digest))
		if _, err := ann.Stacks.Approve(ctx, c.key(), shown, ""); err != nil {
			t.Fatal(err)
		}
		by, err := asker.Of(t.Context(), c.Client, c.object(), audit.Approved)
		if err != nil {
			t.Fatal(err)
		}
		e := audit.Entry{What: audit.Approved}
		if by.In(&e); e.Via != way {
			t.Errorf("what was approved on the way %s is journaled as %s, written by %q", way, e.Via, by.Manager)
		}
	}
}

func TestUsersWithoutANameCommandNothing(t *testing.T) {
	people, err := command.NewPeople(&rest.Config{Host: "https://127.0.0.1:1"}, kinds.All(), nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string]access.User{
		"nobody":                      {},
		"a group without a member":    {Groups: []string{"system:masters"}},
		"anybody":                     {Name: "system:anonymous"},
		"anybody by another name":     {Name: "x", Groups: []string{"system:unauthenticated"}},
		"a program of this server":    {Name: access.OwnUsers + "pull:apps"},
		"the name of all its own":     {Name: access.OwnUsers},
		"a user id without a name":    {UID: "1"},
		"something else and no name":  {Extra: map[string][]string{"a": {"b"}}},
		"anybody with groups as well": {Name: "system:anonymous", Groups: []string{"admins"}},
	} {
		if p, err := people.As(u); fault.Of(err) != fault.Denied || p.Stacks != nil {
			t.Errorf("%s: %v, want Denied", name, err)
		}
	}
}

// A server that may not act for people says which right it lacks.
func TestServerThatMayNotImpersonate(t *testing.T) {
	c := newCluster(t)
	ann := access.User{Name: "ann", UID: "7", Groups: []string{"ops", "system:authenticated"}, Extra: map[string][]string{"example.com/team": {"net"}}}
	for name, tt := range map[string]struct {
		rules []rbacv1.PolicyRule
		lacks string
	}{
		"none at all":         {nil, "users"},
		"not for groups":      {[]rbacv1.PolicyRule{impersonate("", "users")}, "groups"},
		"not for user ids":    {[]rbacv1.PolicyRule{impersonate("", "users", "groups"), impersonate("authentication.k8s.io", "userextras/example.com/team")}, "uids"},
		"not for the rest":    {[]rbacv1.PolicyRule{impersonate("", "users", "groups"), impersonate("authentication.k8s.io", "uids")}, "userextras"},
		"everything it takes": {[]rbacv1.PolicyRule{impersonate("", "users", "groups"), impersonate("authentication.k8s.io", "uids", "userextras/example.com/team")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := account(t, c.Cluster, strings.ReplaceAll(name, " ", "-"), tt.rules)
			people, err := command.NewPeople(config, kinds.All(), nil, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			person, err := people.As(ann)
			if err != nil {
				t.Fatal(err)
			}
			noticed(t, config, tt.rules)
			suspend := func() error { return person.Stacks.Suspend(t.Context(), c.key()) }
			if tt.lacks == "" {
				if err := suspend(); fault.Reason(err, "") != access.ReasonAccessDenied {
					t.Errorf("ann, who may not: %v", err)
				}
				return
			}
			err = suspend()
			if fault.Reason(err, "") != access.ReasonImpersonate || !strings.Contains(err.Error(), tt.lacks) || command.Hint(err) == "" {
				t.Errorf("Suspend() is %v, want what the server lacks: %s", err, tt.lacks)
			}
		})
	}
}

// account is a server whose account may do what rules say, everywhere.
func account(t *testing.T, c *testkit.Cluster, name string, rules []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	kube, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	wide := metav1.ObjectMeta{Name: c.Namespace + "-" + name}
	role := &rbacv1.ClusterRole{ObjectMeta: wide, Rules: rules}
	bound := &rbacv1.ClusterRoleBinding{ObjectMeta: wide, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: wide.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: c.Namespace}}}
	for _, o := range []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace}}, role, bound} {
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, o := range []client.Object{role, bound} {
			if err := c.Client.Delete(context.Background(), o); err != nil {
				t.Errorf("taking back the role: %v", err)
			}
		}
	})
	token, err := kube.CoreV1().ServiceAccounts(c.Namespace).CreateToken(t.Context(), name, &authnv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config)
	config.BearerToken = token.Status.Token
	return config
}

// noticed waits until the API server knows the rules of the account of config.
func noticed(t *testing.T, config *rest.Config, rules []rbacv1.PolicyRule) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		resource, sub, _ := strings.Cut(rule.Resources[len(rule.Resources)-1], "/")
		review := &authzv1.SelfSubjectAccessReview{Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authzv1.ResourceAttributes{
			Verb: "impersonate", Group: rule.APIGroups[0], Resource: resource, Subresource: sub}}}
		testkit.Eventually(t, testkit.Patience, "the rules of the account are known", func(ctx context.Context) error {
			got, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !got.Status.Allowed {
				err = fmt.Errorf("%v is not allowed", rule)
			}
			return err
		})
	}
}

func impersonate(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"impersonate"}}
}
