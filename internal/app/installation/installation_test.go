package installation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/app/installation"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// lab is a cluster, in which each controller has a data directory.
type lab struct {
	*testkit.Cluster
	now  time.Time
	said []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{Cluster: testkit.Kube(t), now: time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)}
}

func (l *lab) open(t *testing.T, keys, dir string) (*installation.Keys, error) {
	t.Helper()
	return installation.Open(t.Context(), l.options(keys, dir))
}

func (l *lab) options(keys, dir string) installation.Options {
	return installation.Options{
		Keys: keys, Dir: dir, Namespace: l.Namespace, Lease: "terrier-controller", Client: l.Client,
		Now:      func() time.Time { return l.now },
		Progress: func(format string, args ...any) { l.said = append(l.said, fmt.Sprintf(format, args...)) },
	}
}

func (l *lab) must(t *testing.T, keys, dir string) *installation.Keys {
	t.Helper()
	k, err := l.open(t, keys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (l *lab) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := l.Client.Get(t.Context(), client.ObjectKey{Namespace: l.Namespace, Name: installation.SecretName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (l *lab) update(t *testing.T, s *corev1.Secret) {
	t.Helper()
	if err := l.Client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) lease(t *testing.T, of string) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.Namespace, Name: "terrier-controller", Annotations: map[string]string{installation.Annotation: of},
	}}
	if err := l.Client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

// same reports how the keys of two controllers differ.
func same(t *testing.T, a, b *installation.Keys) {
	t.Helper()
	if a.ID() != b.ID() || a.Digests() != b.Digests() || !bytes.Equal(a.Runs(), b.Runs()) || len(a.Runs()) != 32 {
		t.Errorf("two controllers have other keys: %s and %s", a.ID(), b.ID())
	}
	x, errX := a.Derive("purpose")
	y, errY := b.Derive("purpose")
	other, errOther := a.Derive("another purpose")
	if err := errors.Join(errX, errY, errOther); err != nil || x != y || x == other {
		t.Errorf("derived keys are %q and %q, for another purpose %q, %v", x, y, other, err)
	}
	trusts(t, a, b)
	trusts(t, b, a)
}

var at = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// trusts checks that a client of one controller accepts the certificate of another one.
func trusts(t *testing.T, client, server *installation.Keys) {
	t.Helper()
	_, authority, err := client.Certificate([]string{"a.example"}, at)
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := server.Certificate([]string{"terrier.example", "10.0.0.7", "fd00::1"}, at)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"terrier.example", "10.0.0.7", "fd00::1"} {
		if err := verify(authority, cert, name, at); err != nil {
			t.Errorf("the certificate of the other controller for %s: %v", name, err)
		}
	}
}

func verify(authority []byte, cert tls.Certificate, name string, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err == nil {
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at})
	}
	return err
}

// Controllers with data directories of their own share the keys in a Secret, although all
// of them start at once.
func TestControllersShareKeys(t *testing.T) {
	l := newLab(t)
	keys, errs := make([]*installation.Keys, 4), make([]error, 4)
	var all sync.WaitGroup
	for i := range keys {
		o := l.options(installation.InSecret, t.TempDir())
		all.Go(func() { keys[i], errs[i] = installation.Open(t.Context(), o) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys[1:] {
		same(t, keys[0], k)
	}
	before := l.secret(t)
	same(t, keys[0], l.must(t, installation.InSecret, t.TempDir()))
	if after := l.secret(t); after.ResourceVersion != before.ResourceVersion {
		t.Error("a later start changed the Secret")
	}
}

// An upgrade keeps what the data directory has, and makes what it lacks.
func TestKeysOfTheDataDirectoryAreAdopted(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	before := l.must(t, installation.InFiles, dir)
	l.lease(t, before.ID())
	after := l.must(t, installation.InSecret, dir)
	same(t, before, after)
	if !slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, installation.SecretName) }) {
		t.Errorf("it said %q, want the Secret", l.said)
	}
	if err := after.Mark(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "secrets")); err != nil {
		t.Fatal(err)
	}
	same(t, before, l.must(t, installation.InSecret, dir))
	same(t, before, l.must(t, installation.InSecret, t.TempDir()))
	if of, err := installation.Of(dir); of != before.ID() {
		t.Errorf("the data directory belongs to %q, %v", of, err)
	}
	if _, err := l.open(t, installation.InFiles, dir); fault.Reason(err, "") != installation.ReasonLost {
		t.Errorf("Open() of a data directory whose keys are in the Secret = %v", err)
	}
}

// A data directory of a process that had no pods has one key. It is adopted, too.
func TestAKeyOfDigestsIsAdopted(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	before, err := installation.Local(dir, func() time.Time { return l.now })
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "secrets")); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v, want one key", entries, err)
	}
	after := l.must(t, installation.InSecret, dir)
	if before.ID() != after.ID() || before.Digests() != after.Digests() {
		t.Error("the key of digests changed")
	}
	trusts(t, after, l.must(t, installation.InSecret, t.TempDir()))
}

