package kms

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
	"github.com/terrier-iac/terrier/internal/fault"
)

// flag names a key.
const flag = "--records-kms"

// Options are what opening a key takes besides its place.
type Options struct {
	Environ func(string) string
	Now     func() time.Time
	Allow   []string // addresses that the operator allows besides the endpoint
}

// Open returns the keeper of a key. It makes no request.
func Open(p Place, o Options) (Keeper, error) {
	of := cloud.Options{
		Flag: flag, Endpoint: p.Endpoint, CAFile: p.CAFile, Credentials: p.Credentials, Google: p.Scheme == Google, Environ: o.Environ, Now: o.Now, Allow: o.Allow,
	}
	c, err := cloud.NewClients(of)
	if err != nil {
		return nil, err
	}
	open := map[string]func(Place, cloud.Clients, cloud.Options) (service, error){Vault: openVault, AWS: openAWS, Google: openGoogle, Azure: openAzure}[p.Scheme]
	s, err := open(p, c, of)
	if err != nil {
		return nil, fault.New(fault.Invalid, ReasonCredentials, fmt.Errorf("opening %s %s: %w", flag, p, err))
	}
	return keeper{p, s}, nil
}

// service is one key management service. An error is as the service gave it.
type service interface {
	wrap(ctx context.Context, key []byte) (wrapped []byte, version string, err error)
	unwrap(ctx context.Context, wrapped []byte, version string) ([]byte, error)
	diagnose(a answer) cloud.Trouble // what an answer means that is no success
}

type keeper struct {
	place   Place
	service service
}

func (k keeper) String() string { return k.place.String() }

// within is how long a request may take.
const within = 10 * time.Second

// Wrap implements Keeper.
func (k keeper) Wrap(ctx context.Context, key []byte) (Wrapped, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	wrapped, version, err := k.service.wrap(ctx, key)
	if err == nil && len(wrapped) == 0 {
		err = errors.New("the answer has no key")
	}
	if err != nil {
		return Wrapped{}, k.explain("wrapping", err)
	}
	return Wrapped{By: k.String(), Version: version, Key: wrapped}, nil
}

// Unwrap implements Keeper.
func (k keeper) Unwrap(ctx context.Context, w Wrapped) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	key, err := k.service.unwrap(ctx, w.Key, w.Version)
	if err == nil && len(key) == 0 {
		err = errors.New("the answer has no key")
	}
	if err != nil {
		return nil, k.explain("unwrapping", err)
	}
	return key, nil
}

// troubleForeign is what no other service has: the key is there, and did not wrap this.
const troubleForeign = cloud.Trouble(-1)

// explain gives an error its kind, its reason and the way out.
func (k keeper) explain(doing string, err error) error {
	trouble := cloud.Transport(err)
	if a, ok := errors.AsType[answer](err); ok {
		if trouble = k.service.diagnose(a); trouble == cloud.Unknown {
			trouble = cloud.Status(a.code)
		}
	}
	p := k.place
	if trouble == troubleForeign {
		return foreign(p, err)
	}
	reason, what, way := ReasonUnreachable, p.Endpoint.Host+" does not answer as it should", "check the network, and the endpoint in "+flag
	switch trouble {
	case cloud.NotThere:
		reason, what = ReasonKey, fmt.Sprintf("%s has no key %s that can be used", p.service(), p.Key)
		way = "create or enable it, or correct its name in " + flag
	case cloud.Denied:
		reason, what = ReasonDenied, "the identity of this program may not use the key "+p.String()
		way = "allow it " + rights[p.Scheme]
	case cloud.BadIdentity:
		reason, what = ReasonCredentials, p.service()+" does not accept the credentials of this program, or there are none"
		way = identities[p.Scheme]
	case cloud.ClockSkew:
		reason, what = ReasonCredentials, "the clock of this machine differs from that of "+p.service()
		way = "set the clock, and keep it right with NTP"
	case cloud.Untrusted:
		what, way = "the certificate of "+p.Endpoint.Host+" is not trusted", "name its authority with ca-file= in "+flag
	case cloud.Misnamed:
		what, way = "there is no host "+p.Endpoint.Hostname(), "correct "+flag
	case cloud.Refused:
		what, way = p.Endpoint.Host+" is at an address that is not allowed", "allow it with --allow-host"
	case cloud.Busy:
		what, way = p.service()+" does not take the request", "wait until it recovers"
	}
	text := fault.Shorten(strings.Join(strings.Fields(err.Error()), " "), 400)
	return passing{fault.New(fault.Later, reason, fmt.Errorf("%s a key of records: %s: %s: %s", doing, what, text, way)), trouble.Passing()}
}

// rights are what Terrier needs of each kind of key.
var rights = map[string]string{
	Vault:  "`update` on MOUNT/encrypt/KEY and MOUNT/decrypt/KEY with a policy, or give it another token",
	AWS:    "kms:Encrypt and kms:Decrypt on the key",
	Google: "the role roles/cloudkms.cryptoKeyEncrypterDecrypter on the key",
	Azure:  "the role Key Vault Crypto Service Encryption User on the key",
}

// identities are how this program gets an identity.
var identities = map[string]string{
	Vault:  "set VAULT_TOKEN, or add token-file=FILE to " + flag + ", or role=ROLE for its ServiceAccount",
	AWS:    fmt.Sprintf(cloud.ToAWS, flag),
	Google: fmt.Sprintf(cloud.ToGoogle, flag),
	Azure:  fmt.Sprintf(cloud.ToAzure, flag),
}

// answer is an answer of a service that is no success.
type answer struct {
	code int
	text string
}

func (a answer) Error() string {
	return fmt.Sprintf("%d %s: %s", a.code, http.StatusText(a.code), a.text)
}

// says reports whether the answer names one of these errors.
func (a answer) says(names ...string) bool {
	for _, n := range names {
		if strings.Contains(a.text, n) {
			return true
		}
	}
	return false
}

// answerBytes bounds an answer.
const answerBytes = 64 << 10

// post sends in as JSON and reads the answer into out.
func post(ctx context.Context, c *http.Client, url string, in, out any, prepare func(r *http.Request, body []byte) error) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if err := prepare(r, body); err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return answer{resp.StatusCode, string(text)}
	}
	if err := json.Unmarshal(text, out); err != nil {
		return errors.New("the answer is no JSON of this service") // its text may hold a key
	}
	return nil
}
