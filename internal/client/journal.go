package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

// RemoteJournal is the Journal of a server, as far as it shows it to the caller:
// the server knows what they may see, and takes no AuditSight from them.
type Journal struct{ r *Remote }

var _ query.Journal = (*Journal)(nil)

// ConnectJournal returns the journal of the server of a cluster.
func ConnectJournal(ctx context.Context, c Connection) (*Journal, error) {
	config, _, err := c.config()
	if err != nil {
		return nil, err
	}
	return journalOf(ctx, config, c.Server)
}

func journalOf(ctx context.Context, config *rest.Config, override string) (*Journal, error) {
	r, err := remoteOf(ctx, config, override)
	if err != nil {
		return nil, err
	}
	return &Journal{r}, nil
}

// remoteOf finds the server of a cluster.
func remoteOf(ctx context.Context, config *rest.Config, override string) (*Remote, error) {
	kube, err := access.NewClient(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	s, err := findServer(ctx, kube, override)
	if err != nil {
		return nil, err
	}
	http, err := s.client(config)
	if err != nil {
		return nil, err
	}
	return NewRemote(s.base, http), nil
}

// Entries implements Journal.
func (j *Journal) Entries(ctx context.Context, _ query.AuditSight, q query.AuditQuery) (query.AuditPage, error) {
	v := url.Values{}
	for name, value := range map[string]string{"who": q.Who, "via": string(q.Via), "namespace": q.Namespace, "stack": q.Stack, "q": q.Text} {
		if value != "" {
			v.Set(name, value)
		}
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
	var page query.AuditPage
	err := j.r.json(ctx, &page, j.address(v, "audit"))
	return page, err
}

// VerifyJournal implements Journal.
func (j *Journal) VerifyJournal(ctx context.Context) (query.AuditReport, error) {
	var report query.AuditReport
	err := j.r.json(ctx, &report, j.address(nil, "audit", "verify"))
	return report, err
}

// CheckJournal implements Journal. A server is asked for the whole of it.
func (j *Journal) CheckJournal(ctx context.Context) (query.AuditReport, error) {
	return j.VerifyJournal(ctx)
}

func (j *Journal) address(v url.Values, parts ...string) string {
	u := j.r.base.JoinPath(append([]string{"api", "v1"}, parts...)...)
	u.RawQuery = v.Encode()
	return u.String()
}
