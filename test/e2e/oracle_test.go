package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// overlaps lists the calls that wrote to the world of one stack while another
// run wrote, which P1 forbids. Calls that never ended died with their process.
func overlaps(w *testkit.World) []string {
	calls := slices.DeleteFunc(w.Calls(), func(c testkit.WorldCall) bool { return c.Call == "read" || c.Call == "lookup" })
	same := func(a, b testkit.WorldCall) bool {
		return a.Call == b.Call && a.Name == b.Name && a.PID == b.PID && a.Engine == b.Engine
	}
	var found []string
	for i, c := range calls {
		if c.Phase != "begin" {
			continue
		}
		end := slices.IndexFunc(calls[i+1:], func(e testkit.WorldCall) bool { return same(c, e) })
		if end < 0 || calls[i+1+end].Phase == "begin" {
			// It was cut short. Process ids are those inside the box, so a later run
			// may bear the same ones and make the same call.
			continue
		}
		for _, other := range calls[i+1 : i+1+end] {
			if other.PID != c.PID || other.Engine != c.Engine {
				found = append(found, fmt.Sprintf("%s %s at %s during %s %s", other.Call, other.Name, other.Time, c.Call, c.Name))
			}
		}
	}
	return found
}

// stateOf is the state of a stack as the cluster holds it, empty if there is
// none.
func stateOf(t *testing.T, c *testkit.Cluster, name string) []byte {
	t.Helper()
	var s corev1.Secret
	err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: c.Namespace, Name: "tfstate-default-" + name}, &s)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if len(s.Data["tfstate"]) == 0 {
		return []byte("{}")
	}
	return []byte(gunzip(t, s.Data["tfstate"]))
}

func gunzip(t *testing.T, packed []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// memoryOf is what a stack remembers.
func memoryOf(t *testing.T, s *v1alpha2.Terraform) stack.Memory {
	t.Helper()
	var m stack.Memory
	if s.Status.Terrier == nil || s.Status.Terrier.Memory == nil {
		return m
	}
	if err := json.Unmarshal(s.Status.Terrier.Memory.Raw, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// verify is the oracle of every test that kills something: it compares what
// the world saw with what the stack says.
func verify(t *testing.T, c *testkit.Cluster, w *testkit.World, name string) {
	t.Helper()
	if open := overlaps(w); len(open) > 0 {
		t.Errorf("P1: writers overlap: %v", open)
	}
	if twice := w.CreatedTwice(); len(twice) > 0 {
		t.Errorf("P8: %v were created twice", twice)
	}
	listed := map[string]bool{}
	s := c.Stack(t, name)
	if gap := memoryOf(t, s).Gap; gap != nil {
		for _, o := range gap.Objects {
			listed[o.Address] = true
		}
	}
	for _, thing := range w.Leaked(stateOf(t, c, name)) {
		if !listed["world_thing."+thing.Name] {
			t.Errorf("P2: %s is in the world, neither in the state nor listed by the stack: %s", thing.ID, message(s))
		}
	}
}
