package controller

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// How much of the past of a state is kept. What is older than a week of hourly
// applies is hardly what somebody goes back to; the bytes keep a large state
// from filling the disk thirty times.
const (
	versionsKept = 30
	versionBytes = 256 << 20
)

// versions lists the versions of a stack's state that are kept. A list that is
// damaged is begun anew: what it was for must not stop what is at work.
func (c *Stacks) versions(ctx context.Context, id string) (stack.StateVersions, error) {
	var list stack.StateVersions
	b, err := c.get(ctx, versionsKey(id))
	switch {
	case fault.Of(err) == fault.Missing:
		return stack.StateVersions{}, nil
	case fault.Reason(err, "") == damagedRecord:
	case err != nil:
		return stack.StateVersions{}, fmt.Errorf("reading the list of state versions: %w", err)
	default:
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		c.Log.Warn("the list of state versions is damaged and begun anew", "stack", id, "err", err)
		return stack.StateVersions{}, nil
	}
	return list, nil
}

// damagedRecord is the reason of a record that was changed or cut off.
const damagedRecord = "BlobDamaged"

func versionsKey(id string) string { return stackKey(id, "states", "index.json") }

// keepVersion keeps a state as v, whose identity it fills in. A head is what is
// stored from now on. It can be repeated: the same version has the same name,
// and is in the list only once it is there.
func (c *Stacks) keepVersion(ctx context.Context, id string, state []byte, v stack.StateVersion, head *stack.Known) error {
	facts, err := stack.ReadState(state)
	if err != nil {
		return err
	}
	v.Lineage, v.Serial, v.Digest = facts.Lineage, facts.Serial, facts.Digest
	v.Bytes, v.Resources, v.Sealed = facts.Bytes, facts.Resources, facts.Sealed
	if v.By == "" {
		v.By = stack.ByOutside
	}
	list, err := c.versions(ctx, id)
	if err != nil {
		return err
	}
	changed := list.With(v)
	if head != nil && list.Head != *head {
		list.Head, changed = *head, true
	}
	if !changed {
		return nil
	}
	if err := c.put(ctx, stackKey(id, "states", v.Key()), state); err != nil {
		return fmt.Errorf("keeping the state version %s: %w", facts.Known, err)
	}
	list.Trim(versionsKept, versionBytes)
	if err := c.putVersions(ctx, id, list); err != nil {
		return err
	}
	stay := []string{versionsKey(id)}
	for _, kept := range list.Versions {
		stay = append(stay, stackKey(id, "states", kept.Key()))
	}
	return c.dropOthers(ctx, stackKey(id, "states", ""), stay...)
}

// setHead says what is stored from now on.
func (c *Stacks) setHead(ctx context.Context, id string, head stack.Known) error {
	list, err := c.versions(ctx, id)
	if err != nil || list.Head == head {
		return err
	}
	list.Head = head
	return c.putVersions(ctx, id, list)
}

func (c *Stacks) putVersions(ctx context.Context, id string, list stack.StateVersions) error {
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := c.put(ctx, versionsKey(id), b); err != nil {
		return fmt.Errorf("writing the list of state versions: %w", err)
	}
	return nil
}
