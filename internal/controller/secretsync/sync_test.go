package secretsync

import (
	"net/http"
	"strings"
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

const oneSecret = `
refreshInterval: 10m
target: {name: db}
data:
- {secretKey: password, remoteRef: {key: database, property: mariadb_password}}
`

// KY-04, KY-05, KY-07: a Secret holds what is in Vault, again after each interval and on
// demand, and each reading is recorded.
func TestASecretHoldsWhatIsInVault(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, v vaulttest.Server) {
		s := newStage(t, v)
		v.Write(t, "database", map[string]any{"mariadb_password": "canary-1"})
		s.external("app", oneSecret)
		if out := s.once("app"); out.RequeueAfter < 9*time.Minute || out.RequeueAfter > 10*time.Minute {
			t.Errorf("the next pass is in %v, want the interval", out.RequeueAfter)
		}
		s.holds("db", map[string]string{"password": "canary-1"})
		s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "the Secret db holds")
		s.condition("app", conditionStale, metav1.ConditionFalse, externalsecret.ReasonSynced, "")
		made := s.secret("db")
		if of := metav1.GetControllerOf(made); of == nil || of.Kind != kindOf || of.Name != "app" || made.Labels["reconcile.external-secrets.io/managed"] != "true" {
			t.Errorf("the Secret has the owner %+v and the labels %v", of, made.Labels)
		}
		reads := s.Entries()
		if len(reads) != 1 || reads[0].Details["path"] != "kyuubi/database" || reads[0].Details["version"] != "1" || reads[0].Details["role"] != "app" ||
			reads[0].Details["serviceAccount"] != s.Namespace+"/app" || reads[0].Details["requestID"] == "" || reads[0].Object.Name != "app" {
			t.Errorf("the audit log has %+v, want one reading", reads)
		}

		s.once("app") // nothing is due
		if n := len(s.Entries()); n != 1 || s.secret("db").ResourceVersion != made.ResourceVersion {
			t.Errorf("there are %d readings, want one, and a Secret that was not written again", n)
		}
		v.Write(t, "database", map[string]any{"mariadb_password": "canary-2"})
		s.Pass(10 * time.Minute)
		s.once("app")
		s.holds("db", map[string]string{"password": "canary-2"})

		v.Write(t, "database", map[string]any{"mariadb_password": "canary-3"})
		s.once("app")
		s.holds("db", map[string]string{"password": "canary-2"})
		s.Kubectl(t, "annotate", "externalsecret/app", "force-sync=1")
		s.once("app")
		s.holds("db", map[string]string{"password": "canary-3"})

		// What another program changes or deletes is put back, without waiting.
		s.Kubectl(t, "patch", "secret/db", "--type=merge", "-p", `{"stringData":{"password":"x","more":"y"}}`)
		s.once("app")
		s.holds("db", map[string]string{"password": "canary-3"})
		s.Kubectl(t, "delete", "secret/db")
		s.once("app")
		s.holds("db", map[string]string{"password": "canary-3"})
		if n := len(s.Entries()); n != 5 {
			t.Errorf("there are %d readings, want five", n)
		}
		s.silent("canary")
	})
}

// Objects of the version before are served, too.
func TestTheVersionBefore(t *testing.T) {
	s := newStage(t, vaulttest.StandIn(t))
	s.vault.Write(t, "database", map[string]any{"user": "kyuubi", "password": "p"})
	s.Apply(t, `
apiVersion: external-secrets.io/v1beta1
kind: ExternalSecret
metadata: {name: vault-secret-database}
spec:
  refreshInterval: "0"
  secretStoreRef: {kind: SecretStore, name: vault}
  target: {creationPolicy: Owner, deletionPolicy: Retain, template: {type: kubernetes.io/basic-auth, engineVersion: v2, mergePolicy: Replace, metadata: {labels: {app: kyuubi}}, data: {username: "{{ .user }}", password: "{{ .password }}", url: "{{ .user }}@db"}}}
  dataFrom:
  - extract: {key: database, conversionStrategy: Default, decodingStrategy: None, metadataPolicy: None}
`)
	if out := s.once("vault-secret-database"); out.RequeueAfter != 0 {
		t.Errorf("the next pass is in %v, want none", out.RequeueAfter)
	}
	s.holds("vault-secret-database", map[string]string{"username": "kyuubi", "password": "p", "url": "kyuubi@db"})
	if made := s.secret("vault-secret-database"); made.Type != "kubernetes.io/basic-auth" || made.Labels["app"] != "kyuubi" {
		t.Errorf("the Secret is a %s with %v", made.Type, made.Labels)
	}
	s.vault.Write(t, "database", map[string]any{"user": "kyuubi", "password": "p2"})
	s.Pass(1000 * time.Hour)
	s.once("vault-secret-database")
	s.holds("vault-secret-database", map[string]string{"username": "kyuubi", "password": "p", "url": "kyuubi@db"})
}

