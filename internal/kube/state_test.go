package kube

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// shelf keeps what outgrows a Secret in memory.
type shelf map[string][]byte

func (s shelf) Put(_ context.Context, key string, r io.Reader) error {
	b, err := io.ReadAll(r)
	s[key] = b
	return err
}

func (s shelf) Get(_ context.Context, key string) (io.ReadCloser, error) {
	b, ok := s[key]
	if !ok {
		return nil, fault.New(fault.Missing, "BlobMissing", errors.New(key))
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (s shelf) Delete(_ context.Context, key string) error {
	delete(s, key)
	return nil
}

func (s shelf) List(_ context.Context, prefix string) ([]string, error) {
	var keys []string
	for k := range s {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// large is a state of 5,000 resources whose 3 MiB no packing makes smaller.
func large(serial int) []byte {
	source := rand.NewChaCha8([32]byte{byte(serial)})
	noise := make([]byte, 480)
	var b strings.Builder
	fmt.Fprintf(&b, `{"version":4,"terraform_version":"1.12.6","serial":%d,"lineage":"big","outputs":{},"resources":[`, serial)
	for i := range 5000 {
		if i > 0 {
			b.WriteByte(',')
		}
		_, _ = source.Read(noise) // never fails
		fmt.Fprintf(&b, `{"mode":"managed","type":"terraform_data","name":"r%d","provider":"provider[\"terraform.io/builtin/terraform\"]","instances":[{"schema_version":0,"attributes":{"id":"%d","input":null,"output":null,"triggers_replace":%q}}]}`, i, i, base64.StdEncoding.EncodeToString(noise))
	}
	b.WriteString(`],"check_results":null}`)
	return []byte(b.String())
}

// F40: a state that no Secret has room for is kept all the same, and the Secret
// never looks like one without a state.
func TestAStateThatOutgrowsItsSecret(t *testing.T) {
	k := testkit.Kube(t)
	beside := shelf{"overflow/another/state": nil}
	s := States{Client: k.Client, Now: time.Now, Overflow: beside}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "big"}
	for _, serial := range []int{1, 2} {
		if err := s.Save(t.Context(), ref, Owner{Name: "big"}, large(serial)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load(t.Context(), ref)
	if err != nil || !bytes.Equal(got.State, large(2)) || !got.Outgrown || got.Owner != "big" {
		t.Fatalf("Load() = %d bytes, outgrown %v, %v; want the second version", len(got.State), got.Outgrown, err)
	}
	if len(got.State) < 3<<20 || got.Packed > 4096 {
		t.Errorf("%d bytes are %d in the Secret, want a state of 3 MiB and a pointer", len(got.State), got.Packed)
	}
	if len(beside) != 2 {
		t.Errorf("%d blobs are kept, want the newest version and what belongs to others", len(beside))
	}
	if err := s.Save(t.Context(), ref, Owner{Name: "big"}, large(1)); fault.Of(err) != fault.Conflict {
		t.Errorf("storing an older version: %v, want a conflict", err)
	}
	engine := byHand(t, k, "big", "plan", "-input=false", "-no-color", "-lock=false")
	if engine.Code == 0 || !strings.Contains(engine.Stderr, "1000000") {
		t.Errorf("the plain engine ended with %d and said %s; want it to refuse a version of the state that it does not know", engine.Code, engine.Stderr)
	}
	if _, err := (States{Client: k.Client, Now: time.Now}).Load(t.Context(), ref); fault.Reason(err, "") != StateUnreadable {
		t.Errorf("without a store: %v, want it to be unreadable and not empty", err)
	}
	small := state("big", 3, "")
	if err := s.Save(t.Context(), ref, Owner{Name: "big"}, small); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), ref); err != nil || !bytes.Equal(got.State, small) || got.Outgrown {
		t.Errorf("Load() after it shrank = %.80q, outgrown %v, %v", got.State, got.Outgrown, err)
	}
	if len(beside) != 1 {
		t.Errorf("%d blobs are kept after it shrank, want only what belongs to others", len(beside))
	}
}

// byHand runs the plain engine on the state called suffix.
func byHand(t *testing.T, k *testkit.Cluster, suffix string, args ...string) testkit.Ran {
	t.Helper()
	dir := t.TempDir()
	content := "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \"" + suffix + "\"\n    namespace     = \"" + k.Namespace + "\"\n    config_path   = \"" + k.Kubeconfig + "\"\n  }\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	init := testkit.TryEngine(t, dir, nil, "init", "-input=false", "-no-color")
	if init.Code != 0 {
		return init // it met the state already
	}
	return testkit.TryEngine(t, dir, nil, args...)
}

func TestWhatCannotBeReadIsNotEmpty(t *testing.T) {
	k := testkit.Kube(t)
	beside := shelf{}
	s := States{Client: k.Client, Now: time.Now, Overflow: beside}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "x"}
	if err := s.Save(t.Context(), ref, Owner{Name: "x"}, large(1)); err != nil {
		t.Fatal(err)
	}
	good := stored(t, k, ref)
	whole := slices.Clone(beside[OutgrownKey(ref, digestOf(large(1)))])
	for name, tt := range map[string]struct {
		packed []byte
		blob   []byte
	}{
		"no gzip":                    {[]byte("hello"), whole},
		"a gzip that is cut off":     {good[:len(good)/2], whole},
		"a pointer to what is gone":  {good, nil},
		"a pointer to another state": {good, large(2)},
	} {
		t.Run(name, func(t *testing.T) {
			delete(beside, OutgrownKey(ref, digestOf(large(1))))
			if tt.blob != nil {
				beside[OutgrownKey(ref, digestOf(large(1)))] = tt.blob
			}
			put(t, k, ref, tt.packed)
			got, err := s.Load(t.Context(), ref)
			if fault.Reason(err, "") != StateUnreadable || got.State != nil || got.Digest == "" {
				t.Errorf("Load() = %d bytes with digest %q, %v; want it to be unreadable", len(got.State), got.Digest, err)
			}
			if err := s.Save(t.Context(), ref, Owner{Name: "x"}, large(3)); fault.Of(err) != fault.Conflict {
				t.Errorf("Save() over it: %v, want a conflict", err)
			}
			if err := s.Replace(t.Context(), ref, Replacement{State: state("big", 9, ""), Over: got.Digest, Owner: Owner{Name: "x"}, Person: "ann"}); err != nil {
				t.Errorf("a person cannot replace it: %v", err)
			}
		})
	}
}

func TestAPersonReplacesWhatTheySaw(t *testing.T) {
	k := testkit.Kube(t)
	s := States{Client: k.Client, Now: time.Now}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "x"}
	if err := s.Replace(t.Context(), ref, Replacement{State: state("l", 1, ""), Owner: Owner{Name: "x"}, Person: "ann"}); err != nil {
		t.Fatal(err)
	}
	seen, err := s.Load(t.Context(), ref)
	if err != nil || seen.Person != "ann" || seen.Owner != "x" {
		t.Fatalf("Load() = %+v, %v; want what ann wrote for x", seen, err)
	}
	if err := s.Save(t.Context(), ref, Owner{Name: "x"}, state("l", 2, "")); err != nil {
		t.Fatal(err)
	}
	err = s.Replace(t.Context(), ref, Replacement{State: state("l", 9, ""), Over: seen.Digest, Owner: Owner{Name: "x"}, Person: "ann"})
	if fault.Of(err) != fault.Conflict {
		t.Errorf("Replace() of what is no longer there: %v, want a conflict", err)
	}
	if now, err := s.Load(t.Context(), ref); err != nil || now.Person != "" {
		t.Errorf("Load() = written by %q, %v; want that it was nobody", now.Person, err)
	}
}

// The plain engine keeps annotations, so a note about an older version stays.
func TestANoteSpeaksOfOneVersion(t *testing.T) {
	k := testkit.Kube(t)
	s := States{Client: k.Client, Now: time.Now}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "x"}
	if err := s.Replace(t.Context(), ref, Replacement{State: state("l", 1, ""), Owner: Owner{Name: "x"}, Person: "ann"}); err != nil {
		t.Fatal(err)
	}
	packed, err := gzipped(state("l", 2, "by somebody else"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, k, ref, packed)
	if got, err := s.Load(t.Context(), ref); err != nil || got.Person != "" {
		t.Errorf("Load() = written by %q, %v; want that it was not ann", got.Person, err)
	}
}

func stored(t *testing.T, k *testkit.Cluster, ref StateRef) []byte {
	t.Helper()
	var secret corev1.Secret
	if err := k.Client.Get(t.Context(), ref.secret(), &secret); err != nil {
		t.Fatal(err)
	}
	return secret.Data[stateKey]
}

func put(t *testing.T, k *testkit.Cluster, ref StateRef, packed []byte) {
	t.Helper()
	var secret corev1.Secret
	if err := k.Client.Get(t.Context(), ref.secret(), &secret); err != nil {
		t.Fatal(err)
	}
	secret.Data[stateKey] = packed
	if err := k.Client.Update(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
}

// What a state cannot be called is known before anything is planned for it.
func TestStatesThatCannotBeNamed(t *testing.T) {
	long := strings.Repeat("n", 64)
	for name, tt := range map[string]struct {
		ref  StateRef
		says string // empty if it can
	}{
		"a name with dots":               {StateRef{Workspace: "default", Suffix: "a.b", Labels: map[string]string{"example.com/team": ""}}, ""},
		"a suffix of 64 characters":      {StateRef{Workspace: "default", Suffix: long}, "backendConfig.secretSuffix"},
		"a workspace of as many":         {StateRef{Workspace: long, Suffix: "a"}, "change workspace"},
		"a workspace in capitals":        {StateRef{Workspace: "Prod", Suffix: "a"}, "change workspace"},
		"a label with a space in it":     {StateRef{Workspace: "default", Suffix: "a", Labels: map[string]string{"team": "a b"}}, "backendConfig.labels"},
		"a label that has no name":       {StateRef{Workspace: "default", Suffix: "a", Labels: map[string]string{"": "a"}}, "backendConfig.labels"},
		"a Secret of 254 characters":     {StateRef{Workspace: "default", Suffix: strings.Repeat("n", 240)}, "secretSuffix"},
		"several, of which one is first": {StateRef{Workspace: "default", Suffix: long, Labels: map[string]string{"a": "b c"}}, `"b c"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.ref.Check(stack.Words{StateName: "workspace or backendConfig.secretSuffix"})
			if tt.says == "" && err == nil {
				return
			}
			if tt.says == "" || fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Check() = %v, want it to name %q", err, tt.says)
			}
		})
	}
}

// A state that was written before its labels were changed to what nothing can
// have is found, and its lock is freed. Only nothing is written for it.
func TestAStateIsFoundWhateverItsLabels(t *testing.T) {
	k := testkit.Kube(t)
	s := States{Client: k.Client, Now: time.Now}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "net"}
	state := []byte(`{"version":4,"lineage":"l","serial":1}`)
	if err := s.Save(t.Context(), ref, Owner{Name: "net"}, state); err != nil {
		t.Fatal(err)
	}
	bad := ref
	bad.Labels = map[string]string{"team": "not a label"}
	if err := s.Lock(t.Context(), bad, LockInfo{ID: "r"}); fault.Reason(err, "") != StateNameInvalid {
		t.Errorf("Lock() = %v, want it to name the label", err)
	}
	if err := s.Lock(t.Context(), ref, LockInfo{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Load(t.Context(), bad); err != nil || string(found.State) != string(state) {
		t.Errorf("Load() = %q, %v, want the state", found.State, err)
	}
	if h, err := s.Holder(t.Context(), bad); err != nil || h == nil || h.Holder.ID != "r" {
		t.Errorf("Holder() = %v, %v, want r", h, err)
	}
	if err := s.Unlock(t.Context(), bad, "r"); err != nil {
		t.Errorf("Unlock() = %v", err)
	}
	if h, err := s.Holder(t.Context(), ref); err != nil || h != nil {
		t.Errorf("Holder() = %v, %v, want the lock free", h, err)
	}
	next := []byte(`{"version":4,"lineage":"l","serial":2}`)
	if err := s.Save(t.Context(), bad, Owner{Name: "net"}, next); fault.Reason(err, "") != StateNameInvalid {
		t.Errorf("Save() = %v, want it to name the label", err)
	}
}
