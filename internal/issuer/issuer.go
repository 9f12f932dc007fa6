// Package issuer makes tokens by which runs sign in elsewhere: it is an OpenID Connect issuer
// at which no user signs in, with nothing but discovery and keys to serve.
//
// Its keys are records, made and dropped as package identity decides. It checks no rights and
// knows no runs: its caller says whom a token is for.
//
// Start reading at Issuer, then at Grant.
package issuer

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Store keeps the keys. It is blob.Store.
type Store interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]string, error)
}

// Options are what an Issuer needs.
type Options struct {
	URL   string // of the issuer, as verifiers reach it: https://HOST[/PATH]
	Store Store
	Times identity.Times
	Life  time.Duration // of a token
	Wait  time.Duration // for the records, while the keys are in memory; 5 seconds if zero
	Now   func() time.Time
	Log   *slog.Logger
}

// The bounds of the life of a token. Those of the keys of an issuer are longer.
const (
	LeastLife = 5 * time.Minute
	MostLife  = time.Hour
)

// CheckURL returns what is wrong with the address of an issuer. Verifiers compare it letter
// by letter, and clouds take no other form.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(text, "/") || strings.ToLower(u.Host) != u.Host {
		return fmt.Errorf("%q is not https://HOST or https://HOST/PATH, in lower case and without a slash at its end", text)
	}
	return nil
}

// Issuer signs tokens. All controllers of an installation have the same keys: one of them
// makes those, and the others read them.
type Issuer struct {
	o Options

	mu   sync.Mutex
	keys []pair
	read time.Time // when the keys were read last
}

// pair is a key with its secret.
type pair struct {
	identity.Key
	private *rsa.PrivateKey
}

// kept is a key as a record has it.
type kept struct {
	identity.Key
	Private string `json:"private"` // PKCS #8 in base64: a plain text, since the record is sealed
}

// algorithm is RS256: AWS, Azure, Google, Vault and Kubernetes all take it, and Azure takes
// no other.
const (
	algorithm = jose.RS256
	bits      = 2048
)

// New returns an Issuer.
func New(o Options) *Issuer {
	if o.Life <= 0 {
		o.Life = 15 * time.Minute
	}
	if o.Wait <= 0 {
		o.Wait = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Issuer{o: o}
}

// URL is the address of the issuer.
func (i *Issuer) URL() string { return i.o.URL }

// rereadAfter is how old the keys in memory may be. It is much shorter than the time for which
// a key is published before it is used.
const rereadAfter = 30 * time.Second

// known are the keys. Those in memory are used while the records cannot be read: runs that go on
// need tokens, and have no time to wait for a store that does not answer. So one caller waits for
// it, for a short time, and the next one half a minute later.
func (i *Issuer) known(ctx context.Context) ([]pair, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := i.o.Now(); len(i.keys) > 0 && now.Sub(i.read) < rereadAfter && !now.Before(i.read) {
		return i.keys, nil
	}
	if len(i.keys) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, i.o.Wait)
		defer cancel()
	}
	keys, err := i.load(ctx)
	if len(keys) == 0 && len(i.keys) > 0 || err != nil && len(keys) < len(i.keys) {
		i.o.Log.Warn("the keys of identities cannot be read: those in memory are used", "err", err)
		i.read = i.o.Now()
		return i.keys, nil
	}
	if len(keys) == 0 && err != nil {
		return nil, err
	}
	i.keys, i.read = keys, i.o.Now()
	return keys, nil
}

// load reads the keys from the records. With an error it returns those that it could read.
func (i *Issuer) load(ctx context.Context) ([]pair, error) {
	names, err := i.o.Store.List(ctx, record.IdentityKeys())
	if err != nil {
		return nil, fmt.Errorf("listing the keys of identities: %w", err)
	}
	var keys []pair
	var errs []error
	for _, name := range names {
		data, err := record.Read(ctx, i.o.Store, name)
		if fault.Of(err) == fault.Missing {
			continue // dropped meanwhile
		}
		var k pair
		if err == nil {
			k, err = parse(data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading the key of identities %s: %w", name, err))
			continue
		}
		keys = append(keys, k)
	}
	return keys, errors.Join(errs...)
}

func parse(data []byte) (pair, error) {
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return pair{}, err
	}
	der, err := base64.StdEncoding.DecodeString(k.Private)
	if err != nil {
		return pair{}, err
	}
	private, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return pair{}, err
	}
	key, ok := private.(*rsa.PrivateKey)
	if !ok {
		return pair{}, fmt.Errorf("it is a %T", private)
	}
	return pair{k.Key, key}, nil
}

