package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// runsKept is how many runs of a stack stay readable.
const runsKept = 20

// findUntracked lists what a failed apply created and what its state does not track.
// A state in a backend of the stack's own cannot be compared: there everything is
// listed that a killed run created, and of a run that ended every operation whose
// end the engine did not see.
func (se *settler) findUntracked(ctx context.Context, p *pass, r *runner.Report, n note, run *stack.Run) error {
	if r.Kind != stack.ApplyRun && r.Kind != stack.ScriptRun || r.Outcome == stack.Succeeded || r.Outcome == stack.Stale {
		return nil
	}
	state, err := se.states.Newest(ctx, p.id, r, n.State)
	if err != nil {
		return err
	}
	events, err := se.events(p, r)
	if err != nil {
		return err
	}
	defer events.Close()
	run.Apart, run.Rescued = n.State == nil, n.State == nil && r.Rescued != nil
	if run.Apart && r.Outcome != stack.Killed && !run.Rescued {
		run.Untracked, err = plan.Unheard(events)
		run.Apart = len(run.Untracked) > 0
		return err
	}
	run.Untracked, err = plan.Unrecorded(events, state)
	if err != nil || !r.Lost {
		return err
	}
	unseen, err := se.unseen(ctx, p, r, n, state)
	run.Lost = len(unseen) > 0
	run.Untracked = append(run.Untracked, unseen...)
	return err
}

