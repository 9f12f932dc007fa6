package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
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

// openAuditLog opens the audit log of a controller that is the only active one. That of
// several is opened by their leader, once it is one.
func openAuditLog(ctx context.Context, dir string, o audit.Options, shared bool, log *slog.Logger) (*auditLog, error) {
	j := &auditLog{Log: audit.Unopened(dir, o), dir: dir, log: log}
	if shared {
		return j, nil
	}
	return j, j.Open(ctx)
}

// copies are the segments of the audit log in the records, which outlive the data directory.
type copies struct {
	store   blob.Store
	leading func() error // nil while this process is the one that writes the audit log
}

// Segments implements audit.Copy.
func (c copies) Segments(ctx context.Context) ([]string, error) {
	keys, err := c.store.List(ctx, record.AuditLog())
	var names []string
	for _, key := range keys {
		names = append(names, strings.TrimPrefix(key, record.AuditLog()))
	}
	slices.Sort(names)
	return names, err
}

// Load implements audit.Copy.
func (c copies) Load(ctx context.Context, name string) ([]byte, error) {
	return record.Read(ctx, c.store, record.AuditSegment(name))
}

// Save implements audit.Copy.
func (c copies) Save(ctx context.Context, name string, content []byte) error {
	if err := c.leading(); err != nil {
		return err
	}
	return record.Write(ctx, c.store, record.AuditSegment(name), content)
}

// retryAudit is how long a leader waits before it tries again to open the audit log.
const retryAudit = 5 * time.Second

// lead opens the audit log as the leader of several controllers. Nothing is applied
// before it is open.
func (j *auditLog) lead(ctx context.Context, direct client.Client, version string) {
	for {
		err := j.Open(ctx)
		if err == nil {
			err = j.begin(ctx, direct, version)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		j.log.Error("the audit log cannot be opened: nothing is applied until it can", "err", err)
		select {
		case <-time.After(retryAudit):
		case <-ctx.Done():
			return
		}
	}
}

// anchored says where the head of the audit log is stored outside of it.
func (j *auditLog) anchored(direct client.Client) {
	j.anchor = kube.Anchor{Client: direct, Key: types.NamespacedName{Namespace: access.ServerNamespace, Name: query.AuditConfigMap}}
}

// begin compares the audit log with the head that is stored outside of it,
// and records that this program starts to write.
func (j *auditLog) begin(ctx context.Context, direct client.Client, version string) error {
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
	if err := j.Sum(ctx); err != nil {
		j.log.Warn("the number of entries that were only counted was not recorded", "err", err) // retried in a minute
	}
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
