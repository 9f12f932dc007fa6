// Package regtoken makes, keeps and checks the tokens for the registry of modules and
// providers: those of users, which "tofu login" gets, and those of namespaces, for CI.
//
// A token of a user stands for that user: the roles of the cluster decide at each request.
// A token of a namespace may read there, or read and write. No token is valid for anything
// but the registry, and for none longer than it says.
//
// A token belongs to a namespace, and not to its name: it ends with the namespace, and opens
// none that is made later under that name.
//
// Records hold a digest of each token, never the token. They are read at each request and
// cached nowhere, so that a revoked token is refused by all controllers at once.
//
// Start reading at Book. What tokens may do is in rights.go, and where in places.go.
package regtoken

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Token is a token for the registry, without its secret.
type Token struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	User      string    `json:"user,omitempty"`      // it stands for; empty for a token of a namespace
	Namespace string    `json:"namespace,omitempty"` // the only one that it is for; empty for a token of a user
	Write     bool      `json:"write,omitempty"`     // a token of a namespace may publish there
	By        string    `json:"by"`                  // the user who created it
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
	Revoked   time.Time `json:"revoked,omitzero"`
	RevokedBy string    `json:"revokedBy,omitempty"`
	Former    bool      `json:"former,omitempty"` // its namespace was deleted, and the token opens nothing; a list says so
}

// end is when the token ended, or will end.
func (t Token) end() time.Time {
	if !t.Revoked.IsZero() && t.Revoked.Before(t.Expires) {
		return t.Revoked
	}
	return t.Expires
}

// Active reports whether the token can be used.
func (t Token) Active(now time.Time) bool { return !t.Former && t.lasts(now) }

// lasts reports whether the token was neither revoked nor has expired.
func (t Token) lasts(now time.Time) bool { return t.Revoked.IsZero() && now.Before(t.Expires) }

// May says what the token may do, in a few words.
func (t Token) May() string {
	switch {
	case t.Namespace == "":
		return "what the roles of " + t.User + " allow"
	case t.Write:
		return "read and publish"
	default:
		return "read"
	}
}

// kept is a token as its record has it.
type kept struct {
	Token
	Digest string              `json:"sha256"` // of the text of the token, in hex
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
	Bound  bool                `json:"bound,omitempty"` // Place says of which namespace it is; false in records of older releases
	Place  string              `json:"place,omitempty"` // the UID of that namespace; empty if the cluster had none of this name
}

// Store is as much of the records as this package needs.
type Store interface {
	record.Reader
	record.Writer
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]string, error)
}

// Bounds of tokens.
const (
	MaxLife   = 366 * 24 * time.Hour
	maxName   = 100                // letters
	eachOwner = 100                // active tokens of one user, or of one namespace, and as many that ended
	shownFor  = 7 * 24 * time.Hour // after the end of a token
	reads     = 16                 // at once, of a list
)

// The reasons of refusals.
const (
	ReasonUnknown = "RegistryTokenUnknown"
	ReasonRevoked = "RegistryTokenRevoked"
	ReasonExpired = "RegistryTokenExpired"
	ReasonOnly    = "RegistryTokenOnly"
	ReasonMany    = "TooManyRegistryTokens"
	ReasonMissing = "NoSuchRegistryToken"
	ReasonInvalid = "RegistryTokenInvalid"
	ReasonFormer  = "RegistryTokenNamespaceDeleted"
	ReasonPlace   = "NamespaceUnreadable"
)

// Book is the tokens of an installation. Several controllers with the same records have
// the same tokens.
type Book struct {
	store  Store
	places *places
	now    func() time.Time
	log    *slog.Logger

	creating sync.Mutex // counting and creating are one step
}

// NewBook returns the tokens in a store. Tokens are bound to namespaces of the cluster.
func NewBook(store Store, in Namespace, now func() time.Time, log *slog.Logger) *Book {
	return &Book{store: store, places: newPlaces(in, now, log), now: now, log: log}
}

// Wanted is a token to create: one of User, or one of Namespace.
type Wanted struct {
	Name      string
	User      access.User
	Namespace string
	Write     bool
	By        string // who creates it; the user if empty
	Life      time.Duration
}

