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

// anchorEvery is how often the head of the journal is kept outside of it, if
// there is anything new.
const anchorEvery = time.Minute

// openJournal opens the journal of who did what.
func (p *parts) openJournal() (err error) {
	p.journal, err = audit.Open(p.dir("audit"), audit.Options{Now: p.Now})
	return err
}

// beginJournal holds the journal against the head that is kept outside of it,
// and says in it that this program begins to write.
func (p *parts) beginJournal(ctx context.Context, direct client.Client) error {
	p.anchor = kube.Anchor{Client: direct, Key: types.NamespacedName{Namespace: access.ServerNamespace, Name: query.AuditConfigMap}}
	var head audit.Head
	if _, err := p.anchor.Load(ctx, query.AuditHeadKey, &head); err != nil {
		return err
	}
	there, err := p.journal.Holds(head)
	if err != nil {
		return fmt.Errorf("holding the journal against its kept head: %w", err)
	}
	if !there {
		if err := p.lost(ctx, head); err != nil {
			return err
		}
	}
	p.anchored = head
	err = p.journal.Record(ctx, audit.Entry{What: audit.JournalOpened, Via: audit.ViaController, Details: map[string]string{"version": p.Version}})
	if err != nil {
		// What must be recorded does not happen; everything else goes on.
		p.log.Error("the journal cannot be written: nothing is applied until it can", "dir", p.dir("audit"), "err", err)
	}
	return nil
}

// lost keeps that a head was not found again, until a person has seen to it.
func (p *parts) lost(ctx context.Context, head audit.Head) error {
	p.log.Error("the journal is not the one whose head was kept: see terrier audit verify", "entry", head.Seq, "dir", p.dir("audit"))
	var earlier audit.Head
	known, err := p.anchor.Load(ctx, query.AuditLostKey, &earlier)
	if err == nil && !known {
		err = p.anchor.Save(ctx, query.AuditLostKey, head)
	}
	if err != nil {
		return err
	}
	return p.journal.Record(ctx, audit.Entry{
		What: audit.JournalDamaged, Via: audit.ViaController, ID: "lost/" + head.Hash,
		Why:     fmt.Sprintf("entry %d, whose hash was kept outside of the journal, is not in it", head.Seq),
		Details: map[string]string{"hash": head.Hash},
	})
}

// anchors keeps the head of the journal outside of it until ctx ends, and once
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
		p.log.Warn("the head of the journal is not kept outside of it", "err", err) // tried again in a minute
		return
	}
	p.anchored = head
}

// journaled adds the journal to what the server is made of.
func (p *parts) journaled(o *web.Options) {
	o.Audit, o.Journal = p.journal, query.NewJournal(p.journal, p.anchor)
}
