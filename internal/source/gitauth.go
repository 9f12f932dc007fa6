package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
)

// GitAuth is how to be let in, and how to know that it is the right door.
type GitAuth struct {
	User     string
	Password secret.Text // for https; for ssh it opens the identity
	Bearer   secret.Text

	CA, Cert []byte // PEM
	Key      secret.Text

	Identity   secret.Text // a private key in PEM
	KnownHosts []byte      // lines of known_hosts; those of the operator and of public hosts if empty
}

// GitAuthFrom reads a Secret as Flux has it: username and password, or
// bearerToken; identity, known_hosts and password; ca.crt or caFile; tls.crt
// and tls.key, or certFile and keyFile. A Secret of the type kubernetes.io/ssh-auth has
// the identity under ssh-privatekey.
func GitAuthFrom(data map[string][]byte) GitAuth {
	first := func(keys ...string) []byte {
		for _, k := range keys {
			if v := data[k]; len(v) > 0 {
				return v
			}
		}
		return nil
	}
	return GitAuth{
		User:       withoutLineEnd(data["username"]),
		Password:   secret.New(withoutLineEnd(data["password"])),
		Bearer:     secret.New(strings.TrimSpace(string(data["bearerToken"]))),
		CA:         first("ca.crt", "caFile"),
		Cert:       first("tls.crt", "certFile"),
		Key:        secret.New(string(first("tls.key", "keyFile"))),
		Identity:   secret.New(string(first("identity", "ssh-privatekey"))),
		KnownHosts: data["known_hosts"],
	}
}

// withoutLineEnd is a name or a password without the end of a line, which comes
// with files and pipes. No password ends so: git cannot even ask for one.
func withoutLineEnd(data []byte) string { return strings.TrimRight(string(data), "\r\n") }

// sent says what a server was shown, without a value: a username is often a token.
func (a GitAuth) sent() string {
	switch {
	case !a.Bearer.Empty():
		return fmt.Sprintf("a bearer token of %d bytes was sent", len(a.Bearer.Reveal()))
	case a.Password.Empty() && a.User == "" && len(a.Cert) > 0:
		return "a client certificate was shown, and no username and password were sent"
	case a.Password.Empty() && a.User == "":
		return "no credential was sent: set spec.secretRef to a Secret with username and password, or with bearerToken"
	case a.User == "":
		return fmt.Sprintf("a password of %d bytes was sent, and no username", len(a.Password.Reveal()))
	case a.Password.Empty():
		return fmt.Sprintf("a username of %d bytes was sent, and no password", len(a.User))
	default:
		return fmt.Sprintf("a username of %d bytes and a password of %d bytes were sent", len(a.User), len(a.Password.Reveal()))
	}
}

// connect starts a conversation with the server.
func (g *Git) connect(ctx context.Context, repository string) (transport.UploadPackSession, error) {
	u, err := parseGitURL(repository)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "ssh" {
		return g.dial(ctx, u, transport.UploadPackServiceName)
	}
	client, endpoint, err := g.over(u)
	if err != nil {
		return nil, err
	}
	session, err := githttp.NewClient(client).NewUploadPackSession(endpoint, nil)
	if err != nil {
		return nil, gitFault("connecting", err)
	}
	return &httpSession{session, client}, nil
}

// connectToPush starts a conversation with the server in which references may change. A
// server lets only those in who may push.
func (g *Git) connectToPush(ctx context.Context) (transport.ReceivePackSession, error) {
	u, err := parseGitURL(g.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "ssh" {
		return g.dial(ctx, u, transport.ReceivePackServiceName)
	}
	client, endpoint, err := g.over(u)
	if err != nil {
		return nil, err
	}
	session, err := githttp.NewClient(client).NewReceivePackSession(endpoint, nil)
	if err != nil {
		return nil, gitFault("connecting", err)
	}
	return &httpPush{session, client}, nil
}

// over returns what a conversation over http needs.
func (g *Git) over(u *url.URL) (*http.Client, *transport.Endpoint, error) {
	client, err := g.client(u)
	if err != nil {
		return nil, nil, err
	}
	client.Transport = refsCap{client.Transport}
	endpoint, err := transport.NewEndpoint((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
	if err != nil {
		return nil, nil, invalid(ReasonURL, "the URL cannot be read: %w", err)
	}
	return client, endpoint, nil
}

// client makes requests over http with the credentials of the source.
func (g *Git) client(u *url.URL) (*http.Client, error) {
	client, err := g.Out.HTTP(outbound.Options{
		PlainHTTP:   g.Out.PlainHTTP(),
		Credentials: outbound.Credentials{Origin: u, User: g.Auth.User, Password: g.Auth.Password, Bearer: g.Auth.Bearer},
		CA:          g.Auth.CA, Cert: g.Auth.Cert, Key: []byte(g.Auth.Key.Reveal()),
		UserAgent: "git/2.0 (terrier)", // some servers answer only to git
	})
	if err != nil {
		return nil, err
	}
	client.Timeout = 0 // ctx has one, and its end leaves nothing behind
	return client, nil
}

// maxRefs bounds a list of references, which is held in memory.
const maxRefs = 64 << 20

// refsCap bounds the list of references, and the answer to a push, more tightly than what is
// fetched.
type refsCap struct{ http.RoundTripper }

func (c refsCap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil && (strings.HasSuffix(r.URL.Path, "/info/refs") || strings.HasSuffix(r.URL.Path, "/"+transport.ReceivePackServiceName)) {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxRefs), resp.Body}
	}
	return resp, err
}

// CloseIdleConnections serves http.Client.CloseIdleConnections.
func (c refsCap) CloseIdleConnections() {
	if inner, ok := c.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		inner.CloseIdleConnections()
	}
}

type httpSession struct {
	transport.UploadPackSession
	client *http.Client
}

func (s *httpSession) Close() error {
	err := s.UploadPackSession.Close()
	s.client.CloseIdleConnections()
	return err
}

type httpPush struct {
	transport.ReceivePackSession
	client *http.Client
}

func (s *httpPush) Close() error {
	err := s.ReceivePackSession.Close()
	s.client.CloseIdleConnections()
	return err
}
