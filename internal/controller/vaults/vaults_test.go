package vaults

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// accounts are ServiceAccounts whose tokens a key signs, as an API server does.
type accounts struct {
	key         *ecdsa.PrivateKey
	annotations map[types.NamespacedName]map[string]string
}

func (a accounts) Annotations(_ context.Context, account types.NamespacedName) (map[string]string, error) {
	said, ok := a.annotations[account]
	if !ok {
		return nil, fault.New(fault.Missing, "", errors.New("there is no such ServiceAccount"))
	}
	return said, nil
}

func (a accounts) Token(_ context.Context, account types.NamespacedName, audience string) (secret.Text, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: a.key}, nil)
	if err != nil {
		return secret.Text{}, err
	}
	text, err := jwt.Signed(signer).Claims(jwt.Claims{
		Subject: "system:serviceaccount:" + account.Namespace + ":" + account.Name, Audience: jwt.Audience{audience}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute)),
	}).Serialize()
	return secret.New(text), err
}

// world is a Vault with the role app, which the ServiceAccount runner of the namespace
// apps has, and a controller that reads there.
type world struct {
	*testkit.Ledger
	server  vaulttest.Server
	vaults  *Vaults
	objects objects
}

const rules = `path "kyuubi/data/database" { capabilities = ["read"] }
path "pki/issue/web" { capabilities = ["update"] }
path "sys/leases/renew" { capabilities = ["update"] }
`

var appAccount = types.NamespacedName{Namespace: "apps", Name: "runner"}

func newWorld(t *testing.T, s vaulttest.Server) *world {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	s.Policy(t, "app", rules)
	s.Ask(t, http.MethodPost, "sys/auth/jwt", map[string]string{"type": "jwt"})
	s.Ask(t, http.MethodPost, "auth/jwt/config", map[string]any{"jwt_validation_pubkeys": []string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))}})
	s.Ask(t, http.MethodPost, "auth/jwt/role/app", map[string]any{
		"role_type": "jwt", "user_claim": "sub", "bound_audiences": []string{"vault"}, "bound_subject": "system:serviceaccount:apps:runner", "token_policies": "app", "token_ttl": "90s",
	})
	s.Write(t, "database", map[string]any{"password": "value-canary"})
	w := &world{Ledger: testkit.NewLedger(time.Now()), server: s, objects: objects{}}
	w.vaults = (&Vaults{
		Config: Config{Server: vault.Server{URL: s.URL, HTTP: http.DefaultClient}, Method: vault.JWT, Path: "jwt", Audience: "vault", Reread: 10 * time.Minute},
		Accounts: accounts{key, map[types.NamespacedName]map[string]string{
			appAccount:                           {RoleAnnotation: "app", PathAnnotation: "auth/jwt"},
			{Namespace: "apps", Name: "plain"}:   {},
			{Namespace: "other", Name: "runner"}: {RoleAnnotation: "app"},
		}},
		Records: blobtest.Files(t, 1<<20), Audit: w, Log: slog.New(slog.DiscardHandler),
		Now: w.Now,
	}).Open()
	return w
}

func (w *world) stack(account types.NamespacedName) Stack {
	return Stack{UID: "u-1", Account: account, Object: audit.Object{Kind: "Terraform", Namespace: account.Namespace, Name: "net", UID: "u-1"}, Objects: w.objects}
}

// objects is a cluster with these Secrets.
type objects map[stack.Ref]map[string][]byte

func (o objects) Read(_ context.Context, ref stack.Ref) (map[string][]byte, []string, error) {
	data, ok := o[ref]
	if !ok {
		return nil, nil, fault.New(fault.Missing, "", errors.New("there is none"))
	}
	return data, nil, nil
}

// keep writes a Secret.
func (w *world) keep(namespace, name string, data map[string]string) {
	as := map[string][]byte{}
	for key, text := range data {
		as[key] = []byte(text)
	}
	w.objects[secretOf(namespace, name)] = as
}

func secretOf(namespace, name string) stack.Ref {
	return stack.Ref{Kind: input.Secret, Namespace: namespace, Name: name}
}

func (w *world) read(t *testing.T, account types.NamespacedName, name string) (input.Value, error) {
	t.Helper()
	return w.readFor(t, w.stack(account), name)
}

func (w *world) readFor(t *testing.T, of Stack, name string) (input.Value, error) {
	t.Helper()
	return readWith(t, w.vaults.Reader(of), name)
}

func readWith(t *testing.T, r input.Reader, name string) (input.Value, error) {
	t.Helper()
	return input.Read(t.Context(), r, stack.Ref{Kind: input.Secret, Namespace: appAccount.Namespace, Name: name})
}

