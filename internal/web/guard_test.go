package web

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

// doors are the rights that each route requires. A route that is not here fails the
// test, so that each new route names its rights. Each area of routes has its rows
// beside its tests, and adds them before anything runs.
var doors = map[string]string{}

func addDoors(more map[string]string) struct{} {
	maps.Copy(doors, more)
	return struct{}{}
}

// place fills the parameters of a route.
func place(path string) string {
	return strings.NewReplacer(":namespace", "apps", ":name", "net", ":run", "plan-1", "*path", "apps/module/manifests/v1").Replace(path)
}

var _ = addDoors(map[string]string{
	"GET /healthz":         "open",
	"GET /readyz":          "open",
	"GET /artifacts/*path": "open", "HEAD /artifacts/*path": "open",
	"POST /validate-a-kind": "open",
	"POST /sync":            "create terraforms/hook",
	"POST /finalize":        "create terraforms/hook",
	"POST /customize":       "create terraforms/hook",
	"GET /v2/*path":         "get terraforms/registry apps",
	"HEAD /v2/*path":        "get terraforms/registry apps",
	"POST /v2/*path":        "update terraforms/registry apps",
	"PUT /v2/*path":         "update terraforms/registry apps",
	"PATCH /v2/*path":       "update terraforms/registry apps",
	"DELETE /v2/*path":      "update terraforms/registry apps",
})

func accessText(a access.Request) string {
	s := a.Verb + " " + strings.Replace(strings.Replace(string(a.Resource), "stacks", "terraforms", 1), "registry", "terraforms/registry", 1)
	if a.Namespace != "" {
		s += " " + a.Namespace
	}
	if a.Name != "" {
		s += "/" + a.Name
	}
	return s
}

func TestEveryRouteHasADoor(t *testing.T) {
	engine, err := build(options(newRoles()))
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, r := range engine.Routes() {
		name := r.Method + " " + r.Path
		served[name] = true
		want, ok := doors[name]
		if !ok {
			t.Errorf("%s has no row", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			auth := newRoles()
			u, c := serve(t, options(auth))
			address := u.String() + place(r.Path)
			resp, _ := ask(t, c, r.Method, address, nil)
			if want == "open" {
				if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusUnauthorized {
					t.Errorf("without a token: %s, want 200", resp.Status)
				}
				return
			}
			if forBrowsers(r.Path) {
				if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to, signInPath) {
					t.Errorf("without a session: %s to %q, want to be sent to sign in", resp.Status, to)
				}
			} else if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("without a token: %s, want 401 and how to become known", resp.Status)
			}
			auth.deny(access.Resources()...)
			resp, _ = ask(t, c, r.Method, address, bearer)
			if want == "known, to see some stacks" {
				if resp.StatusCode != http.StatusForbidden {
					t.Errorf("with no stacks to see: %s, want 403", resp.Status)
				}
				return
			}
			if status, asks := strings.CutPrefix(want, "known, then "); asks {
				if got := strconv.Itoa(resp.StatusCode); got != status {
					t.Errorf("with a token, and nothing else: %s, want %s", resp.Status, status)
				}
				return
			}
			if want == "known" {
				if resp.StatusCode >= http.StatusBadRequest {
					t.Errorf("with a token: %s, want an answer", resp.Status)
				}
				return
			}
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("without the right: %s, want 403", resp.Status)
			}
			if got := accessText(auth.last()); got != want {
				t.Errorf("asks for the right to %q, want %q", got, want)
			}
		})
	}
	for name := range doors {
		if !served[name] {
			t.Errorf("%s has a row and is not served", name)
		}
	}
}

// forBrowsers reports whether a route is for people, who are shown a way in.
func forBrowsers(path string) bool {
	for _, programs := range []string{api, registryPrefix, packagesPrefix + "/", discoveryPath, ArtifactsPrefix, "/healthz", "/readyz", "/sync", "/finalize", "/customize"} {
		if strings.HasPrefix(path, programs) {
			return false
		}
	}
	return true
}

