package query

import (
	"context"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/kube"
)

// The ConfigMap in which the server keeps the head of the audit log.
const (
	AuditConfigMap = "terrier-audit"
	AuditHeadKey   = "head" // the last entry of about a minute ago
	AuditLostKey   = "lost" // the first head that is missing in the log; an operator removes it
)

// StoredAuditLog is the AuditLog of the server.
type StoredAuditLog struct {
	files      *audit.Log
	walk       *audit.Walk
	anchor     kube.Anchor
	namespaces Namespaces
}

// NewAuditLog returns the audit log in files, whose head is kept in anchor. A user who may see
// the entries of some namespaces sees those since each of them was created: earlier ones are
// about a former namespace of its name. Nil namespaces have no former ones.
func NewAuditLog(files *audit.Log, anchor kube.Anchor, namespaces Namespaces) *StoredAuditLog {
	return &StoredAuditLog{files: files, walk: audit.NewWalk(files), anchor: anchor, namespaces: namespaces}
}

var _ AuditLog = (*StoredAuditLog)(nil)

// searched is how long one page of the log is searched for. What a user may see takes a
// question to the cluster for each namespace, and there may be thousands of them: the page then
// has what was found, and where to continue.
const searched = 5 * time.Second

func (j *StoredAuditLog) Entries(ctx context.Context, sight AuditSight, q AuditQuery) (AuditPage, error) {
	enough, cancel := context.WithTimeout(ctx, searched)
	defer cancel()
	own, failed := j.namespaces.own(ctx)
	seen := func(namespace string, at time.Time) bool {
		return sight.All || sight.Has(namespace) && own(namespace, at)
	}
	page, err := j.files.Read(audit.Query{
		Since: q.Since, Until: q.Until, Who: q.Who, What: q.What, Via: q.Via, ByUsers: q.ByUsers, Namespace: q.Namespace, Stack: q.Stack, Kind: q.Kind,
		Text: q.Text, Before: q.Before, Limit: q.Limit, Seen: seen, Enough: func() bool { return enough.Err() != nil },
	})
	if err == nil && ctx.Err() != nil { // what the user may see was not answered to the end
		err = context.Cause(ctx)
	}
	if err == nil {
		err = failed()
	}
	if err != nil {
		return AuditPage{}, err
	}
	for i := range page.Items {
		if !sight.All {
			page.Items[i].Prev = "" // it is of an entry that the user may not see
		}
	}
	return page, nil
}

func (j *StoredAuditLog) VerifyAuditLog(ctx context.Context) (AuditReport, error) {
	return j.verified(ctx, func(head audit.Head) (audit.Report, bool, error) {
		found, err := j.files.Verify(head)
		return found, true, err
	})
}

// checkedBytes is how much of the audit log is read while a user waits for a
// page: about a hundred thousand entries.
const checkedBytes = 32 << 20

func (j *StoredAuditLog) CheckAuditLog(ctx context.Context) (AuditReport, error) {
	return j.verified(ctx, func(head audit.Head) (audit.Report, bool, error) { return j.walk.Step(checkedBytes, head) })
}

// verified reads the audit log and compares it with its anchor.
func (j *StoredAuditLog) verified(ctx context.Context, read func(audit.Head) (found audit.Report, whole bool, err error)) (AuditReport, error) {
	var head, lost audit.Head
	anchored, err := j.anchor.Load(ctx, AuditHeadKey, &head)
	if err != nil {
		return AuditReport{}, err
	}
	missed, err := j.anchor.Load(ctx, AuditLostKey, &lost)
	if err != nil {
		return AuditReport{}, err
	}
	found, whole, err := read(head)
	if err != nil {
		return AuditReport{}, fmt.Errorf("verifying the audit log: %w", err)
	}
	r := AuditReport{Report: found}
	if !whole {
		r.Until = j.files.Head().Seq
	}
	if anchored {
		r.Anchor = &head
	}
	switch {
	case found.Bad != nil:
		r.Problem = found.Bad.Error()
	case missed:
		r.Problem = fmt.Sprintf("the audit log did not hold entry %d when Terrier started, although its hash was kept outside of the log: entries up to it may be lost or changed", lost.Seq)
	}
	return r, nil
}

// VerifyAudit verifies an audit log in a directory that no server writes, such as an
// archive, against heads that were kept elsewhere.
func VerifyAudit(dir string, heads ...audit.Head) (AuditReport, error) {
	found, err := audit.Verify(dir, heads...)
	r := AuditReport{Report: found}
	if len(heads) > 0 {
		r.Anchor = &heads[0]
	}
	if err == nil && found.Bad != nil {
		r.Problem = found.Bad.Error()
	}
	return r, err
}

// ReadAudit finds entries of an audit log in a directory that no server writes.
func ReadAudit(dir string, q AuditQuery) (AuditPage, error) {
	return audit.Read(dir, audit.Query{
		Since: q.Since, Until: q.Until, Who: q.Who, What: q.What, Via: q.Via, ByUsers: q.ByUsers, Namespace: q.Namespace, Stack: q.Stack, Kind: q.Kind,
		Text: q.Text, Before: q.Before, Limit: q.Limit,
	})
}
