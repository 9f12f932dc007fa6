package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// diary is an AuditLog that can be full.
type diary struct {
	entries []audit.Entry
	full    bool
}

func (d *diary) Record(_ context.Context, e audit.Entry) error {
	if d.full {
		return errors.New("the disk is full")
	}
	if !slices.ContainsFunc(d.entries, func(other audit.Entry) bool { return other.ID == e.ID }) {
		d.entries = append(d.entries, e)
	}
	return nil
}

func (d *diary) whats() []audit.What {
	var out []audit.What
	for _, e := range d.entries {
		out = append(out, e.What)
	}
	return out
}

// What a run did to the memory is one entry, or none.
func TestOutcomesOfRuns(t *testing.T) {
	plan := &stack.Plan{Name: "plan-1", Digest: "sha256:1", Changes: stack.Changes{Add: 1}}
	drift := &stack.Plan{Name: "plan-2", Digest: "sha256:2", Drift: true}
	run := func(kind stack.RunKind, outcome stack.Outcome, change func(*stack.Run)) stack.Run {
		r := stack.Run{ID: "run-1", Kind: kind, Done: true, Outcome: outcome, Step: "plan", At: time.Unix(1, 0)}
		if change != nil {
			change(&r)
		}
		return r
	}
	makes := func(p *stack.Plan) func(*stack.Run) { return func(r *stack.Run) { r.Plan = p } }
	applies := func(p *stack.Plan) func(*stack.Run) { return func(r *stack.Run) { r.Cause.Plan = p } }
	destroys := func(whole bool) func(*stack.Run) {
		return func(r *stack.Run) { r.Cause = stack.Cause{Plan: plan, Destroy: true, Whole: whole} }
	}
	failing := stack.Status{Failure: stack.Failure{Failures: 2, FailedKind: stack.PlanRun, FailedStep: "plan"}, LastRun: "run-0"}
	for name, c := range map[string]struct {
		was  stack.Status
		run  stack.Run
		want []audit.What
	}{
		"a quiet look":              {stack.Status{}, run(stack.CheckRun, stack.Succeeded, nil), nil},
		"a plan without changes":    {stack.Status{}, run(stack.PlanRun, stack.Succeeded, nil), nil},
		"a plan":                    {stack.Status{}, run(stack.PlanRun, stack.Succeeded, makes(plan)), []audit.What{audit.Planned}},
		"the same plan again":       {stack.Status{Plans: stack.Plans{Pending: plan}}, run(stack.PlanRun, stack.Succeeded, makes(plan)), nil},
		"drift":                     {stack.Status{}, run(stack.CheckRun, stack.Succeeded, makes(drift)), []audit.What{audit.DriftFound}},
		"drift that goes":           {stack.Status{Plans: stack.Plans{Pending: drift}, Resources: stack.Resources{Drift: &stack.Drift{}}}, run(stack.CheckRun, stack.Succeeded, nil), []audit.What{audit.DriftResolved}},
		"an apply":                  {stack.Status{Plans: stack.Plans{Pending: plan}}, run(stack.ApplyRun, stack.Succeeded, applies(plan)), []audit.What{audit.Applied}},
		"an apply that fails":       {stack.Status{Plans: stack.Plans{Pending: plan}}, run(stack.ApplyRun, stack.Failed, applies(plan)), []audit.What{audit.ApplyFailed}},
		"each apply that fails":     {failing, run(stack.ApplyRun, stack.Failed, applies(plan)), []audit.What{audit.ApplyFailed}},
		"a destroy":                 {stack.Status{Resources: stack.Resources{Created: true}}, run(stack.DestroyRun, stack.Succeeded, nil), []audit.What{audit.Destroyed}},
		"a planned destroy":         {stack.Status{Resources: stack.Resources{Created: true}}, run(stack.ApplyRun, stack.Succeeded, destroys(true)), []audit.What{audit.Destroyed}},
		"one that fails":            {stack.Status{Resources: stack.Resources{Created: true}}, run(stack.ApplyRun, stack.Failed, destroys(true)), []audit.What{audit.DestroyFailed}},
		"a destroy of targets":      {stack.Status{Resources: stack.Resources{Created: true}}, run(stack.ApplyRun, stack.Succeeded, destroys(false)), []audit.What{audit.Applied}},
		"one of targets that fails": {stack.Status{Resources: stack.Resources{Created: true}}, run(stack.ApplyRun, stack.Failed, destroys(false)), []audit.What{audit.ApplyFailed}},
		"a plan that fails":         {stack.Status{}, run(stack.PlanRun, stack.Failed, nil), []audit.What{audit.PlanFailed}},
		"one that fails again":      {failing, run(stack.PlanRun, stack.Failed, nil), nil},
		"one that fails otherwise":  {failing, run(stack.PlanRun, stack.Failed, func(r *stack.Run) { r.Step = "init" }), []audit.What{audit.PlanFailed}},
		"one that works again":      {failing, run(stack.PlanRun, stack.Succeeded, nil), []audit.What{audit.Recovered}},
		"one that was stopped":      {stack.Status{}, run(stack.PlanRun, stack.Interrupted, nil), nil},
		"a preview":                 {stack.Status{}, run(stack.PreviewRun, stack.Succeeded, makes(plan)), nil},
		"a broken lock":             {stack.Status{}, run(stack.PlanRun, stack.Succeeded, func(r *stack.Run) { r.Broke = "lock" }), []audit.What{audit.LockBroken}},
		"one that is known already": {stack.Status{LastRun: "run-1"}, run(stack.ApplyRun, stack.Succeeded, applies(plan)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := &diary{}
			s := takeApart(&Stacks{Audit: d})
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, st: dialect.Stack{Status: c.was}, ended: &c.run}
			p.o.Status = c.was.Record(c.run)
			for range 2 { // a pass that is made again says nothing new
				if err := s.auditChanges(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			if got := d.whats(); !cmp.Equal(got, c.want) {
				t.Errorf("recorded are %v, want %v", got, c.want)
			}
		})
	}
}

// A run that writes does not start without its audit entry, and its lock and slot
// are free again.
func TestNothingIsAppliedOffTheRecord(t *testing.T) {
	for name, c := range map[string]struct {
		kind   stack.RunKind
		full   bool
		starts bool
		// why the requests are not in the audit log
		unaudited error
	}{
		"an apply":                                 {kind: stack.ApplyRun, starts: true},
		"an apply that cannot be recorded":         {kind: stack.ApplyRun, full: true},
		"an apply whose approval is not on record": {kind: stack.ApplyRun, unaudited: errors.New("the disk was full")},
		"a destroy that cannot be recorded":        {kind: stack.DestroyRun, full: true},
		"a plan needs none":                        {kind: stack.PlanRun, full: true, starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			lock, start, d := &lockOnly{}, &starter{}, &diary{full: c.full}
			s := takeApart(&Stacks{States: lock, Blobs: openRecords(t), Runner: start, Audit: d, Queue: queueOf(1)})
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{}, note: note{State: &kube.StateRef{}}, unaudited: c.unaudited}
			err := s.launch(t.Context(), p, c.kind, stack.Cause{}, "")
			if (err == nil) != c.starts || !c.starts && (fault.Of(err) != fault.Later || fault.Reason(err, "") != string(stack.StartFailed)) {
				t.Errorf("launch() = %v, want it to start: %v", err, c.starts)
			}
			if !c.starts && lock.held != "" {
				t.Errorf("the lock is held by %q", lock.held)
			}
			if wrote := c.starts && c.kind.Writes(); (len(d.entries) == 1) != wrote {
				t.Errorf("recorded are %v", d.whats())
			}
		})
	}
}

