package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// metacontroller is the real program, in a process of its own.
type metacontroller struct {
	dir, kubeconfig string
	command         *exec.Cmd
}

// newMetacontroller starts the program that METACONTROLLER names, with its definitions
// installed, on the platform of the test.
func newMetacontroller(t *testing.T, c *testkit.Cluster) *metacontroller {
	t.Helper()
	m := &metacontroller{dir: os.Getenv("METACONTROLLER"), kubeconfig: c.Kubeconfig}
	c.Kubectl(t, "apply", "--server-side", "-f", filepath.Join(m.dir, "manifests/production/metacontroller-crds-v1.yaml"))
	c.Kubectl(t, "wait", "--for=condition=Established", "crd/compositecontrollers.metacontroller.k8s.io", "crd/decoratorcontrollers.metacontroller.k8s.io", "crd/controllerrevisions.metacontroller.k8s.io")
	c.Kubectl(t, "create", "namespace", "metacontroller")
	m.start(t)
	return m
}

func needMetacontroller(t *testing.T) {
	t.Helper()
	if os.Getenv("METACONTROLLER") == "" {
		t.Skip("METACONTROLLER names no directory with the sources of metacontroller and its program: docs/metacontroller.md says how to make one")
	}
}

func (m *metacontroller) start(t *testing.T) {
	t.Helper()
	m.command = exec.Command(filepath.Join(m.dir, "metacontroller"), "--discovery-interval=5s", "--metrics-address=:0", "--health-probe-bind-address=:0", "--zap-log-level=4")
	log, err := os.OpenFile(filepath.Join(t.TempDir(), "metacontroller.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	m.command.Stdout, m.command.Stderr = log, log
	m.command.Env = append(os.Environ(), "KUBECONFIG="+m.kubeconfig)
	m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.command.Start(); err != nil {
		t.Fatalf("starting metacontroller: %v", err)
	}
	t.Cleanup(func() {
		m.kill()
		said, err := os.ReadFile(log.Name())
		if err := errors.Join(err, log.Close()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("metacontroller said:\n%s", said[max(0, len(said)-1<<16):])
		}
	})
}

// kill ends it with a signal that it never sees.
func (m *metacontroller) kill() {
	if m.command == nil {
		return
	}
	_ = m.command.Process.Kill()
	_ = m.command.Wait() // killed
	m.command = nil
}

// hookCall is one request of metacontroller, and what Terrier answered.
type hookCall struct {
	at            string // the path
	controller    string
	name, uid     string // of the object
	request, body []byte
	header        http.Header
	status        int
	finalized     bool
}

// recorder stands between metacontroller and Terrier. It notes each call, and delays
// answers about one object on request.
type recorder struct {
	*httptest.Server
	mu    sync.Mutex
	calls []hookCall
	held  map[string]chan struct{} // by controller and name
	stuck chan hookCall            // answers that are delayed
}

func newRecorder(t *testing.T, p *testkit.Platform, c *testkit.Cluster) *recorder {
	t.Helper()
	x := &recorder{held: map[string]chan struct{}{}, stuck: make(chan hookCall, 64)}
	to, err := url.Parse(p.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: trusting(t, c), ErrorLog: log.New(io.Discard, "", 0)} // Terrier is killed
	x.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		call := readCall(r.URL.Path, body, answer)
		call.header = r.Header.Clone()
		if hold := x.note(call); hold != nil {
			x.stuck <- call
			<-hold
		}
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the caller has gone
	}))
	t.Cleanup(x.Close)
	return x
}

func trusting(t *testing.T, c *testkit.Cluster) *http.Transport {
	t.Helper()
	var m corev1.ConfigMap
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: "terrier-system", Name: "terrier-server"}, &m); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(m.Data["ca.crt"])) {
		t.Fatal("terrier-server has no certificate")
	}
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
}

func readCall(path string, body []byte, answer *httptest.ResponseRecorder) hookCall {
	call := hookCall{at: path, request: body, body: answer.Body.Bytes(), status: answer.Code}
	var b struct {
		Controller struct{ Metadata metav1.ObjectMeta }
		Parent     *struct{ Metadata metav1.ObjectMeta }
		Object     *struct{ Metadata metav1.ObjectMeta }
	}
	var r struct{ Finalized bool }
	if json.Unmarshal(body, &b) == nil {
		call.controller = b.Controller.Metadata.Name
		for _, o := range []*struct{ Metadata metav1.ObjectMeta }{b.Parent, b.Object} {
			if o != nil {
				call.name, call.uid = o.Metadata.Name, string(o.Metadata.UID)
			}
		}
	}
	call.finalized = json.Unmarshal(answer.Body.Bytes(), &r) == nil && r.Finalized
	return call
}

// answered reports whether a call told metacontroller the status of the object.
func answered(c hookCall) bool {
	return c.status == http.StatusOK || c.status == http.StatusNotModified
}

// note returns what an answer waits for, nil if nothing.
func (x *recorder) note(call hookCall) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls = append(x.calls, call)
	if !answered(call) {
		return nil
	}
	return x.held[call.controller+"/"+call.name]
}

// hold delays answers of a controller about an object until the returned function is
// called.
func (x *recorder) hold(controller, name string) func() {
	x.mu.Lock()
	defer x.mu.Unlock()
	wait := make(chan struct{})
	x.held[controller+"/"+name] = wait
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.held, controller+"/"+name)
		close(wait)
	}
}

