package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// lab is a controller of a cluster, its data directory, and a volume for its records.
type lab struct {
	store.Options
	cluster *testkit.Cluster
	now     time.Time
	said    []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{cluster: testkit.Kube(t), now: time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)}
	data := t.TempDir()
	l.Options = store.Options{
		Records: filepath.Join(t.TempDir(), "volume"), Namespace: l.cluster.Namespace, InCluster: true, REST: l.cluster.Config,
		Dir:     func(parts ...string) string { return filepath.Join(append([]string{data}, parts...)...) },
		Environ: func(string) string { return "" },
		Now:     func() time.Time { return l.now },
		Progress: func(format string, args ...any) {
			l.said = append(l.said, fmt.Sprintf(format, args...))
		},
	}
	return l
}

func (l *lab) open(t *testing.T) (*store.Records, error) {
	t.Helper()
	r, err := store.Open(t.Context(), l.Options)
	if err == nil {
		t.Cleanup(func() { _ = r.Close() })
	}
	return r, err
}

func (l *lab) must(t *testing.T) *store.Records {
	t.Helper()
	r, err := l.open(t)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (l *lab) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := l.cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: l.Namespace, Name: store.SecretName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, to record.Writer, key, value string) {
	t.Helper()
	if err := record.Write(t.Context(), to, key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func get(ctx context.Context, from record.Reader, key string) string {
	b, err := record.Read(ctx, from, key)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

var outputs = record.Outputs("uid")

func (l *lab) write(t *testing.T, secret *corev1.Secret, name string, key []byte) {
	t.Helper()
	secret.Data[name] = key
	if err := l.cluster.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}
