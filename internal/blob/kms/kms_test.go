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

	"github.com/google/go-cmp/cmp"

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
		{"kms://x", none, "", "", "none of awskms, azurekeyvault, azurekv, gcpkms, hashivault, vault"},
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

// URLs as gocloud.dev/secrets documents them name the same keys.
func TestURLsOfGoCloud(t *testing.T) {
	variables := func(all map[string]string) func(string) string { return func(name string) string { return all[name] } }
	server := variables(map[string]string{"VAULT_ADDR": "https://bao.example.com:8200/", "VAULT_NAMESPACE": "team", "VAULT_CACERT": "/ca.crt"})
	older := variables(map[string]string{"VAULT_ADDR": "https://other.example.com", "VAULT_SERVER_URL": "http://127.0.0.1:8200", "VAULT_SERVER_TOKEN": "canary"})
	for _, tt := range []struct {
		url     string
		environ func(string) string
		is, at  string           // as text, and the endpoint
		change  func(*kms.Place) // what else differs from what this text alone would be
		says    string
	}{
		{"awskms://1234abcd-12ab-34cd-56ef-1234567890ab?region=us-east-1&awssdk=v2", none, "awskms://1234abcd-12ab-34cd-56ef-1234567890ab", "https://kms.us-east-1.amazonaws.com", nil, ""},
		{"awskms://alias/ExampleAlias?region=us-east-1&fips=true", none, "awskms://alias/ExampleAlias", "https://kms-fips.us-east-1.amazonaws.com", func(p *kms.Place) { p.FIPS = true }, ""},
		{"awskms:///arn:aws:kms:us-east-1:111122223333:key/1234abcd?region=us-east-1&dualstack=true&fips=false", none, "awskms://arn:aws:kms:us-east-1:111122223333:key/1234abcd", "https://kms.us-east-1.api.aws", func(p *kms.Place) { p.DualStack = true }, ""},
		{"awskms://alias/a?region=cn-north-1&dualstack=true", none, "awskms://alias/a", "https://kms.cn-north-1.api.amazonwebservices.com.cn", func(p *kms.Place) { p.DualStack = true }, ""},
		{"awskms://alias/a?region=us-east-1&context_b=x%26y&context_a=z", none, "awskms://alias/a?context_a=z&context_b=x%26y", "https://kms.us-east-1.amazonaws.com", func(p *kms.Place) { p.Context = map[string]string{"a": "z", "b": "x&y"} }, ""},
		{"awskms://alias/a?region=us-east-1&awssdk=v3", none, "", "", nil, "awssdk="},
		{"awskms://alias/a?region=us-east-1&context_=x", none, "", "", nil, "context_NAME=VALUE"},
		{"awskms://alias/a?region=us-east-1&fips=yes", none, "", "", nil, "fips="},
		{"awskms://alias/a?region=us-east-1&anonymous=true", none, "", "", nil, "awskms knows awssdk, ca-file, context_*"},
		{"gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K", none, "", "", nil, "gcpkms://projects/PROJECT"}, // a location is in lower case
		{"azurekeyvault://my-vault.vault.azure.net/keys/my-key", none, "azurekv://my-vault/my-key", "https://my-vault.vault.azure.net", nil, ""},
		{"azurekeyvault://my-vault.vault.azure.net/keys/my-key/0123abcd?algorithm=RSA-OAEP-256", none, "azurekv://my-vault/my-key", "https://my-vault.vault.azure.net", func(p *kms.Place) { p.Version = "0123abcd" }, ""},
		{"azurekeyvault://my-vault.vault.usgovcloudapi.net/keys/my-key", none, "azurekv://my-vault.vault.usgovcloudapi.net/my-key", "https://my-vault.vault.usgovcloudapi.net", nil, ""},
		{"azurekeyvault://my-vault.vault.azure.net/my-key", none, "", "", nil, "azurekeyvault://VAULT.vault.azure.net/keys/KEY"},
		{"azurekeyvault://my-vault.vault.azure.net/keys/my-key/1/2", none, "", "", nil, "/keys/KEY"},
		{"azurekeyvault://my-vault.vault.azure.net/keys/my-key/..", none, "", "", nil, "/keys/KEY"},
		{"azurekeyvault://my-vault.vault.azure.net/keys/my-key?algorithm=RSA1_5", none, "", "", nil, "algorithm= can only be RSA-OAEP-256"},
		{"hashivault://terrier", server, "vault://bao.example.com:8200/transit/terrier", "https://bao.example.com:8200", func(p *kms.Place) { p.Namespace, p.CAFile = "team", "/ca.crt" }, ""},
		{"hashivault://terrier?engine=team/transit&namespace=other", server, "vault://bao.example.com:8200/team/transit/terrier", "https://bao.example.com:8200", func(p *kms.Place) { p.Namespace, p.CAFile = "other", "/ca.crt" }, ""},
		{"hashivault://terrier?engine=transit", older, "vault://127.0.0.1:8200/transit/terrier", "http://127.0.0.1:8200", func(p *kms.Place) { p.TokenIn = "VAULT_SERVER_TOKEN" }, ""},
		{"hashivault://terrier", none, "", "", nil, "set VAULT_ADDR, or write vault://HOST/transit/KEY"},
		{"hashivault://a/b", server, "", "", nil, "hashivault://KEY?engine=transit"},
		{"hashivault://terrier?engine=..", server, "", "", nil, "hashivault://KEY?engine=transit"},
		{"hashivault://terrier", variables(map[string]string{"VAULT_ADDR": "https://u:canary@bao.example.com"}), "", "", nil, "VAULT_ADDR is not https://HOST"},
		{"hashivault://terrier", variables(map[string]string{"VAULT_SERVER_URL": "https://bao.example.com/canary"}), "", "", nil, "VAULT_SERVER_URL is not https://HOST"},
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
			continue
		}
		plain, _, _ := strings.Cut(strings.Replace(tt.is, "://arn:", ":///arn:", 1), "?")
		want, err := kms.Parse(plain, func(name string) string { return map[string]string{"AWS_REGION": p.Region}[name] })
		if err != nil {
			t.Fatal(err)
		}
		want.Endpoint = p.Endpoint
		if tt.change != nil {
			tt.change(&want)
		}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Errorf("Parse(%s) differs from what the other URL is (-want +got):\n%s", tt.url, diff)
		}
	}
}

