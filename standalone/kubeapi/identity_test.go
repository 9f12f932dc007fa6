package kubeapi

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/issuer"
)

const runAudience = "https://k8s.example.com"

// A real API server knows the runs of a platform by the tokens of its issuer, as
// docs/identities.md says, with the kubeconfig that a run has (LQ-66).
func TestRunsAreKnownToAnAPIServer(t *testing.T) {
	store, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(site.Close)
	begin := time.Now()
	clock := begin.Add(-62 * time.Minute) // of the issuer, so that its next key is due soon
	at := func(life time.Duration) *issuer.Issuer {
		return issuer.New(issuer.Options{URL: site.URL, Store: store, Life: life, Times: identity.Times{Period: time.Hour, Before: time.Minute, After: 24 * time.Hour}, Now: func() time.Time { return clock }})
	}
	ours := at(15 * time.Minute)
	handler = ours
	rotate := func() {
		if _, err := ours.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rotate()
	// The next key is published before the API server fetches the keys, which it then keeps for
	// as long as it may.
	clock = begin.Add(-150 * time.Second)
	rotate()
	clock = begin.Add(-2 * time.Minute)

	dir := filepath.Join(openTempDir(t), "data")
	config := filepath.Join(t.TempDir(), "authentication.yaml")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw})
	quoted, err := json.Marshal(string(ca))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
  - issuer:
      url: %s
      certificateAuthority: %s
      audiences: ["%s"]
    claimValidationRules:
      - expression: claims.cluster == 'ours'
        message: the token is of another cluster
    claimMappings:
      username: {expression: "'terrier:' + claims.sub"}
      groups: {expression: "['terrier:' + claims.namespace + ':' + claims.phase]"}
      uid: {claim: stack_uid}
`, site.URL, quoted, runAudience)), 0o600); err != nil {
		t.Fatal(err)
	}
	server, _ := startServer(t, Options{Dir: dir, Authentication: config, UnsafeNoFsync: true})
	owner := ownerClient(t, dir)
	create := metav1.CreateOptions{}
	if _, err := owner.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: objectMeta("sees"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}}}}, create); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: objectMeta("sees"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sees"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "terrier:team-a:apply"}},
	}, create); err != nil {
		t.Fatal(err)
	}

	_, authority, err := server.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	request := identity.Request{Kubernetes: &identity.Kubernetes{Server: "https://" + server.address, CA: string(authority), Audience: runAudience}}
	run := identity.Run{ID: "apply-1", RunKind: "apply", Phase: identity.Apply, Namespace: "team-a", Stack: "net", StackKind: "terraform.infra.contrib.fluxcd.io", StackUID: "uid-net", Cluster: "ours"}
	// as is a client with the files that a run has.
	as := func(by *issuer.Issuer, change func(*identity.Run, *identity.Use)) *kubernetes.Clientset {
		t.Helper()
		r, use := run, request.Uses(identity.Apply)[0]
		if change != nil {
			change(&r, &use)
		}
		tokens, err := by.Issue(t.Context(), r, []identity.Use{use})
		if err != nil {
			t.Fatal(err)
		}
		home := t.TempDir()
		files, err := request.Files(r.Phase, home)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, identity.File{Name: "kubernetes.token", Content: []byte(tokens[0].Text.Reveal())})
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(home, f.Name), f.Content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := clientcmd.BuildConfigFromFlags("", request.Environ(r.Phase, home, "")["KUBE_CONFIG_PATH"])
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	who := func(c *kubernetes.Clientset) (authenticationv1.UserInfo, error) {
		got, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, create)
		if err != nil {
			return authenticationv1.UserInfo{}, err
		}
		return got.Status.UserInfo, nil
	}
	// The server looks for the keys in the background.
	eventually(t, "the API server knows the issuer", func(context.Context) error {
		_, err := who(as(ours, nil))
		return err
	})
	apply := as(ours, nil)
	u, err := who(apply)
	if err != nil || u.Username != "terrier:namespace:team-a:kind:terraform.infra.contrib.fluxcd.io:stack:net:phase:apply" || u.UID != "uid-net" || !slices.Contains(u.Groups, "terrier:team-a:apply") {
		t.Errorf("an apply is known as %+v, %v", u, err)
	}
	list := metav1.ListOptions{}
	eventually(t, "an apply may do what its role says", func(ctx context.Context) error {
		_, err := apply.CoreV1().Namespaces().List(ctx, list)
		return err
	})
	plan := func(r *identity.Run, _ *identity.Use) { r.Phase = identity.Plan }
	if _, err := as(ours, plan).CoreV1().Namespaces().List(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Errorf("a plan has the role of applies: %v", err)
	}
	other := func(r *identity.Run, _ *identity.Use) { r.Namespace = "team-b" }
	if _, err := as(ours, other).CoreV1().Namespaces().List(t.Context(), list); !apierrors.IsForbidden(err) {
		t.Errorf("another namespace has the role: %v", err)
	}
	for name, c := range map[string]*kubernetes.Clientset{
		"another audience": as(ours, func(_ *identity.Run, u *identity.Use) { u.Audience = "sts.amazonaws.com" }),
		"another cluster":  as(ours, func(r *identity.Run, _ *identity.Use) { r.Cluster = "theirs" }),
	} {
		if u, err := who(c); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: known as %+v, %v", name, u, err)
		}
	}
	before := as(ours, nil)
	clock = begin.Add(-time.Hour)
	expired := as(at(5*time.Minute), nil)
	if u, err := who(expired); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token that expired is of %+v, %v", u, err)
	}

	// The next key signs: tokens of both are taken.
	clock = begin
	if _, err := who(as(at(15*time.Minute), nil)); err != nil {
		t.Errorf("a token of the next key is not taken: %v", err)
	}
	if _, err := who(before); err != nil {
		t.Errorf("a token of the former key is not taken any more: %v", err)
	}
	keys, err := ours.Document(t.Context(), identity.PathKeys)
	if err != nil || strings.Count(string(keys), `"kid"`) != 2 {
		t.Errorf("the keys are %s, %v; want two", keys, err)
	}
}
