package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Decisions implements Decisions.
func (b *Blobs) Decisions(ctx context.Context, id StackID) ([]Decided, error) {
	if err := CheckID(id, "any"); err != nil {
		return nil, err
	}
	text, err := b.store.Get(ctx, record.Decisions(id.UID).Key)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	var kept []stack.Decided
	if err == nil {
		kept, err = record.Decisions(id.UID).Decode(text)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was decided about %s: %w", id.Key, err)
	}
	out := make([]Decided, 0, len(kept))
	for _, d := range slices.Backward(kept) {
		out = append(out, Decided(d))
	}
	return out, nil
}

var _ Decisions = (*Blobs)(nil)
