package web

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

// newborn is a stack to which nothing happened.
type newborn struct{ query.StackDetails }

func (newborn) Timeline(context.Context, query.Key) ([]query.Moment, error) {
	return []query.Moment{{At: time.Unix(1, 0), Kind: query.MomentCreated, Title: "Created"}}, nil
}

// The actions of people require the right to the audit log, and nothing else is
// refused without it.
func TestTimelineNeedsARightForDeeds(t *testing.T) {
	j := &pagedAuditLog{entries: []query.AuditEntry{{Seq: 1, At: time.Unix(2, 0), What: "approved", Who: "ann", Object: query.AuditObject{Kind: "Terraform", Namespace: "apps", Name: "net"}}}}
	for _, may := range []bool{true, false} {
		r := newRoles()
		r.denied[access.ResourceAudit] = !may
		o := options(r)
		o.AuditLog, o.Details = j, newborn{}
		u, c := serve(t, o)
		resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/namespaces/apps/stacks/net/timeline", bearer)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, "Created") || strings.Contains(body, "Approved") != may {
			t.Errorf("may read the audit log %v: %s %s", may, resp.Status, body)
		}
	}
}
