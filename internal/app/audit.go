package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
)

// anchorEvery is how often the head of the audit log is stored outside of it, if
// there are new entries.
const anchorEvery = time.Minute

// auditLog is the audit log and its anchor.
type auditLog struct {
	*audit.Log
	dir    string
	anchor kube.Anchor // of the head
	stored audit.Head  // what is there
	log    *slog.Logger
}

func openAuditLog(dir string, now func() time.Time, log *slog.Logger) (*auditLog, error) {
	entries, err := audit.Open(dir, audit.Options{Now: now})
	return &auditLog{Log: entries, dir: dir, log: log}, err
}

// begin compares the audit log with the head that is stored outside of it,
// and records that this program starts to write.
func (j *auditLog) begin(ctx context.Context, direct client.Client, version string) error {
	j.anchor = kube.Anchor{Client: direct, Key: types.NamespacedName{Namespace: access.ServerNamespace, Name: query.AuditConfigMap}}
	var head audit.Head
	if _, err := j.anchor.Load(ctx, query.AuditHeadKey, &head); err != nil {
		return err
	}
	there, err := j.Holds(head)
	if err != nil {
		return fmt.Errorf("comparing the audit log with its stored head: %w", err)
	}
	if !there {
		if err := j.lost(ctx, head); err != nil {
			return err
		}
	}
	j.stored = head
	err = j.Record(ctx, audit.Entry{What: audit.LogOpened, Via: audit.ViaController, Details: map[string]string{"version": version}})
	if err != nil {
		// Actions that must be recorded are refused; everything else continues.
		j.log.Error("the audit log cannot be written: nothing is applied until it can", "dir", j.dir, "err", err)
	}
	return nil
}

// lost records that a head was not found, until an operator has handled it.
func (j *auditLog) lost(ctx context.Context, head audit.Head) error {
	j.log.Error("the audit log does not contain its stored head: run terrier audit verify", "entry", head.Seq, "dir", j.dir)
	var earlier audit.Head
	known, err := j.anchor.Load(ctx, query.AuditLostKey, &earlier)
	if err == nil && !known {
		err = j.anchor.Save(ctx, query.AuditLostKey, head)
	}
	if err != nil {
		return err
	}
	return j.Record(ctx, audit.Entry{
		What: audit.LogDamaged, Via: audit.ViaController, ID: "lost/" + head.Hash,
		Why:     fmt.Sprintf("entry %d, whose hash was stored outside of the audit log, is not in it", head.Seq),
		Details: map[string]string{"hash": head.Hash},
	})
}

// follow stores the head of the audit log outside of it until ctx ends, and once
// more then.
func (j *auditLog) follow(ctx context.Context) error {
	tick := time.NewTicker(anchorEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, done := context.WithTimeout(context.WithoutCancel(ctx), stopManager)
			defer done()
			j.store(last)
			return nil
		}
		j.store(ctx)
	}
}

func (j *auditLog) store(ctx context.Context) {
	head := j.Head()
	if head == j.stored {
		return
	}
	if err := j.anchor.Save(ctx, query.AuditHeadKey, head); err != nil {
		j.log.Warn("the head of the audit log was not stored outside of it", "err", err) // retried in a minute
		return
	}
	j.stored = head
}
