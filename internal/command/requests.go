package command

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Watcher yields stacks as they are, and then each one that changes.
type Watcher interface {
	Watch(context.Context, query.Filter) iter.Seq2[query.Change, error]
}

// stalledFor is how long a stack may stay stalled after a request before the wait for
// an answer ends: as long as the controller may take to see the request.
const stalledFor = 3 * time.Second

// Answered waits until the controller has answered a request and the stack is
// idle, or only waits for the retry of what failed, and returns the stack as it is
// then. Told receives what it waits for, each time that changes. A stack that
// cannot answer before a user acts ends the wait.
func Answered(ctx context.Context, w Watcher, key query.Key, request string, told func(string)) (query.Stack, error) {
	waiting, stuck := untilStalled(ctx)
	defer stuck.end()
	last := ""
	for c, err := range w.Watch(waiting, key.Filter()) {
		stuck.moves()
		switch {
		case waiting.Err() != nil:
		case err != nil:
			return query.Stack{}, err
		case c.Gone:
			return query.Stack{}, gone(key)
		case covers(c.Handled, request) && c.Run == nil && (!c.Reconciling || retriesLater(c.Stack)):
			return c.Stack, nil
		case cannotAnswer(c.Stack) || c.Suspended && c.Run == nil:
			stuck.at(stalled(c.Stack, "cannot answer the request"))
		}
		if now := progress(c.Stack); now != last && err == nil {
			last = now
			told(now)
		}
	}
	if err := stuck.stalled(); err != nil {
		return query.Stack{}, err
	}
	return query.Stack{}, unanswered(ctx, key, last)
}

// stallTimer ends a wait when what it waits for stays stalled for stalledFor.
type stallTimer struct {
	ctx   context.Context //nolint:containedctx // it is the context of the one wait
	stop  context.CancelCauseFunc
	timer *time.Timer
}

// untilStalled returns the context of a wait.
func untilStalled(ctx context.Context) (context.Context, *stallTimer) {
	waiting, stop := context.WithCancelCause(ctx)
	return waiting, &stallTimer{ctx: waiting, stop: stop}
}

// at ends the wait with an error, unless something changes soon.
func (s *stallTimer) at(err error) {
	s.timer = time.AfterFunc(stalledFor, func() { s.stop(err) })
}

// moves is called when something has changed.
func (s *stallTimer) moves() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// stalled is the error that ended the wait, nil if something else did.
func (s *stallTimer) stalled() error {
	if cause := context.Cause(s.ctx); fault.Reason(cause, "") == reasonStalled {
		return cause
	}
	return nil
}

func (s *stallTimer) end() {
	s.moves()
	s.stop(nil)
}

// Watching calls told with what a stack does or waits for, each time that changes,
// until ctx ends. It is for the time while another call waits for the stack; that call
// has the errors.
func Watching(ctx context.Context, w Watcher, key query.Key, told func(string)) {
	last := ""
	for c, err := range w.Watch(ctx, key.Filter()) {
		if err != nil || ctx.Err() != nil || c.Gone {
			return
		}
		if now := progress(c.Stack); now != last {
			last = now
			told(now)
		}
	}
}

// NotPlanned is the error of a stack whose answer to a request is that its attempt
// failed or was cancelled, or that a user has to act before it has a plan; nil if that
// is not its answer.
func NotPlanned(s query.Stack) error {
	if !keepsOldPlan(s) && (s.Plan != nil || !s.Stalled && !retriesLater(s)) {
		return nil
	}
	err := fmt.Errorf("the stack %s has no new plan: %s", s.Key(), progress(s))
	switch {
	case s.Phase == string(stack.RunCancelled):
		return fault.New(fault.Invalid, string(stack.RunCancelled), err)
	case s.Stalled:
		return fault.New(fault.Invalid, reasonStalled, err)
	default:
		return fault.New(fault.Invalid, reasonFailed, err)
	}
}

// Why a request has no answer.
const (
	reasonStalled = "Stalled" // a user has to act before there can be one
	reasonFailed  = "Failed"  // the attempt failed
)

// keepsOldPlan reports whether the last attempt of a stack made no plan and wrote
// nothing: a plan that is pending was made before. A plan beside the failure of an apply
// was made after it.
func keepsOldPlan(s query.Stack) bool {
	return s.FailedKind == stack.PlanRun || s.FailedKind == stack.CheckRun || s.Phase == string(stack.RunCancelled)
}

