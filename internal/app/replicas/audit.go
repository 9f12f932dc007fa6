package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// auditEntries asks for entries of the audit log.
type auditEntries struct {
	All   bool             `json:"all,omitempty"` // else those of the namespace of the query
	Query query.AuditQuery `json:"query"`
}

// AuditLog returns the audit log as every replica reads it: the leader has it, and own is
// that log if this replica leads.
func (r *Replicas) AuditLog(own query.AuditLog) query.AuditLog {
	r.Peers.Handle(callAudit, func(ctx context.Context, in json.RawMessage) (any, error) {
		var asked auditEntries
		if err := json.Unmarshal(in, &asked); err != nil {
			return nil, fmt.Errorf("reading a query of the audit log: %w", err)
		}
		if own, err := r.leads(); err != nil || !own {
			return nil, errNoAuditLog
		}
		sight := query.AuditSight{All: asked.All, In: func(namespace string) bool { return namespace == asked.Query.Namespace }}
		return own.Entries(ctx, sight, asked.Query)
	})
	return auditLog{own, r}
}

// auditLog is the audit log of the leader.
type auditLog struct {
	query.AuditLog
	replicas *Replicas
}

var errNoAuditLog = fault.Wait(2*time.Second, access.ReasonNoLeader, errors.New("the audit log is with the leader of the replicas, and there is none for a moment: try again in a few seconds"))

// leads reports whether this replica has the audit log. It is an error if none has.
func (r *Replicas) leads() (bool, error) {
	leader, known := r.Members.Leader()
	if !known {
		return false, errNoAuditLog
	}
	return leader.ID == r.Members.Me().ID, nil
}

// Entries asks the leader about one namespace, or about all of them. A sight of several
// namespaces is of a page that the leader answers.
func (l auditLog) Entries(ctx context.Context, sight query.AuditSight, q query.AuditQuery) (query.AuditPage, error) {
	own, err := l.replicas.leads()
	if err != nil {
		return query.AuditPage{}, err
	}
	switch {
	case own:
		return l.AuditLog.Entries(ctx, sight, q)
	case !sight.All && q.Namespace == "":
		return query.AuditPage{}, errNoAuditLog
	case !sight.Has(q.Namespace):
		return query.AuditPage{}, nil
	}
	leader, _ := l.replicas.Members.Leader()
	var page query.AuditPage
	if err := l.replicas.Peers.Call(ctx, leader, callAudit, auditEntries{sight.All, q}, &page); err != nil {
		return query.AuditPage{}, fmt.Errorf("reading the audit log: %w", err)
	}
	return page, nil
}
