package chart

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// plane is an API server that only one test uses: the controller of the chart
// reconciles all namespaces.
type plane struct {
	client.Client
	config     *rest.Config
	kubeconfig string
	recorder   *recorder
	proxy      string // the address of the API server through the recorder
}

// program starts bin/terrier, which ends with the test. The first line that it prints
// is read into ready.
func program(t *testing.T, ready any, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := filepath.Abs(root + "/bin/terrier")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	command := exec.Command(binary, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Stderr = log
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	told := func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}
	t.Cleanup(func() {
		if command.ProcessState == nil {
			stop(t, command)
		}
		if t.Failed() {
			text := told()
			t.Logf("terrier %s said:\n%s", args[0], text[max(0, len(text)-20000):])
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, ready)
	}
	if err != nil {
		t.Fatalf("waiting for terrier %s: %v; it said %s", strings.Join(args, " "), err, told())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return command
}

// stop ends a program as a kubelet does.
func stop(t *testing.T, command *exec.Cmd) {
	t.Helper()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	late := time.AfterFunc(testkit.Patience, func() { _ = command.Process.Kill() })
	defer late.Stop()
	if err := command.Wait(); err != nil {
		t.Logf("terrier ended: %v", err)
	}
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	var ready struct{ Kubeconfig string }
	program(t, &ready, "control-plane", "--ephemeral", "-o", "json")
	p := &plane{kubeconfig: ready.Kubeconfig}
	var err error
	if p.config, err = clientcmd.BuildConfigFromFlags("", ready.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	p.config.QPS = -1
	scheme := clientscheme.Scheme
	if err := errors.Join(infrav1alpha2.AddToScheme(scheme), tenantsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	if p.Client, err = client.New(p.config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	through, err := rest.TransportFor(&rest.Config{Host: p.config.Host, TLSClientConfig: rest.TLSClientConfig{CAFile: p.config.CAFile, CAData: p.config.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	p.recorder = &recorder{next: through}
	p.proxy = testkit.NewProxy(t, p.config.Host, p.recorder).URL
	return p
}

// apply applies objects as their administrator.
func (p *plane) apply(t *testing.T, all ...*unstructured.Unstructured) {
	t.Helper()
	for _, o := range all {
		if err := p.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("chart-test"), client.ForceOwnership); err != nil {
			t.Fatalf("%s: %v", sprint(o), err)
		}
	}
}

// manifest applies a manifest into a namespace.
func (p *plane) manifest(t *testing.T, in, text string) {
	t.Helper()
	for _, o := range objects(t, text) {
		if o.GetNamespace() == "" {
			o.SetNamespace(in)
		}
		p.apply(t, o)
	}
}

// token is one of a ServiceAccount, which is made if need be.
func (p *plane) token(t *testing.T, in, name string) string {
	t.Helper()
	set, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		t.Fatal(err)
	}
	account := &unstructured.Unstructured{}
	account.SetAPIVersion("v1")
	account.SetKind("ServiceAccount")
	account.SetNamespace(in)
	account.SetName(name)
	if err := p.Create(t.Context(), account); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	answer, err := set.CoreV1().ServiceAccounts(in).CreateToken(t.Context(), name, &authnv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// account writes a kubeconfig of an account that goes through the recorder.
func (p *plane) account(t *testing.T, in, name string) string {
	t.Helper()
	p.recorder.token = p.token(t, in, name)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: p.proxy}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// get asks over HTTPS with a token.
func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := insecure.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}
