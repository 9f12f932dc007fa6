package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

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
	now    func() time.Time
	users  kept[User]
	rights kept[error]
	asking singleflight.Group
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
	return &RecentAuth{asked: a, now: now, users: kept[User]{most: usersKept, now: now}, rights: kept[error]{most: rightsKept, now: now}}
}

// Authenticate implements Identifier. That a token is unknown is never kept: it
// may be known a moment later.
func (r *RecentAuth) Authenticate(ctx context.Context, token secret.Text) (User, error) {
	sum := sha256.Sum256([]byte(token.Reveal()))
	key := hex.EncodeToString(sum[:])
	if u, ok := r.users.get(key); ok {
		return u, nil
	}
	v, err, _ := r.asking.Do("user "+key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		asked := r.now()
		u, err := r.asked.Authenticate(ctx, token)
		if err == nil {
			r.users.put(key, u, asked.Add(userKept))
		}
		return u, err
	})
	u, _ := v.(User)
	return u, err
}

// Authorize implements Rights. Only a yes and a no are kept.
func (r *RecentAuth) Authorize(ctx context.Context, u User, a Request) error {
	key := fmt.Sprintf("%s %q", u.key(), []string{a.Verb, string(a.Resource), a.Namespace, a.Name})
	if err, ok := r.rights.get(key); ok {
		return err
	}
	_, err, _ := r.asking.Do("right "+key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		asked := r.now()
		err := r.asked.Authorize(ctx, u, a)
		if err == nil || fault.Of(err) == fault.Denied {
			r.rights.put(key, err, asked.Add(rightKept))
		}
		return nil, err
	})
	return err
}
