package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/blob/kms"
	"github.com/terrier-iac/terrier/internal/blob/kms/kmstest"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// wrappedLab is a lab whose keys a service wraps.
func wrappedLab(t *testing.T) (*lab, kmstest.Server) {
	t.Helper()
	l, s := newLab(t), kmstest.Vault(t)
	l.KMS = []string{s.URL}
	l.Environ = func(name string) string { return s.Environ[name] }
	return l, s
}

// wrapped checks that no key in the Secret is plain, and returns the versions of the
// service's key.
func (l *lab) wrapped(t *testing.T, keys int) (versions []string) {
	t.Helper()
	secret := l.secret(t)
	if len(secret.Data) != keys {
		t.Errorf("the Secret has %d keys, want %d", len(secret.Data), keys)
	}
	for name, text := range secret.Data {
		w, ok := kms.Read(text)
		if !ok {
			t.Errorf("the key %s is not wrapped", name)
		}
		versions = append(versions, w.Version)
	}
	slices.Sort(versions)
	return versions
}

// Keys are wrapped from the first start on, and those that are added since the next check.
func TestKeysAreWrapped(t *testing.T) {
	l, s := wrappedLab(t)
	r := l.must(t)
	put(t, r, outputs, "value")
	l.wrapped(t, 1)
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("after a restart the record is %q", got)
	}

	// A key that a user adds, and one that Terrier is asked to make.
	secret := l.secret(t)
	secret.Data["2026-12-01"], secret.Data["2026-12-02"] = bytes.Repeat([]byte{9}, 32), nil
	if err := l.cluster.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := r.Ours(t.Context()); err != nil {
		t.Errorf("Ours() = %v", err)
	}
	l.wrapped(t, 3)
	put(t, r, record.State("uid"), "under the newest key")
	again := l.must(t)
	if a, b := get(t.Context(), again, outputs), get(t.Context(), again, record.State("uid")); a != "value" || b != "under the newest key" {
		t.Errorf("after a rotation the records are %q and %q", a, b)
	}

	// A new version of the service's key.
	s.Rotate(t)
	if err := r.Ours(t.Context()); err != nil {
		t.Errorf("Ours() = %v", err)
	}
	if got := l.wrapped(t, 3); !slices.Equal(got, []string{"2", "2", "2"}) {
		t.Errorf("the keys are wrapped by the versions %v, want the new one", got)
	}
	before := l.secret(t)
	if err := r.Ours(t.Context()); err != nil || l.secret(t).ResourceVersion != before.ResourceVersion {
		t.Errorf("Ours() = %v, and changed the Secret for nothing", err)
	}
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("after the rotation of the service's key the record is %q", got)
	}

	// A Secret that is deleted comes back as it was.
	if err := l.cluster.Client.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if err := r.Ours(t.Context()); err != nil {
		t.Errorf("Ours() = %v", err)
	}
	if after := l.secret(t); !maps.EqualFunc(after.Data, before.Data, bytes.Equal) {
		t.Error("the Secret has other keys than before")
	}
}

// An installation that had plain keys has none after its next start.
func TestPlainKeysAreWrapped(t *testing.T) {
	l, s := wrappedLab(t)
	url := l.KMS
	l.KMS = nil
	put(t, l.must(t), outputs, "value")
	l.KMS = url
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("the record is %q", got)
	}
	l.wrapped(t, 1)

	// Another key of the service takes over, while the former one unwraps.
	l.KMS = []string{s.Other, s.URL}
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("with another key of the service the record is %q", got)
	}
	l.KMS = []string{s.Other}
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("without the former key of the service the record is %q", got)
	}
	before := l.secret(t)
	for what, url := range map[string][]string{"the former key": {s.URL}, "no key": nil} {
		l.KMS = url
		_, err := l.open(t)
		if fault.Reason(err, "") != store.ReasonKey || !strings.Contains(fmt.Sprint(err), "--records-kms") {
			t.Errorf("Open() with %s of the service = %v, want %s", what, err, store.ReasonKey)
		}
	}
	if l.secret(t).ResourceVersion != before.ResourceVersion {
		t.Error("a start that was refused changed the Secret")
	}
}

