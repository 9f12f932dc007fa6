package approvals

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The user who approved a plan is verified once, and not in each pass. Another user, another
// plan, and a name that was not verified, are asked about.
func TestWhoApprovedIsVerifiedOnce(t *testing.T) {
	asked := 0
	v := &Verifier{Blobs: blobtest.Files(t, 1<<20), Stamps: askedStamps{&asked}}
	obj := &v1alpha2.Terraform{}
	obj.Annotations = map[string]string{kube.DecidedBy: "ann"}
	var was stack.Status
	verified := func(plan, approved, stamped string) *stack.Decider {
		t.Helper()
		spec := stack.Spec{Mode: stack.Manual, Stamped: stamped, Approved: approved}
		var known *stack.Approvers
		o := stack.Observation{Now: time.Unix(1e9, 0), Spec: spec, Status: was}
		o.Status.Pending = &stack.Plan{Name: plan, Digest: "d"}
		if _, err := v.Verify(t.Context(), Subject{ID: "uid", Dialect: infra.Dialect{}, Object: obj, Asked: dialect.Stack{Spec: spec}, Observed: &o, Known: &known}); err != nil {
			t.Fatal(err)
		}
		was.Decider = o.Status.Decider
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
		if d := cmp.Diff(verified(tt.plan, tt.approved, tt.stamped), tt.want); d != "" || asked != tt.asked {
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