func TestReading(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		for range 3 { // once at the server
			got, err := w.read(t, appAccount, "vault://kyuubi/database#password")
			if err != nil || string(got.Data["password"]) != "value-canary" || got.Version != "vault://kyuubi/database@1" || !got.Until.Equal(w.Now().Add(10*time.Minute)) {
				t.Fatalf("Read() = %+v, %v", got, err)
			}
		}
		if len(w.Entries()) != 1 || w.Entries()[0].What != audit.SecretRead || w.Entries()[0].Details["path"] != "kyuubi/database" || w.Entries()[0].Details["version"] != "1" ||
			w.Entries()[0].Details["serviceAccount"] != "apps/runner" || w.Entries()[0].Details["requestID"] == "" || strings.Contains(fmt.Sprint(w.Entries()), "canary") {
			t.Errorf("the audit log has %+v, want one reading", w.Entries())
		}
		s.Write(t, "database", map[string]any{"password": "rotated"})
		w.vaults.secrets.kept.DeleteFunc(func(reading, value) bool { return true }) // as ten minutes do
		if got, err := w.read(t, appAccount, "vault://kyuubi/database#password"); err != nil || string(got.Data["password"]) != "rotated" || got.Version != "vault://kyuubi/database@2" {
			t.Errorf("Read() after a rotation = %+v, %v", got, err)
		}
		if got, err := w.read(t, appAccount, "vault://kyuubi/database@1"); err != nil || string(got.Data["password"]) != "value-canary" || !got.Until.IsZero() {
			t.Errorf("Read() of a version = %+v, %v", got, err)
		}
		if got, err := w.read(t, appAccount, "vault://pki/issue/web"); err != nil || !got.Made || len(got.Data) > 0 {
			t.Errorf("Read() of what is made for each run = %+v, %v", got, err)
		}
	})
}

func TestWhoMayNotRead(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		for name, tt := range map[string]struct {
			account types.NamespacedName
			secret  string
			kind    fault.Kind
			says    string
		}{
			"a secret that the policy does not allow": {appAccount, "vault://kyuubi/other", fault.Denied, "allow it to the role app with a policy"},
			"an account without a role":               {types.NamespacedName{Namespace: "apps", Name: "plain"}, "vault://kyuubi/database", fault.Denied, "annotate it with vault.hashicorp.com/role"},
			"an account that is not there":            {types.NamespacedName{Namespace: "apps", Name: "none"}, "vault://kyuubi/database", fault.Missing, "no such ServiceAccount"},
		} {
			if got, err := w.read(t, tt.account, tt.secret); fault.Of(err) != tt.kind || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %+v, %v, want %s that says %q", name, got, err, tt.kind, tt.says)
			}
		}
		for range 10 { // as a stack does that tries again
			if _, err := w.read(t, appAccount, "vault://kyuubi/other"); fault.Of(err) != fault.Denied {
				t.Fatalf("Read() = %v, want Denied", err)
			}
		}
		if all := s.Accessors(t, "app"); len(all) > 1 {
			t.Errorf("%d sessions of the account are left at the server, want at most one", len(all))
		}
		// The role of another namespace: only a server that verifies identities refuses it.
		if _, err := w.read(t, types.NamespacedName{Namespace: "other", Name: "runner"}, "vault://kyuubi/database"); s.Real && fault.Reason(err, "") != vault.ReasonSignIn {
			t.Errorf("the role of another namespace: %v, want that it is refused", err)
		}
		if len(w.Entries()) != 0 && s.Real {
			t.Errorf("the audit log has %+v, and nothing was read", w.Entries())
		}
	})
}

