package mirror_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

func TestParseSettings(t *testing.T) {
	got, err := mirror.ParseSettings([]byte(`
upstreams:
  registry.opentofu.org: {}
  registry.example.com:
    url: https://registry.internal.example.com:8443/
    tokenFile: /run/secrets/token
    caFile: /etc/ssl/corporate.pem
    proxy: http://user:secret@proxy.example.com:3128
    timeout: 5s
    downloadTimeout: 1h
    unsigned: true
deleteUnusedAfter: 720h
rules:
  - tenants: [team-a, "team-b*"]
    allow: [{provider: "registry.opentofu.org/hashicorp/*"}]
    deny:
      - provider: "*/*/null"
        versions: "< 3.0.0"
        reason: it is too old
`))
	want := mirror.Settings{
		Upstreams: map[string]mirror.Upstream{
			"registry.opentofu.org": {},
			"registry.example.com": {
				URL: "https://registry.internal.example.com:8443/", TokenFile: "/run/secrets/token", CAFile: "/etc/ssl/corporate.pem",
				Proxy: "http://user:secret@proxy.example.com:3128", Timeout: mirror.Duration(5 * time.Second), DownloadTimeout: mirror.Duration(time.Hour), Unsigned: true,
			},
		},
		DeleteUnusedAfter: mirror.Duration(720 * time.Hour),
		Rules: []mirror.Rule{{
			Tenants: []string{"team-a", "team-b*"},
			Allow:   []mirror.Pattern{{Provider: "registry.opentofu.org/hashicorp/*"}},
			Deny:    []mirror.Pattern{{Provider: "*/*/null", Versions: "< 3.0.0", Reason: "it is too old"}},
		}},
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseSettings() (-want +got):\n%s", diff)
	}
	for text, says := range map[string]string{
		"":                                       "name at least one registry",
		"upstreams: {a.b: {uri: x}}":             `unknown field "uri"`,
		"upstreams: {'a.b:8443': {}}":            "has a port",
		"upstreams: {A.b: {}}":                   "lower case",
		"upstreams: {a.b: {url: 'http://a.b/'}}": "url: write https://",
		"upstreams: {a.b: {url: 'https://me:secret@a.b/'}}":                                "without credentials",
		"upstreams: {a.b: {proxy: 'secret'}}":                                              "proxy: write http://",
		"upstreams: {a.b: {timeout: 10}}":                                                  "write it as 10s",
		"upstreams: {a.b: {timeout: -1s}}":                                                 "timeout: it is negative",
		"{upstreams: {a.b: {}}, deleteUnusedAfter: 1h}":                                    "at least 48h",
		"{upstreams: {a.b: {}}, rules: [{tenants: [a]}]}":                                  "rules[0]: allow and deny are empty",
		"{upstreams: {a.b: {}}, rules: [{deny: [{provider: aws}]}]}":                       "write HOST/NAMESPACE/TYPE",
		"{upstreams: {a.b: {}}, rules: [{deny: [{provider: 'a/b/['}]}]}":                   "matches no provider",
		"{upstreams: {a.b: {}}, rules: [{deny: [{provider: 'a.b/Acme/*'}]}]}":              "in lower case",
		"{upstreams: {a.b: {}}, rules: [{deny: [{provider: 'a.b/*/*', versions: ~> 5}]}]}": "~> needs two or three numbers",
		"{upstreams: {a.b: {}}, rules: [{deny: [{provider: 'a.b/*/*', versions: ^5.0}]}]}": "is no constraint",
		"{upstreams: {a.b: {}}, rules: [{deny: [{provider: 'a/b/c', versions: new}]}]}":    "is no constraint",
		"{upstreams: {a.b: {}}, rules: [{tenants: [''], deny: [{provider: 'a/b/c'}]}]}":    "tenants: ",
	} {
		_, err := mirror.ParseSettings([]byte(text))
		if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseSettings(%q) = %v, want an error that says %q", text, err, says)
		}
	}
}

