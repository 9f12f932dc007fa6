package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// lockOnly is one lock, and a state that may fail to load.
type lockOnly struct {
	states.Store
	held   string
	holder string
	fail   error
	taken  int
}

func (l *lockOnly) Holder(context.Context, kube.StateRef) (*kube.LockedError, error) {
	if l.held == "" {
		return nil, nil
	}
	return &kube.LockedError{Holder: kube.LockInfo{ID: l.held, Holder: l.holder}}, nil
}

func (l *lockOnly) Lock(_ context.Context, _ kube.StateRef, info kube.LockInfo) error {
	if l.held != "" && (l.held != info.ID || l.holder != "" && l.holder != info.Holder) {
		return &kube.LockedError{Holder: kube.LockInfo{ID: l.held, Holder: l.holder}}
	}
	l.held, l.holder, l.taken = info.ID, info.Holder, l.taken+1
	return nil
}

func (l *lockOnly) Unlock(_ context.Context, _ kube.StateRef, id string) error {
	if l.held == id {
		l.held, l.holder = "", ""
	}
	return nil
}

func (l *lockOnly) Load(context.Context, kube.StateRef) (kube.Stored, error) {
	return kube.Stored{}, l.fail
}

// starter fails to start runs, before or after they are there.
type starter struct {
	runner.Runner
	fail    error
	started *runner.Report
	late    bool
}

func (s *starter) Start(_ context.Context, job runner.Job) error {
	if s.fail == nil || s.late {
		s.started = &runner.Report{ID: job.ID}
	}
	return s.fail
}

func (s *starter) Current(string) (*runner.Report, error) { return s.started, nil }

// LQ-03: a quota that is used up, or a pod that is still being removed, is a wait and no failure. The run gives back its lock
// and its turn, the status says what it waits for, and it is tried again after a pause.
func TestARunThatTheRunnerHasNoRoomForWaits(t *testing.T) {
	for _, reason := range []string{runner.NoRoom, runner.StackBusy} {
		t.Run(reason, func(t *testing.T) { waitsForTheRunner(t, reason) })
	}
}

func waitsForTheRunner(t *testing.T, reason string) {
	full := fault.New(fault.Later, reason, errors.New("the quota is used up"))
	lock := &lockOnly{}
	c := takeApart(&Stacks{States: lock, Blobs: openRecords(t), Runner: &starter{fail: full}, Queue: queueOf(1)})
	p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}, note: note{State: &kube.StateRef{}}}
	if err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, ""); err != nil {
		t.Errorf("launch() = %v, want no obstacle", err)
	}
	if p.o.Queued != "the quota is used up" || p.o.Run != nil || p.o.Status.Failures != 0 {
		t.Errorf("it waits for %q, its run is %v after %d failures; want the quota, none and none", p.o.Queued, p.o.Run, p.o.Status.Failures)
	}
	if p.recheck < soonestRoom || p.recheck > latestRoom {
		t.Errorf("it is tried again after %s, want %s to %s", p.recheck, soonestRoom, latestRoom)
	}
	if lock.taken != 1 || lock.held != "" {
		t.Errorf("the lock was taken %d times and is held by %q, want it taken once and free", lock.taken, lock.held)
	}
	if why := c.whole.Queue.Admit("other", schedule.Candidate{Tenant: "ns"}); why != "" {
		t.Errorf("another run waits: %s; want the turn of the one that cannot start", why)
	}
}

func TestALockIsFreedIfItsRunDoesNotStart(t *testing.T) {
	failed := errors.New("no")
	for name, tt := range map[string]struct {
		held        string
		load, start error
		late        bool
		own         bool // the state was as expected when it was read last
		want        bool // the run holds the lock afterwards
		taken       int
	}{
		"all is well":                {want: true, taken: 1},
		"the state cannot be loaded": {load: failed},
		"… any more":                 {load: failed, own: true, taken: 1},
		"the run cannot be started":  {start: failed, taken: 1},
		"it started all the same":    {start: failed, late: true, want: true, taken: 1},
		"somebody else holds it":     {held: "foreign"},
	} {
		t.Run(name, func(t *testing.T) {
			lock := &lockOnly{held: tt.held, fail: tt.load}
			c := takeApart(&Stacks{States: lock, Blobs: openRecords(t), Runner: &starter{fail: tt.start, late: tt.late}, Queue: queueOf(1)})
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}, note: note{State: &kube.StateRef{}}}
			p.entry.stateOwn = tt.own
			for range 2 { // a refused run tries again, and does not disturb others
				err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, "")
				if (err == nil) != (tt.held == "" && tt.load == nil && tt.start == nil) {
					t.Errorf("launch() error = %v", err)
				}
				if tt.load == nil {
					break
				}
			}
			if lock.taken != tt.taken {
				t.Errorf("the lock was taken %d times, want %d", lock.taken, tt.taken)
			}
			want := tt.held
			if tt.want {
				want = p.name(stack.ApplyRun, stack.Cause{})
			}
			if lock.held != want {
				t.Errorf("the lock is held by %q afterwards, want %q", lock.held, want)
			}
		})
	}
}

