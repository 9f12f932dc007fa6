package secretsync

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// madeStore is a store for secrets that are not below one mount.
const madeStore = `
apiVersion: external-secrets.io/v1
kind: SecretStore
metadata: {name: made}
spec: {provider: {vault: {server: %q, auth: {kubernetes: {mountPath: kubernetes, role: app, serviceAccountRef: {name: app}}}}}}
---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: app}
spec:
  secretStoreRef: {name: made}
  target: {name: db%s}
  dataFrom: [{extract: {key: rabbitmq/creds/app}}]
`

// leased is a stage with an ExternalSecret app whose Secret db has a user of a broker for ten
// minutes, and the Deployment kyuubi that uses it.
func leased(t *testing.T, v vaulttest.Server, policy string) *stage {
	t.Helper()
	s := newStage(t, v)
	v.Lasting(t, 600, 0)
	s.workload("Deployment", "kyuubi", "", fmt.Sprintf(fromSecret, "db"))
	s.Apply(t, fmt.Sprintf(madeStore, v.URL.String(), policy))
	s.once("app")
	return s
}

// user is what the Secret holds.
func (s *stage) user() string {
	s.t.Helper()
	found := s.secret("db")
	if found == nil || len(found.Data) != 2 || len(found.Data["username"]) == 0 || len(found.Data["password"]) == 0 {
		s.t.Fatalf("the Secret is %+v, want a user and a password", found)
	}
	return string(found.Data["username"])
}

// entries are those of the audit log of one sort, by their leases.
func (s *stage) entries(what audit.What) (all []string) {
	for _, e := range s.Entries() {
		if e.What == what {
			all = append(all, e.Details["lease"])
		}
	}
	return all
}

// records are what is kept of what was handed out.
func (s *stage) records() []string {
	s.t.Helper()
	all, err := s.options.Records.List(s.t.Context(), record.AllSecretLeases())
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *stage) madeAgain() int64 { return s.restarts(&appsv1.Deployment{}, "kyuubi") }

// KY-05: the lease of a credential is renewed at two thirds; another credential takes its place,
// with one restart, before it ends for good; and it is revoked after that, and on deletion.
func TestCredentialsAreRenewedReplacedAndRevoked(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, v vaulttest.Server) {
		s := leased(t, v, "")
		s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "are renewed")
		first := s.user()
		leases := s.entries(audit.SecretRead)
		if len(leases) != 1 || leases[0] == "" || !v.Leased(t, leases[0]) || len(s.records()) != 1 {
			t.Fatalf("the readings are %q and the records %v, want one with a lease", leases, s.records())
		}
		for range 3 {
			s.Pass(399 * time.Second)
			if out := s.once("app"); out.RequeueAfter != time.Second {
				t.Errorf("the next pass is in %v, want when two thirds are over", out.RequeueAfter)
			}
			s.Pass(time.Second)
			s.once("app")
		}
		if renewed := s.entries(audit.SecretRenewed); len(renewed) != 3 || renewed[0] != leases[0] || s.user() != first || s.madeAgain() != 0 {
			t.Errorf("renewed are %q, the user is %s and the restarts are %d, want the same credential, three times renewed", renewed, s.user(), s.madeAgain())
		}

		v.Lasting(t, 600, 300) // it may last no longer
		s.Pass(400 * time.Second)
		s.once("app")
		if s.user() != first {
			t.Error("the credential was replaced with half of its life left")
		}
		s.Pass(200 * time.Second)
		v.Lasting(t, 600, 0)
		s.once("app")
		second := s.user()
		leases = s.entries(audit.SecretRead)
		if second == first || s.madeAgain() != 1 || len(leases) != 2 {
			t.Fatalf("the user is %s after %s, with %d restarts and the readings %q, want another one and one restart", second, first, s.madeAgain(), leases)
		}
		if !v.Leased(t, leases[0]) {
			t.Error("the first credential was revoked before the workload had time to be restarted")
		}
		s.Pass(200 * time.Second) // less than the grace
		s.once("app")
		s.Pass(400 * time.Second)
		s.once("app")
		v.AwaitEnded(t, leases[0])
		if revoked := s.entries(audit.SecretRevoked); len(revoked) != 1 || revoked[0] != leases[0] || !v.Leased(t, leases[1]) || s.user() != second || s.madeAgain() != 1 {
			t.Errorf("revoked are %q, want the first credential alone", revoked)
		}

		s.Kubectl(t, "delete", "externalsecret/app")
		s.once("app")
		v.AwaitEnded(t, leases[1])
		if revoked := s.entries(audit.SecretRevoked); len(revoked) != 2 || len(s.records()) != 0 {
			t.Errorf("revoked are %q, and recorded %v, want nothing that is left", revoked, s.records())
		}
		s.silent("canary")
	})
}

