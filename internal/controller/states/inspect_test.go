package states

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Two stacks on one state would destroy each other's things by turns.
func TestAStateHasOneStack(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	files := blobtest.Files(t, 1<<20)
	c := newKeeper(Keeper{Store: kube.States{Client: k.Client, Now: time.Now}, Records: &records.Store{Blobs: files}}, k.Client)
	at := func(name string) *v1alpha2.Terraform {
		obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: name}}
		obj.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "x"}
		return obj
	}
	first, second := at("first"), at("second")
	if err := k.Client.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	ref := kube.StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "shared"}
	if err := c.Store.Save(t.Context(), ref, kube.Owner{Name: "first"}, thing("l", 1)); err != nil {
		t.Fatal(err)
	}
	if state, err := c.load(t.Context(), subject("first", first), ref); err != nil || len(state) == 0 {
		t.Errorf("the stack that keeps the state: %q, %v", state, err)
	}
	_, err := c.load(t.Context(), subject("second", second), ref)
	if fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), "secretSuffix") {
		t.Errorf("another stack: %v, want to be refused and told the way out", err)
	}
	if err := k.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if state, err := c.load(t.Context(), subject("second", second), ref); err != nil || len(state) == 0 {
		t.Errorf("after the first stack is gone: %q, %v, want the state to be adopted", state, err)
	}
}

// An object that inherited the state of a former one keeps its finalizer while the
// state has resources that the object wants destroyed.
func TestADeletedObjectInheritsWhatItsStateHolds(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	files := blobtest.Files(t, 1<<20)
	c := newKeeper(Keeper{Store: kube.States{Client: k.Client, Now: time.Now}, Records: &records.Store{Blobs: files}}, k.Client)
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "app"}}
	backend := stack.Backend{Kind: stack.Managed, Suffix: "app"}
	built := func(destroyLast bool) bool {
		of := subject("uid", obj)
		of.Observed.Deleting, of.Observed.Spec.DestroyLast = true, destroyLast
		of.Asked.Configuration.Backend = backend
		if err := c.Inspector.Inherit(t.Context(), of); err != nil {
			t.Fatal(err)
		}
		return of.Observed.Status.Created
	}
	if built(true) {
		t.Error("there is no state, and something is said to exist")
	}
	ref := kube.StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "app"}
	if err := c.Store.Save(t.Context(), ref, kube.Owner{Name: "app", UID: "uid"}, thing("l", 1)); err != nil {
		t.Fatal(err)
	}
	if !built(true) {
		t.Error("the state holds something, and the object would be let go")
	}
	if built(false) {
		t.Error("the object does not ask for anything to be destroyed")
	}
	backend.Labels = map[string]string{"team": "not a label"}
	if !built(true) {
		t.Error("labels that nothing can have hide what the state holds")
	}
	backend = stack.Backend{Kind: stack.Managed, Suffix: "no_name"}
	if built(true) {
		t.Error("there can be no such state, and something is said to exist")
	}
}