// all returns the calls that fit.
func (x *recorder) all(fits func(hookCall) bool) []hookCall {
	x.mu.Lock()
	defer x.mu.Unlock()
	var found []hookCall
	for _, c := range x.calls {
		if fits(c) {
			found = append(found, c)
		}
	}
	return found
}

// hookController is a controller of metacontroller: of which kind, and how it calls.
type hookController struct {
	composite, etag bool
	version         string
	ignore          bool // it is not woken by changes of the status
}

func (h hookController) name() string {
	name := "decorator-" + h.version
	if h.composite {
		name = "composite-" + h.version
	}
	if h.etag {
		name += "-etag"
	}
	return name
}

// finalizer is the one by which metacontroller holds an object.
func (h hookController) finalizer() string {
	if h.composite {
		return "metacontroller.io/compositecontroller-" + h.name()
	}
	return "metacontroller.io/decoratorcontroller-" + h.name()
}

func (h hookController) manifest(server *httptest.Server) string {
	etag := ""
	if h.etag {
		etag = ", etag: {enabled: true, cacheTimeoutSeconds: 600, cacheCleanupSeconds: 60}"
	}
	hook := func(path string) string {
		return fmt.Sprintf("    %s: {version: %s, webhook: {url: %q, timeout: 2m%s}}\n", path, h.version, server.URL+"/"+path, etag)
	}
	kind, of := "DecoratorController", "  resources:\n  - "
	more := ""
	if h.composite {
		kind, of, more = "CompositeController", "  parentResource:\n    ", "  generateSelector: true\n"
	}
	return `apiVersion: metacontroller.k8s.io/v1alpha1
kind: ` + kind + `
metadata: {name: ` + h.name() + `}
spec:
` + more + of + `apiVersion: alustan.io/v1alpha1
    resource: terraforms
    ignoreStatusChanges: ` + fmt.Sprint(h.ignore) + `
    labelSelector: {matchLabels: {hooks: ` + h.name() + `}}
  hooks:
` + hook("sync") + hook("finalize") + hook("customize") + endpoint(server)
}

// endpoint is how metacontroller reaches the recorder: its certificate, and the token
// that it presents.
func endpoint(server *httptest.Server) string {
	return `  endpointConfigs:
  - host: "` + strings.TrimPrefix(server.URL, "https://") + `"
    caBundle: {configMapRef: {name: terrier-server, namespace: metacontroller}}
    authorization: {secretRef: {name: terrier-hooks, namespace: metacontroller, key: token}}
`
}

// statusLog is what a watch saw of the statuses of the objects of a namespace.
type statusLog struct {
	mu   sync.Mutex
	seen map[string][]map[string]any // by name
	done chan struct{}
}

func watchStatuses(t *testing.T, c *testkit.Cluster) *statusLog {
	t.Helper()
	set, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	l := &statusLog{seen: map[string][]map[string]any{}, done: make(chan struct{})}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(set, 0, c.Namespace, nil)
	informer := factory.ForResource(schema.GroupVersionResource{Group: "alustan.io", Version: "v1alpha1", Resource: "terraforms"}).Informer()
	add := func(o any) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return
		}
		status, _ := u.Object["status"].(map[string]any)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen[u.GetName()] = append(l.seen[u.GetName()], status)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
		t.Fatal(err)
	}
	factory.Start(l.done)
	t.Cleanup(func() { close(l.done); factory.Shutdown() })
	return l
}

// judge fails the test if a status went back to an earlier one.
func (l *statusLog) judge(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, all := range l.seen {
		newest, generation := int64(0), int64(0)
		for i, status := range all {
			writes, _, _ := unstructured.NestedInt64(status, "terrier", "writes")
			observed, _, _ := unstructured.NestedInt64(status, "observedGeneration")
			if writes < newest || observed < generation {
				t.Errorf("%s: status %d of %d has writes %d and observedGeneration %d after %d and %d", name, i+1, len(all), writes, observed, newest, generation)
			}
			newest, generation = max(writes, newest), max(observed, generation)
		}
	}
}

// hookStack is a stack whose scripts leave a line in a file for each time that they run.
type hookStack struct {
	scripted
	by  hookController
	dir string
}

func newHookStack(t *testing.T, c *testkit.Cluster, dir, repository string, by hookController, name, apply string) hookStack {
	t.Helper()
	s := hookStack{scripted: scripted{Cluster: c, name: by.name() + "-" + name}, by: by, dir: dir}
	at := filepath.Join(dir, s.name)
	text, err := json.Marshal(map[string]any{
		"apiVersion": "alustan.io/v1alpha1", "kind": "Terraform",
		"metadata": map[string]any{"name": s.name, "labels": map[string]string{"hooks": by.name()}},
		"spec": map[string]any{
			"variables": map[string]string{"round": "one"},
			"scripts": map[string]any{
				"apply":   map[string]string{"inline": "echo apply $round >> " + at + "\n" + strings.ReplaceAll(apply, "AT", at)},
				"destroy": map[string]string{"inline": "if ! test -e " + at + ".allow; then echo 'it must not be destroyed yet' >&2; exit 1; fi\necho destroy >> " + at},
			},
			"gitRepo": map[string]string{"url": repository, "branch": "main"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range c.Apply(t, string(text)) {
		testkit.Others(c, string(o.GetUID()))
	}
	return s
}

func (s hookStack) touch(t *testing.T, suffix string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, s.name+suffix), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// ran are the lines that the scripts left.
func (s hookStack) ran(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, s.name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(text)), "\n"), ", ")
}

func (s hookStack) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return s.object(ctx, "Terraform", "alustan.io/v1alpha1", s.name)
}
