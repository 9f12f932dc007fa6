// Package rights knows the callers of a registry that runs without Kubernetes, and what
// they may do: by static tokens, of which it has the hashes, and by tokens of OpenID
// Connect issuers. Both are in one file, which is read again when it changes.
//
// A caller without a token is refused unless the operator allows anonymous reads, and a
// caller with a wrong token always. A token never reaches a log or a message. A change of
// the file that makes it invalid changes no rights.
//
// Start reading at Book. Which archives may be fetched without a token is in sign.go.
package rights

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/secret"
)

// The reasons of this package's faults.
const (
	ReasonFile   = "RightsInvalid"
	ReasonDenied = "Forbidden"
	ReasonIssuer = "IssuerUnreachable"
)

// Options say where the rights are.
type Options struct {
	File      string   // empty without one
	Anonymous bool     // callers without a token may read everything
	Allow     []string // --allow-host: what issuers may be reached at although it is private
	Log       *slog.Logger
	Now       func() time.Time
}

// Book finds callers by their tokens.
type Book struct {
	o Options

	mu      sync.Mutex
	checked time.Time         // when the files were read last
	seen    [sha256.Size]byte // what they were
	page    page
	issuers map[string]*issuer // by address
	invalid error              // why the files as they are now are not in force
}

// Open reads the rights. It refuses to open a registry that no caller could use.
func Open(o Options) (*Book, error) {
	b := &Book{o: o, issuers: map[string]*issuer{}}
	if o.File == "" {
		if !o.Anonymous {
			return nil, invalid("there is no file of rights, so that no caller may do anything")
		}
		return b, nil
	}
	p, seen, err := contents(o.File)
	if err == nil && len(p.tokens)+len(p.issuers) == 0 && !o.Anonymous {
		err = invalid("the file of rights %s has neither tokens nor oidc, so that no caller may do anything", o.File)
	}
	if err == nil {
		err = b.turn(p)
	}
	if err != nil {
		return nil, err
	}
	b.checked, b.seen = o.Now(), seen
	return b, nil
}

// every is how often the files are looked at.
const every = time.Second

// current is the page in force. It reads the files again if it has not done so for a
// moment.
func (b *Book) current() (page, map[string]*issuer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.o.Now(); b.o.File != "" && now.Sub(b.checked) >= every {
		b.checked = now
		b.again()
	}
	return b.page, b.issuers
}

func (b *Book) again() {
	p, seen, err := contents(b.o.File)
	if seen == b.seen {
		return
	}
	b.seen = seen
	if err == nil {
		err = b.turn(p)
	}
	if b.invalid = err; err != nil {
		b.o.Log.Error("rights not changed: the file is invalid", "err", err)
		return
	}
	level := slog.LevelInfo
	if len(p.tokens)+len(p.issuers) == 0 { // no token is accepted any more
		level = slog.LevelWarn
	}
	b.o.Log.Log(context.Background(), level, "rights changed", "tokens", len(p.tokens), "issuers", len(p.issuers))
}

// Watch reads the files again when they change, until ctx ends: a change is in the log
// although no caller asks for anything.
func (b *Book) Watch(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.current()
		}
	}
}

// turn puts a page in force. An issuer whose entry still leads to the same place keeps
// what it has found out.
func (b *Book) turn(p page) error {
	issuers := map[string]*issuer{}
	for _, e := range p.issuers {
		ca := p.cas[e.CAFile]
		old := b.issuers[e.Issuer]
		if old != nil && old.same(e, ca) {
			issuers[e.Issuer] = &issuer{entry: e, found: old.found}
			continue
		}
		i, err := b.newIssuer(e, ca)
		if err != nil {
			return entryFault(b.o.File, "issuer", e.Issuer, err)
		}
		issuers[e.Issuer] = i
	}
	b.page, b.issuers = p, issuers
	return nil
}

// Invalid says why the file of rights as it is now is not in force. It is nil if it is.
func (b *Book) Invalid() error {
	b.current()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.invalid
}

// anonymous is the caller without a token, where it may read.
const anonymous = "anonymous"

// Caller finds the caller of a request by its bearer token.
func (b *Book) Caller(r *http.Request) (protocol.Caller, error) {
	given, err := bearer(r)
	if err != nil {
		return protocol.Caller{}, err
	}
	if given.Empty() {
		if b.o.Anonymous {
			return protocol.Caller{Name: anonymous, Tenant: anonymous, Grant: grants{{Read: []string{"*"}}}}, nil
		}
		return protocol.Caller{}, protocol.Unauthenticated(errors.New(
			"the registry needs a token: put it into a credentials block of the CLI configuration, or for an address without a port into the variable TF_TOKEN_ with the name of this host"))
	}
	p, issuers := b.current()
	if c, ok := p.find(given); ok {
		return c, nil
	}
	if address, ok := issuerOf(given); ok {
		if i := issuers[address]; i != nil {
			return i.caller(r.Context(), given)
		}
	}
	return protocol.Caller{}, errToken
}

var errToken = protocol.Unauthenticated(errors.New("the registry does not know this token: it is wrong, or was revoked"))

// bearer is the token of a request, empty if it has none.
func bearer(r *http.Request) (secret.Text, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return secret.Text{}, nil
	}
	scheme, text, _ := strings.Cut(header, " ")
	bearer := strings.EqualFold(scheme, "Bearer")
	if _, password, basic := r.BasicAuth(); basic { // all that clients of OCI registries send
		text, bearer = password, true
	}
	text = strings.TrimSpace(text)
	if !bearer || text == "" || len(text) > tokenBytes {
		return secret.Text{}, protocol.Unauthenticated(errors.New("the registry takes a token in the header Authorization, in the form: Bearer TOKEN, or as a password"))
	}
	return secret.New(text), nil
}

// find compares the hash of a token with all others in a time that does not depend on
// which of them is the same.
func (p page) find(t secret.Text) (c protocol.Caller, found bool) {
	hash := hashed(t)
	at := -1
	for i := range p.tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], p.tokens[i].hash[:]), i, at)
	}
	if at < 0 {
		return protocol.Caller{}, false
	}
	return p.tokens[at].caller, true
}

// May is nil if a caller may do something in a namespace. The mirror is in none, and every
// known caller may read it: its own rules decide.
func (b *Book) May(_ context.Context, c protocol.Caller, v protocol.Verb, namespace string) error {
	if namespace == "" && v == protocol.Read {
		return nil
	}
	g, _ := c.Grant.(grants)
	if g.allow(v, namespace) {
		return nil
	}
	return fault.New(fault.Denied, ReasonDenied, fmt.Errorf("%s may not %s in the namespace %.80s: %s", c.Name, v, namespace, g.say(v)))
}
