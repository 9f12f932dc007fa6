package source

import (
	"context"
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
	KnownHosts []byte      // required for ssh
}

// GitAuthFrom reads a Secret as Flux has it: username and password, or
// bearerToken; identity, known_hosts and password; ca.crt or caFile; tls.crt
// and tls.key, or certFile and keyFile.
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
		User:       string(data["username"]),
		Password:   secret.New(string(data["password"])),
		Bearer:     secret.New(strings.TrimSpace(string(data["bearerToken"]))),
		CA:         first("ca.crt", "caFile"),
		Cert:       first("tls.crt", "certFile"),
		Key:        secret.New(string(first("tls.key", "keyFile"))),
		Identity:   secret.New(string(data["identity"])),
		KnownHosts: data["known_hosts"],
	}
}

// connect starts a conversation with the server.
func (g *Git) connect(ctx context.Context) (transport.UploadPackSession, error) {
	u, err := parseGitURL(g.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "ssh" {
		return g.dial(ctx, u)
	}
	client, err := g.Out.HTTP(outbound.Options{
		PlainHTTP:   g.Out.PlainHTTP(),
		Credentials: outbound.Credentials{Origin: u, User: g.Auth.User, Password: g.Auth.Password, Bearer: g.Auth.Bearer},
		CA:          g.Auth.CA, Cert: g.Auth.Cert, Key: []byte(g.Auth.Key.Reveal()),
		UserAgent: "git/2.0 (terrier)", // some servers answer only to git
	})
	if err != nil {
		return nil, err
	}
	client.Transport = refsCap{client.Transport}
	client.Timeout = 0 // ctx has one, and its end leaves nothing behind
	endpoint, err := transport.NewEndpoint((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
	if err != nil {
		return nil, invalid(ReasonURL, "the URL cannot be read: %w", err)
	}
	session, err := githttp.NewClient(client).NewUploadPackSession(endpoint, nil)
	if err != nil {
		return nil, gitFault("connecting", err)
	}
	return &httpSession{session, client}, nil
}

// maxRefs bounds a list of references, which is held in memory.
const maxRefs = 64 << 20

// refsCap bounds the list of references more tightly than what is fetched.
type refsCap struct{ http.RoundTripper }

func (c refsCap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/info/refs") {
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
