package service

import (
	"context"
	"io"
)

// StackDetails answers what the page of one stack shows beside its row.
type StackDetails interface {
	// Inputs lists what goes into the runs of a stack, by name and origin: never
	// a value.
	Inputs(context.Context, Key) ([]InputInfo, error)
	// Timeline lists what happened to a stack, newest first.
	Timeline(context.Context, Key) ([]Moment, error)
	// OutputsKept lists the outputs as the last apply left them, the values of
	// sensitive ones left out. It takes the right to stacks/outputs.
	OutputsKept(context.Context, Key) ([]Output, error)
	// DriftDetails says what differs from what was applied. It takes the right to
	// stacks/plan.
	DriftDetails(context.Context, Key) (DriftDetail, error)
}

// OutputRecords are the outputs of stacks as runs left them.
type OutputRecords interface {
	// OutputsOf opens the outputs of the newest state of a stack, values and all.
	OutputsOf(context.Context, StackID) (io.ReadCloser, error)
}

// Details answers for the server itself: whoever calls it has been checked.
type Details struct {
	stacks    *Stacks
	outputs   OutputRecords
	decisions Decisions
}

// NewDetails returns the Details of stacks. Decisions may be nil: then none are
// told of.
func NewDetails(stacks *Stacks, outputs OutputRecords, decisions Decisions) *Details {
	return &Details{stacks: stacks, outputs: outputs, decisions: decisions}
}

var errUnread = errNotReady

// Inputs implements StackDetails.
func (d *Details) Inputs(ctx context.Context, key Key) ([]InputInfo, error) { return nil, errUnread }

// Timeline implements StackDetails.
func (d *Details) Timeline(ctx context.Context, key Key) ([]Moment, error) { return nil, errUnread }

// OutputsKept implements StackDetails.
func (d *Details) OutputsKept(ctx context.Context, key Key) ([]Output, error) { return nil, errUnread }

// DriftDetails implements StackDetails.
func (d *Details) DriftDetails(ctx context.Context, key Key) (DriftDetail, error) {
	return DriftDetail{}, errUnread
}

var _ StackDetails = (*Details)(nil)