// An object that is deleted waits for no workload: what it had before is revoked with what it has.
func TestFormerCredentialsGoWithTheirObject(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := leased(t, v, "")
	s.Kubectl(t, "label", "externalsecret/app", "a=b")
	s.once("app")
	leases := s.entries(audit.SecretRead)
	if len(leases) != 2 || !v.Leased(t, leases[0]) {
		t.Fatalf("the readings are %q, want two whose first lease goes on", leases)
	}
	s.Kubectl(t, "delete", "externalsecret/app")
	s.once("app")
	if v.Leased(t, leases[0]) || v.Leased(t, leases[1]) || len(s.records()) != 0 {
		t.Errorf("recorded are %v, want nothing that is left", s.records())
	}
}

// A Secret that was deleted gets another credential, and so does one that another program has
// changed: their values are kept nowhere else. The workload is restarted, since the one before
// ends.
func TestCredentialsOfASecretThatIsGone(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := leased(t, v, "")
	first := s.user()
	s.Kubectl(t, "delete", "secret/db")
	s.once("app")
	second := s.user()
	s.Kubectl(t, "patch", "secret/db", "--type=merge", "-p", `{"stringData":{"password":"x"}}`)
	s.once("app")
	leases := s.entries(audit.SecretRead)
	if third := s.user(); second == first || third == second || len(leases) != 3 || s.madeAgain() != 2 {
		t.Errorf("the users are %s, %s and %s, with %d restarts, want three and two", first, second, third, s.madeAgain())
	}
	s.Pass(10 * time.Minute)
	s.once("app")
	if v.Leased(t, leases[0]) || v.Leased(t, leases[1]) || len(s.entries(audit.SecretRevoked)) != 2 {
		t.Error("a credential is left that no Secret has")
	}
}

// crashing is an API server whose answer to the creation of a Secret never comes, whether it
// created it or not.
type crashing struct {
	client.Client
	creates bool
}

func (c crashing) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	if _, ok := o.(*corev1.Secret); !ok {
		return c.Client.Create(ctx, o, options...)
	}
	if c.creates {
		if err := c.Client.Create(ctx, o, options...); err != nil {
			return err
		}
	}
	return errors.New("the controller is gone")
}

// A controller that dies between the credential and what is known of it leaves nothing: the next
// one takes over what the Secret has, and revokes what it has not.
func TestCredentialsOutliveTheController(t *testing.T) {
	for name, tt := range map[string]struct {
		creates bool
		reads   int
	}{"before the Secret was written": {false, 2}, "after it was written": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			vaulttest.Each(t, func(t *testing.T, v vaulttest.Server) {
				s := newStage(t, v)
				v.Lasting(t, 600, 0)
				live := s.options.Live
				s.options.Live = crashing{live, tt.creates}
				s.Apply(t, fmt.Sprintf(madeStore, v.URL.String(), ""))
				s.once("app")
				s.options.Live = live
				if len(s.records()) != 1 {
					t.Fatalf("recorded are %v, want what was handed out", s.records())
				}
				s.once("app") // another process: nothing is remembered
				leases := s.entries(audit.SecretRead)
				if len(leases) != tt.reads || !v.Leased(t, leases[len(leases)-1]) {
					t.Fatalf("the readings are %q, want %d, the last of which goes on", leases, tt.reads)
				}
				for _, lease := range leases[:len(leases)-1] {
					v.AwaitEnded(t, lease)
				}
				s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
				user := s.user()
				s.once("app")
				if s.user() != user || len(s.entries(audit.SecretRead)) != tt.reads {
					t.Error("a credential that goes on was replaced")
				}
				s.Kubectl(t, "delete", "externalsecret/app")
				s.once("app")
				v.AwaitEnded(t, leases[len(leases)-1])
			})
		})
	}
}

