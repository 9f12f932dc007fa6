package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// kubeconfig is one whose cluster, user and namespace are called name.
func kubeconfig(name, user string) string {
	return `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://` + name + `.example"}}]
users: [{name: c, user: ` + user + `}]
contexts: [{name: c, context: {cluster: c, user: c, namespace: ` + name + `}}, {name: d, context: {cluster: c, user: c}}]
`
}

func write(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConnectChoosesTheKubeconfig(t *testing.T) {
	dir := t.TempDir()
	named := write(t, filepath.Join(dir, "named"), kubeconfig("named", "{token: t}"), 0o600)
	listed := write(t, filepath.Join(dir, "listed"), kubeconfig("listed", "{token: t}"), 0o600)
	home := filepath.Dir(filepath.Dir(write(t, filepath.Join(dir, "home/.kube/config"), kubeconfig("home", "{token: t}"), 0o600)))
	here := filepath.Dir(filepath.Dir(write(t, filepath.Join(dir, "here", LocalKubeconfig), kubeconfig("here", "{token: t}"), 0o600)))
	for name, tt := range map[string]struct {
		connection Connection
		want       string
	}{
		"the file that is named":             {Connection{Kubeconfig: named, Path: listed, Dir: here, Home: home}, "named"},
		"else those of KUBECONFIG":           {Connection{Path: "/nowhere" + string(filepath.ListSeparator) + listed, Dir: here, Home: home}, "listed"},
		"else the one that was started here": {Connection{Dir: here, Home: home}, "here"},
		"else the one at home":               {Connection{Dir: dir, Home: home}, "home"},
		"a namespace that is named counts":   {Connection{Dir: here, Namespace: "apps"}, "apps"},
		"another context has its own":        {Connection{Dir: dir, Home: home, Context: "d"}, "default"},
	} {
		t.Run(name, func(t *testing.T) {
			_, got, err := Connect(tt.connection)
			if err != nil || got != tt.want {
				t.Errorf("Connect() means the namespace %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	for name, c := range map[string]Connection{
		"nothing at all":           {Dir: dir},
		"a file that is not there": {Kubeconfig: "/nowhere"},
		"a context that is none":   {Kubeconfig: named, Context: "x"},
	} {
		if _, _, err := Connect(c); fault.Of(err) != fault.Invalid || command.Hint(err) == "" {
			t.Errorf("%s: %v, want it to be invalid, with a hint", name, err)
		}
	}
}

// Who named a server and forgot the token reads how to name it.
func TestConnectWithoutAToken(t *testing.T) {
	_, _, err := Connect(Connection{Dir: t.TempDir(), Server: "https://u.example"})
	if fault.Of(err) != fault.Invalid || command.Hint(err) != "" || !strings.Contains(err.Error(), "no token for the server at https://u.example") || !strings.Contains(err.Error(), "TERRIER_TOKEN_FILE") {
		t.Errorf("Connect() is %v (%s), want that a token is named", err, command.Hint(err))
	}
}

// A kubeconfig that came with foreign files starts no program and reads no file.
func TestConnectRefusesForeignKubeconfigs(t *testing.T) {
	for name, tt := range map[string]struct {
		user string
		mode os.FileMode
	}{
		"it starts a program":      {`{exec: {apiVersion: client.authentication.k8s.io/v1, command: evil, interactiveMode: Never}}`, 0o600},
		"it has a plugin":          {`{auth-provider: {name: evil}}`, 0o600},
		"it reads a token":         {`{tokenFile: /home/ann/.secret}`, 0o600},
		"it reads a key":           {`{client-certificate: /a, client-key: /home/ann/.ssh/id}`, 0o600},
		"it is readable by others": {`{token: t}`, 0o644},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := write(t, filepath.Join(dir, LocalKubeconfig), kubeconfig("here", tt.user), tt.mode)
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Connect(Connection{Dir: dir}); fault.Of(err) != fault.Denied {
				t.Errorf("Connect() is %v, want it to be denied", err)
			}
		})
	}
}

func TestFindServer(t *testing.T) {
	scheme, err := access.NewScheme(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		data     map[string]string
		override string
		want     string
		kind     fault.Kind
	}{
		"what the cluster says":             {map[string]string{"url": "https://t.example:8443", "ca.crt": "ca"}, "", "https://t.example:8443", fault.None},
		"another address of it":             {map[string]string{"url": "https://t.example:8443", "ca.crt": "ca"}, "https://u.example", "https://u.example", fault.None},
		"the same address":                  {map[string]string{"url": "https://t.example"}, "https://t.example:443/", "https://t.example:443/", fault.None},
		"a server that nothing proves":      {map[string]string{"url": "https://t.example:8443"}, "https://u.example", "", fault.Invalid},
		"a server of no cluster":            {nil, "https://u.example", "", fault.Invalid},
		"nothing is known":                  {nil, "", "", fault.Missing},
		"a token is not sent in clear":      {map[string]string{"url": "http://t.example"}, "", "", fault.Invalid},
		"an address with credentials in it": {map[string]string{"url": "https://a:b@t.example"}, "", "", fault.Invalid},
		"no address":                        {map[string]string{"url": "t.example"}, "", "", fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder().WithScheme(scheme)
			if tt.data != nil {
				b = b.WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, Name: access.ServerConfigMap}, Data: tt.data})
			}
			got, err := findServer(t.Context(), b.Build(), tt.override)
			if fault.Of(err) != tt.kind {
				t.Fatalf("findServer() is %v, want %q", err, tt.kind)
			}
			if err == nil && (got.base.String() != tt.want || string(got.ca) != tt.data["ca.crt"]) {
				t.Errorf("findServer() = %s with %q, want %s", got.base, got.ca, tt.want)
			}
		})
	}
}

