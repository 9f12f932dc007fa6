package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web"
)

// anchorEvery is how often the head of the audit log is stored outside of it, if
// there are new entries.
const anchorEvery = time.Minute

// openJournal opens the audit log.
func (p *parts) openJournal() (err error) {
	p.journal, err = audit.Open(p.dir("audit"), audit.Options{Now: p.Now})
	return err
}

// beginJournal compares the audit log with the head that is stored outside of it,
// and records that this program starts to write.
func (p *parts) beginJournal(ctx context.Context, direct client.Client) error {
	p.anchor = kube.Anchor{Client: direct, Key: types.NamespacedName{Namespace: access.ServerNamespace, Name: query.AuditConfigMap}}
	var head audit.Head
	if _, err := p.anchor.Load(ctx, query.AuditHeadKey, &head); err != nil {
		return err
	}
	there, err := p.journal.Holds(head)
	if err != nil {
		return fmt.Errorf("comparing the audit log with its stored head: %w", err)
	}
	if !there {
		if err := p.lost(ctx, head); err != nil {
			return err
		}
	}
	p.anchored = head
	err = p.journal.Record(ctx, audit.Entry{What: audit.LogOpened, Via: audit.ViaController, Details: map[string]string{"version": p.Version}})
	if err != nil {
		// Actions that must be recorded are refused; everything else continues.
		p.log.Error("the audit log cannot be written: nothing is applied until it can", "dir", p.dir("audit"), "err", err)
	}
	return nil
}

// lost records that a head was not found, until an operator has handled it.
func (p *parts) lost(ctx context.Context, head audit.Head) error {
	p.log.Error("the audit log does not contain its stored head: run terrier audit verify", "entry", head.Seq, "dir", p.dir("audit"))
	var earlier audit.Head
	known, err := p.anchor.Load(ctx, query.AuditLostKey, &earlier)
	if err == nil && !known {
		err = p.anchor.Save(ctx, query.AuditLostKey, head)
	}
	if err != nil {
		return err
	}
	return p.journal.Record(ctx, audit.Entry{
		What: audit.LogDamaged, Via: audit.ViaController, ID: "lost/" + head.Hash,
		Why:     fmt.Sprintf("entry %d, whose hash was stored outside of the audit log, is not in it", head.Seq),
		Details: map[string]string{"hash": head.Hash},
	})
}

// anchors stores the head of the audit log outside of it until ctx ends, and once
// more then.
func (p *parts) anchors(ctx context.Context) error {
	tick := time.NewTicker(anchorEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, done := context.WithTimeout(context.WithoutCancel(ctx), stopManager)
			defer done()
			p.anchorHead(last)
			return nil
		}
		p.anchorHead(ctx)
	}
}

func (p *parts) anchorHead(ctx context.Context) {
	head := p.journal.Head()
	if head == p.anchored {
		return
	}
	if err := p.anchor.Save(ctx, query.AuditHeadKey, head); err != nil {
		p.log.Warn("the head of the audit log was not stored outside of it", "err", err) // retried in a minute
		return
	}
	p.anchored = head
}

// journaled adds the audit log to the options of the server.
func (p *parts) journaled(o *web.Options) {
	o.Audit, o.Journal = p.journal, query.NewJournal(p.journal, p.anchor)
}
