package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/terrier-iac/terrier/internal/controller/approvals"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/image"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// launcher starts runs.
type launcher struct {
	queue   Queue
	runner  runner.Runner
	store   states.Store
	auditor *auditor
	status  *committer
	loader  *loader
	locks   *states.Locker
	states  *states.Keeper
	records *records.Store
	turns   *turns
	jobs    *jobs
	gates   *gates

	registry func(RegistryReader) (*runner.Registry, error) // see Stacks
}

// launch starts a run: admission, lock, state, supervisor.
func (la *launcher) launch(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause, unlock string) error {
	cause.Unlock, cause.Replan, cause.Pod, cause.Place = unlock, p.decision.Answers, p.o.Pod, p.note.place()
	if cause.Steps == nil && p.o.Steps != nil {
		cause.Steps = &stack.StepsCause{Digest: p.o.Steps.Approvable()}
	}
	if left := p.entry.room.left(p.o.Now, roomFor{p.obj.GetGeneration(), cause.Replan}); left > 0 {
		la.queue.Leave(p.id)
		p.o.Queued = p.entry.room.why
		p.recheckIn(left)
		return nil
	}
	waits, err := la.jobs.imaging.findImage(ctx, p, kind, cause, la.jobs.reader(p))
	if err != nil {
		la.queue.Leave(p.id)
		return err
	}
	if waits != "" {
		la.queue.Leave(p.id)
		p.o.Queued = waits
		p.recheckIn(imageRecheck)
		return nil
	}
	candidate := la.turns.candidate(ctx, p, kind, cause)
	if p.o.Queued = la.queue.Admit(p.id, candidate); p.o.Queued == "" {
		p.o.Queued = la.gates.confirm(p)
	}
	if p.o.Queued != "" {
		return nil
	}
	p.note.Waited, p.note.Class, p.note.Tenant = la.queue.Waited(p.id), candidate.Class.String(), candidate.Tenant
	p.note.Stamped, p.note.Changes = p.st.Spec.Stamped, approvals.NewestChange(p.st.Spec)
	if kind.Writes() || kind == stack.StepsRun || unlock != "" {
		if err := errors.Join(la.loader.confirm(ctx, p), p.policies.Confirm(ctx, p.obj)); err != nil {
			return err
		}
	}
	cause.Whole = len(p.job.Options.Targets) == 0
	job, err := la.ready(ctx, p, kind, cause, unlock)
	if err == nil {
		p.o.Run = &stack.Run{ID: job.ID, Kind: kind, Cause: cause, Since: p.o.Now}
		err = la.announce(ctx, p, kind)
	}
	if err == nil {
		err = la.auditor.auditStart(ctx, p, kind, cause)
	}
	if err == nil {
		err = la.start(ctx, p, *job)
	}
	if err == nil {
		return nil
	}
	p.o.Run = nil
	reason := fault.Reason(err, "")
	later := fault.Of(err) == fault.Later && (reason == runner.NoRoom || reason == runner.StackBusy)
	why := la.notStarted(ctx, p, kind, cause)
	if later && why == nil {
		la.wait(p, err)
		return nil
	}
	return la.locked(p, kind, cause, errors.Join(err, why))
}

// start starts a run. Only this copy of the job has what is made for this run alone: the token
// by which it reads from the registry, the keys of its state, its session at a Vault, and secrets
// of one. No record has them.
func (la *launcher) start(ctx context.Context, p *pass, job runner.Job) error {
	job.Registry = nil
	if la.registry != nil {
		var err error
		if job.Registry, err = la.registry(RegistryReader{
			Run: job.ID, Key: job.Key(), Namespace: p.obj.GetNamespace(), Until: p.o.Now.Add(job.Limits.Longest() + startMost),
		}); err != nil {
			return fmt.Errorf("making the token of the run for the registry: %w", err)
		}
	}
	by, err := la.jobs.identifier.identify(ctx, p, &job)
	if err != nil {
		return err
	}
	if job.Kind != stack.StepsRun {
		if job.Encryption, err = la.jobs.sealing.of(ctx, p); err != nil {
			return err
		}
	}
	makes := vaults.Makes(la.jobs.key, &job)
	if _, signsIn := by.Request.Login(by.Run.Phase); !makes && !signsIn {
		return la.runner.Start(ctx, job)
	}
	// What is made, and each session, is ended if the run does not begin, so there is none for a
	// run that waits.
	if err := la.runner.Room(ctx, job); err != nil {
		return err
	}
	if err := la.jobs.identifier.login(ctx, p, &job, by); err != nil {
		return err
	}
	if makes {
		if err := la.fill(ctx, p, &job); err != nil {
			return err
		}
	}
	err = la.runner.Start(ctx, job)
	if fault.Reason(err, "") == runner.NoRoom { // each attempt makes others, so they become rare
		p.entry.room = p.entry.room.longer(p.o.Now, roomFor{p.obj.GetGeneration(), p.note.Cause.Replan}, err.Error())
	}
	return err
}

