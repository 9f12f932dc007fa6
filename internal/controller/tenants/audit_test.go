package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// diary is an AuditLog that can be full.
type diary struct {
	mu      sync.Mutex
	entries []audit.Entry
	full    audit.What // of which nothing can be recorded
	refused int
}

func (d *diary) Record(_ context.Context, e audit.Entry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.What == d.full {
		d.refused++
		return errors.New("the disk is full")
	}
	if !slices.ContainsFunc(d.entries, func(other audit.Entry) bool { return other.ID == e.ID }) {
		d.entries = append(d.entries, e)
	}
	return nil
}

func (d *diary) fill(what audit.What) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = what
}

// of lists what was recorded about a kind.
func (d *diary) of(kind string) []audit.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []audit.Entry
	for _, e := range d.entries {
		if e.Object.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

func whats(all []audit.Entry) []audit.What {
	var out []audit.What
	for _, e := range all {
		out = append(out, e.What)
	}
	return out
}

func audited(t *testing.T) (*office, *diary) {
	d := &diary{}
	return newOffice(t, func(o *Options) { o.Audit = d }), d
}

// Who lets deletions through is on record before the first of them, or nothing
// is deleted.
func TestDeletionsAreRecordedFirst(t *testing.T) {
	o, d := audited(t)
	o.insert(3)
	o.open()
	o.sync()
	o.wantTenants("with three rows", "a000-web", "a001-web", "a002-web")
	o.delete("a000", "a001", "a002")
	o.sync()
	token := o.sync().Status.Blocked.Token
	d.fill(audit.DeletionsAllowed)
	o.annotate(o.registry(), tenantsv1.AnnotationAllowDeletions, token)
	o.eventually("it could not be recorded twice", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.refused < 2 {
			return fmt.Errorf("it was tried %d times", d.refused)
		}
		return nil
	})
	o.wantTenants("while it cannot be recorded", "a000-web", "a001-web", "a002-web")
	d.fill("")
	o.wantTenants("once it can")
	o.eventually("it is on record", func() error {
		got := whats(d.of(tenantsv1.RegistryKind))
		if want := []audit.What{audit.Created, audit.GuardTripped, audit.DeletionsAllowed, audit.GuardCleared}; !cmp.Equal(got, want) {
			return fmt.Errorf("recorded are %v, want %v", got, want)
		}
		return nil
	})
	e := d.of(tenantsv1.RegistryKind)[2]
	if e.Who == "" && e.Why == "" || e.Details["token"] != token || e.Details["deleted"] != "3" || e.Details["manager"] == "" {
		t.Errorf("the permission is %+v, want its token, how many, and who or why not", e)
	}
}

func TestARolloutIsRecorded(t *testing.T) {
	o, d := audited(t)
	o.insert(2)
	o.open()
	o.sync()
	o.are(true, "a000-web", "a001-web")
	o.phase(tenantsv1.RolloutComplete)
	o.template("rollout: {maxSkew: 1}", "serviceAccountName: other")
	o.generation("the first has it", 2, 1)
	o.are(false, "a000-web")
	o.phase(tenantsv1.RolloutFailed)
	o.annotate(o.web(), tenantsv1.AnnotationRollout, tenant.ResumeRollout(2, 1))
	o.tenantsAreReady()
	o.generation("all have it", 2, 2)
	o.phase(tenantsv1.RolloutComplete)
	o.template("rollout: {maxSkew: 1}")
	o.template("rollout: {maxSkew: 1}", "serviceAccountName: other")
	o.eventually("it is on record", func() error {
		got := slices.DeleteFunc(whats(d.of(tenantsv1.TemplateKind)), func(w audit.What) bool { return w == audit.RolloutStarted || w == audit.RolloutFinished })
		want := []audit.What{audit.Created, audit.Changed, audit.RolloutStopped, audit.RolloutResumed}
		if len(got) < 5 || !cmp.Equal(got[:4], want) || got[len(got)-1] != audit.RolloutUndone {
			return fmt.Errorf("recorded are %v, want %v and that it was undone", got, want)
		}
		return nil
	})
}

// A pass that changes nothing adds nothing.
func TestQuietPassesAreNotRecorded(t *testing.T) {
	o, d := audited(t)
	o.insert(2)
	o.open()
	o.sync()
	o.tenantsAreReady()
	o.phase(tenantsv1.RolloutComplete)
	o.sync()
	before := len(d.of(tenantsv1.RegistryKind)) + len(d.of(tenantsv1.TemplateKind))
	for range 3 {
		o.sync()
	}
	if after := len(d.of(tenantsv1.RegistryKind)) + len(d.of(tenantsv1.TemplateKind)); after != before {
		t.Errorf("there are %d entries after looks that changed nothing, and were %d", after, before)
	}
}