// What cannot be recorded is not taken over, and is taken up again.
func TestWhatIsNotRecordedIsNotTakenOver(t *testing.T) {
	was := stack.Status{LastRun: "run-0"}
	ended := stack.Run{ID: "run-1", Kind: stack.ApplyRun, Done: true, Outcome: stack.Succeeded}
	p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, st: dialect.Stack{Status: was}, ended: &ended}
	p.o.Status = was.Record(ended)
	err := (takeApart(&Stacks{Audit: &diary{full: true}})).auditChanges(t.Context(), p)
	if err == nil {
		t.Fatal("it was recorded on a full disk")
	}
	p.unrecorded(err)
	d := stack.Decide(p.o)
	if p.ended != nil || p.o.Status.LastRun != "run-0" || d.Reason != stack.StartFailed || d.Ready != stack.Reconciling {
		t.Errorf("the memory knows of %s and the status says %+v", p.o.Status.LastRun, d)
	}
}

// A stack that is older than the audit log adds nothing. Each later request is one
// entry, also after a restart of the controller.
func TestRequestsAreAuditedOnce(t *testing.T) {
	d, blobs := &diary{}, openRecords(t)
	obj := &v1alpha2.Terraform{}
	obj.Name, obj.Generation = "net", 3
	obj.Annotations = map[string]string{kube.ChangedBy: "ann", kube.DecidedBy: "bob", kube.Comment: "fine"}
	pending := &stack.Plan{Name: "plan-1", Digest: "sha256:1"}
	pass := func(spec stack.Spec, generation int64) *pass {
		obj.Generation = generation
		p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: obj, st: dialect.Stack{Spec: spec, Status: stack.Status{LastRun: "run-0", Plans: stack.Plans{Pending: pending}}}}
		p.o.Spec, p.o.Status = p.st.Spec, p.st.Status
		return p
	}
	s, e := takeApart(&Stacks{Audit: d, Blobs: blobs}), &entry{id: "uid"}
	for _, step := range []struct {
		spec       stack.Spec
		generation int64
	}{
		{stack.Spec{}, 3},
		{stack.Spec{Approved: "other"}, 4},
		{stack.Spec{Approved: "plan-1"}, 5},
		{stack.Spec{Approved: "plan-1", Suspended: true}, 6},
		{stack.Spec{Approved: "plan-1"}, 7},
		{stack.Spec{Approved: "plan-1", Rejected: "plan-1"}, 7},
		{stack.Spec{Rejected: "plan-1"}, 9},
	} {
		for range 2 {
			p := pass(step.spec, step.generation)
			p.entry = e
			if s.auditRequests(t.Context(), p); e.audited == nil {
				t.Fatal("no request is known to be in the audit log")
			}
		}
		e = &entry{id: "uid"} // as after a restart
		p := pass(step.spec, step.generation)
		p.entry = e
		s.auditRequests(t.Context(), p)
	}
	want := []audit.What{audit.ApprovedStale, audit.Approved, audit.Suspended, audit.Resumed, audit.Rejected, audit.Changed}
	if got := d.whats(); !cmp.Equal(got, want) {
		t.Fatalf("recorded are %v, want %v", got, want)
	}
	if e := d.entries[1]; e.Who != "bob" || e.Digest != "sha256:1" || e.Comment != "fine" {
		t.Errorf("the approval is %+v", e)
	}
	if e := d.entries[2]; e.Who != "ann" {
		t.Errorf("the suspension is by %q, want ann", e.Who)
	}
}

