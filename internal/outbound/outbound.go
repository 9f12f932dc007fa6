// Package outbound is the only way out: every URL of a user is fetched through a
// Client.
//
// A Client dials no address of this machine, its link or a cloud's metadata service,
// not even through a name or a redirect, unless the operator listed it. It sends
// credentials only to their origin, follows redirects to other origins without them,
// never falls back from https to http, and bounds every answer in size and time. It
// retries nothing and caches nothing.
//
// Start reading at Client.HTTP; which addresses are refused is in address.go.
package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// The reasons of this package's faults.
const (
	ReasonAddress  = "AddressDenied"                 // the address may not be dialled
	ReasonInsecure = "InsecureConnectionsDisallowed" // http where only https is allowed
	ReasonTooLarge = "AnswerTooLarge"
	ReasonRedirect = "RedirectDenied"
	ReasonTLS      = "TLSConfigInvalid"
)

// Policy is what the operator decides for everything that goes out. The zero
// Policy is the strict one.
type Policy struct {
	Allow     Allow          // exceptions from what is refused
	Deny      []netip.Prefix // more to refuse, unless Allow has the host with its port, or a narrower network
	NoPrivate bool           // private networks are refused, too, for what a user learns without a right to it
	Private   []netip.Prefix // networks that are private here although their addresses are the internet's; see ServiceNetwork
	PlainHTTP bool           // objects may ask for unencrypted connections
	Proxy     bool           // honour HTTP_PROXY and friends; a proxy resolves names itself, so addresses behind it are not checked
	ProxyURL  *url.URL       // an HTTP proxy for all requests, in place of those of the environment
	MaxBytes  int64          // of one answer; 1 GiB if zero
	Timeout   time.Duration  // of one request with its answer; 10 minutes if zero
	Resolver  Resolver       // net.DefaultResolver if nil
	Roots     *x509.CertPool // trusted authorities; the system's if nil

	ServerName string        // the name in the certificates of all servers; that of each URL if empty
	Dial       time.Duration // of one connection; 10 seconds if zero
	Alive      time.Duration // a server that is silent for so long has to give a sign of life within the same time, over HTTP/2; never if zero

	// Count is called for each answer after it was read or dropped: with its status, 0
	// for none, and the number of bytes read. It may be nil.
	Count func(status int, bytes int64)
}

// Client makes connections that obey one Policy. Make one with New and share it.
type Client struct {
	policy Policy
	shared *http.Transport
}

// New returns a Client that obeys p.
func New(p Policy) *Client {
	if p.MaxBytes == 0 {
		p.MaxBytes = 1 << 30
	}
	if p.Timeout == 0 {
		p.Timeout = 10 * time.Minute
	}
	if p.Dial == 0 {
		p.Dial = 10 * time.Second
	}
	if p.Resolver == nil {
		p.Resolver = net.DefaultResolver
	}
	c := &Client{policy: p}
	c.shared = c.transport(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.Roots, ServerName: p.ServerName})
	return c
}

// PlainHTTP reports whether objects may ask for unencrypted connections.
func (c *Client) PlainHTTP() bool { return c.policy.PlainHTTP }

// Close drops idle connections.
func (c *Client) Close() { c.shared.CloseIdleConnections() }

// Options are what one use of the client adds to the policy.
type Options struct {
	PlainHTTP   bool // allow http URLs; the caller has checked the policy
	Credentials Credentials
	CA          []byte // PEM, trusted besides the system's
	Cert, Key   []byte // PEM, a client certificate; it is shown to the origin of the credentials, or to every host if there is none, and follows no redirect to another
	MaxBytes    int64  // of one answer, if smaller than the policy's
	UserAgent   string // "terrier" if empty
	Forwards    bool   // the requests are those of others: each keeps its own user agent
}

// Credentials are sent to exactly one origin: scheme, host and port of Origin.
// With a Bearer, User and Password are not used.
type Credentials struct {
	Origin   *url.URL
	User     string
	Password secret.Text
	Bearer   secret.Text
}

func (c Credentials) empty() bool { return c.User == "" && c.Password.Empty() && c.Bearer.Empty() }

// HTTP returns an http.Client for one use. When it is no longer needed, its
// CloseIdleConnections gives back what it does not share with others. Its
// Transport alone may be given to a library that makes its own http.Client:
// everything but the overall deadline holds there too.
func (c *Client) HTTP(o Options) (*http.Client, error) {
	t := &transport{
		inner:     c.shared,
		plainHTTP: o.PlainHTTP,
		creds:     o.Credentials,
		maxBytes:  c.policy.MaxBytes,
		userAgent: o.UserAgent,
		count:     c.policy.Count,
		forwards:  o.Forwards,
	}
	if o.MaxBytes > 0 {
		t.maxBytes = min(t.maxBytes, o.MaxBytes)
	}
	if t.userAgent == "" {
		t.userAgent = "terrier"
	}
	if !o.Credentials.empty() && o.Credentials.Origin == nil {
		return nil, fmt.Errorf("credentials without an origin")
	}
	if len(o.CA) > 0 || len(o.Cert) > 0 || len(o.Key) > 0 {
		config, err := c.tlsConfig(o)
		if err != nil {
			return nil, fault.New(fault.Invalid, ReasonTLS, err)
		}
		own := c.transport(config)
		t.inner, t.own = own, own
		if len(config.Certificates) > 0 {
			anonymous := config.Clone()
			anonymous.Certificates = nil
			t.elsewhere = c.transport(anonymous)
		}
	}
	return &http.Client{Transport: t, Timeout: c.policy.Timeout}, nil
}

func (c *Client) transport(config *tls.Config) *http.Transport {
	t := &http.Transport{
		DialContext:            c.DialContext,
		TLSClientConfig:        config,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  60 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConnsPerHost:    4,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if c.policy.Alive > 0 {
		t.ResponseHeaderTimeout = 0 // an answer may take long, and a dead server is found by its silence
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: c.policy.Alive, PingTimeout: c.policy.Alive}
	}
	switch {
	case c.policy.ProxyURL != nil:
		t.Proxy = http.ProxyURL(c.policy.ProxyURL)
	case c.policy.Proxy:
		t.Proxy = http.ProxyFromEnvironment
	}
	return t
}

func (c *Client) tlsConfig(o Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.policy.Roots, ServerName: c.policy.ServerName}
	if len(o.CA) > 0 {
		pool, err := c.roots()
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(o.CA) {
			return nil, fmt.Errorf("the certificate authority holds no PEM certificate")
		}
		config.RootCAs = pool
	}
	if len(o.Cert) > 0 || len(o.Key) > 0 {
		// The error of X509KeyPair never quotes the key.
		pair, err := tls.X509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// roots is a copy of the trusted authorities, to add to.
func (c *Client) roots() (*x509.CertPool, error) {
	if c.policy.Roots != nil {
		return c.policy.Roots.Clone(), nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificate authorities: %w", err)
	}
	return pool, nil
}

// origin is the part of u that credentials are bound to, in one spelling.
func origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "ssh": "22"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
