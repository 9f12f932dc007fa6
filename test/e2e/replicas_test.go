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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// fleet is several controllers that share the stacks of one namespace, and the kubelet
// that runs their pods.
type fleet struct {
	*testkit.Cluster
	controllers []*testkit.Platform
	kubelet     *testkit.Kubelet
	world       *testkit.World
	urls        []string     // of each controller
	http        *http.Client // that trusts the authority of all of them
}

// exitLater is the exit code of what can be asked again.
const exitLater = 6

// newFleet starts n controllers behind one address. The test does not run in parallel with
// others: their controllers would publish another authority.
func newFleet(t *testing.T, n int, flags ...string) *fleet {
	t.Helper()
	f := &fleet{Cluster: testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme)}
	f.kubelet = testkit.StartKubelet(t, f.Cluster, map[string]string{"terrier-runner": filepath.Join(testkit.Repository(t), "bin", "terrier-runner")})
	var hosts []string
	for i := range n {
		hosts = append(hosts, fmt.Sprintf("127.0.0.%d", 10+i))
	}
	service := testkit.Balance(t, hosts...)
	dir := t.TempDir()
	records := filepath.Join(dir, "records")
	for _, host := range hosts {
		f.urls = append(f.urls, fmt.Sprintf("https://%s:%d", host, service.Port))
		p, err := testkit.NewPlatform(testkit.PlatformOptions{
			Dir: filepath.Join(dir, host), Cluster: f.Cluster, Cold: true,
			Flags: append([]string{
				"--share-stacks", "--lease", f.Namespace, "--replica-address", host, "--records", records, "--installation-keys", "secret",
				"--http-address", fmt.Sprintf("%s:%d", host, service.Port), "--http-host", "127.0.0.1", "--http-host", host,
				"--run-writable", filepath.Join(dir, hosts[0], "shared"), // where the world of the test is
				"--runs-as", "pods", "--run-image", "terrier-runner", "--run-start-timeout", "4m", "--sources=false",
			}, flags...),
		})
		if err != nil {
			t.Fatal(err)
		}
		f.controllers = append(f.controllers, p)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\nthe pods said:\n%s", f.Story(), f.kubelet.Log())
			for i, p := range f.controllers {
				t.Logf("controller %d said:\n%s", i, p.Log())
			}
		}
		f.Abandon(t)
		for _, p := range f.controllers {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	for _, p := range f.controllers {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	f.world = f.controllers[0].World(t)
	f.http = f.trusting(t)
	return f
}

// says waits until a controller has said something.
func (f *fleet) says(t *testing.T, i int, what string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, fmt.Sprintf("controller %d says %q", i, what), func(context.Context) error {
		if !strings.Contains(f.controllers[i].Log(), what) {
			return errors.New("it did not say so")
		}
		return nil
	})
}

// F23: three controllers share stacks. One is paused in an apply and another one killed;
// the third takes over, the run that went on ends once, and the one that resumes acts no
// more.
func TestControllersShareStacks(t *testing.T) {
	f := newFleet(t, 3, "--lease-duration", "15s")
	for i := range f.controllers {
		f.says(t, i, "shards taken over")
	}
	var names []string
	for i := range 6 {
		name := fmt.Sprintf("stack-%d", i)
		names = append(names, name)
		f.Apply(t, inline(name, "approvePlan: auto\ninterval: 1h", chain(f.world, "x"+name, "a"+name)))
	}
	for _, name := range names {
		f.AwaitReady(t, name)
	}
	if n := f.kubelet.Started(); n != 2*len(names) {
		t.Errorf("%d pods were started, want a plan and an apply of each of %d stacks", n, len(names))
	}
	nothingLeftOf(t, f)

	f.world.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hold"})
	f.Apply(t, inline("slow", "approvePlan: auto\ninterval: 1h", chain(f.world, "y", "b", "c")))
	f.world.Await(t.Context(), begun("create", "b"))
	if err := syscall.Kill(f.controllers[0].PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := f.controllers[1].Kill(); err != nil {
		t.Fatal(err)
	}
	f.says(t, 2, "controllers=1")
	f.world.Fault()
	f.AwaitReady(t, "slow")
	if err := syscall.Kill(f.controllers[0].PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if code := f.controllers[0].Exited(ctx); code <= 0 {
		t.Errorf("the controller that was paused ended with %d, want an error", code)
	}
	if n := f.kubelet.Started(); n != 2*len(names)+2 {
		t.Errorf("%d pods were started, want one more plan and one more apply than %d", n, 2*len(names))
	}
	for _, name := range []string{"b", "c"} {
		if got := len(f.world.Named(name)); got != 1 {
			t.Errorf("%d resources are called %s, want one", got, name)
		}
	}
}

// nothingLeftOf waits until no pod of a run is there.
func nothingLeftOf(t *testing.T, f *fleet) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "no pod is left", func(context.Context) error {
		if running := f.kubelet.Running(); len(running) > 0 {
			return fmt.Errorf("%v run", running)
		}
		return nil
	})
}