// The token of the kubeconfig goes to the server and nowhere else, wherever
// that tries to lead.
func TestTokenGoesToTheServerOnly(t *testing.T) {
	var stray, sent []string
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stray = append(stray, r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	own := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	t.Cleanup(own.Close)
	base, err := url.Parse(own.URL)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate().Raw})
	to, err := server{base: base, ca: ca}.connect(&rest.Config{BearerToken: "tok", Impersonate: rest.ImpersonationConfig{UserName: "root"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Records{to}).Runs(t.Context(), query.StackID{Key: query.Key{Namespace: "apps", Name: "net"}, UID: "u"}); err == nil {
		t.Error("a redirect is followed")
	}
	if len(sent) != 1 || sent[0] != "Bearer tok" || len(stray) != 0 {
		t.Errorf("sent %q to the server and %q elsewhere", sent, stray)
	}
	if _, err := (server{base: base, ca: ca}).connect(&rest.Config{}); fault.Reason(err, "") != access.ReasonNoToken {
		t.Errorf("without a token: %v, want that one is missing", err)
	}
	// Another certificate is not believed.
	to, err = server{base: base}.connect(&rest.Config{BearerToken: "tok"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Records{to}).Runs(t.Context(), query.StackID{Key: query.Key{Namespace: "apps", Name: "net"}, UID: "u"}); fault.Reason(err, "") != ReasonCertificate || !strings.Contains(err.Error(), "--server-ca") || len(sent) != 1 {
		t.Errorf("a server that no authority vouches for: %v, want that its authority is named", err)
	}
}

// The token of a kubeconfig goes to no server but that of its cluster: not to one that the user
// named without a token, also if the user named its authority.
func TestKubeconfigTokenStaysWithItsCluster(t *testing.T) {
	for _, config := range []string{"the cluster has no server", "the cluster has another server"} {
		for _, named := range []bool{false, true} {
			t.Run(config, func(t *testing.T) {
				foreign := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					t.Errorf("the server gets %s with %q", r.URL, r.Header.Get("Authorization"))
				}))
				t.Cleanup(foreign.Close)
				foreign.Config.ErrorLog = log.New(io.Discard, "", 0)
				cluster := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if config == "the cluster has no server" {
						http.NotFound(w, r)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					if err := json.NewEncoder(w).Encode(corev1.ConfigMap{
						TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
						Data:     map[string]string{"url": "https://t.example:8443", "ca.crt": string(anAuthority(t))},
					}); err != nil {
						t.Error(err)
					}
				}))
				t.Cleanup(cluster.Close)
				dir := t.TempDir()
				c := Connection{Server: foreign.URL, Dir: dir, Kubeconfig: write(t, filepath.Join(dir, "kubeconfig"),
					strings.ReplaceAll(kubeconfig("c", "{token: admin}"), `server: "https://c.example"`, `insecure-skip-tls-verify: true, server: "`+cluster.URL+`"`), 0o600)}
				if named {
					c.CA = write(t, filepath.Join(dir, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: foreign.Certificate().Raw})), 0o600)
				}
				to, _, err := c.Registry(t.Context())
				if err == nil {
					_, err = to.Modules(t.Context(), address.Module{Namespace: "a", Name: "b", System: "c"})
				}
				if fault.Of(err) != fault.Invalid || fault.Reason(err, "") != ReasonForeignServer || !strings.Contains(err.Error(), "TERRIER_TOKEN_FILE") {
					t.Errorf("it is %v, want that a token is named", err)
				}
				if keys, _ := c.ownRegistry(t.Context(), strings.TrimPrefix(foreign.URL, "https://")); keys != nil {
					t.Error("a push has the token of the kubeconfig")
				}
			})
		}
	}
}

