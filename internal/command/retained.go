package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Retained is a stack with resources that may still exist and that it no longer
// manages: the deleted stack retained them, its object was removed by force, or its
// runs forgot them. A stack whose runs forgot resources may exist itself.
type Retained struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Kind      string           `json:"kind,omitempty"` // as query.Key has it
	UID       string           `json:"uid"`            // distinguishes stacks of one name
	At        time.Time        `json:"at"`
	Until     time.Time        `json:"until,omitzero"` // its record is deleted then; zero of a stack that exists
	Why       string           `json:"why"`
	Secret    string           `json:"secret,omitempty"`    // that holds its state, in its namespace; empty if Terrier did not store it
	Kept      bool             `json:"kept"`                // a copy of its last state is in the records
	Resources []string         `json:"resources"`           // addresses in that state
	Sealed    bool             `json:"sealed,omitempty"`    // that state is encrypted, and they are not known
	Untracked *stack.Untracked `json:"untracked,omitempty"` // resources that may exist
	Gap       *stack.Untracked `json:"gap,omitempty"`       // Untracked, under its name of the release before
	Exists    bool             `json:"exists,omitempty"`    // the stack was not deleted: its runs forgot resources
	Ways      []string         `json:"ways"`                // what a user can do about it, each in a sentence

	Forgotten []stack.ForgottenResource `json:"forgotten,omitempty"` // that its runs took out of the state and did not destroy
	GivenUp   []stack.GivenUp           `json:"givenUp,omitempty"`   // states in whose place a user accepted others
}

// Key is the name that the stack had.
func (r Retained) Key() query.Key {
	return query.Key{Namespace: r.Namespace, Name: r.Name, Kind: r.Kind}
}

// RetainedStacks are the records of deleted stacks. The caller has checked the
// rights of the user.
type RetainedStacks interface {
	// List returns those of a namespace, or of all if namespace is empty, the newest
	// first.
	List(ctx context.Context, namespace string) ([]Retained, error)
	// State opens the copy of the last state of a stack.
	State(ctx context.Context, key query.Key, uid string) (io.ReadCloser, error)
	// Forget deletes the records of a stack. Its resources stay, and so does the
	// Secret with its state.
	Forget(ctx context.Context, key query.Key, uid string) error
}

// RetainedStore stores the records.
type RetainedStore interface {
	query.Blobstore
	Delete(ctx context.Context, key string) error
}

// KeptRetained are the RetainedStacks of a store.
type KeptRetained struct {
	store RetainedStore
	kube  client.Reader
	kinds query.Kinds
}

var _ RetainedStacks = (*KeptRetained)(nil)

// NewRetained returns the records in store. Kube says whether a stack of one of the
// kinds exists again.
func NewRetained(store RetainedStore, kube client.Reader, kinds query.Kinds) *KeptRetained {
	return &KeptRetained{store, kube, kinds}
}

func (k *KeptRetained) List(ctx context.Context, namespace string) ([]Retained, error) {
	keys, err := k.store.List(ctx, record.AllRetained())
	if err != nil {
		return nil, fmt.Errorf("listing retained resources: %w", err)
	}
	out := []Retained{}
	for _, key := range keys {
		uid, file, _ := record.RetainedOf(key)
		if file != record.RetainedFile && (file != record.ForgottenFile || slices.Contains(keys, record.Retained(uid, record.RetainedFile))) {
			continue
		}
		r, err := k.read(ctx, uid)
		if fault.Of(err) == fault.Missing {
			continue // deleted since it was listed
		}
		if err != nil {
			return nil, err
		}
		if namespace != "" && r.Namespace != namespace {
			continue
		}
		r.Kept = slices.Contains(keys, record.Retained(uid, record.RetainedStateFile))
		r.Ways = r.ways()
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Retained) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.UID, b.UID)) })
	return out, nil
}

