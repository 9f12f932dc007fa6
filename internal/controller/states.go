package controller

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// states reads and stores the states of stacks, and compares them with what is
// known of them.
type states struct {
	cache    client.Client
	dialects dialect.Registry
	events   Events
	live     client.Client
	store    States
	index    *index
	auditor  *auditor
	records  *records
	versions *versions
}

// startState returns the state that a run starts from, after making sure that it
// is the stack's own and what it should be. It is kept as a version first: what
// a run is about to destroy must be found again.
func (sts *states) startState(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) (state []byte, err error) {
	ref := p.note.State
	if ref == nil {
		return nil, sts.unshared(ctx, p, kind)
	}
	defer func() { p.entry.stateOwn = err == nil }()
	state, err = sts.loadState(ctx, p, *ref)
	if err != nil {
		return nil, fault.New(fault.Of(err), fault.Reason(err, string(stack.StateFailed)), fmt.Errorf("loading the state: %w", err))
	}
	if len(state) == 0 {
		return nil, sts.unshared(ctx, p, kind)
	}
	if !destructive(kind, cause) {
		return state, nil
	}
	return state, sts.versions.keepVersion(ctx, p.id, state, stack.StateVersion{By: p.o.Status.Wrote, At: p.o.Now, Before: p.name(kind, cause)}, nil)
}

// destructive reports whether a run may take something down.
func destructive(kind stack.RunKind, cause stack.Cause) bool {
	switch kind {
	case stack.DestroyRun, stack.BreakGlassRun:
		return true
	case stack.ApplyRun:
		return cause.Destroy || cause.Plan == nil || cause.Plan.Changes.Destroy > 0
	default:
		return false
	}
}

// storedState is the state of a stack as it was found, and what is to be said of it.
type storedState struct {
	kube.Stored
	facts     stack.StateFacts
	ours      []byte       // the copy in the records, where the Secret went with its namespace
	known     stack.Known  // what was expected
	head      stack.Known  // what the records have as stored last
	reason    stack.Reason // why it cannot be used as it is; empty if it can
	continued bool         // something else than a run wrote it after what was expected
}

// loadState returns the state of a stack, or says what is wrong with what is
// there. What something else wrote is kept as a version.
func (sts *states) loadState(ctx context.Context, p *pass, ref kube.StateRef) ([]byte, error) {
	s, err := sts.inspectState(ctx, p, ref)
	if err != nil || len(s.ours) > 0 {
		return s.ours, err
	}
	return s.State, sts.takeState(ctx, p, ref, s)
}

// inspectState reads the state of a stack and compares it with what is known of it.
// It writes nothing. An error says that the state is no state of this stack.
func (sts *states) inspectState(ctx context.Context, p *pass, ref kube.StateRef) (s storedState, err error) {
	s.Stored, err = sts.store.Load(ctx, ref)
	if s.Owner != "" && s.Owner != p.obj.GetName() {
		if err := sts.disowned(ctx, p, s.Owner); err != nil {
			return s, err
		}
	}
	if err != nil && fault.Reason(err, "") != kube.StateUnreadable {
		return s, err
	}
	if e := sts.index.find(s.OwnerUID); e != nil && dialect.KindOf(e.dialect) != dialect.KindOf(p.dialect) {
		return s, shared(s.Owner) // a stack of another kind has the same name
	}
	if s.Digest == "" && p.o.Deleting {
		// A namespace that is deleted takes the Secret with it, before the stack.
		if s.ours, err = sts.newestKept(ctx, p.id); err != nil || len(s.ours) > 0 {
			return s, err
		}
	}
	if err == nil && s.Digest != "" {
		s.facts, err = stack.ReadState(s.State)
	}
	if err != nil {
		return s, p.tampered(ref, fmt.Sprintf("cannot be read (%v)", err))
	}
	if err := p.adopts(ref, s.Stored, s.facts); err != nil {
		return s, err
	}
	list, err := sts.versions.list(ctx, p.id)
	if err != nil {
		return s, err
	}
	s.head, s.known = list.Head, p.expected(list.Head)
	if s.facts.Digest != "" && s.facts.Digest == s.known.Digest {
		return s, nil // as expected, which is the rule and costs one read
	}
	s.reason, s.continued = s.known.Judge(s.facts.Known, p.o.Status.Built && !p.o.Status.Destroyed)
	if s.reason == stack.StateTampered && s.Person != "" && s.facts.Follows(s.known) {
		s.reason, s.continued = "", true // a person took the place of a run that could not store
	}
	return s, nil
}

