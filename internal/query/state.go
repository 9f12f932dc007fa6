package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// The reasons of faults about states.
const (
	ReasonNoReason     = "NoReason"        // the reason is missing that a user has to give
	ReasonAsExpected   = "StateAsExpected" // no unexpected state was found
	ReasonNoState      = "NoState"         // there is none, or what was given is none
	ReasonStateForeign = "StateForeign"    // Terrier does not keep it
	ReasonNoVersion    = "NoVersion"       // of that serial
	ReasonStateUnseen  = "StateUnseen"     // no version of the stored state is kept
	ReasonStateBehind  = "StateBehind"     // the uploaded state does not follow the stored one
	ReasonRunning      = "RunGoesOn"       // a run goes on
	ReasonLocked       = "LockedByOther"   // another user or program holds the lock
	ReasonNoLock       = "NoLock"
	ReasonLockChanged  = "LockChanged"
)

// StateInfo is what is known of the state of a stack.
type StateInfo struct {
	Namespace string        `json:"namespace"`
	Stack     string        `json:"stack"`
	Kind      string        `json:"kind,omitempty"` // of the stack, as Key has it
	Kept      string        `json:"kept"`           // where: the Secret's name, or that the stack keeps it elsewhere
	Lineage   string        `json:"lineage,omitempty"`
	Serial    uint64        `json:"serial,omitempty"`
	Digest    string        `json:"digest,omitempty"`
	Resources int           `json:"resources,omitempty"` // managed resource instances
	Sealed    bool          `json:"sealed,omitempty"`    // it is encrypted, and they cannot be counted
	Bytes     int           `json:"bytes,omitempty"`
	Packed    int           `json:"packed,omitempty"`    // in the Secret
	Outgrown  bool          `json:"outgrown,omitempty"`  // the Secret only points to it
	Encrypted bool          `json:"encrypted,omitempty"` // with a key of the platform
	Problem   string        `json:"problem,omitempty"`   // why it cannot be read
	Lock      *StateLock    `json:"lock,omitempty"`
	Known     stack.StateID `json:"known,omitzero"` // the version that the stack saw last
}

// StateLock is who holds the lock on a state.
type StateLock struct {
	ID     string    `json:"id"`
	Who    string    `json:"who,omitempty"`
	Info   string    `json:"info,omitempty"`
	Since  time.Time `json:"since"`
	Person string    `json:"person,omitempty"` // who locked it with terrier state lock; empty if that was not so
}

// StateReader answers questions about the states of stacks.
type StateReader interface {
	StateInfos(context.Context, Filter) ([]StateInfo, error)
	StateVersions(context.Context, Key) (KeptStates, error)
	StateOf(ctx context.Context, key Key, version string, reveal bool) (plan.StateView, error)
	PullState(ctx context.Context, key Key, version string) ([]byte, error)
	RescuedState(ctx context.Context, key Key, run string) ([]byte, error)
	StateKeys(ctx context.Context, key Key, reason string) (StateKeys, error)
}

// States answers questions about the states that Terrier stores.
type States struct{ *Objects }

// StoredState is the state of one stack, and where it is stored.
type StoredState struct {
	Object *Object
	ID     StackID
	Ref    kube.StateRef
	States kube.States
}

// stored finds the state of a stack; nil if Terrier does not store it.
func (s *States) stored(o *Object) *StoredState {
	if o.Configuration.Backend.Kind != stack.Managed {
		return nil
	}
	h := &StoredState{Object: o, ID: o.ID(), Ref: kube.RefOf(o.Configuration, o.GetNamespace())}
	server := beside{s.Records, h.ID, h.Ref}
	h.States = kube.States{Client: s.Kube, Now: s.Now, Overflow: server, Cipher: server, Git: inGit{server}}
	return h
}

