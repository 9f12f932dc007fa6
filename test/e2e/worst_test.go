package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A module whose plan always has changes is applied three times, and then the stack
// names the recurring change.
func TestCircleEnds(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	restless := w.HCL() + "\nresource \"world_thing\" \"a\" {\n  name  = \"a\"\n  value = timestamp()\n}\n"
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1s\nretryInterval: 1s", restless))
	s := c.AwaitReason(t, "stack", "NotConverging")
	if text := message(s); !strings.Contains(text, "world_thing.a") || !strings.Contains(text, "value") {
		t.Errorf("the message is %q, want it to name world_thing.a and its value", text)
	}
	// The first apply creates, and is another change than those that follow.
	if made, changed := began(w, "create", "a"), began(w, "update", "a"); made != 1 || changed != 3 {
		t.Errorf("a was created %d times and changed %d times, want once and three times", made, changed)
	}
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h\nretryInterval: 1s", things(w, "still", "a")))
	c.AwaitReady(t, "stack")
}

// P3, P7: a destroy can be previewed before anything is deleted, and a deletion can
// wait for an approval.
func TestDestroyIsPreviewedAndApproved(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "x", "a", "b")))
	c.AwaitReady(t, "stack")
	out := c.Terrier(t, "plan", "stack", "--destroy")
	if !strings.Contains(out, "world_thing.a") || !strings.Contains(out, "2 to destroy") {
		t.Errorf("terrier plan --destroy says\n%s\nwant a and b", out)
	}
	s := c.AwaitReady(t, "stack")
	if s.Status.Plan.Pending != "" || len(w.Things()) != 2 {
		t.Errorf("after a preview %q is pending and the world holds %+v, want nothing changed", s.Status.Plan.Pending, w.Things())
	}

	c.Patch(t, "stack", `{"metadata":{"annotations":{"terrier.dev/deletion":"approve"}}}`)
	c.Delete(t, "stack")
	s = c.AwaitPending(t, "stack")
	if !strings.Contains(message(s), "destroy 2 resources") || len(w.Things()) != 2 {
		t.Errorf("the message is %q and the world holds %+v, want it said what would go, and nothing gone", message(s), w.Things())
	}
	if said := c.TryTerrier(t, "approve", "stack"); said.Code != 2 || !strings.Contains(said.Stderr, "which destroys 2 resources? There is no terminal") {
		t.Errorf("terrier approve of a destroy without a terminal ended with %d and said %s", said.Code, said.Stderr)
	}
	if out := c.Terrier(t, "approve", "stack", "--yes"); !strings.Contains(out, "Approved") {
		t.Errorf("terrier approve says %s", out)
	}
	c.AwaitGone(t, "stack")
	made(t, w)
}

// What is kept on purpose is said, and its state stays.
func TestRetainIsSaid(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept, things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	c.Patch(t, "stack", `{"metadata":{"annotations":{"terrier.dev/deletion":"retain"}}}`)
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w, "a")
	if len(w.Leaked(stateOf(t, c, "stack"))) != 0 {
		t.Error("the state of what was kept is gone")
	}
	awaitEvents(t, c, "stack,reason=ResourcesRetained", "state: 1)")
}

// awaitEvents waits until the events of an object, by its name and what else a field selector may
// have, say all of wants, and returns them: a line for each, with who says it, the reason and
// the message. They are written after the status, and not in the same request.
func awaitEvents(t *testing.T, c *testkit.Cluster, name string, wants ...string) (events string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the events of "+name+" are written", func(context.Context) error {
		events = c.Kubectl(t, "get", "events", "--field-selector", "involvedObject.name="+name, "-o", "jsonpath={range .items[*]}{.source.component} {.reason} {.message}{\"\\n\"}{end}")
		for _, want := range wants {
			if !strings.Contains(events, want) {
				return fmt.Errorf("they are\n%s\nwant %q in them", events, want)
			}
		}
		return nil
	})
	return events
}

