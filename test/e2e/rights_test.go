package e2e

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// rights is the table of docs/rbac.md: which role has which right.
type rights struct {
	roles []string
	of    map[string]map[string]bool // by right and role
	asked map[string]bool            // rights that some probe was about
}

// rightsOfThePage reads the table, and installs the roles of the page.
func rightsOfThePage(t *testing.T, c *testkit.Cluster) *rights {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testkit.Repository(t), "docs/rbac.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- test: roles -->\n```yaml\n(.*?)\n```").FindSubmatch(page)
	_, table, found := strings.Cut(string(page), "<!-- test: rights -->\n")
	if block == nil || !found {
		t.Fatal("docs/rbac.md has no roles, or no table of rights")
	}
	c.Apply(t, string(block[1]))
	out := &rights{of: map[string]map[string]bool{}, asked: map[string]bool{}}
	table, _, _ = strings.Cut(table, "\n\n")
	for i, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for n := range cells {
			cells[n] = strings.Trim(cells[n], " `")
		}
		switch {
		case i == 0:
			out.roles = cells[2:]
		case i == 1:
		case len(cells) != len(out.roles)+2 || out.of[cells[0]] != nil:
			t.Fatalf("the table of rights has the row %q", line)
		default:
			out.of[cells[0]] = map[string]bool{}
			for n, cell := range cells[2:] {
				if cell != "yes" && cell != "–" {
					t.Fatalf("the table of rights says %q of the %s", cell, out.roles[n])
				}
				out.of[cells[0]][out.roles[n]] = cell == "yes"
			}
		}
	}
	return out
}

// has reports whether a role has all of these rights.
func (r *rights) has(t *testing.T, role string, all ...string) bool {
	t.Helper()
	for _, right := range all {
		of, known := r.of[right]
		if !known {
			t.Fatalf("docs/rbac.md has no row for the right %q", right)
		}
		r.asked[right] = true
		if !of[role] {
			return false
		}
	}
	return true
}

// caller is a user with a token: a ServiceAccount of a namespace.
type caller struct {
	role string // empty for a user without a role
	name string // as the cluster knows it
	client.WithWatch
	http  *http.Client
	base  string
	token string
}

// callerOf makes a user of a namespace and binds a role to it. Terrier's have their prefix.
func callerOf(t *testing.T, c *testkit.Cluster, role string) *caller {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "is-" + role}}
	if err := c.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if role != "" && role != "nobody" {
		name := "terrier-" + role
		if role == "admin" {
			name = role
		}
		err := c.Client.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "is-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: c.Namespace, Name: account.Name}},
		})
		if err != nil {
			t.Fatal(err)
		}
		right := authzv1.ResourceAttributes{Group: v1alpha2.GroupVersion.Group, Resource: "terraforms", Verb: "get"}
		if role == "admin" {
			right = authzv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "rolebindings", Verb: "create"}
		}
		awaitAllowed(t, c, account.Name, right)
	}
	token := &authnv1.TokenRequest{}
	if err := c.Client.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config)
	config.BearerToken, config.QPS, config.WarningHandler = token.Status.Token, -1, rest.NoWarnings{}
	as, err := client.NewWithWatch(config, client.Options{Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	browser := window(t, c)
	browser.Jar = nil
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &caller{role: role, name: "system:serviceaccount:" + c.Namespace + ":" + account.Name, WithWatch: as, http: browser, base: platform(t).HTTP, token: config.BearerToken}
}

// awaitAllowed waits until a ServiceAccount of the namespace has a right that it was given: the
// API server learns of a binding a moment later.
func awaitAllowed(t *testing.T, c *testkit.Cluster, account string, right authzv1.ResourceAttributes) {
	t.Helper()
	right.Namespace = c.Namespace
	testkit.Eventually(t, testkit.Patience, account+" has its rights", func(ctx context.Context) error {
		review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + c.Namespace + ":" + account, ResourceAttributes: &right}}
		if err := c.Client.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return errNot("allowed to " + right.Verb + " " + right.Resource)
		}
		return nil
	})
}

// ask sends a request with the token of the user.
func (u *caller) ask(t *testing.T, method, path, kind, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, u.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Origin", u.base)
	}
	resp, err := u.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(answer)
}

// judged compares an answer with what the table says. What is allowed may have nothing to
// show, or refuse an empty command, and fails in no other way.
func judged(t *testing.T, what string, may bool, status int, answer string) {
	t.Helper()
	switch {
	case !may && status != http.StatusForbidden:
		t.Errorf("%s: %d, want 403: %.300s", what, status, answer)
	case may && strings.Contains(answer, "BreakGlassDenied"): // by the platform, to every user
	case may && (status == http.StatusForbidden || status == http.StatusUnauthorized || status >= http.StatusInternalServerError):
		t.Errorf("%s: %d, and the page says that it is allowed: %.300s", what, status, answer)
	}
}
