package states

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/gitstate"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Inspector reads the states of stacks and compares them with what is known of
// them. It writes nothing.
type Inspector struct {
	Live     client.Reader
	Dialects dialect.Registry
	LeftOut  dialect.Registry // kinds that are not reconciled here
	Store    interface {
		Load(ctx context.Context, ref kube.StateRef) (kube.Stored, error)
	}
	KindOf   func(uid string) string // the kind of a stack that is known; empty if it is not
	Records  *records.Store
	Versions *Versions
}

// found is the state of a stack as it was found, and what is to be said of it.
type found struct {
	kube.Stored
	facts     stack.StateFacts
	ours      []byte              // the copy in the records, where the Secret went with its namespace
	known     stack.StateID       // what was expected
	head      stack.StateID       // what the records have as stored last
	reason    stack.Reason        // why it cannot be used as it is; empty if it can
	came      bool                // the last known state was in a backend of the stack's own
	missing   *stack.MissingState // that this does not continue; nil if it does
	continued bool                // something else than a run wrote it after what was expected
}

// inspect reads the state of a stack and compares it with what is known of it.
// It writes nothing. An error says that the state is no state of this stack.
func (in *Inspector) inspect(ctx context.Context, of Subject, ref kube.StateRef) (s found, err error) {
	s.Stored, err = in.Store.Load(ctx, of.current(ref))
	if fault.Reason(err, "") == gitstate.ReasonNoAccess && of.Observed.Deleting {
		// A namespace that is deleted takes the credentials for the repository with it.
		if s.ours, err = in.Newest(ctx, of.ID); err == nil && len(s.ours) == 0 && of.Observed.Status.Created {
			err = fault.New(fault.Denied, string(stack.StateFailed), fmt.Errorf("%s cannot be read any more, and the records have no copy of the state. Give the stack its credentials back, or retain the resources: annotate the stack with terrier.dev/deletion=retain", ref.InWords()))
		}
		return s, err
	}
	if s.Owner != "" && s.Owner != of.Object.GetName() {
		if err := in.disowned(ctx, of, s.Owner); err != nil {
			return s, err
		}
	}
	if err != nil && fault.Reason(err, "") != kube.StateUnreadable {
		return s, err
	}
	if kind := in.KindOf(s.OwnerUID); kind != "" && kind != dialect.KindOf(of.Dialect) {
		return s, shared(of, s.Owner) // a stack of another kind has the same name
	}
	if s.Digest == "" && of.Observed.Deleting {
		// A namespace that is deleted takes the Secret with it, before the stack.
		ours, err := in.Newest(ctx, of.ID)
		if s.ours = ours; err != nil || len(ours) > 0 {
			return s, err
		}
	}
	if err == nil && s.Digest != "" {
		s.facts, err = stack.ReadState(s.State)
	}
	if err != nil {
		return s, of.tampered(ref, fmt.Sprintf("cannot be read (%v)", err))
	}
	if err := of.adopts(ref, s.Stored, s.facts); err != nil {
		return s, err
	}
	list, err := in.Versions.list(ctx, of.ID)
	if err != nil {
		return s, err
	}
	s.head, s.known = list.Head, of.expected(list.Head)
	if s.Foreign && s.facts.Digest != s.known.Digest {
		s.reason = stack.StateTampered // every user who may push could have written it
		return s, nil
	}
	if s.came, s.missing, err = in.moved(ctx, of, ref, s.facts); err != nil {
		return s, err
	}
	if s.came {
		s.continued = s.missing == nil
		if s.missing != nil {
			s.reason = stack.StateMissing
		}
		return s, nil
	}
	if s.facts.Digest != "" && s.facts.Digest == s.known.Digest {
		return s, nil // as expected, which is the rule and costs one read
	}
	s.reason, s.continued = s.known.Judge(s.facts.StateID, of.Observed.Status.Created && !of.Observed.Status.Destroyed)
	if s.reason == stack.StateTampered && s.Person != "" && s.facts.Follows(s.known) {
		s.reason, s.continued = "", true // a person took the place of a run that could not store
	}
	return s, nil
}