// read reads the record of a deleted stack, or what the runs of one that exists forgot.
func (k *KeptRetained) read(ctx context.Context, uid string) (Retained, error) {
	raw, err := k.store.Get(ctx, record.Retained(uid, record.RetainedFile))
	if fault.Of(err) == fault.Missing {
		return k.readForgotten(ctx, uid)
	}
	var r kube.Retained
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		return Retained{}, fmt.Errorf("reading the retained resources of the stack %s: %w", uid, err)
	}
	namespace, name, _ := strings.Cut(r.Stack, "/")
	out := Retained{
		Namespace: namespace, Name: name, Kind: r.Kind, UID: uid, At: r.At, Until: r.At.Add(kube.RetainedFor), Why: r.Why,
		Resources: append([]string{}, r.Resources...), Sealed: r.Sealed, Untracked: r.Untracked, Gap: r.Untracked, Forgotten: r.Forgotten, GivenUp: r.GivenUp,
	}
	if r.State != nil {
		if r.State.Git == nil {
			_, out.Secret, _ = strings.Cut(r.State.String(), "/")
		}
	}
	return out, nil
}

func (k *KeptRetained) readForgotten(ctx context.Context, uid string) (Retained, error) {
	raw, err := k.store.Get(ctx, record.Retained(uid, record.ForgottenFile))
	var f kube.Forgotten
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		return Retained{}, fmt.Errorf("reading the forgotten resources of the stack %s: %w", uid, err)
	}
	namespace, name, _ := strings.Cut(f.Stack, "/")
	out := Retained{
		Namespace: namespace, Name: name, Kind: f.Kind, UID: uid, Exists: true, Why: "its applies forgot the resources, as its configuration asks (destroy = false)",
		Resources: []string{}, Forgotten: f.Resources, GivenUp: f.GivenUp,
	}
	for _, g := range f.GivenUp {
		if g.At.After(out.At) {
			out.At, out.Why = g.At, cmp.Or("a user gave up its state: "+g.Why, out.Why)
		}
	}
	for _, r := range f.Resources {
		if r.At.After(out.At) {
			out.At = r.At
		}
	}
	return out, nil
}

// Count is how many resources are retained, as far as they are known.
func (r Retained) Count() int {
	n := len(r.Resources) + len(r.Forgotten)
	for _, g := range r.GivenUp {
		n += g.Resources
	}
	return n
}

// GivenIn is where the state was that a user gave up last; empty if there is none.
func (r Retained) GivenIn() string {
	if len(r.GivenUp) == 0 {
		return ""
	}
	return cmp.Or(r.GivenUp[len(r.GivenUp)-1].In, "the place of the last apply")
}

// Unknown reports whether there are resources that cannot be counted.
func (r Retained) Unknown() bool {
	return r.Sealed || slices.ContainsFunc(r.GivenUp, func(g stack.GivenUp) bool { return g.Uncounted })
}

// imports says how forgotten resources are managed again.
const imports = "To manage a forgotten resource again, add it to the configuration with an import block that has its address and its ID: import { to = ADDRESS, id = \"ID\" }. " +
	"The documentation of its provider says which ID an import takes."

// givenUp says what a user can do about the resources of a state that was given up.
const givenUp = "The resources of a state that was given up may still exist. If the state does, have another stack manage it in its place, or destroy them with the engine and that backend. " +
	"If it does not, find them in the cloud, and delete or import each of them manually."