// events are those that a run left, none if it left no file of them.
func (se *settler) events(p *pass, r *runner.Report) (io.ReadCloser, error) {
	f, err := se.runner.Open(p.id, r.ID, runner.FileEvents)
	if fault.Of(err) == fault.Missing {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return f, err
}

// unseen lists what an apply that was lost with its machine may have created beyond what
// its events tell: what its plan creates. Another apply would create it a second time.
func (se *settler) unseen(ctx context.Context, p *pass, r *runner.Report, n note, state []byte) ([]stack.UntrackedResource, error) {
	made := n.Cause.Plan
	if made == nil {
		return nil, nil
	}
	text, err := se.records.Get(ctx, record.Plan(p.id, made.Digest, string(review.Masked)))
	if fault.Of(err) == fault.Missing {
		se.log.Error("what a lost run may have created is not listed: its plan is missing", "stack", r.Name, "run", r.ID, "plan", made.Name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	doc, err := plan.ParseDocument(text)
	if err != nil {
		return nil, err
	}
	events, err := se.events(p, r)
	if err != nil {
		return nil, err
	}
	defer events.Close()
	return doc.Unseen(events, state)
}

// followUntracked finds out which untracked resources of an earlier run are in the
// state now: a repair imported some of them, or a person in a break-glass session.
// What is still missing stays listed, also when the run leaves untracked resources
// of its own.
func (se *settler) followUntracked(ctx context.Context, p *pass, n note, run *stack.Run) error {
	was := p.o.Status.OpenUntracked(p.o.Spec)
	if was == nil {
		return nil
	}
	missing := was.Objects
	if n.State != nil && !was.Apart {
		state, err := se.states.Inspector.Newest(ctx, p.id)
		if err == nil {
			missing, err = plan.StillUnrecorded(missing, state)
		}
		if err != nil {
			return fmt.Errorf("looking what is still missing after run %s: %w", was.Run, err)
		}
	}
	if len(run.Untracked) > 0 {
		run.Untracked = append(run.Untracked, slices.DeleteFunc(slices.Clone(missing), func(u stack.UntrackedResource) bool {
			return slices.ContainsFunc(run.Untracked, func(is stack.UntrackedResource) bool { return is.Address == u.Address })
		})...)
		run.Apart = run.Apart || was.Apart
	}
	p.o.Status.Untracked = was.Less(missing)
	return nil
}

// freeLock frees the lock that the run held.
func (se *settler) freeLock(ctx context.Context, r *runner.Report, n note) error {
	if !r.Kind.Writes() || n.State == nil {
		return nil
	}
	if err := se.store.Unlock(ctx, *n.State, r.ID); err != nil {
		return fmt.Errorf("freeing the state lock: %w", err)
	}
	return nil
}

// checked notes when a drift check ended.
func (se *settler) checked(ctx context.Context, p *pass, r *runner.Report, run *stack.Run) error {
	if r.Kind != stack.CheckRun || r.Outcome != stack.Succeeded {
		return nil
	}
	known, found := p.o.Status.Pending, run.Plan
	news := found != nil && (known == nil || p.o.Status.Drift == nil || known.Digest != found.Digest)
	if err := se.checks.noteDriftCheck(ctx, p, r.Finished, news, cpuOf(r.Steps)); err != nil {
		return err
	}
	if next := p.entry.checks.Next; !next.IsZero() {
		se.metrics.pauses.Observe(next.Sub(r.Finished).Seconds())
	}
	return nil
}

// secretPrints recognise the secret values that the stack was given. If they are not
// known, the next run has them remembered again.
func (p *pass) secretPrints(ctx context.Context, from *records.Store) (plan.Prints, error) {
	hidden, err := from.SecretPrints(ctx, p.id)
	if p.masked = hidden.All; p.masked {
		p.entry.secrets = ""
	}
	return hidden, err
}

// settleSecrets completes the record of secret values after a run that left the whole
// state as its inputs want it: what earlier runs were given is no longer in there.
func (se *settler) settleSecrets(ctx context.Context, p *pass, r *runner.Report, n note) error {
	switch r.Kind {
	case stack.ApplyRun, stack.DestroyRun:
	case stack.PlanRun, stack.CheckRun:
		if !r.Changes.None() {
			return nil
		}
	default:
		return nil
	}
	if r.Outcome != stack.Succeeded || !n.Cause.Whole {
		return nil
	}
	p.o.Status.Published = stack.PublishAgain(p.o.Status.Published)
	if p.entry.secrets != "" {
		return nil // the record is complete
	}
	return se.records.SettleSecrets(ctx, p.id)
}

// hideCheckBlocks removes from the messages of check blocks the values that Secrets
// held earlier: the run knew only those of now.
func (se *settler) hideCheckBlocks(ctx context.Context, p *pass, run *stack.Run) error {
	if run.Blocks == nil || len(run.Blocks.Failed) == 0 {
		return nil
	}
	hidden, err := p.secretPrints(ctx, se.records)
	if err != nil {
		return err
	}
	blocks := *run.Blocks
	blocks.Failed = slices.Clone(blocks.Failed)
	for i := range blocks.Failed {
		b := &blocks.Failed[i]
		b.Message = string(hidden.Lines([]byte(b.Message)))
	}
	run.Blocks = &blocks
	return nil
}

// takePostDeploy takes over what the postDeploy script of a run has printed as its outputs.
// They are checked again, since a pod may send anything. Values that Secrets held earlier
// are removed: the run knew only those of now.
func takePostDeploy(ctx context.Context, se *settler, p *pass, r *runner.Report) error {
	if r.Kind != stack.ScriptRun || r.Outcome != stack.Succeeded {
		return nil
	}
	p.postDeploy = &dialect.PostDeploy{}
	outputs, err := r.PostDeployOutputs()
	if outputs == nil && err == nil {
		return nil
	}
	if err != nil {
		se.log.Warn("outputs of postDeploy not stored", "stack", r.Name, "run", r.ID, "err", err)
		return nil
	}
	hidden, err := p.secretPrints(ctx, se.records)
	if err != nil {
		return err
	}
	return json.Unmarshal(hidden.RedactJSON(outputs), &p.postDeploy.Outputs)
}

// dropSnapshots removes the records of what earlier runs were made from.
func (se *settler) dropSnapshots(ctx context.Context, p *pass, r *runner.Report, n note) error {
	if r.Outcome != stack.Succeeded {
		return nil
	}
	stay := append(p.o.Status.Recovery.Snapshots(), p.o.Status.Snapshot, n.Cause.Snapshot)
	stayed, err := se.records.KeepOnly(ctx, record.Snapshots(p.id), stay...)
	if err == nil && !slices.Contains(stayed, p.entry.applied.key) {
		p.entry.applied = recordSeen{} // it is read again
	}
	return err
}

// keepRecords keeps the report and the logs, of quiet drift checks only the newest.
func (se *settler) keepRecords(ctx context.Context, p *pass, r *runner.Report) error {
	name := r.ID
	if quiet(p, r) {
		name = record.QuietRun
	}
	report, err := json.Marshal(r)
	if err != nil {
		return err
	}
	files := []string{runner.FileLog}
	if name != record.QuietRun {
		files = append(files, runner.FileEvents)
	}
	for _, file := range files {
		if _, err := se.records.Keep(ctx, p.id, r.ID, file, record.Run(p.id, name, file)); err != nil {
			return fmt.Errorf("keeping %s of %s: %w", file, r.ID, err)
		}
	}
	if err := se.records.Put(ctx, record.Run(p.id, name, record.ReportFile), report); err != nil {
		return err
	}
	if name == record.QuietRun {
		return nil
	}
	if r.Kind == stack.HealthRun {
		// Asked again and again while something is not well, they would push out
		// what was done to it.
		if err := se.records.DropOthers(ctx, record.Runs(p.id)+string(r.Kind)+"-", record.Run(p.id, name, "")); err != nil {
			return err
		}
	}
	return se.records.DropOldRuns(ctx, p.id, runsKept)
}

// keepOutputs keeps the outputs of the newest state and says their names.
func (se *settler) keepOutputs(ctx context.Context, p *pass, r *runner.Report, run *stack.Run) error {
	b, err := se.records.Left(p.id, r.ID, runner.FileOutputs)
	if err != nil || b == nil {
		return err
	}
	var outputs map[string]kube.Output
	if err := json.Unmarshal(b, &outputs); err != nil {
		return fmt.Errorf("reading the outputs of %s: %w", r.ID, err)
	}
	run.Outputs = slices.AppendSeq([]string{}, maps.Keys(outputs))
	slices.Sort(run.Outputs)
	if run.State == "" {
		run.State = stack.Digest(outputs) // a foreign state is known by what it outputs
	}
	return se.records.Put(ctx, record.Outputs(p.id), b)
}

// keepUses keeps the modules and providers that the stack uses, if the run found out. A run
// that left nothing began in a prepared directory, and the last list stands.
func keepUses(ctx context.Context, se *settler, p *pass, r *runner.Report, n note) error {
	left, err := se.records.Left(p.id, r.ID, runner.FileUses)
	if err != nil || left == nil {
		return err
	}
	found, err := usage.Parse(left)
	if err != nil {
		se.log.Warn("used modules and providers not kept", "stack", r.Name, "run", r.ID, "err", err)
		return nil
	}
	digest := found.Digest()
	kept, err := se.records.Get(ctx, record.Uses(p.id).Key)
	if reason := fault.Reason(err, ""); fault.Of(err) == fault.Missing || reason == blob.Damaged || reason == blob.KeyUnknown {
		kept, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("reading the used modules and providers: %w", err)
	}
	before, err := record.Uses(p.id).Decode(kept)
	if err != nil {
		before = usage.Record{} // this one takes its place
	}
	p.o.Status.Uses = digest
	if !before.At.IsZero() && before.Usage.Digest() == digest {
		return nil
	}
	now := usage.Record{At: r.Finished, Run: r.ID, Revision: n.Cause.PlanInputs.Revision, Usage: found.Since(before.Usage, r.Finished)}
	if err := record.Uses(p.id).Write(ctx, se.blobs, now); err != nil {
		return fmt.Errorf("keeping the used modules and providers: %w", err)
	}
	return nil
}

// keepPlan keeps a plan with changes and gives it its name.
func (se *settler) keepPlan(ctx context.Context, p *pass, r *runner.Report, n note, run *stack.Run) error {
	if r.Outcome != stack.Succeeded || r.Kind.Writes() || r.Changes.None() || p.tolerated.All {
		return nil
	}
	made := stack.Plan{
		Run: r.ID, PlanInputs: n.Cause.PlanInputs, Changes: r.Changes, Destroy: n.Cause.Destroy, Drift: drifted(p.o.Status, r.Kind, n.Cause),
		Lineage: r.State.Lineage, Serial: r.State.Serial, At: r.Finished, Addresses: r.Addresses, Example: r.Example,
		Tolerated: p.tolerated.Tolerated,
	}
	if after := n.Cause.Steps; after != nil {
		made.Steps = after.Digest
	}
	made.Digest = plan.Digest(plan.Parts{
		PlanInputs: made.PlanInputs, LockHash: r.LockHash, Backend: n.Backend, Lineage: made.Lineage, Serial: made.Serial,
		ChangesHash: r.ChangesHash, Destroy: made.Destroy, After: p.o.Status.LastWrite,
	})
	base := plan.Name(made.PlanInputs.Revision)
	made.Name = p.o.Status.NameFor(base, plan.NameWith(base, made.Digest), made.Digest, p.o.Spec.ApprovedNames()...)
	if r.Kind == stack.PreviewRun {
		made.Name = "" // a preview cannot be approved
	}
	files := map[string]string{
		runner.FilePlan: "plan.bin", runner.FilePlanDoc: string(review.Masked), runner.FilePlanTxt: "plan.txt", runner.FileLockHCL: "lock.hcl",
		runner.FileUses: "uses.json",
	}
	if se.reviewers.Sees(p.st.Configuration, review.Unmasked) {
		files[runner.FilePlanRaw] = string(review.Unmasked)
	}
	for file, key := range files {
		if err := se.keepPlanFile(ctx, p, r, file, record.Plan(p.id, made.Digest, key)); err != nil {
			return fmt.Errorf("keeping plan %s: %w", made.Name, err)
		}
	}
	if err := se.dropOldPlans(ctx, p, made.Digest); err != nil {
		return err
	}
	run.Plan = &made
	if r.Kind == stack.PreviewRun {
		return nil
	}
	if err := se.readable(ctx, p, r, made); err != nil {
		return fmt.Errorf("publishing plan %s: %w", made.Name, err)
	}
	return nil
}

// keepPlanFile keeps one file of a plan. What it shows has none of the values that
// Secrets held earlier: the run knew only those of now, and a plan also says what
// was before.
func (se *settler) keepPlanFile(ctx context.Context, p *pass, r *runner.Report, file, key string) error {
	if file != runner.FilePlanDoc && file != runner.FilePlanTxt {
		_, err := se.records.Keep(ctx, p.id, r.ID, file, key)
		return err
	}
	text, err := se.shown(ctx, p, r, file)
	if err != nil || text == nil {
		return err
	}
	return se.records.Put(ctx, key, text)
}

// shown is a file of a plan that users read, nil if the run left none.
func (se *settler) shown(ctx context.Context, p *pass, r *runner.Report, file string) ([]byte, error) {
	text, err := se.records.Left(p.id, r.ID, file)
	if err != nil || text == nil {
		return nil, err
	}
	hidden, err := p.secretPrints(ctx, se.records)
	if err != nil {
		return nil, err
	}
	if file == runner.FilePlanDoc {
		return hidden.RedactJSON(text), nil
	}
	return hidden.Lines(text), nil
}

// drifted reports whether the changes of a plan are drift: nothing
// that was asked for changed since the last apply.
func drifted(m stack.Status, kind stack.RunKind, cause stack.Cause) bool {
	if kind == stack.CheckRun {
		return true
	}
	return m.Applied != nil && !cause.Destroy && !m.Destroyed && len(m.Applied.PlanInputs.Differs(cause.PlanInputs)) == 0
}

// keepApplied notes the plan that a run applied.
func keepApplied(ctx context.Context, se *settler, p *pass, r *runner.Report, n note) error {
	made := n.Cause.Plan
	if made == nil || !r.Kind.Writes() || r.Outcome != stack.Succeeded {
		return nil
	}
	return se.records.KeepApplied(ctx, p.id, *made, r.ID, r.Finished)
}

// dropOldPlans removes plans that can no longer be applied. Of those that were applied last,
// what users read stays.
func (se *settler) dropOldPlans(ctx context.Context, p *pass, keep string) error {
	applied, err := se.records.AppliedPlans(ctx, p.id)
	if err != nil {
		return err
	}
	stay := append(record.AppliedFiles(p.id, applied), record.Plan(p.id, keep, ""))
	for _, q := range []*stack.Plan{p.o.Status.Pending, p.o.Status.Applied, p.o.Status.Preview} {
		if q != nil && q.Digest != "" {
			stay = append(stay, record.Plan(p.id, q.Digest, ""))
		}
	}
	return se.records.DropOthers(ctx, record.Plans(p.id), stay...)
}

// readable publishes the plan in the cluster if the stack asks for it.
func (se *settler) readable(ctx context.Context, p *pass, r *runner.Report, made stack.Plan) error {
	out := kube.ReadablePlan{Workspace: states.Workspace(p.st.Configuration), Name: made.Name}
	var err error
	switch p.st.Configuration.Readable {
	case stack.ReadableJSON:
		out.JSON, err = se.records.Left(p.id, r.ID, runner.FilePlanRaw)
	case stack.ReadableHuman:
		out.Text, err = se.shown(ctx, p, r, runner.FilePlanTxt)
	}
	if err != nil {
		return err
	}
	if m := p.st.Status; out.JSON == nil && out.Text == nil && m.LastRun == "" && m.Pending == nil && m.Applied == nil {
		return nil // the first plan of a stack replaces none, and looking costs two lists of the namespace
	}
	return kube.WriteReadablePlan(ctx, se.live, p.obj, out)
}
