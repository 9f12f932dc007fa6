package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/kms"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// Values of --records-key.
const (
	keyInFile   keySource = "file"   // in the data directory
	keyInSecret keySource = "secret" // in the namespace of the platform
)

// SecretName is the Secret that the keys of records are in.
const SecretName = "terrier-records-keys"

// keySource is where keys are.
type keySource string

// describe names the place of keys for users.
func (o Options) describe(k keySource) string {
	if k == keyInSecret {
		return "the Secret " + o.Namespace + "/" + SecretName
	}
	return "the file secrets/records of the data directory"
}

// keySource is a Secret for records that are not in the data directory, since they
// outlive it.
func (o Options) keySource() keySource {
	switch {
	case o.Key != "":
		return keySource(o.Key)
	case o.InCluster && o.Records != "", len(o.KMS) > 0:
		return keyInSecret
	}
	return keyInFile
}

// keys opens the keys. Where none are, it makes one, unless there are records already:
// then the key is elsewhere, and a new one would open none of them.
func (o Options) keys(ctx context.Context, cluster client.Client, raw blob.Store, used bool) (*ring, error) {
	if o.keySource() == keyInFile {
		return o.fileKey(used)
	}
	keepers, err := o.keepers()
	if err != nil {
		return nil, err
	}
	r := newRing(&secretKeys{cluster, client.ObjectKey{Namespace: o.Namespace, Name: SecretName}}, keepers, o.Now)
	r.plain = o.plain()
	var first []byte
	if used {
		if first, err = o.fileOf(ctx, raw); err != nil {
			return nil, err
		}
	}
	return r, o.await(ctx, func() error { return r.begin(ctx, o.describe(keyInSecret), used, first) })
}

// olderKeys is the directory of keys that were in the file of the key once. They only open.
const olderKeys = "records-older"

// fileKey is the key in the data directory, and those before it. Where an older one is and no
// other, a new one is made.
func (o Options) fileKey(used bool) (*ring, error) {
	path := o.Dir("secrets", "records")
	older, err := os.ReadDir(o.Dir("secrets", olderKeys))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("reading the older keys of records: %w", err)
	}
	if _, err := os.Stat(path); os.IsNotExist(err) && used && len(older) == 0 {
		return nil, missingKey(o.describe(keyInFile))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	key, err := blob.LoadKey(path)
	if err != nil {
		return nil, err
	}
	r := newRing(nil, nil, o.Now)
	r.known[path], r.keys[key.ID()], r.newest = entry{key: key}, key, path
	for _, file := range older {
		name := o.Dir("secrets", olderKeys, file.Name())
		key, err := blob.LoadKey(name)
		if err != nil {
			return nil, err
		}
		r.known[name], r.keys[key.ID()] = entry{key: key}, key
	}
	return r, nil
}

func missingKey(source string) error {
	return fault.New(fault.Denied, ReasonKey, fmt.Errorf(
		"the records exist, and %s does not: restore it, or name the place of the key with --records-key; a new key would open none of the records; if the key is lost for good, move the records away, and the next start begins without them", source))
}

// named is the 32 bytes of each key, by the name under which it is kept. The last name
// in order is the one of the newest.
type named map[string][]byte

// nameOf names a key that is made now. No other key has this name: a key that replaced
// another one of the same name would destroy it.
func nameOf(now time.Time) (string, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	return now.UTC().Format("2006-01-02T150405Z") + "-" + hex.EncodeToString(random[:]), nil
}

// entry is a key as it is kept, and opened.
type entry struct {
	text   []byte // plain, or wrapped by a key management service
	secret []byte // 32 bytes
	key    blob.Key
}

// ring is keys that other processes may add to. It forgets none: a key that was removed
// elsewhere still opens what it sealed, and may exist nowhere else.
type ring struct {
	kept    *secretKeys // nil if nothing is added
	keepers []kms.Keeper
	plain   bool // the keepers only unwrap, and what is kept becomes plain
	now     func() time.Time

	mu     sync.Mutex
	known  map[string]entry // by name
	opened map[string]entry // by text: each is unwrapped once
	keys   map[string]blob.Key
	newest string // name
	asked  time.Time
	writes map[string]int // that go on, by the name of the newest key when they began
}

func newRing(kept *secretKeys, keepers []kms.Keeper, now func() time.Time) *ring {
	return &ring{kept: kept, keepers: keepers, now: now, known: map[string]entry{}, opened: map[string]entry{}, keys: map[string]blob.Key{}, writes: map[string]int{}}
}