// StoredState finds the state of a stack. It is Invalid if a backend of the module
// has it.
func (s *States) StoredState(ctx context.Context, key Key) (*StoredState, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	h := s.stored(o)
	if h == nil {
		return nil, fault.New(fault.Invalid, ReasonStateForeign, fmt.Errorf("the stack %s keeps its state in a backend of its own, and not with Terrier", key))
	}
	return h, nil
}

// StateInfos says how the states of the stacks that f chooses stand. A state
// that cannot be read is a problem of its own and not of the others.
func (s *States) StateInfos(ctx context.Context, f Filter) ([]StateInfo, error) {
	list, err := s.All(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]StateInfo, 0, len(list))
	for _, o := range list {
		info, err := s.stateInfo(ctx, o)
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b StateInfo) int {
		return compareKeys(a.Key(), b.Key())
	})
	return out, nil
}

// Key names the stack.
func (s StateInfo) Key() Key { return Key{Namespace: s.Namespace, Name: s.Stack, Kind: s.Kind} }

func (s *States) stateInfo(ctx context.Context, o *Object) (StateInfo, error) {
	info := StateInfo{Namespace: o.GetNamespace(), Stack: o.GetName(), Kind: o.Kind, Kept: "elsewhere"}
	h := s.stored(o)
	if h == nil {
		return info, nil
	}
	info.Kept, info.Known = h.Ref.String(), o.Status.KnownState
	found, err := h.States.Load(ctx, h.Ref)
	info.Digest, info.Packed, info.Outgrown, info.Encrypted = found.Digest, found.Packed, found.Outgrown, found.Encrypted
	var facts stack.StateFacts
	if err == nil && found.Digest != "" {
		facts, err = stack.ReadState(found.State)
	}
	if err != nil {
		info.Problem = err.Error()
	}
	info.Lineage, info.Serial, info.Resources, info.Bytes = facts.Lineage, facts.Serial, facts.Resources, facts.Bytes
	info.Sealed = facts.Sealed
	lock, err := h.Lock(ctx)
	if err != nil {
		info.Problem = errors.Join(errors.New(info.Problem), err).Error()
	}
	info.Lock = lock
	return info, nil
}

// StateOf returns what the newest state of a stack says, or one version of it.
// What is sensitive or came from a Secret is masked unless reveal is set. While it
// is not known what came from Secrets, every value is masked.
func (s *States) StateOf(ctx context.Context, key Key, version string, reveal bool) (plan.StateView, error) {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return plan.StateView{}, err
	}
	raw, err := s.pull(ctx, h, version)
	if err != nil {
		return plan.StateView{}, err
	}
	show := plan.Showing{Reveal: reveal}
	if show.Secrets, err = s.Records.SecretPrints(ctx, h.ID); err != nil {
		show.Unknown = maskedFor(err)
	}
	return plan.ViewState(raw, show)
}

// maskedFor says why every value is masked.
func maskedFor(unknown error) string {
	return fmt.Sprintf("every value is masked, because the server did not say which values came from Secrets: %v", unknown)
}

// id is how the records know a stack.
func (s *States) id(ctx context.Context, key Key) (StackID, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return StackID{}, err
	}
	return o.ID(), nil
}

// PullState returns the newest state of a stack as it is stored, or one version
// of it: by its serial, or by the beginning of its digest where one serial has
// several.
func (s *States) PullState(ctx context.Context, key Key, version string) ([]byte, error) {
	h, err := s.StoredState(ctx, key)
	if version != "" && fault.Reason(err, "") == ReasonStateForeign {
		// Versions outlive a change of the place, and are what a user moves to the next one.
		o, err := s.Read(ctx, key)
		if err != nil {
			return nil, err
		}
		return s.pull(ctx, &StoredState{Object: o, ID: o.ID()}, version)
	}
	if err != nil {
		return nil, err
	}
	return s.pull(ctx, h, version)
}

