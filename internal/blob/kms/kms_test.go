package kms_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob/kms"
	"github.com/terrier-iac/terrier/internal/blob/kms/kmstest"
	"github.com/terrier-iac/terrier/internal/fault"
)

func none(string) string { return "" }

func TestKeepers(t *testing.T) {
	type opener = func(t *testing.T, url string) kms.Keeper
	for name, start := range map[string]func(t *testing.T) (kmstest.Server, opener){
		"Vault":  func(t *testing.T) (kmstest.Server, opener) { return kmstest.Vault(t), nil },
		"AWS":    func(t *testing.T) (kmstest.Server, opener) { return kmstest.AWS(t), nil },
		"Google": func(t *testing.T) (kmstest.Server, opener) { return kmstest.Google(t), nil },
		"Azure": func(t *testing.T) (kmstest.Server, opener) {
			return kmstest.Azure(t), func(t *testing.T, url string) kms.Keeper {
				p, err := kms.Parse(url, none)
				if err != nil {
					t.Fatal(err)
				}
				k, err := kms.OpenAzure(p, kmstest.AzureToken)
				if err != nil {
					t.Fatal(err)
				}
				return k
			}
		},
	} {
		t.Run(name, func(t *testing.T) { kmstest.Run(t, start) })
	}
}

// A role of Vault becomes a token, which is used until it is refused.
func TestSignInWithARole(t *testing.T) {
	jwt := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(jwt, []byte("jwt-canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked []string
	valid := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, strings.TrimPrefix(r.URL.Path, "/v1/"))
		switch {
		case r.Header.Get("X-Vault-Namespace") != "team":
			t.Errorf("the namespace is %q", r.Header.Get("X-Vault-Namespace"))
		case r.URL.Path == "/v1/auth/k8s/login":
			if !strings.Contains(string(body), `"jwt":"jwt-canary"`) || !strings.Contains(string(body), `"role":"terrier"`) {
				http.Error(w, `{"errors":["invalid role"]}`, http.StatusBadRequest)
				return
			}
			valid = fmt.Sprintf("token-%d", len(asked))
			fmt.Fprintf(w, `{"auth":{"client_token":%q,"lease_duration":3600}}`, valid)
		case r.Header.Get("X-Vault-Token") != valid:
			http.Error(w, `{"errors":["permission denied"]}`, http.StatusForbidden)
		default:
			fmt.Fprint(w, `{"data":{"ciphertext":"vault:v1:x","key_version":1}}`)
		}
	}))
	t.Cleanup(s.Close)
	url := "vault://" + strings.TrimPrefix(s.URL, "http://") + "/transit/terrier?plain-http=true&auth=k8s&namespace=team&jwt-file=" + jwt + "&role="
	k := kmstest.Server{}.Open(t, url+"terrier")
	wrap := func() {
		t.Helper()
		if _, err := k.Wrap(t.Context(), []byte("key")); err != nil {
			t.Fatal(err)
		}
	}
	wrap()
	wrap()
	valid = "revoked"
	wrap()
	want := "auth/k8s/login transit/encrypt/terrier transit/encrypt/terrier transit/encrypt/terrier auth/k8s/login transit/encrypt/terrier"
	if got := strings.Join(asked, " "); got != want {
		t.Errorf("the requests are %q, want %q", got, want)
	}
	if _, err := (kmstest.Server{}).Open(t, url+"other").Wrap(t.Context(), []byte("key")); fault.Reason(err, "") != kms.ReasonCredentials {
		t.Errorf("Wrap() with another role = %v", err)
	}
}