// adopts refuses a state that holds resources of a former stack of this name,
// unless the stack says that it continues it (F37): the user who creates a
// stack may not know that there was one.
func (p *pass) adopts(ref kube.StateRef, found kube.Stored, facts stack.StateFacts) error {
	former := found.OwnerUID != "" && found.OwnerUID != p.id && found.Owner == p.obj.GetName()
	if !former || p.o.Spec.AdoptState || p.o.Status.Known != (stack.Known{}) || facts.Resources == 0 && !facts.Sealed {
		return nil
	}
	return fault.New(fault.Denied, string(stack.StateNotAdopted), fmt.Errorf(
		"the Secret %s holds a state with %d resources of a former stack of this name: annotate this one with terrier.dev/adopt-state=true to continue it, or give it another backendConfig.secretSuffix to start with an empty state", ref, facts.Resources))
}

// takeState keeps what was found as a version if something else wrote it, and takes
// it over if it may be, or if a person accepted it.
func (sts *states) takeState(ctx context.Context, p *pass, ref kube.StateRef, s storedState) error {
	if s.facts.Digest != "" && s.facts.Digest == s.known.Digest {
		return nil
	}
	head := &s.facts.Known
	accepted := s.reason != "" && p.accepts(s.Digest)
	if s.reason != "" && !accepted {
		head = nil
	}
	news := s.continued && s.head != s.facts.Known
	if news && s.Person != "" {
		e := audit.Entry{What: audit.StatePushed, Why: "the state says who pushed it, and nothing proves that", Details: map[string]string{"by": s.Person, "state": s.facts.Known.String(), "after": s.known.String()}}
		if err := sts.auditor.record(ctx, p, e, s.facts.Known.Digest); err != nil {
			return err
		}
	}
	if s.facts.Digest != "" {
		v := stack.StateVersion{By: author(s.Stored, s.continued || s.reason != "", p.o.Status.Wrote), At: p.o.Now}
		if err := sts.versions.keepVersion(ctx, p.id, s.State, v, head); err != nil {
			return err
		}
	}
	switch {
	case accepted:
		p.o.Status.Known, p.o.Status.Accepted = s.facts.Known, p.o.Spec.AcceptState
		if s.facts.Digest == "" {
			p.o.Status.State = "" // there is none to go by
			if err := sts.versions.setHead(ctx, p.id, stack.Known{}); err != nil {
				return err
			}
		}
		sts.events.Event(p.obj, warning, "StateAccepted", fmt.Sprintf("The state %s was accepted, although %s was expected", stack.AcceptedState(p.o.Spec.AcceptState), s.known))
		return nil
	case s.reason != "":
		return p.refused(s.reason, ref, s.known, s.facts)
	case news:
		sts.events.Event(p.obj, normal, "StateContinued", fmt.Sprintf("The state was continued by %s: %s, after %s", author(s.Stored, true, ""), s.facts.Known, s.known))
	}
	return nil
}

// expected is the version that should be stored. The records remember it, too:
// they know more than a status that was restored from a backup.
func (p *pass) expected(head stack.Known) stack.Known {
	known, none := p.o.Status.Known, stack.Known{}
	if known == none || head.Follows(known) {
		known = head
	}
	if known == none && p.o.Status.Built {
		known.Digest = p.o.Status.State // written down before there was more
	}
	return known
}

// accepts reports whether a person said that exactly this may stand there, and
// was not taken at their word yet.
func (p *pass) accepts(digest string) bool {
	said := p.o.Spec.AcceptState
	if said == "" || said == p.o.Status.Accepted {
		return false
	}
	if digest == "" {
		digest = stack.NoState
	}
	return stack.AcceptedState(said) == digest
}

// author is who wrote what was found.
func author(found kube.Stored, foreign bool, run string) string {
	switch {
	case found.Person != "":
		return "person " + found.Person
	case foreign || run == "":
		return stack.ByOutside
	default:
		return run
	}
}

