package vault_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

func server(s vaulttest.Server) vault.Server {
	return vault.Server{URL: s.URL, HTTP: http.DefaultClient}
}

// session signs in with a token of a policy.
func session(t *testing.T, s vaulttest.Server, rules string) vault.Session {
	t.Helper()
	s.Policy(t, "app", rules+"\npath \"auth/token/create\" { capabilities = [\"update\"] }\n")
	got, err := server(s).SignIn(t.Context(), vault.SignIn{Method: vault.Token, Identity: secret.New(s.Token(t, "app", "1h"))})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const mayRead = `path "kyuubi/data/*" { capabilities = ["read"] }
path "old/*" { capabilities = ["read"] }
path "pki/issue/web" { capabilities = ["update"] }
path "transit/decrypt/k" { capabilities = ["update"] }
`

func TestRead(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		s.Write(t, "database", map[string]any{"mariadb_password": "first", "port": 3306, "hosts": []string{"a", "b"}})
		s.Write(t, "database", map[string]any{"mariadb_password": "second\nline", "tls": nil})
		s.Ask(t, http.MethodPost, "old/app", map[string]any{"password": "old"})
		in := session(t, s, mayRead)
		for name, tt := range map[string]struct {
			wanted  vault.Wanted
			data    map[string][]byte
			version int
		}{
			"the newest version":       {vault.Wanted{Path: "kyuubi/database"}, map[string][]byte{"mariadb_password": []byte("second\nline")}, 2},
			"a version":                {vault.Wanted{Path: "kyuubi/database", Version: 1}, map[string][]byte{"mariadb_password": []byte("first"), "port": []byte("3306"), "hosts": []byte(`["a","b"]`)}, 1},
			"a store without versions": {vault.Wanted{Path: "old/app"}, map[string][]byte{"password": []byte("old")}, 0},
		} {
			got, err := in.Read(t.Context(), tt.wanted)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if diff := cmp.Diff(tt.data, got.Data); diff != "" || got.Version != tt.version || got.Made || got.RequestID == "" || got.For != 0 {
				t.Errorf("%s: %+v (-want +got):\n%s", name, got, diff)
			}
		}
		made := s.Ask(t, http.MethodPost, "transit/encrypt/k", map[string]string{"plaintext": base64.StdEncoding.EncodeToString([]byte("s3cret"))})
		data, _ := made["data"].(map[string]any)
		ciphertext, _ := data["ciphertext"].(string)
		got, err := in.Read(t.Context(), vault.Wanted{Path: "transit/decrypt/k", With: map[string]string{"ciphertext": ciphertext}})
		if err != nil || string(got.Data["plaintext"]) != "s3cret" || got.Made {
			t.Errorf("decrypting: %+v, %v", got, err)
		}
	})
}

func TestWhatCannotBeRead(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		s.Write(t, "database", map[string]any{"password": "value-canary"})
		s.Write(t, "gone", map[string]any{"password": "value-canary"})
		s.Ask(t, http.MethodDelete, "kyuubi/data/gone", nil)
		s.Ask(t, http.MethodPost, "old/app", map[string]any{"password": "value-canary"})
		s.Ask(t, http.MethodPost, "old/other", map[string]any{"password": "value-canary"})
		in := session(t, s, strings.Replace(mayRead, "old/*", "old/app", 1))
		for name, tt := range map[string]struct {
			wanted vault.Wanted
			kind   fault.Kind
			says   string
		}{
			"a path without a secret":        {vault.Wanted{Path: "kyuubi/nothing"}, fault.Missing, "check the path"},
			"a version that was deleted":     {vault.Wanted{Path: "kyuubi/gone", Version: 1}, fault.Missing, "undelete"},
			"the newest version, deleted":    {vault.Wanted{Path: "kyuubi/gone"}, fault.Missing, "check the path"},
			"a version that never was":       {vault.Wanted{Path: "kyuubi/database", Version: 7}, fault.Missing, "no version 7"},
			"a version where there are none": {vault.Wanted{Path: "old/app", Version: 1}, fault.Denied, "keeps no versions: remove @1"},
			"a parameter of a store":         {vault.Wanted{Path: "kyuubi/database", With: map[string]string{"x": "1"}}, fault.Denied, "takes no parameters"},
			"what the policy does not allow": {vault.Wanted{Path: "old/other"}, fault.Denied, "allow it to"},
			"a mount that is not there":      {vault.Wanted{Path: "nowhere/secret"}, fault.Denied, "check the path"},
			"the server itself":              {vault.Wanted{Path: "sys/policies/acl/app"}, fault.Invalid, "part of the server"},
			"its methods":                    {vault.Wanted{Path: "auth/token/lookup-self"}, fault.Invalid, "part of the server"},
			"a path that goes up":            {vault.Wanted{Path: "kyuubi/../sys/mounts"}, fault.Invalid, "no path of a secret"},
			"a path with a gap":              {vault.Wanted{Path: "kyuubi//database"}, fault.Invalid, "no path of a secret"},
			"a mount alone":                  {vault.Wanted{Path: "kyuubi"}, fault.Invalid, "write MOUNT/PATH"},
			"a certificate without a name":   {vault.Wanted{Path: "pki/issue/web"}, fault.Later, "correct what is asked"},
		} {
			got, err := in.Read(t.Context(), tt.wanted)
			if fault.Of(err) != tt.kind || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %+v, %s %v, want %s that says %q", name, got.Data, fault.Of(err), err, tt.kind, tt.says)
			}
		}
	})
}