// moved compares a state with the last known one of the stack, if that was in a backend of the
// stack's own: then it tells more than the versions. It reports whether that was so.
func (in *Inspector) moved(ctx context.Context, of Subject, ref kube.StateRef, facts stack.StateFacts) (came bool, missing *stack.MissingState, err error) {
	place := ManagedPlace(ref)
	last, err := in.Last(ctx, of, place)
	if err != nil || last.Managed || !last.Holds() {
		return false, nil, err
	}
	expected := stack.ExpectedState{Last: last, Place: place, In: ref.InWords(), Managed: true}
	return true, expected.Check(facts), nil
}

// Last is the last known state of a stack, which a run in a place has to continue. Earlier
// releases wrote none down: then it is what the versions and the record of the last apply say.
func (in *Inspector) Last(ctx context.Context, of Subject, place string) (stack.LastState, error) {
	m := of.Observed.Status
	if m.LastState != (stack.LastState{}) || !m.Created || m.Destroyed || m.Snapshot == "" {
		return m.LastState, nil
	}
	before, err := record.SnapshotNamed[applied](of.ID, m.Snapshot).Read(ctx, in.Records.Blobs)
	if fault.Of(err) == fault.Missing {
		return stack.LastState{}, nil
	}
	if err != nil {
		return stack.LastState{}, fmt.Errorf("reading where the state was: %w", err)
	}
	switch was := before.Note; {
	case was.State != nil:
		list, err := in.Versions.list(ctx, of.ID)
		if err != nil {
			return stack.LastState{}, err
		}
		for _, v := range list.Versions {
			if v.Digest == m.KnownState.Digest {
				return LastStateIn(*was.State, stack.StateFacts{StateID: stack.StateID{Lineage: v.Lineage, Serial: v.Serial}, Resources: v.Resources, Sealed: v.Sealed}), nil
			}
		}
		return stack.LastState{}, nil
	case m.Applied != nil && was.Backend != "" && was.Backend != place:
		return stack.LastState{Place: was.Backend, Uncounted: true}, nil
	default:
		return stack.LastState{}, nil
	}
}

// remember notes the state that a run begins with as the last known one.
func (of Subject) remember(ref kube.StateRef, facts stack.StateFacts) {
	of.Observed.Status.LastState = LastStateIn(ref, facts)
}

// adopts refuses a state that holds resources of a former stack of this name,
// unless the stack says that it continues it (F37): the user who creates a
// stack may not know that there was one.
func (of Subject) adopts(ref kube.StateRef, stored kube.Stored, facts stack.StateFacts) error {
	former := stored.OwnerUID != "" && stored.OwnerUID != of.ID && stored.Owner == of.Object.GetName()
	if !former || of.adopting() || of.Observed.Status.KnownState != (stack.StateID{}) || !holds(facts) {
		return nil
	}
	return fault.New(fault.Denied, string(stack.StateNotAdopted), fmt.Errorf(
		"%s holds %s of a former stack of this name: annotate this one with terrier.dev/adopt-state=true to continue it, or give it another %s to start with an empty state", ref.InWords(), contents(facts), of.Observed.Spec.Words.StateName))
}

// adopting reports whether the stack continues the state of a former one. An object that
// is deleted before anything ran for it continues nothing: a destroy of what another object
// built would be the first that it does. Such an object is no user's wish to destroy, where
// a restore created it without its owner and the API server collected it.
func (of Subject) adopting() bool {
	m := of.Observed.Status
	return of.Observed.Spec.AdoptState && (!of.Observed.Deleting || m.Created || m.LastRun != "")
}

// expected is the version that should be stored. The records remember it, too:
// they know more than a status that was restored from a backup.
func (of Subject) expected(head stack.StateID) stack.StateID {
	known, none := of.Observed.Status.KnownState, stack.StateID{}
	if known == none || head.Follows(known) {
		known = head
	}
	if known == none && of.Observed.Status.Created {
		known.Digest = of.Observed.Status.State // written down before there was more
	}
	return known
}

// accepts reports whether a person said that exactly this may stand there, and
// was not taken at their word yet.
func (of Subject) accepts(digest string) bool {
	said := of.Observed.Spec.AcceptState
	if said == "" || said == of.Observed.Status.AcceptedState {
		return false
	}
	if digest == "" {
		digest = stack.NoState
	}
	return stack.AcceptedState(said) == digest
}