// refused says what is there, what was expected, and what gets out.
func (p *pass) refused(reason stack.Reason, ref kube.StateRef, known stack.Known, facts stack.StateFacts) error {
	what := "is " + facts.Known.String()
	switch {
	case facts.Digest == "":
		what = "is gone"
	case known.Unstored:
		what += ", which another client wrote during a run"
	}
	if reason == stack.StateTampered {
		return p.tampered(ref, fmt.Sprintf("%s; %s was expected", what, known))
	}
	return fault.New(fault.Denied, string(reason), fmt.Errorf("the state in the Secret %s %s, which does not follow %s. %s", ref, what, known, p.waysOut()))
}

func (p *pass) tampered(ref kube.StateRef, what string) error {
	return fault.New(fault.Denied, string(stack.StateTampered), fmt.Errorf("the state in the Secret %s %s. %s", ref, what, p.waysOut()))
}

// waysOut names the commands that end such a situation.
func (p *pass) waysOut() string {
	name := p.obj.GetName()
	out := fmt.Sprintf("Nothing is run on it. terrier state versions %s lists what is kept; terrier state rollback %[1]s SERIAL rolls back to one of them, terrier state push %[1]s FILE --force stores another, and terrier state accept %[1]s accepts the stored one", name)
	if p.o.Deleting {
		out += ". Or retain the resources: annotate the stack with terrier.dev/deletion=retain"
	}
	return out
}

// disowned refuses a state that another stack keeps: two stacks on one state
// would destroy each other's things by turns. A stack that is gone has no claim.
func (sts *states) disowned(ctx context.Context, p *pass, owner string) error {
	for _, d := range sts.dialects.All() {
		err := sts.live.Get(ctx, types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: owner}, d.New())
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			return shared(owner)
		}
	}
	return nil
}

func shared(owner string) error {
	return fault.New(fault.Denied, string(stack.StateShared), fmt.Errorf(
		"the state belongs to the stack %s: give one of the two another backendConfig.secretSuffix or workspace", owner))
}

// inherit finds out whether the state of a stack that never ran here holds
// resources: it does if a former stack of this name left them, and it may if the
// state cannot be read.
func (sts *states) inherit(ctx context.Context, p *pass) error {
	if p.o.Status.Built || p.o.Status.Destroyed || !p.o.Spec.DestroyLast || p.o.Blocked != nil {
		return nil
	}
	_, ref, _ := backendOf(p.st.Configuration, p.obj.GetNamespace())
	if ref == nil {
		return nil
	}
	s, err := sts.inspectState(ctx, p, *ref)
	switch stack.Reason(fault.Reason(err, "")) {
	case kube.StateNameInvalid:
		return nil // there can be none
	case stack.StateShared, stack.StateNotAdopted:
		return nil // it is another stack's
	case stack.StateTampered:
		p.o.Status.Built = true
		return nil // the destroy will say so
	}
	switch {
	case err != nil:
		return err
	case len(s.ours) > 0:
		s.facts, err = stack.ReadState(s.ours)
	case s.reason != "" && !p.accepts(s.Digest):
		p.o.Status.Built = true
		return nil // the destroy will say so
	}
	p.o.Status.Built = s.facts.Resources > 0 || s.facts.Sealed
	return err
}

// stateOutputs reads the outputs out of a managed state.
func (sts *states) stateOutputs(ctx context.Context, ref kube.StateRef) ([]byte, error) {
	found, err := sts.store.Load(ctx, ref)
	if err != nil {
		return nil, err
	}
	var s struct {
		Outputs json.RawMessage `json:"outputs"`
	}
	if len(found.State) == 0 {
		return []byte("{}"), nil
	}
	return s.Outputs, json.Unmarshal(found.State, &s)
}

