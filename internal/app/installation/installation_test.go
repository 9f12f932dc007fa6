package installation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
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

// trusts checks that a client of one controller accepts the certificate of another one.
func trusts(t *testing.T, client, server *installation.Keys) {
	t.Helper()
	trustsAt(t, client, server, time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC))
}

func (l *lab) trusts(t *testing.T, client, server *installation.Keys) {
	t.Helper()
	trustsAt(t, client, server, l.now)
}

func trustsAt(t *testing.T, client, server *installation.Keys, at time.Time) {
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

// Controllers of which some were started before the others, and the pods of their runs, accept
// each other's certificates at any time, however often the authority is replaced meanwhile.
func TestNoStartKeepsControllersApart(t *testing.T) {
	const day = 24 * time.Hour
	for name, every := range map[string]time.Duration{"started each 100 days": 100 * day, "started each 300 days": 300 * day} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			dir, begin := t.TempDir(), l.now
			var running []*installation.Keys
			first, replaced := []byte(nil), 0
			for ; l.now.Before(begin.Add(25 * 365 * day)); l.now = l.now.Add(every) {
				k := l.must(t, installation.InFiles, dir)
				running = append(running, k)
				if longest := int(365*day/every) + 1; len(running) > longest {
					running = running[1:]
				}
				for _, other := range running {
					l.trusts(t, k, other)
					l.trusts(t, other, k)
				}
				_, authority, err := k.Certificate(nil, l.now)
				if err != nil {
					t.Fatal(err)
				}
				if ends := block(authority, 0); !bytes.Equal(ends, first) {
					first, replaced = ends, replaced+1
				}
			}
			if replaced != 3 {
				t.Errorf("there were %d authorities in 25 years, want 3", replaced)
			}
			if len(l.said) != 3 || !strings.Contains(l.said[0], "a new one, until") {
				t.Errorf("it said %q, want each successor", l.said)
			}
		})
	}
}

// block is the certificate at a place in a bundle.
func block(bundle []byte, at int) []byte {
	b, rest := pem.Decode(bundle)
	for ; at > 0 && b != nil; at-- {
		b, rest = pem.Decode(rest)
	}
	if b == nil {
		return nil
	}
	return b.Bytes
}

// An authority gets a successor, once for all controllers, and is still the one that earlier
// releases read.
func TestTheAuthorityIsRenewed(t *testing.T) {
	const year = 365 * 24 * time.Hour
	l := newLab(t)
	dir := t.TempDir()
	first := l.must(t, installation.InSecret, dir)
	_, authority, err := first.Certificate(nil, l.now)
	if err != nil {
		t.Fatal(err)
	}
	l.now = l.now.Add(9*year + 100*24*time.Hour)
	keys, errs := make([]*installation.Keys, 3), make([]error, 3)
	var all sync.WaitGroup
	for i := range keys {
		o := l.options(installation.InSecret, t.TempDir())
		o.Progress = func(string, ...any) {}
		all.Go(func() { keys[i], errs[i] = installation.Open(t.Context(), o) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var renewed []byte
	for _, k := range keys {
		cert, bundle, err := k.Certificate([]string{"terrier.example"}, l.now)
		if err != nil {
			t.Fatal(err)
		}
		if renewed == nil {
			renewed = bundle
		}
		if !bytes.Equal(bundle, renewed) || !bytes.Equal(block(bundle, 0), block(authority, 0)) || block(bundle, 1) == nil {
			t.Errorf("a controller that started at the same time trusts %s, want the former authority and the same successor", bundle)
		}
		if err := verify(authority, cert, "terrier.example", l.now); err != nil {
			t.Errorf("a controller that runs, and a pod of its run, do not accept the certificate of a new one: %v", err)
		}
		l.trusts(t, first, k)
	}
	text := l.secret(t).Data["http-authority"]
	if pair, err := tls.X509KeyPair(text, text); err != nil || !bytes.Equal(pair.Leaf.Raw, block(authority, 0)) {
		t.Errorf("an earlier release reads another authority, %v", err)
	}
	// One that runs on has the successor sign before the former authority ends.
	l.now = l.now.Add(200 * 24 * time.Hour)
	for range 2 {
		l.now = l.now.Add(90 * 24 * time.Hour)
		l.trusts(t, keys[0], keys[1])
	}
	if cert, _, err := keys[0].Certificate([]string{"terrier.example"}, l.now); err != nil || cert.Leaf.NotAfter.Sub(l.now) < year {
		t.Errorf("the certificate ends %v, %v, want it signed by the successor", cert.Leaf.NotAfter, err)
	}
	l.must(t, installation.InSecret, dir)
	if text := l.secret(t).Data["http-authority"]; strings.Count(string(text), "BEGIN CERTIFICATE") != 1 {
		t.Errorf("the Secret has %s, want it without the authority that ended", text)
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
