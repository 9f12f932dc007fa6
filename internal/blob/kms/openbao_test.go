package kms_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob/kms"
	"github.com/terrier-iac/terrier/internal/blob/kms/kmstest"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// openBao is a real server, if `make bin/bao` has built it: that takes minutes.
type openBao struct{ url string }

const rootToken = "root"

func startOpenBao(t *testing.T) openBao {
	t.Helper()
	return openBao{vaulttest.Start(t).URL.String()}
}

// ask makes a request of its administrator.
func (b openBao) ask(t *testing.T, method, path string, in any) map[string]any {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vault-Token", rootToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s %s, %v", method, path, resp.Status, text, err)
	}
	out := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// rule is the policy that docs/records.md names, for both keys.
func (b openBao) rule(t *testing.T, allowed bool) {
	t.Helper()
	policy := ""
	for _, key := range []string{"terrier", "other", "missing"} {
		for _, operation := range []string{"encrypt", "decrypt"} {
			policy += fmt.Sprintf("path \"transit/%s/%s\" { capabilities = [\"update\"] }\n", operation, key)
		}
	}
	if !allowed {
		policy = "path \"transit/none\" { capabilities = [\"read\"] }"
	}
	b.ask(t, http.MethodPut, "sys/policies/acl/terrier", map[string]string{"policy": policy})
}

// Everything that a stand-in does, OpenBao does.
func TestOpenBao(t *testing.T) {
	kmstest.Run(t, func(t *testing.T) (kmstest.Server, func(t *testing.T, url string) kms.Keeper) {
		b := startOpenBao(t)
		b.ask(t, http.MethodPost, "sys/mounts/transit", map[string]string{"type": "transit"})
		b.ask(t, http.MethodPost, "transit/keys/terrier", map[string]any{})
		b.ask(t, http.MethodPost, "transit/keys/other", map[string]any{})
		b.rule(t, true)
		auth, _ := b.ask(t, http.MethodPost, "auth/token/create", map[string]any{"policies": []string{"terrier"}, "no_default_policy": true})["auth"].(map[string]any)
		token, _ := auth["client_token"].(string)
		url := func(key string) string {
			return "vault://" + strings.TrimPrefix(b.url, "http://") + "/transit/" + key + "?plain-http=true"
		}
		return kmstest.Server{
			URL: url("terrier"), Other: url("other"), Missing: url("missing"), Environ: map[string]string{"VAULT_TOKEN": token},
			Rotate: func(t *testing.T) { b.ask(t, http.MethodPost, "transit/keys/terrier/rotate", map[string]any{}) },
			Deny:   func(t *testing.T, yes bool) { b.rule(t, !yes) },
			Disable: func(t *testing.T) {
				b.ask(t, http.MethodPost, "transit/keys/terrier/config", map[string]bool{"deletion_allowed": true})
				b.ask(t, http.MethodDelete, "transit/keys/terrier", nil)
			},
			Revoke: func(t *testing.T) { b.ask(t, http.MethodPost, "auth/token/revoke", map[string]string{"token": token}) },
			Down:   func(t *testing.T) { b.ask(t, http.MethodPut, "sys/seal", nil) },
		}, nil
	})
}