// The key of records in the data directory moves into the Secret, wrapped.
func TestTheKeyOfTheDataDirectoryIsWrapped(t *testing.T) {
	l, _ := wrappedLab(t)
	url := l.KMS
	l.KMS, l.Records = nil, ""
	put(t, l.must(t), outputs, "value")
	l.KMS = url
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("the record is %q", got)
	}
	l.wrapped(t, 1)
	if err := os.Remove(l.Dir("secrets", "records")); err != nil {
		t.Fatal(err)
	}
	if got := get(t.Context(), l.must(t), outputs); got != "value" {
		t.Errorf("without the file the record is %q", got)
	}

	// A file with another key is no key of these records.
	if err := l.cluster.Client.Delete(t.Context(), l.secret(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.Dir("secrets", "records"), bytes.Repeat([]byte{9}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.open(t); fault.Reason(err, "") != store.ReasonKey {
		t.Errorf("Open() with another key in the data directory = %v, want %s", err, store.ReasonKey)
	}
}

// With plain before the service, the keys in the Secret are plain after the next start, and
// the service is needed no more.
func TestKeysBecomePlainAgain(t *testing.T) {
	l, s := wrappedLab(t)
	r := l.must(t)
	put(t, r, outputs, "value")
	secret := l.secret(t)
	secret.Data["2099-12-01"] = nil
	if err := l.cluster.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := r.Ours(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.wrapped(t, 2)
	put(t, r, record.State("uid"), "under the newest key")

	l.KMS = []string{"plain", s.URL}
	back := l.must(t)
	for name, text := range l.secret(t).Data {
		if _, ok := kms.Read(text); ok || len(text) != 32 {
			t.Errorf("the key %s is not plain", name)
		}
	}
	before := l.secret(t)
	if err := back.Ours(t.Context()); err != nil || l.secret(t).ResourceVersion != before.ResourceVersion {
		t.Errorf("Ours() = %v, and changed the Secret for nothing", err)
	}
	l.KMS = nil
	without := l.must(t)
	for key, want := range map[string]string{outputs: "value", record.State("uid"): "under the newest key"} {
		if got := get(t.Context(), without, key); got != want {
			t.Errorf("without the service the record %s is %q, want %q", key, got, want)
		}
	}
}

// Records work on with the keys in memory while the service takes no request, and every
// check says what is wrong.
func TestAServiceThatIsLost(t *testing.T) {
	l, s := wrappedLab(t)
	r := l.must(t)
	put(t, r, outputs, "value")
	works := func(when string) {
		t.Helper()
		put(t, r, record.State("uid"), when)
		if got := get(t.Context(), r, outputs) + get(t.Context(), r, record.State("uid")); got != "value"+when {
			t.Errorf("%s the records are %q", when, got)
		}
	}
	s.Deny(t, true)
	for range 2 {
		if err := r.Ours(t.Context()); fault.Reason(err, "") != kms.ReasonDenied || !strings.Contains(fmt.Sprint(err), "stay in memory") {
			t.Errorf("Ours() without the right = %v", err)
		}
	}
	if r.Checked() == nil {
		t.Error("Checked() = nil without the right")
	}
	works("without the right")
	if _, err := l.open(t); fault.Reason(err, "") != kms.ReasonDenied {
		t.Errorf("Open() without the right = %v", err)
	}
	s.Deny(t, false)
	if err := r.Ours(t.Context()); err != nil || r.Checked() != nil {
		t.Errorf("Ours() with the right = %v", err)
	}
	s.Down(t)
	if err := r.Ours(t.Context()); fault.Reason(err, "") != kms.ReasonUnreachable {
		t.Errorf("Ours() while the service is down = %v", err)
	}
	works("while it is down")

	// A start waits, and says so.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var said atomic.Bool
	o := l.Options
	o.Progress = func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); strings.HasPrefix(text, "waiting for the keys of records: ") {
			said.Store(true)
			stop()
		}
	}
	if _, err := store.Open(ctx, o); !errors.Is(err, context.Canceled) || !said.Load() {
		t.Errorf("Open() while the service is down = %v, and it said so: %t", err, said.Load())
	}
}

// The flag is checked before anything starts.
func TestFlagOfServices(t *testing.T) {
	for _, tt := range []struct {
		key  string
		kms  []string
		says string
	}{
		{"", []string{"vault://bao.example.com/transit/terrier"}, ""},
		{"secret", []string{"awskms://alias/a?region=r", "awskms://alias/b?region=r"}, ""},
		{"file", []string{"vault://bao.example.com/transit/terrier"}, "--records-key=file"},
		{"", []string{"vault://u:canary@bao.example.com/transit/terrier"}, "--records-kms vault://bao.example.com/transit/terrier"},
		{"", []string{"awskms://alias/a"}, "region="},
		{"", []string{"plain", "vault://bao.example.com/transit/terrier"}, ""},
		{"", []string{"vault://bao.example.com/transit/terrier", "plain"}, "--records-kms plain comes first"},
	} {
		err := store.Check(filepath.Join("/", "volume"), tt.key, tt.kms, func(string) string { return "" })
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) || strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("Check(%q, %q) = %v, want it to say %q", tt.key, tt.kms, err, tt.says)
		}
	}
}
