// Package vaulttest has a real OpenBao for tests, and a stand-in for machines where it was
// not built. One suite, in package vault, holds both to the same answers.
package vaulttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/testkit/port"
)

// Server is an OpenBao, or what stands in for one. It has
//   - the key/value stores kyuubi, with versions, and old, without;
//   - rabbitmq, whose role app makes users of a broker, each with a lease: rabbitmq/config/lease
//     says for how long;
//   - pki, whose role web issues certificates for example.com, each with a lease;
//   - transit, with the key k.
type Server struct {
	URL  *url.URL
	Root string // the token of its administrator
	Real bool
}

// program is where `make bin/bao` leaves OpenBao.
func program() (string, bool) {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		path := filepath.Join(dir, "bin", "bao")
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
		if _, err := os.Stat(filepath.Join(dir, "Makefile")); err == nil {
			return "", false
		}
		dir = filepath.Dir(dir)
	}
	return "", false
}

// Program is where OpenBao is. The test is skipped where it was not built.
func Program(t *testing.T) string {
	t.Helper()
	path, ok := program()
	if !ok {
		t.Skip("there is no OpenBao here: make bin/bao")
	}
	return path
}

// Each runs a test with the stand-in, and with OpenBao where it was built.
func Each(t *testing.T, test func(t *testing.T, s Server)) {
	t.Run("stand-in", func(t *testing.T) { test(t, StandIn(t)) })
	t.Run("OpenBao", func(t *testing.T) { test(t, OpenBao(t)) })
}

