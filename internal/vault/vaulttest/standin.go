package vaulttest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// standIn answers as OpenBao does, as far as the suite of package vault asks.
type standIn struct {
	mu       sync.Mutex
	sealed   bool
	made     int
	tokens   map[string]*token
	policies map[string]string
	roles    map[string]role             // of auth/METHOD/role/NAME
	ids      map[string]string           // the role by each of its secret IDs, of approle
	stores   map[string][]map[string]any // versions by mount and path; nil for one that was deleted
	leases   map[string]string           // the token of each
	lasts    int                         // seconds, of leases of users of a broker
	most     int                         // seconds, after which these can be renewed no more; 0 is never
}

type token struct {
	accessor, policy string
	ttl              int
	parent           string
}

type role struct {
	policy string
	ttl    int
}

// StandIn starts a stand-in.
func StandIn(t *testing.T) Server {
	s := &standIn{
		tokens: map[string]*token{"root": {policy: "root"}}, policies: map[string]string{}, roles: map[string]role{}, ids: map[string]string{},
		stores: map[string][]map[string]any{}, leases: map[string]string{},
	}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(h.Close)
	at, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Server{URL: at, Root: "root"}
}

// mounts are the engines, and whether they keep versions.
var mounts = map[string]string{"kyuubi/": "kv2", "old/": "kv", "pki/": "pki", "rabbitmq/": "rabbitmq", "transit/": "transit"}

type failure struct {
	code int
	text string
}