// A deletion that leaves resources where they are, as the configuration asks, ends at
// the first attempt. The resources are recorded with their ids before the stack is gone.
func TestDestroyThatForgetsIsRecorded(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	const forgets = "\nresource \"world_thing\" \"left\" {\n  name  = \"left\"\n  value = \"x\"\n  lifecycle {\n    destroy = false\n  }\n}\n"
	c.Apply(t, inline("stack", kept, things(w, "x", "a")+forgets))
	c.AwaitReady(t, "stack")
	if out := c.Terrier(t, "plan", "stack", "--destroy"); !strings.Contains(out, "1 to destroy, 1 to forget") {
		t.Errorf("terrier plan --destroy says\n%s\nwant it to tell what is destroyed from what is forgotten", out)
	}
	id := thingID(t, w, "left")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w, "left")
	awaitEvents(t, c, "stack,reason=ResourcesRetained", "did not destroy: 1.", "terrier retained show stack")
	if events := awaitEvents(t, c, "stack"); strings.Contains(events, "attempt") {
		t.Errorf("an attempt failed: %s", events)
	}
	for _, want := range []string{"world_thing.left", "ID " + id, "import {"} {
		if out := c.Terrier(t, "retained", "show", "stack"); !strings.Contains(out, want) {
			t.Errorf("terrier retained show says\n%s\nwant it to name %q", out, want)
		}
	}
}

// An apply that forgets a resource records it while the stack lives, until the resource
// is imported again.
func TestApplyThatForgetsIsRecorded(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept, things(w, "x", "a", "b")))
	c.AwaitReady(t, "stack")
	id := thingID(t, w, "b")
	c.Apply(t, inline("stack", kept, things(w, "x", "a")+"\nremoved {\n  from = world_thing.b\n  lifecycle {\n    destroy = false\n  }\n}\n"))
	retained := func(holds bool) {
		t.Helper()
		c.Await(t, "stack", func(*v1alpha2.Terraform) error {
			if out := c.Terrier(t, "retained"); strings.Contains(out, "destroy = false") != holds {
				return fmt.Errorf("terrier retained says %s", out)
			}
			return nil
		})
	}
	retained(true)
	made(t, w, "a", "b")
	if out := c.Terrier(t, "retained", "show", "stack"); !strings.Contains(out, "world_thing.b  ID "+id) || strings.Contains(out, "Expires") {
		t.Errorf("terrier retained show says\n%s\nwant b, and no end of the record", out)
	}
	c.Apply(t, inline("stack", kept, things(w, "x", "a", "b")+"\nimport {\n  to = world_thing.b\n  id = \""+id+"\"\n}\n"))
	retained(false)
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
}

// A word that is not one of the three destroys nothing and abandons nothing.
func TestDeletionByTypingError(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	c.Patch(t, "stack", `{"metadata":{"annotations":{"terrier.dev/deletion":"yes"}}}`)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if testkit.HasReason("SpecInvalid")(s) != nil && !strings.Contains(message(s), "terrier.dev/deletion") {
			return errors.New("the annotation is not complained of")
		}
		return nil
	})
	c.Delete(t, "stack")
	c.AwaitPending(t, "stack")
	made(t, w, "a")
	c.Patch(t, "stack", `{"metadata":{"annotations":{"terrier.dev/deletion":"destroy"}}}`)
	c.AwaitGone(t, "stack")
	made(t, w)
}

// F38: an object whose finalizer was taken off by force while it is applied:
// the apply comes to its end, and what it built is in the state that stays.
func TestFinalizerTakenOffByForce(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hold"})
	c.Apply(t, inline("stack", kept+"\nparallelism: 1", chain(w, "x", "a", "b", "c")))
	w.Await(t.Context(), begun("create", "b"))
	c.Delete(t, "stack")
	c.Patch(t, "stack", `{"metadata":{"finalizers":null}}`)
	c.AwaitGone(t, "stack")
	w.Fault()
	testkit.Eventually(t, testkit.Patience, "the state holds what was built, and is free", func(context.Context) error {
		if left := w.Leaked(stateOf(t, c, "stack")); len(left) > 0 || len(w.Things()) != 3 {
			return fmt.Errorf("the world holds %+v, of which %+v is in no state", w.Things(), left)
		}
		var lease coordinationv1.Lease
		c.Get(t, "lock-tfstate-default-stack", &lease)
		if lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
			return fmt.Errorf("the state is locked by %s", *lease.Spec.HolderIdentity)
		}
		return nil
	})
	made(t, w, "a", "b", "c")
}