// The last Secret stays while Vault does not answer, is sealed or refuses, and the
// conditions say so.
func TestTheLastSecretStays(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, v vaulttest.Server) {
		s := newStage(t, v)
		v.Write(t, "database", map[string]any{"mariadb_password": "canary"})
		s.external("app", strings.Replace(oneSecret, "{name: db}", "{name: db, deletionPolicy: Delete}", 1))
		s.once("app")
		s.Pass(10 * time.Minute)

		v.Policy(t, "app", `path "kyuubi/data/other" { capabilities = ["read"] }`)
		s.once("app")
		s.condition("app", conditionReady, metav1.ConditionFalse, vault.ReasonDenied, "allow it to the role app with a policy, or check the path. The Secret db keeps what was read at ")
		s.condition("app", conditionStale, metav1.ConditionTrue, vault.ReasonDenied, "")
		s.holds("db", map[string]string{"password": "canary"})

		v.Ask(t, http.MethodPost, "auth/kubernetes/role/app", map[string]any{"bound_service_account_names": "other", "bound_service_account_namespaces": s.Namespace, "token_policies": "app", "token_ttl": "20m"})
		if v.Real {
			s.once("app")
			s.condition("app", conditionReady, metav1.ConditionFalse, vault.ReasonSignIn, "is bound to other ServiceAccounts")
			s.holds("db", map[string]string{"password": "canary"})
		}
		s.signInAgain()
		v.Policy(t, "app", rules)

		v.Ask(t, http.MethodPut, "sys/seal", nil)
		s.once("app")
		s.condition("app", conditionReady, metav1.ConditionFalse, vault.ReasonSealed, "unseal it")
		s.condition("app", conditionStale, metav1.ConditionTrue, vault.ReasonSealed, "")
		s.holds("db", map[string]string{"password": "canary"})
		if !v.Real { // the key to unseal OpenBao is in its log
			v.Ask(t, http.MethodPut, "sys/unseal", nil)
			s.once("app")
			s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
			s.condition("app", conditionStale, metav1.ConditionFalse, externalsecret.ReasonSynced, "")
		}
		s.silent("canary")
	})
}

// A Vault that is gone deletes nothing, whatever the policy says.
func TestAVaultThatIsGone(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := newStage(t, v)
	v.Write(t, "database", map[string]any{"mariadb_password": "p"})
	s.external("app", strings.Replace(oneSecret, "{name: db}", "{name: db, deletionPolicy: Delete}", 1))
	s.once("app")
	s.Apply(t, strings.ReplaceAll(`
apiVersion: external-secrets.io/v1
kind: SecretStore
metadata: {name: vault}
spec: {provider: {vault: {server: "http://127.0.0.1:1", path: kyuubi, auth: {kubernetes: {mountPath: kubernetes, role: app, serviceAccountRef: {name: app}}}}}}
`, "\t", ""))
	s.Pass(10 * time.Minute)
	if out := s.once("app"); out.RequeueAfter == 0 || out.RequeueAfter > latestRetry {
		t.Errorf("the next attempt is in %v", out.RequeueAfter)
	}
	s.condition("app", conditionReady, metav1.ConditionFalse, vault.ReasonUnreachable, "Terrier tries again by itself")
	s.condition("app", conditionStale, metav1.ConditionTrue, vault.ReasonUnreachable, "")
	s.holds("db", map[string]string{"password": "p"})
}