// fill makes the secrets that a run is given when it begins.
func (la *launcher) fill(ctx context.Context, p *pass, job *runner.Job) error {
	masked := len(job.Mask)
	p.entry.vault = vaults.Known{}
	if err := la.jobs.vaults.Fill(ctx, readerOf(la.jobs, p), la.jobs.key, job); err != nil {
		return err
	}
	return la.rememberMade(ctx, p, job.Mask[:masked], job.Mask[masked:])
}

// startMost is how long a run may take to begin.
const startMost = 15 * time.Minute

// How long a run that the runner has no room for waits before it is tried again: a
// random time between the two, so that those who wait do not come together.
const (
	soonestRoom = 5 * time.Second
	latestRoom  = 15 * time.Second
)

// wait makes a run wait that the runner has no room for, as with a quota that is used up or
// while the place of an earlier run is removed. It is no failure, and other runs get its turn.
func (la *launcher) wait(p *pass, why error) {
	la.queue.Leave(p.id)
	p.o.Queued = why.Error()
	p.recheckIn(soonestRoom + rand.N(latestRoom-soonestRoom))
}

// roomWait is the wait of a stack whose run never began after it was started, as in a pod
// that no node has room for, or that got no image. A process that forgets it tries at once.
type roomWait struct {
	why   string
	until time.Time
	pause time.Duration // the last one; each is twice as long
	of    roomFor
}

// roomFor is what has a run tried again at once when it is another: a change of the spec
// may make room or name another image, and a user who asks for a plan does not wait for it.
type roomFor struct {
	generation int64
	replan     string
}

// How long such a run waits before it is tried again, and up to half as much in addition,
// so that those who wait do not come together. A node that is added for it is kept for
// longer.
const (
	leastRoomPause = 15 * time.Second
	mostRoomPause  = 4 * time.Minute
)

// longer is the next wait after w.
func (w roomWait) longer(now time.Time, of roomFor, why string) roomWait {
	pause := leastRoomPause
	if w.of == of {
		pause = min(max(2*w.pause, leastRoomPause), mostRoomPause)
	}
	until := now.Add(pause + rand.N(pause/2))
	return roomWait{why: strings.TrimSuffix(why, ".") + ". Other runs have its turn until it is tried again", until: until, pause: pause, of: of}
}

// left is what is left of the wait.
func (w roomWait) left(now time.Time, of roomFor) time.Duration {
	if w.of != of {
		return 0
	}
	return min(w.until.Sub(now), 2*mostRoomPause) // a clock that was set back must not make it long
}

// announce writes the run into the status before it starts, if a user may take back
// what it starts by: an approval, or a deletion that is to destroy. The write is of
// exactly the version of the object that the decision was made with. So a user either
// changes the object first, and the run does not start; or sees that the run goes on,
// and is told that it is too late.
func (la *launcher) announce(ctx context.Context, p *pass, kind stack.RunKind) error {
	if kind != stack.ApplyRun && kind != stack.ScriptRun && kind != stack.DestroyRun || !p.o.Deleting && !p.o.Spec.AwaitsApproval(p.o.Status) && p.o.Spec.Repair == nil {
		return nil
	}
	err := la.status.writeStatus(ctx, p)
	if apierrors.IsConflict(err) {
		return fault.New(fault.Conflict, "ObjectChanged", fmt.Errorf("the object changed before the run began: %w", err))
	}
	return err
}

// notStarted frees the lock that was taken for a run which then could not be
// started. Nothing else would free it: the next run may have another name, and a
// deleted stack has no run.
func (la *launcher) notStarted(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) error {
	if p.note.State == nil || !kind.Writes() {
		return nil
	}
	report, err := la.runner.Current(p.id)
	id := p.name(kind, cause)
	if err != nil || report != nil && report.ID == id {
		return err
	}
	h, err := la.store.Holder(ctx, *p.note.State)
	if err != nil || h == nil || la.locks.Foreign(p.id, h.Holder) {
		return err
	}
	return la.store.Unlock(ctx, *p.note.State, id)
}

