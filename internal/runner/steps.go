package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

const (
	planName     = "plan"     // in work/run
	approvedName = "approved" // in shown: the plan that a script may carry out
	maxPlan      = 512 << 20  // bytes of a saved plan
	maxDocument  = 512 << 20  // of a plan as a document, which is much larger
	changed      = 2          // exit code of a plan that holds changes
)

// planSteps are the steps of a run that plans, applies or destroys.
type planSteps struct {
	*run
	pulled []byte // the state in a backend of the stack's own, as it was read after the change; nil if it was not
}

// checkStale refuses a saved plan whose state is no longer the one it was made
// against. The engine would find out too, but only after it was started.
func (r *planSteps) checkStale(context.Context) error {
	if r.job.Plan.Size == 0 {
		return fault.New(fault.Invalid, "PlanMissing", errors.New("there is no saved plan to apply"))
	}
	if !r.job.Managed || r.job.Lineage == "" {
		return nil
	}
	var now StateID
	if data, file := r.state.store.Newest(); file != nil {
		now = file.ID(data)
	}
	if now.Lineage == r.job.Lineage && now.Serial == r.job.Serial {
		return nil
	}
	return ending{outcome: stack.Stale, step: "apply", message: fmt.Sprintf(
		"the plan was made against serial %d of state %s, which is now serial %d of %s",
		r.job.Serial, r.job.Lineage, now.Serial, orNone(now.Lineage))}
}

// plan makes the saved plan. No changes end a run here.
func (r *planSteps) plan(ctx context.Context) error {
	o := r.job.Options
	args, err := engine.Plan(engine.PlanOptions{
		Out:     r.work.scratch(planName),
		Destroy: o.Destroy || r.job.Kind == stack.DestroyRun || r.job.Kind == stack.PreviewRun,
		Targets: o.Targets, VarFiles: r.directory.varFiles(), Parallelism: o.Parallelism,
		NoLock: o.NoLock || r.job.Managed, LockTimeout: o.LockTimeout,
	})
	if err != nil {
		return err
	}
	if err := r.enter(ctx, Planning, "plan"); err != nil {
		return err
	}
	c := command{step: "plan", args: args, events: true, good: []int{changed}}
	before := len(r.reportFile.content().Diagnostics)
	res, err := r.engine.execute(ctx, c)
	if r.directory.needsInit(res, err) {
		if err := r.directory.initAndRetry(ctx, res, before); err != nil {
			return err
		}
		if err := r.enter(ctx, Planning, "plan"); err != nil {
			return err
		}
		res, err = r.engine.execute(ctx, c)
	}
	if err == nil {
		err = r.directory.markPrepared()
	}
	if err != nil {
		return err
	}
	r.reportFile.set(func(rep *Report) {
		rep.Exit = res.exit.Code
		rep.Changes = res.output.changes["plan"]
		rep.Changes.Outputs = res.output.outputs
	})
	if res.exit.Code == changed {
		return nil
	}
	r.reportFile.set(func(rep *Report) { rep.Changes = stack.Changes{} })
	r.blocks.planned(ctx, res.output.checkBlocks)
	if r.job.Kind != stack.CheckRun {
		if err := r.outputs(ctx); err != nil {
			return err
		}
	}
	return ending{outcome: stack.Succeeded, step: "plan"}
}

// shownPlan is a saved plan, and what the engine says about it.
type shownPlan struct {
	saved, raw []byte
	doc        *plan.Document
}

// document turns the saved plan into a document. What is shown is a copy that no
// program in the sandbox can write: providers live on between the steps, and exactly
// the approved plan must be applied.
func (r *planSteps) document(ctx context.Context) (p shownPlan, err error) {
	if err := r.enter(ctx, Showing, "show"); err != nil {
		return p, err
	}
	if p.saved, err = r.savedPlan(); err != nil {
		return p, err
	}
	p.raw, p.doc, err = r.showCopy(ctx, planName, p.saved)
	return p, err
}

// showCopy has the engine show a copy of a saved plan.
func (r *planSteps) showCopy(ctx context.Context, name string, saved []byte) ([]byte, *plan.Document, error) {
	copied := r.work.path(dirShown, name)
	if err := errors.Join(os.WriteFile(copied, saved, 0o600), sandbox.AllowRead(copied)); err != nil {
		return nil, nil, fmt.Errorf("showing the plan: %w", err)
	}
	raw := &capped{most: maxDocument}
	if _, err := r.engine.execute(ctx, command{step: "show", args: engine.ShowJSON(r.shownPath(name)), out: raw}); err != nil {
		return nil, nil, err
	}
	if raw.over {
		return nil, nil, fmt.Errorf("the plan as a document is larger than %d bytes", raw.most)
	}
	doc, err := plan.ParseDocument(raw.Bytes())
	return raw.Bytes(), doc, err
}

// show turns the saved plan into a document, and both into files.
func (r *planSteps) show(ctx context.Context) error {
	p, err := r.document(ctx)
	if err != nil {
		return err
	}
	r.uses.leave(r.uses.list)
	blocks := p.doc.CheckBlocks(r.hide)
	r.reportFile.set(func(rep *Report) {
		rep.Changes, rep.ChangesHash = p.doc.Changes(), p.doc.Hash()
		rep.Addresses, rep.Example = p.doc.Addresses()
		rep.CheckBlocks = &blocks
	})
	for name, data := range map[string][]byte{
		FilePlan:    p.saved,
		FilePlanRaw: p.raw,
		FilePlanDoc: r.hide.RedactJSON(p.doc.Masked()),
	} {
		// No reader opens them before the last report, which syncs the
		// directory.
		if err := disk.WriteSynced(filepath.Join(r.dir, name), data); err != nil {
			return fmt.Errorf("keeping the plan: %w", err)
		}
	}
	return nil
}