// trusting is a client that trusts the authority that all controllers share.
func (f *fleet) trusting(t *testing.T) *http.Client {
	t.Helper()
	var server corev1.ConfigMap
	if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: "terrier-system", Name: "terrier-server"}, &server); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(server.Data["ca.crt"])) {
		t.Fatalf("the ConfigMap has no authority: %v", server.Data)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a request to one of the controllers.
func (f *fleet) ask(ctx context.Context, i int, method, path string, body any) (int, string, error) {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, "", err
		}
		sent = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, f.urls[i]+path, sent)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+f.Config.BearerToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// owner is the controller that has the run of a stack.
func (f *fleet) owner(t *testing.T, uid string) int {
	t.Helper()
	for i, p := range f.controllers {
		if _, err := os.Stat(filepath.Join(p.Dir, "runner", "runs", uid)); err == nil {
			return i
		}
	}
	t.Fatal("no controller has the run")
	return 0
}

// Each page and each answer is the same through each of three controllers: a plan is
// approved through any of them, a log is followed through one that does not have it, and
// none of that ends when the third one is killed.
func TestAnyControllerAnswers(t *testing.T) {
	f := newFleet(t, 3)
	w := f.world
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "delay", Delay: "20s"})
	f.Apply(t, inline("stack", "interval: 1h", chain(w, "x", "a", "b")))
	pending := f.AwaitPending(t, "stack")
	api := "/api/v1/namespaces/" + f.Namespace + "/stacks/stack"
	for _, path := range []string{
		api, api + "/plan", api + "/runs", api + "/runs/newest", api + "/runs/newest/log", api + "/timeline", api + "/inputs", api + "/states",
		"/api/v1/namespaces/" + f.Namespace + "/stacks", "/api/v1/approvals", "/api/v1/tenants", "/api/v1/version",
	} {
		f.same(t, path)
	}
	for i := range f.controllers {
		for _, page := range []string{"/", "/stacks", "/queue", "/audit", "/about", "/stacks/" + f.Namespace + "/stack", "/stacks/" + f.Namespace + "/stack/runs"} {
			if code, text, err := f.ask(t.Context(), i, http.MethodGet, page, nil); err != nil || code != http.StatusOK || !strings.Contains(text, "<!doctype html>") {
				t.Errorf("the page %s through the controller %d: %d, %v", page, i, code, err)
			}
		}
	}

	plan := pending.Status.Plan.Pending
	if code, text, err := f.ask(t.Context(), 2, http.MethodPost, api+"/approve", map[string]string{"name": plan}); err != nil || code != http.StatusOK {
		t.Fatalf("approving through a controller: %d %s, %v", code, text, err)
	}
	w.Await(t.Context(), begun("create", "b"))
	owner := f.owner(t, string(pending.UID))
	through, killed := (owner+1)%3, (owner+2)%3
	followed := make(chan testkit.Ran, 1)
	go func() {
		for {
			r := f.TryTerrier(t, "--server", f.urls[through], "logs", "-f", "stack")
			if r.Code != exitLater || t.Context().Err() != nil { // a controller that has just died is asked until it is missed
				followed <- r
				return
			}
		}
	}()
	kill(t, f.controllers[killed])
	f.AwaitReady(t, "stack")
	if r := <-followed; r.Code != 0 || !strings.Contains(r.Stdout, "world_thing.b: Creation complete") {
		t.Errorf("logs -f through a controller without the run ended with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	made(t, w, "a", "b")
	testkit.Eventually(t, testkit.Patience, "the two that are left answer everything", func(ctx context.Context) error {
		var errs []error
		for _, i := range []int{owner, through} {
			for _, path := range []string{"/api/v1/queue", "/api/v1/audit", api + "/runs"} {
				if code, text, err := f.ask(ctx, i, http.MethodGet, path, nil); err != nil || code != http.StatusOK {
					errs = append(errs, fmt.Errorf("%s through %d: %d %s, %w", path, i, code, text, err))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// same compares the answers of all controllers.
func (f *fleet) same(t *testing.T, path string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, path+" is the same through each controller", func(ctx context.Context) error {
		var first string
		for i := range f.controllers {
			code, text, err := f.ask(ctx, i, http.MethodGet, path, nil)
			if err != nil || code != http.StatusOK {
				return fmt.Errorf("through the controller %d: %d %s, %w", i, code, text, err)
			}
			if i == 0 {
				first = text
			} else if text != first {
				return fmt.Errorf("the controller %d says\n%s\nand the first one\n%s", i, text, first)
			}
		}
		return nil
	})
}
