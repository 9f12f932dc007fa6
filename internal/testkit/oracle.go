package testkit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Overlaps lists the calls that wrote to the world of one stack while another
// run wrote, which P1 forbids. Calls that never ended died with their process.
func (w *World) Overlaps() []string {
	w.tb.Helper()
	calls := slices.DeleteFunc(w.Calls(), func(c WorldCall) bool { return c.Call == "read" || c.Call == "lookup" })
	same := func(a, b WorldCall) bool {
		return a.Call == b.Call && a.Name == b.Name && a.PID == b.PID && a.Engine == b.Engine
	}
	var found []string
	for i, c := range calls {
		if c.Phase != "begin" {
			continue
		}
		end := slices.IndexFunc(calls[i+1:], func(e WorldCall) bool { return same(c, e) })
		if end < 0 || calls[i+1+end].Phase == "begin" {
			// It was cut short. Process ids are those inside the sandbox, so a later
			// run may have the same ones and make the same call.
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

// State is the state of a stack as the cluster holds it, empty if there is none.
func (c *Cluster) State(tb testing.TB, name string) []byte {
	tb.Helper()
	var s corev1.Secret
	err := c.Client.Get(tb.Context(), client.ObjectKey{Namespace: c.Namespace, Name: "tfstate-default-" + name}, &s)
	if client.IgnoreNotFound(err) != nil {
		tb.Fatal(err)
	}
	if len(s.Data["tfstate"]) == 0 {
		return []byte("{}")
	}
	state, err := unpackState(s.Data["tfstate"])
	if err != nil {
		tb.Fatalf("unpacking the state of %s: %v", name, err)
	}
	return state
}

func unpackState(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// StatusOf is the status that the rules have of a stack.
func StatusOf(s *infrav1alpha2.Terraform) (stack.Status, error) {
	var m stack.Status
	if s.Status.Terrier == nil || s.Status.Terrier.Memory == nil {
		return m, nil
	}
	return m, json.Unmarshal(s.Status.Terrier.Memory.Raw, &m)
}

// Oracle compares what a world saw with what its stacks say, and returns the
// contradictions: writers that overlap (P1), things that are neither in a state nor
// listed as untracked (P2), things that were made twice (P8). A stack may be
// deleted; then every thing that is left is in its state.
func (c *Cluster) Oracle(tb testing.TB, w *World, names ...string) []string {
	tb.Helper()
	var found []string
	if open := w.Overlaps(); len(open) > 0 && len(names) == 1 {
		found = append(found, fmt.Sprintf("P1: writers overlap: %v", open))
	}
	if twice := w.CreatedTwice(); len(twice) > 0 {
		found = append(found, fmt.Sprintf("P8: %v were created twice", twice))
	}
	listed := map[string]bool{}
	var states [][]byte
	var said []string
	for _, name := range names {
		states = append(states, c.State(tb, name))
		said = append(said, name+": "+c.untrackedOf(tb, name, listed))
	}
	for _, thing := range w.Leaked(states...) {
		if !listed["world_thing."+thing.Name] {
			found = append(found, fmt.Sprintf("P2: %s (%s) is in the world, neither in a state nor listed by a stack: %s", thing.ID, thing.Name, said))
		}
	}
	return found
}

// untrackedOf adds the untracked resources that a stack lists, and says its status.
func (c *Cluster) untrackedOf(tb testing.TB, name string, listed map[string]bool) string {
	tb.Helper()
	var s infrav1alpha2.Terraform
	err := c.Client.Get(tb.Context(), client.ObjectKey{Namespace: c.Namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		return "it is gone"
	}
	var m stack.Status
	if err == nil {
		m, err = StatusOf(&s)
	}
	if err != nil {
		tb.Fatalf("reading the status of %s: %v", name, err)
	}
	if m.Untracked != nil {
		for _, o := range m.Untracked.Objects {
			listed[o.Address] = true
		}
	}
	return describe(&s)
}