// A Vault that does not answer holds nothing up but the next credential: the last one stays, and
// the conditions say so. What could not be revoked is revoked later.
func TestCredentialsWhileVaultIsSealed(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := leased(t, v, "")
	user := s.user()
	v.Ask(t, http.MethodPut, "sys/seal", nil)
	s.Pass(400 * time.Second)
	if out := s.once("app"); out.RequeueAfter > 50*time.Second {
		t.Errorf("the next attempt is in %v, want one before a quarter of what is left is over", out.RequeueAfter)
	}
	s.condition("app", conditionReady, metav1.ConditionFalse, vault.ReasonSealed, "unseal it")
	s.condition("app", conditionStale, metav1.ConditionTrue, vault.ReasonSealed, "")
	if s.user() != user {
		t.Error("the Secret changed while the server was sealed")
	}
	v.Ask(t, http.MethodPut, "sys/unseal", nil)
	s.once("app")
	s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
	s.condition("app", conditionStale, metav1.ConditionFalse, externalsecret.ReasonSynced, "")
	if s.user() != user || len(s.entries(audit.SecretRenewed)) != 1 {
		t.Error("the credential was not renewed once the server answered")
	}

	v.Ask(t, http.MethodPut, "sys/seal", nil)
	s.Kubectl(t, "delete", "externalsecret/app")
	s.once("app")
	if len(s.records()) != 1 {
		t.Fatal("what could not be revoked is forgotten")
	}
	v.Ask(t, http.MethodPut, "sys/unseal", nil)
	lease := s.entries(audit.SecretRead)[0]
	if !v.Leased(t, lease) {
		t.Fatal("the lease ended at a server that was sealed")
	}
	s.Pass(retryRevoke)
	s.once("app")
	if v.Leased(t, lease) || len(s.records()) != 0 {
		t.Error("what could be revoked is left")
	}
}

// A lease that ended at the server is replaced at once, when that is found out.
func TestCredentialsThatWereRevokedAtTheServer(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := leased(t, v, "")
	user := s.user()
	for _, accessor := range v.Accessors(t, "app") {
		v.Ask(t, http.MethodPost, "auth/token/revoke-accessor", map[string]string{"accessor": accessor})
	}
	s.Pass(400 * time.Second)
	s.once("app")
	if s.user() == user || s.madeAgain() != 1 {
		t.Errorf("the Secret has the user %s, who was revoked, and there are %d restarts", user, s.madeAgain())
	}
}

// Where the Secret stays, its credential ends by itself.
func TestCredentialsOfASecretThatStays(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := leased(t, v, ", creationPolicy: Orphan")
	s.Kubectl(t, "delete", "externalsecret/app")
	s.once("app")
	lease := s.entries(audit.SecretRead)[0]
	if !v.Leased(t, lease) || len(s.records()) != 1 {
		t.Error("the credential of a Secret that stays was revoked")
	}
	s.Pass(10 * time.Minute)
	s.once("app")
	if len(s.records()) != 0 || len(s.entries(audit.SecretRevoked)) != 0 {
		t.Errorf("recorded are %v, want nothing of what has ended by itself", s.records())
	}
}