// author is who wrote what was found.
func author(stored kube.Stored, foreign bool, run string) string {
	switch {
	case stored.Person != "":
		return "person " + stored.Person
	case foreign || run == "":
		return stack.ByOutside
	default:
		return run
	}
}

// refused says what is there, what was expected, and what gets out.
func (of Subject) refused(reason stack.Reason, ref kube.StateRef, known stack.StateID, facts stack.StateFacts, foreign bool) error {
	what := "is " + facts.StateID.String()
	switch {
	case facts.Digest == "":
		what = "is gone"
	case known.Unstored:
		what += ", which another client wrote during a run"
	case foreign:
		what += ", which Terrier did not write"
	}
	if reason == stack.StateTampered {
		return of.tampered(ref, fmt.Sprintf("%s; %s was expected", what, known))
	}
	return fault.New(fault.Denied, string(reason), fmt.Errorf("the state in %s %s, which does not follow %s. %s", ref.InWords(), what, known, of.waysOut()))
}

func (of Subject) tampered(ref kube.StateRef, what string) error {
	return fault.New(fault.Denied, string(stack.StateTampered), fmt.Errorf("the state in %s %s. %s", ref.InWords(), what, of.waysOut()))
}

// waysOut names the commands that end such a situation.
func (of Subject) waysOut() string {
	name := of.Observed.Spec.Words.Argument
	out := fmt.Sprintf("Nothing is run on it. terrier state versions %s lists what is kept; terrier state rollback %[1]s SERIAL rolls back to one of them, terrier state push %[1]s FILE --force stores another, and terrier state accept %[1]s accepts the stored one", name)
	if of.Observed.Deleting {
		out += ". Or retain the resources: annotate the stack with terrier.dev/deletion=retain"
	}
	return out
}

// disowned refuses a state that another stack keeps: two stacks on one state
// would destroy each other's things by turns. A stack that is gone has no claim.
func (in *Inspector) disowned(ctx context.Context, of Subject, owner string) error {
	for _, d := range append(in.Dialects.All(), in.LeftOut.All()...) {
		err := in.Live.Get(ctx, types.NamespacedName{Namespace: of.Object.GetNamespace(), Name: owner}, d.New())
		if meta.IsNoMatchError(err) && in.LeftOut.Of(dialect.KindOf(d)) != nil {
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			return shared(of, owner)
		}
	}
	return nil
}

func shared(of Subject, owner string) error {
	return fault.New(fault.Denied, string(stack.StateShared), fmt.Errorf(
		"the state belongs to the stack %s: give one of the two another %s", owner, of.Observed.Spec.Words.StatePlace))
}

// Inherit finds out whether the state of a stack that never ran here holds
// resources: it does if a user accepts those that a controller before this one left, and it may
// if the state cannot be read. The state of a former stack of this name is not the stack's, though
// it asks for it: see adopting. Its error is Denied with StateNotAdopted while a user has to say
// whether the resources are the stack's.
func (in *Inspector) Inherit(ctx context.Context, of Subject) error {
	if of.Observed.Status.Created || of.Observed.Status.Destroyed || !of.Observed.Spec.DestroyLast || of.Observed.Blocked != nil {
		return nil
	}
	_, ref, _ := Backend(of.Asked.Configuration, of.Object.GetNamespace())
	if ref == nil {
		return nil
	}
	s, err := in.inspect(ctx, of, *ref)
	switch stack.Reason(fault.Reason(err, "")) {
	case kube.StateNameInvalid:
		return nil // there can be none
	case stack.StateShared, stack.StateNotAdopted:
		return nil // it is another stack's
	case stack.StateTampered:
		of.Observed.Status.Created = true
		return nil // the destroy will say so
	}
	switch {
	case err != nil:
		return err
	case len(s.ours) > 0:
		s.facts, err = stack.ReadState(s.ours)
	case s.reason != "" && !of.accepts(s.Digest):
		of.Observed.Status.Created = true
		return nil // the destroy will say so
	}
	if err == nil && len(s.ours) == 0 {
		err = of.inherits(*ref, s)
	}
	if err == nil {
		of.Observed.Status.Created = holds(s.facts)
	}
	return err
}