// P1: two installations that look after one stack give their runs the same names,
// and are told apart all the same.
func TestALockOfAnotherInstallationIsForeign(t *testing.T) {
	lock := &lockOnly{}
	c := takeApart(&Stacks{States: lock, Blobs: openRecords(t), Runner: &starter{}, Queue: queueOf(1)})
	p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}, note: note{State: &kube.StateRef{}}}
	id := p.name(stack.ApplyRun, stack.Cause{})
	lock.held, lock.holder = id, "abc/uid/"+id
	err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, "")
	if held, ok := errors.AsType[*kube.LockedError](err); !ok || held.Holder.Holder != lock.holder {
		t.Errorf("launch() = %v, want to be told of %s", err, lock.holder)
	}
	if lock.held != id {
		t.Error("the lock of another installation was freed")
	}
}

// events remembers the reasons of what it is told.
type events struct {
	last string
	all  []string
}

func (e *events) Event(_ client.Object, _, reason, _ string) {
	e.last, e.all = reason, append(e.all, reason)
}

// F06: a lock whose holder is a run of ours that does not exist any more is
// freed; any other one is not touched.
func TestALockOfADeadRunIsFreed(t *testing.T) {
	const left = "apply-1"
	for name, tt := range map[string]struct {
		holder  func(*apart) string
		current string // the run that exists
		freed   bool
	}{
		"a run of ours that is gone":     {func(c *apart) string { return c.jobs.installation() + "/uid/" + left }, "", true},
		"another run took its place":     {func(c *apart) string { return c.jobs.installation() + "/uid/" + left }, "apply-2", true},
		"a run of ours that is there":    {func(c *apart) string { return c.jobs.installation() + "/uid/" + left }, left, false},
		"a run of another stack":         {func(c *apart) string { return c.jobs.installation() + "/other/" + left }, "", false},
		"a run of another installation":  {func(*apart) string { return "abc/uid/" + left }, "", false},
		"a lock that does not say whose": {func(*apart) string { return "" }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			said, start := &events{}, &starter{}
			if tt.current != "" {
				start.started = &runner.Report{ID: tt.current}
			}
			lock := &lockOnly{held: left}
			c := takeApart(&Stacks{States: lock, Blobs: openRecords(t), Runner: start, Events: said, Queue: queueOf(1)})
			lock.holder = tt.holder(c)
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}, note: note{State: &kube.StateRef{}}}
			err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, "")
			if freed := lock.held != left; freed != tt.freed || (err == nil) != tt.freed || (said.last == "LockFreed") != tt.freed {
				t.Errorf("launch() = %v, the lock is held by %q, said %q; want it freed: %v", err, lock.held, said.last, tt.freed)
			}
			if _, held := errors.AsType[*kube.LockedError](err); !tt.freed && !held {
				t.Errorf("launch() = %v, want it to say who holds the lock", err)
			}
		})
	}
}

// A run whose pod found no node, or did not get its image, gives back its lock and its turn,
// waits longer each time, and is tried at once when the spec changes or a user asks for a
// plan.
func TestARunThatNeverBeganWaitsLongerEachTime(t *testing.T) {
	for _, reason := range []string{runner.NoRoom, runner.NoImage} {
		t.Run(reason, func(t *testing.T) { waitsLongerEachTime(t, reason) })
	}
}

