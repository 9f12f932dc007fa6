package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Names of the engine's kubernetes backend, so that the plain engine and Terrier
// can continue each other's states.
const (
	stateKey       = "tfstate"
	lockAnnotation = "app.terraform.io/lock-info"
	ownerStack     = "terrier.dev/stack"        // the name of the stack whose state it is
	ownerUID       = "terrier.dev/stack-uid"    // and its UID: another stack of that name is another stack
	writtenBy      = "terrier.dev/state-writer" // a user, and the digest of the state that they wrote
	lockHolder     = "terrier.dev/holder"       // on a Lease: the run that holds it, or the user
)

// The reasons of this file's faults.
const (
	StateUnreadable  = "StateUnreadable"  // the stored data is no state
	StateConflict    = "StateConflict"    // the stored state is not the expected one
	StateTooLarge    = "StateTooLarge"    // there is no room for it
	StateNameInvalid = "StateNameInvalid" // no Secret can have its name or its labels
)

// StateRef names the state of one stack.
type StateRef struct {
	Namespace string
	Workspace string
	Suffix    string
	Labels    map[string]string
	Encrypted bool `json:",omitempty"` // see States.Cipher

	// Git is where the state is, if that is no Secret: complete, as GitPlace.In makes it. The
	// lock is the Lease in any case.
	Git *stack.GitPlace `json:",omitempty"`
}

// RefOf is the reference of a managed state of a stack.
func RefOf(c stack.Configuration, namespace string) StateRef {
	r := StateRef{Namespace: namespace, Workspace: cmp.Or(c.Workspace, "default"), Suffix: c.Backend.Suffix, Labels: c.Backend.Labels, Encrypted: c.Encrypted}
	if g := c.Backend.Git; g != nil {
		r.Git = g.In(namespace, r.Suffix, r.Workspace)
	}
	return r
}

func (r StateRef) secret() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: "tfstate-" + r.Workspace + "-" + r.Suffix}
}

func (r StateRef) lease() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: "lock-" + r.secret().Name}
}

// String is the Secret that holds the state, or the place in git.
func (r StateRef) String() string {
	if r.Git != nil {
		return r.Git.String(r.Namespace)
	}
	return r.secret().String()
}

// InWords names the place of the state for people.
func (r StateRef) InWords() string { return stack.PlaceInWords(r.String()) }

// KeyPlace is the place from which the keys of the state are derived. That of a state in git
// does not follow its URL: a repository that moves takes its states along.
func (r StateRef) KeyPlace() string {
	if r.Git != nil {
		return encryption.OfGit(r.secret().String())
	}
	return encryption.OfSecret(r.secret().String())
}

// named reports whether r can name a Secret. A read needs no more: the state may
// have been written before its labels were changed.
func (r StateRef) named(w stack.Words) error {
	if errs := validation.IsDNS1123Subdomain(r.secret().Name); len(errs) > 0 {
		return fault.New(fault.Invalid, StateNameInvalid,
			fmt.Errorf("the state Secret %q cannot have that name (%s): change %s", r.secret().Name, errs[0], stateName(w)))
	}
	return nil
}

// Check reports whether a state can be written to what r names. The words are those of the
// kind of its stack.
func (r StateRef) Check(w stack.Words) error {
	if err := r.named(w); err != nil {
		return err
	}
	labels := r.labels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		if errs := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(errs) > 0 {
			return fault.New(fault.Invalid, StateNameInvalid,
				fmt.Errorf("the state Secret %q cannot have the label %s=%q (%s): change %s", r.secret().Name, key, value, errs[0], labelFrom(key, w)))
		}
	}
	return nil
}

// stateName is what gives the Secret of a state its name.
func stateName(w stack.Words) string {
	return cmp.Or(w.StateName, "the name or the workspace of the stack")
}

// labelFrom is the field that a label of a state follows.
func labelFrom(key string, w stack.Words) string {
	switch key {
	case "tfstateSecretSuffix":
		return stateName(w)
	case "tfstateWorkspace":
		return "workspace"
	default:
		return "backendConfig.labels"
	}
}