// inherits refuses a state with resources that names no owner to an object that is deleted
// before anything ran for it. Another controller may have left it for this object, or a backup
// brought back both: then the first thing that the object does would be to destroy. Only a
// user can tell.
func (of Subject) inherits(ref kube.StateRef, s found) error {
	m := of.Observed.Status
	if s.OwnerUID != "" || m.LastRun != "" || m.KnownState != (stack.StateID{}) || !holds(s.facts) || of.accepts(s.Digest) {
		return nil
	}
	return fault.New(fault.Denied, string(stack.StateNotAdopted), fmt.Errorf(
		"%s holds %s and names no stack. This stack was deleted before anything ran for it, so that Terrier does not know whether the resources are its own, and destroys nothing. To destroy them: terrier state accept %s. To keep them, annotate the stack with terrier.dev/deletion=retain",
		ref.InWords(), contents(s.facts), of.Observed.Spec.Words.Argument))
}

// holds reports whether a state has resources, or may have some.
func holds(f stack.StateFacts) bool { return f.Resources > 0 || f.Sealed }

// contents says what a state holds.
func contents(f stack.StateFacts) string {
	if f.Sealed {
		return "an encrypted state, whose resources cannot be counted,"
	}
	return "a state with " + plural.Count(f.Resources, "resource")
}

// Outputs reads the outputs out of a managed state.
func (in *Inspector) Outputs(ctx context.Context, ref kube.StateRef) ([]byte, error) {
	stored, err := in.Store.Load(ctx, ref)
	if err != nil {
		return nil, err
	}
	var s struct {
		Outputs json.RawMessage `json:"outputs"`
	}
	if len(stored.State) == 0 {
		return []byte("{}"), nil
	}
	return s.Outputs, json.Unmarshal(stored.State, &s)
}

// Newest is our own copy of the newest state, empty if there is none.
func (in *Inspector) Newest(ctx context.Context, id string) ([]byte, error) {
	state, err := in.Records.Get(ctx, record.State(id))
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	return state, err
}

// applied is the part of the record of the last apply that says where the state was.
type applied struct {
	Note struct {
		State   *kube.StateRef `json:"state"`
		Backend string         `json:"backend"`
	}
}

// elsewhere is the error of a state that is missing because the spec names another
// place for it than before; nil if that is not so, or not known.
func (kp *Keeper) elsewhere(ctx context.Context, of Subject, ref kube.StateRef, s found) error {
	if s.facts.Digest != "" {
		return nil
	}
	was, err := kp.lastPlace(ctx, of, s.known)
	if err != nil {
		return fmt.Errorf("reading where the state was before: %w", err)
	}
	if was == "" || was == ref.String() {
		return nil
	}
	words := of.Observed.Spec.Words.StateName
	if ref.Git != nil || strings.Contains(was, "::") {
		words = of.Observed.Spec.Words.StateBack
	}
	return fault.New(fault.Denied, string(s.reason), fmt.Errorf(
		"the spec names another place for the state: it was last stored in %s (%s), and %s holds none. Nothing is run. To keep the old place, set %s back. To store the newest version in the new place, with its lock: terrier state rollback %s %d -n %s; the old place stays as it is",
		stack.PlaceInWords(was), s.known, ref.InWords(), words, of.Observed.Spec.Words.Argument, s.known.Serial, of.Object.GetNamespace()))
}

// lastPlace returns the Secret that a version of the state was stored in, and that of
// the last apply if its record has none; empty if neither is known.
func (kp *Keeper) lastPlace(ctx context.Context, of Subject, known stack.StateID) (string, error) {
	list, err := kp.Versions.list(ctx, of.ID)
	if err != nil {
		return "", err
	}
	if was := list.Place(known.Digest); was != "" {
		return was, nil
	}
	snapshot := of.Observed.Status.Snapshot
	if snapshot == "" {
		return "", nil
	}
	before, err := record.SnapshotNamed[applied](of.ID, snapshot).Read(ctx, kp.Records.Blobs)
	if fault.Of(err) == fault.Missing || err == nil && before.Note.State == nil {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return before.Note.State.String(), nil
}
