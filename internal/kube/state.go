package kube

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Names of the engine's kubernetes backend, so that the plain engine can read
// and continue what is kept here, and the other way round.
const (
	stateKey       = "tfstate"
	lockAnnotation = "app.terraform.io/lock-info"
	ownerStack     = "terrier.dev/stack"  // the name of the stack whose state it is
	lockHolder     = "terrier.dev/holder" // on a Lease: which run of ours holds it
	stateBytes     = 64 << 20             // unpacked; a Secret holds 1 MiB packed
)

// StateRef names the state of one stack.
type StateRef struct {
	Namespace string
	Workspace string
	Suffix    string
	Labels    map[string]string
}

func (r StateRef) secret() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: "tfstate-" + r.Workspace + "-" + r.Suffix}
}

func (r StateRef) lease() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: "lock-" + r.secret().Name}
}

// Check reports whether r can name a Secret.
func (r StateRef) Check() error {
	if errs := validation.IsDNS1123Subdomain(r.secret().Name); len(errs) > 0 {
		return fault.New(fault.Invalid, "StateNameInvalid",
			fmt.Errorf("the state Secret %q cannot have that name (%s): change workspace or backendConfig.secretSuffix", r.secret().Name, errs[0]))
	}
	return nil
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

// LockInfo is a state lock as the engine writes it.
type LockInfo struct {
	ID        string
	Operation string
	Info      string
	Who       string
	Version   string
	Created   time.Time
	Path      string

	// Holder says which run of which stack of which installation took the lock;
	// empty if it was not one of ours. It is not part of what the engine writes.
	Holder string `json:"-"`
}

// LockedError says who holds a state lock.
type LockedError struct {
	Lease  types.NamespacedName
	Holder LockInfo
}

func (e *LockedError) Error() string {
	who := e.Holder.Who
	if who == "" {
		who = "an unknown holder"
	}
	return fmt.Sprintf("the state is locked by %s since %s (lock %s, lease %s)", who, e.Holder.Created.UTC().Format(time.RFC3339), e.Holder.ID, e.Lease)
}

// States keeps states in Secrets and their locks in Leases.
type States struct {
	Client client.Client // must not cache Secrets
	Now    func() time.Time
}

// Load returns the state, empty if there is none, and the name of the stack
// that wrote it, empty if that was not one of ours.
func (s States) Load(ctx context.Context, ref StateRef) (state []byte, owner string, err error) {
	secret, state, err := s.get(ctx, ref)
	if secret != nil {
		owner = secret.Annotations[ownerStack]
	}
	return state, owner, err
}

func (s States) get(ctx context.Context, ref StateRef) (*corev1.Secret, []byte, error) {
	if err := ref.Check(); err != nil {
		return nil, nil, err
	}
	var secret corev1.Secret
	err := s.Client.Get(ctx, ref.secret(), &secret)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, mark(err, "Secret", ref.secret())
	}
	packed := secret.Data[stateKey]
	if len(packed) == 0 {
		return &secret, nil, nil
	}
	state, err := gunzip(packed, stateBytes)
	if err != nil {
		return nil, nil, fmt.Errorf("unpacking the state in Secret %s: %w", ref.secret(), err)
	}
	return &secret, state, nil
}

// Save stores a newer version of the state of the stack called owner. It
// refuses with Conflict to replace a state of another lineage or one with a
// higher serial; storing the same version again changes nothing.
func (s States) Save(ctx context.Context, ref StateRef, owner string, state []byte) error {
	secret, old, err := s.get(ctx, ref)
	if err != nil {
		return err
	}
	if bytes.Equal(old, state) {
		return nil
	}
	if err := follows(old, state); err != nil {
		return fault.New(fault.Conflict, "StateConflict", fmt.Errorf("storing the state in Secret %s: %w", ref.secret(), err))
	}
	packed, err := gzipped(state)
	if err != nil {
		return err
	}
	if secret != nil {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[stateKey] = packed
		secret.Annotations = merged(secret.Annotations, map[string]string{ownerStack: owner})
		// The resource version makes this refuse if anybody wrote in between.
		return mark(s.Client.Update(ctx, secret, client.FieldOwner(FieldManager)), "Secret", ref.secret())
	}
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: ref.secret().Name, Namespace: ref.Namespace, Labels: ref.labels(),
			Annotations: map[string]string{"encoding": "gzip", ownerStack: owner},
		},
		Data: map[string][]byte{stateKey: packed},
	}
	return mark(s.Client.Create(ctx, secret, client.FieldOwner(FieldManager)), "Secret", ref.secret())
}