func TestTokens(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	for name, tt := range map[string]struct {
		edit func(*http.Request)
		want int
	}{
		"a bearer token":                 {bearer, 200},
		"in any spelling of the scheme":  {func(r *http.Request) { r.Header.Set("Authorization", "bearer "+token) }, 200},
		"the password of simple clients": {func(r *http.Request) { r.SetBasicAuth("anybody", token) }, 200},
		"a token that nobody has":        {func(r *http.Request) { r.Header.Set("Authorization", "Bearer other") }, 401},
		"another scheme":                 {func(r *http.Request) { r.Header.Set("Authorization", "Digest "+token) }, 401},
		"a token in the address":         {func(r *http.Request) { r.URL.RawQuery = "access_token=" + token }, 401},
		"headers of an authenticating one": {func(r *http.Request) {
			r.Header.Set("X-Remote-User", "admin")
			r.Header.Set("Impersonate-User", "admin")
		}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			if resp, _ := ask(t, c, http.MethodGet, u.String()+"/api/v1/version", tt.edit); resp.StatusCode != tt.want {
				t.Errorf("%s, want %d", resp.Status, tt.want)
			}
		})
	}
}

// Nothing behind the door ever sees who a request claims to be.
func TestClaimsAreTakenOff(t *testing.T) {
	var seen http.Header
	o := options(newRoles())
	o.Registry = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() })
	u, c := serve(t, o)
	ask(t, c, http.MethodGet, u.String()+"/v2/", func(r *http.Request) {
		bearer(r)
		for _, h := range []string{"X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scopes", "Impersonate-User", "Impersonate-Extra-a", "X-Forwarded-For"} {
			r.Header.Set(h, "admin")
		}
	})
	for name := range seen {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Forwarded-") {
			t.Errorf("%s comes through", name)
		}
	}
	if len(seen) == 0 {
		t.Error("the request did not come through")
	}
}

func TestHostsAndOrigins(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	for name, tt := range map[string]struct {
		method string
		edit   func(*http.Request)
		want   int
	}{
		"its own name":                   {http.MethodGet, func(*http.Request) {}, 200},
		"its name without the port":      {http.MethodGet, func(r *http.Request) { r.Host = "127.0.0.1" }, 200},
		"a name that leads here":         {http.MethodGet, func(r *http.Request) { r.Host = "evil.example" }, 403},
		"one that begins like its own":   {http.MethodGet, func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }, 403},
		"a request of another site":      {http.MethodPut, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"a request of another origin":    {http.MethodPut, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"a request of its own":           {http.MethodPut, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		"a client that is no browser":    {http.MethodPut, func(*http.Request) {}, 200},
		"a method that is not served":    {"PROPFIND", func(*http.Request) {}, 405},
		"another method by a header":     {http.MethodGet, func(r *http.Request) { r.Header.Set("X-HTTP-Method-Override", "DELETE") }, 200},
		"a preflight of another origin":  {http.MethodOptions, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 405},
		"a page of another origin reads": {http.MethodGet, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := ask(t, c, tt.method, u.String()+"/v2/apps/module/blobs/x", func(r *http.Request) { bearer(r); tt.edit(r) })
			if resp.StatusCode != tt.want {
				t.Errorf("%s, want %d: %s", resp.Status, tt.want, body)
			}
			if h := resp.Header.Get("Access-Control-Allow-Origin"); h != "" {
				t.Errorf("lets pages of %q read the answer", h)
			}
		})
	}
}

// What every answer says to browsers and caches, whatever it is.
func TestAnswersAreHardened(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	for _, path := range []string{"/healthz", "/api/v1/stacks", "/nowhere", "/api/v1/namespaces/apps/stacks/none", "/artifacts/x"} {
		resp, _ := ask(t, c, http.MethodGet, u.String()+path, bearer)
		got := map[string]string{}
		for _, h := range []string{"Cache-Control", "X-Content-Type-Options", "X-Frame-Options", "Content-Security-Policy", "Server", "X-Powered-By"} {
			got[h] = resp.Header.Get(h)
		}
		want := map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Server": "", "X-Powered-By": ""}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", path, diff)
		}
	}
}

func TestNamesAreChecked(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	for _, path := range []string{
		"/api/v1/namespaces/a%2Fb/stacks", "/api/v1/namespaces/A/stacks/x", "/api/v1/namespaces/apps/stacks/..%2Fx", "/v2/..%2Fx/y", "/v2/UPPER/x",
	} {
		if resp, body := ask(t, c, http.MethodGet, u.String()+path, bearer); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s is %s %s, want 422", path, resp.Status, body)
		}
	}
}

