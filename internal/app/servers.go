package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/blob/kms"
	"github.com/terrier-iac/terrier/internal/controller/secretsync"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/monitor"
	"github.com/terrier-iac/terrier/internal/vault/pki"
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

// vaultTimeout bounds one request to a Vault: it is made while a stack is reconciled.
const vaultTimeout = 15 * time.Second

// vault reads the flags of the OpenBao or Vault that stacks read secrets from, and the
// options of its client. It is nil if there is none.
func (c Config) vault() (*vaults.Config, outbound.Options, error) {
	var options outbound.Options
	if c.Vault == "" {
		if c.VaultNamespace != "" || c.VaultAuthority != "" || c.VaultPath != "" || c.VaultRole != "" || c.VaultAudience != "" {
			return nil, options, usage("other --vault flags need --vault")
		}
		return nil, options, nil
	}
	u, err := url.Parse(c.Vault)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && !(u.Scheme == "http" && c.PlainHTTP) {
		return nil, options, usage("--vault %q is not the https address of an OpenBao or Vault", c.Vault)
	}
	method := vault.Method(c.VaultMethod)
	if method != vault.Kubernetes && method != vault.JWT && !method.Kept() {
		return nil, options, usage("--vault-auth-method %q is not %s, %s, %s or %s", c.VaultMethod, vault.Kubernetes, vault.JWT, vault.AppRole, vault.Token)
	}
	if method.Kept() && (c.VaultRole != "" || c.VaultAudience != "") {
		return nil, options, usage("--vault-role and --vault-audience are of the methods %s and %s: remove them, since with --vault-auth-method %s the Secret of each ServiceAccount says who signs in", vault.Kubernetes, vault.JWT, method)
	}
	if c.VaultReread < time.Second {
		return nil, options, usage("--vault-refresh-interval is at least 1s, and not %s", c.VaultReread)
	}
	options.PlainHTTP = u.Scheme == "http"
	if c.VaultAuthority != "" {
		if options.CA, err = os.ReadFile(c.VaultAuthority); err != nil {
			return nil, options, usage("--vault-ca-file: %w", err)
		}
	}
	return &vaults.Config{
		Server: vault.Server{URL: u, Namespace: c.VaultNamespace},
		Method: method, Path: cmp.Or(c.VaultPath, c.VaultMethod), Role: c.VaultRole, Audience: cmp.Or(c.VaultAudience, vaultAudience(method, u)), Reread: c.VaultReread,
	}, options, nil
}

// vaultAudience is the audience of the tokens for a Vault where the operator names none. A
// token that has that of the API server would let the Vault, and a proxy that reads its traffic,
// act as the ServiceAccount there. With jwt the role binds any audience. With kubernetes the
// server shows the token to the API server, which accepts its own audience alone unless the
// role names another one: so it is empty, which is that of the API server.
func vaultAudience(method vault.Method, at *url.URL) string {
	if method == vault.JWT {
		return strings.TrimSuffix(at.String(), "/")
	}
	return ""
}

// certifyHTTP has the certificate of the HTTP API signed by the PKI that the flags name, and
// adds its authority to the bundle that all clients get. The authority is kept, so that a later
// start knows it while the PKI cannot be asked.
func certifyHTTP(ctx context.Context, p *parts) error {
	if p.Config.HTTPFrom == "" {
		return nil
	}
	source, err := pki.Parse(p.Config.HTTPFrom)
	if err != nil {
		return usage("--http-certificate-from: %w", err)
	}
	c, options, err := p.Config.vault()
	if err != nil {
		return err
	}
	if c == nil {
		return usage("--http-certificate-from needs --vault")
	}
	out, err := p.outbound(hostPortOf(c.Server.URL)) // the operator names it, so it may be on this machine
	if err != nil {
		return err
	}
	if c.Server.HTTP, err = out.HTTP(options); err != nil {
		return err
	}
	c.Server.HTTP.Timeout = vaultTimeout
	host, _, err := net.SplitHostPort(p.http.listener.Addr().String())
	if err != nil {
		return err
	}
	source.Server, source.Hosts = c.Server, append(p.hosts(), loopbackHosts(host)...)
	p.http.keeper = pki.NewKeeper(source, p.http.cert.Get, p.Now, p.log)
	first, stop := context.WithTimeout(ctx, vaultTimeout)
	defer stop()
	p.http.keeper.Step(first)
	ca := p.http.keeper.CA()
	file := p.dir("http-authority.pem")
	if ca == nil {
		if ca, err = os.ReadFile(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reading the authority of the last certificate: %w", err)
		}
	} else if err := os.WriteFile(file, ca, 0o644); err != nil {
		return fmt.Errorf("keeping the authority of the certificate: %w", err)
	}
	p.http.ca = slices.Concat(p.http.ca, ca)
	p.http.keeper.Trust(p.http.ca)
	return nil
}

// What the platform uses a Vault for, as the status says it.
const (
	useSecrets = "secrets of stacks"
	useKeys    = "keys of records"
	usePKI     = "certificate of the HTTP API"
)