func (r StateRef) labels() map[string]string {
	l := map[string]string{
		"tfstate":                      "true",
		"tfstateSecretSuffix":          r.Suffix,
		"tfstateWorkspace":             r.Workspace,
		"app.kubernetes.io/managed-by": "terraform",
	}
	for k, v := range r.Labels {
		l[k] = v
	}
	return l
}

// States keeps states in Secrets and their locks in Leases.
type States struct {
	Client   client.Client // must not cache Secrets
	Overflow Overflow      // for states that outgrow a Secret; nil refuses them
	Now      func() time.Time
	Seen     *Seen // nil reads each time before a write

	// Cipher encrypts the states whose reference says so, and decrypts those that are. A
	// state stays encrypted until Reform decrypts it. Nil does neither.
	Cipher Cipher

	Git Elsewhere // keeps the states whose reference names a place in git; nil refuses them
}

// Elsewhere keeps states outside of the cluster. Its methods are those of States.
type Elsewhere interface {
	Load(ctx context.Context, ref StateRef) (Stored, error)
	Save(ctx context.Context, ref StateRef, owner Owner, state []byte) error
	Replace(ctx context.Context, ref StateRef, r Replacement) error
	Reform(ctx context.Context, ref StateRef) error
}

// elsewhere is what keeps a state that is in no Secret; nil for one that is.
func (s States) elsewhere(ref StateRef) Elsewhere {
	switch {
	case ref.Git == nil:
		return nil
	case s.Git == nil:
		return noGit{}
	default:
		return s.Git
	}
}

// noGit stands where no state in git can be read.
type noGit struct{}

func (noGit) err(ref StateRef) error {
	return fault.New(fault.Broken, "", fmt.Errorf("%s: this program reads no state in git", ref.InWords()))
}

func (n noGit) Load(_ context.Context, ref StateRef) (Stored, error)          { return Stored{}, n.err(ref) }
func (n noGit) Save(_ context.Context, ref StateRef, _ Owner, _ []byte) error { return n.err(ref) }
func (n noGit) Replace(_ context.Context, ref StateRef, _ Replacement) error  { return n.err(ref) }
func (n noGit) Reform(_ context.Context, ref StateRef) error                  { return n.err(ref) }

// Cipher encrypts states with a key of their place, and decrypts them.
type Cipher interface {
	Encrypt(ctx context.Context, place string, state []byte) ([]byte, error)
	// Decrypt also reports whether the newest key encrypted the state. An error with the reason
	// encryption.ReasonKey says that no key opens it.
	Decrypt(ctx context.Context, place string, document []byte) (state []byte, newest bool, err error)
}

// Stored is a state as it was found.
type Stored struct {
	State    []byte // empty if there is none
	Digest   string // of State, or of the data that cannot be read as one; empty if there is none
	Owner    string // the stack that wrote it, empty if Terrier did not write it
	OwnerUID string // and its UID, if that is known
	Person   string // the user who wrote exactly this state through Terrier; empty for a run
	Outgrown bool   // it is in the overflow, and the Secret points to it
	Packed   int    // bytes in the Secret

	Encrypted bool // with a key of the platform; State is what was in it
	Newest    bool // with the newest one
	Foreign   bool // Terrier did not write it. Only of a state in git that is known
}

// Outdated reports whether the state is stored in another form than ref asks for, so that
// Reform has something to do.
func (s Stored) Outdated(ref StateRef) bool {
	if ref.Git != nil {
		return s.Digest != "" && (s.Foreign || !s.Newest)
	}
	return s.Digest != "" && !s.Outgrown && (s.Encrypted != ref.Encrypted || s.Encrypted && !s.Newest)
}

