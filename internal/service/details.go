package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
)

// StackDetails answers what the page of one stack shows beside its row.
type StackDetails interface {
	// Inputs lists what goes into the runs of a stack, by name and origin, with the
	// values that stand in the object itself.
	Inputs(context.Context, Key) ([]InputInfo, error)
	// Timeline lists what happened to a stack, newest first.
	Timeline(context.Context, Key) ([]Moment, error)
	// OutputsKept lists the outputs as the last apply left them, the values of
	// sensitive ones left out. It takes the right to stacks/outputs.
	OutputsKept(context.Context, Key) ([]Output, error)
	// DriftDetails says what differs from what was applied. It takes the right to
	// stacks/plan.
	DriftDetails(context.Context, Key) (DriftDetail, error)
	// LookedAt says when drift was looked for last; zero if that is not known.
	LookedAt(context.Context, Key) (time.Time, error)
}

// The reasons of faults about details.
const (
	ReasonNoDrift       = "NoDrift"
	ReasonNoOutputsKept = "NoOutputsKept"
)

// DetailRecords are what runs left of stacks beside the reports.
type DetailRecords interface {
	// OutputsOf opens the outputs of the newest state of a stack, values and all.
	OutputsOf(context.Context, StackID) (io.ReadCloser, error)
	// LookedAt says when a look for drift ended last; zero if that is not known.
	LookedAt(context.Context, StackID) (time.Time, error)
}

// OutputsOf implements DetailRecords.
func (b *Blobs) OutputsOf(ctx context.Context, id StackID) (io.ReadCloser, error) {
	if err := checkID(id, "any"); err != nil {
		return nil, err
	}
	return b.get(ctx, record.Outputs(id.UID), "what the stack outputs")
}

// Details answers for the server itself: whoever calls it has been checked.
type Details struct {
	stacks    *Stacks
	records   DetailRecords
	decisions Decisions
}

// NewDetails returns the Details of stacks. Decisions may be nil: then none are
// told of.
func NewDetails(stacks *Stacks, records DetailRecords, decisions Decisions) *Details {
	return &Details{stacks: stacks, records: records, decisions: decisions}
}

var _ StackDetails = (*Details)(nil)

// outputBytes bounds the outputs of one stack.
const outputBytes = 64 << 20

// OutputsKept implements StackDetails. They need not be published to be here.
func (d *Details) OutputsKept(ctx context.Context, key Key) ([]Output, error) {
	st, err := d.stacks.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	r, err := d.records.OutputsOf(ctx, st.ID())
	if fault.Of(err) == fault.Missing {
		return nil, fault.New(fault.Missing, ReasonNoOutputsKept, fmt.Errorf("no outputs of the stack %s are kept: nothing was applied yet, or its module outputs nothing", key))
	}
	if err != nil {
		return nil, err
	}
	var values map[string]kube.Output
	err = json.NewDecoder(io.LimitReader(r, outputBytes)).Decode(&values)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("reading the outputs of the stack %s: %w", key, err)
	}
	out := make([]Output, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		o := Output{Name: name, Sensitive: values[name].Sensitive}
		if !o.Sensitive {
			o.Value = values[name].Value
		}
		out = append(out, o)
	}
	return out, nil
}
