package states

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// How much of the past of a state is kept. A person hardly goes back by more than a
// week of hourly applies; the bytes keep a large state from filling the disk thirty
// times.
const (
	versionsKept = 30
	versionBytes = 256 << 20
)

// Versions keeps the past of states.
type Versions struct {
	Log     *slog.Logger
	Records *records.Store
}

// list returns the versions of a stack's state that are kept.
func (vs *Versions) list(ctx context.Context, id string) (stack.StateVersions, error) {
	list, _, err := vs.read(ctx, id)
	return list, err
}

// read is list, and reports whether the list is sealed with an unknown key. Neither that
// list nor a damaged one stops a run. A damaged one is started again. A sealed one
// stays as it is, and with it what it lists: the key may come back.
func (vs *Versions) read(ctx context.Context, id string) (list stack.StateVersions, sealed bool, err error) {
	b, err := vs.Records.Get(ctx, record.StateIndex(id).Key)
	switch {
	case fault.Of(err) == fault.Missing:
		return stack.StateVersions{}, false, nil
	case fault.Reason(err, "") == blob.KeyUnknown:
		vs.Log.Warn("state versions not kept", "stack", id, "err", err)
		return stack.StateVersions{}, true, nil
	case fault.Reason(err, "") == blob.Damaged:
	case err != nil:
		return stack.StateVersions{}, false, fmt.Errorf("reading the list of state versions: %w", err)
	default:
		list, err = record.StateIndex(id).Decode(b)
	}
	if err != nil {
		vs.Log.Warn("state versions damaged; starting a new list", "stack", id, "err", err)
		return stack.StateVersions{}, false, nil
	}
	return list, false, nil
}

// keep keeps a state as v, whose identity it fills in. A head is what is
// stored from now on. It can be repeated: the same version has the same name,
// and is in the list only once it is there.
func (vs *Versions) keep(ctx context.Context, id string, state []byte, v stack.StateVersion, head *stack.StateID) error {
	facts, err := stack.ReadState(state)
	if err != nil {
		return err
	}
	v.Lineage, v.Serial, v.Digest = facts.Lineage, facts.Serial, facts.Digest
	v.Bytes, v.Resources, v.Sealed = facts.Bytes, facts.Resources, facts.Sealed
	if v.By == "" {
		v.By = stack.ByOutside
	}
	list, sealed, err := vs.read(ctx, id)
	if err != nil || sealed {
		return err
	}
	changed := list.With(v)
	if head != nil && list.Head != *head {
		list.Head, changed = *head, true
	}
	if !changed {
		return nil
	}
	if err := vs.Records.Put(ctx, record.StateVersion(id, v.Key()), state); err != nil {
		return fmt.Errorf("keeping the state version %s: %w", facts.StateID, err)
	}
	before := slices.Clone(list.Versions)
	list.Trim(versionsKept, versionBytes)
	if err := vs.drop(ctx, id, before, list.Versions); err != nil {
		return err
	}
	return vs.write(ctx, id, list)
}

// drop deletes the versions that Trim took out of the list. A version that the list does
// not name stays: the list may be lost, damaged or old. A repetition after a crash takes
// the same versions out, since the shorter list is written only afterwards.
func (vs *Versions) drop(ctx context.Context, id string, before, kept []stack.StateVersion) error {
	for _, v := range before {
		if slices.ContainsFunc(kept, func(k stack.StateVersion) bool { return k.Key() == v.Key() }) {
			continue
		}
		err := vs.Records.Blobs.Delete(ctx, record.StateVersion(id, v.Key()))
		if err != nil && fault.Of(err) != fault.Missing {
			return fmt.Errorf("deleting the state version %s: %w", v.Key(), err)
		}
	}
	return nil
}

// setHead says what is stored from now on.
func (vs *Versions) setHead(ctx context.Context, id string, head stack.StateID) error {
	list, sealed, err := vs.read(ctx, id)
	if err != nil || sealed || list.Head == head {
		return err
	}
	list.Head = head
	return vs.write(ctx, id, list)
}

func (vs *Versions) write(ctx context.Context, id string, list stack.StateVersions) error {
	if err := record.StateIndex(id).Write(ctx, vs.Records.Blobs, list); err != nil {
		return fmt.Errorf("writing the list of state versions: %w", err)
	}
	return nil
}
