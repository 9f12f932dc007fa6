package client

import (
	"context"

	"github.com/terrier-iac/terrier/internal/query/situation"
)

// Overview asks the server for the status of everything that the user may see.
func (c Connection) Overview(ctx context.Context) (situation.Overview, error) {
	s, _, err := c.server(ctx)
	if err != nil {
		return situation.Overview{}, err
	}
	return get[situation.Overview](ctx, s, s.at(nil, "status"))
}
