package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// DecisionsKey is the key of what was decided about a stack, the newest last.
func DecisionsKey(uid string) string { return "stacks/" + uid + "/decisions.json" }

// Decisions implements Decisions.
func (b *Blobs) Decisions(ctx context.Context, id StackID) ([]Decided, error) {
	if err := checkID(id, "any"); err != nil {
		return nil, err
	}
	text, err := b.store.Get(ctx, DecisionsKey(id.UID))
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	var kept []stack.Decided
	if err == nil {
		err = json.Unmarshal(text, &kept)
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
