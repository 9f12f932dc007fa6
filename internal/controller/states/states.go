// Package states looks after the states of stacks: it loads the state that a run
// starts from, makes sure that it is the stack's own and what it should be, stores
// what runs made of it, keeps the versions before, and holds its lock for runs. A
// state that is kept in a backend of the stack's own is only guarded against a
// second stack. It decides nothing about the stack, and starts no run.
//
// Start reading at Keeper.Start and Keeper.Settle.
package states

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/gitstate"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Store keeps states and their locks.
type Store interface {
	Load(ctx context.Context, ref kube.StateRef) (kube.Stored, error)
	Save(ctx context.Context, ref kube.StateRef, owner kube.Owner, state []byte) error
	Reform(ctx context.Context, ref kube.StateRef) error
	Locks
}

// Locks are the locks of states.
type Locks interface {
	Holder(ctx context.Context, ref kube.StateRef) (*kube.LockedError, error)
	Lock(ctx context.Context, ref kube.StateRef, info kube.LockInfo) error
	Unlock(ctx context.Context, ref kube.StateRef, id string) error
}

// Events tells people what happened to an object.
type Events interface {
	Event(obj client.Object, kind, reason, message string)
}

// Subject is the stack whose state is meant, as a pass has it.
type Subject struct {
	ID      string // the UID of the object
	Dialect dialect.Dialect
	Object  client.Object
	Asked   dialect.Stack // what the object asks for, and its status when the pass began

	// Observed is what the pass observes. Its status is where a step notes what it did,
	// also after the decision: an accepted state, for instance. commit writes it.
	Observed *stack.Observation
}

// Keeper loads the states of stacks for their runs, and stores what runs made of
// them.
type Keeper struct {
	Cache     client.Reader
	Dialects  dialect.Registry
	Events    Events
	Store     Store
	Inspector *Inspector
	Records   *records.Store
	Versions  *Versions

	// Audit records one entry about a stack. Once tells it from others of its sort.
	Audit func(ctx context.Context, of Subject, e audit.Entry, once string) error
}

// Start returns the state that the run with this name starts from, after making
// sure that it is the stack's own and what it should be. It is kept as a version
// first: what a run is about to destroy must be found again. A state that is not
// encrypted as the stack asks is then stored again as it asks. Ref is nil if the engine
// keeps the state elsewhere.
func (kp *Keeper) Start(ctx context.Context, of Subject, ref *kube.StateRef, run string, kind stack.RunKind, cause stack.Cause) (state []byte, err error) {
	if ref == nil {
		return nil, kp.unshared(ctx, of, kind)
	}
	state, err = kp.load(ctx, of, *ref)
	if err != nil {
		return nil, fault.New(fault.Of(err), fault.Reason(err, string(stack.StateFailed)), fmt.Errorf("loading the state: %w", err))
	}
	if len(state) == 0 {
		return nil, kp.unshared(ctx, of, kind)
	}
	if !destructive(kind, cause) {
		return state, nil
	}
	return state, kp.Versions.keep(ctx, of.ID, state, stack.StateVersion{By: of.Observed.Status.LastWrite, At: of.Observed.Now, Before: run, Secret: ref.String()}, nil)
}

// reform stores the state as the stack asks for it: encrypted, or not. The record of an
// earlier apply may ask for something else.
func (kp *Keeper) reform(ctx context.Context, of Subject, ref kube.StateRef, stored kube.Stored) error {
	if ref.Encrypted = of.Asked.Configuration.Encrypted; !stored.Outdated(ref) {
		return nil
	}
	err := kp.Store.Reform(ctx, of.current(ref))
	if of.Observed.Deleting && fault.Of(err) == fault.Denied {
		return nil // nothing can be written in a namespace that goes away
	}
	if err != nil && ref.Git != nil {
		return fault.New(fault.Of(err), fault.Reason(err, string(stack.StateFailed)), fmt.Errorf("encrypting the state again: %w", err))
	}
	if err != nil {
		return fault.New(fault.Of(err), fault.Reason(err, string(stack.StateFailed)), fmt.Errorf("storing the state encrypted as %s asks: %w", encryption.Annotation, err))
	}
	return nil
}