func TestURLs(t *testing.T) {
	region := func(name string) string { return map[string]string{"AWS_REGION": "eu-west-1"}[name] }
	for _, tt := range []struct {
		url     string
		environ func(string) string
		is, at  string // as text, and the endpoint
		says    string
	}{
		{"vault://bao.example.com:8200/transit/terrier", none, "vault://bao.example.com:8200/transit/terrier", "https://bao.example.com:8200", ""},
		{"vault://bao.example.com/team/a/transit/terrier?plain-http=true", none, "vault://bao.example.com/team/a/transit/terrier", "http://bao.example.com", ""},
		{"vault://bao.example.com/terrier", none, "", "", "vault://HOST/transit/KEY"},
		{"vault:///transit/terrier", none, "", "", "vault://HOST/transit/KEY"},
		{"vault://bao.example.com/transit/..?x", none, "", "", "the parameter"},
		{"awskms://alias/terrier", region, "awskms://alias/terrier", "https://kms.eu-west-1.amazonaws.com", ""},
		{"awskms://1234abcd-12ab-34cd-56ef-1234567890ab?region=cn-north-1", none, "awskms://1234abcd-12ab-34cd-56ef-1234567890ab", "https://kms.cn-north-1.amazonaws.com.cn", ""},
		{"awskms:///arn:aws:kms:us-east-2:111122223333:key/1234abcd", region, "awskms://arn:aws:kms:us-east-2:111122223333:key/1234abcd", "https://kms.us-east-2.amazonaws.com", ""},
		{"awskms://alias/terrier", none, "", "", "?region=REGION"},
		{"gcpkms://projects/p/locations/global/keyRings/r/cryptoKeys/k", none, "gcpkms://projects/p/locations/global/keyRings/r/cryptoKeys/k", "https://cloudkms.googleapis.com", ""},
		{"gcpkms://projects/p/cryptoKeys/k", none, "", "", "gcpkms://projects/PROJECT"},
		{"azurekv://vault/terrier", none, "azurekv://vault/terrier", "https://vault.vault.azure.net", ""},
		{"azurekv://vault.vault.azure.cn/terrier", none, "azurekv://vault.vault.azure.cn/terrier", "https://vault.vault.azure.cn", ""},
		{"azurekv://vault", none, "", "", "azurekv://VAULT/KEY"},
		{"kms://x", none, "", "", "none of awskms, azurekv, gcpkms, vault"},
		{"vault://u:canary@bao.example.com/transit/terrier", none, "", "", "credentials"},
		{"azurekv://vault/terrier?endpoint=https://u:canary@h", none, "", "", "endpoint="},
		{"azurekv://vault/terrier?credentials=none", none, "", "", "credentials="},
		{"vault://bao.example.com/transit/terrier?plain-http=canary", none, "", "", "plain-http="},
	} {
		p, err := kms.Parse(tt.url, tt.environ)
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "canary") {
				t.Errorf("Parse(%s) = %v, want it to say %q", tt.url, err, tt.says)
			}
			continue
		}
		if err != nil || p.String() != tt.is || p.Endpoint.String() != tt.at {
			t.Errorf("Parse(%s) = %s at %s, %v, want %s at %s", tt.url, p, p.Endpoint, err, tt.is, tt.at)
		}
	}
}

// Without credentials a key is not opened, and the error names all ways to an identity.
func TestNoCredentials(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // no file of profiles
	for url, says := range map[string]string{
		"vault://bao.example.com/transit/terrier":                       "VAULT_TOKEN",
		"awskms://alias/terrier?region=r":                               "IRSA",
		"gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/terrier": "GOOGLE_APPLICATION_CREDENTIALS",
		"azurekv://vault/terrier":                                       "workload identity",
	} {
		p, err := kms.Parse(url, none)
		if err != nil {
			t.Fatal(err)
		}
		_, err = kms.Open(p, kms.Options{Environ: none, Now: time.Now})
		if fault.Reason(err, "") != kms.ReasonCredentials || !strings.Contains(fmt.Sprint(err), says) || !strings.Contains(fmt.Sprint(err), "--records-kms") {
			t.Errorf("Open(%s) = %v, want it to say %q", url, err, says)
		}
	}
}

// Only what Text wrote is taken for a wrapped key.
func TestTexts(t *testing.T) {
	for _, text := range []string{"", "canary: 32 bytes of a secret key", "{}", `{"wrappedBy":"vault://x"}`, `[1]`} {
		if w, ok := kms.Read([]byte(text)); ok {
			t.Errorf("%q is read as %+v", text, w)
		}
	}
}