// watchVaults makes the monitor of the servers that the flags name: that of stacks, and those
// that wrap the keys of records.
func watchVaults(p *parts) (*monitor.Monitor, error) {
	var all []monitor.Server
	add := func(use string, s vault.Server, o outbound.Options) error {
		out, err := p.outbound(hostPortOf(s.URL)) // the operator names it, so it may be on this machine
		if err != nil {
			return err
		}
		if s.HTTP, err = out.HTTP(o); err != nil {
			return err
		}
		all = append(all, monitor.Server{Server: s, Use: use})
		return nil
	}
	c, options, err := p.Config.vault()
	if err == nil && c != nil {
		err = add(useSecrets, c.Server, options)
		if err == nil && p.http.keeper != nil {
			err = add(usePKI, c.Server, options)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, text := range p.Config.RecordsKMS {
		place, err := kms.Parse(text, p.Environ)
		if err != nil || place.Scheme != kms.Vault {
			continue // the store of records refuses what is wrong, or it is another service
		}
		options := outbound.Options{PlainHTTP: place.Endpoint.Scheme == "http"}
		if place.CAFile != "" {
			if options.CA, err = os.ReadFile(place.CAFile); err != nil {
				return nil, usage("--records-kms: %w", err)
			}
		}
		if err := add(useKeys, vault.Server{URL: place.Endpoint, Namespace: place.Namespace}, options); err != nil {
			return nil, err
		}
	}
	return monitor.New(p.Now, p.log, all...), nil
}

// openLogins signs runs in to the Vaults that their identities name. The rules of the operator
// say which; of these, the one of --vault may be on this machine.
func openLogins(p *parts) (*vaults.Vaults, error) {
	c, options, err := p.Config.vault()
	if err != nil {
		return nil, err
	}
	var besides []string
	if c != nil {
		besides = append(besides, hostPortOf(c.Server.URL))
	}
	out, err := p.outbound(besides...)
	if err != nil {
		return nil, err
	}
	client, err := out.HTTP(options)
	if err != nil {
		return nil, err
	}
	client.Timeout = vaultTimeout
	return (&vaults.Vaults{Config: vaults.Config{Server: vault.Server{HTTP: client}}, Records: p.blobs, Logins: true, Now: p.Now, Log: p.log}).Open(), nil
}

// openVaults gives stacks what they name in a Vault; nil if there is none. It is not contacted
// yet: it may be down when this program starts.
func openVaults(p *parts, live client.Client) (*vaults.Vaults, error) {
	c, options, err := p.Config.vault()
	if c == nil || err != nil {
		return nil, err
	}
	out, err := p.outbound(hostPortOf(c.Server.URL)) // the operator names it, so it may be on this machine
	if err != nil {
		return nil, err
	}
	if c.Server.HTTP, err = out.HTTP(options); err != nil {
		return nil, err
	}
	c.Server.HTTP.Timeout = vaultTimeout
	if c.Audience == "" && c.Method == vault.Kubernetes {
		p.log.Warn("tokens that ServiceAccounts sign in to the Vault with open the Kubernetes API, too: give the roles there an audience, and name it with --vault-audience", "vault", c.Server.String())
	}
	return (&vaults.Vaults{Config: *c, Accounts: kube.AccountTokens{Client: live}, Records: p.blobs, Audit: p.audits, Now: p.Now, Log: p.log}).Open(), nil
}

// syncsSecrets reports whether this program writes Secrets with what is in a Vault. It does
// not where another program serves the same kinds: the two would undo each other's work.
func syncsSecrets(ctx context.Context, p *parts, direct client.Client) (bool, error) {
	if p.Cluster != nil && !p.Cluster.Secrets {
		return false, nil
	}
	theirs, err := secretsync.Theirs(ctx, direct)
	if err == nil && theirs != "" {
		p.log.Warn(secretsync.Beside, "definition", theirs)
	}
	return err == nil && theirs == "", err
}

// secretsMinInterval is the shortest interval at which an ExternalSecret is read, unless the
// operator has secrets read more often.
const secretsMinInterval = 10 * time.Second

// setupSecrets registers the controllers of external secrets.
func setupSecrets(p *parts, mgr ctrl.Manager, live client.Client) error {
	if !p.syncs {
		return nil
	}
	c, options, err := p.Config.vault()
	if err != nil {
		return err
	}
	o := secretsync.Options{
		Live: live, Accounts: kube.AccountTokens{Client: live}, Audit: p.audits, Records: p.blobs, Events: p.alerts.recorder(mgr, "terrier-external-secrets", p.Now), Key: p.key, Now: p.Now, Log: p.log,
	}
	var besides []string
	if c != nil { // the operator names it, so it may be on this machine
		besides = append(besides, hostPortOf(c.Server.URL))
		o.MinInterval = min(secretsMinInterval, c.Reread)
		o.Default = &secretsync.Default{
			Server: c.Server.URL.String(), Namespace: c.Server.Namespace, CA: options.CA, Method: c.Method, Path: c.Path, Role: c.Role, Audience: c.Audience, Refresh: c.Reread,
		}
	}
	if o.Out, err = p.outbound(besides...); err != nil {
		return err
	}
	return secretsync.Setup(mgr, o)
}

// renew renews the certificate until ctx ends, if a PKI signs it.
func (s *server) renew(ctx context.Context) error {
	if s.keeper == nil {
		return nil
	}
	return s.keeper.Run(ctx)
}
