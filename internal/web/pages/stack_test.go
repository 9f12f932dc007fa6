package pages

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/steps"
	"github.com/terrier-iac/terrier/internal/stack"
)

// diary is an audit log with one entry about each stack that is asked for.
type diary struct{ query.AuditLog }

func (diary) Entries(_ context.Context, _ query.AuditSight, q query.AuditQuery) (query.AuditPage, error) {
	return query.AuditPage{Items: []query.AuditEntry{{
		At: now.Add(-30 * time.Minute), What: "rejected", Who: "ann " + hostile, Comment: "not on a Friday",
		Object: query.AuditObject{Kind: "Terraform", Namespace: q.Namespace, Name: q.Stack},
	}}}, nil
}

func TestTimelineHasWhatPeopleDid(t *testing.T) {
	for may, want := range map[bool]bool{true: true, false: false} {
		v := visitor(t, town(), "/stacks/apps/cart")
		v.Backend.AuditLog = diary{}
		v.Can = func(a access.Request) bool {
			return a.Resource != access.ResourceAudit || may && a.Verb == "list" && a.Namespace == "apps"
		}
		p, err := Stack(v)
		if err != nil {
			t.Fatal(err)
		}
		got := parse(t, v, p).text()
		for _, word := range []string{"Rejected", "by ann", "not on a Friday"} {
			if strings.Contains(got, word) != want {
				t.Errorf("may read the audit log %v: the page says %q: %v, want %v", may, word, !want, want)
			}
		}
	}
}

func TestDriftSaysWhenItWasChecked(t *testing.T) {
	for address, drift := range map[string]query.DriftDetail{"/stacks/apps/cart/drift": {}, "/stacks/net/vpc/drift": town().drift} {
		e := town()
		e.drift = drift
		if got := show(t, e, address, StackDrift).text(); strings.Contains(got, "last") {
			t.Errorf("%s: there was no check, and the page says %s", address, got)
		}
		e.looked = now.Add(-7 * time.Minute)
		if got := show(t, e, address, StackDrift).text(); !strings.Contains(got, "last check was 7m ago") && !strings.Contains(got, "last check 7m ago") {
			t.Errorf("%s: the page does not say when the last check was: %s", address, got)
		}
	}
}

// The page shows the change that accepts the drift once it is asked for, and its form names the
// drift that was shown. What may drift is listed beside it.
func TestDriftIsAcceptedOnAPage(t *testing.T) {
	e := town()
	e.drift.Digest = "sha256:d"
	if got := show(t, e, "/stacks/net/vpc/drift", StackDrift).text(); !strings.Contains(got, "Show the change") || strings.Contains(got, "main.tf") {
		t.Errorf("the page shows a change that nobody asked for: %s", got)
	}
	i := slices.IndexFunc(e.rows, func(r query.Row) bool { return r.Name == "vpc" })
	e.rows[i].Tolerated = &stack.ToleratedDrift{Resources: 1, Attributes: 2, Of: []stack.ToleratedAttribute{{Address: "world_thing.a", Attribute: "size", Policy: "ClusterPolicy/noise", Reason: hostile, Until: now.Add(time.Hour)}}}
	d := show(t, e, "/stacks/net/vpc/drift?accept=yes&ignore=yes", StackDrift)
	for _, want := range []string{"ignored true", "Not edited", "main.tf:3", "It is an expression.", "May drift", "ClusterPolicy/noise"} {
		if !strings.Contains(d.text(), want) {
			t.Errorf("the page does not say %q: %s", want, d.text())
		}
	}
	forms := d.forms("/drift/accept")
	if len(forms) != 1 || forms[0].Fields.Get("digest") != "sha256:d" {
		t.Fatalf("the page has the forms %+v, want one that names the drift", forms)
	}
	fields := forms[0].Fields
	fields.Set("reason", " resized ")
	if _, h, err := post(t, e, forms[0].To, fields, AcceptDrift); err != nil || len(h.done) != 1 || h.done[0] != "accept drift net/vpc sha256:d: resized" {
		t.Errorf("the form does %v, %v", h.done, err)
	}
}

