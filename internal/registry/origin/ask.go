package origin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// asked are the webhooks that came, one text for each repository: another text is another
// webhook. Any replica takes a webhook, and the one that checks repositories reads them.
type asked map[string]string

const (
	askedKey   = statesPrefix + "asked.json"
	askedBytes = 4 << 20
)

func (p *Poller) asked(ctx context.Context) (asked, error) {
	b, err := whole(ctx, p.o.Store, askedKey, askedBytes)
	if err != nil || b == nil {
		return nil, err
	}
	var a asked
	if json.Unmarshal(b, &a) != nil {
		return nil, nil // the next webhook writes it again
	}
	return a, nil
}

// Ask has a repository checked soon. Many requests are one check: while one waits, the next
// ones write nothing.
func (p *Poller) Ask(ctx context.Context, k Key) error {
	before, err := p.asked(ctx)
	if err != nil {
		return err
	}
	r, err := p.store.read(ctx, k)
	if err != nil {
		return err
	}
	if last := before[k.String()]; last == "" || last == r.Asked { // no other one waits
		if err := p.note(ctx, k); err != nil {
			return fmt.Errorf("keeping the webhook: %w", err)
		}
	}
	select {
	case p.poked <- struct{}{}:
	default:
	}
	return nil
}

// note writes that a webhook came, and drops repositories that are no longer registered.
func (p *Poller) note(ctx context.Context, k Key) error {
	all, err := p.o.Source.Repositories(ctx)
	if err != nil {
		return err
	}
	token := rand.Text()
	return blob.Update(ctx, p.o.Store, askedKey, askedBytes, func(old []byte) ([]byte, error) {
		var was asked
		if old != nil && json.Unmarshal(old, &was) != nil {
			was = nil
		}
		now := asked{}
		for _, r := range all {
			if token, ok := was[r.Key.String()]; ok {
				now[r.Key.String()] = token
			}
		}
		now[k.String()] = token
		return json.Marshal(now)
	})
}

// secrets are what webhooks are signed with, for a moment: a caller without a secret must
// not have the server read one for each request.
type secrets struct{ cache.Map[Key, secret.Text] }

const (
	secretsFor  = 10 * time.Second
	secretLeast = 16
)

func newSecrets(now func() time.Time) secrets {
	return secrets{cache.Map[Key, secret.Text]{Size: 10_000, TTL: secretsFor, Now: now}}
}

// ReasonWebhook is the reason of the fault of a repository that takes no webhooks.
const ReasonWebhook = "WebhookRefused"

// Secret is what the webhooks of a repository are signed with. The error is Missing if there
// is no such repository, or if it takes no webhooks.
func (p *Poller) Secret(ctx context.Context, k Key) (secret.Text, error) {
	return p.secrets.Load(ctx, k, func(ctx context.Context) (secret.Text, error) {
		r, err := p.find(ctx, k)
		if err != nil {
			return secret.Text{}, err
		}
		if r.Secret == nil {
			return secret.Text{}, fault.New(fault.Missing, ReasonWebhook, fmt.Errorf("the repository %s takes no webhooks", k))
		}
		s, err := r.Secret(ctx)
		if err != nil {
			return secret.Text{}, err
		}
		return secretText(s)
	})
}

// secretText is a secret without the end of its line. A short one could be found by trying.
func secretText(s secret.Text) (secret.Text, error) {
	text := strings.TrimRight(s.Reveal(), "\r\n")
	if len(text) < secretLeast {
		return secret.Text{}, fault.New(fault.Invalid, ReasonWebhook, fmt.Errorf("the secret of the webhook has %d bytes, and needs at least %d: make one with: openssl rand -hex 32", len(text), secretLeast))
	}
	return secret.New(text), nil
}

// lease says which of several replicas of a registry alone checks repositories. Two at once
// would be a waste and no error: a version is stored once.
type lease struct {
	store blob.Versions
	now   func() time.Time
	me    string
	until time.Time
	tried time.Time // when another replica had it
}

const (
	leaseKey   = statesPrefix + "lease.json"
	leaseBytes = 4 << 10
	leaseFor   = time.Minute
	leaseTries = 10 * time.Second
)

// holder is the content of the lease.
type holder struct {
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
}

func newLease(store blob.Versions, now func() time.Time) lease {
	return lease{store: store, now: now, me: rand.Text()}
}

var errHeld = errors.New("another replica checks the repositories")

// hold reports whether this replica has the lease, and renews it in time.
func (l *lease) hold(ctx context.Context) (bool, error) {
	now := l.now()
	switch {
	case now.Before(l.until.Add(-leaseFor / 2)):
		return true, nil
	case now.Sub(l.tried) < leaseTries:
		return false, nil
	}
	err := blob.Update(ctx, l.store, leaseKey, leaseBytes, func(old []byte) ([]byte, error) {
		var h holder
		if old != nil && json.Unmarshal(old, &h) == nil && h.Holder != l.me && now.Before(h.Until) {
			return nil, errHeld
		}
		return json.Marshal(holder{l.me, now.Add(leaseFor)})
	})
	if errors.Is(err, errHeld) {
		l.until, l.tried = time.Time{}, now
		return false, nil
	}
	if err == nil {
		l.until = now.Add(leaseFor)
	}
	return err == nil, err
}

// free gives the lease to the next replica, at the end of this one.
func (l *lease) free(ctx context.Context) error {
	if l.until.IsZero() {
		return nil
	}
	l.until = time.Time{}
	return blob.Update(ctx, l.store, leaseKey, leaseBytes, func(old []byte) ([]byte, error) {
		var h holder
		if old == nil || json.Unmarshal(old, &h) != nil || h.Holder != l.me {
			return old, nil
		}
		return json.Marshal(holder{l.me, l.now()})
	})
}