// Thirty commits in ten seconds are at most two plans more, the last of them of
// the last commit, and no apply is disturbed.
func TestCommitsAreCoalesced(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": things(w, "first", "a")})
	c.Apply(t, g.Manifest("code")+`---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack}
spec: {interval: 1h, sourceRef: {kind: GitRepository, name: code}}
`)
	c.AwaitPending(t, "stack")
	plans := func() int {
		var runs struct{ Items []struct{ Kind string } }
		if err := json.Unmarshal([]byte(c.Terrier(t, "runs", "stack", "-o", "json")), &runs); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range runs.Items {
			if r.Kind == "plan" {
				n++
			}
		}
		return n
	}
	before, last := plans(), ""
	began := time.Now()
	tick := time.NewTicker(time.Second / 3)
	defer tick.Stop()
	for i := range 30 {
		last = g.Commit(map[string]string{"main.tf": things(w, fmt.Sprint("commit ", i), "a")})
		look := fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"%d"}}}`, i)
		source := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "code"}}
		if err := c.Client.Patch(t.Context(), source, client.RawPatch(types.MergePatchType, []byte(look))); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	took := time.Since(began)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(s.Status.LastPlannedRevision, last) || s.Status.Plan.Pending == "" {
			return errors.New("the last commit is not planned")
		}
		return nil
	})
	// A busy machine needs longer for the commits: one plan more for each ten seconds. A
	// commit after the second plan, which begins when these have passed, is in a third.
	if more, most := plans()-before, 2+int((took-500*time.Millisecond)/(10*time.Second)); more > most {
		t.Errorf("30 commits in %s were planned in %d plans, want at most %d", took, more, most)
	}
}

// F40, F41: a thousand resources and a value of 1.5 MB are nothing special; make
// bench has five thousand.
func TestLargePlanAndValues(t *testing.T) {
	c := cluster(t)
	c.Apply(t, inline("large", "approvePlan: auto\ninterval: 1h\nwriteOutputsToSecret: {name: large}", `
resource "terraform_data" "many" {
  count = 1000
  input = "number ${count.index}"
}
output "text" { value = join("", [for i in range(1000) : format("%01500d", i)]) }
output "count" { value = length(terraform_data.many) }
`))
	c.AwaitReady(t, "large")
	var list struct {
		Items []struct {
			Name  string
			Value any
		}
	}
	if err := json.Unmarshal([]byte(c.Terrier(t, "outputs", "large", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, o := range list.Items {
		out[o.Name] = o.Value
	}
	if text, _ := out["text"].(string); len(text) != 1500000 || !strings.HasSuffix(text, "00999") || out["count"] != 1000.0 {
		t.Errorf("the outputs are a text of %d bytes and the count %v, want 1500000 and 1000", len(text), out["count"])
	}
	c.Apply(t, inline("reader", "approvePlan: auto\ninterval: 1h\nvarsFrom: [{kind: Secret, name: large, varsKeys: [text]}]\nwriteOutputsToSecret: {name: read}", "variable \"text\" {}\noutput \"length\" { value = length(var.text) }\n"))
	c.AwaitReady(t, "reader")
	if got := c.Secret(t, "read")["length"]; got != "1500000" {
		t.Errorf("the reader read %s bytes, want 1500000", got)
	}
}

// F37: a stack that is created again under a name does not adopt the state of the
// former one, unless it says so.
func TestFormerStateIsNotAdoptedByAccident(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	spec := "approvePlan: auto\ninterval: 1h\nretryInterval: 1s"
	c.Apply(t, inline("stack", spec, things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	c.Apply(t, inline("stack", spec, things(w, "y", "b")))
	s := c.AwaitReason(t, "stack", "StateNotAdopted")
	if !strings.Contains(message(s), "terrier.dev/adopt-state=true") {
		t.Errorf("the message is %q, want it to say how to go on", message(s))
	}
	made(t, w, "a")
	c.Patch(t, "stack", `{"metadata":{"annotations":{"terrier.dev/adopt-state":"true"}}}`)
	c.AwaitReady(t, "stack")
	made(t, w, "b") // a was the former one's, and is destroyed by the plan
}
