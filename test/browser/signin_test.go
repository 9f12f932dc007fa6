package browser

import (
	"regexp"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

var link = regexp.MustCompile(`https://\S+(/sign-in\?code=\S+)`)

// signIn signs a window in as the owner of the platform, as terrier ui does.
func signIn(t *testing.T, w *window, c *testkit.Cluster) {
	t.Helper()
	m := link.FindStringSubmatch(c.Terrier(t, "ui"))
	if m == nil {
		t.Fatal("terrier ui prints no link")
	}
	w.visit(m[1])
	w.presses("Continue as terrier-admin")
	w.at("/stacks")
}

// signInWith signs a window in with a token, as a user of the cluster does.
func signInWith(t *testing.T, w *window, token string) {
	t.Helper()
	w.visit("/sign-in")
	w.fills("Token of the Kubernetes API", token)
	w.presses("Sign in")
	w.at("/stacks")
}
