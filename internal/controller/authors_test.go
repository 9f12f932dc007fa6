package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// epochNow is the epoch of an API server, or why there is none.
type epochNow struct {
	epoch string
	err   error
}

func (e epochNow) Epoch(context.Context) (string, error) { return e.epoch, e.err }

// A user is named as the author of a cancellation or a rejection only if the API server has
// stamped that: an annotation may be of any user.
func TestAuthorsAreVerified(t *testing.T) {
	for name, tt := range map[string]struct {
		stamps  Stamps
		stamped string
		by      string
		unknown string
	}{
		"a stamp of the epoch":                 {epochNow{epoch: "E"}, "E", "ann", ""},
		"of another epoch":                     {epochNow{epoch: "F"}, "E", "", "the API server did not record the user"},
		"of no epoch":                          {epochNow{epoch: "E"}, "", "", "the API server did not record the user"},
		"an API server that does not stamp":    {epochNow{err: errors.New("the API server does not record users")}, "E", "", "the API server does not record users"},
		"a controller that cannot find it out": {nil, "E", "", "this controller cannot ask"},
	} {
		t.Run(name, func(t *testing.T) {
			ran := &ranOnly{}
			c := takeApart(&Stacks{Blobs: openRecords(t), Runner: ran, Queue: queueOf(1), Stamps: tt.stamps})
			obj := &v1alpha2.Terraform{}
			obj.Annotations = map[string]string{kube.ChangedBy: "ann", kube.DecidedBy: "ann"}
			spec := stack.Spec{Cancel: "run-1", Stamped: tt.stamped, Rejected: "p1", RejectedBy: "ann"}
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: obj, st: dialect.Stack{Spec: spec}}
			p.o = stack.Observation{Now: time.Unix(1e9, 0), Spec: spec, Run: &stack.Run{ID: "run-1", Kind: stack.ApplyRun}}
			p.o.Status.Pending = &stack.Plan{Name: "p1", Digest: "d"}
			if got, err := c.actor.cancel(t.Context(), p, "run-1"); got != news || err != nil || ran.cancelled != "run-1" {
				t.Fatalf("cancel() = %v, %v, and %q is cancelled", got, err, ran.cancelled)
			}
			if by := p.o.Status.Cancelled; by.By != tt.by || !strings.Contains(by.Unknown, tt.unknown) || (by.Unknown == "") != (tt.unknown == "") {
				t.Errorf("the run was cancelled by %q, unknown: %q; want %q, %q", by.By, by.Unknown, tt.by, tt.unknown)
			}
			if err := c.actor.approvals.verify(t.Context(), p); err != nil || p.o.Spec.RejectedBy != tt.by {
				t.Errorf("verify() = %v, and the plan was rejected by %q, want %q", err, p.o.Spec.RejectedBy, tt.by)
			}
			var want *stack.Decider
			if tt.by != "" {
				want = &stack.Decider{Plan: "p1", By: tt.by}
			}
			if d := cmp.Diff(p.o.Status.Decider, want); d != "" {
				t.Errorf("what is verified of the decision: %s", d)
			}
		})
	}
}

// The user who approved a plan is verified once, and not in each pass. Another user, another
// plan, and a name that was not verified, are asked about.
func TestWhoApprovedIsVerifiedOnce(t *testing.T) {
	asked := 0
	c := takeApart(&Stacks{Blobs: openRecords(t), Stamps: askedStamps{&asked}})
	obj := &v1alpha2.Terraform{}
	obj.Annotations = map[string]string{kube.DecidedBy: "ann"}
	var was stack.Status
	pass := func(plan, approved, stamped string) *stack.Decider {
		t.Helper()
		spec := stack.Spec{Mode: stack.Manual, Stamped: stamped, Approved: approved}
		p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: obj, st: dialect.Stack{Spec: spec}}
		p.o = stack.Observation{Now: time.Unix(1e9, 0), Spec: spec, Status: was}
		p.o.Status.Pending = &stack.Plan{Name: plan, Digest: "d"}
		if err := c.actor.approvals.verify(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		was.Decider = p.o.Status.Decider
		return was.Decider
	}
	for _, tt := range []struct {
		name, plan, approved, stamped, by string
		want                              *stack.Decider
		asked                             int
	}{
		{"no approval", "p1", "", "E", "ann", nil, 0},
		{"the approval of another plan", "p1", "p0", "E", "ann", nil, 0},
		{"a stamp that may be forged", "p1", "p1", "D", "ann", nil, 1},
		{"a stamp of the epoch", "p1", "p1", "E", "ann", &stack.Decider{Plan: "p1", By: "ann"}, 2},
		{"the same", "p1", "p1", "E", "ann", &stack.Decider{Plan: "p1", By: "ann"}, 2},
		{"a forged name after it", "p1", "p1", "D", "eve", &stack.Decider{Plan: "p1", By: "ann"}, 3},
		{"another plan", "p2", "p2", "E", "bob", &stack.Decider{Plan: "p2", By: "bob"}, 4},
	} {
		obj.Annotations[kube.DecidedBy] = tt.by
		if d := cmp.Diff(pass(tt.plan, tt.approved, tt.stamped), tt.want); d != "" || asked != tt.asked {
			t.Errorf("%s: asked %d times, want %d; what is verified: %s", tt.name, asked, tt.asked, d)
		}
	}
}

// askedStamps are of the epoch E, and count who asks.
type askedStamps struct{ n *int }

func (a askedStamps) Epoch(context.Context) (string, error) {
	*a.n++
	return "E", nil
}

// An approval whose user cannot be verified is in the audit log with the user whom the object
// names, as a claim and not as the user.
func TestAnUnverifiedUserIsAClaimInTheAuditLog(t *testing.T) {
	for name, tt := range map[string]struct {
		stamped      string
		who, claimed string
	}{
		"a stamp of the epoch": {"E", "ann", ""},
		"of another epoch":     {"D", "", "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &diary{}
			c := takeApart(&Stacks{Blobs: openRecords(t), Audit: log, Stamps: epochNow{epoch: "E"}})
			obj := &v1alpha2.Terraform{}
			obj.Annotations = map[string]string{kube.DecidedBy: "ann"}
			st := dialect.Stack{Spec: stack.Spec{Mode: stack.Manual, Stamped: tt.stamped}}
			st.Status.LastRun, st.Status.Pending = "run-0", &stack.Plan{Name: "p1", Digest: "d"}
			e := &entry{id: "uid"}
			for _, approved := range []string{"", "p1"} {
				st.Spec.Approved = approved
				p := &pass{dialect: infra.Dialect{}, id: "uid", entry: e, obj: obj, st: st}
				p.o.Spec, p.o.Status = st.Spec, st.Status
				if c.auditRequests(t.Context(), p); p.unaudited != nil {
					t.Fatal(p.unaudited)
				}
			}
			if len(log.entries) != 1 {
				t.Fatalf("the audit log has %+v, want the approval", log.entries)
			}
			if got := log.entries[0]; got.What != audit.Approved || got.Who != tt.who || got.Claimed != tt.claimed {
				t.Errorf("the audit log has %+v, want it by %q, claimed %q", got, tt.who, tt.claimed)
			}
		})
	}
}
