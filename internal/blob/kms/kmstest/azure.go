package kmstest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// AzureToken is the token that Azure takes.
const AzureToken = "token-canary"

// Azure answers as Azure Key Vault does, with RSA keys.
func Azure(t *testing.T) Server {
	s := newState(t, "terrier", "other")
	var mu sync.Mutex
	keys := map[string][]*rsa.PrivateKey{}
	grow := func(t *testing.T, name string) {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		keys[name] = append(keys[name], key)
	}
	grow(t, "terrier")
	grow(t, "other")
	fail := func(w http.ResponseWriter, code int, name string) {
		write(w, code, map[string]any{"error": map[string]string{"code": name, "message": "refused"}})
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // keys NAME [VERSION] OPERATION
		var in struct{ Alg, Value string }
		_, err := read(r, &in)
		value, errValue := base64.RawURLEncoding.DecodeString(in.Value)
		operation := parts[len(parts)-1]
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Header.Get("Authorization") != "Bearer "+AzureToken || s.is(&s.revoked):
			fail(w, http.StatusUnauthorized, "Unauthorized")
			return
		case s.is(&s.denied):
			fail(w, http.StatusForbidden, "Forbidden")
			return
		case err != nil, errValue != nil, in.Alg != "RSA-OAEP-256", r.URL.Query().Get("api-version") == "", len(parts) < 3:
			fail(w, http.StatusBadRequest, "BadParameter")
			return
		case keys[parts[1]] == nil:
			fail(w, http.StatusNotFound, "KeyNotFound")
			return
		case s.is(&s.disabled):
			fail(w, http.StatusForbidden, "KeyDisabled")
			return
		}
		version := len(keys[parts[1]])
		if len(parts) == 4 {
			if version, err = strconv.Atoi(parts[2]); err != nil || version < 1 || version > len(keys[parts[1]]) {
				fail(w, http.StatusNotFound, "KeyNotFound")
				return
			}
		}
		key := keys[parts[1]][version-1]
		var out []byte
		if operation == "wrapkey" {
			out, err = rsa.EncryptOAEP(sha256.New(), rand.Reader, &key.PublicKey, value, nil)
		} else {
			out, err = rsa.DecryptOAEP(sha256.New(), rand.Reader, key, value, nil)
		}
		if err != nil {
			fail(w, http.StatusBadRequest, "BadParameter")
			return
		}
		write(w, http.StatusOK, map[string]string{
			"kid": fmt.Sprintf("https://vault.example/keys/%s/%d", parts[1], version), "value": base64.RawURLEncoding.EncodeToString(out),
		})
	}))
	end := "?endpoint=" + url.QueryEscape(started(t, h))
	server := s.server(Server{URL: "azurekv://vault/terrier" + end, Other: "azurekv://vault/other" + end, Missing: "azurekv://vault/missing" + end}, h, "terrier")
	server.Rotate = func(t *testing.T) { grow(t, "terrier") }
	return server
}
