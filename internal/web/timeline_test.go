package web

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/service"
)

// newborn is a stack to which nothing happened.
type newborn struct{ service.StackDetails }

func (newborn) Timeline(context.Context, service.Key) ([]service.Moment, error) {
	return []service.Moment{{At: time.Unix(1, 0), Kind: service.MomentCreated, Title: "Created"}}, nil
}

// What people did takes the right to the journal, and nothing else is refused
// without it.
func TestTimelineNeedsARightForDeeds(t *testing.T) {
	j := &pagedJournal{entries: []service.AuditEntry{{Seq: 1, At: time.Unix(2, 0), What: "approved", Who: "ann", Object: service.AuditObject{Kind: "Terraform", Namespace: "apps", Name: "net"}}}}
	for _, may := range []bool{true, false} {
		r := newRoles()
		r.denied[service.ResourceAudit] = !may
		o := options(r)
		o.Journal, o.Details = j, newborn{}
		u, c := serve(t, o)
		resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/namespaces/apps/stacks/net/timeline", bearer)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, "Created") || strings.Contains(body, "Approved") != may {
			t.Errorf("may read the journal %v: %s %s", may, resp.Status, body)
		}
	}
}
