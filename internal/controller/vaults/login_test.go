package vaults

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// logins are the sessions of runs that sign in by their identity.
func (w *world) logins(records Records) *Vaults {
	return (&Vaults{Config: Config{Server: vault.Server{HTTP: http.DefaultClient}}, Records: records, Logins: true, Now: w.vaults.Now, Log: slog.New(slog.DiscardHandler)}).Open()
}

func (w *world) jwt(t *testing.T, account types.NamespacedName, audience string) secret.Text {
	t.Helper()
	token, err := w.vaults.Accounts.Token(t.Context(), account, audience)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// The session of a run lasts while the run goes on, ends with it whatever died between, and has
// nothing to do with the secrets that the same run is given.
func TestARunIsSignedIn(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		logins, at := w.logins(w.vaults.Records), vault.Server{URL: s.URL}
		lives := func(token secret.Text) bool {
			server := at
			server.HTTP = http.DefaultClient
			known, err := server.Resume(token, "").Known(t.Context())
			return known && err == nil
		}
		by := vault.SignIn{Method: vault.JWT, Path: "jwt", Role: "app", Identity: w.jwt(t, appAccount, "vault")}
		began := w.Now()
		token, err := logins.Login(t.Context(), "u-1", "apply-1", at, by)
		if err != nil || token.Empty() || !lives(token) {
			t.Fatalf("Login() = %v, %v", token.Empty(), err)
		}
		if _, err := w.vaults.Begin(t.Context(), w.stack(appAccount), "apply-1", []input.VaultSecret{{Path: "kyuubi/database", Key: "password"}}); err != nil {
			t.Fatal(err)
		}
		due, err := logins.Renew(t.Context(), "u-1")
		if err != nil || !due.Equal(began.Add(time.Minute)) { // two thirds of 90 seconds
			t.Errorf("Renew() = %v, %v, want %v", due, err, began.Add(time.Minute))
		}
		w.Pass(time.Minute)
		restarted := w.logins(w.vaults.Records)
		if due, err := restarted.Renew(t.Context(), "u-1"); err != nil || !due.After(w.vaults.Now()) || !lives(token) {
			t.Errorf("Renew() at two thirds, after a restart = %v, %v", due, err)
		}
		if err := w.vaults.End(t.Context(), "u-1"); err != nil || !lives(token) {
			t.Errorf("the end of the secrets of the run ended its session: %v", err)
		}
		// A run that did not begin leaves its session to the next one, which ends it.
		next, err := restarted.Login(t.Context(), "u-1", "apply-2", at, by)
		if err != nil || lives(token) || !lives(next) {
			t.Errorf("the next run: %v; the session before lives: %v", err, lives(token))
		}
		var known Known
		if wait := restarted.Tend(t.Context(), "u-1", false, &known); wait != 0 || lives(next) {
			t.Errorf("after the run Tend() = %v, and its session lives: %v", wait, lives(next))
		}
		if err := restarted.Release(t.Context(), "u-1"); err != nil {
			t.Error(err)
		}
	})
}

// Who may not sign in gets no session, and none is recorded.
func TestWhoMayNotSignIn(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		logins, at := w.logins(w.vaults.Records), vault.Server{URL: s.URL}
		refused := map[string]vault.SignIn{
			"a role that is not there": {Method: vault.JWT, Path: "jwt", Role: "another", Identity: w.jwt(t, appAccount, "vault")},
			"a method that is not":     {Method: vault.JWT, Path: "elsewhere", Role: "app", Identity: w.jwt(t, appAccount, "vault")},
			"a token that is none":     {Method: vault.JWT, Path: "jwt", Role: "app", Identity: secret.New("bad")},
		}
		if s.Real { // the stand-in verifies no token
			refused["the role of another tenant"] = vault.SignIn{Method: vault.JWT, Path: "jwt", Role: "app", Identity: w.jwt(t, types.NamespacedName{Namespace: "other", Name: "runner"}, "vault")}
			refused["another audience"] = vault.SignIn{Method: vault.JWT, Path: "jwt", Role: "app", Identity: w.jwt(t, appAccount, "elsewhere")}
		}
		for name, by := range refused {
			token, err := logins.Login(t.Context(), "u-1", "apply-1", at, by)
			if fault.Of(err) != fault.Denied || fault.Reason(err, "") != vault.ReasonSignIn || !token.Empty() {
				t.Errorf("%s: %v, want that it is denied", name, err)
			}
			if h, err := logins.handedOut(t.Context(), "u-1"); h != nil || err != nil {
				t.Errorf("%s: recorded is %+v, %v", name, h, err)
			}
		}
	})
}

// A server that does not answer holds no run, no end of one and no deletion up for longer than
// its first request.
func TestSigningInToAServerThatIsAway(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		line := &wire{to: http.DefaultTransport}
		logins, at := w.logins(w.vaults.Records), vault.Server{URL: s.URL}
		logins.Config.Server.HTTP = &http.Client{Transport: line}
		by := vault.SignIn{Method: vault.JWT, Path: "jwt", Role: "app", Identity: w.jwt(t, appAccount, "vault")}
		if _, err := logins.Login(t.Context(), "u-1", "apply-1", at, by); err != nil {
			t.Fatal(err)
		}
		line.set(true)
		line.take()
		var known Known
		for range 3 {
			if wait := logins.Tend(t.Context(), "u-1", false, &known); wait != retryEnd {
				t.Errorf("Tend() = %v, want that it is tried again in %v", wait, retryEnd)
			}
		}
		if _, err := logins.Login(t.Context(), "u-2", "apply-1", at, by); fault.Reason(err, "") != vault.ReasonUnreachable {
			t.Errorf("Login() = %v", err)
		}
		if asked := line.take(); len(asked) != 1 {
			t.Errorf("asked were %v, want one request", asked)
		}
		if err := logins.Release(t.Context(), "u-1"); err != nil {
			t.Errorf("a deletion waits: %v", err)
		}
	})
}