func TestWhatIsDeletedInVault(t *testing.T) {
	for name, tt := range map[string]struct {
		policy string
		want   map[string]string // nil for no Secret
		reason string
	}{
		"Retain": {"Retain", map[string]string{"password": "p"}, externalsecret.ReasonGone},
		"Delete": {"Delete", nil, externalsecret.ReasonDeleted},
		"Merge":  {"Merge", map[string]string{}, externalsecret.ReasonSynced},
	} {
		t.Run(name, func(t *testing.T) {
			vaulttest.Each(t, func(t *testing.T, v vaulttest.Server) {
				s := newStage(t, v)
				v.Write(t, "database", map[string]any{"mariadb_password": "p"})
				s.external("app", strings.Replace(oneSecret, "{name: db}", "{name: db, deletionPolicy: "+tt.policy+"}", 1))
				s.once("app")
				s.holds("db", map[string]string{"password": "p"})
				v.Ask(t, http.MethodDelete, "kyuubi/data/database", nil)
				s.Pass(10 * time.Minute)
				s.once("app")
				if tt.want == nil {
					if s.secret("db") != nil {
						t.Error("the Secret is there")
					}
				} else {
					s.holds("db", tt.want)
				}
				ready := metav1.ConditionTrue
				if tt.policy == "Retain" {
					ready = metav1.ConditionFalse
				}
				s.condition("app", conditionReady, ready, tt.reason, "")
			})
		})
	}
}

// A mount that is not there, and an engine that makes secrets, are no secrets that are gone.
func TestWhatIsNoSecretThatIsGone(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, v vaulttest.Server) {
		s := newStage(t, v)
		v.Write(t, "database", map[string]any{"mariadb_password": "p"})
		s.external("app", strings.Replace(oneSecret, "{name: db}", "{name: db, deletionPolicy: Delete}", 1))
		s.once("app")
		for key, reason := range map[string]string{"nothing/database": vault.ReasonDenied, "pki/issue/web": vault.ReasonPath} {
			s.Kubectl(t, "patch", "secretstore/vault", "--type=merge", "-p", `{"spec":{"provider":{"vault":{"path":""}}}}`)
			s.Kubectl(t, "patch", "externalsecret/app", "--type=json", "-p", `[{"op":"replace","path":"/spec/data/0/remoteRef/key","value":"`+key+`"}]`)
			s.once("app")
			s.condition("app", conditionReady, metav1.ConditionFalse, reason, "")
			s.holds("db", map[string]string{"password": "p"})
		}
	})
}

// What Terrier does not serve is named, and nothing is read or written.
func TestFieldsThatAreNotServed(t *testing.T) {
	s := newStage(t, vaulttest.StandIn(t))
	for name, tt := range map[string]struct{ spec, says string }{
		"a generator":       {"dataFrom: [{sourceRef: {generatorRef: {kind: Password, name: p}}}]", "spec.dataFrom[0].sourceRef"},
		"a search":          {"dataFrom: [{find: {name: {regexp: .*}}}]", "spec.dataFrom[0].find"},
		"a rewriting":       {"dataFrom: [{extract: {key: database}, rewrite: [{regexp: {source: a, target: b}}]}]", "spec.dataFrom[0].rewrite"},
		"a template's file": {"data: [{secretKey: a, remoteRef: {key: b}}]\ntarget: {template: {templateFrom: [{configMap: {name: x}}]}}", "spec.target.template.templateFrom"},
		"two at once":       {"data: [{secretKey: a, remoteRef: {key: b}, sourceRef: {}}]\ntarget: {manifest: {kind: ConfigMap}}", "spec.data[0].sourceRef, spec.target.manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.external("app", tt.spec)
			s.once("app")
			s.condition("app", conditionReady, metav1.ConditionFalse, externalsecret.ReasonUnsupported, tt.says+": Terrier does not support this: remove it")
			s.Kubectl(t, "delete", "externalsecret/app")
		})
	}
	if n := len(s.Entries()); n != 0 {
		t.Errorf("there were %d readings", n)
	}
}

// A tenant who may write ExternalSecrets overwrites no Secret of another.
func TestSecretsOfOthersStay(t *testing.T) {
	s := newStage(t, vaulttest.StandIn(t))
	s.vault.Write(t, "database", map[string]any{"mariadb_password": "p", "user": "u"})
	s.Apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: db}