// settleState stores what a run that ended made of the state, and says what is
// known of it from now on.
func (sts *states) settleState(ctx context.Context, p *pass, r *runner.Report, n note, run *stack.Run) error {
	if n.State != nil && r.State.Serial > 0 {
		run.Known = stack.Known{Lineage: r.State.Lineage, Serial: r.State.Serial, Digest: r.State.Digest}
	}
	if !r.Kind.Writes() {
		return nil
	}
	err := sts.flush(ctx, p, r, n)
	unstored := fault.Reason(err, "") == kube.StateConflict
	if err != nil && !unstored {
		return fmt.Errorf("storing the state after %s: %w", r.ID, err)
	}
	if n.State != nil {
		state, err := sts.records.left(p.id, r.ID, runner.FileState)
		if err == nil && len(state) > 0 {
			run.Known, err = sts.keepRun(ctx, p, r.ID, state, unstored)
		}
		if err != nil {
			return fmt.Errorf("keeping the state after %s: %w", r.ID, err)
		}
	}
	if unstored {
		sts.events.Event(p.obj, warning, "StateNotStored", fmt.Sprintf("Another client wrote the state during the run %s; the state of the run is kept as the version %d: %v", r.ID, run.Known.Serial, err))
	}
	return sts.rescue(ctx, p, r, n, run)
}

// keepRun keeps the state of a run as the version that is expected from now on.
func (sts *states) keepRun(ctx context.Context, p *pass, id string, state []byte, unstored bool) (stack.Known, error) {
	facts, err := stack.ReadState(state)
	if err != nil {
		return stack.Known{}, err
	}
	facts.Unstored = unstored
	v := stack.StateVersion{By: id, At: p.o.Now}
	if unstored {
		v.Before = id // it stays until a person dealt with it
	}
	return facts.Known, sts.versions.keepVersion(ctx, p.id, state, v, &facts.Known)
}

// newest is the last state that was stored of a stack whose state we keep.
func (sts *states) newest(ctx context.Context, p *pass, r *runner.Report, n note) ([]byte, error) {
	if n.State == nil {
		return sts.records.left(p.id, r.ID, runner.FileState)
	}
	return sts.newestKept(ctx, p.id)
}

// newestKept is our own copy of the newest state, empty if there is none.
func (sts *states) newestKept(ctx context.Context, id string) ([]byte, error) {
	state, err := sts.records.get(ctx, record.State(id))
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	return state, err
}

// flush stores the newest state that the supervisor acknowledged.
func (sts *states) flush(ctx context.Context, p *pass, r *runner.Report, n note) error {
	if n.State == nil {
		return nil
	}
	state, err := sts.records.left(p.id, r.ID, runner.FileState)
	if err != nil || len(state) == 0 {
		return err
	}
	// A copy of our own: a namespace that is deleted takes the Secret with it
	// before the stack is destroyed.
	if err := sts.records.put(ctx, record.State(p.id), state); err != nil {
		return err
	}
	err = sts.store.Save(ctx, *n.State, kube.Owner{Name: p.obj.GetName(), UID: p.id}, state)
	if p.o.Deleting && fault.Of(err) == fault.Denied {
		return nil // nothing can be made in a namespace that goes away
	}
	return err
}

// rescue takes over a state that could not be stored during the run, if it
// follows the one that is, and keeps it otherwise.
func (sts *states) rescue(ctx context.Context, p *pass, r *runner.Report, n note, run *stack.Run) error {
	if n.State != nil {
		state, err := sts.records.left(p.id, r.ID, runner.FileRescue)
		if err != nil || state == nil {
			return err
		}
		if _, err := stack.ReadState(state); err != nil {
			// The engine could not write it out, on a disk without room: what it
			// created and no state tracks is found in its events.
			sts.events.Event(p.obj, warning, "StateNotRescued", fmt.Sprintf("The newest state could not be stored during %s, and the file that the engine left of it is no state (%d bytes): %v", r.ID, len(state), err))
			return sts.records.put(ctx, record.Rescued(p.id, r.ID), state)
		}
		if sts.store.Save(ctx, *n.State, kube.Owner{Name: p.obj.GetName(), UID: p.id}, state) == nil {
			sts.events.Event(p.obj, warning, "StateRescued", "The newest state could not be stored during the run, and was stored after it")
			if run.Known, err = sts.keepRun(ctx, p, r.ID, state, false); err != nil {
				return err
			}
			return sts.records.put(ctx, record.State(p.id), state)
		}
	}
	kept, err := sts.records.keep(ctx, p.id, r.ID, runner.FileRescue, record.Rescued(p.id, r.ID))
	if kept && err == nil {
		sts.events.Event(p.obj, warning, "StateRescued", "The backend refused the newest state, which is kept. To write it to a file: terrier state pull --rescued "+r.ID)
	}
	return err
}
