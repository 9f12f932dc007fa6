package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A migration from tofu-controller starts Terrier on the same cluster, and nothing
// happens to existing resources. The way back finds everything where it was.
func TestTakeover(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	before := e.remember(t)
	calls := len(e.w.Calls())
	t.Run("the script makes ready", func(t *testing.T) { e.makeReady(t, before) })
	e.plane()
	if err := e.p.Start(); err != nil {
		t.Fatal(err)
	}
	e.AwaitGone(t, "going") // the longest way

	t.Run("what stands is found true", func(t *testing.T) {
		for _, name := range []string{"once", "below", "above", "loosened", "elder", "blue", "suffixed"} {
			s := e.AwaitReason(t, name, "TerraformPlannedNoChanges")
			if s.Status.LastAppliedRevision != "main@sha1:"+e.before || s.Status.Plan.LastApplied != "plan-main-"+e.before[:10] || s.Status.ReconciliationFailures != 0 {
				t.Errorf("%s: the status is %+v, want what was applied last to be remembered", name, s.Status)
			}
		}
		e.AwaitReason(t, "watched", "NoDrift")
	})

	t.Run("what waits is named anew", func(t *testing.T) {
		name := "plan-main-" + e.commit[:10]
		if s := e.AwaitPending(t, "asked"); s.Status.Plan.Pending != name {
			t.Errorf("the plan is called %q, want %q as before", s.Status.Plan.Pending, name)
		}
		// The approved plan is unknown here: no user has seen the new plan, so it
		// must not have the name that is approved already.
		s := e.AwaitPending(t, "approved")
		if got := s.Status.Plan.Pending; got == name || !strings.HasPrefix(got, name) {
			t.Errorf("the plan is called %q, want a longer name than %q", got, name)
		}
		for _, want := range []string{name, "not this plan", s.Status.Plan.Pending} {
			if !strings.Contains(message(s), want) {
				t.Errorf("the message is %q, want it to say %q", message(s), want)
			}
		}
		if s := e.AwaitPending(t, "nameless"); s.Status.LastAppliedRevision != "" {
			t.Errorf("what could never be built counts as applied: %+v", s.Status)
		}
	})

	t.Run("what was stopped stays so", func(t *testing.T) {
		was, is := before.stacks["suspended"].Status, e.Stack(t, "suspended").Status
		is.Terrier = nil // ours
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("the status of a suspended stack (-before +after):\n%s", diff)
		}
		s := e.AwaitReason(t, "locked", "LockHeld")
		if id := before.stacks["locked"].Status.Lock.Pending; s.Status.Lock.Pending != id || !strings.Contains(message(s), "runner@locked-tf-runner") {
			t.Errorf("the lock is %+v and the message %q, want %s and who holds it", s.Status.Lock, message(s), id)
		}
		if got := e.Stack(t, "loosened").Status.Lock; got.Pending != "" || got.LastApplied != before.stacks["loosened"].Status.Lock.Pending {
			t.Errorf("the lock that may be broken is %+v, want it to have been", got)
		}
		e.AwaitReason(t, "orphaned", "DependencyNotReady")
	})

	t.Run("what was deleted goes", func(t *testing.T) {
		e.AwaitGone(t, "leaving")
		if len(e.w.Named("going")) != 0 || len(e.w.Named("leaving")) != 1 {
			t.Errorf("the world holds %+v, want leaving and not going", e.w.Things())
		}
		if !e.Exists(t, "tfstate-default-leaving", &corev1.Secret{}) {
			t.Error("the state of what stays is gone")
		}
		awaitEvents(t, e.Cluster, "leaving,reason=ResourcesRetained", "resources in the state: 1")
	})

	t.Run("nothing else changes", func(t *testing.T) {
		if got := e.changed(calls); !slices.Equal(got, []string{"delete going"}) {
			t.Errorf("the world was changed: %v, want nothing but what was asked for before", got)
		}
		e.unchanged(t, before, "going", "leaving")
	})

	t.Run("outputs keep every byte", func(t *testing.T) {
		s := e.AwaitReason(t, "settled", "TerraformOutputsWritten")
		if diff := cmp.Diff(before.outputs.Data, e.secret(t, "settled-outputs").Data); diff != "" {
			t.Errorf("the outputs (-before +after):\n%s", diff)
		}
		after := e.secret(t, "settled-outputs")
		if !cmp.Equal(before.outputs.OwnerReferences, after.OwnerReferences) || after.Labels["team"] != "a" || after.UID != before.outputs.UID {
			t.Errorf("the Secret is %+v, want the same one, owned as before", after.ObjectMeta)
		}
		if want := []string{"hidden", "list", "number", "object", "text"}; !cmp.Equal(s.Status.AvailableOutputs, want) {
			t.Errorf("status.availableOutputs is %v, want %v", s.Status.AvailableOutputs, want)
		}
	})

	t.Run("what others left is left alone", func(t *testing.T) {
		for _, name := range []string{"terraform-runner.tls-1789459200", "tf-runner.cache-encryption", "tfplan-default-asked", "tfplan-default-approved"} {
			if s := e.secret(t, name); s.ResourceVersion != before.others[name] {
				t.Errorf("%s was changed", name)
			}
		}
		if s := e.secret(t, "tfplan-default-approved.json"); s.Annotations["savedPlan"] != e.Stack(t, "approved").Status.Plan.Pending {
			t.Errorf("the readable plan is of %q, want the plan that waits", s.Annotations["savedPlan"])
		}
	})

	t.Run("the script watches", e.watched)

	t.Run("and it goes on from there", func(t *testing.T) {
		e.Patch(t, "approved", `{"spec":{"approvePlan":"`+e.Stack(t, "approved").Status.Plan.Pending+`"}}`)
		e.AwaitReady(t, "approved")
		e.Patch(t, "locked", `{"spec":{"tfstate":{"forceUnlock":"auto"}}}`)
		e.AwaitReady(t, "locked")
		e.Delete(t, "orphaned")
		e.AwaitGone(t, "orphaned")
		e.Delete(t, "above")
		e.AwaitGone(t, "above")
		testkit.Eventually(t, testkit.Patience, "nothing stands on below", func(ctx context.Context) error {
			if f := e.Stack(t, "below").Finalizers; len(f) != 1 {
				return errors.New(strings.Join(f, ", "))
			}
			return nil
		})
		if got := e.changed(calls); !slices.Equal(got, []string{"delete going", "update approved"}) {
			t.Errorf("the world was changed: %v", got)
		}
	})

	t.Run("the script cleans when asked", e.cleaned)
	t.Run("and back", func(t *testing.T) { e.goBack(t, before) })
}

