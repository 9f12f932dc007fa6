package rights

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/secret"
)

// issuer is an OpenID Connect provider whose tokens have rights.
type issuer struct {
	entry issuerEntry
	found *provider
}

// provider is what is known of an issuer. It is looked for when its first token comes, and
// again after a pause if it does not answer. Tokens that are signed with known keys are
// verified also while it is away.
type provider struct {
	address, audience string
	ca                []byte
	client            *http.Client
	now               func() time.Time

	mu    sync.Mutex
	keys  oidc.KeySet
	algs  []string
	again time.Time // when it may be looked for again
	down  error     // of the last time
}

// Bounds of what is asked of an issuer: one answer, its time, and the pause between two
// questions, also those that tokens with unknown keys cause.
const (
	issuerBytes = 1 << 20
	issuerTime  = 5 * time.Second
	issuerPause = 5 * time.Second
)

func (b *Book) newIssuer(e issuerEntry, ca []byte) (*issuer, error) {
	u, err := url.Parse(e.Issuer)
	if err != nil {
		return nil, err
	}
	// The operator names the issuer, so it may be on this machine.
	allow, err := outbound.ParseAllow(append(slices.Clone(b.o.Allow), hostPort(u))...)
	if err != nil {
		return nil, err
	}
	client, err := outbound.New(outbound.Policy{Allow: allow, Proxy: true, Timeout: issuerTime}).HTTP(outbound.Options{CA: ca, MaxBytes: issuerBytes})
	if err != nil {
		return nil, err
	}
	client.Transport = &paced{inner: client.Transport, now: b.o.Now}
	return &issuer{entry: e, found: &provider{address: e.Issuer, audience: e.Audience, ca: ca, client: client, now: b.o.Now}}, nil
}

func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return u.Host
}

// same reports whether an entry leads to the same issuer in the same way.
func (i *issuer) same(e issuerEntry, ca []byte) bool {
	return i.entry.Issuer == e.Issuer && i.entry.Audience == e.Audience && bytes.Equal(i.found.ca, ca)
}

// paced refuses a request to an address that was asked a moment ago. Tokens with unknown
// keys would otherwise have each caller send requests to the issuer.
type paced struct {
	inner http.RoundTripper
	now   func() time.Time

	mu   sync.Mutex
	last map[string]time.Time
}

var errPaced = errors.New("the issuer was asked a moment ago")

func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	now, at := p.now(), r.URL.String()
	if last, asked := p.last[at]; asked && now.Sub(last) < issuerPause {
		p.mu.Unlock()
		return nil, errPaced
	}
	if p.last == nil || len(p.last) > 16 { // redirects may lead to any number of addresses
		p.last = map[string]time.Time{}
	}
	p.last[at] = now
	p.mu.Unlock()
	return p.inner.RoundTrip(r)
}

// verifier finds the issuer. What it says is the same for all requests, so that the end of
// one does not end it.
func (p *provider) verifier(ctx context.Context) (oidc.KeySet, []string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys != nil {
		return p.keys, p.algs, nil
	}
	if p.now().Before(p.again) {
		return nil, nil, p.down
	}
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), p.client)
	found, err := oidc.NewProvider(ctx, p.address)
	var says struct {
		Keys string   `json:"jwks_uri"`
		Algs []string `json:"id_token_signing_alg_values_supported"`
	}
	if err == nil {
		err = found.Claims(&says)
	}
	if err != nil {
		p.down, p.again = unreachable(p.address, err), p.now().Add(issuerPause)
		return nil, nil, p.down
	}
	p.keys = oidc.NewRemoteKeySet(ctx, says.Keys)
	p.algs = slices.DeleteFunc(says.Algs, func(alg string) bool { return !slices.Contains(asymmetric, alg) })
	return p.keys, p.algs, nil
}

// asymmetric are the algorithms whose keys an issuer publishes.
var asymmetric = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

func unreachable(address string, err error) error {
	return fault.Wait(issuerPause, ReasonIssuer, fmt.Errorf("the issuer %s cannot be asked about its token: %w", address, err))
}

