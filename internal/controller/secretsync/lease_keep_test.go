package secretsync

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// An object that cannot be served has its credential renewed as long as the store that gave it
// would give it again, whichever store the object names now.
func TestCredentialsAreRenewedByTheStoreThatGaveThem(t *testing.T) {
	const elsewhere = `{"spec":{"secretStoreRef":{"name":"vault"},"refreshPolicy":"OnChange"}}` // it may use that store, which does not have the secret
	for name, tt := range map[string]struct {
		object, role string
		gone         bool
		renewed      int
	}{
		"the object names a store that is not there":         {object: `{"spec":{"secretStoreRef":{"name":"nowhere"}}}`, renewed: 1},
		"the object names another store":                     {object: elsewhere, renewed: 1},
		"the spec is wrong":                                  {object: `{"spec":{"refreshPolicy":"OnChange"}}`, renewed: 1},
		"the object names another store, and its own left":   {object: elsewhere, gone: true},
		"the object names another store, and its own is new": {object: elsewhere, role: "other"},
		"its own store is new":                               {role: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			v := vaulttest.StandIn(t)
			s := leased(t, v, "")
			lease := s.entries(audit.SecretRead)[0]
			if tt.object != "" {
				s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", tt.object)
			}
			if tt.role != "" {
				s.Kubectl(t, "patch", "secretstore/made", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"provider":{"vault":{"auth":{"kubernetes":{"role":%q}}}}}}`, tt.role))
			}
			if tt.gone {
				s.Kubectl(t, "delete", "secretstore/made")
			}
			s.Pass(400 * time.Second)
			s.once("app")
			if renewed := s.entries(audit.SecretRenewed); len(renewed) != tt.renewed || tt.renewed > 0 && renewed[0] != lease {
				t.Errorf("renewed are %q, want %s %d times", renewed, lease, tt.renewed)
			}
			s.condition("app", conditionReady, metav1.ConditionFalse, s.reason("app"), "")
			if len(s.entries(audit.SecretRead)) != 1 {
				t.Error("another credential was made")
			}
		})
	}
}

// reason is why an object is ready, or not.
func (s *stage) reason(name string) string {
	for _, c := range statusOf(s.get(kindOf, name)).conditions {
		if c.Type == conditionReady {
			return c.Reason
		}
	}
	return ""
}

// Former credentials that wait to be revoked keep an author from having more made, and not what
// the Secret has from lasting: it is renewed, and replaced once it can last no longer.
func TestCredentialsLastWhileFormerOnesWait(t *testing.T) {
	v := vaulttest.StandIn(t)
	v.Lasting(t, 6000, 0)
	s := newStage(t, v)
	s.Apply(t, fmt.Sprintf(madeStore, v.URL.String(), ""))
	s.once("app")
	s.Kubectl(t, "annotate", "externalsecret/app", externalsecret.GraceAnnotation+"=24h")
	s.once("app")
	for _, label := range []string{"a=1", "a=2", "a=3", "a=4"} {
		if label == "a=3" {
			v.Lasting(t, 600, 0)
		}
		s.Kubectl(t, "label", "externalsecret/app", "--overwrite", label)
		s.once("app")
	}
	s.condition("app", conditionReady, metav1.ConditionFalse, externalsecret.ReasonLeases, externalsecret.GraceAnnotation)
	leases, user := s.entries(audit.SecretRead), s.user()
	if len(leases) != 5 {
		t.Fatalf("the readings are %q, want five", leases)
	}
	s.Pass(400 * time.Second)
	s.once("app")
	if renewed := s.entries(audit.SecretRenewed); len(renewed) != 1 || renewed[0] != leases[4] || s.user() != user {
		t.Fatalf("renewed are %q, want what the Secret has: %s", renewed, leases[4])
	}

	s.Kubectl(t, "label", "externalsecret/app", "--overwrite", "a=3")
	v.Lasting(t, 600, 300) // it may last no longer
	s.Pass(400 * time.Second)
	s.once("app")
	s.Pass(200 * time.Second)
	v.Lasting(t, 600, 0)
	s.once("app")
	s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
	if s.user() == user || len(s.entries(audit.SecretRevoked)) != 0 {
		t.Errorf("the user is %s, and revoked are %q, want another one beside four that wait", s.user(), s.entries(audit.SecretRevoked))
	}

	// A shorter grace counts for those that wait, too.
	s.Kubectl(t, "annotate", "externalsecret/app", "--overwrite", externalsecret.GraceAnnotation+"=1m")
	s.once("app")
	s.Pass(time.Minute)
	s.once("app")
	if revoked := s.entries(audit.SecretRevoked); len(revoked) != 5 {
		t.Errorf("revoked are %q, want the five that waited", revoked)
	}
}

// A credential that has ended is made again less and less often, and what made nothing is not in
// the audit log.
func TestCredentialsThatEndedAndCannotBeMade(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := leased(t, v, "")
	v.Policy(t, "app", `path "rabbitmq/creds/other" { capabilities = ["read"] }`)
	for _, accessor := range v.Accessors(t, "app") {
		v.Ask(t, http.MethodPost, "auth/token/revoke-accessor", map[string]string{"accessor": accessor})
	}
	s.Pass(700 * time.Second)
	r := newReconciler(s.options, s.Client, &guard{live: s.Client, now: s.options.Now, log: s.options.Log})
	pass := func() time.Duration {
		out, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: "app"}})
		if err != nil {
			t.Fatal(err)
		}
		return out.RequeueAfter
	}
	was := len(s.Entries())
	var wait time.Duration
	for range 12 {
		wait = pass()
		s.Pass(wait)
	}
	s.condition("app", conditionReady, metav1.ConditionFalse, vault.ReasonDenied, "rabbitmq/creds/app")
	if wait != latestRetry {
		t.Errorf("the next attempt is in %v, want %v", wait, latestRetry)
	}
	if more := s.Entries()[was:]; len(more) != 0 {
		t.Errorf("the audit log has %+v, want nothing of attempts that made nothing", more)
	}
	if all := r.leases; len(all.known) != 1 {
		t.Errorf("known are %v, want the object", all.known)
	}
	v.Policy(t, "app", rules)
	pass()
	s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
	if read, revoked := s.entries(audit.SecretRead), s.entries(audit.SecretRevoked); len(read) != 2 || !v.Leased(t, read[1]) || len(revoked) != 0 {
		t.Errorf("the readings are %q and revoked are %q, want a second credential", read, revoked)
	}
}

// A controller whose clock was set back before the credential was made renews it at once: it does
// not know how much of it is left.
func TestCredentialsWhoseClockWasSetBack(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := leased(t, v, "")
	s.Pass(-time.Hour)
	if out := s.once("app"); len(s.entries(audit.SecretRenewed)) != 1 || out.RequeueAfter != 400*time.Second {
		t.Errorf("renewed are %q, and the next pass is in %v, want one and 400 seconds", s.entries(audit.SecretRenewed), out.RequeueAfter)
	}
	s.Pass(399 * time.Second)
	s.once("app")
	if n := len(s.entries(audit.SecretRenewed)); n != 1 {
		t.Errorf("it was renewed %d times, want once", n)
	}
}

// What the clock of the machine is set back by is not taken from the life of a credential.
func TestAClockThatNeverGoesBack(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	wall, ticks := at, time.Duration(0)
	s := &steady{wall: func() time.Time { return wall }, ticks: func() time.Duration { return ticks }, last: at}
	for _, step := range []struct {
		what        string
		wall, ticks time.Duration // that pass
		want        time.Duration // since the beginning
	}{
		{"time passes", time.Minute, time.Minute, time.Minute},
		{"it is set back", -time.Hour, 0, time.Minute},
		{"time passes after that", time.Minute, time.Minute, 2 * time.Minute},
		{"the machine slept", 3 * time.Hour, time.Minute, 2*time.Hour + 2*time.Minute},
		{"it is set back again", -2 * time.Hour, time.Second, 2*time.Hour + 2*time.Minute + time.Second},
	} {
		wall, ticks = wall.Add(step.wall), ticks+step.ticks
		if got := s.Now().Sub(at); got != step.want {
			t.Errorf("%s: %v have passed, want %v", step.what, got, step.want)
		}
	}
	if now := newSteady(time.Now, time.Now()).Now(); time.Since(now) > time.Hour || now.After(time.Now().Add(time.Hour)) {
		t.Errorf("the time is %v", now)
	}
}

// Only objects that are gone are looked for beside their own passes.
func TestObjectsThatAreGoneAreFound(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := leased(t, v, "")
	all := newLeases(s.options, s.Client)
	if err := all.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if gone := all.gone(t.Context()); len(gone) != 0 {
		t.Errorf("gone are %v, want none", gone)
	}
	s.Kubectl(t, "delete", "externalsecret/app")
	if gone := all.gone(t.Context()); len(gone) != 1 || gone[0].GetName() != "app" || gone[0].GetNamespace() != s.Namespace {
		t.Errorf("gone are %v, want app", gone)
	}
}
