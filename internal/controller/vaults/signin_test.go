package vaults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// annotate gives an account annotations.
func (w *world) annotate(account types.NamespacedName, said map[string]string) {
	w.vaults.Accounts.(accounts).annotations[account] = said
}

// kept is an account that signs in with credentials, and what these are.
type kept struct {
	said map[string]string
	data map[string]string
}

// eachKept are the methods with credentials, for the role app.
func eachKept(t *testing.T, s vaulttest.Server) map[vault.Method]kept {
	t.Helper()
	role, id := s.AppRole(t, "app", "app", "90s")
	s.Policy(t, "app", rules+"path \"auth/token/create\" { capabilities = [\"update\"] }\n")
	return map[vault.Method]kept{
		vault.AppRole: {map[string]string{MethodAnnotation: "approle", CredentialsAnnotation: "mine"}, map[string]string{RoleIDKey: role + "\n", SecretIDKey: id}},
		vault.Token:   {map[string]string{MethodAnnotation: "token", CredentialsAnnotation: "mine"}, map[string]string{TokenKey: s.Token(t, "app", "1h")}},
	}
}

// An account reads, and its runs are made secrets, with the credentials of a Secret of its
// namespace. These are shown nowhere, and other ones count at once.
func TestCredentialsOfAnAccount(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		for method, k := range eachKept(t, s) {
			t.Run(string(method), func(t *testing.T) {
				account := types.NamespacedName{Namespace: "apps", Name: string(method)}
				w.annotate(account, k.said)
				w.keep("apps", "mine", k.data)
				of := w.stack(account)
				of.UID = "u-" + string(method)
				for range 2 {
					if got, err := w.readFor(t, of, "vault://kyuubi/database#password"); err != nil || string(got.Data["password"]) != "value-canary" {
						t.Fatalf("Read() = %+v, %v", got, err)
					}
				}
				wanted := input.VaultSecret{Path: "pki/issue/web", Key: "private_key", With: map[string]string{"common_name": "a.example.com", "ttl": "1h"}}
				if _, err := w.vaults.Begin(t.Context(), of, "apply-1", []input.VaultSecret{wanted}); err != nil {
					t.Fatal(err)
				}
				var lease string
				for _, e := range w.Entries() {
					if e.What != audit.SecretRead || e.Details["serviceAccount"] != account.String() {
						continue
					}
					if e.Details["method"] != string(method) || e.Details["credentials"] != "Secret apps/mine" || e.Details["role"] != "" {
						t.Errorf("the audit log has %+v", e.Details)
					}
					lease = e.Details["lease"]
				}
				if lease == "" || !s.Leased(t, lease) {
					t.Fatalf("the run was made the lease %q", lease)
				}
				if err := w.vaults.End(t.Context(), of.UID); err != nil {
					t.Fatal(err)
				}
				s.AwaitEnded(t, lease)
				text := fmt.Sprint(w.Entries())
				for _, value := range k.data {
					if strings.Contains(text, strings.TrimSpace(value)) {
						t.Errorf("the audit log shows a credential: %s", text)
					}
				}
				// Those that were replaced read nothing more, and their session is ended.
				open := len(s.Accessors(t, "app"))
				without := maps.Clone(k.data)
				for key := range without {
					without[key] = "another-canary"
				}
				w.keep("apps", "mine", without)
				if got, err := w.readFor(t, of, "vault://kyuubi/database#password"); fault.Reason(err, "") != vault.ReasonSignIn || strings.Contains(err.Error(), "canary") || got.Data != nil {
					t.Errorf("Read() with other credentials = %+v, %v, want that they are refused", got, err)
				}
				w.vaults.sweep(t.Context())
				w.Pass(lingers)
				w.vaults.sweep(t.Context())
				if left := len(s.Accessors(t, "app")); left != open-1 {
					t.Errorf("%d sessions of %d are left at the server, want one less", left, open)
				}
				delete(w.objects, secretOf("apps", "mine"))
				if got, err := w.readFor(t, of, "vault://kyuubi/database#password"); fault.Of(err) != fault.Denied || got.Data != nil {
					t.Errorf("Read() without credentials = %+v, %v, want Denied", got, err)
				}
			})
		}
	})
}

// recordedFirst notes how many leases the record has when the audit log gets an entry.
type recordedFirst struct {
	*world
	uid    string
	leases []int
}

func (r *recordedFirst) Record(ctx context.Context, e audit.Entry) error {
	h, err := r.vaults.handedOut(ctx, r.uid)
	if err == nil && h != nil {
		r.leases = append(r.leases, len(h.Leases))
	}
	return errors.Join(err, r.world.Record(ctx, e))
}

