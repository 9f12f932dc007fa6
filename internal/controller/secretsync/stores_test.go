package secretsync

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// store applies a SecretStore with an auth, and removes it after the test.
func (s *stage) store(kind, name, auth, more string) {
	s.t.Helper()
	s.Apply(s.t, `
apiVersion: external-secrets.io/v1
kind: `+kind+`
metadata: {name: `+name+`}
spec:
`+indent(more)+`
  provider:
    vault: {server: "`+s.vault.URL.String()+`", path: kyuubi, auth: `+auth+`}
`)
	if kind == externalsecret.ClusterSecretStore {
		s.t.Cleanup(func() {
			o := object(kind)
			o.SetName(name)
			if err := s.Client.Delete(context.WithoutCancel(s.t.Context()), o); err != nil {
				s.t.Error(err)
			}
		})
	}
}

// Each way to sign in, with what lies in Secrets.
func TestWaysToSignIn(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, v vaulttest.Server) {
		s := newStage(t, v)
		v.Write(t, "database", map[string]any{"mariadb_password": "p"})
		token := v.Token(t, "app", "1h")
		s.Apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: credentials}
stringData: {token: "`+token+`"}
`)
		s.store("SecretStore", "token", `{tokenSecretRef: {name: credentials}}`, "")
		ways := map[string]string{"token": "Secret " + s.Namespace + "/credentials"}
		if v.Real {
			v.Ask(t, http.MethodPost, "sys/auth/approle", map[string]string{"type": "approle"})
			v.Ask(t, http.MethodPost, "auth/approle/role/app", map[string]any{"token_policies": "app"})
			id := v.Ask(t, http.MethodGet, "auth/approle/role/app/role-id", nil)["data"].(map[string]any)["role_id"].(string)
			of := v.Ask(t, http.MethodPost, "auth/approle/role/app/secret-id", map[string]any{})["data"].(map[string]any)["secret_id"].(string)
			s.Kubectl(t, "patch", "secret/credentials", "--type=merge", "-p", `{"stringData":{"secret-id":"`+of+`"}}`)
			s.store("SecretStore", "approle", `{appRole: {path: approle, roleId: "`+id+`", secretRef: {name: credentials, key: secret-id}}}`, "")
			ways["approle"] = "Secret " + s.Namespace + "/credentials"
		}
		for store, who := range ways {
			s.external(store, strings.Replace(oneSecret, "{name: db}", "{name: "+store+"}", 1))
			s.Kubectl(t, "patch", "externalsecret/"+store, "--type=merge", "-p", `{"spec":{"secretStoreRef":{"name":"`+store+`"}}}`)
			s.once(store)
			s.holds(store, map[string]string{"password": "p"})
			reads := s.Entries()
			if last := reads[len(reads)-1]; last.Details["credentials"] != who || last.Details["store"] != "SecretStore/"+store {
				t.Errorf("the audit log has %+v", last)
			}
		}
		// A credential that was deleted is used no more.
		s.Kubectl(t, "delete", "secret/credentials")
		s.Pass(10 * time.Minute)
		s.once("token")
		s.condition("token", conditionReady, metav1.ConditionFalse, externalsecret.ReasonStore, "the Secret credentials of the namespace "+s.Namespace+" is not there: create it")
		s.silent(token)
	})
}

// A store of one namespace uses no ServiceAccount and no Secret of another, and a cluster
// store is used by the namespaces that it names.
func TestStoresStayInTheirNamespace(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := newStage(t, v)
	v.Write(t, "database", map[string]any{"mariadb_password": "p"})
	use := func(kind, name string) {
		t.Helper()
		s.external("app", oneSecret)
		s.Kubectl(t, "patch", "externalsecret/app", "--type=merge", "-p", `{"spec":{"secretStoreRef":{"kind":"`+kind+`","name":"`+name+`"}}}`)
		s.once("app")
	}
	s.store("SecretStore", "foreign", `{kubernetes: {mountPath: kubernetes, role: app, serviceAccountRef: {name: default, namespace: kube-system}}}`, "")
	use("SecretStore", "foreign")
	s.condition("app", conditionReady, metav1.ConditionFalse, externalsecret.ReasonInvalid, "a SecretStore uses its own namespace")

	s.store("SecretStore", "foreign", `{tokenSecretRef: {name: x, key: token, namespace: kube-system}}`, "")
	use("SecretStore", "foreign")
	s.condition("app", conditionReady, metav1.ConditionFalse, externalsecret.ReasonInvalid, "a SecretStore uses its own namespace")

	name := s.Namespace
	const auth = `{kubernetes: {mountPath: kubernetes, role: app, serviceAccountRef: {name: app}}}`
	s.store("ClusterSecretStore", name, auth, "conditions: [{namespaces: [other]}, {namespaceSelector: {matchLabels: {team: data}}}]")
	use("ClusterSecretStore", name)
	s.condition("app", conditionReady, metav1.ConditionFalse, externalsecret.ReasonStore, "do not have the namespace "+s.Namespace)
	if s.secret("db") != nil || len(s.Entries()) != 0 {
		t.Error("a secret was read for a namespace that may not use the store")
	}
	s.Kubectl(t, "label", "namespace/"+s.Namespace, "team=data")
	use("ClusterSecretStore", name)
	s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
	s.holds("db", map[string]string{"password": "p"})
	if last := s.Entries()[0]; last.Details["serviceAccount"] != s.Namespace+"/app" {
		t.Errorf("it was read as %v, want the ServiceAccount of the namespace", last.Details)
	}
}

func TestStoresSayWhetherTheyCanBeUsed(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := newStage(t, v)
	check := func(kind, name string) metav1.Condition {
		t.Helper()
		r := &storeReconciler{Options: s.options, stores: newStores(s.options, s.Client), kind: kind, cache: s.Client, guard: &guard{live: s.Client, now: s.options.Now, log: s.options.Log}}
		at := types.NamespacedName{Namespace: s.Namespace, Name: name}
		if kind == externalsecret.ClusterSecretStore {
			at.Namespace = ""
		}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: at}); err != nil {
			t.Fatal(err)
		}
		o := object(kind)
		if err := s.Client.Get(t.Context(), at, o); err != nil {
			t.Fatal(err)
		}
		c := apimeta.FindStatusCondition(statusOf(o).conditions, conditionReady)
		if c == nil {
			return metav1.Condition{}
		}
		return *c
	}
	if c := check("SecretStore", "vault"); c.Status != metav1.ConditionTrue || c.Reason != "Valid" {
		t.Errorf("the condition is %+v", c)
	}
	s.store("SecretStore", "headers", `{tokenSecretRef: {name: x}}`, "retrySettings: {maxRetries: 3}")
	if c := check("SecretStore", "headers"); c.Status != metav1.ConditionFalse || c.Reason != externalsecret.ReasonUnsupported || !strings.Contains(c.Message, "spec.retrySettings") {
		t.Errorf("the condition is %+v", c)
	}
	s.store("SecretStore", "stranger", `{kubernetes: {mountPath: kubernetes, role: nothing, serviceAccountRef: {name: app}}}`, "")
	if c := check("SecretStore", "stranger"); c.Status != metav1.ConditionFalse || c.Reason != vault.ReasonSignIn {
		t.Errorf("the condition is %+v", c)
	}
	s.store("SecretStore", "another", `{tokenSecretRef: {name: x}}`, "controller: somebody")
	if c := check("SecretStore", "another"); c.Type != "" {
		t.Errorf("the store of another program has the condition %+v", c)
	}
	v.Ask(t, http.MethodPut, "sys/seal", nil)
	if c := check("SecretStore", "vault"); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "vault operator unseal") {
		t.Errorf("the condition of a sealed server is %+v", c)
	}
}

// A store names no address of this machine, unless the operator allows it.
func TestAddressesAreThoseOfThePlatform(t *testing.T) {
	s := newStage(t, vaulttest.StandIn(t))
	s.options.Out = strict(t)
	s.external("app", oneSecret)
	s.once("app")
	s.condition("app", conditionReady, metav1.ConditionFalse, outbound.ReasonAddress, "which is a loopback address: let the operator start Terrier with --allow-host=127.0.0.1:")
}

// The certificate of a server is verified with the authority of the store.
func TestAuthoritiesOfServers(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := newStage(t, v)
	v.Write(t, "database", map[string]any{"mariadb_password": "p"})
	server := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(v.URL))
	t.Cleanup(server.Close)
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	ca, err := json.Marshal(authority)
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: authority}
data: {ca.crt: `+string(ca)+`}
`)
	for name, tt := range map[string]struct {
		with   string
		status metav1.ConditionStatus
	}{
		"none":      {"", metav1.ConditionFalse},
		"bundle":    {", caBundle: " + base64.StdEncoding.EncodeToString([]byte(authority)), metav1.ConditionTrue},
		"configmap": {", caProvider: {type: ConfigMap, name: authority, key: ca.crt}", metav1.ConditionTrue},
		"no-key":    {", caProvider: {type: ConfigMap, name: authority, key: other}", metav1.ConditionFalse},
	} {
		s.Apply(t, `
apiVersion: external-secrets.io/v1
kind: SecretStore
metadata: {name: `+name+`}
spec: {provider: {vault: {server: "`+server.URL+`", path: kyuubi`+tt.with+`, auth: {kubernetes: {mountPath: auth/kubernetes/, role: app, serviceAccountRef: {name: app}}}}}}
`)
		s.external(name, strings.Replace(oneSecret, "{name: db}", "{name: "+name+"}", 1))
		s.Kubectl(t, "patch", "externalsecret/"+name, "--type=merge", "-p", `{"spec":{"secretStoreRef":{"name":"`+name+`"}}}`)
		s.once(name)
		c := apimeta.FindStatusCondition(statusOf(s.get(kindOf, name)).conditions, conditionReady)
		if c == nil || c.Status != tt.status {
			t.Errorf("%s: the condition is %+v, want %s", name, c, tt.status)
		}
	}
}