// begin reads the keys, and makes the first one if there are none and may be none. first
// is that one if it exists already.
func (r *ring) begin(ctx context.Context, source string, used bool, first []byte) error {
	found, err := r.reread(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if used && first == nil {
			return missingKey(source)
		}
		if err := r.first(ctx, first); err != nil {
			return err
		}
		if found, err = r.reread(ctx); err == nil && len(found) == 0 {
			err = fault.New(fault.Invalid, ReasonKey, fmt.Errorf("%s holds no key: delete it, and a new one is made", source))
		}
		if err != nil {
			return err
		}
	}
	return r.wrapAll(ctx)
}

// first makes the Secret with its first key.
func (r *ring) first(ctx context.Context, secret []byte) (err error) {
	if secret == nil {
		if secret, err = newSecret(); err != nil {
			return err
		}
	}
	name, err := nameOf(r.now())
	if err != nil {
		return err
	}
	text, err := r.wrapped(ctx, secret)
	if err != nil {
		return err
	}
	return r.kept.add(ctx, name, text)
}

func newSecret() ([]byte, error) {
	secret := make([]byte, 32)
	_, err := rand.Read(secret)
	return secret, err
}

// askTime bounds one request for the keys.
const askTime = 10 * time.Second

// reread reads all keys again, adds new ones to those that are known, and returns what
// it found, by ID. Nothing changes on an error.
func (r *ring) reread(ctx context.Context) (map[string]blob.Key, error) {
	reading, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	all, err := r.kept.read(reading)
	if err != nil {
		return nil, err
	}
	entries := map[string]entry{}
	for name, text := range all {
		if r.toBeMade(text) {
			continue
		}
		if entries[name], err = r.open(ctx, name, text); err != nil {
			return nil, err
		}
	}
	found := map[string]blob.Key{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, e := range entries {
		id := e.key.ID()
		found[id], r.opened[string(e.text)] = e.key, e
		was, taken := r.known[name]
		switch _, ok := r.keys[id]; {
		case !taken && !ok, taken && was.key.ID() == id: // new, or wrapped again
			r.known[name] = e
		case !ok:
			r.known[name+"-"+id] = e // it replaced the other one
		}
		r.keys[id] = e.key
	}
	if len(r.known) > 0 {
		r.newest = slices.Max(slices.Collect(maps.Keys(r.known)))
	}
	return found, nil
}

// open returns the key of a text.
func (r *ring) open(ctx context.Context, name string, text []byte) (entry, error) {
	r.mu.Lock()
	e, ok := r.opened[string(text)]
	r.mu.Unlock()
	if ok {
		return e, nil
	}
	secret, err := text, error(nil)
	if w, ok := kms.Read(text); ok {
		secret, err = r.unwrapped(ctx, name, w)
	}
	if err != nil {
		return entry{}, err
	}
	key, err := blob.NewKey(secret)
	if err != nil {
		return entry{}, fault.New(fault.Invalid, ReasonKey, fmt.Errorf("the key of records %q does not have 32 bytes: %w", name, err))
	}
	return entry{text, secret, key}, nil
}

// check reads the keys again, and reports a known one that the Secret lost. It makes a
// Secret again that was deleted: these keys may exist nowhere else.
func (r *ring) check(ctx context.Context) error {
	if r.kept == nil {
		return nil
	}
	found, err := r.reread(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	known, lost := named{}, []string{}
	for name, e := range r.known {
		known[name] = e.text
	}
	for id := range r.keys {
		if _, ok := found[id]; !ok {
			lost = append(lost, id)
		}
	}
	r.mu.Unlock()
	if len(lost) == 0 {
		return r.wrapAll(ctx)
	}
	made, err := r.kept.restore(ctx, known)
	if err != nil || made {
		return err
	}
	slices.Sort(lost)
	return fault.New(fault.Denied, ReasonKey, fmt.Errorf(
		"the Secret %s lost the keys of records %s, and after a restart no record opens that one of them encrypted: add them from a backup, or delete the Secret while this controller runs, which then makes it again with all keys",
		r.kept.at, strings.Join(lost, ", ")))
}

// Current implements blob.Keys.
func (r *ring) Current() blob.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[r.newest].key
}

// writing notes that a write begins, which uses the newest key of now or one that is added
// meanwhile, until done is called.
func (r *ring) writing() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := r.newest
	r.writes[name]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.writes[name]--; r.writes[name] == 0 {
			delete(r.writes, name)
		}
	}
}

// oldest is the ID of the oldest key that a write of this process may use, now or later.
func (r *ring) oldest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := r.newest
	for n := range r.writes {
		name = min(name, n)
	}
	return r.known[name].key.ID()
}

