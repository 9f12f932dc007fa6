package client

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
)

// server is a Terrier server.
type server struct {
	base *url.URL
	ca   []byte // PEM; the authorities of the system if empty

	// unproven is a server that the user named and the cluster does not. A certificate of the
	// authority of the cluster has to prove that it is the server of the cluster.
	unproven bool
}

// findServer reads in the cluster how its server is reached. The override is another address
// of that server. The token of the kubeconfig is sent to no other server.
func findServer(ctx context.Context, kube client.Reader, override string) (server, error) {
	var m corev1.ConfigMap
	failed := kube.Get(ctx, types.NamespacedName{Namespace: access.ServerNamespace, Name: access.ServerConfigMap}, &m)
	if failed != nil && override == "" {
		err := access.Fault(failed, "the address of the server (the ConfigMap "+access.ServerNamespace+"/"+access.ServerConfigMap+")")
		if fault.Of(err) == fault.Missing {
			err = fault.New(fault.Missing, access.ReasonNoServer, errors.New("this cluster has no Terrier server, which keeps logs and plans"))
		}
		return server{}, err
	}
	base, err := parseServer(cmp.Or(override, m.Data[access.ServerURLKey]))
	if err != nil {
		return server{}, err
	}
	s := server{base: base, ca: []byte(m.Data[access.ServerCAKey])}
	known, err := url.Parse(m.Data[access.ServerURLKey])
	s.unproven = override != "" && (err != nil || hostPort(known) != hostPort(base))
	if s.unproven && len(s.ca) == 0 {
		return server{}, foreignServer(base)
	}
	return s, nil
}

// ReasonForeignServer is the reason of a fault of a server that is not that of the cluster,
// and for which the user named no token.
const ReasonForeignServer = "ForeignServer"

func foreignServer(base *url.URL) error {
	return fault.New(fault.Invalid, ReasonForeignServer, fmt.Errorf(
		"the cluster of the kubeconfig does not know the server at %s, so the token of the kubeconfig is not sent to it: name a token of that server with TERRIER_TOKEN or TERRIER_TOKEN_FILE", base.Host))
}

func parseServer(address string) (*url.URL, error) {
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, fault.New(fault.Invalid, access.ReasonNoServer, fmt.Errorf("%q is not the https address of a server", address))
	}
	return base, nil
}

// direct connects to the server that is named, with the token that goes with it.
func (c Connection) direct() (*conn, string, error) {
	namespace := cmp.Or(c.Namespace, "default")
	base, err := parseServer(c.Server)
	if err != nil {
		return nil, "", err
	}
	s := server{base: base}
	if err := c.trust(&s); err != nil {
		return nil, "", err
	}
	to, err := c.told(s.connect(&rest.Config{BearerToken: c.Token.Reveal()}))
	return to, namespace, err
}

// server connects to the server that is named, or to that of the cluster, and
// returns the namespace of a command that names none.
func (c Connection) server(ctx context.Context) (*conn, string, error) {
	if c.Direct() {
		return c.direct()
	}
	config, namespace, err := c.config()
	if err != nil {
		return nil, "", err
	}
	kube, err := access.NewClient(config, c.StackKinds())
	if err != nil {
		return nil, "", fault.New(fault.Invalid, access.ReasonNoKubeconfig, fmt.Errorf("reading the kubeconfig: %w", err))
	}
	s, err := c.found(ctx, kube, config)
	return s, namespace, err
}

// found connects to the server of the cluster with the token of the kubeconfig.
func (c Connection) found(ctx context.Context, kube client.Reader, config *rest.Config) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	s, err := findServer(ctx, kube, c.Server)
	if err == nil && !s.unproven {
		err = c.trust(&s)
	}
	if err != nil {
		return nil, err
	}
	return c.told(s.connect(config))
}

// trust makes the authority that the user named that of the server.
func (c Connection) trust(s *server) error {
	if c.CA == "" {
		return nil
	}
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		return fault.New(fault.Invalid, access.ReasonNoServer, fmt.Errorf("reading the certificate authority of the server: %w", err))
	}
	s.ca = ca
	return nil
}

// told has a connection tell the user of requests that are sent again.
func (c Connection) told(to *conn, err error) (*conn, error) {
	if err == nil {
		to.waiting = c.Waiting
	}
	return to, err
}

func (s server) connect(config *rest.Config) (*conn, error) {
	h, err := s.client(config)
	if err != nil {
		return nil, err
	}
	return newConn(peer{base: s.base, http: h, unproven: s.unproven}), nil
}

// client sends requests to the server with the token of the kubeconfig.
func (s server) client(config *rest.Config) (*http.Client, error) {
	if config.BearerToken == "" && config.BearerTokenFile == "" && config.ExecProvider == nil && config.AuthProvider == nil {
		return nil, fault.New(fault.Denied, access.ReasonNoToken, errors.New("the server knows users by their token, and the kubeconfig holds none"))
	}
	allow, err := outbound.ParseAllow(hostPort(s.base))
	if err != nil {
		return nil, fault.New(fault.Invalid, access.ReasonNoServer, err)
	}
	policy, options := outbound.Policy{Allow: allow, Proxy: true}, outbound.Options{CA: s.ca}
	if s.unproven { // the authorities of the system prove nothing
		options.CA, policy.Roots = nil, x509.NewCertPool()
		policy.Roots.AppendCertsFromPEM(s.ca) // without a certificate in it, no server is trusted
	}
	c, err := outbound.New(policy).HTTP(options)
	if err != nil {
		return nil, err
	}
	c.Timeout = 0
	// Nothing of the kubeconfig but the credentials of the user.
	c.Transport, err = rest.HTTPWrappersForConfig(&rest.Config{
		BearerToken: config.BearerToken, BearerTokenFile: config.BearerTokenFile,
		ExecProvider: config.ExecProvider, AuthProvider: config.AuthProvider, AuthConfigPersister: config.AuthConfigPersister,
		UserAgent: query.ClientAgent, Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData, CAFile: config.CAFile},
	}, c.Transport)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return c, nil
}

// proven reports whether the server is that of the cluster.
func (s server) proven(ctx context.Context, config *rest.Config) bool {
	if !s.unproven {
		return true
	}
	c, err := s.client(config)
	if err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, s.base.String(), nil)
	if err != nil {
		return false
	}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil
}

func hostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")) }
