package controller

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// returning is a pass of a stack that asks for a bad revision and is rolled back to a good one, of
// which the records have the job and the source.
func returning(t *testing.T) (*apart, *pass) {
	t.Helper()
	found := func(context.Context, string) (engine.Engine, error) {
		return engine.Engine{Name: "tofu", Version: "1.12.0"}, nil
	}
	c := takeApart(&Stacks{Blobs: openRecords(t), Archives: records.Archives{Dir: t.TempDir()}, Engine: found})
	good := stack.PlanInputs{Revision: "main@sha1:good", Source: "sha256:aa", Inputs: "of good", Shape: "s", Engine: "tofu 1.11.0"}
	bad := stack.PlanInputs{Revision: "main@sha1:bad", Source: "sha256:bb", Inputs: "of bad", Shape: "s", Engine: "tofu 1.12.0"}
	key := record.Snapshot("uid", "sha256:1")
	kept := snapshot{
		Job:  runner.Job{Tree: runner.Tree{Archive: "sha256:aa"}, Env: map[string]string{"TF_VAR_size": "1"}, Mask: []string{"hidden then"}, Sandbox: runner.Sandbox{Network: "host"}, Options: runner.Options{InitKey: "k"}},
		Note: note{State: &kube.StateRef{Suffix: "net"}, Backend: "b"}, PlanInputs: good, Origin: "https://git.example.com/good", Revision: good.Revision,
	}
	if err := record.At[snapshot](key).Write(t.Context(), c.snapshots.blobs, kept); err != nil {
		t.Fatal(err)
	}
	if err := c.records.Put(t.Context(), record.Tree(good.Source), []byte("the good archive")); err != nil {
		t.Fatal(err)
	}
	p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}, id: "uid", entry: &entry{id: "uid"}, job: &runner.Job{Sandbox: runner.Sandbox{Network: "none"}}}
	p.note = note{State: &kube.StateRef{Suffix: "net", Encrypted: true}, Backend: "b"}
	p.in.archive, p.in.origin, p.in.revision, p.in.Mask = "bad.tar.gz", "https://git.example.com/bad", bad.Revision, []string{"hidden now"}
	p.o.PlanInputs, p.o.Spec.Words.Argument = bad, "net"
	p.o.Status.Rollback = &stack.Rollback{From: bad, To: stack.Revision{PlanInputs: good, Snapshot: key, Run: "apply-1", At: time.Unix(1e9, 0)}, Why: "no answer"}
	return c, p
}

// What was applied before takes the place of all that the object asks for, and the state of now
// stays as it is.
func TestTheLastGoodApplyStandsIn(t *testing.T) {
	c, p := returning(t)
	if b := c.snapshots.standIn(t.Context(), p); b != nil {
		t.Fatal(b.Message)
	}
	if in := p.o.PlanInputs; in.Source != "sha256:aa" || in.Inputs != "of good" || in.Engine != "tofu 1.12.0" || !p.o.SourceAt.Equal(time.Unix(1e9, 0)) {
		t.Errorf("plans are made from %+v of %s, want the good inputs with the engine of now", in, p.o.SourceAt)
	}
	if p.job.Env["TF_VAR_size"] != "1" || p.job.Tree.Archive != "sha256:aa" || p.job.Options.InitKey == "k" {
		t.Errorf("the job is %+v, want the recorded one, prepared again for another engine", p.job)
	}
	if got, err := os.ReadFile(p.in.archive); err != nil || string(got) != "the good archive" {
		t.Errorf("its source is %q, %v", got, err)
	}
	if p.in.origin != "https://git.example.com/good" || p.in.revision != "main@sha1:good" {
		t.Errorf("its source is said to be %s from %s", p.in.revision, p.in.origin)
	}
	if p.job.Sandbox.Network != "none" {
		t.Errorf("its runs have the network %q, want what the platform allows now", p.job.Sandbox.Network)
	}
	if !p.note.State.Encrypted {
		t.Error("the state is no longer encrypted, want what is asked for now")
	}
	for _, hidden := range []string{"hidden then", "hidden now"} {
		if !slices.Contains(p.in.Mask, hidden) {
			t.Errorf("%q may be shown", hidden)
		}
	}

	var cause stack.Cause
	if err := c.snapshots.keepFor(t.Context(), p, &cause); err != nil || cause.Snapshot != p.o.Status.Rollback.To.Snapshot {
		t.Errorf("a run of it names the record %q, %v, want that of the good apply", cause.Snapshot, err)
	}
}

// A repair asks for nothing else than before, so it does not end a rollback. It is of what the
// object asks for, and waits for the end.
func TestARepairWaitsForTheEndOfARollback(t *testing.T) {
	c, p := returning(t)
	p.o.Status.Rollback.From.Shape = p.st.Configuration.Shape()
	p.o.PlanInputs.Shape, p.in.imports = "with imports", &workdir.File{}
	b := c.snapshots.standIn(t.Context(), p)
	if b == nil || b.Reason != stack.StateIncomplete || !strings.HasSuffix(b.Message, "terrier rollback net --end") || p.o.Status.Rollback == nil {
		t.Errorf("it is blocked by %+v, and rolled back by %+v", b, p.o.Status.Rollback)
	}
}

// Something else is asked for: nothing stands in for it.
func TestAnotherRevisionEndsARollback(t *testing.T) {
	c, p := returning(t)
	p.o.PlanInputs.Source = "sha256:cc"
	if b := c.snapshots.standIn(t.Context(), p); b != nil || p.o.Status.Rollback != nil || p.o.PlanInputs.Source != "sha256:cc" || p.in.archive != "bad.tar.gz" {
		t.Errorf("it is blocked by %+v, rolled back by %+v, and plans %+v from %s", b, p.o.Status.Rollback, p.o.PlanInputs, p.in.archive)
	}
}

