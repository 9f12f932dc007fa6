package access

import (
	"context"
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

// RecentAuth is an Authority that asks another one and believes its answers about rights
// for some seconds: a page asks about every button that it shows.
type RecentAuth struct {
	Identifier
	asked  Rights
	rights cache.Map[string, error] // nil or Denied
}

// How long answers are believed, and how many.
const (
	rightTTL      = 5 * time.Second
	rightsCached  = 16384
	reviewTimeout = 20 * time.Second // of one question, and of a whole scope
)

// NewRecentAuth returns the recent answers of a.
func NewRecentAuth(a Authority, now func() time.Time) *RecentAuth {
	return &RecentAuth{
		Identifier: a, asked: a,
		rights: cache.Map[string, error]{Size: rightsCached, TTL: rightTTL, Now: now},
	}
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
