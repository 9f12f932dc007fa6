package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// StateChange is a state that is to replace the stored one.
type StateChange struct {
	Key  query.Key            `json:"-"`
	From stack.StateID        `json:"from,omitzero"` // the stored one; zero if there is none, or it cannot be read
	To   stack.StateID        `json:"to"`
	Diff plan.StateDifference `json:"diff"`
	Over string               `json:"over,omitempty"` // the digest of the stored one, readable or not

	RunsScript bool `json:"runsScript,omitempty"` // the request that follows runs the script of the stack, without a plan

	State []byte        `json:"-"`
	Order RollbackOrder `json:"-"` // for a server, which prepares the change again
	Force bool          `json:"-"` // likewise, of an uploaded state
}

// Bytes is how large the state is.
func (c StateChange) Bytes() int { return len(c.State) }

// Still returns err, with which c was prepared, or a Conflict if c is not what the
// user was shown: the digest over of the stored state, and the digest to of the new
// one.
func (c StateChange) Still(err error, over, to string) error {
	if c.Over != "" && c.Over != over || err == nil && (c.Over != over || c.To.Digest != to) {
		return fault.New(fault.Conflict, ReasonStateConflict, fmt.Errorf("the state of %s changed since it was shown: prepare the change again", c.Key))
	}
	return err
}

// States changes the states that Terrier stores.
type States struct{ editor }

// PlanRollback prepares a rollback to an older version: the same resources under the
// next serial, so that every backend accepts it. With force it may replace a state
// of which no version is kept.
func (s *States) PlanRollback(ctx context.Context, key query.Key, version string, force bool) (StateChange, error) {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return StateChange{}, err
	}
	v, err := s.Version(ctx, h, version)
	if err != nil {
		return StateChange{}, err
	}
	old, err := query.ReadState(s.Records.State(ctx, h.ID, v.Key()))
	if err != nil {
		return StateChange{}, err
	}
	return s.change(ctx, h, old, true, force)
}

// PlanPush prepares to store an uploaded state. It must follow the stored one; with
// force its lineage and serial are rewritten so that it does.
func (s *States) PlanPush(ctx context.Context, key query.Key, state []byte, force bool) (StateChange, error) {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return StateChange{}, err
	}
	return s.change(ctx, h, state, force, force)
}

// change compares a state with what is stored. With follow it is rewritten so
// that it follows.
func (s *States) change(ctx context.Context, h *query.StoredState, state []byte, follow, force bool) (StateChange, error) {
	spec := h.Object.Spec
	out := StateChange{Key: h.ID.Key, RunsScript: spec.Script && !spec.Suspended && !h.Object.Deleting() && !spec.AwaitsApproval(h.Object.Status)}
	facts, err := stack.ReadState(state)
	if err != nil {
		return out, fault.New(fault.Invalid, query.ReasonNoState, fmt.Errorf("the upload is not a state: %w", err))
	}
	found, err := h.States.Load(ctx, h.Ref)
	if err != nil && fault.Reason(err, "") != kube.StateUnreadable {
		return out, err
	}
	out.Over = found.Digest
	kept, err := s.Records.States(ctx, h.ID)
	if err != nil {
		return out, err
	}
	if now, err := stack.ReadState(found.State); err == nil {
		out.From = now.StateID
		if !force && !known(kept, h.Object.Status, now.Digest) {
			return out, fault.New(fault.Conflict, query.ReasonStateUnseen, fmt.Errorf("no version of the stored state of %s (%s) is kept, since Terrier has not checked it yet", h.ID.Key, now.StateID))
		}
	}
	after := newest(out.From, h.Object.Status.KnownState, kept.Head)
	if last := h.Object.Status.LastState; !last.Managed && last.Content != "" && facts.Content == last.Content && !facts.Sealed {
		follow = true // a user moves it here from a backend of the stack's own, which may have given it another lineage
	}
	if follow {
		if state, err = rewritten(state, after); err == nil {
			facts, err = stack.ReadState(state)
		}
		if err != nil {
			return out, err
		}
	}
	if after != (stack.StateID{}) && facts.Digest != out.From.Digest && !facts.Follows(after) {
		return out, fault.New(fault.Conflict, query.ReasonStateBehind, fmt.Errorf("the state (%s) does not follow %s of the stack %s", facts.StateID, after, h.ID.Key))
	}
	out.State, out.To = state, facts.StateID
	out.Diff, err = plan.DiffStates(found.State, state)
	return out, err
}

// known reports whether a state can be found again once it was replaced.
func known(kept query.KeptStates, m stack.Status, digest string) bool {
	return m.KnownState.Digest == digest && len(kept.Versions) == 0 ||
		slices.ContainsFunc(kept.Versions, func(v stack.StateVersion) bool { return v.Digest == digest })
}

// newest is the version that the next state has to follow. Where the lineages
// differ it is the one that the stack expects.
func newest(stored, known, head stack.StateID) stack.StateID {
	out := known
	if out == (stack.StateID{}) || head.Follows(out) {
		out = head
	}
	if out == (stack.StateID{}) || stored.Follows(out) {
		out = stored
	}
	out.Unstored = false
	return out
}

// rewritten gives a state the lineage of after and a serial that follows, and
// leaves everything else as it is, byte for byte.
func rewritten(state []byte, after stack.StateID) ([]byte, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(state, &doc); err != nil {
		return nil, err
	}
	if doc["encrypted_data"] != nil {
		return nil, fault.New(fault.Invalid, query.ReasonNoState, errors.New("the state is encrypted, and its lineage and serial are encrypted with it"))
	}
	if after == (stack.StateID{}) {
		return state, nil
	}
	lineage, err := json.Marshal(after.Lineage)
	if err != nil {
		return nil, err
	}
	if after.Lineage != "" {
		doc["lineage"] = lineage
	}
	doc["serial"] = json.RawMessage(fmt.Sprint(after.Serial + 1))
	return json.MarshalIndent(doc, "", "  ")
}

// WriteState stores a change that was prepared, under a lock in the name of the
// user, and requests a plan. It is a Conflict if another state is stored by now, or
// if a run goes on.
func (s *States) WriteState(ctx context.Context, c StateChange) error {
	h, err := s.StoredState(ctx, c.Key)
	if err != nil {
		return err
	}
	if err := idle(h); err != nil {
		return err
	}
	who := s.person(ctx)
	free, err := take(ctx, h, who, "writing the state manually", "")
	if err != nil {
		return err
	}
	err = h.States.Replace(ctx, h.Ref, kube.Replacement{State: c.State, Over: c.Over, Owner: kube.Owner{Name: c.Key.Name, UID: h.ID.UID}, Person: who})
	if err = errors.Join(err, free()); err != nil {
		return err
	}
	return s.wake(ctx, c.Key)
}

// newLock is the identifier of a lock.
func newLock() string { return string(uuid.NewUUID()) }
