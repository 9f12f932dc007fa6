package namespaces

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// bind lets a user list and watch stacks in the namespace of the test.
func bind(t *testing.T, c *testkit.Cluster, user string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: "controller"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"terraforms"}, Verbs: []string{"list", "watch"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// A namespace that was deleted took the rights of the controller with it. It keeps the stacks of
// no other namespace from being reconciled, and the controller never takes what is left for "all".
func TestNamespacesWithoutRightsAreLeftOut(t *testing.T) {
	here, later := testkit.Kube(t, rbacv1.AddToScheme), testkit.Kube(t, rbacv1.AddToScheme)
	const user = "controller-of-namespaces"
	config := rest.CopyConfig(here.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, away := Rights{Client: c, Kinds: kinds.All().All()}, here.Namespace+"-gone"
	if closed, err := r.Closed(t.Context(), nil, 0); closed != nil || err != nil {
		t.Errorf("without names Closed() = %q, %v", closed, err)
	}
	if closed, err := r.Closed(t.Context(), []string{away, here.Namespace}, 0); err == nil || !strings.Contains(err.Error(), away) || !strings.Contains(err.Error(), here.Namespace) {
		t.Fatalf("without any right Closed() = %q, %v, want an error that names the namespaces", closed, err)
	}
	bind(t, here, user)
	var closed []string
	testkit.Eventually(t, testkit.Patience, "the new rights count", func(ctx context.Context) (err error) {
		if closed, err = r.Closed(ctx, []string{away, here.Namespace, later.Namespace}, 0); err == nil && !slices.Equal(closed, []string{away, later.Namespace}) {
			err = fmt.Errorf("left out are %q", closed)
		}
		return err
	})
	log := slog.New(slog.DiscardHandler)
	bind(t, later, user)
	if err := r.Changes([]string{here.Namespace}, closed, 0, 10*time.Millisecond, log)(t.Context()); err == nil || !strings.Contains(err.Error(), later.Namespace+" was left out, and can be reconciled now") {
		t.Errorf("with the rights of %s the manager ends with %v", later.Namespace, err)
	}

	// An administrator of a namespace revokes the rights while the controller runs.
	unbind(t, later)
	both := []string{here.Namespace, later.Namespace}
	if err := r.Changes(both, nil, 0, 10*time.Millisecond, log)(t.Context()); err == nil || !strings.Contains(err.Error(), "in the namespace "+later.Namespace+": start it again") {
		t.Errorf("without the rights of %s the manager ends with %v", later.Namespace, err)
	}
	missing := map[string]int{}
	for turn := range 2 * gone {
		want := ""
		if turn >= gone-1 {
			want = later.Namespace
		}
		if got := r.revoked(t.Context(), both, missing, log); got != want {
			t.Errorf("after %d questions %q is revoked, want %q", turn+1, got, want)
		}
	}
	// Without a namespace there would be nothing to start for.
	for range 2 * gone {
		if got := r.revoked(t.Context(), []string{later.Namespace}, map[string]int{later.Namespace: gone}, log); got != "" {
			t.Errorf("the last namespace %q is revoked", got)
		}
	}
	// A role without pods is none where runs are pods.
	r.Pods = true
	if closed, err := r.Closed(t.Context(), []string{here.Namespace}, 0); err == nil || !strings.Contains(err.Error(), "pods") {
		t.Errorf("without a right to pods Closed() = %q, %v", closed, err)
	}
}

func unbind(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	if err := c.Client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "controller"}}); err != nil {
		t.Fatal(err)
	}
}
