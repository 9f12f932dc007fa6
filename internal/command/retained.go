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
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
	Former    bool             `json:"former,omitempty"`    // its namespace was deleted, too; there may be another one of that name
	Ways      []string         `json:"ways"`                // what a user can do about it, each in a sentence

	Forgotten []stack.ForgottenResource `json:"forgotten,omitempty"` // that its runs took out of the state and did not destroy
	GivenUp   []stack.GivenUp           `json:"givenUp,omitempty"`   // states in whose place a user accepted others
}

// Key is the name that the stack had.
func (r Retained) Key() query.Key {
	return query.Key{Namespace: r.Namespace, Name: r.Name, Kind: r.Kind}
}

// Formers says whether a user has a right to stacks of a kind in all namespaces. It is Denied
// if not. With that right the user also gets the records of stacks whose namespace was deleted:
// they belong to none that there is now, and one of the same name may belong to others.
type Formers func(kind string) error

// RetainedRecords are the records of deleted stacks of all namespaces, former ones included.
type RetainedRecords interface {
	// For returns what a user may have: the records of stacks whose namespace was deleted as
	// formers says. It is nil for a user who has none of them.
	For(formers Formers) RetainedStacks
}

// RetainedStacks are the records of deleted stacks. The caller has checked the
// rights of the user to the namespace.
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

// KeptRetained are the RetainedStacks of a store. The zero formers are none.
type KeptRetained struct {
	store   RetainedStore
	kube    client.Reader
	kinds   query.Kinds
	formers Formers
}

var (
	_ RetainedRecords = (*KeptRetained)(nil)
	_ RetainedStacks  = (*KeptRetained)(nil)
)

// NewRetained returns the records in store, for a user who has none of former namespaces. Kube
// says which namespaces there are, and whether a stack of one of the kinds exists again.
func NewRetained(store RetainedStore, kube client.Reader, kinds query.Kinds) *KeptRetained {
	return &KeptRetained{store: store, kube: kube, kinds: kinds}
}

// For implements RetainedRecords. It is for one request: formers is asked once for each kind.
func (k *KeptRetained) For(formers Formers) RetainedStacks {
	if formers == nil {
		return NewRetained(k.store, k.kube, k.kinds)
	}
	var mu sync.Mutex
	answers := map[string]error{}
	return &KeptRetained{k.store, k.kube, k.kinds, func(kind string) error {
		mu.Lock()
		defer mu.Unlock()
		err, asked := answers[kind]
		if !asked {
			err = formers(kind)
			answers[kind] = err
		}
		return err
	}}
}

// readTogether is how many records are read at once: there is one for each stack that was
// deleted within weeks, and a bucket takes tens of milliseconds for each.
const readTogether = 16

func (k *KeptRetained) List(ctx context.Context, namespace string) ([]Retained, error) {
	keys, err := k.store.List(ctx, record.AllRetained())
	if err != nil {
		return nil, fmt.Errorf("listing retained resources: %w", err)
	}
	has := map[string]bool{}
	for _, key := range keys {
		has[key] = true
	}
	var uids []string
	for _, key := range keys {
		uid, file, _ := record.RetainedOf(key)
		if file == record.RetainedFile || file == record.ForgottenFile && !has[record.Retained(uid, record.RetainedFile)] {
			uids = append(uids, uid)
		}
	}
	in := k.namespaces(ctx, namespace)
	found := make([]Retained, len(uids)) // a zero one is of another namespace, or was deleted since it was listed
	several, readCtx := errgroup.WithContext(ctx)
	several.SetLimit(readTogether)
	for i, uid := range uids {
		several.Go(func() error {
			r, err := k.read(readCtx, uid)
			switch {
			case fault.Of(err) == fault.Missing:
				return nil
			case err != nil || namespace != "" && r.Namespace != namespace:
				return err
			}
			shown, err := k.judge(readCtx, &r, in)
			if err == nil && shown {
				r.Kept = has[record.Retained(uid, record.RetainedStateFile)]
				r.Ways = r.ways()
				found[i] = r.Retained
			}
			return err
		})
	}
	if err := several.Wait(); err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(found, func(r Retained) bool { return r.UID == "" })
	slices.SortFunc(out, func(a, b Retained) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.UID, b.UID)) })
	return out, nil
}

// namespaces finds the namespaces that there are: the one of a name, or all of them if name is
// empty. They are read once, when a record is there that needs them.
func (k *KeptRetained) namespaces(ctx context.Context, name string) func() (map[string]kube.Namespace, error) {
	return sync.OnceValues(func() (map[string]kube.Namespace, error) {
		if name == "" {
			return query.AllNamespaces(ctx, k.kube)
		}
		n, err := query.NamespacesIn(k.kube)(ctx, name)
		return map[string]kube.Namespace{name: n}, err
	})
}