// What cannot be returned to blocks the stack, and says how to go on. Nothing is guessed.
func TestARollbackToWhatIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		lose func(*testing.T, *apart, *pass)
		want string
	}{
		"its source": {func(t *testing.T, c *apart, _ *pass) {
			if err := c.snapshots.blobs.Delete(t.Context(), record.Tree("sha256:aa")); err != nil {
				t.Fatal(err)
			}
		}, "restoring the source that was applied"},
		"its record": {func(t *testing.T, c *apart, p *pass) {
			if err := c.snapshots.blobs.Delete(t.Context(), p.o.Status.Rollback.To.Snapshot); err != nil {
				t.Fatal(err)
			}
		}, "reading the record of its apply"},
		"its state": {func(_ *testing.T, _ *apart, p *pass) { p.note.State.Suffix = "elsewhere" }, "its state was in another place"},
	} {
		t.Run(name, func(t *testing.T) {
			c, p := returning(t)
			tt.lose(t, c, p)
			b := c.snapshots.standIn(t.Context(), p)
			if b == nil || b.Reason != stack.SourceFailed || !strings.Contains(b.Message, "rolled back to main@sha1:good, which cannot be planned: "+tt.want) || !strings.HasSuffix(b.Message, "terrier rollback net --end") {
				t.Errorf("it is blocked by %+v", b)
			}
			if p.o.Status.Rollback == nil {
				t.Error("the rollback ended, want it to wait for the user")
			}
		})
	}
}

// A commit of hosts to the source would end the rollback that wrote it, and the bad revision would
// be back: nothing is written meanwhile. A writer that cannot write shows whether one was tried.
func TestNoHostsAreWrittenDuringARollback(t *testing.T) {
	for name, tt := range map[string]struct {
		b    *stack.Rollback
		want stack.Outcome
	}{
		"without a rollback": {nil, stack.Failed},
		"during a rollback":  {&stack.Rollback{}, stack.Succeeded},
	} {
		p := &pass{entry: &entry{id: "uid"}, dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}}
		p.o.Status.Rollback = tt.b
		run := &stack.Run{ID: "steps-1", Kind: stack.StepsRun, Outcome: stack.Succeeded, Steps: []stack.StepResult{{Name: "hosts", State: stack.StepSucceeded}}}
		err := writeHosts(t.Context(), &settler{hosts: &aftersteps.Writer{}}, p, &runner.Report{}, note{Hosts: []aftersteps.Order{{Step: "hosts"}}}, run)
		if err != nil || run.Outcome != tt.want || tt.b != nil && !strings.Contains(run.Steps[0].Message, "while the stack is rolled back") {
			t.Errorf("%s: the steps end %s with %+v, %v, want %s", name, run.Outcome, run.Steps, err, tt.want)
		}
	}
}

// The records of the apply to return to outlive the applies after it.
func TestTheRecordsOfTheLastGoodApplyStay(t *testing.T) {
	c := takeApart(&Stacks{Blobs: openRecords(t)})
	key := func(name string) string { return record.Snapshot("uid", "sha256:"+name) }
	for _, name := range []string{"a0", "a1", "a2", "a3", "a4"} {
		if err := c.records.Put(t.Context(), key(name), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	p := &pass{id: "uid", entry: &entry{id: "uid"}}
	p.o.Status.Snapshot = key("a3")
	p.o.Status.Revisions = []stack.Revision{{Snapshot: key("a1")}, {Snapshot: key("a3")}}
	p.o.Status.Rollback = &stack.Rollback{To: stack.Revision{Snapshot: key("a2")}}
	if err := c.dropSnapshots(t.Context(), p, &runner.Report{Outcome: stack.Succeeded}, note{Cause: stack.Cause{Snapshot: key("a4")}}); err != nil {
		t.Fatal(err)
	}
	got, err := c.snapshots.blobs.List(t.Context(), record.Snapshots("uid"))
	if want := []string{key("a1"), key("a2"), key("a3"), key("a4")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("kept are %q, %v, want %q", got, err, want)
	}
}

// A rollback whose status could not be written begins again, and is one in the audit log.
func TestARollbackIsRecordedOnce(t *testing.T) {
	b := stack.Rollback{From: stack.PlanInputs{Revision: "bad"}, To: stack.Revision{Run: "apply-1", Plan: "p", PlanInputs: stack.PlanInputs{Revision: "good"}}, At: time.Unix(1, 0), Why: "no answer"}
	is := stack.Status{LastWrite: "apply-2"}
	e, once := auditEntry(stack.Transition{Change: stack.RollbackBegan, Rollback: &b}, is)
	if e.What != audit.RolledBack || e.Why != "no answer" || e.Plan != "p" || e.Details["from"] != "bad" || e.Details["revision"] != "good" {
		t.Errorf("the entry is %+v", e)
	}
	b.At = time.Unix(2, 0)
	if _, again := auditEntry(stack.Transition{Change: stack.RollbackBegan, Rollback: &b}, is); again != once {
		t.Errorf("its ID is %q, and then %q", once, again)
	}
	is.LastWrite = "apply-4"
	if _, next := auditEntry(stack.Transition{Change: stack.RollbackBegan, Rollback: &b}, is); next == once {
		t.Error("another rollback to the same apply has the same ID")
	}
	if e, _ := auditEntry(stack.Transition{Change: stack.RollbackEnded, Rollback: &b}, is); e.What != audit.RollbackEnded || e.Why != "" {
		t.Errorf("the entry of its end is %+v", e)
	}
}
