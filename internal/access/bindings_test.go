package access_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// follow keeps up with the bindings of a cluster until the test ends.
func follow(t *testing.T, config *rest.Config, log *slog.Logger) *access.Bindings {
	t.Helper()
	b, err := access.NewBindings(config, log, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- b.Follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("following the bindings ended with %v", err)
		}
	})
	return b
}

// The subject of a role binding is likely to see something in the namespace, by
// name, by group or as a service account, until the binding is gone.
func TestBindings(t *testing.T) {
	c := testkit.Kube(t)
	b := follow(t, c.Config, slog.New(slog.DiscardHandler))
	bound := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bound", Namespace: c.Namespace},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "none"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ann"}, {Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "crew"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "people", Name: "bot"},
		}}
	if err := c.Client.Create(t.Context(), bound); err != nil {
		t.Fatal(err)
	}
	likely := func(u access.User, want bool) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, "the bindings are known", func(context.Context) error {
			if _, got := b.Likely(u)[c.Namespace]; got != want {
				return fmt.Errorf("that %s may see something is likely: %t, want %t", u.Name, got, want)
			}
			return nil
		})
	}
	likely(access.User{Name: "ann"}, true)
	likely(access.User{Name: "bob", Groups: []string{"staff", "crew"}}, true)
	likely(access.User{Name: "system:serviceaccount:people:bot"}, true)
	likely(access.User{Name: "crew", Groups: []string{"ann"}}, false)
	bound.Subjects = bound.Subjects[1:]
	if err := c.Client.Update(t.Context(), bound); err != nil {
		t.Fatal(err)
	}
	likely(access.User{Name: "ann"}, false)
	likely(access.User{Name: "bob", Groups: []string{"crew"}}, true)
	if err := c.Client.Delete(t.Context(), bound); err != nil {
		t.Fatal(err)
	}
	likely(access.User{Name: "bob", Groups: []string{"crew"}}, false)
}

// words are what a log says.
type words struct {
	mu sync.Mutex
	bytes.Buffer
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Buffer.Write(b)
}

func (w *words) said(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !strings.Contains(w.String(), what) {
		return errors.New("it was not said that " + what)
	}
	return nil
}

// A server that may not list bindings says so once, and does without.
func TestBindingsThatMayNotBeListed(t *testing.T) {
	c := testkit.Kube(t)
	config := rest.CopyConfig(c.Config)
	config.Impersonate.UserName = "nobody"
	log := &words{}
	b := follow(t, config, slog.New(slog.NewTextHandler(log, nil)))
	testkit.Eventually(t, testkit.Patience, "the server notices", func(context.Context) error { return log.said("role bindings cannot be listed") })
	if got := b.Likely(access.User{Name: "ann"}); len(got) > 0 {
		t.Errorf("it is likely that ann sees something in %v", got)
	}
}
