package sources

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// stage is a namespace on a real API server, a store that is served, and a
// registry to fetch from. Reconciles happen when the test says so.
type stage struct {
	*testkit.Cluster
	t        *testing.T
	options  Options
	events   *record.FakeRecorder
	registry string // host:port
	down     func() // makes the registry unreachable
	up       func()
	storeDir string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{Cluster: testkit.Kube(t, sourcev1.AddToScheme), t: t, events: record.NewFakeRecorder(100), storeDir: t.TempDir()}
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(out.Close)
	store, err := source.OpenStore(s.storeDir)
	if err != nil {
		t.Fatal(err)
	}
	key := secret.New("key")
	artifacts := httptest.NewServer(http.StripPrefix("/artifacts", source.NewArtifactHandler(store, key)))
	t.Cleanup(artifacts.Close)
	s.options = Options{
		Store: store, Out: out, BaseURL: func() string { return artifacts.URL + "/artifacts" }, Key: key, Scratch: t.TempDir(),
		Roots:  func(context.Context, string, client.ObjectKey) ([]string, error) { return nil, nil },
		Events: kube.Events{Recorder: s.events}, Now: time.Now, Log: slog.New(slog.DiscardHandler), MinInterval: time.Second,
	}
	s.serveRegistry()
	return s
}

func (s *stage) serveRegistry() {
	handler, err := source.NewRegistry(s.t.TempDir(), source.RegistryOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	off := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if off {
			w.WriteHeader(http.StatusNotImplemented) // one that clients do not retry
			return
		}
		handler.ServeHTTP(w, r)
	}))
	s.t.Cleanup(server.Close)
	s.registry = strings.TrimPrefix(server.URL, "http://")
	s.down, s.up = func() { off = true }, func() { off = false }
}

// push pushes a module to the registry and returns its digest.
func (s *stage) push(tag, content string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
	digest, err := source.Push(s.t.Context(), dir, "oci://"+s.registry+"/net:"+tag, source.PushOptions{Out: s.options.Out})
	if err != nil {
		s.t.Fatal(err)
	}
	return digest
}

// repository makes an OCIRepository for the registry.
func (s *stage) repository(change func(*sourcev1.OCIRepositorySpec)) {
	s.t.Helper()
	obj := &sourcev1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "net"},
		Spec:       sourcev1.OCIRepositorySpec{URL: "oci://" + s.registry + "/net", Interval: metav1.Duration{Duration: time.Hour}},
	}
	if change != nil {
		change(&obj.Spec)
	}
	if err := s.Client.Create(s.t.Context(), obj); err != nil {
		s.t.Fatal(err)
	}
}

// reconciler returns a reconciler that keeps its memory between calls.
func (s *stage) reconciler(k kind) *reconciler {
	return &reconciler{Options: s.options, kind: k, client: s.Client, live: s.Client, turns: newTurns(2),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)}
}

// manages runs what setup adds to a manager, until the test ends.
func (s *stage) manages(setup func(ctrl.Manager) error) {
	s.t.Helper()
	skip := true
	mgr, err := ctrl.NewManager(s.Config, ctrl.Options{
		Scheme: s.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{s.Namespace: {}}},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := setup(mgr); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("the manager ended with %v", err)
		}
	})
}

func (s *stage) reconcile(r *reconciler) ctrl.Result {
	s.t.Helper()
	result, err := r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: "net"}})
	if err != nil {
		s.t.Fatalf("Reconcile() = %v", err)
	}
	return result
}

func (s *stage) get() *sourcev1.OCIRepository {
	s.t.Helper()
	obj := &sourcev1.OCIRepository{}
	s.read(obj)
	return obj
}

func (s *stage) read(obj client.Object) {
	s.t.Helper()
	if err := s.Client.Get(s.t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: "net"}, obj); err != nil {
		s.t.Fatal(err)
	}
}

// edit changes the object as a person would.
func (s *stage) edit(change func(*sourcev1.OCIRepository)) {
	s.t.Helper()
	obj := s.get()
	before := obj.DeepCopy()
	change(obj)
	if err := s.Client.Patch(s.t.Context(), obj, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// told drains the events so far.
func (s *stage) told() []string {
	var all []string
	for {
		select {
		case e := <-s.events.Events:
			all = append(all, strings.Join(strings.Fields(e)[:2], " "))
		default:
			return all
		}
	}
}

// file returns main.tf of an artifact, fetched and verified as a consumer does.
func (s *stage) file(a *meta.Artifact) string {
	s.t.Helper()
	if a == nil {
		s.t.Fatal("there is no artifact")
	}
	cache, err := source.NewCache(s.t.TempDir(), s.options.Out, 1<<20)
	if err != nil {
		s.t.Fatal(err)
	}
	path, err := cache.Get(context.Background(), source.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest, Size: *a.Size})
	if err != nil {
		s.t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	dir := s.t.TempDir()
	if err := archive.Extract(f, dir, archive.Limits{}); err != nil {
		s.t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "main.tf"))
	if err != nil && !errors.Is(err, io.EOF) {
		s.t.Fatal(err)
	}
	return string(content)
}

// conditions returns type → status and reason.
func conditions(all []metav1.Condition) map[string]string {
	got := map[string]string{}
	for _, c := range all {
		got[c.Type] = string(c.Status) + " " + c.Reason
	}
	return got
}

func message(all []metav1.Condition, kind string) string {
	if c := apimeta.FindStatusCondition(all, kind); c != nil {
		return c.Message
	}
	return ""
}
