package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Reasons of work by hand.
const (
	ReasonGlassDenied = "GlassDenied" // the platform does not allow it
	ReasonGlassWhole  = "GlassWhole"  // nobody works by hand, or in another session by now
	ReasonHandBusy    = "HandBusy"    // another command was asked for and has not ended
	ReasonHandFailed  = "HandFailed"  // a command that was run did not succeed
)

// HandCommand is a command that can be run by hand, and what follows it.
type HandCommand struct {
	Words, Takes string
}

// HandCommands lists what can be run by hand.
func HandCommands() []HandCommand {
	var out []HandCommand
	for _, c := range engine.BreakGlassCommands() {
		out = append(out, HandCommand{c.Words, c.Takes})
	}
	return out
}

// Sessions are the break-glass sessions of stacks.
type Sessions struct{ editor }

// BreakGlass has nothing planned or applied by itself for a stack, so that a
// person can work on it by hand. It returns the session, which may have begun
// before; it ends by itself.
func (s *Sessions) BreakGlass(ctx context.Context, key query.Key) (stack.BreakGlass, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fresh := s.request()
	_, err := s.edit(ctx, key, func(o *v1alpha2.Terraform) error {
		if o.DeletionTimestamp != nil {
			return fault.New(fault.Conflict, "Deleting", fmt.Errorf("the stack %s is being deleted", key))
		}
		if o.Spec.Suspend {
			return fault.New(fault.Invalid, "Suspended", fmt.Errorf("the stack %s is suspended", key))
		}
		if !s.open(o) && !asking(o) {
			annotate(o, infra.BreakTheGlassAt, fresh)
			infra.DropBreakGlassCommand(o.Annotations)
		}
		return nil
	})
	if err != nil {
		return stack.BreakGlass{}, err
	}
	for seen, err := range s.Changes(ctx, query.Filter{Namespace: key.Namespace, Name: key.Name}) {
		if err == nil && seen.Gone {
			err = gone(key)
		}
		if err != nil {
			return stack.BreakGlass{}, err
		}
		if c := meta.FindStatusCondition(seen.Object.Status.Conditions, infra.ConditionGlass); c != nil && c.Reason == "NotAllowed" {
			return stack.BreakGlass{}, errors.Join(fault.New(fault.Denied, ReasonGlassDenied, fmt.Errorf("the glass of %s stays whole: this platform does not let people work by hand", key)), s.EndGlass(ctx, key))
		}
		if s.open(seen.Object) {
			return *query.Decode(seen.Object).Status.BreakGlass, nil
		}
	}
	return stack.BreakGlass{}, Unanswered(ctx, key)
}

// open reports whether the session that o asks for has begun and goes on.
func (s *Sessions) open(o *v1alpha2.Terraform) bool {
	asked := query.Decode(o)
	g := asked.Status.BreakGlass
	return g != nil && g.Session == asked.Spec.BreakGlass && s.Now().Before(g.Until)
}

// asking reports whether a session was asked for that has not begun.
func asking(o *v1alpha2.Terraform) bool {
	asked := query.Decode(o)
	g := asked.Status.BreakGlass
	return asked.Spec.BreakGlass != "" && (g == nil || g.Session != asked.Spec.BreakGlass)
}

// EndGlass ends the session of work by hand, if there is one: the stack goes on
// by itself. A command that is at work ends first.
func (s *Sessions) EndGlass(ctx context.Context, key query.Key) error {
	_, err := s.edit(ctx, key, func(o *v1alpha2.Terraform) error {
		delete(o.Annotations, infra.BreakTheGlassAt)
		infra.DropBreakGlassCommand(o.Annotations)
		o.Spec.BreakTheGlass = false
		return nil
	})
	return err
}

// Runner runs commands in a break-glass session and shows their logs.
type Runner interface {
	Watcher
	OrderByHand(context.Context, query.Key, HandOrder) (stack.Command, error)
	Log(ctx context.Context, key query.Key, run string, follow bool) (io.ReadCloser, error)
}

// RunByHand has one command run for a stack with a break-glass session, and copies
// what it prints to log while it runs, beginning with how its directory was
// prepared. Secrets that the platform knows are masked. Where the module or the
// inputs cannot be read, those that were applied last are used; instead says why.
func RunByHand(ctx context.Context, r Runner, key query.Key, order HandOrder, log io.Writer) (instead string, err error) {
	c, err := r.OrderByHand(ctx, key, order)
	if err != nil {
		return "", err
	}
	h, err := followCommand(ctx, r, key, c.ID, log)
	if err == nil && h.Outcome != stack.Succeeded {
		err = fault.New(fault.Broken, ReasonHandFailed, fmt.Errorf("%s ended: %s: %s", c, h.Outcome, h.Message))
	}
	return h.Instead, err
}

// followCommand copies the log of the command called id until it has ended.
func followCommand(ctx context.Context, r Runner, key query.Key, id string, log io.Writer) (stack.CommandResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shown := ""
	for c, err := range r.Watch(ctx, query.Filter{Namespace: key.Namespace, Name: key.Name}) {
		if err == nil && c.Gone {
			err = gone(key)
		}
		if err != nil {
			return stack.CommandResult{}, err
		}
		if run := c.Run; shown == "" && run != nil && run.Kind == string(stack.BreakGlassRun) {
			shown = run.ID
			if err := copyLog(ctx, r, key, shown, true, log); err != nil {
				return stack.CommandResult{}, err
			}
		}
		h := c.ByHand
		if h == nil || h.ID != id {
			continue
		}
		if shown != h.Run {
			if err := copyLog(ctx, r, key, h.Run, false, log); err != nil && fault.Of(err) != fault.Missing {
				return *h, err // a command that was refused has no log
			}
		}
		return *h, nil
	}
	return stack.CommandResult{}, Unanswered(ctx, key)
}

func copyLog(ctx context.Context, from Runner, key query.Key, run string, follow bool, to io.Writer) error {
	r, err := from.Log(ctx, key, run, follow)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, r)
	return errors.Join(err, r.Close())
}