// What a run is given lasts while it goes on, and ends with it, whatever died between.
func TestRunsGetSecretsOfTheirOwn(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		of := w.stack(appAccount)
		wanted := []input.VaultSecret{
			{Path: "pki/issue/web", Key: "private_key", With: map[string]string{"common_name": "a.example.com", "ttl": "1h"}},
			{Path: "pki/issue/web", Key: "certificate", With: map[string]string{"common_name": "a.example.com", "ttl": "1h"}},
		}
		values, err := w.vaults.Begin(t.Context(), of, "apply-1", wanted)
		if err != nil || len(values) != 2 || len(values[wanted[0].String()]) == 0 {
			t.Fatalf("Begin() = %d values, %v", len(values), err)
		}
		handed, err := w.vaults.handedOut(t.Context(), of.UID)
		if err != nil || handed == nil || handed.Until.IsZero() {
			t.Fatalf("recorded is %+v, %v", handed, err)
		}
		until := handed.Until
		if len(w.Entries()) != 1 || w.Entries()[0].Run != "apply-1" || w.Entries()[0].Details["lease"] == "" {
			t.Fatalf("the audit log has %+v, want one reading for both keys", w.Entries())
		}
		lease := w.Entries()[0].Details["lease"]
		began := w.Now()
		if due, err := w.vaults.Renew(t.Context(), of.UID); err != nil || !due.After(began) || due.After(until) {
			t.Errorf("Renew() = %v, %v, want a time before %v", due, err, until)
		}
		w.Pass(until.Sub(began) * 3 / 4)
		restarted := (&Vaults{Config: w.vaults.Config, Accounts: w.vaults.Accounts, Records: w.vaults.Records, Audit: w, Now: w.vaults.Now, Log: w.vaults.Log}).Open()
		if due, err := restarted.Renew(t.Context(), of.UID); s.Real != (err != nil) && err != nil || err == nil && !due.After(w.vaults.Now()) {
			t.Errorf("Renew() at three quarters = %v, %v", due, err)
		}
		if !s.Leased(t, lease) {
			t.Fatal("the lease ended before the run did")
		}
		if err := restarted.End(t.Context(), of.UID); err != nil {
			t.Errorf("End() = %v", err)
		}
		s.AwaitEnded(t, lease)
		if err := restarted.End(t.Context(), of.UID); err != nil {
			t.Errorf("the second End() = %v", err)
		}
		if h, err := restarted.handedOut(t.Context(), of.UID); h != nil || err != nil {
			t.Errorf("%s is kept: %+v, %v", record.HandedOut(of.UID), h, err)
		}
	})
}

// A run that did not begin leaves nothing, and neither does one that could not be given
// everything.
func TestNothingIsLeftOfWhatFailed(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		of := w.stack(appAccount)
		good := input.VaultSecret{Path: "pki/issue/web", Key: "private_key", With: map[string]string{"common_name": "a.example.com", "ttl": "1h"}}
		leases := func() (all []string) {
			for _, e := range w.Entries() {
				if lease := e.Details["lease"]; lease != "" {
					all = append(all, lease)
				}
			}
			return all
		}
		for name, bad := range map[string]input.VaultSecret{
			"a key that is not there":             {Path: good.Path, Key: "nothing", With: good.With},
			"a secret that may not be read":       {Path: "pki/issue/zzz", Key: "private_key", With: good.With},
			"a certificate that is refused there": {Path: good.Path, Key: "private_key", With: map[string]string{"ttl": "1h"}},
		} {
			if values, err := w.vaults.Begin(t.Context(), of, "plan-1", []input.VaultSecret{good, bad}); err == nil || values != nil {
				t.Errorf("%s: Begin() = %v, want an error", name, values)
			}
			for _, lease := range leases() {
				s.AwaitEnded(t, lease)
			}
			if h, err := w.vaults.handedOut(t.Context(), of.UID); h != nil || err != nil {
				t.Errorf("%s: a session is left: %+v, %v", name, h, err)
			}
		}
		if _, err := w.vaults.Begin(t.Context(), of, "plan-2", []input.VaultSecret{good}); err != nil {
			t.Fatal(err)
		}
		all := leases()
		if _, err := w.vaults.Begin(t.Context(), of, "plan-3", []input.VaultSecret{good}); err != nil {
			t.Fatal(err)
		}
		for _, lease := range all {
			s.AwaitEnded(t, lease)
		}
		if all = leases(); !s.Leased(t, all[len(all)-1]) {
			t.Errorf("the lease %s ended with that of the run that did not begin", all[len(all)-1])
		}
		s.Ask(t, http.MethodPut, "sys/seal", nil)
		if err := w.vaults.End(t.Context(), of.UID); fault.Of(err) != fault.Later {
			t.Errorf("End() at a sealed server = %v, want Later", err)
		}
		if h, err := w.vaults.handedOut(t.Context(), of.UID); h == nil || err != nil {
			t.Errorf("the session is forgotten, and was not ended: %v", err)
		}
		if err := w.vaults.Release(t.Context(), of.UID); err != nil {
			t.Errorf("Release() = %v: a deletion waits for the server", err)
		}
		if h, err := w.vaults.handedOut(t.Context(), of.UID); h != nil || err != nil {
			t.Errorf("the session of a deleted stack is kept: %+v, %v", h, err)
		}
	})
}

func TestWhenItIsRenewed(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := handout{Began: at}
	if !h.due().IsZero() {
		t.Error("what has no end is renewed")
	}
	h.lasts(at, time.Hour)
	h.lasts(at, 0)
	h.lasts(at, 90*time.Minute)
	if diff := cmp.Diff(at.Add(40*time.Minute), h.due()); diff != "" {
		t.Errorf("due() (-want +got):\n%s", diff)
	}
}
