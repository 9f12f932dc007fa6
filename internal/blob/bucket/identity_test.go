package bucket_test

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

	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Without credentials in the environment a bucket is not opened, no metadata service is
// asked, and the error names all ways to an identity.
func TestNoCredentials(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // no file of profiles
	for text, says := range map[string][]string{
		"s3://b?region=r":      {"IRSA", "AWS_ACCESS_KEY_ID", "credentials=metadata"},
		"gs://b":               {"GOOGLE_APPLICATION_CREDENTIALS", "credentials=metadata"},
		"azblob://c?account=a": {"workload identity", "AZURE_STORAGE_KEY", "credentials=metadata"},
	} {
		_, err := server{}.open(t, text)
		if fault.Of(err) != fault.Invalid || fault.Reason(err, "") != bucket.ReasonCredentials {
			t.Errorf("Open(%s) = %v, want %s", text, err, bucket.ReasonCredentials)
		}
		for _, want := range append(says, "--records") {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("Open(%s) = %v, want it to say %q", text, err, want)
			}
		}
	}
}

// tokens gives out a token, and notes who asked.
func tokens(t *testing.T) (*httptest.Server, *[]string) {
	t.Helper()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Metadata-Flavor"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"canary","token_type":"Bearer","expires_in":3600}`)
	}))
	t.Cleanup(s.Close)
	return s, &asked
}

// bearer is a bucket that notes the token of each request.
func bearer(t *testing.T) (*httptest.Server, *[]string) {
	t.Helper()
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(s.Close)
	return s, &got
}

// The key of a Google account becomes a token, once, and the token goes to the bucket.
func TestAKeyOfGoogle(t *testing.T) {
	issuer, asked := tokens(t)
	at, got := bearer(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "terrier@example.iam.gserviceaccount.com", "token_uri": issuer.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := server{allow: []string{"127.0.0.0/8"}, environ: map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": file}}
	checkTokens(t, s, "gs://records/x?endpoint="+url.QueryEscape(at.URL), asked, got, "POST /token ")
}

// The metadata service is asked only if the operator allows it.
func TestTheMetadataServiceOfGoogle(t *testing.T) {
	issuer, asked := tokens(t)
	at, got := bearer(t)
	s := server{environ: map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(issuer.URL, "http://")}}
	place := "gs://records/x?endpoint=" + url.QueryEscape(at.URL)
	if _, err := s.open(t, place); fault.Reason(err, "") != bucket.ReasonCredentials || len(*asked) > 0 {
		t.Errorf("Open() = %v after %q, want it refused without a request", err, *asked)
	}
	checkTokens(t, s, place+"&credentials=metadata", asked, got, "GET /computeMetadata/v1/instance/service-accounts/default/token Google")
}

func checkTokens(t *testing.T, s server, place string, asked, got *[]string, want string) {
	t.Helper()
	store, err := s.open(t, place)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := store.List(t.Context(), ""); err != nil {
			t.Errorf("List() = %v", err)
		}
	}
	if len(*asked) != 1 || (*asked)[0] != want {
		t.Errorf("a token was asked for with %q, want once %q", *asked, want)
	}
	if len(*got) != 2 || (*got)[0] != "Bearer canary" || (*got)[1] != "Bearer canary" {
		t.Errorf("the bucket got %q, want the token twice", *got)
	}
}

// An issuer that gives no token is named as such, and the request is not made.
func TestATokenThatIsRefused(t *testing.T) {
	at, got := bearer(t)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no identity", http.StatusNotFound)
	}))
	t.Cleanup(issuer.Close)
	s := server{environ: map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(issuer.URL, "http://")}}
	store, err := s.open(t, "gs://records/x?credentials=metadata&endpoint="+url.QueryEscape(at.URL))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Check(t.Context()); fault.Reason(err, "") != bucket.ReasonCredentials || len(*got) > 0 {
		t.Errorf("Check() = %v after %d requests, want %s", err, len(*got), bucket.ReasonCredentials)
	}
}
