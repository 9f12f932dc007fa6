package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/blob"
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
	case o.InCluster && o.Records != "":
		return keyInSecret
	}
	return keyInFile
}

// keys opens the keys. Where none are, it makes one, unless there are records already:
// then the key is elsewhere, and a new one would open none of them.
func (o Options) keys(ctx context.Context, cluster client.Client, used bool) (blob.Keys, error) {
	if o.keySource() == keyInFile {
		return o.fileKey(used)
	}
	s := secretKeys{cluster, client.ObjectKey{Namespace: o.Namespace, Name: SecretName}}
	r := &ring{read: s.read, now: o.Now}
	return r, r.begin(ctx, o.describe(keyInSecret), used, s.add)
}

// fileKey is the key in the data directory.
func (o Options) fileKey(used bool) (blob.Keys, error) {
	path := o.Dir("secrets", "records")
	if _, err := os.Stat(path); os.IsNotExist(err) && used {
		return nil, missingKey(o.describe(keyInFile))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	key, err := blob.LoadKey(path)
	if err != nil {
		return nil, err
	}
	return &ring{keys: map[string]blob.Key{key.ID(): key}, newest: key}, nil
}

func missingKey(source string) error {
	return fault.New(fault.Denied, ReasonKey, fmt.Errorf(
		"the records exist, and %s does not: restore it, or name the place of the key with --records-key; a new key would open none of the records", source))
}

// named is the 32 bytes of each key, by the name under which it is kept. The last name
// in order is the one of the newest.
type named map[string][]byte

// ring is keys that other processes may add to.
type ring struct {
	read func(context.Context) (named, error) // nil if nothing is added
	now  func() time.Time

	mu     sync.Mutex
	keys   map[string]blob.Key // by ID
	newest blob.Key
	asked  time.Time
}

// begin reads the keys, and makes the first one if there are none and may be none.
func (r *ring) begin(ctx context.Context, source string, used bool, add func(ctx context.Context, name string, key []byte) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, err := r.reread(ctx)
	if err != nil || found > 0 {
		return err
	}
	if used {
		return missingKey(source)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	if err := add(ctx, r.now().UTC().Format(time.DateOnly), secret); err != nil {
		return err
	}
	if found, err = r.reread(ctx); err == nil && found == 0 {
		err = fault.New(fault.Invalid, ReasonKey, fmt.Errorf("%s holds no key: delete it, and a new one is made", source))
	}
	return err
}

// reread reads all keys again.
func (r *ring) reread(ctx context.Context) (int, error) {
	r.asked = r.now()
	all, err := r.read(ctx)
	if err != nil {
		return 0, err
	}
	keys := map[string]blob.Key{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		key, err := blob.NewKey(all[name])
		if err != nil {
			return 0, fault.New(fault.Invalid, ReasonKey, fmt.Errorf("the key of records %q does not have 32 bytes: %w", name, err))
		}
		keys[key.ID()], r.newest = key, key
	}
	r.keys = keys
	return len(keys), nil
}

// Current implements blob.Keys.
func (r *ring) Current() blob.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// askAgain is how long keys are not read again after an unknown one was met.
const askAgain = 10 * time.Second

// Find implements blob.Keys. It reads the keys again for one that it does not know:
// another controller may have started with a new one.
func (r *ring) Find(ctx context.Context, id string) (blob.Key, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, ok := r.keys[id]
	if ok || r.read == nil || r.now().Sub(r.asked) < askAgain {
		return key, ok, nil
	}
	if _, err := r.reread(ctx); err != nil {
		return key, false, err
	}
	key, ok = r.keys[id]
	return key, ok, nil
}

// secretKeys are keys in a Secret, each under the day of its making.
type secretKeys struct {
	client.Client
	at client.ObjectKey
}

func (s secretKeys) read(ctx context.Context) (named, error) {
	var secret corev1.Secret
	err := s.Get(ctx, s.at, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Secret %s, which holds the keys of records: %w", s.at, err)
	}
	return secret.Data, nil
}

// add makes the Secret. If another process was faster, the key of that one counts.
func (s secretKeys) add(ctx context.Context, name string, key []byte) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.at.Namespace, Name: s.at.Name, Labels: map[string]string{"app.kubernetes.io/managed-by": "terrier"}},
		Data:       map[string][]byte{name: key},
	}
	err := s.Create(ctx, secret, client.FieldOwner(kube.FieldManager))
	if apierrors.IsNotFound(err) { // at the first start of a controller without a Lease
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.at.Namespace}}
		if err = s.Create(ctx, namespace, client.FieldOwner(kube.FieldManager)); err == nil || apierrors.IsAlreadyExists(err) {
			err = s.Create(ctx, secret, client.FieldOwner(kube.FieldManager))
		}
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the Secret %s, which holds the keys of records: %w", s.at, err)
	}
	return nil
}