func (s *States) pull(ctx context.Context, h *StoredState, version string) ([]byte, error) {
	if version != "" {
		v, err := s.Version(ctx, h, version)
		if err != nil {
			return nil, err
		}
		return ReadState(s.Records.State(ctx, h.ID, v.Key()))
	}
	found, err := h.States.Load(ctx, h.Ref)
	if err != nil {
		return nil, err
	}
	if found.Digest == "" {
		return nil, fault.New(fault.Missing, ReasonNoState, fmt.Errorf("the stack %s has no state yet (%s)", h.ID.Key, h.Ref.InWords()))
	}
	return found.State, nil
}

// RescuedState returns the state of a run that the backend refused.
func (s *States) RescuedState(ctx context.Context, key Key, run string) ([]byte, error) {
	id, err := s.id(ctx, key)
	if err != nil {
		return nil, err
	}
	return ReadState(s.Records.State(ctx, id, RescuedName(run)))
}

func ReadState(r io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, stateBytes))
	return b, errors.Join(err, r.Close())
}

// StateVersions lists what is kept of the past of a state.
func (s *States) StateVersions(ctx context.Context, key Key) (KeptStates, error) {
	id, err := s.id(ctx, key)
	if err != nil {
		return KeptStates{}, err
	}
	return s.Records.States(ctx, id)
}

// SecretPrints recognise the values from Secrets that a stack was given.
func (s *States) SecretPrints(ctx context.Context, key Key) (plan.Prints, error) {
	id, err := s.id(ctx, key)
	if err != nil {
		return plan.Prints{}, err
	}
	return s.Records.SecretPrints(ctx, id)
}

// ServerState opens a state of the records, for the HTTP API.
func (s *States) ServerState(ctx context.Context, key Key, name string) (io.ReadCloser, error) {
	id, err := s.id(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.Records.State(ctx, id, name)
}

// ServerOutgrown opens the state of a stack that outgrew its Secret.
func (s *States) ServerOutgrown(ctx context.Context, key Key, digest string) (io.ReadCloser, error) {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.Records.Outgrown(ctx, h.ID, h.Ref, digest)
}

// KeepOutgrown keeps a state of a stack that outgrew its Secret.
func (s *States) KeepOutgrown(ctx context.Context, key Key, state []byte) error {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return err
	}
	return s.Records.KeepOutgrown(ctx, h.ID, h.Ref, state)
}

// ServerEncrypt encrypts a state of a stack, for a user who stores it.
func (s *States) ServerEncrypt(ctx context.Context, key Key, state []byte) ([]byte, error) {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.Records.EncryptState(ctx, h.ID, h.Ref, state)
}

