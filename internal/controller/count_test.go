package controller

import (
	"math"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Each write of the status counts, so that the API server can refuse an earlier one; a
// status that says nothing new is not written for the count.
func TestWritesOfTheStatusAreCounted(t *testing.T) {
	m := newMarker(t)
	write := func(message string) (writes int64, version string) {
		t.Helper()
		p := &pass{dialect: infra.Dialect{}, obj: m.object(), decision: stack.Decision{Action: stack.Wait{}, Ready: stack.Reconciling, Reason: stack.Planning, Message: message}}
		p.id, p.o.Now = string(p.obj.GetUID()), m.now
		p.entry = m.whole.index.make(p.id, objectRef{infra.Dialect{}, client.ObjectKeyFromObject(p.obj)})
		if err := m.writeStatus(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		o := m.object()
		return o.Status.Terrier.Writes, o.ResourceVersion
	}
	first, version := write("Planning")
	if first != 1 {
		t.Errorf("after the first write the count is %d, want 1", first)
	}
	if again, same := write("Planning"); again != 1 || same != version {
		t.Errorf("a status that says nothing new was written: count %d", again)
	}
	if second, _ := write("Planning more"); second != 2 {
		t.Errorf("after the second write the count is %d, want 2", second)
	}
	// The count that a wrong client wrote cannot grow, and must not become smaller.
	wrong := m.object()
	wrong.Status.Terrier.Writes = math.MaxInt64
	if err := m.kube.Client.Status().Update(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	if last, _ := write("Planning most"); last != math.MaxInt64 {
		t.Errorf("after a write at the maximum the count is %d", last)
	}
}
