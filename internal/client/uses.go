package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query/usedby"
)

// UsedBy says which stacks use modules and providers, as far as the server shows the stacks
// to the user: it takes no Scope.
type UsedBy struct{ *conn }

// UsedBy asks the server of a connection.
func (c Connection) UsedBy(ctx context.Context) (*UsedBy, error) {
	s, _, err := c.server(ctx)
	return &UsedBy{s}, err
}

// Ask answers a question about the stacks that the user may list.
func (u *UsedBy) Ask(ctx context.Context, _ access.Scope, q usedby.Question) (usedby.Answer, error) {
	v := url.Values{}
	of := "modules"
	if q.Module == "" {
		of = "providers"
	}
	text(v, "module", q.Module)
	text(v, "provider", q.Provider)
	text(v, "versions", q.Versions)
	text(v, "namespace", q.Namespace)
	if q.Offset > 0 {
		v.Set("offset", strconv.Itoa(q.Offset))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return get[usedby.Answer](ctx, u.conn, u.at(v, of, "uses"))
}
