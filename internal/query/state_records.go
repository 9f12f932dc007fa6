package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

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

func CheckStateName(name string) error {
	if !stateNamed.MatchString(name) {
		return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%.80q is not the name of a state", name))
	}
	return nil
}

// beside is where a person's States find what outgrew its Secret: on the server.
// It names nothing by itself, and removes nothing: the controller does.
type beside struct {
	records StateRecords
	id      StackID
	ref     kube.StateRef
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