// What is made with a session lasts as long as it is renewed, and ends with it.
func TestWhatASessionMakesEndsWithIt(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		in := session(t, s, mayRead+"path \"sys/leases/renew\" { capabilities = [\"update\"] }\n")
		wanted := vault.Wanted{Path: "pki/issue/web", With: map[string]string{"common_name": "a.example.com", "ttl": "1h"}}
		if makes, err := in.Makes(t.Context(), wanted.Path); err != nil || !makes {
			t.Errorf("Makes() = %t, %v", makes, err)
		}
		if makes, err := in.Makes(t.Context(), "kyuubi/database"); err != nil || makes {
			t.Errorf("Makes() of a store = %t, %v", makes, err)
		}
		got, err := in.Read(t.Context(), wanted)
		if err != nil || !got.Made || got.Lease == "" || got.For <= 0 || len(got.Data["private_key"]) == 0 {
			t.Fatalf("Read() = %+v, %v", got, err)
		}
		if long, err := in.Renew(t.Context()); err != nil || long <= 0 {
			t.Errorf("Renew() = %s, %v", long, err)
		}
		if !s.Leased(t, got.Lease) {
			t.Fatalf("the lease %s is not known", got.Lease)
		}
		again := server(s).Resume(in.Token(), in.Accessor) // as a program that was started again has it
		if err := again.End(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		s.AwaitEnded(t, got.Lease)
		if err := again.End(t.Context(), nil); err != nil {
			t.Errorf("ending it a second time: %v", err)
		}
		if _, err := in.Read(t.Context(), wanted); fault.Of(err) != fault.Denied {
			t.Errorf("Read() after the end = %v, want Denied", err)
		}
	})
}

// A token that another program was given is not ended, and what was made with it is.
func TestTheTokenOfAnotherStays(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		s.Policy(t, "plain", mayRead+"path \"auth/token/create\" { capabilities = [\"deny\"] }\npath \"sys/leases/revoke\" { capabilities = [\"update\"] }\n")
		if !s.Real {
			s.Policy(t, "plain", mayRead)
		}
		token := s.Token(t, "plain", "1h")
		in, err := server(s).SignIn(t.Context(), vault.SignIn{Method: vault.Token, Identity: secret.New(token)})
		if err != nil || in.Accessor != "" {
			t.Fatalf("SignIn() = %+v, %v, want the token itself", in, err)
		}
		got, err := in.Read(t.Context(), vault.Wanted{Path: "pki/issue/web", With: map[string]string{"common_name": "a.example.com", "ttl": "1h"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := in.End(t.Context(), []string{got.Lease}); err != nil {
			t.Fatal(err)
		}
		s.AwaitEnded(t, got.Lease)
		if _, err := server(s).SignIn(t.Context(), vault.SignIn{Method: vault.Token, Identity: secret.New(token)}); err != nil {
			t.Errorf("the token was ended, too: %v", err)
		}
	})
}

// The token that a session has below another one does not last as long as that one: the
// controller that would end it may be gone.
func TestATokenBelowAnotherIsShort(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		s.Policy(t, "app", mayRead+"path \"auth/token/create\" { capabilities = [\"update\"] }\n")
		in, err := server(s).SignIn(t.Context(), vault.SignIn{Method: vault.Token, Identity: secret.New(s.Token(t, "app", "48h"))})
		if err != nil || in.Accessor == "" || in.For <= 0 || in.For > time.Hour {
			t.Errorf("SignIn() = %+v, %v, want a token of at most an hour", in, err)
		}
	})
}

