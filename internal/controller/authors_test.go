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
	"github.com/terrier-iac/terrier/internal/controller/approvals"
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
		stamps  approvals.Stamps
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
			if err := c.whole.verify(t.Context(), p); err != nil || p.o.Spec.RejectedBy != tt.by {
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
