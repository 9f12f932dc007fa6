package client

import (
	"context"
	"errors"
	"io"
	"net/url"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// Retained are the retained resources that a server has records of.
type Retained struct{ *conn }

var _ command.RetainedStacks = (*Retained)(nil)

// Retained returns the records of deleted stacks of the server, and the namespace
// of a command that names none.
func (c Connection) Retained(ctx context.Context) (*Retained, string, error) {
	s, namespace, err := c.server(ctx)
	return &Retained{s}, namespace, err
}

func (k *Retained) List(ctx context.Context, namespace string) ([]command.Retained, error) {
	params := url.Values{}
	text(params, "namespace", namespace)
	return listed[command.Retained](ctx, k.conn, k.at(params, "retained"))
}

func (k *Retained) State(ctx context.Context, key query.Key, uid string) (io.ReadCloser, error) {
	if err := errors.Join(key.Check(), query.CheckID(query.StackID{UID: uid}, "any")); err != nil {
		return nil, err
	}
	return k.open(ctx, requestTime, k.at(url.Values{"uid": {uid}}, object(key, "retained", "state")...))
}

func (k *Retained) Forget(ctx context.Context, key query.Key, uid string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return k.post(ctx, requestTime, command.NamedRetained{UID: uid}, nil, object(key, "retained", "forget")...)
}
