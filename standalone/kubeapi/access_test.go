package kubeapi

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/fault"
)

func testOwner(t *testing.T, server *Server, dir string) {
	if got, want := server.Kubeconfig(), filepath.Join(dir, "kubeconfig"); got != want {
		t.Errorf("Kubeconfig() = %s, want %s", got, want)
	}
	config := ownerConfig(t, dir)
	if got, want := config.Host, "https://"+server.Address(); got != want {
		t.Errorf("kubeconfig names %s, want %s", got, want)
	}
	if config.CertData != nil || config.CertFile != "" {
		t.Error("the kubeconfig holds a client certificate, which nothing could revoke")
	}
	for _, c := range []struct {
		name, user string
		config     *rest.Config
	}{
		{"the kubeconfig", admin, config},
		{"Config()", "system:apiserver", server.Config()},
	} {
		client, err := kubernetes.NewForConfig(c.config)
		if err != nil {
			t.Fatal(err)
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("asking who %s is: %v", c.name, err)
		}
		if got := review.Status.UserInfo; got.Username != c.user || !strings.Contains(fmt.Sprint(got.Groups), "system:masters") {
			t.Errorf("%s is %s in %v, want %s in system:masters", c.name, got.Username, got.Groups, c.user)
		}
	}
	version, err := ownerClient(t, dir).Discovery().ServerVersion()
	if err != nil || version == nil {
		t.Errorf("ServerVersion() = %v, %v", version, err)
	}
}

// testCertificate serves with the server's certificate to a client that trusts
// the kubeconfig.
func testCertificate(t *testing.T, server *Server, dir string) {
	serving, authority, err := server.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if got := ownerConfig(t, dir).CAData; !bytes.Equal(got, authority) {
		t.Error("the kubeconfig trusts another authority")
	}
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.TLS = &tls.Config{Certificates: []tls.Certificate{serving}}
	other.StartTLS()
	defer other.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+other.Listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatalf("the certificate is not trusted: %v", err)
	}
	_ = response.Body.Close()
}

func testAuthentication(t *testing.T, server *Server, dir string) {
	token := ownerConfig(t, dir).BearerToken
	for name, c := range map[string]struct {
		path, token string
		want        int
	}{
		"the token opens it":             {"/api/v1/namespaces", token, http.StatusOK},
		"nobody is anonymous":            {"/api/v1/namespaces", "", http.StatusUnauthorized},
		"not even to ask for its health": {"/readyz", "", http.StatusUnauthorized},
		"nor for its version":            {"/version", "", http.StatusUnauthorized},
		"another token is no token":      {"/api/v1/namespaces", token[:len(token)-1], http.StatusUnauthorized},
		"a bearer of nothing is nobody":  {"/api/v1/namespaces", " ", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if got := statusOf(t, server.Address(), server.Address(), c.path, c.token); got != c.want {
				t.Errorf("GET %s = %d, want %d", c.path, got, c.want)
			}
		})
	}
}

func testHosts(t *testing.T, server *Server, dir string) {
	token := ownerConfig(t, dir).BearerToken
	_, port, err := net.SplitHostPort(server.Address())
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"127.0.0.1:" + port:              http.StatusOK,
		"localhost:" + port:              http.StatusOK,
		"LOCALHOST:" + port:              http.StatusOK,
		"[::1]:" + port:                  http.StatusOK,
		"kubernetes.default.svc:" + port: http.StatusOK,
		"evil.example":                   http.StatusForbidden,
		"evil.example:" + port:           http.StatusForbidden,
		"localhost":                      http.StatusForbidden, // that is port 443, another server
		"127.0.0.1:1":                    http.StatusForbidden,
		"localhost.evil.example:" + port: http.StatusForbidden,
		"127.0.0.1:" + port + ":" + port: http.StatusForbidden,
	} {
		t.Run(host, func(t *testing.T) {
			if got := statusOf(t, server.Address(), host, "/api/v1/namespaces", token); got != want {
				t.Errorf("GET with Host %s = %d, want %d", host, got, want)
			}
		})
	}
}

// statusOf asks over plain HTTP, as a client that keeps no rules would.
func statusOf(t *testing.T, address, host, path, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func testSecondInstance(t *testing.T, dir string) {
	_, err := Start(t.Context(), Options{Dir: dir})
	if fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("Start() = %v, want a conflict that names %s and the process %d", err, dir, os.Getpid())
	}
}
