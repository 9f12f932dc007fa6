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

// Identifier says who a token stands for.
type Identifier interface {
	Authenticate(context.Context, secret.Text) (User, error)
}

// RecentAuth is an Authority that asks another one and believes its answers for
// some seconds: a page asks about every button that it shows, and a browser
// sends the same token with each of ten requests.
type RecentAuth struct {
	asked  Authority
	users  cache.Map[string, User]
	rights cache.Map[string, error]
}

// How long answers are believed, and how many.
const (
	userKept   = 10 * time.Second
	rightKept  = 5 * time.Second
	usersKept  = 1024
	rightsKept = 16384
)

// NewRecentAuth returns the recent answers of a.
func NewRecentAuth(a Authority, now func() time.Time) *RecentAuth {
	return &RecentAuth{
		asked:  a,
		users:  cache.Map[string, User]{Size: usersKept, TTL: userKept, Now: now},
		rights: cache.Map[string, error]{Size: rightsKept, TTL: rightKept, Now: now},
	}
}

// Authenticate implements Identifier. That a token is unknown is never kept: it
// may be known a moment later.
func (r *RecentAuth) Authenticate(ctx context.Context, token secret.Text) (User, error) {
	sum := sha256.Sum256([]byte(token.Reveal()))
	return r.users.Load(ctx, hex.EncodeToString(sum[:]), func(ctx context.Context) (User, error) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		return r.asked.Authenticate(ctx, token)
	})
}

// Authorize implements Rights. Only a yes and a no are kept.
func (r *RecentAuth) Authorize(ctx context.Context, u User, a Request) error {
	key := fmt.Sprintf("%s %q", u.key(), []string{a.Verb, string(a.Resource), a.Namespace, a.Name})
	answer, err := r.rights.Load(ctx, key, func(ctx context.Context) (error, error) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		err := r.asked.Authorize(ctx, u, a)
		if err == nil || fault.Of(err) == fault.Denied {
			return err, nil
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	return answer
}