// noting is a store that notes its writes in a ring.
type noting struct {
	blob.Store
	keys *ring
}

func (n noting) Put(ctx context.Context, key string, r io.Reader) error {
	defer n.keys.writing()()
	return n.Store.Put(ctx, key, r)
}

// all are the known keys, the newest first.
func (r *ring) all() []blob.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := []blob.Key{r.known[r.newest].key}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(r.known))) {
		if name != r.newest {
			keys = append(keys, r.known[name].key)
		}
	}
	return keys
}

// StateKeys are the keys that states of a place are encrypted with, as encryption.Keys. Each is
// derived from a key of records, and so it is there whenever that one is, and nowhere else.
func (r *Records) StateKeys(ctx context.Context, place, id string) ([]encryption.Key, error) {
	from := r.keys.all()
	if id != "" {
		k, ok, err := r.keys.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		if from = nil; ok {
			from = []blob.Key{k}
		}
	}
	var keys []encryption.Key
	for _, k := range from {
		derived, err := k.OfState(place)
		if err != nil {
			return nil, err
		}
		keys = append(keys, derived)
	}
	return keys, nil
}

// askAgain is how long keys are not read again after an unknown one was met.
const askAgain = 10 * time.Second

// Find implements blob.Keys. It reads the keys again for one that it does not know:
// another controller may have started with a new one.
func (r *ring) Find(ctx context.Context, id string) (blob.Key, bool, error) {
	key, ok, ask := r.find(id)
	if !ask {
		return key, ok, nil
	}
	if _, err := r.reread(ctx); err != nil {
		return key, false, err
	}
	key, ok, _ = r.find(id)
	return key, ok, nil
}

// find also returns whether to read the keys again, and remembers that.
func (r *ring) find(id string) (key blob.Key, ok, ask bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key, ok = r.keys[id]; ok || r.kept == nil || r.now().Sub(r.asked) < askAgain {
		return key, ok, false
	}
	r.asked = r.now()
	return key, false, true
}

// secretKeys are keys in a Secret, each under the time of its making and random characters.
type secretKeys struct {
	client.Client
	at client.ObjectKey
}

func (s *secretKeys) read(ctx context.Context) (named, error) {
	secret, err := s.get(ctx)
	if secret == nil {
		return nil, err
	}
	return secret.Data, nil
}

// get returns nil if there is no Secret.
func (s *secretKeys) get(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.Get(ctx, s.at, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, s.forbidden("reading", err)
	case err != nil:
		return nil, fmt.Errorf("reading the Secret %s, which holds the keys of records: %w", s.at, err)
	}
	return secret, nil
}

func (s *secretKeys) forbidden(doing string, err error) error {
	return fault.New(fault.Denied, ReasonKey, fmt.Errorf("%s the Secret %s, which holds the keys of records: %w: %s (update only with --records-kms)", doing, s.at, err, kube.SecretRule(s.at, "get", "update")))
}

// replace stores other texts of the keys, unless another process was faster.
func (s *secretKeys) replace(ctx context.Context, secret *corev1.Secret, texts named) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	next := secret.DeepCopy()
	maps.Copy(next.Data, texts)
	err := s.Update(ctx, next, client.FieldOwner(kube.FieldManager))
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the next check sees what there is
	case apierrors.IsForbidden(err):
		return fault.New(fault.Denied, ReasonKey, fmt.Errorf("wrapping the keys in the Secret %s: %w: %s", s.at, err, kube.SecretRule(s.at, "get", "update")))
	}
	return fmt.Errorf("wrapping the keys in the Secret %s: %w", s.at, err)
}

// add makes the Secret. If another process was faster, the key of that one counts.
func (s *secretKeys) add(ctx context.Context, name string, key []byte) error {
	_, err := s.restore(ctx, named{name: key})
	if apierrors.IsNotFound(err) { // at the first start of a controller without a Lease
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.at.Namespace}}
		if err = s.Create(ctx, namespace, client.FieldOwner(kube.FieldManager)); err == nil || apierrors.IsAlreadyExists(err) {
			_, err = s.restore(ctx, named{name: key})
		}
	}
	return err
}

// restore makes the Secret of keys, unless there is one.
func (s *secretKeys) restore(ctx context.Context, keys named) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err = s.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.at.Namespace, Name: s.at.Name, Labels: map[string]string{"app.kubernetes.io/managed-by": "terrier"}},
		Data:       keys,
	}, client.FieldOwner(kube.FieldManager))
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return false, s.forbidden("creating", err)
	}
	return false, fmt.Errorf("creating the Secret %s, which holds the keys of records: %w", s.at, err)
}
