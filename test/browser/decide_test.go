package browser

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

type stack = v1alpha2.Terraform

var errNotYet = errors.New("not yet")

// waiting is a stack with a pending plan.
const waiting = `---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: waiting}
spec:
  interval: 1h
  values:
    hcl: |
      resource "terraform_data" "x" { input = "first" }
`

func TestAPlanIsApproved(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	c.Apply(t, waiting)
	plan := c.AwaitPending(t, "waiting").Status.Plan.Pending
	w := open(t, p)
	signIn(t, w, c)
	w.visit("/stacks/" + c.Namespace + "/waiting")
	w.sees("Needs approval")
	w.presses(plan)
	w.at("/stacks/" + c.Namespace + "/waiting/plan")
	w.sees("terraform_data.x")
	w.fills("Comment", "looks right to me")
	w.presses("Approve")
	w.sees("Approved. Exactly this plan is applied.")
	c.AwaitReady(t, "waiting")

	w.visit("/audit?name=waiting")
	w.sees("looks right to me")
	auditLog := c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/waiting", "--what", "approved")
	for _, words := range []string{"terrier-admin", plan, "looks right to me"} {
		if !strings.Contains(auditLog, words) {
			t.Errorf("the audit log says nothing of %q:\n%s", words, auditLog)
		}
	}
}

// An open page changes by itself.
func TestPagesAreLive(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	w := open(t, p)
	signIn(t, w, c)
	w.visit("/stacks?namespace=" + c.Namespace)
	w.eventually("waiting for the page to be live", `() => document.querySelector("[data-live-indicator]")?.dataset.state === "live"`)
	value[int](w, `window.mark = 1`)
	c.Apply(t, waiting)
	w.sees("Needs approval")
	pending := c.AwaitPending(t, "waiting").Status.Plan.Pending
	c.Patch(t, "waiting", `{"spec":{"approvePlan":"`+pending+`"}}`)
	w.eventually("waiting for the row to be ready", `() => document.querySelector("tr[data-key] .pill")?.innerText.trim() === "Ready"`)
	c.Patch(t, "waiting", `{"spec":{"suspend":true}}`)
	w.eventually("waiting for the row to be suspended", `() => document.querySelector("tr[data-key] .pill")?.innerText.trim() === "Suspended"`)
	c.Delete(t, "waiting")
	w.eventually("waiting for the row to go", `() => !document.querySelector("tr[data-key]")`)
	if value[int](w, `window.mark ?? 0`) != 1 {
		t.Error("the page was loaded anew to change")
	}
}

// A page that was open while its server was replaced by another version is loaded
// again: its scripts do not fit what the new one sends. The text in a form is kept.
func TestPagesOfAnotherVersion(t *testing.T) {
	const older = `document.querySelector('script[type="module"]').setAttribute("src", "/static/0/app.js"), window.mark = 1`
	p := platform(t)
	c := p.Cluster(t)
	w := open(t, p)
	signIn(t, w, c)
	w.visit("/stacks?namespace=" + c.Namespace)
	w.eventually("waiting for the page to be live", `() => document.querySelector("[data-live-indicator]")?.dataset.state === "live"`)
	value[int](w, older)
	c.Apply(t, waiting)
	w.sees("Needs approval")
	w.eventually("waiting for the page that was loaded again", `() => window.mark === undefined && document.querySelector("[data-live-indicator]")?.dataset.state === "live"`)

	value[int](w, `sessionStorage.clear(), 0`)
	w.fills("Search", "half a wor")
	value[int](w, older)
	c.Patch(t, "waiting", `{"spec":{"suspend":true}}`)
	w.sees("Newer version: reload")
	if value[int](w, `window.mark ?? 0`) != 1 {
		t.Error("what was typed is lost")
	}
	w.presses("Newer version: reload")
	w.eventually("waiting for the row to be suspended", `() => window.mark === undefined && document.querySelector("tr[data-key] .pill")?.innerText.trim() === "Suspended"`)
}

