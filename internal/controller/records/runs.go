package records

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// ended is the part of the report of a run that says when it ended. See runner.Report.
type ended struct {
	Finished time.Time `json:"finished"`
}

// DropOldRuns removes the records of all but the newest runs of a stack, which ended last.
func (s *Store) DropOldRuns(ctx context.Context, id string, kept int) error {
	keys, err := s.Blobs.List(ctx, record.Runs(id))
	if err != nil {
		return err
	}
	ends := map[string]time.Time{}
	for _, k := range keys {
		run, file, _ := record.RunOf(id, k)
		if file != record.ReportFile || run == record.QuietRun {
			continue
		}
		r, err := record.At[ended](k).Read(ctx, s.Blobs)
		if reason := fault.Reason(err, ""); reason == blob.Damaged || reason == blob.KeyUnknown {
			err = nil // when it ended is not known: it goes as the oldest
		}
		if err != nil {
			return err
		}
		ends[run] = r.Finished
	}
	if len(ends) <= kept {
		return nil
	}
	runs := slices.SortedFunc(maps.Keys(ends), func(a, b string) int { return ends[b].Compare(ends[a]) })
	old := runs[kept:]
	for _, k := range keys {
		if run, _, _ := record.RunOf(id, k); slices.Contains(old, run) {
			if err := s.Blobs.Delete(ctx, k); err != nil && fault.Of(err) != fault.Missing {
				return err
			}
		}
	}
	return nil
}

// KeepApplied notes the plan that a run applied, and when that ended: the document of the plan
// outlives the next plans, so that policies can be tried on it.
func (s *Store) KeepApplied(ctx context.Context, id string, made stack.Plan, run string, at time.Time) error {
	doc, err := s.Get(ctx, record.Plan(id, made.Digest, record.PlanFile))
	if fault.Of(err) == fault.Missing {
		return nil
	}
	if reason := fault.Reason(err, ""); reason == blob.Damaged || reason == blob.KeyUnknown {
		return nil // it cannot be read later either
	}
	if err != nil {
		return fmt.Errorf("reading plan %s: %w", made.Name, err)
	}
	before, err := s.AppliedPlans(ctx, id)
	if err != nil {
		return err
	}
	now := record.AppliedPlan{Plan: made, Run: run, At: at, Bytes: int64(len(doc))}
	if err := record.Applied(id).Write(ctx, s.Blobs, record.WithApplied(before, now)); err != nil {
		return fmt.Errorf("keeping the plans that were applied: %w", err)
	}
	return nil
}

// AppliedPlans are the plans that were applied last. Those of a record that does not open are
// not known.
func (s *Store) AppliedPlans(ctx context.Context, id string) ([]record.AppliedPlan, error) {
	all, err := record.Applied(id).Read(ctx, s.Blobs)
	if reason := fault.Reason(err, ""); fault.Of(err) == fault.Missing || reason == blob.Damaged || reason == blob.KeyUnknown {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the plans that were applied: %w", err)
	}
	return all, nil
}
