package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/secret"
)

// BoundedAuth is an Authority that asks another one about few tokens: each client that
// reaches the port may send any. A token that cannot be valid by what it says is not asked
// about, an answer is believed for some seconds, and tokens that were never accepted wait
// for their turn by the address that sends them. A token that was accepted before waits for
// no other.
type BoundedAuth struct {
	Authority
	now      func() time.Time
	answers  *cache.Map[string, reviewed] // by the hash of the token
	accepted *cache.Map[string, struct{}] // tokens that were accepted before
	reviews  cache.Flight[string, User]
	turns    *turns
}

// reviewed is what a token stands for: a user, or none.
type reviewed struct {
	user   User
	denied error
}

// How long an answer about a token is believed, and how many are.
const (
	userTTL      = 10 * time.Second // and not beyond the end of the token
	unknownTTL   = 2 * time.Second  // short: an API server may not know a new token yet
	acceptedTTL  = 24 * time.Hour
	tokensCached = 4096
)

// NewBoundedAuth returns a BoundedAuth that asks a.
func NewBoundedAuth(a Authority, now func() time.Time) *BoundedAuth {
	return &BoundedAuth{
		Authority: a, now: now,
		answers:  &cache.Map[string, reviewed]{Size: tokensCached, Now: now},
		accepted: &cache.Map[string, struct{}]{Size: tokensCached, TTL: acceptedTTL, Now: now},
		turns:    newTurns(),
	}
}

// Authenticate implements Identifier. It is Denied without a question if the token cannot be
// valid, and Later if the token waits for too long for its turn.
func (b *BoundedAuth) Authenticate(ctx context.Context, token secret.Text) (User, error) {
	end, err := readToken(token.Reveal(), b.now())
	if err != nil {
		return User{}, err
	}
	sum := sha256.Sum256([]byte(token.Reveal()))
	key := hex.EncodeToString(sum[:])
	if a, ok := b.answers.Get(key); ok {
		return a.user, a.denied
	}
	return b.reviews.Do(ctx, key, func(ctx context.Context) (User, error) {
		if a, ok := b.answers.Get(key); ok { // another review ended in between
			return a.user, a.denied
		}
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		if _, before := b.accepted.Get(key); !before {
			leave, err := b.turns.enter(ctx)
			if err != nil {
				return User{}, err
			}
			defer leave()
		}
		asked := b.now()
		u, err := b.Authority.Authenticate(ctx, token)
		switch {
		case err == nil:
			b.accepted.Put(key, struct{}{})
			until := asked.Add(userTTL)
			if !end.IsZero() && end.Before(until) {
				until = end
			}
			b.answers.PutUntil(key, reviewed{user: u}, until)
		case fault.Of(err) == fault.Denied:
			b.accepted.Delete(key)
			b.answers.PutUntil(key, reviewed{denied: err}, b.now().Add(unknownTTL))
		}
		return u, err
	})
}

// tokenBytes bounds a token before anything is known of it: an issuer may put hundreds of groups
// into one.
const tokenBytes = 32 << 10

// readToken returns the time at which a token says that it expires; zero if it says none. Nothing
// of it is proven, and a token need not say anything: the API server may know tokens of its own
// and of other systems. Its error is Denied if the token cannot be valid.
func readToken(token string, now time.Time) (end time.Time, err error) {
	denied := func(why string) (time.Time, error) {
		return time.Time{}, fault.New(fault.Denied, ReasonUnknownUser, errors.New(why))
	}
	switch {
	case token == "":
		return denied("no token was presented")
	case len(token) > tokenBytes:
		return denied("the token is longer than any that the cluster knows")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return denied("the token has spaces or control characters")
	}
	var claims jwt.Claims
	if err := kube.UnprovenClaims(token, &claims); err != nil {
		return time.Time{}, nil // it is of another sort, and says nothing
	}
	if claims.Expiry != nil {
		end = claims.Expiry.Time()
	}
	switch {
	case claims.Expiry != nil && now.Add(-kube.TokenSkew).After(end):
		return denied("the token has expired")
	case claims.NotBefore != nil && now.Add(kube.TokenSkew).Before(claims.NotBefore.Time()):
		return denied("the token is not valid yet")
	}
	return end, nil
}

type fromKey struct{}

// From returns a context of a request that came from an address, of which tokens wait for
// their turn together. A network of IPv6 that one customer has counts as one address.
func From(ctx context.Context, address string) context.Context {
	if ip, err := netip.ParseAddr(address); err == nil {
		ip = ip.Unmap().WithZone("")
		if address = ip.String(); ip.Is6() {
			address = netip.PrefixFrom(ip, 64).Masked().String()
		}
	}
	return context.WithValue(ctx, fromKey{}, address)
}

func fromOf(ctx context.Context) string {
	address, _ := ctx.Value(fromKey{}).(string)
	return address
}

// How many tokens that were never accepted are asked about. An address may be that of a proxy
// that all users share, so it may send many at once.
const (
	turnsOfAddress = 20  // a second, of one address
	turnsBurst     = 200 // at once, of one address and of all
	turnsOfAll     = 50  // a second
	turnsAtOnce    = 16  // questions that the API server has not answered yet
	turnsPatience  = 5 * time.Second
	turnsAgain     = 2 * time.Second // after which a client tries again
	addressesMost  = 4096
)

// turns bound the questions about tokens that were never accepted. What waits is bounded as
// well: no more than the burst, and what a few seconds allow.
type turns struct {
	of     *cache.Map[string, *rate.Limiter] // by address; one that was dropped had not been used for long
	pace   *rate.Limiter
	atOnce *semaphore.Weighted
}

func newTurns() *turns {
	return &turns{
		of:   &cache.Map[string, *rate.Limiter]{Size: addressesMost},
		pace: rate.NewLimiter(turnsOfAll, turnsBurst), atOnce: semaphore.NewWeighted(turnsAtOnce),
	}
}

// enter waits for the turn of a token. Leave ends the turn.
func (t *turns) enter(ctx context.Context) (leave func(), err error) {
	busy := func() error {
		return fault.Wait(turnsAgain, ReasonBusy, errors.New("too many tokens that the cluster does not know wait for an answer: try again"))
	}
	own, err := t.of.Load(ctx, fromOf(ctx), func(context.Context) (*rate.Limiter, error) {
		return rate.NewLimiter(turnsOfAddress, turnsBurst), nil
	})
	if err != nil {
		return nil, err
	}
	if !own.Allow() {
		return nil, busy()
	}
	ctx, cancel := context.WithTimeout(ctx, turnsPatience)
	defer cancel()
	if err := t.pace.Wait(ctx); err != nil {
		return nil, busy()
	}
	if err := t.atOnce.Acquire(ctx, 1); err != nil {
		return nil, busy()
	}
	return func() { t.atOnce.Release(1) }, nil
}