// RG-14: rules decide what a tenant sees and gets; a denial says why.
func TestRules(t *testing.T) {
	signer := registrytest.NewSigner(t)
	u := newUpstream(t,
		registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64), registrytest.NewRelease(t, signer, "acme/cloud", "2.0.0-beta1", 0, amd64),
		registrytest.NewRelease(t, signer, "acme/cloud", "2.0.0", 0, amd64), registrytest.NewRelease(t, signer, "other/cloud", "1.0.0", 0, amd64))
	s := open(t, u, t.TempDir(), func(o *mirror.Options) {
		o.Settings.Rules = []mirror.Rule{
			{Deny: []mirror.Pattern{{Provider: host + "/acme/cloud", Versions: "< 2.0.0", Reason: "it leaks passwords: use 2.0.0"}}},
			{Tenants: []string{"team-*"}, Allow: []mirror.Pattern{{Provider: host + "/acme/*"}}},
			{Tenants: []string{"team-b"}, Allow: []mirror.Pattern{{Provider: "*/other/cloud"}}},
			{Tenants: []string{"locked"}, Deny: []mirror.Pattern{{Provider: "*/*/*", Reason: "the tenant is locked"}}},
		}
	})
	acme, other := provider(t, "acme/cloud"), provider(t, "other/cloud")
	for _, tt := range []struct {
		tenant   string
		provider address.Provider
		want     []address.Version
		says     string
	}{
		{tenant: "team-a", provider: acme, want: []address.Version{"2.0.0"}},
		{tenant: "anyone", provider: acme, want: []address.Version{"2.0.0"}},
		{tenant: "anyone", provider: other, want: []address.Version{"1.0.0"}},
		{tenant: "team-a", provider: other, says: "on no allow list of the tenant team-a"},
		{tenant: "team-b", provider: other, want: []address.Version{"1.0.0"}},
		{tenant: "locked", provider: other, says: "the tenant is locked"},
	} {
		got, err := s.Versions(t.Context(), tt.tenant, tt.provider)
		if !slices.Equal(got, tt.want) || (fault.Reason(err, "") == mirror.ReasonDenied) != (tt.says != "") || tt.says != "" && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("Versions(%s, %s) = %v, %v, want %v, %q", tt.tenant, tt.provider, got, err, tt.want, tt.says)
		}
	}
	for _, v := range []address.Version{"1.0.0", "2.0.0-beta1"} {
		_, err := s.Version(t.Context(), "team-a", acme, v)
		if fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), "it leaks passwords: use 2.0.0") {
			t.Errorf("Version(%s) = %v, want a denial with its reason", v, err)
		}
		if _, err := s.OpenArchive(t.Context(), "team-a", mirror.ArchiveKey(acme, v, platform(t, amd64))); fault.Of(err) != fault.Denied {
			t.Errorf("Archive(%s) = %v, want a denial", v, err)
		}
	}
	if got := u.Count(".zip"); got > 0 {
		t.Errorf("the upstream got %d requests for archives that are denied", got)
	}
}