// The entry of the beginning of a destroy says whether it is of everything, as that of its end
// does. Other resources stay after one of targets.
func TestTheBeginningOfADestroyIsRecorded(t *testing.T) {
	for name, tt := range map[string]struct {
		targets []string
		cause   stack.Cause
		want    audit.What
	}{
		"an apply":                {nil, stack.Cause{}, audit.ApplyStarted},
		"an apply of targets":     {[]string{"module.a"}, stack.Cause{}, audit.ApplyStarted},
		"a destroy of everything": {nil, stack.Cause{Destroy: true}, audit.DestroyStarted},
		"a destroy of targets":    {[]string{"module.a"}, stack.Cause{Destroy: true}, audit.ApplyStarted},
	} {
		t.Run(name, func(t *testing.T) {
			d := &diary{}
			s := takeApart(&Stacks{States: &lockOnly{}, Blobs: openRecords(t), Runner: &starter{}, Audit: d, Queue: queueOf(1)})
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{Options: runner.Options{Targets: tt.targets}}, note: note{State: &kube.StateRef{}}}
			if err := s.launch(t.Context(), p, stack.ApplyRun, tt.cause, ""); err != nil {
				t.Fatal(err)
			}
			if got := d.whats(); !cmp.Equal(got, []audit.What{tt.want}) {
				t.Errorf("recorded are %v, want %s", got, tt.want)
			}
			if whole := len(tt.targets) == 0; p.note.Cause.Whole != whole || p.o.Run.Cause.Whole != whole {
				t.Errorf("the run is noted as whole: %v, and observed as whole: %v; want %v", p.note.Cause.Whole, p.o.Run.Cause.Whole, whole)
			}
		})
	}
}
