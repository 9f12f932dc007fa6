package controller

import (
	"context"
	"slices"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/stack"
)

// remembered are the UIDs of the stacks in the index.
func (l *frugal) remembered() (ids []string) {
	l.whole.index.mu.Lock()
	defer l.whole.index.mu.Unlock()
	for id := range l.whole.index.byID {
		ids = append(ids, id)
	}
	if len(l.whole.index.byName) != len(ids) {
		ids = append(ids, "a name without a stack")
	}
	return ids
}

// Once the server has an object no more, nothing of it is remembered, however it
// went. An object that was made again under the name is another stack.
func TestNothingIsRememberedOfAStackThatIsGone(t *testing.T) {
	for name, removes := range map[string]func(*testing.T, *frugal){
		"it is deleted": func(t *testing.T, l *frugal) {
			if err := l.k.Client.Delete(t.Context(), l.stored(t)); err != nil {
				t.Fatal(err)
			}
			l.looks(t)
		},
		"its finalizer is removed by force": func(t *testing.T, l *frugal) { l.removes(t) },
		"its run is cut off from it": func(t *testing.T, l *frugal) {
			obj := l.stored(t)
			obj.Spec.Values = inline(`output "host" { value = "i" }`)
			if err := l.k.Client.Update(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			l.works(t, stack.PlanRun)
			l.removes(t)
			l.looks(t)
			if len(l.remembered()) != 1 {
				t.Error("a stack whose run goes on is forgotten")
			}
			l.runs.report = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFrugal(t, "net")
			var released []string
			l.removals.release = func(_ context.Context, id string) error { released = append(released, id); return nil }
			l.creates(t)
			id := string(l.stored(t).UID)
			l.applies(t, 1)
			l.looks(t)
			if got := l.remembered(); len(got) != 1 || got[0] != string(l.stored(t).UID) {
				t.Fatalf("remembered are %v, want the stack", got)
			}
			removes(t, l)
			if _, err := l.whole.reconcile(t.Context(), l.ref()); err != nil {
				t.Fatal(err)
			}
			if got := l.remembered(); len(got) > 0 {
				t.Errorf("remembered are %v, want nothing", got)
			}
			if len(released) == 0 || slices.ContainsFunc(released, func(other string) bool { return other != id }) {
				t.Errorf("credentials were given back for %v, want for %s", released, id)
			}
		})
	}
	t.Run("it is made again before the controller sees that it is gone", func(t *testing.T) {
		l := newFrugal(t, "net")
		l.creates(t)
		l.works(t, stack.PlanRun)
		l.removes(t)
		l.runs.report = nil
		l.creates(t)
		l.looks(t)
		if got := l.remembered(); len(got) != 1 || got[0] != string(l.stored(t).UID) {
			t.Errorf("remembered are %v, want the new stack", got)
		}
	})
}

// removes deletes the object with its finalizer.
func (l *frugal) removes(t *testing.T) {
	t.Helper()
	l.k.Patch(t, l.key.Name, `{"metadata":{"finalizers":null}}`)
	if err := l.k.Client.Delete(t.Context(), &v1alpha2.Terraform{ObjectMeta: l.stored(t).ObjectMeta}); err != nil {
		t.Fatal(err)
	}
}
