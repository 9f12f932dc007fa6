package secretsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

func strict(t *testing.T) *outbound.Client {
	out := outbound.New(outbound.Policy{PlainHTTP: true})
	t.Cleanup(out.Close)
	return out
}

const kyuubi = `
apiVersion: apps/v1
kind: %s
metadata: {name: %s%s}
spec:
  %sselector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      serviceAccountName: app
      containers:
      - name: main
        image: example.com/kyuubi
        %[5]s
`

const fromSecret = `env: [{name: MARIADB_PASSWORD, valueFrom: {secretKeyRef: {name: %s, key: mariadb_password}}}]`

func (s *stage) workload(kind, name, annotations, uses string) {
	s.t.Helper()
	more := ""
	if kind == "StatefulSet" {
		more = "serviceName: x\n  "
	}
	if annotations != "" {
		annotations = ", annotations: {" + annotations + "}"
	}
	s.Apply(s.t, fmt.Sprintf(kyuubi, kind, name, annotations, more, uses))
}

// restarts is how often the pods of a workload were made again: its generation, from 1 on.
func (s *stage) restarts(o client.Object, name string) int64 {
	s.t.Helper()
	if err := s.Client.Get(s.t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: name}, o); err != nil {
		s.t.Fatal(err)
	}
	return o.GetGeneration() - 1
}

// KY-05: one change restarts each workload that uses the Secret, once.
func TestWorkloadsAreRestartedOnceForAChange(t *testing.T) {
	v := vaulttest.StandIn(t)
	s := newStage(t, v)
	uses := fmt.Sprintf(fromSecret, "db")
	s.workload("Deployment", "kyuubi", "", uses)
	s.workload("StatefulSet", "store", "", "envFrom: [{secretRef: {name: db}}]")
	s.workload("DaemonSet", "agent", "terrier.dev/restart-for: \"other, db\"", "")
	s.workload("Deployment", "bystander", "", fmt.Sprintf(fromSecret, "other"))
	s.workload("Deployment", "exempt", "terrier.dev/restart: never", uses)
	count := func() string {
		t.Helper()
		return fmt.Sprint(s.restarts(&appsv1.Deployment{}, "kyuubi"), s.restarts(&appsv1.StatefulSet{}, "store"), s.restarts(&appsv1.DaemonSet{}, "agent"),
			s.restarts(&appsv1.Deployment{}, "bystander"), s.restarts(&appsv1.Deployment{}, "exempt"))
	}
	v.Write(t, "database", map[string]any{"mariadb_password": "canary-1"})
	s.external("app", oneSecret)
	s.once("app")
	if got := count(); got != "0 0 0 0 0" {
		t.Errorf("after the first Secret: %s restarts, want none", got)
	}
	for i, value := range []string{"canary-2", "canary-3"} {
		v.Write(t, "database", map[string]any{"mariadb_password": value})
		for range 3 {
			s.Pass(10 * time.Minute)
			s.once("app")
		}
		if got, want := count(), fmt.Sprintf("%[1]d %[1]d %[1]d 0 0", i+1); got != want {
			t.Errorf("after %s: %s restarts, want %s", value, got, want)
		}
	}
	if m := externalsecret.ReadMark(s.secret("db").Annotations[externalsecret.MarkName("app")]); m == nil || m.Restart != externalsecret.RestartNone {
		t.Errorf("the mark is %+v", m)
	}

	// A Secret that comes again with what it held restarts nothing.
	s.Kubectl(t, "delete", "secret/db")
	s.once("app")
	s.holds("db", map[string]string{"password": "canary-3"})
	if got := count(); got != "2 2 2 0 0" {
		t.Errorf("after a Secret that came again: %s restarts", got)
	}

	// A controller that died between the Secret and the restarts does the rest.
	v.Write(t, "database", map[string]any{"mariadb_password": "canary-4"})
	s.Pass(10 * time.Minute)
	live := s.options.Live
	s.options.Live = failing{live}
	s.once("app")
	s.options.Live = live
	s.condition("app", conditionReady, metav1.ConditionFalse, reasonRestart, "the API server is away")
	s.condition("app", conditionStale, metav1.ConditionFalse, reasonRestart, "")
	s.holds("db", map[string]string{"password": "canary-4"})
	for range 2 {
		s.once("app")
	}
	if got := count(); got != "3 3 3 0 0" {
		t.Errorf("after a crash between: %s restarts", got)
	}
	s.condition("app", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
	s.silent("canary")
}

// failing is an API server that takes no patch of a workload.
type failing struct{ client.Client }

func (f failing) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.PatchOption) error {
	switch o.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
		return errors.New("the API server is away")
	}
	return f.Client.Patch(ctx, o, p, options...)
}

