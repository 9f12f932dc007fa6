package browser

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// attack is text that would do something if it were taken for anything else.
const attack = `</script></title></textarea><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"' onmouseover=window.pwned=1 x="`

// hostile is a stack that says it wherever it may say anything.
func hostile() string {
	return `---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata:
  name: hostile
  annotations: {terrier.dev/comment: ` + strconv.Quote(attack) + `, terrier.dev/rejected: ` + strconv.Quote(attack) + `}
spec:
  interval: 1h
  writeOutputsToSecret: {name: hostile}
  vars: [{name: text, value: ` + strconv.Quote(attack) + `}]
  values:
    hcl: |
      variable "text" {}
      resource "terraform_data" "each" {
        for_each = toset([var.text])
        input    = { (var.text) = "${each.key}\u001b[31m${var.text}\u001b]8;;javascript:window.pwned=1\u0007link" }
      }
      output "text" { value = var.text }
      check "it" {
        assert {
          condition     = var.text == ""
          error_message = "It says ${var.text}."
        }
      }
`
}

// T19: nothing that a run, an object or a person says is ever taken for a part
// of the page.
func TestHostileTextRunsNoScript(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	c.Apply(t, hostile())
	c.Patch(t, "hostile", `{"spec":{"approvePlan":"`+c.AwaitPending(t, "hostile").Status.Plan.Pending+`"}}`)
	c.AwaitReady(t, "hostile")
	c.Apply(t, strings.Replace(strings.Replace(hostile(), "name: hostile\n", "name: failing\n", 1), `toset([var.text])`, `toset([file(var.text)])`, 1))
	c.AwaitReason(t, "failing", "TFExecPlanFailed")
	w := open(t, p)
	signIn(t, w, c)
	one := "/stacks/" + c.Namespace + "/hostile"
	runs := value[[]string](w, `fetch("/api/v1/namespaces/`+c.Namespace+`/stacks/hostile/runs").then(r => r.json()).then(r => r.items.map(i => i.id))`)
	screens := []string{
		"/stacks", "/stacks?q=" + attackQuery, "/stacks?group=" + attackQuery, "/approvals", "/drift", "/queue", "/sources", "/audit", "/audit?who=" + attackQuery, "/notifications", "/retained",
		one, one + "/runs", one + "/plan", one + "/resources", one + "/outputs", one + "/inputs", one + "/graph", one + "/states", one + "/drift", one + "/events",
		"/stacks/" + c.Namespace + "/failing", "/stacks/" + c.Namespace + "/failing/runs", "/sign-in?to=" + attackQuery,
	}
	for _, run := range runs {
		screens = append(screens, one+"/runs/"+run, one+"/runs/"+run+"/log")
	}
	w.expect("Failed to load resource") // of pages that do not know such a filter
	seen := 0
	for _, screen := range screens {
		w.visit(screen)
		w.eventually("waiting for the page", `() => document.readyState === "complete"`)
		if value[bool](w, `"pwned" in window`) {
			t.Errorf("%s has run a script", screen)
		}
		if value[bool](w, `document.querySelectorAll("img[src=x], [onerror], [onmouseover], a[href^='javascript:' i]").length > 0`) {
			t.Errorf("%s has made a part of the page of what was said", screen)
		}
		if value[bool](w, `document.body.innerText.includes("window.pwned=1")`) {
			seen++
		}
	}
	if seen < 5 {
		t.Errorf("what was said shows on %d of %d screens only: the test attacks nothing", seen, len(screens))
	}
}

const attackQuery = "%3C%2Fscript%3E%3Cscript%3Ewindow.pwned%3D1%3C%2Fscript%3E%22%27%3E%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E"

// T20: a page of another site, on this very machine, where cookies ignore ports,
// cannot act in the name of the user who opens it.
func TestNoOtherSiteActs(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	c.Apply(t, waiting)
	pending := c.AwaitPending(t, "waiting")
	plan := pending.Status.Plan.Pending
	target := strings.TrimSuffix(p.HTTP, "/") + "/stacks/" + c.Namespace + "/waiting"
	evil := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Content-Type", "text/html")
		action := r.URL.Query().Get("do")
		fmt.Fprintf(out, `<!doctype html><form id="f" method="post" action="%s/%s"><input name="plan" value="%s"><input name="name" value="%[3]s"></form><button onclick="f.submit()">Win a prize</button>`,
			html.EscapeString(target), html.EscapeString(action), html.EscapeString(plan))
	}))
	t.Cleanup(evil.Close)
	w := open(t, p)
	signIn(t, w, c)
	w.expect("403")
	w.expect("Failed to load resource")
	for _, do := range []string{"approve", "suspend", "replan"} {
		w.do(chromedp.Navigate(evil.URL + "?do=" + do))
		w.presses("Win a prize")
		w.eventually("waiting for the answer", `() => location.href.startsWith("https:") && document.readyState === "complete"`)
		if !value[bool](w, `document.body.innerText.includes("other origins")`) {
			t.Errorf("%s by another site is answered with:\n%s", do, w.describe())
		}
	}
	s := c.Stack(t, "waiting")
	if s.Spec.ApprovePlan != "" || s.Spec.Suspend || s.Annotations["reconcile.fluxcd.io/requestedAt"] != "" {
		t.Errorf("another site got something done: %+v, annotations %v", s.Spec, s.Annotations)
	}
}

// T21: a user who loses a right loses the open page, too.
func TestARevokedRightEndsAPage(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	c.Apply(t, waiting+reader)
	c.AwaitPending(t, "waiting")
	w := open(t, p)
	signInWith(t, w, strings.TrimSpace(c.Kubectl(t, "create", "token", "reader")))
	w.visit("/stacks/" + c.Namespace + "/waiting")
	w.sees("Needs approval")
	w.eventually("waiting for the page to be live", `() => document.querySelector("[data-live-indicator]")?.dataset.state === "live"`)
	w.expect("403")
	w.expect("Failed to load resource")
	c.Kubectl(t, "delete", "rolebinding", "reader")
	w.eventually("waiting for the page to end", `() => { const e = document.querySelector("[data-live-indicator]"); return e && e.dataset.state !== "live" && !document.body.innerText.includes("Needs approval") }`)
	w.visit("/stacks/" + c.Namespace + "/waiting")
	w.sees("Permission denied")
}

// reader is a user who may see stacks and nothing else.
const reader = `---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [infra.contrib.fluxcd.io], resources: [terraforms], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
`

// A reader is shown what he may not do, and why.
func TestAReaderIsToldWhatHeMayNotDo(t *testing.T) {
	p := platform(t)
	c := p.Cluster(t)
	c.Apply(t, waiting+reader)
	c.AwaitPending(t, "waiting")
	w := open(t, p)
	signInWith(t, w, strings.TrimSpace(c.Kubectl(t, "create", "token", "reader")))
	w.visit("/stacks/" + c.Namespace + "/waiting")
	w.sees("Needs approval")
	if !value[bool](w, `[...document.querySelectorAll("button")].filter(b => ["Approve", "Reject", "Suspend", "Plan now"].includes(b.innerText.trim())).every(b => b.disabled || b.getAttribute("aria-disabled") === "true")`) {
		t.Error("a reader is offered what he may not do")
	}
	w.expect("403")
	w.expect("Failed to load resource")
	w.visit("/stacks/" + c.Namespace + "/waiting/resources")
	w.sees("Permission denied")
	if s := c.Stack(t, "waiting"); s.Spec.ApprovePlan != "" {
		t.Errorf("approvePlan is %q", s.Spec.ApprovePlan)
	}
}