func TestWhoIsNotAccepted(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		for name, by := range map[string]vault.SignIn{
			"a token that is not known":    {Method: vault.Token, Identity: secret.New("identity-canary")},
			"a method that is not enabled": {Method: vault.JWT, Path: "elsewhere", Role: "app", Identity: secret.New("identity-canary")},
			"an AppRole that is not there": {Method: vault.AppRole, RoleID: "x", Identity: secret.New("identity-canary")},
			"a path that goes up":          {Method: vault.JWT, Path: "../sys/tools/random", Role: "app", Identity: secret.New("identity-canary")},
		} {
			if _, err := server(s).SignIn(t.Context(), by); fault.Of(err) != fault.Denied || fault.Reason(err, "") != vault.ReasonSignIn || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v, want Denied", name, err)
			}
		}
		if _, err := server(s).SignIn(t.Context(), vault.SignIn{Method: "ldap"}); fault.Of(err) != fault.Invalid {
			t.Errorf("another method: %v, want Invalid", err)
		}
	})
}

// The annotation of a ServiceAccount names the path of a method: it leads nowhere else.
func TestPathsOfMethodsStayBelowAuth(t *testing.T) {
	var asked []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.RequestURI)
		w.WriteHeader(http.StatusBadRequest)
	}))
	t.Cleanup(h.Close)
	at, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../sys/tools/random", "jwt/../../sys", "..", ".", "jwt//other", "%2e%2e/sys/tools/random", "jwt%2f..%2f..%2fsys", "jwt?x=", "jwt#x"} {
		by := vault.SignIn{Method: vault.JWT, Path: path, Role: "app", Identity: secret.New("identity-canary")}
		if _, err := (vault.Server{URL: at, HTTP: http.DefaultClient}).SignIn(t.Context(), by); fault.Of(err) != fault.Denied || fault.Reason(err, "") != vault.ReasonSignIn || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want Denied", path, err)
		}
	}
	want := []string{"/v1/auth/%252e%252e/sys/tools/random/login", "/v1/auth/jwt%252f..%252f..%252fsys/login", "/v1/auth/jwt%3Fx=/login", "/v1/auth/jwt%23x/login"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the server was asked for (-want +got):\n%s", diff)
	}
}

func TestAServerInTrouble(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		s.Write(t, "database", map[string]any{"password": "value-canary"})
		in := session(t, s, mayRead)
		if h, err := server(s).Health(t.Context()); err != nil || h.Problem() != nil {
			t.Errorf("Health() = %+v, %v", h, err)
		}
		s.Ask(t, http.MethodPut, "sys/seal", nil)
		if h, err := server(s).Health(t.Context()); err != nil || !h.Sealed || !strings.Contains(h.Problem().Error(), "unseal") {
			t.Errorf("Health() = %+v, %v, want that it is sealed", h, err)
		}
		if _, err := in.Read(t.Context(), vault.Wanted{Path: "kyuubi/database"}); fault.Of(err) != fault.Later || fault.Reason(err, "") != vault.ReasonSealed {
			t.Errorf("Read() = %v, want Later, sealed", err)
		}
		if err := in.End(t.Context(), nil); fault.Of(err) != fault.Later {
			t.Errorf("End() = %v, want Later", err)
		}
	})
	dead := vault.Server{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, HTTP: http.DefaultClient}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := dead.Health(ctx); fault.Of(err) != fault.Later {
		t.Errorf("Health() of a server that is not there = %v, want Later", err)
	}
	if _, err := dead.SignIn(ctx, vault.SignIn{Method: vault.JWT, Role: "app"}); fault.Of(err) != fault.Later || fault.Reason(err, "") != vault.ReasonUnreachable {
		t.Errorf("SignIn() there = %v, want Later", err)
	}
}
