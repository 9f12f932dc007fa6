package client

import (
	"cmp"
	"context"
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
}

// findServer reads in the cluster how its server is reached.
func findServer(ctx context.Context, kube client.Reader, override string) (server, error) {
	var m corev1.ConfigMap
	err := kube.Get(ctx, types.NamespacedName{Namespace: access.ServerNamespace, Name: access.ServerConfigMap}, &m)
	if err != nil && override == "" {
		err = access.Fault(err, "the address of the server (the ConfigMap "+access.ServerNamespace+"/"+access.ServerConfigMap+")")
		if fault.Of(err) == fault.Missing {
			err = fault.New(fault.Missing, access.ReasonNoServer, errors.New("this cluster has no Terrier server, which keeps logs and plans"))
		}
		return server{}, err
	}
	base, err := parseServer(cmp.Or(override, m.Data[access.ServerURLKey]))
	return server{base, []byte(m.Data[access.ServerCAKey])}, err
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
	if err == nil {
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
	return newConn(s.base, h), nil
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
	c, err := outbound.New(outbound.Policy{Allow: allow, Proxy: true}).HTTP(outbound.Options{CA: s.ca})
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

func hostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")) }