// KY-03, KY-04: the manifests of the seed, as they are. The controllers run as they do in a
// cluster.
func TestServiceAccountsWithAnnotations(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, v vaulttest.Server) {
		s := newStage(t, v)
		s.Kubectl(t, "annotate", "serviceaccount/app", "terrier.dev/vault-mount=kyuubi") // the namespace of a test is not called kyuubi
		v.Write(t, "database", map[string]any{"mariadb_password": "canary-1", "more": "x"})
		v.Write(t, "team/db", map[string]any{"a": "b"})
		s.manage()
		s.Kubectl(t, "annotate", "serviceaccount/app", "vault.hashicorp.com/auth-path=auth/kubernetes", "vault.hashicorp.com/role=app")
		s.workload("Deployment", "kyuubi-dbt", "", fmt.Sprintf(fromSecret, "vault-secret-database"))
		s.workload("StatefulSet", "other", "", fmt.Sprintf(fromSecret, "vault-secret-team.db"))
		await := func(what, name string, want map[string]string) {
			t.Helper()
			testkit.Eventually(t, testkit.Patience, what, func(context.Context) error { return s.holding(name, want) })
		}
		await("the Secret is written", "vault-secret-database", map[string]string{"mariadb_password": "canary-1", "more": "x"})
		await("the Secret of the other workload is written", "vault-secret-team.db", map[string]string{"a": "b"})
		if of := metav1.GetControllerOf(s.get(kindOf, "vault-secret-database")); of == nil || of.Kind != "ServiceAccount" || of.Name != "app" {
			t.Errorf("the object belongs to %+v", of)
		}

		// A key that was removed in Vault is removed, and the pods are made again.
		v.Write(t, "database", map[string]any{"mariadb_password": "canary-2"})
		s.Kubectl(t, "annotate", "externalsecret/vault-secret-database", "force-sync=1")
		await("the new version is written", "vault-secret-database", map[string]string{"mariadb_password": "canary-2"})
		testkit.Eventually(t, testkit.Patience, "the workload is restarted", func(context.Context) error {
			if n := s.restarts(&appsv1.Deployment{}, "kyuubi-dbt"); n != 1 {
				return fmt.Errorf("%d restarts", n)
			}
			return nil
		})
		s.Kubectl(t, "delete", "secret/vault-secret-database")
		await("a Secret that was deleted is written again", "vault-secret-database", map[string]string{"mariadb_password": "canary-2"})
		s.Kubectl(t, "delete", "externalsecret/vault-secret-team.db")
		testkit.Eventually(t, testkit.Patience, "an object that was deleted is made again", func(ctx context.Context) error {
			return s.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: "vault-secret-team.db"}, object(kindOf))
		})

		// Without annotations nothing is read any more, and the Secret stays.
		s.Kubectl(t, "annotate", "serviceaccount/app", "vault.hashicorp.com/auth-path-", "vault.hashicorp.com/role-")
		testkit.Eventually(t, testkit.Patience, "the store is deleted", func(ctx context.Context) error {
			err := s.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: "vault-app"}, object("SecretStore"))
			if err == nil {
				return errors.New("it is there")
			}
			return client.IgnoreNotFound(err)
		})
		s.holds("vault-secret-database", map[string]string{"mariadb_password": "canary-2"})
		s.silent("canary")
	})
}

