package command_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func TestReplanAndItsAnswer(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	request, err := s.Replan(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	if got := c.object().Annotations[infra.RequestedAt]; got != request {
		t.Fatalf("the annotation is %q, want %q", got, request)
	}
	answered := make(chan query.Stack, 1)
	failed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	go func() {
		st, err := command.Answered(ctx, s, c.key(), request, func(string) {})
		failed <- err
		answered <- st
	}()
	busy := metav1.Condition{Type: "Reconciling", Status: "True", Reason: "Progressing", LastTransitionTime: metav1.Now()}
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.LastHandledReconcileAt, s.Conditions = noon.Add(-time.Hour).Format(time.RFC3339), []metav1.Condition{busy}
	})
	c.status(func(s *v1alpha2.TerraformStatus) { s.LastHandledReconcileAt = request })
	select {
	case err := <-failed:
		t.Fatalf("answered while the stack is still on its way: %v", err)
	default:
	}
	c.status(func(s *v1alpha2.TerraformStatus) { s.Conditions = nil; s.Plan.Pending = "plan-x" })
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if st := <-answered; st.Pending != "plan-x" {
		t.Errorf("answered with %+v, want the stack at rest", st)
	}
}

// An attempt that failed is an answer: its retry may be an hour away.
func TestAnsweredByAFailedAttempt(t *testing.T) {
	for _, phase := range []stack.Reason{stack.RetryLater, stack.LockedByOther, stack.DestroyFailed} {
		t.Run(string(phase), func(t *testing.T) {
			c := newCluster(t)
			s := c.stacks(interceptor.Funcs{})
			request, err := s.Replan(t.Context(), c.key())
			if err != nil {
				t.Fatal(err)
			}
			c.status(func(s *v1alpha2.TerraformStatus) {
				s.Terrier = &v1alpha2.TerrierStatus{Phase: string(phase)}
				s.Conditions = []metav1.Condition{{Type: "Reconciling", Status: "True", Reason: "Progressing", LastTransitionTime: metav1.Now()}}
			})
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := command.Answered(short, s, c.key(), request, func(string) {}); fault.Of(err) != fault.Later {
				t.Errorf("Answered() before the attempt = %v, want that the request is not answered yet", err)
			}
			c.status(func(s *v1alpha2.TerraformStatus) { s.LastHandledReconcileAt = request })
			long, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			st, err := command.Answered(long, s, c.key(), request, func(string) {})
			if err != nil || st.Phase != string(phase) {
				t.Errorf("Answered() after the attempt = %q, %v, want %s", st.Phase, err, phase)
			}
		})
	}
}

// timed is a context whose time is over when a test says so.
type timed struct{ context.Context }

func (c timed) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// A stack that cannot answer before a user acts ends the wait, and so does the end of
// the time: both say what the stack waits for.
func TestAnsweredSaysWhatItWaitsFor(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	request, err := s.Replan(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.Terrier = &v1alpha2.TerrierStatus{Phase: "SourceNotReady"}
		s.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "SourceNotReady", Message: "the source has no artifact", LastTransitionTime: metav1.Now()}}
	})
	waiting, end := context.WithCancel(t.Context())
	defer end()
	var told []string
	_, err = command.Answered(timed{waiting}, s, c.key(), request, func(what string) {
		told = append(told, what)
		end()
	})
	if fault.Of(err) != fault.Later || !strings.Contains(err.Error(), "SourceNotReady: the source has no artifact") || strings.Contains(err.Error(), "context") {
		t.Errorf("Answered() when its time is over = %v, want what the stack waits for", err)
	}
	if diff := cmp.Diff([]string{"SourceNotReady: the source has no artifact"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.Terrier.Phase = "ModuleInvalid"
		s.Conditions = []metav1.Condition{
			{Type: "Ready", Status: "False", Reason: "ModuleInvalid", Message: "main.tf line 3: no such thing", LastTransitionTime: metav1.Now()},
			{Type: "Stalled", Status: "True", Reason: "ModuleInvalid", LastTransitionTime: metav1.Now()},
		}
	})
	_, err = command.Answered(t.Context(), s, c.key(), request, func(string) {})
	if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "ModuleInvalid: main.tf line 3: no such thing") {
		t.Errorf("Answered() of a stalled stack = %v, want the end of the wait", err)
	}
	c.status(func(s *v1alpha2.TerraformStatus) { s.LastHandledReconcileAt = request })
	st, err := command.Answered(t.Context(), s, c.key(), request, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := command.NotPlanned(st); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "main.tf line 3: no such thing") {
		t.Errorf("NotPlanned() of a stack that could not plan = %v, want why", err)
	}
}