// ready completes the job of a pass and takes the lock of a managed state.
func (la *launcher) ready(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause, unlock string) (*runner.Job, error) {
	job := p.job
	job.ID, job.Kind, job.ObjectKind, job.Shares = p.name(kind, cause), kind, dialect.KindOf(p.dialect), ""
	if kind == stack.CheckRun && unlock == "" && la.status.config.Pods {
		job.Shares = p.note.Tenant
	}
	p.note.Cause, p.note.After = cause, new(p.o.Status.LastRun)
	if err := la.expect(ctx, p, kind); err != nil {
		return nil, err
	}
	var state []byte
	var err error
	// A state that is another stack's, or not what it should be, is found out
	// before its lock is taken, for which others may wait. One that was as expected
	// when it was read last, which for an apply was for its plan, is read once: under
	// the lock.
	if !kind.Writes() || p.note.State == nil || !p.entry.stateOwn {
		if state, err = la.startState(ctx, p, kind, cause); err != nil {
			return nil, err
		}
	}
	if ref := p.note.State; ref != nil {
		err := la.locks.Take(ctx, p.subject(), *ref, job, unlock)
		if p.o.Deleting && fault.Of(err) == fault.Denied {
			err = nil // no lease can be created in a namespace that goes away
		}
		if err != nil {
			return nil, err
		}
		if kind.Writes() { // nothing else writes from here on
			if state, err = la.startState(ctx, p, kind, cause); err != nil {
				return nil, err
			}
		}
	} else {
		job.Options.ForceUnlock = unlock
	}
	job.State = runner.ContentOf(state)
	if job.Note, err = json.Marshal(p.note); err != nil {
		return nil, err
	}
	if err := la.rememberSecrets(ctx, p, job.Mask); err != nil || p.image == (image.Made{}) {
		return job, err
	}
	return fromImage(job, p.image, p.st.Configuration.Image.Login)
}

// expect names in the job the state that the run has to find in a backend of the stack's own
// before it may write. Commands of a break-glass session may find anything: a user runs them.
func (la *launcher) expect(ctx context.Context, p *pass, kind stack.RunKind) error {
	p.job.Expected = nil
	if p.note.State != nil || kind == stack.HealthRun || kind == stack.BreakGlassRun || kind == stack.StepsRun {
		return nil
	}
	last, err := la.states.Inspector.Last(ctx, p.subject(), p.note.place())
	if err != nil || !last.Holds() {
		return err
	}
	expected := stack.ExpectedState{Last: last, Place: p.note.place(), In: p.note.In}
	if !p.o.Spec.Accepts(expected.Token()) {
		p.job.Expected = &expected
		return nil
	}
	return la.states.GiveUp(ctx, p.subject(), expected)
}

// rememberSecrets keeps prints of the secret values of a run, unless they are those
// of the run before.
func (la *launcher) rememberSecrets(ctx context.Context, p *pass, values []string) error {
	digest := stack.Digest(slices.Sorted(slices.Values(values)))
	if p.entry.secrets == digest {
		return nil
	}
	done, err := la.records.RememberSecrets(ctx, p.id, values, p.o.Now)
	if err != nil {
		return err
	}
	if !done.Incomplete { // else the next run asks again
		p.entry.secrets = digest
	}
	if done.Damage != nil {
		la.status.teller.lostSecrets(p, done.Damage)
	}
	return nil
}

// rememberMade keeps prints of values that were made for a run, which is given others as well.
func (la *launcher) rememberMade(ctx context.Context, p *pass, others, made []string) error {
	done, err := la.records.RememberMade(ctx, p.id, made, p.o.Now)
	if err != nil || done.Damage == nil {
		return err
	}
	la.status.teller.lostSecrets(p, done.Damage)
	p.entry.secrets = "" // the record that was damaged had the others
	return la.rememberSecrets(ctx, p, others)
}

// startState returns the state that a run starts from, and remembers whether it was
// the stack's own, and as expected.
func (la *launcher) startState(ctx context.Context, p *pass, kind stack.RunKind, cause stack.Cause) ([]byte, error) {
	state, err := la.states.Start(ctx, p.subject(), p.note.State, p.name(kind, cause), kind, cause)
	if p.note.State != nil {
		p.entry.stateOwn = err == nil
	}
	return state, err
}

// locked records the state lock of another holder, as a run that met it would
// have.
func (la *launcher) locked(p *pass, kind stack.RunKind, cause stack.Cause, err error) error {
	held, ok := errors.AsType[*kube.LockedError](err)
	if !ok {
		return err
	}
	h := held.Holder
	p.fold(stack.Run{
		ID: p.name(kind, cause) + "-locked", Kind: kind, Cause: cause, Done: true, Outcome: stack.Locked, Step: "init", Message: held.Error(),
		Lock: &stack.Lock{ID: h.ID, Who: h.Who, Since: h.Created.UTC().Format("2006-01-02T15:04:05Z"), Seen: p.o.Now}, At: p.o.Now, Untouched: true,
	})
	return err
}