// destructive reports whether a run may destroy something, or forget it.
func destructive(kind stack.RunKind, cause stack.Cause) bool {
	switch kind {
	case stack.DestroyRun, stack.BreakGlassRun, stack.ScriptRun:
		return true
	case stack.ApplyRun:
		return cause.Destroy || cause.Plan == nil || cause.Plan.Changes.Destroy+cause.Plan.Changes.Forget > 0
	default:
		return false
	}
}

// load returns the state of a stack, or says what is wrong with what is
// there. What something else wrote is kept as a version.
func (kp *Keeper) load(ctx context.Context, of Subject, ref kube.StateRef) ([]byte, error) {
	s, err := kp.Inspector.inspect(ctx, of, ref)
	if err != nil || len(s.ours) > 0 {
		return s.ours, err
	}
	if err := kp.take(ctx, of, ref, s); err != nil {
		return nil, err
	}
	return s.State, kp.reform(ctx, of, ref, s.Stored)
}

// take keeps what was found as a version if something else wrote it, and takes
// it over if it may be, or if a person accepted it.
func (kp *Keeper) take(ctx context.Context, of Subject, ref kube.StateRef, s found) error {
	if s.reason == "" && s.facts.Digest != "" && s.facts.Digest == s.known.Digest {
		of.remember(ref, s.facts)
		return nil
	}
	head := &s.facts.StateID
	accepted := s.reason != "" && of.accepts(s.Digest)
	if s.reason == "" && s.facts.Digest != "" || accepted {
		of.remember(ref, s.facts)
	}
	if s.came && s.reason == "" {
		of.Observed.Status.KnownState = s.facts.StateID // it may be of another lineage than what Terrier kept before
	}
	if s.reason != "" && !accepted {
		head = nil
	}
	news := s.continued && s.head != s.facts.StateID
	if news && s.Person != "" {
		e := audit.Entry{What: audit.StatePushed, Why: "the state says who pushed it, and nothing proves that", Details: map[string]string{"by": s.Person, "state": s.facts.StateID.String(), "after": s.known.String()}}
		if err := kp.Audit(ctx, of, e, s.facts.StateID.Digest); err != nil {
			return err
		}
	}
	if s.facts.Digest != "" {
		v := stack.StateVersion{By: author(s.Stored, s.continued || s.reason != "", of.Observed.Status.LastWrite), At: of.Observed.Now, Secret: ref.String()}
		if err := kp.Versions.keep(ctx, of.ID, s.State, v, head); err != nil {
			return err
		}
	}
	switch {
	case accepted:
		if s.missing != nil {
			if err := kp.GiveUp(ctx, of, s.missing.ExpectedState); err != nil {
				return err
			}
		} else if last := of.Observed.Status.LastState; s.facts.Digest == "" && last.Holds() {
			if err := kp.GiveUp(ctx, of, stack.ExpectedState{Last: last, Place: last.Place, In: ref.InWords(), Managed: true}); err != nil {
				return err
			}
		}
		of.Observed.Status.KnownState, of.Observed.Status.AcceptedState = s.facts.StateID, of.Observed.Spec.AcceptState
		if s.facts.Digest == "" {
			of.Observed.Status.State = "" // there is none to go by
			if err := kp.Versions.setHead(ctx, of.ID, stack.StateID{}); err != nil {
				return err
			}
		}
		kp.Events.Event(of.Object, corev1.EventTypeWarning, "StateAccepted", fmt.Sprintf("The state %s was accepted, although %s was expected", stack.AcceptedState(of.Observed.Spec.AcceptState), s.known))
		return nil
	case s.reason == stack.StateMissing:
		return fault.New(fault.Denied, string(s.reason), fmt.Errorf("%s. %s", s.missing, s.missing.WaysOut(of.Observed.Spec.Words, of.Observed.PlanInputs.Engine, of.Observed.Deleting)))
	case s.reason != "":
		if err := kp.elsewhere(ctx, of, ref, s); err != nil {
			return err
		}
		return of.refused(s.reason, ref, s.known, s.facts, s.Foreign)
	case news:
		kp.Events.Event(of.Object, corev1.EventTypeNormal, "StateContinued", fmt.Sprintf("The state was continued by %s: %s, after %s", author(s.Stored, true, ""), s.facts.StateID, s.known))
	}
	return nil
}

