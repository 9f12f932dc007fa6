package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// StateRecords are the states of the past, and those that have no room in the
// cluster.
type StateRecords interface {
	// States lists the versions of a stack's state that are kept, and the states
	// that backends refused.
	States(ctx context.Context, id StackID) (KeptStates, error)
	// State opens one of them, by the name that the list gives it.
	State(ctx context.Context, id StackID, name string) (io.ReadCloser, error)
	// Outgrown opens the state of that digest that is kept beside its Secret.
	Outgrown(ctx context.Context, id StackID, ref kube.StateRef, digest string) (io.ReadCloser, error)
	// KeepOutgrown keeps a state beside its Secret.
	KeepOutgrown(ctx context.Context, id StackID, ref kube.StateRef, state []byte) error
	// StateInGit reads a state that Terrier keeps in git. Only the server has the credentials.
	StateInGit(ctx context.Context, id StackID, ref kube.StateRef) (StateInGit, error)
	// ReplaceInGit stores the state of a user there, over the one that the user saw. The server
	// knows the user.
	ReplaceInGit(ctx context.Context, id StackID, ref kube.StateRef, r kube.Replacement) error
}

// StateInGit is a state in git as it was found; see kube.Stored.
type StateInGit struct {
	State    []byte `json:"state,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Owner    string `json:"owner,omitempty"`
	OwnerUID string `json:"ownerUID,omitempty"`
	Person   string `json:"person,omitempty"`
	Bytes    int    `json:"bytes,omitempty"`   // in the repository
	Foreign  bool   `json:"foreign,omitempty"` // Terrier did not write it
	Problem  string `json:"problem,omitempty"` // why it cannot be read as a state
}

// StateCipher encrypts and decrypts states that Terrier stores, for users who may write and
// read them. Only the server has the keys.
type StateCipher interface {
	EncryptState(ctx context.Context, id StackID, ref kube.StateRef, state []byte) (document []byte, err error)
	DecryptState(ctx context.Context, id StackID, ref kube.StateRef, document []byte) (state []byte, err error)
	// StateKeys returns the keys of a place. The reason is for the audit log.
	StateKeys(ctx context.Context, id StackID, place, reason string) (StateKeys, error)
}

// StateKeys are the keys of the state of a stack, the newest first.
type StateKeys struct {
	Place string     `json:"place"` // from which they are derived
	Keys  []StateKey `json:"keys"`
}

// KeyReason asks for them.
type KeyReason struct {
	Reason string `json:"reason"` // for the audit log
}

// StateKey is one of them.
type StateKey struct {
	ID  string `json:"id"` // of the key of records that it is derived from
	Key []byte `json:"key"`
}

// KeptStates are the states that the records hold of one stack.
type KeptStates struct {
	Head     stack.StateID        `json:"head,omitzero"`
	Versions []stack.StateVersion `json:"versions"` // oldest first
	Rescued  []string             `json:"rescued"`  // runs whose state the backend refused
}

// stateBytes bounds a state, as a run does.
const stateBytes = 256 << 20

// stateNamed is the name of a version, as stack.StateVersion.Key makes it, or of
// a rescued state: rescued.RUN.
var stateNamed = regexp.MustCompile(`^([0-9]{20}-[0-9a-f]{12}|rescued\.[a-z0-9][-a-z0-9]{0,126})$`)

// RescuedName is the name of the state that the backend refused of a run.
func RescuedName(run string) string { return "rescued." + run }

func (b *Blobs) States(ctx context.Context, id StackID) (KeptStates, error) {
	out := KeptStates{Versions: []stack.StateVersion{}, Rescued: []string{}}
	if err := CheckID(id, "any"); err != nil {
		return out, err
	}
	raw, err := b.store.Get(ctx, record.StateIndex(id.UID).Key)
	if err != nil && fault.Of(err) != fault.Missing {
		return out, fmt.Errorf("reading the list of state versions: %w", err)
	}
	if err == nil {
		list, err := record.StateIndex(id.UID).Decode(raw)
		if err != nil {
			return out, fmt.Errorf("reading the list of state versions: %w", err)
		}
		out.Head = list.Head
		out.Versions = append(out.Versions, list.Versions...)
	}
	keys, err := b.store.List(ctx, record.RescuedRuns(id.UID))
	if err != nil {
		return out, fmt.Errorf("listing rescued states: %w", err)
	}
	for _, key := range keys {
		out.Rescued = append(out.Rescued, record.RescuedRun(id.UID, key))
	}
	return out, nil
}

func (b *Blobs) State(ctx context.Context, id StackID, name string) (io.ReadCloser, error) {
	if err := errors.Join(CheckID(id, "any"), CheckStateName(name)); err != nil {
		return nil, err
	}
	if run, ok := strings.CutPrefix(name, RescuedName("")); ok {
		return b.get(ctx, record.Rescued(id.UID, run), "a rescued state of the run "+run)
	}
	return b.get(ctx, record.StateVersion(id.UID, name), "the state version "+name)
}

func (b *Blobs) Outgrown(ctx context.Context, id StackID, ref kube.StateRef, digest string) (io.ReadCloser, error) {
	if err := errors.Join(CheckID(id, "any"), checkDigest(digest)); err != nil {
		return nil, err
	}
	return b.get(ctx, kube.OutgrownKey(ref, digest), "the state "+digest)
}

// keeper is a store that can be written.
type keeper interface {
	Put(ctx context.Context, key string, r io.Reader) error
}

func (b *Blobs) KeepOutgrown(ctx context.Context, id StackID, ref kube.StateRef, state []byte) error {
	k, ok := b.store.(keeper)
	if !ok {
		return fault.New(fault.Invalid, kube.StateTooLarge, errors.New("these records cannot be written"))
	}
	facts, err := stack.ReadState(state)
	if err != nil {
		return fault.New(fault.Invalid, ReasonNoState, fmt.Errorf("what is to be kept for %s is no state: %w", id.Key, err))
	}
	return k.Put(ctx, kube.OutgrownKey(ref, facts.Digest), bytes.NewReader(state))
}

// errNoCipher is the error of records without keys.
func errNoCipher() error {
	return fault.New(fault.Invalid, encryption.ReasonKey, errors.New("these records have no keys of states"))
}

// stateCipher is the part of Blobs that encrypts and decrypts states.
type stateCipher struct {
	Cipher *encryption.Cipher // nil encrypts and decrypts no state
}

// EncryptState implements StateCipher.
func (b *stateCipher) EncryptState(ctx context.Context, id StackID, ref kube.StateRef, state []byte) ([]byte, error) {
	if b.Cipher == nil {
		return nil, errNoCipher()
	}
	if _, err := stack.ReadState(state); err != nil {
		return nil, fault.New(fault.Invalid, ReasonNoState, fmt.Errorf("what is to be encrypted for %s is no state: %w", id.Key, err))
	}
	return b.Cipher.Encrypt(ctx, ref.KeyPlace(), state)
}

// DecryptState implements StateCipher.
func (b *stateCipher) DecryptState(ctx context.Context, _ StackID, ref kube.StateRef, document []byte) ([]byte, error) {
	if b.Cipher == nil {
		return nil, errNoCipher()
	}
	state, _, err := b.Cipher.Decrypt(ctx, ref.KeyPlace(), document)
	if fault.Reason(err, "") == encryption.ReasonKey { // the document is the caller's, and nothing is broken here
		err = fault.New(fault.Invalid, encryption.ReasonKey, err)
	}
	return state, err
}

// gitStates is the part of Blobs that reaches states in git.
type gitStates struct {
	InGit kube.Elsewhere // nil reaches none
}

func (b *gitStates) inGit() (kube.Elsewhere, error) {
	if b.InGit == nil {
		return nil, fault.New(fault.Invalid, "", errors.New("these records reach no state in git"))
	}
	return b.InGit, nil
}

// StateInGit implements StateRecords.
func (b *gitStates) StateInGit(ctx context.Context, _ StackID, ref kube.StateRef) (StateInGit, error) {
	e, err := b.inGit()
	if err != nil {
		return StateInGit{}, err
	}
	found, err := e.Load(ctx, ref)
	out := StateInGit{State: found.State, Digest: found.Digest, Owner: found.Owner, OwnerUID: found.OwnerUID, Person: found.Person, Bytes: found.Packed, Foreign: found.Foreign}
	if fault.Reason(err, "") == kube.StateUnreadable {
		out.Problem, err = err.Error(), nil
	}
	return out, err
}

// ReplaceInGit implements StateRecords.
func (b *gitStates) ReplaceInGit(ctx context.Context, id StackID, ref kube.StateRef, r kube.Replacement) error {
	e, err := b.inGit()
	if err != nil {
		return err
	}
	if _, err := stack.ReadState(r.State); err != nil {
		return fault.New(fault.Invalid, ReasonNoState, fmt.Errorf("what is to be stored for %s is no state: %w", id.Key, err))
	}
	return e.Replace(ctx, ref, r)
}

// StateKeys implements StateCipher.
func (b *stateCipher) StateKeys(ctx context.Context, _ StackID, place, _ string) (StateKeys, error) {
	if b.Cipher == nil {
		return StateKeys{}, errNoCipher()
	}
	out := StateKeys{Place: place}
	keys, err := b.Cipher.Keys(ctx, place, "")
	for _, k := range keys {
		out.Keys = append(out.Keys, StateKey{k.ID, k.Bytes})
	}
	return out, err
}

func CheckStateName(name string) error {
	if !stateNamed.MatchString(name) {
		return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%.80q is not the name of a state", name))
	}
	return nil
}

// beside is where a person's States find what outgrew its Secret, and what encrypts and
// decrypts the Secret: on the server. It names nothing by itself, and removes nothing: the
// controller does.
type beside struct {
	records interface {
		StateRecords
		StateCipher
	}
	id  StackID
	ref kube.StateRef
}

func (b beside) Put(ctx context.Context, _ string, r io.Reader) error {
	state, err := io.ReadAll(io.LimitReader(r, stateBytes))
	if err != nil {
		return err
	}
	return b.records.KeepOutgrown(ctx, b.id, b.ref, state)
}

func (b beside) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return b.records.Outgrown(ctx, b.id, b.ref, "sha256:"+key[strings.LastIndexByte(key, '/')+1:])
}

func (beside) Delete(context.Context, string) error { return nil }

func (beside) List(context.Context, string) ([]string, error) { return nil, nil }

// Encrypt implements kube.Cipher. The server knows the place of the stack.
func (b beside) Encrypt(ctx context.Context, _ string, state []byte) ([]byte, error) {
	return b.records.EncryptState(ctx, b.id, b.ref, state)
}

// Decrypt implements kube.Cipher. Only the controller asks for the newest key.
func (b beside) Decrypt(ctx context.Context, _ string, document []byte) ([]byte, bool, error) {
	state, err := b.records.DecryptState(ctx, b.id, b.ref, document)
	return state, true, err
}

// inGit is how a person's States reach a state in git: through the server.
type inGit struct{ beside }

// Load implements kube.Elsewhere.
func (g inGit) Load(ctx context.Context, ref kube.StateRef) (kube.Stored, error) {
	is, err := g.records.StateInGit(ctx, g.id, ref)
	if err != nil {
		return kube.Stored{}, err
	}
	found := kube.Stored{State: is.State, Digest: is.Digest, Owner: is.Owner, OwnerUID: is.OwnerUID, Person: is.Person, Packed: is.Bytes, Foreign: is.Foreign, Encrypted: is.Digest != "" && is.Problem == ""}
	if is.Problem != "" {
		err = fault.New(fault.Broken, kube.StateUnreadable, errors.New(is.Problem))
	}
	return found, err
}

// Replace implements kube.Elsewhere.
func (g inGit) Replace(ctx context.Context, ref kube.StateRef, r kube.Replacement) error {
	return g.records.ReplaceInGit(ctx, g.id, ref, r)
}

var errControllerStores = errors.New("only the controller stores the state of a run in git")

// Save implements kube.Elsewhere.
func (inGit) Save(context.Context, kube.StateRef, kube.Owner, []byte) error {
	return errControllerStores
}

// Reform implements kube.Elsewhere.
func (inGit) Reform(context.Context, kube.StateRef) error { return errControllerStores }
