package registryserver

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// browse is a request of a browser with a token as its password.
func (r *running) browse(t *testing.T, method, path, token string, header map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, strings.NewReader(`{"reason":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.SetBasicAuth("anything", token)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	c := *r.http
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// The pages of a registry alone take a token as a password, and only read: a page of another
// site cannot have the browser of a user publish or retract anything.
func TestPagesOfARegistryAlone(t *testing.T) {
	r := start(t, nil)
	text, err := os.ReadFile(r.Token)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text))
	if resp, page := r.browse(t, http.MethodGet, "/registry", "", nil); resp.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Basic ") || !strings.Contains(page, "the password is your token") {
		t.Errorf("without a token it is %s with %q: %s", resp.Status, resp.Header.Get("WWW-Authenticate"), page)
	}
	if resp, _ := r.browse(t, http.MethodGet, "/registry", "wrong", nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a wrong token it is %s, want 401", resp.Status)
	}
	if resp, _ := r.browse(t, http.MethodGet, "/", token, nil); resp.Header.Get("Location") != "/registry" {
		t.Errorf("the first page is %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	resp, page := r.browse(t, http.MethodGet, "/registry", token, nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(page, "Nothing is published yet") || strings.Contains(page, `href="/stacks"`) || strings.Contains(page, "/sign-out") {
		t.Errorf("the list is %s: %s", resp.Status, page)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("the content policy is %q", policy)
	}
	for path, want := range map[string]int{"/registry/mirror": 200, "/registry/modules/net/none/aws": 404, "/registry/keys/net": 200, "/registry/nothing": 404, "/registry/mirror/registry.opentofu.org/a/b": 404} {
		if resp, page := r.browse(t, http.MethodGet, path, token, nil); resp.StatusCode != want || !strings.Contains(resp.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s is %s, want %d: %s", path, resp.Status, want, page)
		}
	}
	retract := "/v1/modules/net/none/aws/1.0.0/retract"
	for name, tt := range map[string]struct {
		header map[string]string
		want   int
	}{
		"another site":       {map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, http.StatusForbidden},
		"an older browser":   {map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"a program":          {nil, http.StatusNotFound},
		"a page of this one": {map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusNotFound},
	} {
		if resp, body := r.browse(t, http.MethodPost, retract, token, tt.header); resp.StatusCode != tt.want {
			t.Errorf("a change by %s is %s, want %d: %s", name, resp.Status, tt.want, body)
		}
	}
}

// Where callers without a token may read, so may browsers.
func TestPagesForAnonymousReaders(t *testing.T) {
	r := start(t, func(c *Config) { c.Anonymous = true })
	if resp, page := r.browse(t, http.MethodGet, "/registry", "", nil); resp.StatusCode != http.StatusOK || !strings.Contains(page, "anonymous") {
		t.Errorf("the list is %s: %s", resp.Status, page)
	}
}
