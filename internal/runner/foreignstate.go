package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/runner/sealer"
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
// A drift check without changes, and a plan without any, read nothing, unless the state is not
// encrypted as the stack asks: then the engine stores it once more.

// foreignState is the part of a run that reads a state in a backend of the stack's own.
type foreignState struct {
	*run
	sealer     *sealer.Sealer      // nil unless the engine asks for the state to be encrypted or decrypted
	encryption string              // the engine's configuration for that
	missing    *stack.MissingState // found before a command of a script; guarded by script.mu
	found      bool                // the expected state is there; likewise
}

// sealInside is where a sandbox shows this program, which the engine starts to ask the sealer.
const sealInside = "/seal/terrier-runner"

// open begins to encrypt and decrypt the state for the engine.
func (r *foreignState) open() error {
	e := r.job.Encryption
	if e == nil || r.job.Managed || r.job.Kind == stack.HealthRun || r.job.Kind == stack.StepsRun {
		return nil
	}
	dir := r.work.path(dirWork, dirScratch)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	r.sandbox.config.ReadOnly = append(r.sandbox.config.ReadOnly, sandbox.Bind{Host: self, Inside: sealInside})
	methods := sealer.Methods(r.sandbox.config.PathInside(sealInside), r.sandbox.config.PathInside(sealer.Path("/work/"+dirScratch)))
	if r.encryption, err = methods.Config(encryption.State{Encrypt: !e.End, Plain: e.Plain, Older: len(e.Keys) > 1}); err != nil {
		return err
	}
	if r.sealer, err = sealer.Listen(dir, e.Keys); err != nil {
		return err
	}
	return sandbox.ChownWork(r.work.path(dirWork))
}

// outdated reports whether the engine found a state in another form than the job asks for, as
// far as the sealer can tell: it is not asked about a plain one.
func (r *foreignState) outdated() bool {
	seen := r.sealer.Seen()
	if r.job.Encryption.End {
		return seen.Newest > 0 || seen.Older > 0
	}
	return seen.Older > 0 || seen.Newest == 0
}

// reform has the engine store a state that it found in another form than the job asks for. A
// run whose identity may not write leaves that to the next one that may.
func (r *foreignState) reform(ctx context.Context) {
	if r.sealer == nil || r.job.Beside != "" || r.job.Kind != stack.PlanRun && r.job.Kind != stack.CheckRun || !r.outdated() {
		return
	}
	state, facts, err := r.pull(ctx)
	if err == nil && facts.Lineage == "" {
		return // there is none
	}
	if err == nil {
		err = r.push(ctx, state)
	}
	if err == nil {
		_, facts, err = r.pull(ctx)
	}
	if err != nil {
		r.recorder.logf("The state is not stored as %s asks: %v. The next run that may write it does so.", encryption.Annotation, err)
		return
	}
	r.note(facts)
	r.recorder.logf("The engine has stored the state as %s asks.", encryption.Annotation)
}

// push has the engine store a state that it pulled. The file is in memory alone.
func (r *foreignState) push(ctx context.Context, state []byte) error {
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("holding the state: %w", err)
	}
	file := os.NewFile(uintptr(fd), "state")
	defer file.Close()
	_, err = file.Write(state)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("holding the state: %w", err)
	}
	_, err = r.engine.execute(ctx, command{step: stepState, args: engine.StatePush(r.job.Options.LockTimeout), in: file})
	return err
}

// legible decrypts a state that the engine could store nowhere, so that a user can.
func (r *foreignState) legible(state []byte) []byte {
	if r.sealer == nil {
		return state
	}
	sealed, err := encryption.Payload(state)
	if err != nil {
		return state // it is not encrypted
	}
	plain, err := r.sealer.Open(sealed)
	if err != nil {
		r.recorder.logf("The state that could not be stored is kept encrypted: %v.", err)
		return state
	}
	return plain
}

// pull reads the state, and returns it with what it says of itself.
func (r *foreignState) pull(ctx context.Context) ([]byte, stack.StateFacts, error) {
	out := &capped{most: managed.MaxBytes}
	before := r.sealer.Seen()
	if _, err := r.engine.execute(ctx, command{step: stepState, args: engine.StatePull(), out: out}); err != nil {
		return nil, stack.StateFacts{}, err
	}
	facts, err := pulled(out)
	facts.Encrypted = r.sealer.Seen() != before // the engine asked to decrypt it
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
	if e, ok := errors.AsType[ending](err); ok && e.outcome == stack.Succeeded {
		r.reform(ctx)
	}
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