func (w Wanted) check() error {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, ReasonInvalid, fmt.Errorf(format, args...))
	}
	switch {
	case w.Name == "" || w.Name != strings.TrimSpace(w.Name) || !utf8.ValidString(w.Name) || strings.ContainsFunc(w.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return invalid("the name of a token is a line of text, without spaces around it, and not %.120q", w.Name)
	case utf8.RuneCountInString(w.Name) > maxName:
		return invalid("the name of a token has at most %d letters, and not %d", maxName, utf8.RuneCountInString(w.Name))
	case w.Life < time.Second || w.Life > MaxLife:
		return invalid("the life of a token is at least a second and at most %d days, and not %s", MaxLife/(24*time.Hour), w.Life)
	case (w.User.Name == "") == (w.Namespace == ""):
		return invalid("a token is of a user or of a namespace")
	case strings.HasPrefix(w.User.Name, access.OwnUsers):
		return invalid("%s is a part of this server and no user", w.User.Name)
	}
	return nil
}

// Create makes a token. Its text is known to the caller alone, from here on.
func (b *Book) Create(ctx context.Context, w Wanted) (Token, secret.Text, error) {
	if err := w.check(); err != nil {
		return Token{}, secret.Text{}, err
	}
	b.creating.Lock()
	defer b.creating.Unlock()
	now := b.now().UTC().Truncate(time.Second)
	k := kept{
		Token: Token{
			ID: hex.EncodeToString(random(8)), Name: w.Name, User: w.User.Name, Namespace: w.Namespace, Write: w.Write,
			By: cmp.Or(w.By, w.User.Name), Created: now, Expires: now.Add(w.Life),
		},
		UID: w.User.UID, Groups: w.User.Groups, Extra: w.User.Extra,
	}
	if err := k.bind(ctx, b.places); err != nil {
		return Token{}, secret.Text{}, err
	}
	all, err := b.List(ctx)
	if err != nil {
		return Token{}, secret.Text{}, err
	}
	var active int
	var ended []Token // the newest first
	for _, t := range all {
		switch {
		case t.User != k.User || t.Namespace != k.Namespace:
		case t.Active(now):
			active++
		default:
			ended = append(ended, t)
		}
	}
	if active >= eachOwner {
		return Token{}, secret.Text{}, fault.New(fault.Invalid, ReasonMany, fmt.Errorf("%s has %d active tokens already: revoke one that is not used any more", cmp.Or(k.User, "the namespace "+k.Namespace), active))
	}
	for _, t := range ended[min(eachOwner, len(ended)):] {
		if err := b.store.Delete(ctx, record.RegistryToken(t.ID)); err != nil {
			return Token{}, secret.Text{}, fmt.Errorf("removing a token that ended: %w", err)
		}
	}
	text := secret.New(prefix + k.ID + "." + base64.RawURLEncoding.EncodeToString(random(32)))
	k.Digest = digest(text)
	return k.Token, text, b.at(k.ID).Write(ctx, b.store, k)
}

// prefix is how each token begins, and no other one does.
const prefix = "terrier-registry."

// Is reports whether a text looks like a token for the registry, without checking it.
func Is(t secret.Text) bool { return strings.HasPrefix(t.Reveal(), prefix) }

func random(bytes int) []byte {
	b := make([]byte, bytes)
	rand.Read(b) // never fails
	return b
}

func digest(t secret.Text) string {
	sum := sha256.Sum256([]byte(t.Reveal()))
	return hex.EncodeToString(sum[:])
}

func (b *Book) at(id string) record.Of[kept] { return record.At[kept](record.RegistryToken(id)) }

// isID reports whether a text can be the ID of a token, and so a part of a key.
func isID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 8 && id == strings.ToLower(id)
}