// The page of a stack has its prerequisites and the steps after its applies, and a button that
// names the steps that it shows.
func TestStepsOfAStack(t *testing.T) {
	e := town()
	e.prerequisites = []steps.Prerequisite{{Name: "vlan", Met: true, Reason: "Met", Since: now}, {Name: "dhcp", Reason: "NotFound", Message: "no scope " + hostile, Since: now}, {Name: "new"}}
	e.steps = &steps.Steps{State: stack.StepFailed, Digest: "0123456789ab", Run: "steps-9", At: now, Steps: []steps.Progress{
		{Name: "up", Does: "waitFor", State: stack.StepSucceeded, At: now}, {Name: "configure", Does: "ansible", State: stack.StepFailed, Attempts: 3, At: now, Message: "unreachable " + hostile}, {Name: "hosts", Does: "inventory", State: stack.StepPending},
	}}
	d := show(t, e, "/stacks/apps/cart", Stack)
	for _, want := range []string{"Prerequisites", "vlan", "NotFound", "Not checked yet", "Steps after the apply", "steps-9", "configure", "attempt 3", "unreachable", "inventory", "Run again"} {
		if !strings.Contains(d.text(), want) {
			t.Errorf("the page does not say %q: %s", want, d.text())
		}
	}
	forms := d.forms("/rerun-steps")
	if len(forms) != 1 || forms[0].Fields.Get("steps") != "0123456789ab" {
		t.Fatalf("the page has the forms %+v, want one that names the steps", forms)
	}
	if done, h, err := post(t, e, forms[0].To, forms[0].Fields, RerunSteps); err != nil || done.To != "/stacks/apps/cart" || len(h.done) != 1 || h.done[0] != "rerun steps apps/cart 0123456789ab" {
		t.Errorf("the form does %v, %v, and leads to %q", h.done, err, done.To)
	}
	e.steps.State, e.steps.BeforeApply = steps.Held, true
	if d := show(t, e, "/stacks/apps/cart", Stack); len(d.forms("/rerun-steps")) != 0 || !strings.Contains(d.text(), "The stack was not applied yet.") || !strings.Contains(d.text(), "Approve and run") {
		t.Errorf("before the first apply the page says: %s", d.text())
	}
	e.prerequisites, e.steps = nil, nil
	if d := show(t, e, "/stacks/apps/cart", Stack); strings.Contains(d.text(), "Prerequisites") || strings.Contains(d.text(), "Steps after the apply") {
		t.Error("a stack without steps has a section about them")
	}
}

func TestStackThatFails(t *testing.T) {
	e := town()
	i := slices.IndexFunc(e.rows, func(r query.Row) bool { return r.Name == "hostile" })
	e.rows[i].Phase, e.rows[i].FailedRevision = string(stack.RetryLater), "main@sha1:bad0bad0"
	e.moments[2].Count, e.moments[2].First = 5, now.Add(-3*time.Hour)
	v := visitor(t, e, "/stacks/apps/hostile")
	p, err := Stack(v)
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, v, p)
	links := d.all(func(n *html.Node) bool {
		return n.DataAtom == atom.A && attr(n, "href") == "/stacks/apps/hostile/runs/apply-7/log"
	})
	if len(links) != 2 || !strings.Contains(textOf(links[0]), logWords) {
		t.Errorf("%d links lead to the log of the run that failed, want one in what to do and one in the facts", len(links))
	}
	for _, want := range []string{"main@sha1:bad0bad0", "5 times since", "Correct the cause; see the " + logWords + ". Terrier retries"} {
		if !strings.Contains(d.text(), want) {
			t.Errorf("the page does not say %q: %s", want, d.text())
		}
	}
	if d := show(t, e, "/stacks/apps/cart", Stack); strings.Contains(d.text(), "Log of the run") {
		t.Error("a stack that is well tells of a run that failed once")
	}
}

// The form that cancels a run cannot be sent without its checkbox, and a run that was
// cancelled says until when its engine may go on.
func TestCancellingARun(t *testing.T) {
	e := town()
	i := slices.IndexFunc(e.rows, func(r query.Row) bool { return r.Name == "cart" })
	e.rows[i].Run = &query.Running{ID: "apply-9", Kind: "apply"}
	d := show(t, e, "/stacks/apps/cart", Stack)
	if boxes := d.all(func(n *html.Node) bool { return attr(n, "name") == "sure" && has(n, "required") }); len(boxes) != 1 {
		t.Errorf("%d checkboxes have to be selected to cancel the run, want one", len(boxes))
	}
	e.rows[i].Cancelled = &stack.Cancellation{Run: "apply-9", At: now.Add(-5 * time.Second), Until: now.Add(25 * time.Second)}
	d = show(t, e, "/stacks/apps/cart", Stack)
	if got := d.text(); !strings.Contains(got, "The run apply-9 was cancelled 5s ago. Its engine has until 15:09:51 UTC to end") || strings.Contains(got, "Cancel the run") {
		t.Errorf("a run that was cancelled is shown as: %s", got)
	}
}
