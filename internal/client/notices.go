package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

// RemoteNotices are the Notices of a server, as far as it shows them to the
// caller: the server knows what they may see, and takes no Scope from them.
type Notices struct{ r *Remote }

var _ query.Notices = (*Notices)(nil)

// ConnectNotices returns what the server of a cluster sent, and the namespace that
// is meant when none is named.
func ConnectNotices(ctx context.Context, c Connection) (*Notices, string, error) {
	config, namespace, err := c.config()
	if err != nil {
		return nil, "", err
	}
	r, err := remoteOf(ctx, config, c.Server)
	return &Notices{r}, namespace, err
}

// Deliveries implements Notices.
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
	var page query.NoticePage
	err := n.r.json(ctx, &page, n.r.at(v, "notifications"))
	return page, err
}