// memento is what must be there afterwards.
type memento struct {
	stacks  map[string]*v1alpha2.Terraform
	states  map[string]*corev1.Secret
	outputs *corev1.Secret
	others  map[string]string // resource versions of Secrets
}

func (e *estate) remember(t *testing.T) memento {
	t.Helper()
	m := memento{stacks: map[string]*v1alpha2.Terraform{}, states: map[string]*corev1.Secret{}, others: map[string]string{}}
	for _, h := range holdings {
		m.stacks[h.stack], m.states[h.stack] = e.Stack(t, h.stack), e.secret(t, h.secret())
	}
	m.outputs = e.secret(t, "settled-outputs")
	var all corev1.SecretList
	if err := e.Client.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		m.others[s.Name] = s.ResourceVersion
	}
	return m
}

func (e *estate) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	var s corev1.Secret
	e.Get(t, name, &s)
	return &s
}

// unchanged compares specs and states with what they were.
func (e *estate) unchanged(t *testing.T, before memento, but ...string) {
	t.Helper()
	for _, h := range holdings {
		if slices.Contains(but, h.stack) {
			continue
		}
		was, is := before.stacks[h.stack], e.Stack(t, h.stack)
		if is.Generation != was.Generation || !cmp.Equal(was.Finalizers, is.Finalizers) {
			t.Errorf("%s: the spec is at generation %d with the finalizers %v, want %d and %v", h.stack, is.Generation, is.Finalizers, was.Generation, was.Finalizers)
		}
		if diff := cmp.Diff(was.Status.Inventory, is.Status.Inventory); diff != "" {
			t.Errorf("%s: the inventory (-before +after):\n%s", h.stack, diff)
		}
		state := e.secret(t, h.secret())
		if !maps.EqualFunc(before.states[h.stack].Data, state.Data, slices.Equal) || !maps.Equal(before.states[h.stack].Labels, state.Labels) {
			t.Errorf("%s: its state was written although nothing changed", h.stack)
		}
	}
}