// What cannot be served says why, and makes nothing.
func TestCredentialsThatAreRefused(t *testing.T) {
	v := vaulttest.StandIn(t)
	v.Lasting(t, 600, 0)
	s := newStage(t, v)
	v.Write(t, "database", map[string]any{"password": "p"})
	s.Apply(t, fmt.Sprintf(madeStore, v.URL.String(), ", creationPolicy: None"))
	for name, tt := range map[string]struct{ patch, reason, says string }{
		"nothing would have it": {`{}`, externalsecret.ReasonInvalid, "spec.target.creationPolicy is None"},
		"it would end":          {`{"spec":{"target":{"creationPolicy":"Owner"},"refreshPolicy":"CreatedOnce"}}`, externalsecret.ReasonInvalid, "spec.refreshPolicy is CreatedOnce"},
		"beside one that stays": {`{"spec":{"target":{"creationPolicy":"Owner"},"refreshPolicy":"Periodic","dataFrom":[{"extract":{"key":"rabbitmq/creds/app"}},{"extract":{"key":"kyuubi/database"}}]}}`, externalsecret.ReasonInvalid, "write an ExternalSecret of its own"},
		"a grace that is none":  {`{"metadata":{"annotations":{"terrier.dev/lease-grace":"soon"}}}`, externalsecret.ReasonInvalid, "terrier.dev/lease-grace"},
	} {
		s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", tt.patch)
		s.once("app")
		s.condition("app", conditionReady, metav1.ConditionFalse, tt.reason, tt.says)
		if s.secret("db") != nil || len(s.records()) != 0 {
			t.Errorf("%s: something was made", name)
		}
		s.Kubectl(t, "annotate", "externalsecret/app", "terrier.dev/lease-grace-", "--overwrite")
		s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", `{"spec":{"target":{"creationPolicy":"None"},"refreshPolicy":"Periodic","dataFrom":[{"extract":{"key":"rabbitmq/creds/app"}}]}}`)
	}
}

// A key that Vault does not make leaves no Secret, nothing at Vault, and what the Secret has,
// whatever follows where a secret that stays is gone.
func TestCredentialsWithoutTheirKeys(t *testing.T) {
	for _, policy := range []string{"Retain", "Delete", "Merge"} {
		t.Run(policy, func(t *testing.T) {
			v := vaulttest.StandIn(t)
			v.Lasting(t, 600, 0)
			s := newStage(t, v)
			s.Apply(t, fmt.Sprintf(madeStore, v.URL.String(), ", deletionPolicy: "+policy))
			const wrong = `{"spec":{"dataFrom":null,"data":[{"secretKey":"password","remoteRef":{"key":"rabbitmq/creds/app","property":"pasword"}}]}}`
			s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", wrong)
			s.once("app")
			s.condition("app", conditionReady, metav1.ConditionFalse, externalsecret.ReasonGone, "correct the")
			if s.secret("db") != nil || len(s.records()) != 0 {
				t.Errorf("the Secret is %+v, and recorded are %v, want nothing", s.secret("db"), s.records())
			}
			s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", `{"spec":{"data":null,"dataFrom":[{"extract":{"key":"rabbitmq/creds/app"}}]}}`)
			s.once("app")
			user := s.user()
			s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", wrong)
			s.once("app")
			leases := s.entries(audit.SecretRead)
			if s.user() != user || len(leases) != 3 || v.Leased(t, leases[0]) || !v.Leased(t, leases[1]) || v.Leased(t, leases[2]) {
				t.Errorf("the user is %s after %s, and the readings are %q, want the second credential alone", s.user(), user, leases)
			}
		})
	}
}

// forgetful is an API server that removes the annotations of Secrets.
type forgetful struct{ client.Client }

func (f forgetful) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	forget(o)
	return f.Client.Create(ctx, o, options...)
}

func (f forgetful) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	forget(o)
	return f.Client.Update(ctx, o, options...)
}

func forget(o client.Object) {
	if s, ok := o.(*corev1.Secret); ok {
		s.Annotations = nil
	}
}

// A Secret that loses its mark while it is written has nothing that is known to be ours: what was
// made for it is revoked, and the condition says why.
func TestCredentialsOfASecretWithoutAMark(t *testing.T) {
	v := vaulttest.StandIn(t)
	v.Lasting(t, 600, 0)
	s := newStage(t, v)
	s.options.Live = forgetful{s.options.Live}
	s.Apply(t, fmt.Sprintf(madeStore, v.URL.String(), ""))
	for n := range 2 {
		if out := s.once("app"); out.RequeueAfter != latestRetry {
			t.Errorf("the next pass is in %v, want %v", out.RequeueAfter, latestRetry)
		}
		s.condition("app", conditionReady, metav1.ConditionFalse, externalsecret.ReasonNotOwned, "lost the annotation")
		leases := s.entries(audit.SecretRead)
		if len(leases) != n+1 || v.Leased(t, leases[n]) || len(s.records()) != 0 {
			t.Errorf("the readings are %q, and recorded are %v, want nothing that goes on", leases, s.records())
		}
	}
}

