package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Identifier says which user a token stands for.
type Identifier interface {
	Authenticate(context.Context, secret.Text) (User, error)
}

// RecentAuth is an Authority that asks another one and believes its answers for
// some seconds: a page asks about every button that it shows, and a browser
// sends the same token with each of ten requests.
type RecentAuth struct {
	asked  Authority
	users  cache.Map[string, User]  // by the hash of the token
	rights cache.Map[string, error] // nil or Denied
}

// How long answers are believed, and how many.
const (
	userTTL       = 10 * time.Second
	rightTTL      = 5 * time.Second
	usersCached   = 1024
	rightsCached  = 16384
	reviewTimeout = 20 * time.Second // of one question, and of a whole scope
)

// NewRecentAuth returns the recent answers of a.
func NewRecentAuth(a Authority, now func() time.Time) *RecentAuth {
	return &RecentAuth{
		asked:  a,
		users:  cache.Map[string, User]{Size: usersCached, TTL: userTTL, Now: now},
		rights: cache.Map[string, error]{Size: rightsCached, TTL: rightTTL, Now: now},
	}
}

// Authenticate implements Identifier. That a token is unknown is never cached: it
// may be known a moment later.
func (r *RecentAuth) Authenticate(ctx context.Context, token secret.Text) (User, error) {
	sum := sha256.Sum256([]byte(token.Reveal()))
	return r.users.Load(ctx, hex.EncodeToString(sum[:]), func(ctx context.Context) (User, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		return r.asked.Authenticate(ctx, token)
	})
}

// Authorize implements Rights. Only a yes and a no are cached.
func (r *RecentAuth) Authorize(ctx context.Context, u User, q Request) error {
	key := fmt.Sprintf("%s %q", u.key(), []string{q.Verb, string(q.Resource), q.Kind, q.Namespace, q.Name})
	denied, err := r.rights.Load(ctx, key, func(ctx context.Context) (denied, err error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		if err = r.asked.Authorize(ctx, u, q); fault.Of(err) == fault.Denied {
			return err, nil
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	return denied
}