// Stores of accounts sign in as stacks do that run as these accounts.
func TestStoresOfAccounts(t *testing.T) {
	const named = "vault.hashicorp.com/auth-type"
	for name, tt := range map[string]struct {
		method      vault.Method
		annotations map[string]string
		want        externalsecret.Auth
	}{
		"kubernetes": {vault.Kubernetes, map[string]string{"vault.hashicorp.com/role": "app"}, externalsecret.Auth{Kubernetes: &externalsecret.KubernetesAuth{
			MountPath: "elsewhere", Role: "app", ServiceAccountRef: &externalsecret.AccountRef{Name: "app"},
		}}},
		"approle of the account": {vault.Kubernetes, map[string]string{named: "approle", "terrier.dev/vault-credentials": "mine"}, externalsecret.Auth{AppRole: &externalsecret.AppRoleAuth{
			Path: "approle", RoleRef: &externalsecret.KeyRef{Name: "mine", Key: "role-id"}, SecretRef: &externalsecret.KeyRef{Name: "mine", Key: "secret-id"},
		}}},
		"approle of the installation": {vault.AppRole, map[string]string{"terrier.dev/vault-credentials": "mine"}, externalsecret.Auth{AppRole: &externalsecret.AppRoleAuth{
			Path: "elsewhere", RoleRef: &externalsecret.KeyRef{Name: "mine", Key: "role-id"}, SecretRef: &externalsecret.KeyRef{Name: "mine", Key: "secret-id"},
		}}},
		"a token": {vault.AppRole, map[string]string{named: "token", "terrier.dev/vault-credentials": "mine"}, externalsecret.Auth{TokenSecretRef: &externalsecret.KeyRef{Name: "mine", Key: "token"}}},
	} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app", Annotations: tt.annotations}}
		r := &accountReconciler{Options: Options{Default: &Default{Server: "https://vault.example.com", Method: tt.method, Path: "elsewhere"}}}
		method, problem := r.method(account)
		if problem != "" {
			t.Errorf("%s: %s", name, problem)
			continue
		}
		spec, err := decode[externalsecret.StoreSpec](r.store(account, "vault-app", "", method))
		if err == nil {
			err = spec.Check(account.Namespace, false)
		}
		if diff := cmp.Diff(tt.want, spec.Provider.Vault.Auth); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// An account that names no role, or an installation without a Vault, says so.
func TestAccountsThatGetNothing(t *testing.T) {
	s := newStage(t, vaulttest.StandIn(t))
	s.workload("Deployment", "kyuubi-dbt", "", fmt.Sprintf(fromSecret, "vault-secret-database"))
	s.Kubectl(t, "annotate", "serviceaccount/app", "vault.hashicorp.com/auth-path=kubernetes")
	for _, tt := range []struct {
		change func()
		says   string
	}{
		{func() {}, "annotate it with vault.hashicorp.com/role"},
		{func() {
			another := *s.options.Default
			another.Method = vault.AppRole
			s.options.Default = &another
		}, "annotate it with terrier.dev/vault-credentials: NAME"},
		{func() { s.options.Default = nil }, "start the controller with --vault=URL"},
	} {
		tt.change()
		s.manage()
		select {
		case got := <-s.events.Events:
			if !strings.Contains(got, tt.says) {
				t.Errorf("the event is %q, want %q", got, tt.says)
			}
		case <-time.After(testkit.Patience):
			t.Fatalf("there is no event that says %q", tt.says)
		}
	}
}

// Where another program serves the kinds, nothing is written.
func TestBesideTheOperator(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(apiextensionsv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	definition := func(plural string, labels map[string]string) client.Object {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + ".external-secrets.io", Labels: labels}}
	}
	mine := map[string]string{"app.kubernetes.io/part-of": "terrier"}
	for name, tt := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"nothing is there":           {nil, ""},
		"our definitions":            {[]client.Object{definition("externalsecrets", mine), definition("secretstores", mine), definition("clustersecretstores", mine)}, ""},
		"those of the operator":      {[]client.Object{definition("externalsecrets", map[string]string{"external-secrets.io/component": "controller"})}, "externalsecrets.external-secrets.io"},
		"one without labels":         {[]client.Object{definition("externalsecrets", mine), definition("clustersecretstores", nil)}, "clustersecretstores.external-secrets.io"},
		"ours, which it took over":   {[]client.Object{definition("secretstores", map[string]string{"app.kubernetes.io/part-of": "terrier", "external-secrets.io/component": "controller"})}, "secretstores.external-secrets.io"},
		"a kind that is not so read": {[]client.Object{definition("pushsecrets", nil)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tt.objects...).Build()
			got, err := Theirs(t.Context(), c)
			if err != nil || got != tt.want {
				t.Errorf("Theirs() = %q, %v, want %q", got, err, tt.want)
			}
			var log strings.Builder
			now := time.Now()
			g := &guard{live: c, now: func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&log, nil))}
			for range 3 {
				if off, err := g.off(t.Context()); err != nil || off != (tt.want != "") {
					t.Errorf("off() = %v, %v", off, err)
				}
				now = now.Add(recheck)
			}
			if n := strings.Count(log.String(), "another program"); n > 1 || (n == 1) != (tt.want != "") {
				t.Errorf("the log says it %d times:\n%s", n, log.String())
			}
		})
	}
}
