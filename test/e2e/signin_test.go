package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// window is a browser without scripts that trusts the platform's certificate.
func window(t *testing.T, c *testkit.Cluster) *http.Client {
	t.Helper()
	var m corev1.ConfigMap
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: "terrier-system", Name: "terrier-server"}, &m); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(m.Data["ca.crt"])) {
		t.Fatal("the cluster names no certificate authority")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Jar: jar}
}

// opened is where a browser ended up, and what it shows.
func opened(t *testing.T, resp *http.Response, err error) (*url.URL, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Request.URL, string(body)
}

// T20, T23: a link of the command line opens the pages for one browser, as the
// user of the kubeconfig, until they sign out.
func TestSignInWithLink(t *testing.T) {
	c := cluster(t)
	p := platform(t)
	link := strings.TrimSpace(c.Terrier(t, "ui"))
	if !strings.HasPrefix(link, p.HTTP+"/sign-in?code=") || strings.Contains(link, c.Config.BearerToken) {
		t.Fatalf("terrier ui says %q", link)
	}
	browser := window(t, c)
	resp, err := browser.Get(p.HTTP + "/about?x=1")
	if at, _ := opened(t, resp, err); at.Path != "/sign-in" || at.Query().Get("to") != "/about?x=1" {
		t.Errorf("a stranger ends up at %s, want to sign in", at)
	}
	resp, err = browser.Get(link)
	_, body := opened(t, resp, err)
	code := regexp.MustCompile(`name="code" value="([^"]+)"`).FindStringSubmatch(body)
	if code == nil || !strings.Contains(body, "Continue as ") {
		t.Fatalf("the link shows\n%s", body)
	}
	form := url.Values{"code": {code[1]}, "to": {"/about"}}
	// Go's client says nothing of where a form comes from, and has no cookie yet.
	resp, err = browser.PostForm(p.HTTP+"/sign-in", form)
	at, body := opened(t, resp, err)
	if at.Path != "/about" || resp.StatusCode != http.StatusOK {
		t.Fatalf("continuing ends up at %s with %s:\n%s", at, resp.Status, body)
	}
	resp, err = window(t, c).PostForm(p.HTTP+"/sign-in", form)
	if _, body := opened(t, resp, err); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "used before") {
		t.Errorf("the same link in another browser is %s:\n%s", resp.Status, body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.HTTP+"/sign-out", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err = browser.Do(req)
	if _, _ = opened(t, resp, err); resp.StatusCode != http.StatusForbidden {
		t.Errorf("signing out without saying where the form is: %s, want 403", resp.Status)
	}
	req.Header.Set("Origin", p.HTTP)
	resp, err = browser.Do(req)
	if at, _ := opened(t, resp, err); at.Path != "/sign-in" {
		t.Errorf("signing out ends up at %s", at)
	}
	resp, err = browser.Get(p.HTTP + "/about")
	if at, _ := opened(t, resp, err); at.Path != "/sign-in" {
		t.Errorf("who signed out ends up at %s, want to sign in", at)
	}
	if strings.Contains(p.Log(), code[1]) {
		t.Error("the log holds the code of a link")
	}
}