// Start starts a real server with nothing in it. The test is skipped where OpenBao was not
// built: that takes minutes.
func Start(t *testing.T) Server {
	t.Helper()
	path := Program(t)
	at := port.Address(t)
	cmd := exec.CommandContext(t.Context(), path, "server", "-dev", "-dev-no-store-token", "-dev-root-token-id=root", "-dev-listen-address="+at)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &said, &said, t.TempDir(), time.Second
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	s := Server{URL: &url.URL{Scheme: "http", Host: at}, Root: "root", Real: true}
	for {
		resp, err := http.Get(s.URL.String() + "/v1/sys/health")
		if err == nil {
			err = resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			return s
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v; it said: %s", path, err, said.String())
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// OpenBao starts a real server, as Server says. The test is skipped where it was not built.
func OpenBao(t *testing.T) Server {
	t.Helper()
	s := Start(t)
	s.Ask(t, http.MethodPost, "sys/mounts/kyuubi", map[string]any{"type": "kv", "options": map[string]string{"version": "2"}})
	s.Ask(t, http.MethodPost, "sys/mounts/old", map[string]any{"type": "kv", "options": map[string]string{"version": "1"}})
	s.Ask(t, http.MethodPost, "sys/mounts/transit", map[string]string{"type": "transit"})
	s.Ask(t, http.MethodPost, "transit/keys/k", map[string]any{})
	s.Ask(t, http.MethodPost, "sys/mounts/pki", map[string]any{"type": "pki", "config": map[string]string{"max_lease_ttl": "1000h"}})
	s.Ask(t, http.MethodPost, "pki/root/generate/internal", map[string]string{"common_name": "test", "ttl": "1000h"})
	s.Ask(t, http.MethodPost, "pki/roles/web", map[string]any{"allow_any_name": true, "max_ttl": "100h", "generate_lease": true})
	s.Ask(t, http.MethodPost, "sys/mounts/rabbitmq", map[string]string{"type": "rabbitmq"})
	s.Ask(t, http.MethodPost, "rabbitmq/config/connection", map[string]any{"connection_uri": broker(t), "username": "guest", "password": "guest"})
	s.Ask(t, http.MethodPost, "rabbitmq/roles/app", map[string]string{"vhosts": `{"/":{"write":".*","read":".*"}}`})
	s.awaitVersions(t)
	return s
}

// broker is as much of RabbitMQ as the engine asks for: it takes and deletes users.
func broker(t *testing.T) string {
	var mu sync.Mutex
	users := map[string]bool{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		user, isUser := strings.CutPrefix(r.URL.Path, "/api/users/")
		switch {
		case r.Method == http.MethodGet:
			_, _ = w.Write([]byte("[]"))
		case r.Method == http.MethodDelete && !users[user]:
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodDelete:
			delete(users, user)
			w.WriteHeader(http.StatusNoContent)
		default:
			users[user] = users[user] || isUser
			w.WriteHeader(http.StatusCreated)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// Lasting says for how long, in seconds, what rabbitmq makes and renews from now on lasts: each
// time, and in all from its making on.
func (s Server) Lasting(t *testing.T, each, most int) {
	t.Helper()
	s.Ask(t, http.MethodPost, "rabbitmq/config/lease", map[string]int{"ttl": each, "max_ttl": most})
}

// awaitVersions waits until the store with versions has been set up, which goes on after
// it was mounted.
func (s Server) awaitVersions(t *testing.T) {
	t.Helper()
	for s.Try(t, http.MethodPost, "kyuubi/data/ready", map[string]any{"data": map[string]string{"is": "yes"}})/100 != 2 {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Write writes a secret into kyuubi, as a new version.
func (s Server) Write(t *testing.T, path string, data map[string]any) {
	t.Helper()
	s.Ask(t, http.MethodPost, "kyuubi/data/"+path, map[string]any{"data": data})
}

// Policy makes a policy.
func (s Server) Policy(t *testing.T, name, rules string) {
	t.Helper()
	s.Ask(t, http.MethodPut, "sys/policies/acl/"+name, map[string]string{"policy": rules})
}

// Token makes a token with a policy and a time to live.
func (s Server) Token(t *testing.T, policy, ttl string) string {
	t.Helper()
	out := s.Ask(t, http.MethodPost, "auth/token/create", map[string]any{"policies": []string{policy}, "ttl": ttl})
	auth, _ := out["auth"].(map[string]any)
	token, _ := auth["client_token"].(string)
	if token == "" {
		t.Fatalf("no token was made: %v", out)
	}
	return token
}

// AppRole makes a role of the method approle with a policy, and returns its ID and a secret ID.
func (s Server) AppRole(t *testing.T, name, policy, ttl string) (roleID, secretID string) {
	t.Helper()
	s.Try(t, http.MethodPost, "sys/auth/approle", map[string]string{"type": "approle"}) // which may be there
	at := "auth/approle/role/" + name
	s.Ask(t, http.MethodPost, at, map[string]string{"token_policies": policy, "token_ttl": ttl})
	text := func(out map[string]any, key string) string {
		data, _ := out["data"].(map[string]any)
		id, _ := data[key].(string)
		if id == "" {
			t.Fatalf("the role %s has no %s: %v", name, key, out)
		}
		return id
	}
	return text(s.Ask(t, http.MethodGet, at+"/role-id", nil), "role_id"), text(s.Ask(t, http.MethodPost, at+"/secret-id", map[string]any{}), "secret_id")
}

// EndSecretID ends a secret ID of a role.
func (s Server) EndSecretID(t *testing.T, role, id string) {
	t.Helper()
	s.Ask(t, http.MethodPost, "auth/approle/role/"+role+"/secret-id/destroy", map[string]string{"secret_id": id})
}

// Accessors are those of the tokens that the server knows and that have a policy.
func (s Server) Accessors(t *testing.T, policy string) (all []string) {
	t.Helper()
	out := s.Ask(t, "LIST", "auth/token/accessors", nil)
	data, _ := out["data"].(map[string]any)
	keys, _ := data["keys"].([]any)
	for _, key := range keys {
		_, out := s.try(t, http.MethodPost, "auth/token/lookup-accessor", map[string]any{"accessor": key}) // which may have ended meanwhile
		data, _ := out["data"].(map[string]any)
		if named, _ := data["policies"].([]any); slices.Contains(named, any(policy)) {
			all = append(all, fmt.Sprint(key))
		}
	}
	return all
}

// Ask makes a request of the administrator, which must succeed.
func (s Server) Ask(t *testing.T, method, path string, in any) map[string]any {
	t.Helper()
	code, out := s.try(t, method, path, in)
	if code/100 != 2 {
		t.Fatalf("%s %s: %d %v", method, path, code, out)
	}
	return out
}

// Try makes a request of the administrator, and returns the status of the answer.
func (s Server) Try(t *testing.T, method, path string, in any) int {
	t.Helper()
	code, _ := s.try(t, method, path, in)
	return code
}

// Leased reports whether the server knows a lease.
func (s Server) Leased(t *testing.T, lease string) bool {
	t.Helper()
	return s.Try(t, http.MethodPut, "sys/leases/lookup", map[string]string{"lease_id": lease})/100 == 2
}

// patience is how long the server may take to end the leases of a session, which it does
// after it has answered.
const patience = 5 * time.Minute

// AwaitEnded waits until the server knows a lease no more.
func (s Server) AwaitEnded(t *testing.T, lease string) {
	t.Helper()
	late := time.After(patience)
	for s.Leased(t, lease) {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-late:
			t.Fatalf("the lease %s outlives its session", lease)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s Server) try(t *testing.T, method, path string, in any) (int, map[string]any) {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL.String()+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vault-Token", s.Root)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%s %s: %q is no JSON", method, path, text)
		}
	}
	return resp.StatusCode, out
}