// Load reads the state. A state that exists and cannot be read is an error with
// the reason StateUnreadable; its digest and its owner are returned all the same.
func (s States) Load(ctx context.Context, ref StateRef) (Stored, error) {
	if at := s.elsewhere(ref); at != nil {
		return at.Load(ctx, ref)
	}
	_, found, err := s.get(ctx, ref)
	return found, err
}

func (s States) get(ctx context.Context, ref StateRef) (*corev1.Secret, Stored, error) {
	secret, found, err := s.read(ctx, ref)
	if err != nil {
		s.Seen.forgetState(ref.secret())
	} else {
		s.Seen.holds(ref.secret(), secret, found)
	}
	return secret, found, err
}

func (s States) read(ctx context.Context, ref StateRef) (*corev1.Secret, Stored, error) {
	if err := ref.named(stack.Words{}); err != nil {
		return nil, Stored{}, err
	}
	var secret corev1.Secret
	err := s.Client.Get(ctx, ref.secret(), &secret)
	if apierrors.IsNotFound(err) {
		return nil, Stored{}, nil
	}
	if err != nil {
		return nil, Stored{}, mark(err, "Secret", ref.secret())
	}
	found := Stored{Owner: secret.Annotations[ownerStack], OwnerUID: secret.Annotations[ownerUID], Packed: len(secret.Data[stateKey])}
	if found.Packed == 0 {
		return &secret, found, nil
	}
	if err := s.unpack(ctx, ref, secret.Data[stateKey], &found); err != nil {
		found.Digest = "unreadable:" + digestOf(secret.Data[stateKey])
		return &secret, found, fmt.Errorf("reading the state in the Secret %s: %w", ref, err)
	}
	found.Digest = digestOf(found.State)
	var w writer
	if json.Unmarshal([]byte(secret.Annotations[writtenBy]), &w) == nil && w.Digest == found.Digest {
		found.Person = w.Person // otherwise another writer came later, and left the note
	}
	return &secret, found, nil
}

// writer is the note beside a state that a user wrote. The plain engine keeps
// annotations when it writes another state, so the note names its own state.
type writer struct {
	Person string `json:"person"`
	Digest string `json:"digest"`
}

// Owner is the stack whose state is stored.
type Owner struct {
	Name, UID string
	Run       string // that left the state, for the history of a repository
}

func (o Owner) notes() map[string]string {
	n := map[string]string{ownerStack: o.Name}
	if o.UID != "" {
		n[ownerUID] = o.UID
	}
	return n
}

// Save stores a newer version of the state of a stack. It refuses with Conflict to
// replace a state of another lineage, one with a higher serial, or data that it
// cannot read. Storing the same version again changes nothing.
func (s States) Save(ctx context.Context, ref StateRef, owner Owner, state []byte) error {
	if at := s.elsewhere(ref); at != nil {
		return at.Save(ctx, ref, owner, state)
	}
	if secret, old, ok := s.Seen.before(ref.secret(), state); ok {
		if err := s.store(ctx, ref, secret, old, state, owner.notes()); !outdated(err) {
			return err
		}
	}
	secret, old, err := s.get(ctx, ref)
	if fault.Reason(err, "") == StateUnreadable {
		return fault.New(fault.Conflict, StateConflict, err)
	}
	if err != nil {
		return err
	}
	if old.Digest == digestOf(state) {
		return nil
	}
	if err := Follows(old.State, state); err != nil {
		return fault.New(fault.Conflict, StateConflict, fmt.Errorf("storing the state in Secret %s: %w", ref.secret(), err))
	}
	return s.store(ctx, ref, secret, old, state, owner.notes())
}

// Replacement is a state by which a user replaces the stored one.
type Replacement struct {
	State  []byte
	Over   string // the digest of the replaced state, as Load returned it
	Owner  Owner
	Person string
}