// goBack stops Terrier and looks with the plain engine, which is what the
// runners of the old controller are, at what it left.
func (e *estate) goBack(t *testing.T, before memento) {
	if _, err := e.p.Stop(); err != nil {
		t.Fatal(err)
	}
	e.alone(t)
	gone := []string{"going", "above", "orphaned"}
	for _, h := range holdings {
		if slices.Contains(gone, h.stack) {
			continue
		}
		var lease coordinationv1.Lease
		e.Get(t, "lock-"+h.secret(), &lease)
		if by := lease.Spec.HolderIdentity; by != nil && *by != "" {
			t.Errorf("%s: the lock is held by %s", h.stack, *by)
		}
		state := e.secret(t, h.secret())
		for label, want := range before.states[h.stack].Labels {
			if state.Labels[label] != want {
				t.Errorf("%s: the state has the labels %v, want %v", h.stack, state.Labels, before.states[h.stack].Labels)
			}
		}
		if was, is := version(t, before.states[h.stack]), version(t, state); was.Lineage != is.Lineage || is.Serial < was.Serial {
			t.Errorf("%s: the state went from %+v to %+v, want it continued", h.stack, was, is)
		}
	}
	for stack, value := range map[string]string{"approved": "new", "asked": "old", "settled": "same", "blue": "same", "suffixed": "same"} {
		write(t, e.dirs[stack], "main.tf", e.module(stack, value))
		r := testkit.TryEngine(t, e.dirs[stack], nil, "plan", "-input=false", "-no-color", "-detailed-exitcode", "-lock-timeout=0s")
		if r.Code != 0 {
			t.Errorf("%s: the engine ends with %d, want it to lock the state and to find nothing to do: %s%s", stack, r.Code, r.Stdout, r.Stderr)
		}
	}
	e.readable(t)
	e.handedBack(t)
	e.plane()
	if err := e.p.Start(); err != nil {
		t.Fatal(err)
	}
}

// readable looks at what the old controller decides by: what is pending, what
// was applied, and whether this is of the newest spec.
func (e *estate) readable(t *testing.T) {
	t.Helper()
	s := e.Stack(t, "approved")
	if st := s.Status; st.ObservedGeneration != s.Generation || st.Plan.Pending != "" || st.Plan.LastApplied != s.Spec.ApprovePlan ||
		st.LastAppliedRevision != "main@sha1:"+e.commit || st.LastAttemptedRevision != st.LastAppliedRevision || st.LastPlannedRevision != st.LastAppliedRevision ||
		condition(s, "Ready").Status != "True" || condition(s, "Apply").Reason != "TerraformAppliedSucceed" {
		t.Errorf("the status of what was applied is %+v", st)
	}
	s = e.Stack(t, "asked")
	if st := s.Status; st.Plan.Pending != "plan-main-"+e.commit[:10] || st.LastPlannedGeneration != s.Generation || condition(s, "Plan").Status != "True" {
		t.Errorf("the status of what waits is %+v", st)
	}
	for _, stack := range []string{"settled", "below", "suspended"} {
		if f := e.Stack(t, stack).Finalizers; !cmp.Equal(f, []string{"finalizers.tf.contrib.fluxcd.io"}) {
			t.Errorf("%s: the finalizers are %v", stack, f)
		}
	}
}

type stateVersion struct {
	Lineage string
	Serial  uint64
}

func version(t *testing.T, s *corev1.Secret) stateVersion {
	t.Helper()
	var v stateVersion
	if err := json.Unmarshal([]byte(gunzip(t, s.Data["tfstate"])), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
