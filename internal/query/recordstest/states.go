package recordstest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Where is the Secret of the stack's state.
var Where = kube.StateRef{Namespace: "apps", Workspace: "default", Suffix: "net"}

// InGit is the reference of a state in git.
var InGit = kube.StateRef{Namespace: "apps", Workspace: "default", Suffix: "net", Git: &stack.GitPlace{Repository: "states", Branch: "main", Path: "net.tfstate"}}

const (
	version = "00000000000000000003-6d9a1f0e6d9a"
	old     = `{"version":4,"serial":3,"lineage":"l"}`
)

func statesByName(t *testing.T, w *world, r query.Records) {
	none, err := r.States(t.Context(), Stack)
	if err != nil || len(none.Versions) != 0 || len(none.Rescued) != 0 {
		t.Errorf("States() of a stack without any = %+v, %v; want none", none, err)
	}
	w.put(record.StateIndex(Stack.UID).Key, `{"head":{"serial":3},"versions":[{"serial":3,"by":"apply-2"}]}`)
	w.put(record.StateVersion(Stack.UID, version), old)
	w.put(record.Rescued(Stack.UID, "apply-2"), "rescued")
	kept, err := r.States(t.Context(), Stack)
	if err != nil || len(kept.Versions) != 1 || kept.Versions[0].By != "apply-2" || kept.Head.Serial != 3 {
		t.Errorf("States() = %+v, %v; want the one version", kept, err)
	}
	if diff := cmp.Diff(kept.Rescued, []string{"apply-2"}); diff != "" {
		t.Errorf("the rescued states (-got +want):\n%s", diff)
	}
	for name, want := range map[string]string{version: old, query.RescuedName("apply-2"): "rescued"} {
		body, err := r.State(t.Context(), Stack, name)
		if err != nil {
			t.Errorf("State(%s): %v", name, err)
			continue
		}
		if got, err := io.ReadAll(body); err != nil || body.Close() != nil || string(got) != want {
			t.Errorf("State(%s) = %q, %v; want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]fault.Kind{
		"00000000000000000009-6d9a1f0e6d9a": fault.Missing, "index.json": fault.Invalid, "../runs": fault.Invalid, query.RescuedName("../x"): fault.Invalid,
	} {
		if _, err := r.State(t.Context(), Stack, name); fault.Of(err) != want {
			t.Errorf("State(%s): %v, want %s", name, err, want)
		}
	}
}

func stateBesideItsSecret(t *testing.T, _ *world, r query.Records) {
	state := `{"version":4,"serial":9,"lineage":"l"}`
	if err := r.KeepOutgrown(t.Context(), Stack, Where, []byte("no state")); fault.Of(err) != fault.Invalid {
		t.Errorf("keeping what is no state: %v, want it to be invalid", err)
	}
	if err := r.KeepOutgrown(t.Context(), Stack, Where, []byte(state)); err != nil {
		t.Fatal(err)
	}
	facts, err := stack.ReadState([]byte(state))
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.Outgrown(t.Context(), Stack, Where, facts.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(body); err != nil || body.Close() != nil || string(got) != state {
		t.Errorf("Outgrown() = %q, %v; want what was kept", got, err)
	}
	if _, err := r.Outgrown(t.Context(), Stack, Where, Digest); fault.Of(err) != fault.Missing {
		t.Errorf("Outgrown() of another: %v, want it to be missing", err)
	}
	if _, err := r.Outgrown(t.Context(), Stack, Where, "sha256:"+strings.Repeat("../", 20)); fault.Of(err) != fault.Invalid {
		t.Errorf("Outgrown() of no digest: %v, want it to be invalid", err)
	}
}

func encryptedState(t *testing.T, _ *world, r query.Records) {
	state := "{\"version\":4,\"serial\":9,\"lineage\":\"l\",\"outputs\":{\"o\":{\"value\":\"hunter2\"}}}\n"
	document, err := r.EncryptState(t.Context(), Stack, Where, []byte(state))
	if err != nil || strings.Contains(string(document), "hunter2") || !encryption.Encrypted(document) {
		t.Fatalf("EncryptState() = %s, %v", document, err)
	}
	if got, err := r.DecryptState(t.Context(), Stack, Where, document); err != nil || string(got) != state {
		t.Errorf("DecryptState() = %q, %v; want the state, byte by byte", got, err)
	}
	place := encryption.OfSecret(Where.String())
	keys, err := r.StateKeys(t.Context(), Stack, place, "a test")
	if err != nil || keys.Place != place || len(keys.Keys) != 1 {
		t.Fatalf("StateKeys() = %+v, %v", keys, err)
	}
	if got, _, err := encryption.Decrypt(document, encryption.Key{ID: keys.Keys[0].ID, Bytes: keys.Keys[0].Key}); err != nil || string(got) != state {
		t.Errorf("with these keys the state is %q, %v", got, err)
	}
	if _, err := r.EncryptState(t.Context(), Stack, Where, []byte("{}")); fault.Of(err) != fault.Invalid {
		t.Errorf("encrypting what is no state: %v, want it to be invalid", err)
	}
	if got, err := r.DecryptState(t.Context(), Stack, Where, []byte(state)); fault.Reason(err, "") != encryption.ReasonKey {
		t.Errorf("decrypting a plain state: %s, %v, want %s", got, err, encryption.ReasonKey)
	}
}

func stateInGit(t *testing.T, _ *world, r query.Records) {
	if none, err := r.StateInGit(t.Context(), Stack, InGit); err != nil || none.Digest != "" {
		t.Errorf("StateInGit() of a place without one = %+v, %v", none, err)
	}
	if err := r.ReplaceInGit(t.Context(), Stack, InGit, kube.Replacement{State: []byte(old), Over: "sha256:other"}); fault.Of(err) != fault.Conflict {
		t.Errorf("storing over what is not there: %v, want a conflict", err)
	}
	if err := r.ReplaceInGit(t.Context(), Stack, InGit, kube.Replacement{State: []byte("no state")}); fault.Of(err) != fault.Invalid {
		t.Errorf("storing what is no state: %v, want it to be invalid", err)
	}
	if err := r.ReplaceInGit(t.Context(), Stack, InGit, kube.Replacement{State: []byte(old)}); err != nil {
		t.Fatal(err)
	}
	if got, err := r.StateInGit(t.Context(), Stack, InGit); err != nil || string(got.State) != old || got.Digest != stack.Sum([]byte(old)) {
		t.Errorf("StateInGit() = %+v, %v; want what was stored", got, err)
	}
}

// repository is one place in git.
type repository struct {
	kube.Elsewhere
	is kube.Stored
}

func (r *repository) Load(context.Context, kube.StateRef) (kube.Stored, error) { return r.is, nil }

func (r *repository) Replace(_ context.Context, _ kube.StateRef, with kube.Replacement) error {
	if with.Over != r.is.Digest {
		return fault.New(fault.Conflict, kube.StateConflict, errors.New("it changed"))
	}
	r.is = kube.Stored{State: with.State, Digest: stack.Sum(with.State), Person: with.Person}
	return nil
}

// Put stores a value.
func (w *world) Put(_ context.Context, key string, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err == nil {
		w.put(key, string(b))
	}
	return err
}
