package client

import (
	"context"
	"errors"
	"io"
	"net/url"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// RemoteRetained are the RetainedStacks of a server.
type Retained struct{ r *Remote }

var _ command.RetainedStacks = (*Retained)(nil)

// ConnectRetained returns the records of the server of a cluster, and the
// namespace that is meant when none is named.
func ConnectRetained(ctx context.Context, c Connection) (*Retained, string, error) {
	config, namespace, err := c.config()
	if err != nil {
		return nil, "", err
	}
	r, err := remoteOf(ctx, config, c.Server)
	return &Retained{r}, namespace, err
}

// List implements RetainedStacks.
func (k *Retained) List(ctx context.Context, namespace string) ([]command.Retained, error) {
	params := url.Values{}
	text(params, "namespace", namespace)
	var list struct {
		Items []command.Retained `json:"items"`
	}
	err := k.r.json(ctx, &list, k.r.at(params, "retained"))
	return list.Items, err
}

// State implements RetainedStacks.
func (k *Retained) State(ctx context.Context, key query.Key, uid string) (io.ReadCloser, error) {
	if err := errors.Join(key.Check(), query.CheckID(query.StackID{UID: uid}, "any")); err != nil {
		return nil, err
	}
	return k.r.open(ctx, requestTime, k.r.at(url.Values{"uid": {uid}}, object(key, "retained", "state")...))
}

// Forget implements RetainedStacks.
func (k *Retained) Forget(ctx context.Context, key query.Key, uid string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return k.r.post(ctx, commandTime, command.NamedRetained{UID: uid}, nil, object(key, "retained", "forget")...)
}