// Authenticate returns the user that a token stands for: one of the cluster, or one that
// only Guard knows. A token that is unknown, revoked or expired is Denied.
func (b *Book) Authenticate(ctx context.Context, t secret.Text) (access.User, error) {
	denied := func(reason, format string, args ...any) (access.User, error) {
		return access.User{}, fault.New(fault.Denied, reason, fmt.Errorf(format, args...))
	}
	const again = "get a new one with tofu login, or from an owner of the namespace"
	unknown := func() (access.User, error) {
		return denied(ReasonUnknown, "this registry does not know the token: it expired some time ago, or another registry made it; "+again)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(t.Reveal(), prefix), ".")
	if !Is(t) || !isID(id) {
		return unknown()
	}
	k, err := b.at(id).Read(ctx, b.store)
	switch {
	case fault.Of(err) == fault.Missing:
		return unknown()
	case err != nil:
		return access.User{}, fmt.Errorf("reading the record of a token: %w", err)
	case subtle.ConstantTimeCompare([]byte(k.Digest), []byte(digest(t))) != 1:
		return unknown()
	case !k.Revoked.IsZero():
		return denied(ReasonRevoked, "the token %q was revoked by %s on %s; "+again, k.Name, k.RevokedBy, k.Revoked.Format(time.DateTime))
	case !b.now().Before(k.Expires):
		return denied(ReasonExpired, "the token %q expired on %s; "+again, k.Name, k.Expires.Format(time.DateTime))
	}
	switch former, err := k.former(ctx, b.places); {
	case err != nil:
		return access.User{}, err
	case former:
		return denied(ReasonFormer, "the namespace %s of the token %q was deleted since %s, and a new one of this name needs new tokens; "+again, k.place(), k.Name, k.Created.Format(time.DateTime))
	}
	return k.user(), nil
}

// List returns all tokens, the newest first, also those that ended within the last week.
// The records of older ones go. A record that cannot be read is left out, so that one that
// is damaged stops neither lists nor new tokens; its token lets no user in.
func (b *Book) List(ctx context.Context) ([]Token, error) {
	keys, err := b.store.List(ctx, record.RegistryTokens())
	if err != nil {
		return nil, fmt.Errorf("listing tokens: %w", err)
	}
	found := make([]*Token, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reads)
	for i, key := range keys {
		group.Go(func() error {
			k, err := b.at(strings.TrimPrefix(key, record.RegistryTokens())).Read(ctx, b.store)
			switch {
			case fault.Of(err) == fault.Missing: // another controller has removed it
				return nil
			case ctx.Err() == nil && (fault.Of(err) == fault.Broken || fault.Reason(err, "") == blob.KeyUnknown):
				b.log.Error("record of a token for the registry is unreadable: the token is refused and not listed; restore the record, or delete it", "key", key, "err", err)
				return nil
			case err != nil:
				return fmt.Errorf("listing tokens: %w", err)
			case !b.now().Before(k.end().Add(shownFor)):
				return b.store.Delete(ctx, key)
			}
			if k.Former, err = k.former(ctx, b.places); err != nil { // it is listed all the same
				b.log.Debug("namespace of a token for the registry not read", "key", key, "err", err)
			}
			found[i] = &k.Token
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all []Token
	for _, t := range found {
		if t != nil {
			all = append(all, *t)
		}
	}
	slices.SortFunc(all, func(x, y Token) int { return cmp.Or(y.Created.Compare(x.Created), strings.Compare(x.ID, y.ID)) })
	return all, nil
}

// Get returns one token.
func (b *Book) Get(ctx context.Context, id string) (Token, error) {
	k, err := b.get(ctx, id)
	return k.Token, err
}

func (b *Book) get(ctx context.Context, id string) (kept, error) {
	missing := fault.New(fault.Missing, ReasonMissing, fmt.Errorf("there is no token with the ID %.40q", id))
	if !isID(id) {
		return kept{}, missing
	}
	k, err := b.at(id).Read(ctx, b.store)
	if fault.Of(err) == fault.Missing {
		return kept{}, missing
	}
	return k, err
}

// Revoke ends a token. One that has ended is left as it is.
func (b *Book) Revoke(ctx context.Context, id, by string) (Token, error) {
	if by == "" {
		return Token{}, errors.New("a token is revoked by no user")
	}
	k, err := b.get(ctx, id)
	if err != nil || !k.lasts(b.now()) {
		return k.Token, err
	}
	k.Revoked, k.RevokedBy = b.now().UTC().Truncate(time.Second), by
	return k.Token, b.at(id).Write(ctx, b.store, k)
}
