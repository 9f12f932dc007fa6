package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

// Notices are the notifications of a server, as far as the server shows them to
// the user: it takes no Scope.
type Notices struct{ *conn }

var _ query.Notices = (*Notices)(nil)

// Notices returns the notifications of the server, and the namespace of a command
// that names none.
func (c Connection) Notices(ctx context.Context) (*Notices, string, error) {
	s, namespace, err := c.server(ctx)
	return &Notices{s}, namespace, err
}

func (n *Notices) Deliveries(ctx context.Context, _ access.Scope, q query.NoticeQuery) (query.NoticePage, error) {
	v := url.Values{}
	text(v, "namespace", q.Namespace)
	text(v, "name", q.Name)
	text(v, "provider", q.Provider)
	text(v, "event", q.Event)
	for _, o := range q.Outcomes {
		v.Add("outcome", string(o))
	}
	if q.Offset > 0 {
		v.Set("offset", strconv.Itoa(q.Offset))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return get[query.NoticePage](ctx, n.conn, n.at(v, "notifications"))
}
