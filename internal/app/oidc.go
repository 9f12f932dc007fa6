package app

import (
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web"
)

// issuer is the OpenID Connect provider of the flags, nil if there is none.
// It is not contacted yet: it may be down when this program starts.
func (p *parts) issuer() (*web.Issuer, error) {
	i, options, err := p.Config.issuer()
	if i == nil || err != nil {
		return nil, err
	}
	u, err := url.Parse(i.URL)
	if err != nil {
		return nil, err
	}
	// The operator names the issuer, so it may be on this machine.
	out, err := p.outbound(hostPortOf(u))
	if err == nil {
		i.HTTP, err = out.HTTP(options)
	}
	return i, err
}

// issuer reads the flags of the issuer, and the options of its client.
func (c Config) issuer() (*web.Issuer, outbound.Options, error) {
	options := outbound.Options{MaxBytes: issuerBytes}
	if c.OIDCIssuer == "" {
		if c.OIDCClient != "" || c.OIDCSecret != "" || c.OIDCAuthority != "" {
			return nil, options, usage("other --oidc flags need --oidc-issuer")
		}
		return nil, options, nil
	}
	u, err := url.Parse(c.OIDCIssuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && !(u.Scheme == "http" && c.PlainHTTP) {
		return nil, options, usage("--oidc-issuer %q is not the https address of an issuer", c.OIDCIssuer)
	}
	if c.OIDCClient == "" {
		return nil, options, usage("--oidc-issuer needs --oidc-client-id")
	}
	i := &web.Issuer{
		URL: c.OIDCIssuer, ClientID: c.OIDCClient, Name: c.OIDCName, Scopes: c.OIDCScopes,
		UsernameClaim: c.OIDCUsername, UsernamePrefix: c.OIDCUserPrefix, GroupsClaim: c.OIDCGroups, GroupsPrefix: c.OIDCGroupPrefix,
	}
	if c.OIDCSecret != "" {
		b, err := os.ReadFile(c.OIDCSecret)
		if err != nil {
			return nil, options, usage("--oidc-client-secret-file: %w", err)
		}
		i.ClientSecret = secret.New(strings.TrimSpace(string(b)))
	}
	options.PlainHTTP = u.Scheme == "http"
	if c.OIDCAuthority != "" {
		if options.CA, err = os.ReadFile(c.OIDCAuthority); err != nil {
			return nil, options, usage("--oidc-ca-file: %w", err)
		}
	}
	return i, options, nil
}

// issuerBytes bounds a response of the issuer: its metadata, its keys, a token.
const issuerBytes = 1 << 20

func hostPortOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
