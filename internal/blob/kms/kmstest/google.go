package kmstest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Google answers as Google Cloud KMS does. It gives a token for what the key of an account
// has signed.
func Google(t *testing.T) Server {
	const ring = "projects/p/locations/europe/keyRings/r/cryptoKeys/"
	s := newState(t, ring+"terrier", ring+"other")
	account, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	fail := func(w http.ResponseWriter, code int, status string) {
		write(w, code, map[string]any{"error": map[string]any{"code": code, "status": status, "message": "refused"}})
	}
	const token = "token-canary"
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			var claims struct {
				Scope string `json:"scope"`
			}
			signed, err := jwt.ParseSigned(r.FormValue("assertion"), []jose.SignatureAlgorithm{jose.RS256})
			if err == nil {
				err = signed.Claims(account.Public(), &claims)
			}
			if err != nil || claims.Scope != "https://www.googleapis.com/auth/cloudkms" {
				fail(w, http.StatusUnauthorized, "UNAUTHENTICATED")
				return
			}
			write(w, http.StatusOK, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
			return
		}
		var in struct{ Plaintext, Ciphertext []byte }
		_, err := read(r, &in)
		key, operation, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"), ":")
		switch {
		case err != nil:
			fail(w, http.StatusBadRequest, "INVALID_ARGUMENT")
		case r.Header.Get("Authorization") != "Bearer "+token || s.is(&s.revoked):
			fail(w, http.StatusUnauthorized, "UNAUTHENTICATED")
		case s.is(&s.denied):
			fail(w, http.StatusForbidden, "PERMISSION_DENIED")
		case !s.has(key):
			fail(w, http.StatusNotFound, "NOT_FOUND")
		case s.is(&s.disabled):
			fail(w, http.StatusBadRequest, "FAILED_PRECONDITION")
		case operation == "encrypt":
			wrapped, version := s.wrap(key, in.Plaintext)
			write(w, http.StatusOK, map[string]any{"name": fmt.Sprintf("%s/cryptoKeyVersions/%d", key, version), "ciphertext": wrapped})
		default:
			plain, ok := s.unwrap(key, in.Ciphertext)
			if !ok {
				fail(w, http.StatusBadRequest, "INVALID_ARGUMENT")
				return
			}
			write(w, http.StatusOK, map[string][]byte{"plaintext": plain})
		}
	}))
	at := started(t, h)
	der, err := x509.MarshalPKCS8PrivateKey(account)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "terrier@example.iam.gserviceaccount.com", "token_uri": at + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	file := filepath.Join(t.TempDir(), "account.json")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	end := "?endpoint=" + url.QueryEscape(at)
	return s.server(Server{
		URL: "gcpkms://" + ring + "terrier" + end, Other: "gcpkms://" + ring + "other" + end, Missing: "gcpkms://" + ring + "missing" + end,
		Environ: map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": file},
	}, h, ring+"terrier")
}