// anAuthority is a certificate authority that signed no server.
func anAuthority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A registry is pushed to with what the Docker configuration holds for it.
func TestPush(t *testing.T) {
	var users []string
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if !ok || password != "pw" {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		users = append(users, user)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		switch {
		case r.Method == http.MethodHead:
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodPost:
			w.Header().Set("Location", r.URL.Path+"x")
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodPatch:
			w.Header().Set("Location", r.URL.Path)
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		}
	}))
	t.Cleanup(registry.Close)
	host := strings.TrimPrefix(registry.URL, "http://")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "docker", "config.json"), `{"auths":{"`+host+`":{"username":"ann","password":"pw"}}}`, 0o600)
	write(t, filepath.Join(dir, "module", "main.tf"), `output "a" { value = 1 }`, 0o600)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	o := PushOptions{DockerConfig: filepath.Join(dir, "docker"), Insecure: true}
	digest, err := Push(ctx, Connection{Dir: dir}, filepath.Join(dir, "module"), "oci://"+host+"/apps/net:v1", o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Push(ctx, Connection{Dir: dir}, filepath.Join(dir, "module"), "oci://"+host+"/apps/net:v1", o)
	if err != nil || again != digest || !strings.HasPrefix(digest, "sha256:") {
		t.Errorf("pushed %s and then %s, %v; want one digest", digest, again, err)
	}
	if len(users) == 0 || users[0] != "ann" {
		t.Errorf("pushed as %q, want ann", users)
	}
	if _, err := Push(ctx, Connection{Dir: dir}, dir, "ghcr.io/a/b:v1", o); fault.Of(err) != fault.Invalid {
		t.Errorf("an address without its scheme is %v, want it to be invalid", err)
	}
}

// The authority that the user names counts, whatever the cluster says of its server.
func TestNamedAuthority(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		ca, want string
		kind     fault.Kind
	}{
		"none":         {"", "of the cluster", fault.None},
		"a file":       {file, "mine", fault.None},
		"a file amiss": {file + ".missing", "of the cluster", fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := server{ca: []byte("of the cluster")}
			if err := (Connection{CA: tt.ca}).trust(&s); fault.Of(err) != tt.kind || string(s.ca) != tt.want {
				t.Errorf("trust() = %v with %q, want %q", err, s.ca, tt.want)
			}
		})
	}
}