// ways say what a user can do about retained resources.
func (r Retained) ways() []string {
	if r.Exists {
		var out []string
		if len(r.Forgotten) > 0 {
			out = append(out, imports)
		}
		if len(r.GivenUp) > 0 {
			out = append(out, givenUp)
		}
		return append(out, fmt.Sprintf("When you do not need the record: terrier retained forget %s -n %s --uid %s", r.Key().Argument(), r.Namespace, r.UID))
	}
	again := "To manage the resources again, create the stack again under its name, with the same backend."
	if r.Secret != "" {
		again = fmt.Sprintf("To manage the resources again, create the stack again in %s under its name, with the same backend and workspace, annotated with terrier.dev/adopt-state=true: the state is in the Secret %s.", r.Namespace, r.Secret)
	}
	var out []string
	if len(r.Forgotten) > 0 {
		out = append(out, imports)
	}
	if len(r.GivenUp) > 0 {
		out = append(out, givenUp)
	}
	if len(r.Resources) > 0 || len(r.Forgotten)+len(r.GivenUp) == 0 {
		out = append(out, again, "To destroy the resources, create the stack again, annotated with terrier.dev/deletion=destroy, wait until it is ready, and delete it.")
	}
	if r.Kept {
		out = append(out, fmt.Sprintf("If the state is gone, create the stack and upload the copy with terrier state push: terrier retained state %s -n %s --uid %s", r.Key().Argument(), r.Namespace, r.UID))
	}
	if r.Untracked != nil {
		out = append(out, "Find the untracked resources in the cloud, and delete or import each of them manually.")
	}
	forget := fmt.Sprintf("When you need neither the record nor the copy of the state: terrier retained forget %s -n %s --uid %s", r.Key().Argument(), r.Namespace, r.UID)
	if r.Secret != "" {
		forget += fmt.Sprintf(", and kubectl delete secret %s -n %s", r.Secret, r.Namespace)
	}
	return append(out, forget)
}

// one reads the record of one stack, by both of its names.
func (k *KeptRetained) one(ctx context.Context, key query.Key, uid string) (Retained, error) {
	if err := errors.Join(key.Check(), query.CheckID(query.StackID{UID: uid}, "any")); err != nil {
		return Retained{}, err
	}
	r, err := k.read(ctx, uid)
	if fault.Of(err) == fault.Missing || err == nil && r.Key() != key {
		return Retained{}, fault.New(fault.Missing, query.ReasonNotRetained, fmt.Errorf("there is no record of a deleted stack %s with the UID %s", key, uid))
	}
	return r, err
}

func (k *KeptRetained) State(ctx context.Context, key query.Key, uid string) (io.ReadCloser, error) {
	if _, err := k.one(ctx, key, uid); err != nil {
		return nil, err
	}
	state, err := k.store.Get(ctx, record.Retained(uid, record.RetainedStateFile))
	if fault.Of(err) == fault.Missing {
		return nil, fault.New(fault.Missing, query.ReasonNotRetained, fmt.Errorf("there is no copy of the last state of %s", key))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the last state of %s: %w", key, err)
	}
	return io.NopCloser(bytes.NewReader(state)), nil
}

// Forget implements RetainedStacks. The record is deleted last, so that an
// interrupted deletion can be repeated.
func (k *KeptRetained) Forget(ctx context.Context, key query.Key, uid string) error {
	r, err := k.one(ctx, key, uid)
	if err != nil {
		return err
	}
	forgotten := record.Retained(uid, record.ForgottenFile)
	if r.Exists {
		return k.store.Delete(ctx, forgotten)
	}
	for _, d := range k.kinds.All() {
		o := d.New()
		err := access.Fault(k.kube.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, o), "stack "+key.String())
		if err != nil && fault.Of(err) != fault.Missing {
			return err
		}
		if err == nil && string(o.GetUID()) == uid {
			return fault.New(fault.Conflict, query.ReasonNotRetained, fmt.Errorf("the stack %s exists again under the same UID, and uses its records", key))
		}
	}
	keys, err := k.store.List(ctx, record.Stack(uid))
	if err != nil {
		return fmt.Errorf("listing the records of %s: %w", key, err)
	}
	gone, err := k.store.List(ctx, record.Gone(key.Kind, key.Namespace, key.Name, uid, ""))
	if err != nil {
		return fmt.Errorf("listing the records of %s: %w", key, err)
	}
	keys = append(keys, gone...)
	for _, name := range append(keys, forgotten, record.Retained(uid, record.RetainedStateFile), record.Retained(uid, record.RetainedFile)) {
		if err := k.store.Delete(ctx, name); err != nil {
			return fmt.Errorf("deleting the records of %s: %w", key, err)
		}
	}
	return nil
}