// A token that another program was given, and that may make none below it, is not ended by the
// end of a run. What was made with it is, also where the controller died in between.
func TestWhatWasMadeWithATokenEndsWithTheRun(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		s.Policy(t, "plain", strings.ReplaceAll(rules, "sys/leases/renew", "sys/leases/revoke")+"path \"auth/token/create\" { capabilities = [\"deny\"] }\n")
		if !s.Real { // which reads no capabilities
			s.Policy(t, "plain", rules)
		}
		token := s.Token(t, "plain", "1h")
		account := types.NamespacedName{Namespace: "apps", Name: "token"}
		w.annotate(account, map[string]string{MethodAnnotation: "token", CredentialsAnnotation: "mine"})
		w.keep("apps", "mine", map[string]string{TokenKey: token})
		of := w.stack(account)
		seen := &recordedFirst{world: w, uid: of.UID}
		w.vaults.Audit = seen
		good := input.VaultSecret{Path: "pki/issue/web", Key: "private_key", With: map[string]string{"common_name": "a.example.com", "ttl": "1h"}}
		if _, err := w.vaults.Begin(t.Context(), of, "apply-1", []input.VaultSecret{good}); err != nil {
			t.Fatal(err)
		}
		h, err := w.vaults.handedOut(t.Context(), of.UID)
		if err != nil || h == nil || h.Accessor != "" || len(h.Leases) != 1 {
			t.Fatalf("recorded is %+v, %v, want one lease of a session that is not ours", h, err)
		}
		if diff := cmp.Diff([]int{1}, seen.leases); diff != "" {
			t.Errorf("leases that were recorded when each was made (-want +got):\n%s", diff)
		}
		restarted := (&Vaults{Config: w.vaults.Config, Accounts: w.vaults.Accounts, Records: w.vaults.Records, Audit: w, Now: w.Now, Log: w.vaults.Log}).Open()
		if err := restarted.End(t.Context(), of.UID); err != nil {
			t.Fatal(err)
		}
		s.AwaitEnded(t, h.Leases[0])
		if s.Try(t, http.MethodPost, "auth/token/lookup", map[string]string{"token": token})/100 != 2 && s.Real {
			t.Error("the token was ended, which is another program's")
		}
	})
}

// A tenant gets nothing by the credentials of another one, whatever it writes.
func TestCredentialsOfOthers(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		s.Policy(t, "theirs", "path \"kyuubi/data/other\" { capabilities = [\"read\"] }\n")
		s.Write(t, "other", map[string]any{"password": "value-canary"})
		role, id := s.AppRole(t, "theirs", "theirs", "90s")
		mine, _ := s.AppRole(t, "app", "app", "90s")
		w.keep("other", "theirs", map[string]string{RoleIDKey: role, SecretIDKey: id})
		w.keep("apps", "guessed", map[string]string{RoleIDKey: role, SecretIDKey: "guessed-canary"})
		w.keep("apps", "crossed", map[string]string{RoleIDKey: mine, SecretIDKey: id})
		w.keep("apps", "half", map[string]string{RoleIDKey: mine})
		w.keep("apps", "wrong", map[string]string{RoleIDKey: mine, SecretIDKey: "a b"})
		w.keep("apps", "long", map[string]string{RoleIDKey: mine, SecretIDKey: strings.Repeat("x", credentialMost+1)})
		account := types.NamespacedName{Namespace: "apps", Name: "tenant"}
		appRole := func(name string) map[string]string {
			return map[string]string{MethodAnnotation: "approle", CredentialsAnnotation: name}
		}
		for name, tt := range map[string]struct {
			said map[string]string
			says string
		}{
			"the name of their Secret":              {appRole("theirs"), "the Secret theirs of the namespace apps"},
			"the name of their Secret and its home": {appRole("other/theirs"), "the Secret other/theirs of the namespace apps"},
			"their role ID":                         {appRole("guessed"), "check the role ID and the secret ID"},
			"their secret ID":                       {appRole("crossed"), "check the role ID and the secret ID"},
			"no secret ID":                          {appRole("half"), "has no key secret-id: write it there"},
			"a text that is none":                   {appRole("wrong"), "is no credential"},
			"a text that is too long":               {appRole("long"), "is no credential"},
			"no Secret":                             {map[string]string{MethodAnnotation: "approle"}, "annotate it with terrier.dev/vault-credentials: NAME"},
			"a Secret, and no method":               {map[string]string{CredentialsAnnotation: "half", RoleAnnotation: "app"}, "annotate it with vault.hashicorp.com/auth-type: approle or token"},
			"a method of the installation's choice": {map[string]string{MethodAnnotation: "kubernetes", RoleAnnotation: "app"}, "ServiceAccounts sign in with jwt here"},
			"a method that is none":                 {map[string]string{MethodAnnotation: "aws", RoleAnnotation: "app"}, "write approle or token, or remove it"},
			"a path that leads elsewhere":           {map[string]string{MethodAnnotation: "approle", CredentialsAnnotation: "crossed", PathAnnotation: "../sys"}, "no path of a method below auth/"},
		} {
			w.annotate(account, tt.said)
			got, err := w.read(t, account, "vault://kyuubi/other")
			if fault.Of(err) != fault.Denied || fault.Reason(err, "") != vault.ReasonSignIn || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "canary") || got.Data != nil {
				t.Errorf("%s: %+v, %v, want that it is denied and says %q", name, got, err, tt.says)
			}
		}
		if n := len(w.Entries()); n != 0 {
			t.Errorf("the audit log has %d readings, and nothing was read", n)
		}
		// The owner reads, until the secret ID is ended there.
		owner := types.NamespacedName{Namespace: "other", Name: "owner"}
		w.annotate(owner, appRole("theirs"))
		if got, err := w.read(t, owner, "vault://kyuubi/other"); err != nil || string(got.Data["password"]) != "value-canary" {
			t.Fatalf("the owner reads %+v, %v", got, err)
		}
		s.EndSecretID(t, "theirs", id)
		if _, err := w.vaults.Begin(t.Context(), w.stack(owner), "apply-1", nil); fault.Reason(err, "") != vault.ReasonSignIn || !strings.Contains(err.Error(), "vault write -f auth/approle/role/NAME/secret-id") {
			t.Errorf("Begin() with a secret ID that was ended = %v, want that it is refused and says how another one is made", err)
		}
	})
}
