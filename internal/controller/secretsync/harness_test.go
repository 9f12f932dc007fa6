package secretsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// stage is a namespace on a real API server with the ServiceAccount app, which has the role
// app at a Vault, and the store vault. Time passes when the test says so.
type stage struct {
	*testkit.Cluster
	*testkit.Ledger
	t       *testing.T
	vault   vaulttest.Server
	events  *record.FakeRecorder
	logged  *strings.Builder
	options Options

	mu sync.Mutex // of logged
}

const rules = `path "kyuubi/data/database" { capabilities = ["read"] }
path "kyuubi/data/spark" { capabilities = ["read"] }
path "kyuubi/data/team/db" { capabilities = ["read"] }
path "pki/issue/web" { capabilities = ["update"] }
path "rabbitmq/creds/app" { capabilities = ["read"] }
`

func newStage(t *testing.T, v vaulttest.Server) *stage {
	t.Helper()
	s := &stage{Cluster: testkit.Kube(t), Ledger: testkit.NewLedger(time.Now().Truncate(time.Second)), t: t, vault: v, events: record.NewFakeRecorder(1000), logged: &strings.Builder{}}
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(out.Close)
	s.options = Options{
		Live: s.Client, Out: out, Accounts: kube.AccountTokens{Client: s.Client}, Audit: s, Events: kube.Events{Recorder: s.events}, Records: blobtest.Files(t, 1<<20), Key: secret.New("key"),
		Default: &Default{Server: v.URL.String(), Method: vault.Kubernetes, Path: "kubernetes", Refresh: 10 * time.Minute},
		Log:     slog.New(slog.NewTextHandler(lockedWriter{s}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now:     s.Now,
	}
	testkit.VaultTrusts(t, v, s.Cluster)
	s.signInAgain()
	v.Policy(t, "app", rules)
	s.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: app}
---
apiVersion: external-secrets.io/v1
kind: SecretStore
metadata: {name: vault}
spec:
  provider:
    vault:
      server: `+v.URL.String()+`
      path: kyuubi
      version: v2
      auth:
        kubernetes: {mountPath: kubernetes, role: app, serviceAccountRef: {name: app}}
`)
	return s
}

type lockedWriter struct{ s *stage }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.logged.Write(p)
}

// once reconciles an object once, as its newest version is.
func (s *stage) once(name string) ctrl.Result {
	s.t.Helper()
	r := newReconciler(s.options, s.Client, &guard{live: s.Client, now: s.options.Now, log: s.options.Log})
	out, err := r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: name}})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// manage runs all reconcilers, as a controller does, until the test ends.
func (s *stage) manage() {
	s.t.Helper()
	s.manages(func(mgr ctrl.Manager) error { return Setup(mgr, s.options) })
}

// manages runs the reconcilers that setup adds, until the test ends.
func (s *stage) manages(setup func(ctrl.Manager) error) {
	s.t.Helper()
	skip := true
	options := ctrl.Options{
		Scheme: s.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{s.Namespace: {}}, ByObject: map[client.Object]cache.ByObject{}},
	}
	for _, o := range Slimmed() {
		options.Cache.ByObject[o] = cache.ByObject{Transform: Slim}
	}
	mgr, err := ctrl.NewManager(s.Config, options)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := setup(mgr); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Errorf("the manager ended with %v", err)
		}
	})
}

// external applies an ExternalSecret.
func (s *stage) external(name, spec string) {
	s.t.Helper()
	s.Apply(s.t, fmt.Sprintf(`
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: %s}
spec:
  secretStoreRef: {name: vault}
%s`, name, indent(spec)))
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n  ")
}

func (s *stage) get(kind, name string) *unstructured.Unstructured {
	s.t.Helper()
	o := object(kind)
	if err := s.Client.Get(s.t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: name}, o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// secret is a Secret, nil if there is none.
func (s *stage) secret(name string) *corev1.Secret {
	s.t.Helper()
	found := &corev1.Secret{}
	err := s.Client.Get(s.t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: name}, found)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return found
}

// holds fails unless a Secret has exactly these keys and values.
func (s *stage) holds(name string, want map[string]string) {
	s.t.Helper()
	if err := s.holding(name, want); err != nil {
		s.t.Error(err)
	}
}

func (s *stage) holding(name string, want map[string]string) error {
	s.t.Helper()
	found := s.secret(name)
	if found == nil {
		return errors.New("there is no Secret " + name)
	}
	for key, value := range want {
		if string(found.Data[key]) != value {
			return fmt.Errorf("the Secret %s has %d bytes at %s, want %q", name, len(found.Data[key]), key, value)
		}
	}
	if len(found.Data) != len(want) {
		return fmt.Errorf("the Secret %s has %d keys, want %d", name, len(found.Data), len(want))
	}
	return nil
}

// condition fails unless a condition is as it should be.
func (s *stage) condition(name, kind string, status metav1.ConditionStatus, reason, says string) {
	s.t.Helper()
	c := apimeta.FindStatusCondition(statusOf(s.get(kindOf, name)).conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
		s.t.Errorf("the condition %s of %s is %+v, want %s %s that says %q", kind, name, c, status, reason, says)
	}
}

// silent fails if anything but a Secret holds a value.
func (s *stage) silent(canary string) {
	s.t.Helper()
	all := fmt.Sprint(s.Entries())
	for _, kind := range []string{kindOf, "SecretStore"} {
		l := list(kind)
		if err := s.Client.List(s.t.Context(), l, client.InNamespace(s.Namespace)); err != nil {
			s.t.Fatal(err)
		}
		for _, o := range l.Items {
			all += fmt.Sprint(o.Object)
		}
	}
	for len(s.events.Events) > 0 {
		all += <-s.events.Events
	}
	s.mu.Lock()
	all += s.logged.String()
	s.mu.Unlock()
	if strings.Contains(all, canary) {
		s.t.Errorf("a status, an event, a log or the audit log holds %q", canary)
	}
	var secrets corev1.SecretList
	if err := s.Client.List(s.t.Context(), &secrets, client.InNamespace(s.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	for _, o := range secrets.Items {
		if strings.Contains(fmt.Sprint(o.ObjectMeta), canary) {
			s.t.Errorf("the metadata of the Secret %s hold %q", o.Name, canary)
		}
	}
}

// signInAgain gives the role back to the ServiceAccount app.
func (s *stage) signInAgain() {
	s.t.Helper()
	testkit.VaultRole(s.t, s.vault, s.Cluster, "app", "20m")
}