// judge finds out whether the namespace of a stack was deleted, and reports whether the user
// may have its record.
func (k *KeptRetained) judge(ctx context.Context, r *judged, namespaces func() (map[string]kube.Namespace, error)) (bool, error) {
	if r.Exists {
		exists, err := k.exists(ctx, r.Key(), r.UID)
		if err != nil || exists {
			return exists, err
		}
	}
	found, unknown := namespaces()
	if unknown == nil && r.in(found[r.Namespace]) {
		return true, nil
	}
	if unknown == nil && r.Namespace != "" { // without a name nothing but its records was found
		r.Former, r.Secret = true, "" // the Secret was deleted with its namespace
	}
	if k.formers == nil {
		return false, unknown
	}
	switch err := k.formers(r.Kind); fault.Of(err) {
	case fault.None:
		return true, nil
	case fault.Denied:
		return false, unknown
	default:
		return false, err
	}
}

// exists reports whether the stack of a UID exists.
func (k *KeptRetained) exists(ctx context.Context, key query.Key, uid string) (bool, error) {
	for _, d := range k.kinds.All() {
		o := d.New()
		err := access.Fault(k.kube.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, o), "stack "+key.String())
		if err != nil && fault.Of(err) != fault.Missing {
			return false, err
		}
		if err == nil && string(o.GetUID()) == uid {
			return true, nil
		}
	}
	return false, nil
}

// judged is a record with what says in which namespace its stack was.
type judged struct {
	Retained
	in func(kube.Namespace) bool
}

// read reads the record of a deleted stack, or what the runs of one that exists forgot.
func (k *KeptRetained) read(ctx context.Context, uid string) (judged, error) {
	raw, err := k.store.Get(ctx, record.Retained(uid, record.RetainedFile))
	if fault.Of(err) == fault.Missing {
		return k.readForgotten(ctx, uid)
	}
	var r kube.Retained
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		return judged{}, fmt.Errorf("reading the retained resources of the stack %s: %w", uid, err)
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
	return judged{out, r.In}, nil
}

func (k *KeptRetained) readForgotten(ctx context.Context, uid string) (judged, error) {
	raw, err := k.store.Get(ctx, record.Retained(uid, record.ForgottenFile))
	var f kube.Forgotten
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		return judged{}, fmt.Errorf("reading the forgotten resources of the stack %s: %w", uid, err)
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
	// Its controller writes down in which namespace the stack was once it notices that the stack
	// is gone.
	return judged{out, func(kube.Namespace) bool { return false }}, nil
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

// suspended says how a stack is created that gets its state later.
const suspended = `suspended (spec.suspend: true, or for a stack of scripts the annotation terrier.dev/suspended: "true") and without automatic approval: otherwise it finds no state, and may create every resource a second time`

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
	switch {
	case r.Former:
		again = fmt.Sprintf("The namespace %s was deleted, and a Secret with the state was deleted with it. To manage the resources again, create the stack again under its name, %s. If its state was in a Secret, upload the copy of it: terrier state push %[3]s FILE -n %[1]s. Then resume the stack: terrier resume %[3]s -n %[1]s", r.Namespace, suspended, r.Key().Argument())
	case r.Secret != "":
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
	if r.Former {
		out = append(out, fmt.Sprintf("Users with permissions in a namespace that is created again as %s do not see this record. It is for users who have these permissions in all namespaces.", r.Namespace))
	}
	if r.Kept {
		out = append(out, fmt.Sprintf("If the state is gone, create the stack again under its name, %s. Upload the copy of the state, and resume the stack: terrier retained state %[2]s -n %[3]s --uid %[4]s > FILE, terrier state push %[2]s FILE -n %[3]s, terrier resume %[2]s -n %[3]s", suspended, r.Key().Argument(), r.Namespace, r.UID))
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
	shown := false
	if err == nil && r.Key() == key {
		shown, err = k.judge(ctx, &r, k.namespaces(ctx, key.Namespace))
	}
	if fault.Of(err) == fault.Missing || err == nil && !shown {
		return Retained{}, fault.New(fault.Missing, query.ReasonNotRetained, fmt.Errorf("there is no record of a deleted stack %s with the UID %s", key, uid))
	}
	return r.Retained, err
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
	if exists, err := k.exists(ctx, key, uid); err != nil {
		return err
	} else if exists {
		return fault.New(fault.Conflict, query.ReasonNotRetained, fmt.Errorf("the stack %s exists again under the same UID, and uses its records", key))
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
