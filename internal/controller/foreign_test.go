package controller

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/controller/modules"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A user who may write the status of a stack can have it name the record of another stack, which
// has the credentials of that one and says where its state is. No run is made from it.
func TestARecordOfAnotherStackIsNone(t *testing.T) {
	foreign := record.Snapshot("victim", "sha256:1")
	setup := func(t *testing.T) (*apart, *pass) {
		c, p := returning(t)
		c.jobs.modules, c.jobs.key = modules.New(t.TempDir()), secret.New("key")
		of := snapshot{
			Job: runner.Job{Env: map[string]string{"AWS_SECRET_ACCESS_KEY": "of the victim"}}, PlanInputs: stack.PlanInputs{Source: "of the victim"},
			Note: note{State: &kube.StateRef{Namespace: "victim", Suffix: "net"}, Backend: "b"},
		}
		if err := record.At[snapshot](foreign).Write(t.Context(), c.snapshots.blobs, of); err != nil {
			t.Fatal(err)
		}
		p.job, p.o.Status.Snapshot, p.o.Status.Created = nil, foreign, true
		return c, p
	}
	innocent := func(t *testing.T, p *pass) {
		t.Helper()
		if p.job != nil && p.job.Env["AWS_SECRET_ACCESS_KEY"] != "" || p.note.State != nil && p.note.State.Namespace == "victim" || p.o.PlanInputs.Source == "of the victim" {
			t.Errorf("the run is made from %+v, %+v, %+v", p.job, p.note, p.o.PlanInputs)
		}
	}

	t.Run("a rollback", func(t *testing.T) {
		c, p := setup(t)
		p.job, p.o.Status.Rollback.To.Snapshot = &runner.Job{}, foreign
		if b := c.snapshots.standIn(t.Context(), p); b == nil || !strings.Contains(b.Message, "reading the record of its apply") {
			t.Errorf("it is blocked by %+v", b)
		}
		innocent(t, p)
	})
	t.Run("a destroy", func(t *testing.T) {
		c, p := setup(t)
		p.o.Deleting = true
		if err := c.snapshots.recall(t.Context(), p); err == nil && p.o.Status.Snapshot != "" {
			t.Error("the run is made from what is there now, and names the record nevertheless")
		}
		innocent(t, p)
	})
	t.Run("a correction of a destroy", func(t *testing.T) {
		c, p := setup(t)
		p.o.Deleting, p.o.Spec.DestroyLast, p.o.Status.Failures, p.o.Status.FailedKind = true, true, 1, stack.DestroyRun
		if err := c.observer.observeCorrection(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		innocent(t, p)
	})
}
