package vaults

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// However many stacks of an account read at once, the account has one session.
func TestStacksOfAnAccountShareASession(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if got, err := w.read(t, appAccount, "vault://kyuubi/database"); err != nil || string(got.Data["password"]) != "value-canary" {
					t.Errorf("Read() = %+v, %v", got, err)
				}
			})
		}
		all.Wait()
		if all := s.Accessors(t, "app"); len(all) != 1 {
			t.Errorf("the account has %d sessions at the server, want one", len(all))
		}
	})
}

// A session that ended at the server is replaced when it is refused a secret, and so is one
// whose role may have got other policies.
func TestSessionsAreReplaced(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		w.vaults.Config.Reread = time.Nanosecond // nothing is kept
		read := func() {
			t.Helper()
			w.Pass(time.Second)
			if got, err := w.read(t, appAccount, "vault://kyuubi/database"); err != nil || string(got.Data["password"]) != "value-canary" {
				t.Fatalf("Read() = %+v, %v", got, err)
			}
		}
		read()
		first := s.Accessors(t, "app")
		if len(first) != 1 {
			t.Fatalf("the account has the sessions %q, want one", first)
		}
		s.Ask(t, http.MethodPost, "auth/token/revoke-accessor", map[string]string{"accessor": first[0]})
		read()
		second := s.Accessors(t, "app")
		if len(second) != 1 || second[0] == first[0] {
			t.Errorf("after the session %q ended, the account has %q", first, second)
		}

		w.Pass(46 * time.Second) // half of what the role gives
		read()
		w.vaults.sweep(t.Context())
		w.Pass(lingers)
		w.vaults.sweep(t.Context())
		third := s.Accessors(t, "app")
		if len(third) > 1 || len(third) == 1 && third[0] == second[0] {
			t.Errorf("of the session %q, which was replaced, and its successors %q go on", second, third)
		}

		read()
		w.vaults.close(t.Context())
		if all := s.Accessors(t, "app"); len(all) != 0 {
			t.Errorf("when the program has ended, the sessions %q go on", all)
		}
	})
}

// The policies of a role are those of the sign-in: one that got another is asked for it
// again, some minutes later.
func TestARoleThatGetsAnotherPolicy(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		role := map[string]any{
			"role_type": "jwt", "user_claim": "sub", "bound_audiences": []string{"vault"}, "bound_subject": "system:serviceaccount:apps:runner", "token_policies": "app", "token_ttl": "1h",
		}
		s.Ask(t, http.MethodPost, "auth/jwt/role/app", role)
		s.Write(t, "other", map[string]any{"password": "another"})
		denied := func() {
			t.Helper()
			if _, err := w.read(t, appAccount, "vault://kyuubi/other"); fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), "with a policy") {
				t.Fatalf("Read() = %v, want Denied", err)
			}
		}
		denied()
		s.Policy(t, "more", `path "kyuubi/data/*" { capabilities = ["read"] }`)
		role["token_policies"] = "more"
		s.Ask(t, http.MethodPost, "auth/jwt/role/app", role)
		denied()
		w.Pass(staleAfter)
		if got, err := w.read(t, appAccount, "vault://kyuubi/other"); err != nil || string(got.Data["password"]) != "another" {
			t.Errorf("Read() = %+v, %v", got, err)
		}
		w.Pass(lingers)
		w.vaults.sweep(t.Context())
		if all := s.Accessors(t, "app"); len(all) != 0 {
			t.Errorf("the session of before goes on: %q", all)
		}
	})
}

// What has to change is the account and not the stack: it is no fault of the stack that stays
// until the stack changes, and the next attempt succeeds.
func TestAnAccountThatIsAnnotatedLater(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		said := w.vaults.Accounts.(accounts).annotations
		said[appAccount] = map[string]string{}
		_, err := w.read(t, appAccount, "vault://kyuubi/database")
		next := stack.Decide(stack.Observation{Spec: stack.Spec{RetryEvery: time.Minute}, Blocked: &stack.Blocked{Kind: fault.Of(err), Reason: stack.InputsFailed}})
		if wait, ok := next.Action.(stack.Wait); !ok || wait.For != time.Minute || next.Ready != stack.Stalled {
			t.Errorf("after %v the stack is %s and does %+v, want that it tries again within a minute", err, next.Ready, next.Action)
		}
		said[appAccount] = map[string]string{RoleAnnotation: "app"}
		if got, err := w.read(t, appAccount, "vault://kyuubi/database"); err != nil || string(got.Data["password"]) != "value-canary" {
			t.Errorf("Read() = %+v, %v", got, err)
		}
	})
}

// A server that is down is asked again to end what was replaced.
func TestSessionsThatCannotBeEndedYet(t *testing.T) {
	s := vaulttest.StandIn(t)
	w := newWorld(t, s)
	if _, err := w.read(t, appAccount, "vault://kyuubi/database"); err != nil {
		t.Fatal(err)
	}
	s.Ask(t, http.MethodPut, "sys/seal", nil)
	w.Pass(46 * time.Second)
	for range 3 {
		w.vaults.sweep(t.Context())
		w.Pass(lingers)
	}
	s.Ask(t, http.MethodPut, "sys/unseal", nil)
	if all := s.Accessors(t, "app"); len(all) != 1 {
		t.Fatalf("the account has the sessions %q, want the one that could not be ended", all)
	}
	w.vaults.sweep(t.Context())
	if all := s.Accessors(t, "app"); len(all) != 0 {
		t.Errorf("the sessions %q go on", all)
	}
}
