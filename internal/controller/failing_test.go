package controller

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// away is a store of records that does not answer.
type away struct{ records.Blobs }

var errAway = errors.New("the bucket does not answer")

func (away) Get(context.Context, string) (io.ReadCloser, error) { return nil, errAway }

// A stack whose passes end early says so once that lasts, and what it was once they do not.
func TestAStackWhosePassesEndEarlySaysSo(t *testing.T) {
	l := newLagging(t, testkit.Kube(t, v1alpha2.AddToScheme), "app")
	now := time.Now()
	l.loader.now = func() time.Time { return now }
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(l.server(t).Status.Conditions, dialect.ConditionReady)
	}
	there := l.driftRecords.blobs
	l.driftRecords.blobs = away{there}
	for _, after := range []time.Duration{0, failurePatience / 2} {
		now = now.Add(after)
		if _, err := l.whole.reconcile(t.Context(), l.ref()); !errors.Is(err, errAway) {
			t.Fatalf("reconcile() = %v, want %v", err, errAway)
		}
		if c := ready(); c != nil && c.Reason == dialect.ReconcileFailed {
			t.Errorf("after %s the condition is %+v already", after, c)
		}
	}
	now = now.Add(failurePatience)
	for range 2 { // the second finds it said
		if _, err := l.whole.reconcile(t.Context(), l.ref()); !errors.Is(err, errAway) {
			t.Fatalf("reconcile() = %v, want %v", err, errAway)
		}
	}
	if c := ready(); c == nil || c.Status != metav1.ConditionFalse || c.Reason != dialect.ReconcileFailed || !strings.Contains(c.Message, errAway.Error()) {
		t.Errorf("the condition is %+v, want False, %s, and the error", c, dialect.ReconcileFailed)
	}
	l.driftRecords.blobs = there
	if _, err := l.whole.reconcile(t.Context(), l.ref()); err != nil {
		t.Fatal(err)
	}
	if c := ready(); c == nil || c.Reason == dialect.ReconcileFailed {
		t.Errorf("the condition is %+v, though the pass did not fail", c)
	}
	l.driftRecords.blobs = away{there}
	l.whole.index.newest(l.ref()).checks = nil // as a controller that has just started has it
	if _, err := l.whole.reconcile(t.Context(), l.ref()); !errors.Is(err, errAway) {
		t.Fatalf("reconcile() = %v, want %v", err, errAway)
	}
	if c := ready(); c == nil || c.Reason == dialect.ReconcileFailed {
		t.Errorf("the condition is %+v after one more failure, want patience to begin anew", c)
	}
}

// awayPolicies are policies that cannot be read.
type awayPolicies struct {
	Policies
	err error
}

func (u awayPolicies) For(context.Context, client.Object) (policies.Set, error) {
	return policies.Set{}, u.err
}

// A stack whose policies cannot be read, or the record of what they judge, is tried again. Its
// status is not taken for one that cannot be read: nothing would ever look at the stack again, and
// the way out of that is none here.
func TestAStackWhosePoliciesCannotBeReadIsTriedAgain(t *testing.T) {
	l := newLagging(t, testkit.Kube(t, v1alpha2.AddToScheme), "app")
	now := time.Now()
	l.loader.now = func() time.Time { return now }
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(l.server(t).Status.Conditions, dialect.ConditionReady)
	}
	there := l.loader.policies
	l.loader.policies = awayPolicies{there, errAway}
	for _, after := range []time.Duration{0, failurePatience} {
		now = now.Add(after)
		if result, err := l.whole.reconcile(t.Context(), l.ref()); !errors.Is(err, errAway) {
			t.Fatalf("after %s reconcile() = %+v, %v, want the error, so that it is tried again", after, result, err)
		}
		if c := ready(); after == 0 && c != nil {
			t.Errorf("the condition is %+v at once", c)
		}
	}
	if c := ready(); c == nil || c.Reason != dialect.ReconcileFailed || !strings.Contains(c.Message, errAway.Error()) || strings.Contains(c.Message, "status.terrier") {
		t.Errorf("the condition is %+v, want %s, and the error", c, dialect.ReconcileFailed)
	}
	l.loader.policies = there
	if _, err := l.whole.reconcile(t.Context(), l.ref()); err != nil {
		t.Fatal(err)
	}
	if c := ready(); c == nil || c.Reason == dialect.ReconcileFailed {
		t.Errorf("the condition is %+v, though the pass did not fail", c)
	}
}

// A stack whose policies are not known yet asks for them less and less often, and says what it
// waits for once that lasts.
func TestAStackWhosePoliciesAreNotKnownSaysSo(t *testing.T) {
	l := newLagging(t, testkit.Kube(t, v1alpha2.AddToScheme), "app")
	began := time.Now()
	now := began
	l.loader.now = func() time.Time { return now }
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(l.server(t).Status.Conditions, dialect.ConditionReady)
	}
	there, pending := l.loader.policies, awayPolicies{err: fault.New(fault.Later, "PolicyPending", errors.New("the program of ClusterPolicy/slow is not compiled yet"))}
	l.loader.policies = pending
	for _, tt := range []struct {
		after, pause time.Duration
		said         bool
	}{
		{0, unjudgedRecheck, false},
		{unjudgedRecheck, unjudgedRecheck, false},
		{unjudgedPatience / 2, unjudgedPatience / 2, false},
		{unjudgedPatience, unjudgedPatience, true},
		{time.Hour, unjudgedPause, true},
	} {
		now = began.Add(tt.after)
		if r, err := l.whole.reconcile(t.Context(), l.ref()); err != nil || r.RequeueAfter != tt.pause {
			t.Errorf("after %s reconcile() = %+v, %v, want a pause of %s", tt.after, r, err, tt.pause)
		}
		c := ready()
		if said := c != nil && c.Reason == dialect.ReconcileFailed && strings.Contains(c.Message, pending.err.Error()); said != tt.said {
			t.Errorf("after %s the condition is %+v, want it to say so: %v", tt.after, c, tt.said)
		}
	}
	l.loader.policies = there
	if _, err := l.whole.reconcile(t.Context(), l.ref()); err != nil {
		t.Fatal(err)
	}
	if c := ready(); c == nil || c.Reason == dialect.ReconcileFailed {
		t.Errorf("once the policies are known, the condition is %+v", c)
	}
	l.loader.policies = pending
	if r, err := l.whole.reconcile(t.Context(), l.ref()); err != nil || r.RequeueAfter != unjudgedRecheck {
		t.Errorf("another wait begins with %+v, %v, want it to begin with the first pause", r, err)
	}
}