// Keys are made once. Where there were some, a start without them is refused.
func TestLostKeysAreNotReplaced(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	first := l.must(t, installation.InSecret, dir)
	if err := first.Mark(dir); err != nil {
		t.Fatal(err)
	}
	secret := l.secret(t)
	whole := maps.Clone(secret.Data)
	refused := func(why, reason, dir string, says ...string) {
		t.Helper()
		_, err := l.open(t, installation.InSecret, dir)
		if fault.Reason(err, "") != reason {
			t.Errorf("%s: Open() = %v, want %s", why, err, reason)
		}
		for _, s := range says {
			if !strings.Contains(fmt.Sprint(err), s) {
				t.Errorf("%s: Open() = %v, want it to say %q", why, err, s)
			}
		}
	}

	for name := range whole {
		secret.Data = maps.Clone(whole)
		delete(secret.Data, name)
		l.update(t, secret)
		refused("without "+name, installation.ReasonLost, dir, name, "restore it")
		secret.Data[name] = []byte("half")
		l.update(t, secret)
		refused("with half of "+name, installation.ReasonLost, dir, name, "restore it")
	}
	secret.Data = whole
	l.update(t, secret)

	other := t.TempDir()
	l.must(t, installation.InFiles, other)
	refused("with another data directory", installation.ReasonAnother, other, first.ID())

	if err := l.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	refused("by the data directory", installation.ReasonLost, dir, first.ID(), "restore the Secret", "Lease")
	l.lease(t, first.ID())
	refused("by the Lease", installation.ReasonLost, t.TempDir(), first.ID())
	refused("by the Lease, with other keys", installation.ReasonLost, other, first.ID())

	secret.ResourceVersion, secret.UID = "", ""
	if err := l.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	same(t, first, l.must(t, installation.InSecret, dir))
}

// An authority that ends soon is replaced, once for all controllers.
func TestTheAuthorityIsRenewed(t *testing.T) {
	for _, where := range []string{installation.InFiles, installation.InSecret} {
		t.Run(where, func(t *testing.T) {
			l := newLab(t)
			dir := t.TempDir()
			first := l.must(t, where, dir)
			l.now = l.now.Add(100 * 24 * time.Hour)
			_, authority, err := first.Certificate(nil, l.now)
			if err != nil {
				t.Fatal(err)
			}
			cert, _, err := l.must(t, where, dir).Certificate([]string{"terrier.example"}, l.now)
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(authority, cert, "terrier.example", l.now); err != nil {
				t.Errorf("the certificate of a later start is not trusted: %v", err)
			}
			l.now = l.now.Add(9 * 365 * 24 * time.Hour)
			keys, errs := make([]*installation.Keys, 3), make([]error, 3)
			var all sync.WaitGroup
			for i := range keys {
				o := l.options(where, dir)
				if where == installation.InFiles && i > 0 {
					continue // the lock of the data directory keeps them off
				}
				all.Go(func() { keys[i], errs[i] = installation.Open(t.Context(), o) })
			}
			all.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			_, renewed, err := keys[0].Certificate(nil, l.now)
			if err != nil || bytes.Equal(renewed, authority) {
				t.Fatalf("an authority that ends soon was not replaced, %v", err)
			}
			for _, k := range keys {
				if k == nil {
					continue
				}
				cert, _, err := k.Certificate([]string{"terrier.example"}, l.now)
				if err != nil {
					t.Fatal(err)
				}
				if err := verify(renewed, cert, "terrier.example", l.now.Add(2*365*24*time.Hour)); err != nil {
					t.Errorf("the certificate of a controller that started at the same time: %v", err)
				}
			}
		})
	}
}

// Files are for their owner alone, and one that is damaged is not replaced.
func TestFiles(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	first := l.must(t, installation.InFiles, dir)
	same(t, first, l.must(t, installation.InFiles, dir))
	if other := l.must(t, installation.InFiles, t.TempDir()); other.ID() == first.ID() {
		t.Error("two data directories are the same installation")
	}
	files, err := filepath.Glob(filepath.Join(dir, "secrets", "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("the directory has %q, %v", files, err)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want it readable for its owner only", path, info, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := l.open(t, installation.InFiles, dir); !strings.Contains(fmt.Sprint(err), path) {
			t.Errorf("Open() with half of %s = %v, want its name", path, err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// forbidden is a cluster that refuses a verb on Secrets.
type forbidden struct {
	client.Client
	get bool
}

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, installation.SecretName, errors.New("no rule allows it"))

func (f forbidden) Get(ctx context.Context, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
	if f.get {
		return errForbidden
	}
	return f.Client.Get(ctx, key, obj, o...)
}

func (f forbidden) Create(context.Context, client.Object, ...client.CreateOption) error {
	return errForbidden
}

// A role of an earlier release does not allow the Secret: the start is refused with the rule
// to add, and the other way out.
func TestTheMissingRuleIsNamed(t *testing.T) {
	for _, get := range []bool{true, false} {
		l := newLab(t)
		o := l.options("secret", t.TempDir())
		o.Client = forbidden{l.Client, get}
		_, err := installation.Open(t.Context(), o)
		if fault.Of(err) != fault.Denied {
			t.Fatalf("Open() = %v, want it refused", err)
		}
		for _, says := range []string{"the namespace " + l.Namespace, "rules: [", "resourceNames: [terrier-installation], verbs: [get, update]", "--installation-keys=file"} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("Open() = %v, want it to say %q", err, says)
			}
		}
	}
}