func stalled(s query.Stack, what string) error {
	return fault.New(fault.Invalid, reasonStalled, fmt.Errorf("the stack %s %s: %s", s.Key(), what, progress(s)))
}

// retriesLater reports whether the last attempt of a stack failed, and the next one
// waits for its time.
func retriesLater(s query.Stack) bool {
	switch stack.Reason(s.Phase) {
	case stack.RetryLater, stack.LockedByOther, stack.DestroyFailed:
		return true
	default:
		return false
	}
}

// cannotAnswer reports whether a stack waits for a user, and no request changes that.
func cannotAnswer(s query.Stack) bool {
	if !s.Stalled || s.Run != nil {
		return false
	}
	switch stack.Reason(s.Phase) {
	case stack.RetryLimitReached, stack.NotConverging, stack.ReviewRefused: // a request begins again
		return false
	case stack.ModuleInvalid: // a request begins again if a run failed with it
		return s.Failures == 0
	case stack.StateIncomplete: // a request begins again, but releases no deleted stack
		return s.Deleting
	default:
		return true
	}
}

// progress is what a stack does or waits for now, on one line.
func progress(s query.Stack) string {
	text := s.Phase
	if text == "" {
		return "the controller has not seen the stack yet"
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	if s.WaitingFor != "" && s.WaitingFor != s.Message {
		text += "; waiting for " + s.WaitingFor
	}
	return strings.Join(strings.Fields(text), " ")
}

// RegistryReader says what is known of a registry.
type RegistryReader interface {
	Registry(context.Context, query.Key) (query.Registry, error)
}

// readPause is how long WasRead waits until it asks again.
const readPause = 300 * time.Millisecond

// WasRead waits until the controller has answered a request of ReadNow, and
// returns what is known of the registry then. Told receives what it waits for, each
// time that changes. A registry that a user suspends or deletes meanwhile ends the wait.
func WasRead(ctx context.Context, of RegistryReader, key query.Key, request string, told func(string)) (query.Registry, error) {
	why, last := "", ""
	for ctx.Err() == nil {
		r, err := of.Registry(ctx, key)
		if err != nil && ctx.Err() == nil {
			return query.Registry{}, err
		}
		if err == nil && covers(r.Handled, request) {
			return r, nil
		}
		if err == nil && r.Suspended {
			return query.Registry{}, fault.New(fault.Invalid, query.ReasonRegistryIdle, fmt.Errorf("the registry %s is suspended", key))
		}
		if why = ""; err == nil && r.Ready == "False" {
			why = ": " + r.Message
		}
		if now := "the controller reads the rows of " + key.String() + why; err == nil && now != last {
			last = now
			told(now)
		}
		select {
		case <-ctx.Done():
		case <-time.After(readPause):
		}
	}
	return query.Registry{}, errors.Join(ctx.Err(), fault.New(fault.Later, query.ReasonNotRead, fmt.Errorf("the controller has not read the rows of %s yet%s", key, why)))
}

// covers reports whether the answer to the request handled answers request as
// well: a later one does. Requests that are no times are only themselves.
func covers(handled, request string) bool {
	h, err := time.Parse(time.RFC3339Nano, handled)
	r, err2 := time.Parse(time.RFC3339Nano, request)
	if err != nil || err2 != nil {
		return handled == request
	}
	return !h.Before(r)
}

func gone(key query.Key) error {
	return fault.New(fault.Missing, access.ReasonNotFound, fmt.Errorf("the stack %s was deleted", key))
}

// Unanswered is the failure of a command whose time is over before the controller
// has answered.
func Unanswered(ctx context.Context, key query.Key) error { return unanswered(ctx, key, "") }

func unanswered(ctx context.Context, key query.Key, last string) error {
	text := fmt.Sprintf("the controller has not answered the request about %s yet", key)
	if last != "" {
		text += ". The stack is still in " + last
	}
	err := fault.New(fault.Later, "NotAnswered", errors.New(text))
	if errors.Is(ctx.Err(), context.Canceled) {
		return errors.Join(ctx.Err(), err) // the user ended it
	}
	return err
}