stringData: {password: "of a user", other: x}
`)
	s.external("app", oneSecret)
	s.once("app")
	s.condition("app", conditionReady, metav1.ConditionFalse, externalsecret.ReasonNotOwned, "was not made by this object")
	s.holds("db", map[string]string{"password": "of a user", "other": "x"})
	if n := len(s.Entries()); n != 0 {
		t.Errorf("there were %d readings for a Secret that cannot be written", n)
	}
	s.external("merged", `
target: {name: db, creationPolicy: Merge}
data: [{secretKey: password, remoteRef: {key: database, property: mariadb_password}}]`)
	s.once("merged")
	s.condition("merged", conditionReady, metav1.ConditionFalse, externalsecret.ReasonNotOwned, "has the keys password")
	s.external("merged", `
target: {name: db, creationPolicy: Merge}
data: [{secretKey: user, remoteRef: {key: database, property: user}}]`)
	s.once("merged")
	s.condition("merged", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
	s.holds("db", map[string]string{"password": "of a user", "other": "x", "user": "u"})
	s.external("merged", `
target: {name: db, creationPolicy: Merge}
data: [{secretKey: user2, remoteRef: {key: database, property: user}}]`)
	s.once("merged")
	s.holds("db", map[string]string{"password": "of a user", "other": "x", "user2": "u"})
}

// Keys are added to no Secret that another object writes as a whole without owning it, as long as
// that object is there: it would remove them again.
func TestNothingIsMergedIntoAnOrphan(t *testing.T) {
	s := newStage(t, vaulttest.StandIn(t))
	s.vault.Write(t, "database", map[string]any{"password": "p", "user": "u"})
	s.external("whole", `
target: {name: db, creationPolicy: Orphan}
data: [{secretKey: password, remoteRef: {key: database, property: password}}]`)
	s.once("whole")
	s.external("merged", `
target: {name: db, creationPolicy: Merge}
data: [{secretKey: user, remoteRef: {key: database, property: user}}]`)
	s.once("merged")
	s.condition("merged", conditionReady, metav1.ConditionFalse, externalsecret.ReasonNotOwned, "by the ExternalSecret whole")
	s.holds("db", map[string]string{"password": "p"})
	s.Kubectl(t, "delete", "externalsecret/whole")
	s.once("merged")
	s.condition("merged", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
	s.holds("db", map[string]string{"password": "p", "user": "u"})
}

// An object with the finalizer of External Secrets Operator can be deleted, and one with
// that of another program waits for it.
func TestFinalizersOfTheOperator(t *testing.T) {
	s := newStage(t, vaulttest.StandIn(t))
	s.external("app", oneSecret)
	s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", `{"metadata":{"finalizers":["externalsecrets.external-secrets.io/externalsecret-cleanup","example.com/x"]}}`)
	s.Kubectl(t, "delete", "externalsecret/app", "--wait=false")
	s.once("app")
	if got := s.get(kindOf, "app").GetFinalizers(); len(got) != 1 || got[0] != "example.com/x" {
		t.Errorf("the finalizers are %v", got)
	}
	s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// A program that changes a Secret again and again has its secret read no more often than twice in
// the shortest interval: each reading is in the audit log for ever.
func TestASecretThatIsChangedAgainAndAgain(t *testing.T) {
	v := vaulttest.StandIn(t)
	v.Write(t, "database", map[string]any{"password": "p"})
	s := newStage(t, v)
	s.external("db", "dataFrom: [{extract: {key: database}}]")
	r := newReconciler(s.options, s.Client, &guard{live: s.Client, now: s.options.Now, log: s.options.Log})
	pass := func() ctrl.Result {
		t.Helper()
		out, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: "db"}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	pass()
	for n := range 5 {
		s.Kubectl(t, "patch", "secret/db", "--type=merge", "-p", `{"stringData":{"password":"changed"}}`)
		out := pass()
		if n == 0 {
			s.holds("db", map[string]string{"password": "p"}) // as soon as it is noticed
		} else if out.RequeueAfter <= 0 || out.RequeueAfter > r.MinInterval {
			t.Errorf("the next pass is in %v, want one within %v", out.RequeueAfter, r.MinInterval)
		}
	}
	if read := s.entries(audit.SecretRead); len(read) != 2 {
		t.Errorf("%d readings, want two", len(read))
	}
	s.Pass(r.MinInterval)
	pass()
	s.holds("db", map[string]string{"password": "p"})
}