// What is written to the Secret wakes its object, however often: no more than two credentials are
// made in the shortest interval, and no more readings go into the audit log for ever.
func TestCredentialsAreMadeWithAPause(t *testing.T) {
	for name, mixed := range map[string]bool{"the mark is lost": false, "besides one that stays": true} {
		t.Run(name, func(t *testing.T) {
			v := vaulttest.StandIn(t)
			v.Lasting(t, 600, 0)
			s := newStage(t, v)
			v.Write(t, "database", map[string]any{"password": "p"})
			s.options.Live = forgetful{s.options.Live}
			s.Apply(t, fmt.Sprintf(madeStore, v.URL.String(), ""))
			if mixed {
				s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", `{"spec":{"dataFrom":[{"extract":{"key":"kyuubi/database"}},{"extract":{"key":"rabbitmq/creds/app"}}]}}`)
			}
			r := newReconciler(s.options, s.Client, &guard{live: s.Client, now: s.options.Now, log: s.options.Log})
			pass := func() ctrl.Result {
				t.Helper()
				out, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: "app"}})
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			for n := range 5 {
				if out := pass(); n >= 2 && (out.RequeueAfter <= 0 || out.RequeueAfter > r.MinInterval) {
					t.Errorf("the next pass is in %v, want one within %v", out.RequeueAfter, r.MinInterval)
				}
			}
			if read := s.entries(audit.SecretRead); len(read) != 2 {
				t.Errorf("the readings are %q, want two", read)
			}
			s.Pass(r.MinInterval)
			pass()
			if read := s.entries(audit.SecretRead); len(read) != 3 || len(s.records()) != 0 {
				t.Errorf("the readings are %q, and recorded are %v, want one more reading and nothing that goes on", read, s.records())
			}
		})
	}
}

// A program that changes the Secret again and again has no more of them made.
func TestCredentialsOfASecretThatIsChangedAgainAndAgain(t *testing.T) {
	s := leased(t, vaulttest.StandIn(t), "")
	r := newReconciler(s.options, s.Client, &guard{live: s.Client, now: s.options.Now, log: s.options.Log})
	for n := range 4 {
		s.Kubectl(t, "patch", "secret/db", "--type=merge", "-p", `{"stringData":{"password":"changed"}}`)
		out, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: "app"}})
		if err != nil {
			t.Fatal(err)
		}
		if n >= 2 && (out.RequeueAfter <= 0 || out.RequeueAfter > r.MinInterval) {
			t.Errorf("the next pass is in %v, want one within %v", out.RequeueAfter, r.MinInterval)
		}
	}
	if read := s.entries(audit.SecretRead); len(read) != 3 { // one of them by the process before
		t.Errorf("the readings are %q, want three", read)
	}
}

// A ServiceAccount with annotations names them by their mounts; all controllers run as in a
// cluster, and what is deleted is revoked.
func TestCredentialsOfServiceAccounts(t *testing.T) {
	v := vaulttest.StandIn(t)
	v.Lasting(t, 600, 0)
	s := newStage(t, v)
	s.manage()
	s.workload("Deployment", "kyuubi", "", fmt.Sprintf(fromSecret, "vault-secret-rabbitmq.creds.app"))
	s.Kubectl(t, "annotate", "serviceaccount/app", "vault.hashicorp.com/role=app", "terrier.dev/vault-mount=kyuubi", "terrier.dev/vault-leases=rabbitmq/creds/app")
	testkit.Eventually(t, testkit.Patience, "the Secret is written", func(context.Context) error {
		if found := s.secret("vault-secret-rabbitmq.creds.app"); found == nil || len(found.Data["password"]) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	lease := s.entries(audit.SecretRead)[0]
	if !strings.HasPrefix(lease, "rabbitmq/creds/app/") || !v.Leased(t, lease) {
		t.Errorf("the lease is %q", lease)
	}
	s.Kubectl(t, "annotate", "serviceaccount/app", "vault.hashicorp.com/role-", "terrier.dev/vault-leases-")
	s.Kubectl(t, "delete", "externalsecret/vault-secret-rabbitmq.creds.app")
	testkit.Eventually(t, testkit.Patience, "the credential is revoked", func(context.Context) error {
		if v.Leased(t, lease) {
			return errors.New("it goes on")
		}
		return nil
	})
}
