package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

// The commands that a person lives with, in the order in which they come.
func TestCommandLine(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "interval: 1h\nwriteOutputsToSecret: {name: out}", things(w, "x", "a", "b")+"\noutput \"id\" { value = world_thing.a.id }\n"))
	name := c.AwaitPending(t, "stack").Status.Plan.Pending

	says := func(args string, want ...string) {
		t.Helper()
		out := c.Terrier(t, strings.Fields(args)...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("terrier %s says\n%s\nwant %q in it", args, out, w)
			}
		}
	}
	fails := func(code int, args, want string) {
		t.Helper()
		r := c.TryTerrier(t, strings.Fields(args)...)
		if r.Code != code || !strings.Contains(r.Stderr, want) {
			t.Errorf("terrier %s ended with %d and said %q, want %d and %q", args, r.Code, r.Stderr, code, want)
		}
	}
	says("get", "stack", name)
	says("plan stack", "world_thing.a", "world_thing.b")
	says("explain stack", "a plan waits for approval")
	if r := c.TryTerrier(t, "plan", "stack", "--exit-code"); r.Code != 2 {
		t.Errorf("plan --exit-code ended with %d while a plan waits, want 2", r.Code)
	}
	fails(5, "approve stack plan-of-another", "plan-of-another")
	fails(4, "get nobody", "nobody")
	fails(2, "explain", "")
	if len(w.Things()) != 0 {
		t.Fatalf("the world holds %+v before anything was approved", w.Things())
	}

	says("reject stack", "Rejected", name)
	says("approve stack "+name, "Approved", name)
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")
	says("outputs stack", `id = `)
	says("logs stack", "world_thing.a")
	says("runs stack", "apply", "Succeeded")
	says("describe stack", "stack")
	says("get -o json", `"name": "stack"`)

	says("suspend stack", "Suspended")
	if !c.Stack(t, "stack").Spec.Suspend {
		t.Error("the stack is not suspended")
	}
	says("resume stack", "Resumed")
	says("replan stack --wait", "")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.LastHandledReconcileAt == "" {
			return fmt.Errorf("no request was answered")
		}
		return nil
	})
}
