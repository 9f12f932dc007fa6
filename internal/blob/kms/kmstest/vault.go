package kmstest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Vault answers as the transit engine of OpenBao does, with the errors that it gives.
func Vault(t *testing.T) Server {
	s := newState(t, "terrier", "other")
	const token = "token-canary"
	errors := func(w http.ResponseWriter, code int, text string) {
		write(w, code, map[string][]string{"errors": {text}})
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		var in struct {
			Plaintext  []byte
			Ciphertext string
		}
		_, err := read(r, &in)
		switch {
		case err != nil:
			errors(w, http.StatusBadRequest, "error parsing JSON")
		case r.Header.Get("X-Vault-Token") != token || s.is(&s.revoked) || s.is(&s.denied):
			errors(w, http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
		case len(parts) != 4 || parts[0] != "v1" || parts[1] != "transit":
			errors(w, http.StatusNotFound, "no handler for route \""+r.URL.Path+"\". route entry not found.")
		case !s.has(parts[3]) || s.is(&s.disabled):
			errors(w, http.StatusBadRequest, "encryption key not found")
		case parts[2] == "encrypt":
			wrapped, version := s.wrap(parts[3], in.Plaintext)
			write(w, http.StatusOK, map[string]any{"data": map[string]any{
				"ciphertext": fmt.Sprintf("vault:v%d:%s", version, base64.StdEncoding.EncodeToString(wrapped)), "key_version": version,
			}})
		default:
			text := in.Ciphertext[strings.LastIndexByte(in.Ciphertext, ':')+1:]
			wrapped, err := base64.StdEncoding.DecodeString(text)
			plain, ok := s.unwrap(parts[3], wrapped)
			if err != nil || !ok {
				errors(w, http.StatusBadRequest, "cipher: message authentication failed")
				return
			}
			write(w, http.StatusOK, map[string]any{"data": map[string][]byte{"plaintext": plain}})
		}
	}))
	at := strings.TrimPrefix(started(t, h), "http://")
	url := func(key string) string { return "vault://" + at + "/transit/" + key + "?plain-http=true" }
	return s.server(Server{URL: url("terrier"), Other: url("other"), Missing: url("missing"), Environ: map[string]string{"VAULT_TOKEN": token}}, h, "terrier")
}