// follows reports why state must not replace old, if it must not.
func follows(old, state []byte) error {
	if len(old) == 0 {
		return nil
	}
	var a, b struct {
		Lineage string `json:"lineage"`
		Serial  uint64 `json:"serial"`
	}
	if err := json.Unmarshal(state, &b); err != nil {
		return fmt.Errorf("the new state is not a state: %w", err)
	}
	if err := json.Unmarshal(old, &a); err != nil {
		return fmt.Errorf("the stored state cannot be read: %w", err)
	}
	switch {
	case a.Lineage != b.Lineage:
		return fmt.Errorf("it holds a state of another lineage (%s, not %s)", a.Lineage, b.Lineage)
	case a.Serial > b.Serial:
		return fmt.Errorf("it holds a newer state (serial %d, not %d)", a.Serial, b.Serial)
	case a.Serial == b.Serial:
		return fmt.Errorf("it holds another state with the same serial %d", a.Serial)
	}
	return nil
}

// Holder returns who holds the lock, nil if it is free.
func (s States) Holder(ctx context.Context, ref StateRef) (*LockedError, error) {
	lease, err := s.getLease(ctx, ref)
	if err != nil || lease == nil || lease.Spec.HolderIdentity == nil {
		return nil, err
	}
	return &LockedError{Lease: ref.lease(), Holder: holder(lease)}, nil
}

// Lock takes the lock in the name of info.ID, or returns a *LockedError marked
// Later. Taking a lock again that the same ID holds succeeds.
func (s States) Lock(ctx context.Context, ref StateRef, info LockInfo) error {
	lease, err := s.getLease(ctx, ref)
	if err != nil {
		return err
	}
	info.Created, info.Path = s.Now().UTC(), ref.secret().String()
	text, err := json.Marshal(info)
	if err != nil {
		return err
	}
	if lease == nil {
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: ref.lease().Name, Namespace: ref.Namespace, Labels: ref.labels(), Annotations: map[string]string{lockAnnotation: string(text), lockHolder: info.Holder}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &info.ID},
		}
		return mark(s.Client.Create(ctx, lease, client.FieldOwner(FieldManager)), "Lease", ref.lease())
	}
	if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
		if *h == info.ID {
			return nil
		}
		return fault.New(fault.Later, "LockedByOther", &LockedError{Lease: ref.lease(), Holder: holder(lease)})
	}
	lease.Spec.HolderIdentity = &info.ID
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[lockAnnotation], lease.Annotations[lockHolder] = string(text), info.Holder
	return mark(s.Client.Update(ctx, lease, client.FieldOwner(FieldManager)), "Lease", ref.lease())
}

// Unlock frees the lock if id holds it. A lock that is free, or that somebody
// else holds, is left as it is.
func (s States) Unlock(ctx context.Context, ref StateRef, id string) error {
	lease, err := s.getLease(ctx, ref)
	if err != nil || lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != id {
		return err
	}
	lease.Spec.HolderIdentity = nil
	delete(lease.Annotations, lockAnnotation)
	delete(lease.Annotations, lockHolder)
	return mark(s.Client.Update(ctx, lease, client.FieldOwner(FieldManager)), "Lease", ref.lease())
}

func (s States) getLease(ctx context.Context, ref StateRef) (*coordinationv1.Lease, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	var lease coordinationv1.Lease
	err := s.Client.Get(ctx, ref.lease(), &lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, mark(err, "Lease", ref.lease())
	}
	return &lease, nil
}

func holder(lease *coordinationv1.Lease) LockInfo {
	var info LockInfo
	if err := json.Unmarshal([]byte(lease.Annotations[lockAnnotation]), &info); err != nil || info.ID == "" {
		// A lock without readable information is still a lock.
		info = LockInfo{ID: *lease.Spec.HolderIdentity, Created: lease.CreationTimestamp.Time}
	}
	info.Holder = lease.Annotations[lockHolder]
	return info
}

func gzipped(b []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func gunzip(b []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(out)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return out, r.Close()
}
