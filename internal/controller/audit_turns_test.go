package controller

import (
	"log/slog"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// However often a user approves and rejects, the audit log gets a bounded number of lines, no run
// that writes begins before the newest request is in it, and the newest one is recorded in its turn.
func TestRequestsOfAStackWaitForTheirTurn(t *testing.T) {
	d, blobs := &diary{}, openRecords(t)
	s, e := takeApart(&Stacks{Audit: d, Blobs: blobs, Log: slog.New(slog.DiscardHandler)}), &entry{id: "uid"}
	obj := &v1alpha2.Terraform{}
	obj.Name = "net"
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	deleting := false
	ask := func(spec stack.Spec) *pass {
		obj.Generation++
		p := &pass{dialect: infra.Dialect{}, id: "uid", entry: e, obj: obj, st: dialect.Stack{Spec: spec, Status: stack.Status{LastRun: "run-0", Plans: stack.Plans{Pending: &stack.Plan{Name: "plan-1", Digest: "sha256:1"}}}}}
		p.o.Spec, p.o.Status, p.o.Now, p.o.Deleting = p.st.Spec, p.st.Status, now, deleting
		s.auditRequests(t.Context(), p)
		return p
	}
	recorded := func(what audit.What) (n int) {
		for _, e := range d.entries {
			if e.What == what {
				n++
			}
		}
		return n
	}
	ask(stack.Spec{})
	const minutes = 120
	waited := 0
	for range minutes {
		for range 20 { // every three seconds
			p := ask(stack.Spec{Approved: "plan-1"})
			if p.unaudited != nil {
				waited++
				if fault.Of(p.unaudited) != fault.Later || p.recheck <= 0 || p.recheck > turnsEvery {
					t.Fatalf("the request waits for %s: %v", p.recheck, p.unaudited)
				}
			}
			ask(stack.Spec{})
			now = now.Add(3 * time.Second)
		}
	}
	if n := recorded(audit.Approved); n > turnsAtOnce+minutes || n < turnsAtOnce || waited == 0 {
		t.Errorf("%d approvals are recorded in two hours and %d waited, want %d at most", n, waited, turnsAtOnce+minutes)
	}

	for p := ask(stack.Spec{Rejected: "plan-1"}); p.unaudited != nil; p = ask(stack.Spec{Rejected: "plan-1"}) {
		now = now.Add(p.recheck)
	}
	if n := recorded(audit.Rejected); n != 1 {
		t.Errorf("the newest request, a rejection, is recorded %d times, want once", n)
	}

	before := recorded(audit.Suspended)
	if p := ask(stack.Spec{Rejected: "plan-1", Suspended: true}); p.unaudited != nil || recorded(audit.Suspended) != before+1 {
		t.Errorf("a suspension waits for the turn of approvals: %v", p.unaudited)
	}
	deleting = true
	if p := ask(stack.Spec{Rejected: "plan-1", Suspended: true}); p.unaudited != nil {
		t.Errorf("a deletion waits: %v", p.unaudited)
	}
}
