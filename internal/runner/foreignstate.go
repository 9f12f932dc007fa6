package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// A state in a backend of the stack's own is the engine's. Of such a state the supervisor
// reads how it is called and how many resources it has, and keeps nothing else:
//
//	before a run writes   it has to be the state that the job expects, or one made of it
//	after a run wrote     the report says what is there now, which the next job expects
//
// A drift check without changes, and a plan without any, read nothing.

// foreignState is the part of a run that reads a state in a backend of the stack's own.
type foreignState struct {
	*run
	missing *stack.MissingState // found before a command of a script; guarded by script.mu
	found   bool                // the expected state is there; likewise
}

// pull reads the state, and returns it with what it says of itself.
func (r *foreignState) pull(ctx context.Context) ([]byte, stack.StateFacts, error) {
	out := &capped{most: managed.MaxBytes}
	if _, err := r.engine.execute(ctx, command{step: stepState, args: engine.StatePull(), out: out}); err != nil {
		return nil, stack.StateFacts{}, err
	}
	facts, err := pulled(out)
	return out.Bytes(), facts, err
}

// stepState is the step that reads a state.
const stepState = "state"

func pulled(out *capped) (stack.StateFacts, error) {
	if out.over {
		return stack.StateFacts{}, fmt.Errorf("the state is larger than %d bytes", out.most)
	}
	facts, err := stack.ReadPulled(out.Bytes())
	if err != nil {
		err = fmt.Errorf("reading the state that the engine pulled: %w", err)
	}
	return facts, err
}

// check ends a run that would begin from another state than the expected one.
func (r *foreignState) check(ctx context.Context) error {
	if r.job.Managed || r.job.Expected == nil {
		return nil
	}
	_, facts, err := r.pull(ctx)
	if err != nil {
		return err
	}
	if m := r.compare(facts); m != nil {
		return absent(m)
	}
	return nil
}

// compare compares a state with the expected one, and notes in the report what was found.
func (r *foreignState) compare(facts stack.StateFacts) *stack.MissingState {
	m := r.job.Expected.Check(facts)
	r.reportFile.set(func(rep *Report) { rep.Missing = m })
	if m == nil {
		r.note(facts)
	}
	return m
}

// absent ends a run because the expected state is not there.
func absent(m *stack.MissingState) ending {
	return ending{outcome: stack.Failed, step: stepState, fault: fault.Denied, reason: string(stack.StateMissing), message: m.String()}
}

// note puts into the report what is known of the state.
func (r *foreignState) note(facts stack.StateFacts) {
	r.reportFile.set(func(rep *Report) { rep.Foreign = &facts })
}

// planChecked makes a plan, and ends the run if it began from another state than the expected
// one. A plan without changes creates nothing, and is compared only where the state has moved.
// A destroy without changes has found nothing, which must be so.
func (r *foreignState) planChecked(ctx context.Context) error {
	err := r.plans.plan(ctx)
	if e, ok := errors.AsType[ending](err); err != nil && !(ok && e.outcome == stack.Succeeded && (r.destroys() || r.moved())) {
		return err
	}
	if missing := r.check(ctx); missing != nil {
		return missing
	}
	return err
}

// moved reports whether the last known state was in another place. Once the report says what is
// in this one, it is no longer so.
func (r *foreignState) moved() bool {
	e := r.job.Expected
	return !r.job.Managed && e != nil && e.Last.Place != e.Place
}

// destroys reports whether the plan of the run is one that destroys everything.
func (r *foreignState) destroys() bool {
	return r.job.Options.Destroy || r.job.Kind == stack.DestroyRun || r.job.Kind == stack.PreviewRun
}

// remembering makes one step of a change and of reading the state after it, also if the change
// failed: what it did by then is in the state.
func (r *foreignState) remembering(change func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := change(ctx)
		if r.job.Managed || r.reportFile.content().Missing != nil {
			return err
		}
		if e, ok := errors.AsType[ending](err); ok && e.outcome == stack.Killed {
			return err // its lock may be held, and its last words are what counts
		}
		r.remember(context.WithoutCancel(ctx))
		return err
	}
}

// remember reads the state, for the report and for the inventory. The work of the run is done:
// a state that cannot be read is no failure of it.
func (r *foreignState) remember(ctx context.Context) {
	state, facts, err := r.pull(ctx)
	if err != nil {
		r.recorder.logf("The state could not be read after the run, so Terrier does not know how many resources it has: %v.", err)
		return
	}
	r.note(facts)
	r.plans.pulled = state
}

// named reports whether the object of the stack says where its state is. Otherwise the module
// does, or a script.
func (r *foreignState) named() bool {
	return slices.ContainsFunc(r.job.Files, func(f workdir.File) bool { return f.Path == workdir.BackendOverridePath })
}

// beforeScript ends a run before its script begins, where the directory is initialised with
// the backend of the object. A script may choose another one for a module that chooses by
// itself: then the first command that changes resources is compared.
func (r *foreignState) beforeScript(ctx context.Context) error {
	if !r.named() {
		return nil
	}
	if err := r.check(ctx); err != nil {
		return err
	}
	r.found = true
	return nil
}

// refuses says why a command of a script must not run: the expected state is not there; empty
// if it is, or if none is expected.
func (r *foreignState) refuses(ctx context.Context, calls *scriptCalls, c *script.Call) string {
	if r.job.Managed || r.job.Expected == nil {
		return ""
	}
	r.script.mu.Lock()
	found := r.found
	r.script.mu.Unlock()
	if found {
		return ""
	}
	raw, err := calls.output(ctx, "state pull", managed.MaxBytes, sandbox.Command{
		Path: r.sandbox.config.PathInside(r.sandbox.engineInside()), Args: engine.StatePull(), Env: calls.environFor(c.Env), Dir: c.Dir,
	})
	facts, err2 := stack.ReadPulled(raw)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Sprintf("The supervisor cannot compare the state with the last known one, so it does not start the command: %v.", err)
	}
	m := r.compare(facts)
	r.script.mu.Lock()
	r.missing, r.found = m, m == nil
	r.script.mu.Unlock()
	if m == nil {
		return ""
	}
	return m.String() + "."
}
