package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// BreakGlass is whether break-glass sessions are allowed, and how long one lasts at most.
type BreakGlass struct {
	Allowed bool
	Lasts   time.Duration // an hour if zero
}

// observeBreakGlass opens and closes the break-glass session that a person asks
// for. Where no session is allowed the request is shown, and nothing else changes.
func (ob *observer) observeBreakGlass(p *pass) {
	if p.o.Spec.BreakGlass != "" && !ob.config.BreakGlass.Allowed {
		p.breakGlassDenied = true
		p.o.Spec.BreakGlass, p.o.Spec.Command = "", nil
	}
	p.o.Status = p.o.Status.WithSession(p.o.Spec, p.o.Now, cmp.Or(ob.config.BreakGlass.Lasts, time.Hour))
}

// command begins the command of a person. Whatever comes in its way is the answer
// to that person, who can ask again.
func (ac *actor) command(ctx context.Context, p *pass, why string) (outcome, error) {
	asked := *p.o.Spec.Command
	cause := stack.Cause{PlanInputs: p.o.PlanInputs, Command: &asked, Why: why}
	_, err := engine.ParseBreakGlass(asked.Args)
	if err == nil {
		cause.Instead, err = ac.findJob(ctx, p)
	}
	if err == nil {
		p.job.Command = asked.Args
		left := p.o.Status.BreakGlass.Until.Sub(p.o.Now)
		if l := &p.job.Limits.Plan; *l == 0 || *l > left {
			*l = left // the session does not outlast itself by a command
		}
		err = ac.launcher.launch(ctx, p, stack.BreakGlassRun, cause, "")
	}
	if err == nil || fault.Of(err) == fault.Conflict {
		return p.started(err)
	}
	if h := p.o.Status.LastCommand; h == nil || h.ID != asked.ID { // a lock in the way is recorded already
		p.fold(stack.Run{
			ID: p.name(stack.BreakGlassRun, cause) + "-refused", Kind: stack.BreakGlassRun, Cause: cause,
			Done: true, Outcome: stack.Failed, Message: err.Error(), At: p.o.Now,
		})
	}
	return news, nil
}

// findJob has a job to run a command in: that of now, or if something that it
// takes is missing, that of the last apply, and says why.
func (ac *actor) findJob(ctx context.Context, p *pass) (instead string, err error) {
	switch b := p.o.Blocked; {
	case b == nil && p.job != nil:
		return "", nil
	case b == nil:
		return "", errors.New("nothing is known of what the stack is made from")
	case p.o.Status.Snapshot == "":
		return "", fault.New(b.Kind, "", fmt.Errorf("nothing was applied yet, and what it would be made from cannot be read: %s", b.Message))
	default:
		return b.Message, ac.snapshots.recall(ctx, p)
	}
}

// moved reports whether a command of a person changed the state, or may have.
func (se *settler) moved(p *pass, r *runner.Report, n note) (bool, error) {
	if r.Kind != stack.BreakGlassRun {
		return false, nil
	}
	if n.State != nil {
		state, err := se.records.Left(p.id, r.ID, runner.FileState)
		return len(state) > 0 || r.Rescued != nil, err
	}
	if n.Cause.Command == nil {
		return false, nil
	}
	command, err := engine.ParseBreakGlass(n.Cause.Command.Args)
	return err == nil && command.Writes && len(r.Steps) > 0, nil // a state that we do not keep may have changed
}