// Patterns and constraints mean what they mean in configurations.
func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, versions, version string
		want                       bool
	}{
		{pattern: host + "/acme/cloud", want: true},
		{pattern: "*/*/*", want: true},
		{pattern: "registry.*/ac*e/*ud", want: true},
		{pattern: "*.com/*/cl*d", want: true},
		{pattern: "*/*/clou", want: false},
		{pattern: "*/*/loud", want: false},
		{pattern: "*/*/*udd", want: false},
		{pattern: "*/*/c*ouo*d", want: false},
		{versions: "~> 5.0", version: "5.9.1", want: true},
		{versions: "~> 5.0", version: "6.0.0", want: false},
		{versions: "~> 5.0", version: "6.0.0-beta1", want: false},
		{versions: "~> 5.0.1", version: "5.0.9", want: true},
		{versions: "~> 5.0.1", version: "5.0.0", want: false},
		{versions: "~> 5.0.1", version: "5.1.0", want: false},
		{versions: "5.1", version: "5.1.0", want: true},
		{versions: "5.1", version: "5.1.1", want: false},
		{versions: "= 5.1.0", version: "5.1.0", want: true},
		{versions: "!= 5.1.0", version: "5.1.0", want: false},
		{versions: ">= 5.0.0, < 6.0.0", version: "5.4.0", want: true},
		{versions: ">= 5.0.0, < 6.0.0", version: "6.0.0-rc1", want: true},
		{versions: ">5, <=6", version: "6.0.0", want: true},
		{versions: ">5, <=6", version: "5.0.0", want: false},
		{versions: ">= 5.0.0-beta2", version: "5.0.0-beta1", want: false},
	} {
		if tt.pattern == "" {
			tt.pattern = "*/*/*"
		}
		if tt.version == "" {
			tt.version = "1.0.0"
		}
		r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", tt.version, 0, amd64)
		s := open(t, newUpstream(t, r), t.TempDir(), func(o *mirror.Options) {
			o.Settings.Rules = []mirror.Rule{{Tenants: []string{"https://issuer*"}, Deny: []mirror.Pattern{{Provider: tt.pattern, Versions: tt.versions}}}}
		})
		p := provider(t, "acme/cloud")
		_, err := s.Version(t.Context(), "https://issuer.example.com/x", p, address.Version(tt.version))
		if denied := fault.Reason(err, "") == mirror.ReasonDenied; denied != tt.want || !denied && err != nil {
			t.Errorf("%s with %q denies %s: %v, want %v", tt.pattern, tt.versions, tt.version, err, tt.want)
		}
		if _, err := s.Version(t.Context(), "https://other.example.com", p, address.Version(tt.version)); err != nil {
			t.Errorf("a rule denies %s to a tenant that it does not name: %v", tt.version, err)
		}
	}
}

// RG-15: the token goes to the registry, and not to where its archives are; it is read
// for each request, so that it can be renewed.
func TestTokensOfUpstreams(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 0, amd64)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first-canary")
	u := newUpstream(t, r)
	u.Require("first-canary")
	s := open(t, u, t.TempDir(), setUpstream(func(u *mirror.Upstream) { u.TokenFile = file }))
	s.installs(t, r, amd64)
	for _, asked := range u.Asked() {
		registry := strings.HasPrefix(asked.Path, "/v1/providers/") || strings.HasPrefix(asked.Path, "/.well-known/")
		if (asked.Authorization == "Bearer first-canary") != registry {
			t.Errorf("%s was asked for with the authorization %q", asked.Path, asked.Authorization)
		}
	}
	u.Require("second-canary")
	s.clock.move(time.Hour)
	_, err := s.Versions(t.Context(), tenant, provider(t, "acme/other"))
	if fault.Reason(err, "") != mirror.ReasonToken || !strings.Contains(err.Error(), "renew the token in "+file) || strings.Contains(err.Error(), "canary") {
		t.Errorf("with an old token: %v", err)
	}
	write("second-canary")
	s.clock.move(time.Hour)
	next := registrytest.NewRelease(t, signer, "acme/cloud", "2.0.0", 0, amd64)
	u.Publish(next)
	s.installs(t, next, amd64)
}

// RG-15: a proxy and an authority of one upstream.
func TestProxiesOfUpstreams(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, amd64)
	u := newUpstream(t, r)
	s := open(t, u, t.TempDir(), setUpstream(func(up *mirror.Upstream) {
		up.URL, up.Proxy = "https://"+registrytest.Host+"/", u.Proxy
	}))
	s.installs(t, r, amd64)
	if !slices.ContainsFunc(u.Asked(), func(r registrytest.Request) bool { return r.Proxied }) {
		t.Errorf("no request came through the proxy: %+v", u.Asked())
	}
	s = open(t, u, t.TempDir(), setUpstream(func(up *mirror.Upstream) { up.CAFile = "" }))
	if _, err := s.Versions(t.Context(), tenant, provider(t, "acme/cloud")); fault.Reason(err, "") != mirror.ReasonUnreachable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the authority: %v", err)
	}
}