// noted is a set of keys that remembers why a signature was not verified: the library
// passes on the text alone.
type noted struct {
	oidc.KeySet
	err error
}

func (n *noted) VerifySignature(ctx context.Context, jwt string) (payload []byte, err error) {
	payload, n.err = n.KeySet.VerifySignature(ctx, jwt)
	return payload, n.err
}

// fetching reports whether the keys could not be fetched: nothing is known of the token.
func (n *noted) fetching() bool {
	return n.err != nil && strings.HasPrefix(n.err.Error(), "fetching keys ")
}

// caller verifies a token of the issuer, and collects the rights of its claims.
func (i *issuer) caller(ctx context.Context, t secret.Text) (protocol.Caller, error) {
	keys, algs, err := i.found.verifier(ctx)
	if err != nil {
		return protocol.Caller{}, err
	}
	set := &noted{KeySet: keys}
	v := oidc.NewVerifier(i.entry.Issuer, set, &oidc.Config{ClientID: i.entry.Audience, SupportedSigningAlgs: algs, Now: i.found.now})
	verified, err := v.Verify(ctx, t.Reveal())
	switch {
	case set.fetching():
		return protocol.Caller{}, unreachable(i.entry.Issuer, set.err)
	case err != nil:
		return protocol.Caller{}, protocol.Unauthenticated(fmt.Errorf("the token of the issuer %s is invalid: %w", i.entry.Issuer, err))
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return protocol.Caller{}, protocol.Unauthenticated(fmt.Errorf("reading the claims of the token: %w", err))
	}
	return i.entry.known(claims)
}

// known is the caller with these claims.
func (e issuerEntry) known(claims map[string]any) (protocol.Caller, error) {
	claim := e.NameClaim
	if claim == "" {
		claim = "sub"
	}
	name, _ := claims[claim].(string)
	if name == "" {
		return protocol.Caller{}, protocol.Unauthenticated(fmt.Errorf("the token of the issuer %s has no claim %s with the name of its caller", e.Issuer, claim))
	}
	var all grants
	tenant := ""
	for _, r := range e.Rights {
		if r.matches(claims) {
			all = append(all, r.grant)
			tenant = cmp.Or(tenant, r.Tenant)
		}
	}
	if len(all) == 0 {
		return protocol.Caller{}, protocol.Unauthenticated(fmt.Errorf("the token of the issuer %s is valid, and the file of rights has no entry for its claims", e.Issuer))
	}
	return protocol.Caller{Name: e.Issuer + "#" + name, Tenant: cmp.Or(tenant, e.Issuer), Grant: all}, nil
}

// matches reports whether the claims of a token have all values that a rule wants.
func (r ruleEntry) matches(claims map[string]any) bool {
	for _, name := range slices.Collect(maps.Keys(r.Claims)) {
		values := texts(claims[name])
		if !slices.ContainsFunc(r.Claims[name], func(pattern string) bool {
			return slices.ContainsFunc(values, func(v string) bool { return matches(pattern, v) })
		}) {
			return false
		}
	}
	return true
}

// texts are the values of a claim: one, or those of a list, for instance of groups.
func texts(claim any) []string {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case bool:
		return []string{strconv.FormatBool(v)}
	case float64:
		return []string{strconv.FormatFloat(v, 'f', -1, 64)}
	case []any:
		var all []string
		for _, one := range v {
			if _, nested := one.([]any); !nested {
				all = append(all, texts(one)...)
			}
		}
		return all
	default:
		return nil
	}
}

// issuerOf reads the issuer that a token names, without believing it.
func issuerOf(t secret.Text) (string, bool) {
	parts := strings.Split(t.Reveal(), ".")
	if len(parts) != 3 {
		return "", false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", false
	}
	var says struct {
		Issuer string `json:"iss"`
	}
	return says.Issuer, json.Unmarshal(payload, &says) == nil && says.Issuer != ""
}