func waitsLongerEachTime(t *testing.T, reason string) {
	lock := &lockOnly{held: "run"}
	ran := &ranOnly{report: &runner.Report{ID: "run", Kind: stack.ApplyRun, Phase: runner.Done, Outcome: stack.Interrupted, Reason: reason,
		Message: "the pod waits for a node: Insufficient cpu.", Note: []byte(`{"state":{}}`)}}
	registry := prometheus.NewRegistry()
	counted, err := newMetrics(registry, false, &schedule.Budgets{})
	if err != nil {
		t.Fatal(err)
	}
	c := takeApart(&Stacks{States: lock, Blobs: openRecords(t), Runner: ran, Queue: queueOf(1), Log: slog.New(slog.DiscardHandler), metrics: counted})
	p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}, note: note{State: &kube.StateRef{}}}
	p.o.Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, want := range []time.Duration{leastRoomPause, 2 * leastRoomPause, 4 * leastRoomPause} {
		if err := c.settle(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if p.ended != nil || p.o.Status.LastRun != "" || p.o.Status.Failures != 0 || lock.held != "" || ran.forgotten != "run" {
			t.Errorf("recorded are %v, %q and %d failures, the lock is held by %q, and forgotten is %q; want nothing, no lock, and run",
				p.ended, p.o.Status.LastRun, p.o.Status.Failures, lock.held, ran.forgotten)
		}
		p.recheck = 0
		if err := c.launch(t.Context(), p, stack.ApplyRun, stack.Cause{}, ""); err != nil || p.o.Queued == "" {
			t.Fatalf("launch() = %v, and it waits for %q", err, p.o.Queued)
		}
		if p.recheck < want || p.recheck > 2*want || p.o.Queued != "the pod waits for a node: Insufficient cpu. Other runs have its turn until it is tried again" {
			t.Errorf("it is tried again after %s because of %q, want after %s at least", p.recheck, p.o.Queued, want)
		}
		lock.held = "run"
	}
	for what, of := range map[string]roomFor{"spec": {generation: 1}, "request": {replan: "r"}} {
		if left := p.entry.room.left(p.o.Now, of); left > 0 {
			t.Errorf("with another %s it waits for %s more", what, left)
		}
	}
	if why := c.whole.Queue.Admit("other", schedule.Candidate{Tenant: "ns"}); why != "" {
		t.Errorf("another run waits: %s; want the turn of the one without room", why)
	}
	if n := value(gathered(t, registry)["terrier_runs_total"], "apply", "Interrupted"); n != 3 {
		t.Errorf("%v interrupted runs are counted, want 3", n)
	}
}

// ranOnly is a runner that has one report.
type ranOnly struct {
	runner.Runner
	report               *runner.Report
	forgotten, cancelled string
}

func (r *ranOnly) Cancel(_ context.Context, _, id string) error { r.cancelled = id; return nil }

func (r *ranOnly) Current(string) (*runner.Report, error) { return r.report, nil }
func (r *ranOnly) Forget(_, id string) error              { r.forgotten = id; return nil }

// A run whose end is recorded comes back from a controller that died: it is cancelled, and
// the next run waits for its end.
func TestARecordedRunThatComesBackIsCancelled(t *testing.T) {
	for last, want := range map[string]string{"run": "run", "other": ""} {
		ran := &ranOnly{report: &runner.Report{ID: "run", Kind: stack.PlanRun, Phase: runner.Starting, Note: []byte(`{}`)}}
		c := takeApart(&Stacks{Blobs: openRecords(t), Runner: ran, Queue: queueOf(1)})
		p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}}
		p.o.Status.LastRun = last
		if err := c.settle(t.Context(), p); err != nil || ran.cancelled != want || p.o.Run == nil || ran.forgotten != "" {
			t.Errorf("after run %s: settle() = %v, %q is cancelled, %q is forgotten, and what goes on is %+v", last, err, ran.cancelled, ran.forgotten, p.o.Run)
		}
	}
}