// Replace stores the state of a user. It is a Conflict if the stored state is no
// longer the one that the user saw.
func (s States) Replace(ctx context.Context, ref StateRef, r Replacement) error {
	if at := s.elsewhere(ref); at != nil {
		return at.Replace(ctx, ref, r)
	}
	secret, old, err := s.get(ctx, ref)
	if err != nil && fault.Reason(err, "") != StateUnreadable {
		return err
	}
	if old.Digest != r.Over {
		return fault.New(fault.Conflict, StateConflict, fmt.Errorf("the state in the Secret %s changed in the meantime", ref))
	}
	note, err := json.Marshal(writer{Person: r.Person, Digest: digestOf(r.State)})
	if err != nil {
		return err
	}
	notes := r.Owner.notes()
	notes[writtenBy] = string(note)
	return s.store(ctx, ref, secret, old, r.State, notes)
}

// Reform stores the state that is there once more, if that is not encrypted as ref asks: for
// the first time, with an older key, or no longer. The state stays the same, byte by byte. It
// is a Conflict if another client writes meanwhile.
func (s States) Reform(ctx context.Context, ref StateRef) error {
	if at := s.elsewhere(ref); at != nil {
		return at.Reform(ctx, ref)
	}
	secret, old, err := s.get(ctx, ref)
	if err != nil || !old.Outdated(ref) {
		return err
	}
	notes := map[string]string{}
	if by, ok := secret.Annotations[writtenBy]; ok {
		notes[writtenBy] = by
	}
	state := old.State
	old.Encrypted = false // ref decides
	return s.store(ctx, ref, secret, old, state, notes)
}

// store writes the Secret: an update of secret, or a new one if that is nil.
func (s States) store(ctx context.Context, ref StateRef, secret *corev1.Secret, old Stored, state []byte, notes map[string]string) error {
	if err := ref.Check(stack.Words{}); err != nil {
		return err
	}
	ref.Encrypted = ref.Encrypted || old.Encrypted // only Reform decrypts
	packed, outgrown, err := s.pack(ctx, ref, state)
	if err != nil {
		return err
	}
	if secret == nil {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ref.secret().Name, Namespace: ref.Namespace}}
	}
	// Each time, since the engine finds the state by these labels.
	secret.Labels = merged(secret.Labels, ref.labels())
	secret.Annotations = merged(secret.Annotations, map[string]string{"encoding": "gzip"})
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[stateKey] = packed
	secret.Annotations = merged(secret.Annotations, notes)
	if notes[writtenBy] == "" {
		delete(secret.Annotations, writtenBy)
	}
	if secret.ResourceVersion == "" {
		err = s.Client.Create(ctx, secret, client.FieldOwner(FieldManager))
	} else { // the resource version makes the server refuse this after another write
		err = s.Client.Update(ctx, secret, client.FieldOwner(FieldManager))
	}
	if err != nil {
		s.Seen.forgetState(ref.secret())
		return mark(err, "Secret", ref.secret())
	}
	s.Seen.holds(ref.secret(), secret, Stored{State: state, Outgrown: outgrown, Encrypted: ref.Encrypted})
	if old.Outgrown || outgrown {
		return s.dropOverflow(ctx, ref, digestOf(state))
	}
	return nil
}

// Follows returns an error that says why state must not replace old.
func Follows(old, state []byte) error {
	b, err := stack.ReadState(state)
	if err != nil {
		return fmt.Errorf("the new state is not a state: %w", err)
	}
	if len(old) == 0 {
		return nil
	}
	a, err := stack.ReadState(old)
	if err != nil {
		return fmt.Errorf("the stored state cannot be read: %w", err)
	}
	switch {
	case a.Lineage != b.Lineage:
		return fmt.Errorf("the stored state has another lineage (%s, not %s)", a.Lineage, b.Lineage)
	case a.Serial > b.Serial:
		return fmt.Errorf("the stored state is newer (serial %d, not %d)", a.Serial, b.Serial)
	case a.Serial == b.Serial:
		return fmt.Errorf("the stored state differs and has the same serial %d", a.Serial)
	}
	return nil
}

func unreadable(err error) error { return fault.New(fault.Broken, StateUnreadable, err) }

var errNoOverflow = errors.New("no store for large states is configured")