func (s *standIn) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var in map[string]any
	_ = json.NewDecoder(r.Body).Decode(&in) // a GET has none
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	out, failed := s.answer(r, path, in)
	if failed != nil {
		w.WriteHeader(failed.code)
		all := []string{}
		if failed.text != "" {
			all = append(all, failed.text)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": all})
		return
	}
	if out == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (s *standIn) answer(r *http.Request, path string, in map[string]any) (map[string]any, *failure) {
	if path == "sys/health" {
		return map[string]any{"initialized": true, "sealed": s.sealed, "standby": false, "version": "0.0.0"}, nil
	}
	if path == "sys/unseal" {
		s.sealed = false
		return nil, nil
	}
	if s.sealed {
		return nil, &failure{http.StatusServiceUnavailable, "Vault is sealed"}
	}
	if method, ok := strings.CutSuffix(path, "/login"); ok && strings.HasPrefix(method, "auth/") {
		return s.logIn(method, in)
	}
	by := s.tokens[r.Header.Get("X-Vault-Token")]
	if by == nil {
		return nil, &failure{http.StatusForbidden, "permission denied"}
	}
	if strings.HasPrefix(path, "auth/") || strings.HasPrefix(path, "sys/") {
		return s.own(r, path, by, in)
	}
	return s.secret(r, path, by, in)
}

// logIn accepts a role of the method, for each identity but none and "bad".
func (s *standIn) logIn(method string, in map[string]any) (map[string]any, *failure) {
	if id, ok := in["role_id"].(string); ok {
		return s.logInRole(method, id, in)
	}
	named, _ := in["role"].(string)
	of, ok := s.roles[method+"/role/"+named]
	// A token with a random signature can contain each short text: it is compared as a whole.
	if identity, _ := in["jwt"].(string); !ok || identity == "" || identity == "bad" {
		return nil, &failure{http.StatusBadRequest, "role \"" + named + "\" could not be found, or the token is not accepted"}
	}
	return s.issue(of.policy, "", of.ttl), nil
}

// logInRole accepts the secret ID of a role with its role ID.
func (s *standIn) logInRole(method, id string, in map[string]any) (map[string]any, *failure) {
	at := method + "/role/" + strings.TrimPrefix(id, "role-id-of-")
	of, ok := s.roles[at]
	if secret, _ := in["secret_id"].(string); !ok || s.ids[secret] != at {
		return nil, &failure{http.StatusBadRequest, "invalid role or secret ID"}
	}
	return s.issue(of.policy, "", of.ttl), nil
}

// appRole are the requests about the IDs of a role of approle.
func (s *standIn) appRole(path string, in map[string]any) (map[string]any, *failure) {
	at, what, _ := strings.Cut(strings.TrimPrefix(path, "auth/approle/role/"), "/")
	role := "auth/approle/role/" + at
	switch what {
	case "role-id":
		return map[string]any{"data": map[string]any{"role_id": "role-id-of-" + at}}, nil
	case "secret-id":
		s.made++
		id := fmt.Sprintf("secret-id-canary-%d", s.made)
		s.ids[id] = role
		return map[string]any{"data": map[string]any{"secret_id": id}}, nil
	case "secret-id/destroy":
		id, _ := in["secret_id"].(string)
		delete(s.ids, id)
		return nil, nil
	}
	return nil, &failure{http.StatusNotFound, "unsupported path"}
}

func (s *standIn) issue(policy, parent string, ttl int) map[string]any {
	s.made++
	name := fmt.Sprintf("token-canary-%d", s.made)
	s.tokens[name] = &token{accessor: fmt.Sprintf("accessor-%d", s.made), policy: policy, ttl: ttl, parent: parent}
	return map[string]any{"auth": map[string]any{"client_token": name, "accessor": s.tokens[name].accessor, "lease_duration": ttl, "renewable": true}}
}

// own are the requests about the server itself.
func (s *standIn) own(r *http.Request, path string, by *token, in map[string]any) (map[string]any, *failure) {
	text := func(name string) string { v, _ := in[name].(string); return v }
	name := r.Header.Get("X-Vault-Token")
	admin := by.policy == "root"
	switch {
	case path == "auth/token/lookup-self":
		return map[string]any{"data": map[string]any{"accessor": by.accessor}}, nil
	case path == "auth/token/renew-self":
		return map[string]any{"auth": map[string]any{"client_token": name, "lease_duration": by.ttl}}, nil
	case path == "auth/token/revoke-self":
		s.revoke(name)
		return nil, nil
	case path == "auth/token/create" && (admin || strings.Contains(s.policies[by.policy], path)):
		policy, ttl := by.policy, by.ttl
		if of, _ := in["policies"].([]any); len(of) == 1 {
			policy, _ = of[0].(string)
		}
		if long, err := time.ParseDuration(text("ttl")); err == nil {
			ttl = int(long.Seconds())
		}
		return s.issue(policy, name, ttl), nil
	case strings.HasPrefix(path, "sys/internal/ui/mounts/"):
		of := strings.TrimPrefix(path, "sys/internal/ui/mounts/")
		mount, kind := mountOf(of)
		if kind == "" || !admin && !s.mayList(by, mount) {
			return nil, &failure{http.StatusForbidden, "preflight capability check returned 403, please ensure client's policies grant access to path \"" + of + "/\""}
		}
		options := map[string]string{}
		if kind == "kv2" {
			kind, options["version"] = "kv", "2"
		}
		return map[string]any{"data": map[string]any{"path": mount, "type": kind, "options": options}}, nil
	case path == "sys/leases/renew":
		if s.leases[text("lease_id")] == "" {
			return nil, &failure{http.StatusBadRequest, "lease not found"}
		}
		lasts := 60
		if strings.HasPrefix(text("lease_id"), "rabbitmq/") {
			lasts = s.lasting()
		}
		return map[string]any{"lease_id": text("lease_id"), "lease_duration": lasts, "renewable": true}, nil
	case path == "sys/leases/revoke" && s.leases[text("lease_id")] != "":
		delete(s.leases, text("lease_id"))
		return nil, nil
	case !admin:
		return nil, &failure{http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n"}
	case path == "sys/leases/lookup":
		if s.leases[text("lease_id")] == "" {
			return nil, &failure{http.StatusBadRequest, "invalid lease"}
		}
		return map[string]any{"data": map[string]any{"id": text("lease_id")}}, nil
	case path == "auth/token/lookup-accessor":
		for _, of := range s.tokens {
			if of.accessor == text("accessor") {
				return map[string]any{"data": map[string]any{"accessor": of.accessor, "policies": []string{of.policy}}}, nil
			}
		}
		return nil, &failure{http.StatusForbidden, "invalid accessor"}
	case path == "auth/token/revoke-accessor":
		for name, of := range maps.Clone(s.tokens) {
			if of.accessor == text("accessor") {
				s.revoke(name)
			}
		}
	case path == "auth/token/accessors":
		all := []string{}
		for _, of := range s.tokens {
			if of.accessor != "" {
				all = append(all, of.accessor)
			}
		}
		return map[string]any{"data": map[string]any{"keys": all}}, nil
	case path == "sys/seal":
		s.sealed = true
	case strings.HasPrefix(path, "sys/policies/acl/"):
		s.policies[strings.TrimPrefix(path, "sys/policies/acl/")] = text("policy")
	case strings.HasPrefix(path, "auth/approle/role/") && strings.Count(path, "/") > 3:
		return s.appRole(path, in)
	case strings.Contains(path, "/role/"):
		ttl, err := time.ParseDuration(text("token_ttl"))
		if err != nil {
			return nil, &failure{http.StatusBadRequest, "token_ttl is no duration"}
		}
		s.roles[path] = role{text("token_policies"), int(ttl.Seconds())}
	default: // mounts and configurations, which are there
	}
	return nil, nil
}

// lasting is how long the lease of a user of a broker lasts from now on.
func (s *standIn) lasting() int {
	if s.most > 0 && s.most < s.lasts {
		return s.most
	}
	return s.lasts
}

func (s *standIn) revoke(name string) {
	delete(s.tokens, name)
	maps.DeleteFunc(s.leases, func(_, of string) bool { return of == name })
	for child, of := range maps.Clone(s.tokens) {
		if of.parent == name {
			s.revoke(child)
		}
	}
}

func mountOf(path string) (mount, kind string) {
	for mount, kind := range mounts {
		if strings.HasPrefix(path+"/", mount) {
			return mount, kind
		}
	}
	return "", ""
}

// may reads rules as the tests write them: path "PREFIX*" or path "PATH".
func (s *standIn) may(by *token, path string) bool {
	for _, part := range strings.Split(s.policies[by.policy], "path \"")[1:] {
		rule, _, _ := strings.Cut(part, "\"")
		if prefix, open := strings.CutSuffix(rule, "*"); rule == path || open && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return by.policy == "root"
}

func (s *standIn) mayList(by *token, mount string) bool {
	return strings.Contains(s.policies[by.policy], "path \""+mount)
}

func (s *standIn) secret(r *http.Request, path string, by *token, in map[string]any) (map[string]any, *failure) {
	if !s.may(by, path) {
		return nil, &failure{http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n"}
	}
	mount, kind := mountOf(path)
	below := strings.TrimPrefix(path, mount)
	id := fmt.Sprintf("request-%d", len(s.stores)+len(s.leases)+s.made)
	switch kind {
	case "kv2":
		return s.versioned(r, mount+strings.TrimPrefix(below, "data/"), id, in)
	case "kv":
		if r.Method != http.MethodGet {
			s.stores[path] = []map[string]any{in}
			return nil, nil
		}
		if len(s.stores[path]) == 0 {
			return nil, &failure{http.StatusNotFound, ""}
		}
		return map[string]any{"request_id": id, "lease_duration": 2764800, "data": s.stores[path][0]}, nil
	case "pki":
		named, _ := in["common_name"].(string)
		if !strings.HasPrefix(below, "issue/") || named == "" {
			return nil, &failure{http.StatusBadRequest, "the common_name field is required"}
		}
		s.made++
		lease := fmt.Sprintf("%s/lease-%d", path, s.made)
		s.leases[lease] = r.Header.Get("X-Vault-Token")
		return map[string]any{"request_id": id, "lease_id": lease, "lease_duration": 60, "data": map[string]any{
			"certificate": fmt.Sprintf("certificate of %s, %d", named, s.made), "private_key": fmt.Sprintf("key-canary-%d", s.made),
			"expiration": time.Now().Add(time.Hour).Unix(), "ca_chain": []string{"ca"},
		}}, nil
	case "rabbitmq":
		number := func(name string) int { n, _ := in[name].(float64); return int(n) }
		switch {
		case below == "config/lease":
			s.lasts, s.most = number("ttl"), number("max_ttl")
			return nil, nil
		case below != "creds/app":
			return nil, &failure{http.StatusBadRequest, "unknown role: " + below}
		}
		s.made++
		lease := fmt.Sprintf("%s/lease-%d", path, s.made)
		s.leases[lease] = r.Header.Get("X-Vault-Token")
		return map[string]any{"request_id": id, "lease_id": lease, "lease_duration": s.lasting(), "renewable": true, "data": map[string]any{
			"username": fmt.Sprintf("user-%d", s.made), "password": fmt.Sprintf("password-canary-%d", s.made),
		}}, nil
	case "transit":
		text, _ := in["ciphertext"].(string)
		if below == "encrypt/k" {
			text, _ = in["plaintext"].(string)
			return map[string]any{"request_id": id, "data": map[string]any{"ciphertext": "vault:v1:" + text}}, nil
		}
		plain, ok := strings.CutPrefix(text, "vault:v1:")
		if _, err := base64.StdEncoding.DecodeString(plain); below != "decrypt/k" || !ok || err != nil {
			return nil, &failure{http.StatusBadRequest, "invalid ciphertext: no prefix"}
		}
		return map[string]any{"request_id": id, "data": map[string]any{"plaintext": plain}}, nil
	}
	return nil, &failure{http.StatusNotFound, "no handler for route \"" + path + "\""}
}

// versioned are the requests of a store with versions.
func (s *standIn) versioned(r *http.Request, path, id string, in map[string]any) (map[string]any, *failure) {
	all := s.stores[path]
	switch r.Method {
	case http.MethodDelete:
		all[len(all)-1] = nil
		return nil, nil
	case http.MethodPost, http.MethodPut:
		data, _ := in["data"].(map[string]any)
		s.stores[path] = append(slices.Clone(all), data)
		return map[string]any{"data": map[string]any{"version": len(all) + 1}}, nil
	}
	at := len(all)
	if asked := r.URL.Query().Get("version"); asked != "" {
		at, _ = strconv.Atoi(asked)
	}
	if at < 1 || at > len(all) || all[at-1] == nil {
		return nil, &failure{http.StatusNotFound, ""}
	}
	return map[string]any{"request_id": id, "data": map[string]any{"data": all[at-1], "metadata": map[string]any{"version": at}}}, nil
}