func TestAPlanIsRejected(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	c.Apply(t, waiting)
	c.AwaitPending(t, "waiting")
	w := open(t, p)
	signIn(t, w, c)
	w.visit("/approvals?namespace=" + c.Namespace)
	w.fills("Comment", "not on a Friday")
	w.presses("Reject")
	w.sees("Rejected. The plan is not applied. A change of the module or its inputs makes another plan.")
	s := c.Await(t, "waiting", func(s *stack) error {
		if s.Annotations["terrier.dev/rejected"] == "" || s.Annotations["terrier.dev/comment"] != "not on a Friday" {
			return errNotYet
		}
		return nil
	})
	if s.Spec.ApprovePlan != "" || s.Status.LastAppliedRevision != "" {
		t.Errorf("a rejected plan was approved or applied: %+v", s.Status)
	}
}

// A form that was made for one plan does nothing once another one waits.
func TestAStaleApprovalDoesNothing(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	c.Apply(t, waiting)
	first := c.AwaitPending(t, "waiting").Status.Plan.Pending
	w := open(t, p)
	signIn(t, w, c)
	w.visit("/stacks/" + c.Namespace + "/waiting/plan")
	w.sees(first)
	form := value[string](w, `new URLSearchParams(new FormData(document.querySelector("form[action$='/approve'], form:has(button[formaction$='/approve'])"))).toString()`)
	c.Apply(t, strings.Replace(waiting, "first", "second", 1))
	c.Await(t, "waiting", func(s *stack) error {
		if s.Status.Plan.Pending == "" || s.Status.Plan.Pending == first {
			return errNotYet
		}
		return nil
	})
	w.expect("409")
	status := value[int](w, `fetch("/stacks/`+c.Namespace+`/waiting/approve", {method: "POST", headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: `+strconv.Quote(form)+`, redirect: "manual"}).then(r => r.status)`)
	if status != 409 {
		t.Errorf("a stale approval is answered with %d, want 409", status)
	}
	if s := c.Stack(t, "waiting"); s.Spec.ApprovePlan != "" {
		t.Errorf("approvePlan is %q", s.Spec.ApprovePlan)
	}
}

// The log of an apply grows on an open page.
func TestALogIsFollowed(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	world := p.World(t)
	world.Fault(testkit.WorldFault{Call: "create", Name: "slow", Do: "delay", Delay: "20s"})
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": world.HCL() + `
resource "world_thing" "slow" { name = "slow" }
`})
	c.Apply(t, g.Manifest("code")+strings.Replace(drifting, "interval: 1h", "interval: 1h\n  approvePlan: auto", 1))
	world.Await(t.Context(), func(call testkit.WorldCall) bool { return call.Call == "create" && call.Phase == "begin" })
	run := c.Await(t, "drifting", func(s *stack) error {
		if s.Status.Terrier == nil || s.Status.Terrier.Run == nil || s.Status.Terrier.Run.Kind != "apply" {
			return errNotYet
		}
		return nil
	}).Status.Terrier.Run.ID
	w := open(t, p)
	signIn(t, w, c)
	w.visit("/stacks/" + c.Namespace + "/drifting/runs/" + run + "/log")
	w.sees("world_thing.slow: Creating...")
	value[int](w, `window.mark = 1`)
	w.sees("Apply complete!")
	w.sees("Succeeded")
	if value[int](w, `window.mark ?? 0`) != 1 {
		t.Error("the page was loaded anew to show more of the log")
	}
}

// A manual change appears as drift on an open page.
func TestDriftAppears(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	world := p.World(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": world.HCL() + `
resource "world_thing" "a" {
  name  = "a"
  value = "as it was applied"
}
`})
	c.Apply(t, g.Manifest("code")+drifting)
	c.Patch(t, "drifting", `{"spec":{"approvePlan":"`+c.AwaitPending(t, "drifting").Status.Plan.Pending+`"}}`)
	c.AwaitReady(t, "drifting")
	w := open(t, p)
	signIn(t, w, c)
	w.visit("/drift?namespace=" + c.Namespace)
	w.misses("drifting")
	other := "changed by hand"
	world.Edit(func(thing *testkit.WorldThing) bool { thing.Value = &other; return true })
	c.Patch(t, "drifting", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"`+time.Now().Format(time.RFC3339Nano)+`"}}}`)
	w.sees("drifting")
	w.visit("/stacks/" + c.Namespace + "/drifting/drift")
	w.sees("changed by hand")
}