// ServerDecrypt decrypts a state of a stack, for a user who read it where it is stored.
func (s *States) ServerDecrypt(ctx context.Context, key Key, document []byte) ([]byte, error) {
	h, err := s.StoredState(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.Records.DecryptState(ctx, h.ID, h.Ref, document)
}

// ServerInGit reads the state of a stack that Terrier keeps in git.
func (s *States) ServerInGit(ctx context.Context, key Key) (StateInGit, error) {
	h, err := s.inGit(ctx, key)
	if err != nil {
		return StateInGit{}, err
	}
	return s.Records.StateInGit(ctx, h.ID, h.Ref)
}

// ServerReplaceInGit stores a state of a user in git, over the one that the user saw. The user
// has to hold the lock: nothing else keeps a run from writing at the same time.
func (s *States) ServerReplaceInGit(ctx context.Context, key Key, person, over string, state []byte) error {
	h, err := s.inGit(ctx, key)
	if err != nil {
		return err
	}
	l, err := h.Lock(ctx)
	if err != nil {
		return err
	}
	if l == nil || l.Person == "" || l.Person != person {
		return fault.New(fault.Conflict, ReasonLocked, fmt.Errorf("you do not hold the lock on the state of %s: store a state with terrier state push or terrier state rollback, which take it", key))
	}
	return s.Records.ReplaceInGit(ctx, h.ID, h.Ref, kube.Replacement{State: state, Over: over, Owner: kube.Owner{Name: key.Name, UID: h.ID.UID}, Person: person})
}

func (s *States) inGit(ctx context.Context, key Key) (*StoredState, error) {
	h, err := s.StoredState(ctx, key)
	if err == nil && h.Ref.Git == nil {
		err = fault.New(fault.Invalid, ReasonStateForeign, fmt.Errorf("the state of the stack %s is in no repository of git", key))
	}
	return h, err
}

// StateKeys returns the keys that decrypt the state of a stack outside of Terrier.
func (s *States) StateKeys(ctx context.Context, key Key, reason string) (StateKeys, error) {
	if strings.TrimSpace(reason) == "" {
		return StateKeys{}, fault.New(fault.Invalid, ReasonNoReason, errors.New("the keys of a state need a reason, which goes to the audit log"))
	}
	o, err := s.Read(ctx, key)
	if err != nil {
		return StateKeys{}, err
	}
	place := encryption.OfStack(dialect.KindOf(s.Kinds.Named(key.Kind)), o.GetNamespace(), o.GetName())
	if h := s.stored(o); h != nil {
		place = h.Ref.KeyPlace()
	}
	return s.Records.StateKeys(ctx, o.ID(), place, reason)
}

// Version finds a version of a state by its serial or by its digest.
func (s *States) Version(ctx context.Context, h *StoredState, meant string) (stack.StateVersion, error) {
	kept, err := s.Records.States(ctx, h.ID)
	if err != nil {
		return stack.StateVersion{}, err
	}
	var found []stack.StateVersion
	for _, v := range kept.Versions {
		if fmt.Sprint(v.Serial) == meant || len(meant) >= 8 && hasDigest(v.Digest, meant) {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 0:
		return stack.StateVersion{}, fault.New(fault.Missing, ReasonNoVersion, fmt.Errorf("no version %s of the state of %s is kept", meant, h.ID.Key))
	case 1:
		return found[0], nil
	default:
		return stack.StateVersion{}, fault.New(fault.Invalid, ReasonNoVersion, fmt.Errorf("%d versions of the state of %s have the serial %s: name one by its digest, of which the newest is %s", len(found), h.ID.Key, meant, found[len(found)-1].Digest))
	}
}

// hasDigest reports whether a digest has a prefix.
func hasDigest(digest, begins string) bool {
	for _, d := range []string{digest, digest[len("sha256:"):]} {
		if len(begins) <= len(d) && d[:len(begins)] == begins {
			return true
		}
	}
	return false
}

// uncompared says why Terrier cannot find another stack with the same state; empty if
// it can, or if there can be none.
func uncompared(c stack.Configuration) string {
	why := ""
	switch c.Backend.Kind {
	case stack.Custom:
		why = module.CustomPlace(c.Backend.Custom, c.Workspace).Why
	case stack.Plugin:
		why = module.PluginPlace(c.Backend, "", cmp.Or(c.Workspace, "default")).Why
	case stack.Declared:
		why = "the module chooses its backend (backendConfig.disable)"
	}
	if why == "" {
		return ""
	}
	return "Terrier does not know whether another stack has the same state: " + why
}

// NoAddress is the error of an address that is not in a state.
func NoAddress(address string) error {
	return fault.New(fault.Missing, ReasonNoState, fmt.Errorf("the state holds no %s", address))
}

// heldByPerson begins the holder of a lock that a person took.
const HeldByPerson = "person/"

// Lock is the lock on the state, nil if it is not locked.
func (h *StoredState) Lock(ctx context.Context) (*StateLock, error) {
	l, err := h.States.Holder(ctx, h.Ref)
	if err != nil || l == nil {
		return nil, err
	}
	person, ok := strings.CutPrefix(l.Holder.Holder, HeldByPerson)
	if !ok {
		person = ""
	}
	return &StateLock{ID: l.Holder.ID, Who: l.Holder.Who, Info: l.Holder.Info, Since: l.Holder.Created, Person: person}, nil
}