func TestRequestsHaveLimits(t *testing.T) {
	o := options(newRoles())
	o.Limits.Upload = 10
	u, c := serve(t, o)
	put := func(path string, size int) int {
		resp, _ := ask(t, c, http.MethodPut, u.String()+path, func(r *http.Request) {
			bearer(r)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", size))), int64(size)
		})
		return resp.StatusCode
	}
	if got := put("/v2/apps/x", 10); got != http.StatusOK {
		t.Errorf("an upload within the limit is %d, want 200", got)
	}
	if got := put("/v2/apps/x", 11); got != http.StatusRequestEntityTooLarge {
		t.Errorf("an upload beyond the limit is %d, want 413", got)
	}
}

func TestMountedHandlersSeeTheirOwnPaths(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	for path, want := range map[string]string{
		"/artifacts/ticket/GitRepository/x.tar.gz": "artifacts GET /ticket/GitRepository/x.tar.gz",
		"/v2/apps/module/manifests/v1":             "registry GET /v2/apps/module/manifests/v1",
		"/v2/":                                     "registry GET /v2/",
	} {
		if _, body := ask(t, c, http.MethodGet, u.String()+path, bearer); body != want {
			t.Errorf("%s reaches %q, want %q", path, body, want)
		}
	}
}

// endless is a log that goes on for ever, one line at a time.
func endless(t *testing.T, auth Auth, limits Limits) (address string, c *http.Client) {
	t.Helper()
	live := newGrowing()
	o := options(auth)
	o.Limits = limits
	o.Stacks = estate{records: query.NewBlobs(nothing{}, live, time.Millisecond)}
	u, c := serve(t, o)
	return u.String() + "/api/v1/namespaces/apps/stacks/net/runs/plan-1/log?follow=true", c
}

// A user who loses the right to a log loses the stream as well, and sees that it was
// cut.
func TestStreamEndsWithTheRight(t *testing.T) {
	auth := newRoles()
	address, c := endless(t, auth, Limits{Recheck: time.Millisecond})
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	req.RequestURI = ""
	bearer(req)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	auth.deny(access.ResourceLog)
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stream ends as if the log were whole")
	}
}

func TestStreamsAreCounted(t *testing.T) {
	address, c := endless(t, newRoles(), Limits{UserStreams: 1})
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	req.RequestURI = ""
	bearer(req)
	first, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp, _ := ask(t, c, http.MethodGet, address, bearer); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a second stream is %s, want 429 and when to try again", resp.Status)
	}
	first.Body.Close()
	// The place is free again once the server has noticed.
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		again, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		again.Body.Close()
		if again.StatusCode == http.StatusOK {
			return
		}
	}
	t.Error("the place of a stream that was closed is not given to another")
}

// A reader that takes nothing is dropped, and its place is free. There is no
// TLS here, which would take its own five seconds to say goodbye.
func TestReaderThatStallsIsDropped(t *testing.T) {
	o := options(newRoles())
	o.Limits = Limits{UserStreams: 1, Stall: 10 * time.Millisecond}
	o.Stacks = estate{records: query.NewBlobs(nothing{}, newGrowing(), time.Millisecond)}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/api/v1/namespaces/apps/stacks/net/runs/plan-1/log?follow=true", nil)
	req.RequestURI = ""
	bearer(req)
	stalled, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Body.Close()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Error("a reader that takes nothing keeps its place")
}

// The page for an unknown address links to the known ones, and a program gets a JSON
// error.
func TestAddressThatIsNone(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	browser := func(r *http.Request) { r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8") }
	for name, tc := range map[string]struct {
		method, path string
		as           func(*http.Request)
		status       int
		mediaType    string
		says         string
	}{
		"a browser":                   {http.MethodGet, "/stacks/", browser, http.StatusNotFound, "text/html", `href="/stacks">All stacks</a>`},
		"a browser, of what is sent":  {http.MethodGet, "/sign-out", browser, http.StatusMethodNotAllowed, "text/html", `href="/stacks">All stacks</a>`},
		"a program":                   {http.MethodGet, "/stacks/", nil, http.StatusNotFound, "application/json", `"reason":"NoRoute"`},
		"a program, of what is asked": {http.MethodPost, "/api/v1/stacks", nil, http.StatusMethodNotAllowed, "application/json", `"reason":"NoMethod"`},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := ask(t, c, tc.method, u.String()+tc.path, tc.as)
			if resp.StatusCode != tc.status || !strings.HasPrefix(resp.Header.Get("Content-Type"), tc.mediaType) || !strings.Contains(body, tc.says) {
				t.Errorf("%s %s is %s as %s, want %d as %s that says %s:\n%s", tc.method, tc.path, resp.Status, resp.Header.Get("Content-Type"), tc.status, tc.mediaType, tc.says, body)
			}
		})
	}
}
