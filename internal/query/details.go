package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// StackDetails answers what the page of one stack shows beside its row.
type StackDetails interface {
	// Inputs lists the inputs of the runs of a stack, by name and origin, with the
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
	// CheckedAt says when the last drift check was; zero if that is unknown.
	CheckedAt(context.Context, Key) (time.Time, error)
	// Manifest returns the object itself, without the values that must not be shown.
	Manifest(context.Context, Key) (Manifest, error)
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
	SecretRecords
	// CheckedAt says when the last drift check ended; zero if that is unknown.
	CheckedAt(context.Context, StackID) (time.Time, error)
}

func (b *Blobs) OutputsOf(ctx context.Context, id StackID) (io.ReadCloser, error) {
	if err := CheckID(id, "any"); err != nil {
		return nil, err
	}
	return b.get(ctx, record.Outputs(id.UID), "what the stack outputs")
}

// Details answers for the server: its caller has checked the rights of the user.
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
	hidden, unknown := d.records.SecretPrints(ctx, st.ID())
	if unknown == nil {
		kube.MarkSecret(values, hidden)
	}
	out := make([]Output, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		o := Output{Name: name, Sensitive: values[name].Sensitive}
		if unknown != nil && !o.Sensitive { // it may hold a value from a Secret
			o.Sensitive, o.Masked = true, maskedFor(unknown)
		}
		if !o.Sensitive {
			o.Value = values[name].Value
		}
		out = append(out, o)
	}
	return out, nil
}

// Output is one value that a stack published.
type Output struct {
	Name      string          `json:"name"`
	Value     json.RawMessage `json:"value,omitempty"` // absent where it is not shown
	Sensitive bool            `json:"sensitive,omitempty"`
	Masked    string          `json:"masked,omitempty"` // why a value is masked that the module does not declare sensitive
}

// Outputs returns what a stack published, read from its Secret as the caller.
// The values of sensitive ones, and of those that hold a value from a Secret, are
// left out unless show says otherwise; what was published by a program that does
// not say is sensitive. With show, the records are not asked what came from a Secret.
func (s *Stacks) Outputs(ctx context.Context, key Key, show bool) ([]Output, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	if o.View.OutputsIn == "" {
		return nil, fault.New(fault.Missing, ReasonNoOutputs, fmt.Errorf("the stack %s publishes no outputs. %s", key, o.Spec.Words.Outputs))
	}
	name := types.NamespacedName{Namespace: key.Namespace, Name: o.View.OutputsIn}
	data, public, err := kube.ReadSecret(ctx, s.Kube, name)
	if fault.Of(err) == fault.Missing {
		return nil, fault.New(fault.Missing, ReasonUnpublished, fmt.Errorf("the stack %s has not published its outputs yet", key))
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the stack %s published: %w", key, err)
	}
	values, err := workdir.PublishedOutputs(data)
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", name, err)
	}
	var hidden plan.Prints
	var unknown error
	if !show {
		hidden, unknown = s.Objects.Records.SecretPrints(ctx, View(o).ID())
	}
	out := make([]Output, 0, len(values))
	for name, value := range values {
		v := Output{Name: name, Sensitive: !slices.Contains(public, name) || hidden.Holds(value)}
		if unknown != nil && !v.Sensitive { // it may hold a value from a Secret
			v.Sensitive, v.Masked = true, maskedFor(unknown)
		}
		if show || !v.Sensitive {
			v.Value = value
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Output) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
