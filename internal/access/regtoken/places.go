package regtoken

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Namespace finds the namespace of the cluster that has a name now. It is Missing if there
// is none, and Denied if this program may not read it.
type Namespace func(ctx context.Context, name string) (access.Namespace, error)

// How long the answer of the cluster about a namespace is used, and how long while the
// cluster does not answer.
const (
	placeFor     = 10 * time.Second
	lastPlaceFor = 10 * time.Minute
	mostPlaces   = 10_000
)

// places are the namespaces of tokens. A name without a namespace has a zero one.
type places struct {
	find Namespace
	log  *slog.Logger

	now  cache.Map[string, access.Namespace]
	last cache.Map[string, access.Namespace]
}

func newPlaces(find Namespace, now func() time.Time, log *slog.Logger) *places {
	p := &places{find: find, log: log}
	p.now.Size, p.now.TTL, p.now.Now = mostPlaces, placeFor, now
	p.last.Size, p.last.TTL, p.last.Now = mostPlaces, lastPlaceFor, now
	return p
}

// of is the namespace that has a name now.
func (p *places) of(ctx context.Context, name string) (access.Namespace, error) {
	found, err := p.now.Load(ctx, name, func(ctx context.Context) (access.Namespace, error) {
		found, err := p.find(ctx, name)
		if fault.Of(err) == fault.Missing {
			found, err = access.Namespace{}, nil
		}
		if err == nil {
			p.last.Put(name, found)
		}
		return found, err
	})
	if err == nil || fault.Of(err) == fault.Denied || ctx.Err() != nil {
		return found, err
	}
	if last, ok := p.last.Get(name); ok {
		p.log.Warn("namespace of a token for the registry not read: the last answer counts", "namespace", name, "err", err)
		return last, nil
	}
	return found, err
}

// place is the name of the namespace that a token belongs to: its own, or that of the
// ServiceAccount that it stands for. Tokens of persons belong to none.
func (t Token) place() string {
	if account, ok := strings.CutPrefix(t.User, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		return namespace
	}
	return t.Namespace
}

// bind notes the namespace that a new token belongs to.
func (k *kept) bind(ctx context.Context, p *places) error {
	name := k.place()
	if name == "" {
		return nil
	}
	now, err := p.of(ctx, name)
	if fault.Of(err) == fault.Denied {
		return fault.New(fault.Later, ReasonPlace, fmt.Errorf("no token was created: this server may not read the namespace %s, to which it binds the token: let it get that namespace (docs/rbac.md): %w", name, err))
	}
	if err != nil {
		return fmt.Errorf("reading the namespace of a token: %w", err)
	}
	k.Bound, k.Place = true, now.UID
	return nil
}

// former reports whether the namespace of a token was deleted, or is another one that has
// its name. The record of an older token does not say which namespace it was. Such a token
// is valid in a namespace that is older than the token, and where the cluster has none.
func (k kept) former(ctx context.Context, p *places) (bool, error) {
	name := k.place()
	if name == "" {
		return false, nil
	}
	now, err := p.of(ctx, name)
	switch {
	case fault.Of(err) == fault.Denied && !k.Bound: // the rights of this server are older, too
		p.log.Warn("token for the registry accepted without its namespace: let this server get that namespace (docs/rbac.md)", "token", k.ID, "namespace", name, "err", err)
		return false, nil
	case fault.Of(err) == fault.Denied:
		return false, fault.New(fault.Later, ReasonPlace, fmt.Errorf("this server may not read the namespace %s, to which the token is bound: let it get that namespace (docs/rbac.md): %w", name, err))
	case err != nil:
		return false, fmt.Errorf("reading the namespace of a token: %w", err)
	case k.Bound:
		return k.Place != now.UID, nil
	default:
		return now.UID != "" && now.Created.After(k.Created), nil
	}
}
