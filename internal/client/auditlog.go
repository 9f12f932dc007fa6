package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
)

// AuditLog is the audit log of a server, as far as the server shows it to the user:
// it takes no AuditSight.
type AuditLog struct{ *conn }

var _ query.AuditLog = (*AuditLog)(nil)

// AuditLog returns the audit log of the server.
func (c Connection) AuditLog(ctx context.Context) (*AuditLog, error) {
	s, _, err := c.server(ctx)
	return &AuditLog{s}, err
}

func (j *AuditLog) Entries(ctx context.Context, _ query.AuditSight, q query.AuditQuery) (query.AuditPage, error) {
	v := url.Values{}
	for name, value := range map[string]string{"who": q.Who, "via": string(q.Via), "namespace": q.Namespace, "stack": q.Stack, "q": q.Text} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Kind != nil {
		v.Set("kind", *q.Kind)
	}
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	for _, w := range q.What {
		v.Add("what", string(w))
	}
	if q.Before > 0 {
		v.Set("before", strconv.FormatUint(q.Before, 10))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return get[query.AuditPage](ctx, j.conn, j.at(v, "audit"))
}

func (j *AuditLog) VerifyAuditLog(ctx context.Context) (query.AuditReport, error) {
	return get[query.AuditReport](ctx, j.conn, j.at(nil, "audit", "verify"))
}

// CheckAuditLog implements AuditLog. The server verifies all of it.
func (j *AuditLog) CheckAuditLog(ctx context.Context) (query.AuditReport, error) {
	return j.VerifyAuditLog(ctx)
}
