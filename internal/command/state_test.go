package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// shelf keeps records in memory; no run goes on.
type shelf map[string]string

func (s shelf) Get(_ context.Context, key string) ([]byte, error) {
	if content, ok := s[key]; ok {
		return []byte(content), nil
	}
	return nil, fault.New(fault.Missing, "BlobMissing", errors.New(key))
}

func (s shelf) Put(_ context.Context, key string, r io.Reader) error {
	b, err := io.ReadAll(r)
	s[key] = string(b)
	return err
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

func (shelf) Current(string) (*runner.Report, error) { return nil, nil }
func (shelf) Open(_, run, _ string) (io.ReadCloser, error) {
	return nil, fault.New(fault.Missing, "FileMissing", errors.New(run))
}

func stateOf(lineage string, serial int, names ...string) []byte {
	var resources []string
	for _, n := range names {
		resources = append(resources, fmt.Sprintf(`{"mode":"managed","type":"t","name":%q,"instances":[{"attributes":{"id":%q}}]}`, n, n))
	}
	return fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":%q,"outputs":{},"resources":[%s]}`, serial, lineage, strings.Join(resources, ","))
}

// vault is a cluster whose stack has a state and versions of it.
type vault struct {
	cluster
	states kube.States
	ref    kube.StateRef
	*command.Stacks
}

func newVault(t *testing.T, now []byte, versions ...[]byte) vault {
	t.Helper()
	v := vault{cluster: newCluster(t)}
	v.states = kube.States{Client: v.Client, Now: time.Now}
	v.ref = kube.StateRef{Namespace: v.Namespace, Workspace: "default", Suffix: "net"}
	v.Stacks = command.New(interceptor.NewClient(v.kube, interceptor.Funcs{}), kinds.All(), query.NewBlobs(v.records, v.records, time.Millisecond), time.Now)
	if now != nil {
		if err := v.states.Save(t.Context(), v.ref, kube.Owner{Name: "net"}, now); err != nil {
			t.Fatal(err)
		}
	}
	var list stack.StateVersions
	prefix := record.StateVersions(string(v.object().UID))
	for _, b := range versions {
		f := facts(t, b)
		one := stack.StateVersion{Lineage: f.Lineage, Serial: f.Serial, Digest: f.Digest, Bytes: f.Bytes, Resources: f.Resources, By: "apply-1"}
		list.With(one)
		list.Head = f.StateID
		v.records[prefix+one.Key()] = string(b)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	v.records[prefix+"index.json"] = string(raw)
	return v
}

func facts(t *testing.T, state []byte) stack.StateFacts {
	t.Helper()
	f, err := stack.ReadState(state)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (v vault) stored(t *testing.T) kube.Stored {
	t.Helper()
	found, err := v.states.Load(t.Context(), v.ref)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestRollbackIsANewVersion(t *testing.T) {
	old, now := stateOf("l", 3, "a", "b"), stateOf("l", 7, "b", "c")
	v := newVault(t, now, old, now)
	change, err := v.PlanRollback(t.Context(), v.key(), "3", false)
	if err != nil {
		t.Fatal(err)
	}
	if d := change.Diff; fmt.Sprint(d.Gone, d.Added, d.Changed) != "[t.c] [t.a] []" || change.From.Serial != 7 || change.To.Serial != 8 {
		t.Errorf("the change is %+v, want c to go and a to come back", change)
	}
	if err := v.WriteState(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	got := v.stored(t)
	f := facts(t, got.State)
	if f.Serial != 8 || f.Lineage != "l" || f.Resources != 2 || got.Person == "" || got.Owner != "net" {
		t.Errorf("stored is %+v by %q for %q; want serial 8 of l with two resources by a person", f.StateID, got.Person, got.Owner)
	}
	if h, err := v.states.Holder(t.Context(), v.ref); err != nil || h != nil {
		t.Errorf("the lock is held by %v, %v afterwards", h, err)
	}
	if v.object().Annotations[infra.RequestedAt] == "" {
		t.Error("no plan was asked for")
	}
	if err := v.WriteState(t.Context(), change); fault.Of(err) != fault.Conflict {
		t.Errorf("writing it again over what is no longer there: %v, want a conflict", err)
	}
	if _, err := v.PlanRollback(t.Context(), v.key(), "3", false); fault.Reason(err, "") != query.ReasonStateUnseen {
		t.Errorf("replacing what is kept nowhere: %v, want to be told", err)
	}
	if _, err := v.PlanRollback(t.Context(), v.key(), "4", true); fault.Of(err) != fault.Missing {
		t.Errorf("a version that is not kept: %v, want it to be missing", err)
	}
}

// A state that cannot be read, or is gone, is replaced by one that clients which
// know the last version accept.
func TestRollbackGetsOutOfWhatCannotBeRead(t *testing.T) {
	last := stateOf("l", 7, "a")
	v := newVault(t, nil, last)
	change, err := v.PlanRollback(t.Context(), v.key(), "7", false)
	if err != nil || change.To.Serial != 8 {
		t.Fatalf("PlanRollback() = %+v, %v; want serial 8 over nothing", change, err)
	}
	if err := v.WriteState(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	if f := facts(t, v.stored(t).State); f.Serial != 8 || f.Resources != 1 {
		t.Errorf("stored is %+v, want what was there", f)
	}
}

func TestPushFollowsWhatIsStored(t *testing.T) {
	now := stateOf("l", 7, "a")
	for name, tt := range map[string]struct {
		state  []byte
		force  bool
		serial uint64 // that is stored then
		reason string
	}{
		"a later one":                 {stateOf("l", 9, "a", "b"), false, 9, ""},
		"an older one":                {stateOf("l", 6, "b"), false, 7, query.ReasonStateBehind},
		"an older one, with force":    {stateOf("l", 6, "b"), true, 8, ""},
		"another lineage":             {stateOf("m", 9, "b"), false, 7, query.ReasonStateBehind},
		"another lineage, with force": {stateOf("m", 9, "b"), true, 8, ""},
		"something else":              {[]byte("hello"), true, 7, query.ReasonNoState},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVault(t, now, now)
			change, err := v.PlanPush(t.Context(), v.key(), tt.state, tt.force)
			if fault.Reason(err, "") != tt.reason {
				t.Fatalf("PlanPush() = %v, want %q", err, tt.reason)
			}
			if err == nil {
				if err := v.WriteState(t.Context(), change); err != nil {
					t.Fatal(err)
				}
			}
			if f := facts(t, v.stored(t).State); f.Serial != tt.serial || f.Lineage != "l" {
				t.Errorf("stored is %s, want serial %d of l", f.StateID, tt.serial)
			}
		})
	}
}

func TestPushingAStateWaitsForRuns(t *testing.T) {
	now := stateOf("l", 7, "a")
	v := newVault(t, now, now)
	change, err := v.PlanPush(t.Context(), v.key(), stateOf("l", 8), false)
	if err != nil {
		t.Fatal(err)
	}
	v.status(func(s *v1alpha2.TerraformStatus) {
		s.Terrier = &v1alpha2.TerrierStatus{Run: &v1alpha2.RunStatus{ID: "apply-1", Kind: "apply"}}
	})
	if err := v.WriteState(t.Context(), change); fault.Reason(err, "") != query.ReasonRunning {
		t.Errorf("WriteState() during a run: %v, want to be told to wait", err)
	}
	v.status(func(s *v1alpha2.TerraformStatus) { s.Terrier = nil })
	if err := v.states.Lock(t.Context(), v.ref, kube.LockInfo{ID: "cafe", Who: "somebody@elsewhere"}); err != nil {
		t.Fatal(err)
	}
	if err := v.WriteState(t.Context(), change); fault.Of(err) != fault.Later || !strings.Contains(err.Error(), "somebody@elsewhere") {
		t.Errorf("WriteState() behind a lock: %v, want to be told whose it is", err)
	}
}

func TestLocksOfPeople(t *testing.T) {
	v := newVault(t, stateOf("l", 1))
	l, err := v.LockState(t.Context(), v.key(), "moving things")
	if err != nil || l.Person == "" || l.Info != "moving things" {
		t.Fatalf("LockState() = %+v, %v", l, err)
	}
	again, err := v.LockState(t.Context(), v.key(), "")
	if err != nil || again.ID != l.ID {
		t.Errorf("locking twice: %+v, %v; want the same lock", again, err)
	}
	if h, err := v.states.Holder(t.Context(), v.ref); err != nil || !strings.Contains(h.Error(), "moving things") {
		t.Errorf("whoever meets it is told %v, %v; want the reason", h, err)
	}
	if _, err := v.UnlockState(t.Context(), v.key(), "other"); fault.Of(err) != fault.Conflict || !strings.Contains(command.Hint(err), "holder of the lock") {
		t.Errorf("freeing another lock: %v (%s), want a conflict and where to look", err, command.Hint(err))
	}
	if _, err := v.UnlockState(t.Context(), v.key(), ""); err != nil {
		t.Errorf("freeing one's own: %v", err)
	}
	if _, err := v.UnlockState(t.Context(), v.key(), ""); fault.Reason(err, "") != query.ReasonNoLock || strings.Contains(command.Hint(err), "again") {
		t.Errorf("freeing what is free: %v (%s), want it not to be tried again", err, command.Hint(err))
	}
	if err := v.states.Lock(t.Context(), v.ref, kube.LockInfo{ID: "apply-1", Who: "terrier"}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.UnlockState(t.Context(), v.key(), ""); fault.Of(err) != fault.Denied {
		t.Errorf("freeing the lock of others unnamed: %v, want to be refused", err)
	}
	v.status(func(s *v1alpha2.TerraformStatus) {
		s.Terrier = &v1alpha2.TerrierStatus{Run: &v1alpha2.RunStatus{ID: "apply-1", Kind: "apply"}}
	})
	if _, err := v.UnlockState(t.Context(), v.key(), "apply-1"); fault.Reason(err, "") != query.ReasonRunning {
		t.Errorf("freeing the lock of a run: %v, want to be refused", err)
	}
	v.status(func(s *v1alpha2.TerraformStatus) { s.Terrier = nil })
	if _, err := v.UnlockState(t.Context(), v.key(), "apply-1"); err != nil {
		t.Errorf("freeing a dead lock by its name: %v", err)
	}
}

func TestAcceptNamesWhatIsThere(t *testing.T) {
	now := stateOf("m", 1, "a")
	v := newVault(t, now)
	known, err := v.AcceptState(t.Context(), v.key(), "")
	if err != nil || known.Lineage != "m" {
		t.Fatalf("AcceptState() = %+v, %v", known, err)
	}
	if said := v.object().Annotations[dialect.AcceptState]; stack.AcceptedState(said) != facts(t, now).Digest || !strings.Contains(said, "@") {
		t.Errorf("the annotation is %q, want the digest and when", said)
	}
}

// A state that is as expected needs no one to accept it.
func TestThereIsNothingToAccept(t *testing.T) {
	now := stateOf("m", 1, "a")
	v := newVault(t, now)
	v.status(func(s *v1alpha2.TerraformStatus) {
		raw, err := json.Marshal(stack.Status{StoredState: stack.StoredState{KnownState: facts(t, now).StateID}})
		if err != nil {
			t.Fatal(err)
		}
		s.Terrier = &v1alpha2.TerrierStatus{Memory: &apiextensionsv1.JSON{Raw: raw}}
	})
	_, err := v.AcceptState(t.Context(), v.key(), "")
	if fault.Of(err) != fault.Conflict || fault.Reason(err, "") != query.ReasonAsExpected || v.object().Annotations[dialect.AcceptState] != "" {
		t.Errorf("AcceptState() = %v, want that there is nothing to accept", err)
	}
	v.status(func(s *v1alpha2.TerraformStatus) { s.Terrier.Phase = string(stack.StateTampered) })
	if _, err := v.AcceptState(t.Context(), v.key(), ""); err != nil {
		t.Errorf("AcceptState() of a state that a run found to be tampered = %v", err)
	}
}

func TestStatesAreListedWithTheirTroubles(t *testing.T) {
	v := newVault(t, stateOf("l", 7, "a", "b"))
	v.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: other}
spec:
  sourceRef: {kind: GitRepository, name: modules}
  backendConfig: {customConfiguration: 'backend "local" {}'}
`)
	v.status(func(s *v1alpha2.TerraformStatus) {
		raw, err := json.Marshal(stack.Status{StoredState: stack.StoredState{KnownState: stack.StateID{Serial: 6}}})
		if err != nil {
			t.Fatal(err)
		}
		s.Terrier = &v1alpha2.TerrierStatus{Memory: &apiextensionsv1.JSON{Raw: raw}}
	})
	list, err := v.StateInfos(t.Context(), query.Filter{Namespace: v.Namespace})
	if err != nil || len(list) != 2 {
		t.Fatalf("StateInfos() = %+v, %v", list, err)
	}
	if i := list[0]; i.Serial != 7 || i.Resources != 2 || i.Known.Serial != 6 || i.Bytes == 0 || i.Problem != "" {
		t.Errorf("net is %+v", i)
	}
	if i := list[1]; i.Kept != "elsewhere" || i.Serial != 0 {
		t.Errorf("other is %+v, want that it keeps its state elsewhere", i)
	}
	other := query.Key{Namespace: v.Namespace, Name: "other"}
	if _, err := v.PullState(t.Context(), other, ""); fault.Reason(err, "") != query.ReasonStateForeign {
		t.Errorf("PullState() of it: %v, want to be told", err)
	}
}

// F40, as a person meets it: what outgrew its Secret is written and read through
// the server.
func TestALargeStateIsPushedAndPulled(t *testing.T) {
	v := newVault(t, nil)
	noise := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	large := fmt.Appendf(nil, `{"version":4,"serial":1,"lineage":"l","resources":[],"noise":"%x"}`, noise)
	change, err := v.PlanPush(t.Context(), v.key(), large, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.WriteState(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	got, err := v.PullState(t.Context(), v.key(), "")
	if err != nil || string(got) != string(large) {
		t.Errorf("PullState() = %d bytes, %v; want %d", len(got), err, len(large))
	}
	if list, err := v.StateInfos(t.Context(), query.Filter{Namespace: v.Namespace}); err != nil || !list[0].Outgrown {
		t.Errorf("StateInfos() = %+v, %v; want it to have outgrown its Secret", list, err)
	}
}
