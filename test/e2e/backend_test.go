package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/sandbox"
)

// stateServer is a server that the engine's http backend speaks to, with locks.
type stateServer struct {
	mu    sync.Mutex
	state []byte
	lock  []byte
	locks int
}

func (s *stateServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch r.Method {
	case "LOCK":
		if s.lock != nil {
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write(s.lock)
			return
		}
		s.lock, s.locks = body, s.locks+1
	case "UNLOCK":
		s.lock = nil
	case http.MethodGet:
		if s.state == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(s.state)
	case http.MethodPost:
		s.state = body
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func TestCustomBackendKeepsTheState(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	states := &stateServer{}
	server := httptest.NewServer(states)
	defer server.Close()
	custom := "backendConfig:\n  customConfiguration: |\n    backend \"http\" {\n      address        = \"" + server.URL + "\"\n      lock_address   = \"" + server.URL + "\"\n      unlock_address = \"" + server.URL + "\"\n    }"
	c.Apply(t, inline("stack", kept+"\nwriteOutputsToSecret: {name: out}\n"+custom, things(w, "x", "a")+"\noutput \"id\" { value = world_thing.a.id }\n"))
	c.AwaitReady(t, "stack")
	states.mu.Lock()
	state, locks, lock := string(states.state), states.locks, string(states.lock)
	states.mu.Unlock()
	if !strings.Contains(state, "world_thing") || locks == 0 || lock != "" {
		t.Errorf("the backend holds %.80q, was locked %d times and is locked by %q", state, locks, lock)
	}
	if c.Exists(t, "tfstate-default-stack", &corev1.Secret{}) {
		t.Error("the state is in the cluster, too")
	}
	if got := c.Secret(t, "out")["id"]; got != w.Named("a")[0].ID {
		t.Errorf("the output is %q, want the thing's id", got)
	}
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	if left := w.Things(); len(left) != 0 {
		t.Errorf("the world holds %+v", left)
	}
}

func TestCustomBackendLockedByOthers(t *testing.T) {
	c := cluster(t)
	states := &stateServer{lock: []byte(`{"ID":"cafe","Operation":"OperationTypeApply","Who":"somebody@elsewhere","Version":"1.12.6","Created":"2026-01-02T03:04:05Z"}`)}
	server := httptest.NewServer(states)
	defer server.Close()
	custom := "backendConfig:\n  customConfiguration: |\n    backend \"http\" {\n      address        = \"" + server.URL + "\"\n      lock_address   = \"" + server.URL + "\"\n      unlock_address = \"" + server.URL + "\"\n    }"
	c.Apply(t, inline("stack", "approvePlan: auto\nretryInterval: 1s\n"+custom, "resource \"terraform_data\" \"it\" {}"))
	s := c.AwaitReason(t, "stack", "LockHeld")
	if s.Status.Lock.Pending != "cafe" {
		t.Errorf("status.lock is %+v, want cafe pending", s.Status.Lock)
	}
	c.Patch(t, "stack", `{"spec":{"tfstate":{"forceUnlock":"yes","lockIdentifier":"cafe"}}}`)
	c.AwaitReady(t, "stack")
}

// The engine's own kubernetes backend, with a credential that the user gave it.
func TestKubernetesBackendThroughAFile(t *testing.T) {
	c := cluster(t)
	dir := platform(t).Shared(t)
	kubeconfig, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.ChownWork(dir); err != nil {
		t.Fatal(err)
	}
	c.Apply(t, inline("stack", "approvePlan: auto\nbackendConfig: {secretSuffix: own, configPath: "+path+"}", "resource \"terraform_data\" \"it\" {}"))
	c.AwaitReady(t, "stack")
	var s corev1.Secret
	c.Get(t, "tfstate-default-own", &s)
	if text := gunzip(t, s.Data["tfstate"]); !json.Valid([]byte(text)) || !strings.Contains(text, "terraform_data") {
		t.Errorf("the state is %.80q", text)
	}
}