// Rotate makes the next key and drops old ones where it is time for that, and returns when to
// call it again. One controller of an installation calls it.
func (i *Issuer) Rotate(ctx context.Context) (next time.Time, err error) {
	keys, err := i.load(ctx)
	if err != nil {
		return time.Time{}, err // none is made while another one may be there that cannot be read
	}
	r := identity.Rotate(publics(keys), i.o.Now(), i.o.Times)
	if r.Make != nil {
		if err := i.create(ctx, *r.Make); err != nil {
			return time.Time{}, err
		}
	}
	for _, k := range r.Drop {
		if err := i.o.Store.Delete(ctx, record.IdentityKey(k.ID)); err != nil {
			return time.Time{}, fmt.Errorf("dropping the key of identities %s: %w", k.ID, err)
		}
		i.o.Log.Info("key of identities dropped", "key", k.ID)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.read = time.Time{}
	return r.Next, nil
}

func (i *Issuer) create(ctx context.Context, k identity.Key) error {
	private, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return err
	}
	public := jose.JSONWebKey{Key: private.Public()}
	thumb, err := public.Thumbprint(hash)
	if err != nil {
		return err
	}
	k.ID = hex.EncodeToString(thumb[:12])
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	data, err := json.Marshal(kept{k, base64.StdEncoding.EncodeToString(der)})
	if err != nil {
		return err
	}
	if err := record.Write(ctx, i.o.Store, record.IdentityKey(k.ID), data); err != nil {
		return fmt.Errorf("keeping the key of identities %s: %w", k.ID, err)
	}
	i.o.Log.Info("key of identities made", "key", k.ID, "from", k.From)
	return nil
}

func publics(keys []pair) []identity.Key {
	list := make([]identity.Key, 0, len(keys))
	for _, k := range keys {
		list = append(list, k.Key)
	}
	return list
}

// ReasonNoKey is the reason of the fault of an issuer that has no key yet.
const ReasonNoKey = "IdentityKeyMissing"

// active is the key that signs now.
func (i *Issuer) active(ctx context.Context) (pair, error) {
	keys, err := i.known(ctx)
	if err != nil {
		return pair{}, err
	}
	r := identity.Rotate(publics(keys), i.o.Now(), i.o.Times)
	if r.Active == nil {
		return pair{}, fault.New(fault.Later, ReasonNoKey, errors.New("there is no key of identities yet: the controller that leads makes it"))
	}
	at := slices.IndexFunc(keys, func(k pair) bool { return k.ID == r.Active.ID })
	return keys[at], nil
}

// Token is a signed token, and what may be told about it.
type Token struct {
	Name     string // see identity.Use
	Audience string
	ID       string // the claim jti
	Expires  time.Time
	Text     secret.Text
}

// Issue makes a token of a run for each use.
func (i *Issuer) Issue(ctx context.Context, run identity.Run, uses []identity.Use) ([]Token, error) {
	key, err := i.active(ctx)
	if err != nil {
		return nil, err
	}
	subject, err := run.Subject()
	if err != nil {
		return nil, fault.New(fault.Invalid, "IdentityInvalid", err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key.private, KeyID: key.ID}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, err
	}
	now := i.o.Now().Truncate(time.Second)
	var tokens []Token
	for _, u := range uses {
		t := Token{Name: u.Name, Audience: u.Audience, ID: rand.Text(), Expires: now.Add(i.o.Life)}
		text, err := jwt.Signed(signer).Claims(identity.Claims{
			Issuer: i.o.URL, Subject: subject, Audience: u.Audience, ID: t.ID, Run: run,
			IssuedAt: now.Unix(), NotBefore: now.Add(-skew).Unix(), Expires: t.Expires.Unix(),
		}).Serialize()
		if err != nil {
			return nil, fmt.Errorf("signing a token for %s: %w", u.Audience, err)
		}
		t.Text = secret.New(text)
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// skew is how far the clock of a verifier may be behind.
const skew = 30 * time.Second