// What was wrapped with a context of AWS opens with no other, and its name says so.
func TestEncryptionContext(t *testing.T) {
	s := kmstest.AWS(t)
	with := s.Open(t, s.URL+"&context_app=terrier")
	w, err := with.Wrap(t.Context(), []byte("key"))
	if err != nil || !strings.HasSuffix(w.By, "?context_app=terrier") {
		t.Fatalf("Wrap() = %+v, %v", w, err)
	}
	if got, err := with.Unwrap(t.Context(), w); err != nil || string(got) != "key" {
		t.Errorf("Unwrap() = %q, %v", got, err)
	}
	for _, other := range []string{"", "&context_app=other", "&context_app=terrier&context_more=x"} {
		if got, err := s.Open(t, s.URL+other).Unwrap(t.Context(), w); fault.Reason(err, "") != kms.ReasonForeign {
			t.Errorf("Unwrap() with %q = %q, %v, want that it is another key's", other, got, err)
		}
	}
}

// A URL that names a version of a key of Azure wraps with it, also when there is a newer one.
func TestAVersionOfAKeyOfAzure(t *testing.T) {
	s := kmstest.Azure(t)
	p, err := kms.Parse(s.URL, none)
	if err != nil {
		t.Fatal(err)
	}
	p.Version = "1"
	s.Rotate(t)
	k, err := kms.OpenAzure(p, kmstest.AzureToken)
	if err != nil {
		t.Fatal(err)
	}
	w, err := k.Wrap(t.Context(), []byte("key"))
	if err != nil || w.Version != "1" {
		t.Fatalf("Wrap() = %+v, %v, want the version 1", w, err)
	}
	if got, err := k.Unwrap(t.Context(), w); err != nil || string(got) != "key" {
		t.Errorf("Unwrap() = %q, %v", got, err)
	}
}

// A key of Vault whose URL says no server is opened with the token that goes with the server.
func TestTheTokenOfGoCloud(t *testing.T) {
	s := kmstest.Vault(t)
	token := s.Environ["VAULT_TOKEN"]
	at := strings.TrimPrefix(s.URL, "vault://")
	at, _, _ = strings.Cut(at, "/")
	environ := map[string]string{"VAULT_SERVER_URL": "http://" + at, "VAULT_SERVER_TOKEN": token, "VAULT_TOKEN": "another"}
	p, err := kms.Parse("hashivault://terrier", func(name string) string { return environ[name] })
	if err != nil {
		t.Fatal(err)
	}
	k, err := kms.Open(p, kms.Options{Environ: func(name string) string { return environ[name] }, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if w, err := k.Wrap(t.Context(), []byte("key")); err != nil || w.By != "vault://"+at+"/transit/terrier" {
		t.Errorf("Wrap() = %+v, %v", w, err)
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