// Settle stores what a run that ended made of the state, and says what is
// known of it from now on.
func (kp *Keeper) Settle(ctx context.Context, of Subject, r *runner.Report, ref *kube.StateRef, run *stack.Run) error {
	if ref != nil && r.State.Serial > 0 {
		run.KnownState = r.State
	}
	if !r.Kind.Writes() {
		return nil
	}
	err := kp.Flush(ctx, of, r, ref)
	unstored := fault.Reason(err, "") == kube.StateConflict
	if err != nil && !unstored && ref != nil && ref.Git != nil {
		return fmt.Errorf("the state after %s is not in its repository yet: %w. The records keep the state, sealed. Terrier pushes it as soon as the repository takes it, and starts no run before", r.ID, err)
	}
	if err != nil && !unstored {
		return fmt.Errorf("storing the state after %s: %w", r.ID, err)
	}
	if ref != nil {
		state, err := kp.Records.Left(of.ID, r.ID, runner.FileState)
		if err == nil && unstored {
			err = kp.superseded(ctx, of, *ref, r.ID, state)
		}
		if fault.Reason(err, "") == Superseded {
			return err
		}
		if err == nil && len(state) > 0 {
			err = kp.keepRun(ctx, of, *ref, r.ID, run, state, unstored)
		}
		if err != nil {
			return fmt.Errorf("keeping the state after %s: %w", r.ID, err)
		}
	}
	if unstored {
		kp.Events.Event(of.Object, corev1.EventTypeWarning, "StateNotStored", fmt.Sprintf("Another client wrote the state during the run %s; the state of the run is kept as the version %d: %v. To store it: terrier state rollback %s %[2]d. To keep what is there: terrier state accept %[4]s", r.ID, run.KnownState.Serial, err, of.Observed.Spec.Words.Argument))
	}
	return kp.rescue(ctx, of, r, ref, run)
}

// Superseded is the reason of an error about the state of a run that ended before another
// one, which was recorded.
const Superseded = "StateSuperseded"

// superseded keeps the state of a run as a version that nothing goes by, and fails, if a
// later state of its lineage is known. A run begins from the state that is known, so such
// a run ended before the one that is recorded.
func (kp *Keeper) superseded(ctx context.Context, of Subject, ref kube.StateRef, id string, state []byte) error {
	facts, err := stack.ReadState(state)
	known := of.Observed.Status.KnownState
	if err != nil || !isOlder(state, known) {
		return err
	}
	if err := kp.Versions.keep(ctx, of.ID, state, stack.StateVersion{By: id, At: of.Observed.Now, Secret: ref.String()}, nil); err != nil {
		return err
	}
	return fault.New(fault.Conflict, Superseded, fmt.Errorf("the state of run %s has serial %d, and serial %d is known", id, facts.Serial, known.Serial))
}

// keepRun keeps the state of a run as the version that is expected from now on.
func (kp *Keeper) keepRun(ctx context.Context, of Subject, ref kube.StateRef, id string, run *stack.Run, state []byte, unstored bool) error {
	facts, err := stack.ReadState(state)
	if err != nil {
		return err
	}
	facts.Unstored = unstored
	run.KnownState, run.LastState = facts.StateID, LastStateIn(ref, facts)
	if g := of.Asked.Configuration.Backend.Git; g != nil && ref.Git != nil && facts.Resources > g.Bound() {
		kp.Events.Event(of.Object, corev1.EventTypeWarning, "StateLargeForGit", fmt.Sprintf("The state has %d resources, and git is for states of at most %d: each apply adds the whole state to the repository. Move the state to a Secret or a bucket: remove or change the backend of the stack, then store the newest version there with terrier state rollback. Or raise warnAbove in the settings of the backend", facts.Resources, g.Bound()))
	}
	v := stack.StateVersion{By: id, At: of.Observed.Now, Secret: ref.String()}
	if unstored {
		v.Before = id // it stays until a person dealt with it
	}
	return kp.Versions.keep(ctx, of.ID, state, v, &facts.StateID)
}

// Newest is the last state that was stored of a stack whose state we keep.
func (kp *Keeper) Newest(ctx context.Context, id string, r *runner.Report, ref *kube.StateRef) ([]byte, error) {
	if ref == nil {
		return kp.Records.Left(id, r.ID, runner.FileState)
	}
	return kp.Inspector.Newest(ctx, id)
}