// showForgotten leaves the plan of a destroy as a document if it forgets resources.
// The engine reports nothing else of them, and their ids are not in the state afterwards.
func (r *planSteps) showForgotten(ctx context.Context) error {
	if r.reportFile.content().Changes.Forget == 0 {
		return nil
	}
	return r.show(ctx)
}

// shownPath is where the sandbox sees the copy.
func (r *planSteps) shownPath(name string) string {
	return r.sandbox.config.PathInside(path.Join(shownInside, name))
}

func (r *planSteps) savedPlan() ([]byte, error) {
	root, err := r.work.open(dirScratch)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	saved, err := disk.ReadHostile(root, planName, maxPlan)
	if err != nil {
		return nil, fmt.Errorf("reading the saved plan: %w", err)
	}
	return saved, nil
}

// text keeps the plan as the engine prints it for people.
func (r *planSteps) text(ctx context.Context) error {
	if !r.job.Options.ReadableText {
		return nil
	}
	out := &capped{most: maxDocument}
	if _, err := r.engine.execute(ctx, command{step: "show", args: engine.ShowText(r.shownPath(planName)), out: out}); err != nil {
		return err
	}
	return disk.Write(filepath.Join(r.dir, FilePlanTxt), r.hide.Redact(out.Bytes()))
}

// placePlan puts the saved plan where apply finds it.
func (r *planSteps) placePlan(context.Context) error {
	root, err := r.work.open(dirScratch)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := disk.WriteFresh(root, planName, r.job.Plan.Bytes(), 0o600); err != nil {
		return err
	}
	return sandbox.ChownWork(r.work.path(dirWork, dirScratch))
}

// apply carries out the saved plan.
func (r *planSteps) apply(ctx context.Context) error {
	o := r.job.Options
	files := r.directory.varFiles()
	if r.job.Engine.Name != "tofu" {
		files = engine.VarFiles{}
	}
	args, err := engine.Apply(engine.ApplyOptions{
		Plan: r.work.scratch(planName), VarFiles: files, Parallelism: o.Parallelism, NoLock: o.NoLock || r.state.locally, LockTimeout: o.LockTimeout,
		Forgets: engine.SuppressesForgetErrors(r.job.Engine.Name, r.job.Engine.Version),
	})
	if err != nil {
		return err
	}
	if err := r.enter(ctx, Applying, "apply"); err != nil {
		return err
	}
	if err := r.recordBefore(); err != nil {
		return err
	}
	res, err := r.engine.execute(ctx, command{step: "apply", args: args, events: true, toFile: true})
	if changes, ok := res.output.changes["apply"]; ok {
		r.reportFile.set(func(rep *Report) { rep.Changes = changes })
	}
	if err == nil {
		r.blocks.applied(context.WithoutCancel(ctx), res.output.checkBlocks)
	}
	return err
}

// outputs keeps the outputs: from the state where we hold it and can read it,
// else from the engine. They hold secrets and so go past the recorder.
func (r *planSteps) outputs(ctx context.Context) error {
	if r.job.Managed {
		if _, file := r.state.store.Newest(); file == nil {
			return nil
		} else if data, err := file.OutputsDocument(); err != nil || data != nil {
			return errors.Join(err, disk.WriteSynced(filepath.Join(r.dir, FileOutputs), data))
		}
	} else if !r.job.Options.Outputs {
		return r.writeInventory(ctx)
	}
	out := &capped{most: managed.MaxBytes}
	if _, err := r.engine.execute(ctx, command{step: "output", args: engine.Outputs(), out: out}); err != nil {
		return err
	}
	if out.over {
		return fmt.Errorf("the outputs are larger than %d bytes", out.most)
	}
	if err := disk.WriteSynced(filepath.Join(r.dir, FileOutputs), out.Bytes()); err != nil {
		return err
	}
	return r.writeInventory(ctx)
}

// writeInventory leaves an inventory of a state that we do not keep. A run is
// not a failure because of it: its work is done.
func (r *planSteps) writeInventory(ctx context.Context) error {
	if !r.job.Options.Inventory {
		return nil
	}
	state, err := r.pulled, error(nil)
	if state == nil {
		state, _, err = r.foreign.pull(ctx)
	}
	var inv plan.Inventory
	if err == nil {
		inv, err = plan.InventoryOf(state, r.job.Mask)
	}
	if err != nil {
		r.recorder.logf("There is no inventory of this run: %v.", err)
		return nil
	}
	return disk.WriteJSON(filepath.Join(r.dir, FileInventory), inv)
}

// capped is a buffer that stops growing. It embeds no bytes.Buffer: io.Copy would use its
// ReadFrom, which takes everything.
type capped struct {
	buf  bytes.Buffer
	most int
	over bool // more was written than it took
}

// Write takes what fits. The writer goes on in any case.
func (c *capped) Write(p []byte) (int, error) {
	fits := min(len(p), c.most-c.buf.Len())
	c.over = c.over || fits < len(p)
	_, _ = c.buf.Write(p[:fits]) // never fails
	return len(p), nil
}

func (c *capped) Bytes() []byte  { return c.buf.Bytes() }
func (c *capped) String() string { return c.buf.String() }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