// A run whose end was recorded before that of a later one comes back with a node that was
// lost: it is recorded once, whatever it left.
func TestTheEndOfAnEarlierRunIsRecordedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		note     string
		kind     stack.RunKind
		recorded bool
		phase    runner.Phase
		earlier  bool
	}{
		"a plan":                         {`{"after":"first"}`, stack.PlanRun, false, runner.Done, true},
		"a plan of a new stack":          {`{"after":""}`, stack.PlanRun, false, runner.Done, true},
		"a plan that goes on":            {`{"after":"first"}`, stack.PlanRun, false, runner.Planning, true},
		"an apply that is recorded":      {`{"after":"first"}`, stack.ApplyRun, true, runner.Done, true},
		"an apply that is not recorded":  {`{"after":"first"}`, stack.ApplyRun, false, runner.Done, false},
		"the next plan":                  {`{"after":"later"}`, stack.PlanRun, false, runner.Done, false},
		"a plan of an earlier release":   {`{}`, stack.PlanRun, false, runner.Done, false},
		"the next apply, which goes on":  {`{"after":"later"}`, stack.ApplyRun, false, runner.Applying, false},
		"an apply, recorded, is running": {`{"after":"first"}`, stack.ApplyRun, true, runner.Applying, true},
	} {
		t.Run(name, func(t *testing.T) {
			ran := &ranOnly{report: &runner.Report{ID: "run", Kind: tt.kind, Phase: tt.phase, Outcome: stack.Failed, Note: []byte(tt.note)}}
			c := takeApart(&Stacks{Blobs: openRecords(t), Runner: ran, Queue: queueOf(1), States: &lockOnly{}, Log: slog.New(slog.DiscardHandler)})
			if tt.recorded {
				if err := c.records.Put(t.Context(), record.Run("uid", "run", record.ReportFile), []byte(`{}`)); err != nil {
					t.Fatal(err)
				}
			}
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}}
			p.o.Status.LastRun = "later"
			earlier, err := earlier(t.Context(), c.records, p, ran.report, noteOf(t, tt.note))
			if err != nil || earlier != tt.earlier {
				t.Fatalf("earlier() = %v, %v, want %v", earlier, err, tt.earlier)
			}
			if !earlier {
				return
			}
			if err := c.settle(t.Context(), p); err != nil || p.o.Status.LastRun != "later" || p.ended != nil {
				t.Errorf("settle() = %v, and %q is recorded", err, p.o.Status.LastRun)
			}
			if done := tt.phase == runner.Done; done != (ran.forgotten == "run") || done == (ran.cancelled == "run") {
				t.Errorf("forgotten is %q, cancelled is %q", ran.forgotten, ran.cancelled)
			}
		})
	}
}

func noteOf(t *testing.T, text string) (n note) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The end of a run that began after that was recorded is recorded again.
func TestOnlyTheEndOfARunThatBeganIsItsOwn(t *testing.T) {
	known := stack.StateID{Lineage: "l", Serial: 5}
	for name, tt := range map[string]struct {
		kind stack.RunKind
		left stack.StateID
		want bool
	}{
		"a newer state":       {stack.ApplyRun, stack.StateID{Lineage: "l", Serial: 6}, true},
		"the state as known":  {stack.ApplyRun, known, false},
		"no state":            {stack.ApplyRun, stack.StateID{}, false},
		"a run that reads":    {stack.PlanRun, stack.StateID{Lineage: "l", Serial: 6}, false},
		"a state of no stack": {stack.ApplyRun, stack.StateID{Lineage: "m", Serial: 6}, false},
	} {
		if got := wroteMore(&runner.Report{Kind: tt.kind, State: tt.left}, note{State: &kube.StateRef{}}, known); got != tt.want {
			t.Errorf("%s: wroteMore() = %v", name, got)
		}
	}
}

// Outputs whose record does not open are read from the state, or are not known: a run that writes
// the record again must not wait for them.
func TestOutputsThatDoNotOpen(t *testing.T) {
	c := takeApart(&Stacks{Blobs: damaged{openRecords(t)}, States: oneState{state: `{"outputs": {"host": {"value": "h"}}}`}})
	p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}, id: "uid", entry: &entry{id: "uid"}, note: note{State: &kube.StateRef{}}}
	if got, err := c.actor.outputs(t.Context(), p); err != nil || string(got["host"].Value) != `"h"` {
		t.Errorf("outputs() = %v, %v, want those of the state", got, err)
	}
	p.note.State = nil
	if got, err := c.actor.outputs(t.Context(), p); fault.Of(err) != fault.Missing {
		t.Errorf("without a state of ours outputs() = %v, %v, want Missing", got, err)
	}
}