// Flush stores the newest state that the supervisor acknowledged.
func (kp *Keeper) Flush(ctx context.Context, of Subject, r *runner.Report, ref *kube.StateRef) error {
	if ref == nil {
		return nil
	}
	state, err := kp.Records.Left(of.ID, r.ID, runner.FileState)
	if err != nil || len(state) == 0 {
		return err
	}
	err = kp.Store.Save(ctx, of.current(*ref), kube.Owner{Name: of.Object.GetName(), UID: of.ID, Run: r.ID}, state)
	if of.Observed.Deleting && (fault.Of(err) == fault.Denied || fault.Reason(err, "") == gitstate.ReasonNoAccess) {
		err = nil // nothing can be made in a namespace that goes away, and its credentials are gone
	}
	if err != nil && isOlder(state, of.Observed.Status.KnownState) {
		return err // the copy is never older than what is known
	}
	// A copy of our own: a namespace that is deleted takes the Secret with it before the
	// stack is destroyed, and a state that cannot be stored is not in the directory of the
	// run alone.
	if copied := kp.Records.Put(ctx, record.State(of.ID), state); copied != nil {
		return errors.Join(err, copied)
	}
	return err
}

// current is ref with the credentials that the stack names now: those with which the run
// began may be refused by now.
func (of Subject) current(ref kube.StateRef) kube.StateRef {
	now := kube.RefOf(of.Asked.Configuration, ref.Namespace)
	if ref.Git != nil && now.Git != nil && ref.String() == now.String() {
		ref.Git = now.Git
	}
	return ref
}

// isOlder reports whether a state came before one that is known.
func isOlder(state []byte, known stack.StateID) bool {
	facts, err := stack.ReadState(state)
	return err == nil && facts.Lineage == known.Lineage && facts.Serial < known.Serial
}

// rescue takes over a state that could not be stored during the run, if it
// follows the one that is, and keeps it otherwise.
func (kp *Keeper) rescue(ctx context.Context, of Subject, r *runner.Report, ref *kube.StateRef, run *stack.Run) error {
	if ref != nil {
		state, err := kp.Records.Left(of.ID, r.ID, runner.FileRescue)
		if err != nil || state == nil {
			return err
		}
		if _, err := stack.ReadState(state); err != nil {
			// The engine could not write it out, on a disk without room: what it
			// created and no state tracks is found in its events.
			kp.Events.Event(of.Object, corev1.EventTypeWarning, "StateNotRescued", fmt.Sprintf("The newest state could not be stored during %s, and the file that the engine left of it is no state (%d bytes): %v", r.ID, len(state), err))
			return kp.Records.Put(ctx, record.Rescued(of.ID, r.ID), state)
		}
		if kp.Store.Save(ctx, of.current(*ref), kube.Owner{Name: of.Object.GetName(), UID: of.ID, Run: r.ID}, state) == nil {
			kp.Events.Event(of.Object, corev1.EventTypeWarning, "StateRescued", "The newest state could not be stored during the run, and was stored after it")
			if err = kp.keepRun(ctx, of, *ref, r.ID, run, state, false); err != nil {
				return err
			}
			return kp.Records.Put(ctx, record.State(of.ID), state)
		}
	}
	kept, err := kp.Records.Keep(ctx, of.ID, r.ID, runner.FileRescue, record.Rescued(of.ID, r.ID))
	if kept && err == nil {
		kp.Events.Event(of.Object, corev1.EventTypeWarning, "StateRescued", "The backend refused the newest state, which is kept. To write it to a file: terrier state pull --rescued "+r.ID+" "+of.Observed.Spec.Words.Argument)
	}
	return err
}

// Read reads the state with a digest, or the newest if that one is gone.
func (kp *Keeper) Read(ctx context.Context, id string, ref kube.StateRef, digest string) ([]byte, error) {
	if state, err := kp.Records.Get(ctx, record.State(id)); err == nil {
		sum := sha256.Sum256(state)
		if hex.EncodeToString(sum[:]) == record.Hex(digest) {
			return state, nil
		}
	}
	stored, err := kp.Store.Load(ctx, ref)
	return stored.State, err
}
