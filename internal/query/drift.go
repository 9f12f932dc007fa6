package query

import (
	"context"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// DriftDetail is how resources differ from what was applied.
type DriftDetail struct {
	Since       time.Time     `json:"since"`            // when this difference was first seen
	Changes     stack.Changes `json:"changes"`          // that would remediate it
	Name        string        `json:"name,omitempty"`   // of the plan that would
	Digest      string        `json:"digest,omitempty"` // of that plan; empty if it is no longer kept
	Drifted     []plan.Change `json:"drifted"`          // what was changed outside, from what was applied to what is there now
	Remediation []plan.Change `json:"remediation"`      // the changes of that plan
	Mending     []plan.Change `json:"mending"`          // Remediation, under its name of the release before
}

// DriftDetails implements StackDetails. A stack without drift is Missing it.
// A change that no plan would remediate, such as one that the module ignores, can be
// in Drifted and not in Remediation.
func (d *Details) DriftDetails(ctx context.Context, key Key) (DriftDetail, error) {
	st, err := d.stacks.Get(ctx, key)
	if err != nil {
		return DriftDetail{}, err
	}
	if st.Drift == nil {
		return DriftDetail{}, fault.New(fault.Missing, ReasonNoDrift, fmt.Errorf("no drift of the stack %s is known", key))
	}
	out := DriftDetail{Since: st.Drift.At, Changes: st.Drift.Changes, Drifted: []plan.Change{}, Remediation: []plan.Change{}, Mending: []plan.Change{}}
	if st.Plan == nil || !st.Plan.Drift {
		return out, nil
	}
	doc, err := d.stacks.Document(ctx, st.ID(), *st.Plan)
	if fault.Of(err) == fault.Missing {
		return out, nil // what is known without it is shown
	}
	if err != nil {
		return DriftDetail{}, err
	}
	p, err := plan.ParseDocument(doc.Document)
	if err != nil {
		return DriftDetail{}, fmt.Errorf("reading the plan %s: %w", st.Plan.Name, err)
	}
	out.Name, out.Digest = st.Plan.Name, st.Plan.Digest
	out.Drifted, out.Remediation = append(out.Drifted, p.Drift()...), append(out.Remediation, p.Items()...)
	out.Mending = out.Remediation
	return out, nil
}

func (d *Details) CheckedAt(ctx context.Context, key Key) (time.Time, error) {
	st, err := d.stacks.Get(ctx, key)
	if err != nil {
		return time.Time{}, err
	}
	return d.records.CheckedAt(ctx, st.ID())
}

// CheckedAt implements DetailRecords. A record that cannot be read counts as unknown:
// the next drift check writes it again.
func (b *Blobs) CheckedAt(ctx context.Context, id StackID) (time.Time, error) {
	if err := CheckID(id, "any"); err != nil {
		return time.Time{}, err
	}
	text, err := b.store.Get(ctx, record.Checked(id.UID).Key)
	if fault.Of(err) == fault.Missing {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the last drift check of %s: %w", id.Key, err)
	}
	kept, err := record.Checked(id.UID).Decode(text)
	if err != nil {
		return time.Time{}, nil
	}
	return kept.At, nil
}