// unreadable are records of which one is not read for the given reason.
type unreadable struct {
	records.Blobs
	key string
	why error
}

func (u unreadable) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if key == u.key {
		return nil, u.why
	}
	return u.Blobs.Get(ctx, key)
}

// Outputs whose key is not known are there: steps and health checks that went without them would
// fail for good. They wait for the key. Outputs that are lost are not waited for.
func TestOutputsWhoseKeyIsNotKnown(t *testing.T) {
	old, lost, both := twoKeys(t)
	if err := old.Put(t.Context(), record.Outputs("uid"), strings.NewReader(`{"hosts": {"value": "10.0.0.1"}}`)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		blobs records.Blobs
		want  fault.Kind
	}{
		"the key is lost":       {lost, fault.Later},
		"the key is known":      {both, fault.None},
		"the record is damaged": {unreadable{old, record.Outputs("uid"), fault.New(fault.Broken, blob.Damaged, errors.New("it was cut off"))}, fault.None},
		"there is no record":    {openRecords(t), fault.None},
	} {
		for kind, start := range map[stack.RunKind]string{stack.StepsRun: "the steps after the apply", stack.HealthRun: "the health checks"} {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				runs := &taker{}
				c := takeApart(&Stacks{Blobs: tt.blobs, Runner: runs, Queue: queueOf(1), States: &lockOnly{}})
				p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}, id: "uid", entry: &entry{id: "uid"}, job: &runner.Job{}}
				p.o.Steps, p.o.Spec.Words = &stack.Steps{Digest: "sha256:5"}, stack.Words{Argument: "net"}
				err := c.actor.start(t.Context(), p, stack.Start{Kind: kind})
				if fault.Of(err) != tt.want || (runs.job.Kind == kind) == (err != nil) {
					t.Errorf("start() = %v, and the run began: %v", err, runs.job.Kind == kind)
				}
				if err != nil && (!strings.Contains(err.Error(), "reading the outputs for "+start) || !strings.HasSuffix(err.Error(), "restore that key, or ask for a plan, which reads them again: terrier replan net")) {
					t.Errorf("it says %v", err)
				}
			})
		}
	}
}

// A monitoring that cannot be written to keeps the status of a stack waiting for a while, and not
// for ever; one that only a user can help with not at all.
func TestTargetsThatCannotBeWritten(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha2.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var refusal error
	live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refusal },
	})
	said := &events{}
	c := takeApart(&Stacks{Blobs: openRecords(t), Live: live, Events: said})
	if err := c.records.Put(t.Context(), record.Outputs("uid"), []byte(`{"hosts": {"value": "10.0.0.1"}}`)); err != nil {
		t.Fatal(err)
	}
	p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "net", UID: "uid"}}, id: "uid", entry: &entry{id: "uid"}, ended: &stack.Run{Kind: stack.StepsRun}}
	p.st.Configuration.AfterApply = []afterapply.Step{{Name: "watch", Targets: &afterapply.Targets{HostsFrom: "hosts", Port: 80}}}
	p.o.Status.AfterApply = &stack.AfterApply{Results: []stack.StepResult{{Name: "watch", State: stack.StepSucceeded}}}
	began := time.Unix(1700000000, 0)
	for _, tt := range []struct {
		refusal error
		after   time.Duration
		waits   bool
		told    int
	}{
		{apierrors.NewInternalError(errors.New("a webhook does not answer")), 0, true, 0},
		{apierrors.NewInternalError(errors.New("a webhook does not answer")), targetsPatience - time.Second, true, 0},
		{apierrors.NewInternalError(errors.New("a webhook does not answer")), targetsPatience, false, 1},
		{apierrors.NewInternalError(errors.New("a webhook does not answer")), time.Hour, true, 1}, // of another run
		{nil, time.Hour, false, 1},
		{apierrors.NewForbidden(corev1.Resource("configmaps"), "net-targets", nil), time.Hour, false, 2},
	} {
		refusal, p.o.Now = tt.refusal, began.Add(tt.after)
		if err := c.writeTargets(t.Context(), p); (err != nil) != tt.waits || len(said.all) != tt.told {
			t.Errorf("after %s, with %v, writeTargets() = %v, and %q is told; want to wait: %v, and told %d", tt.after, tt.refusal, err, said.all, tt.waits, tt.told)
		}
	}
}
