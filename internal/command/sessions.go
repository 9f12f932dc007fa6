package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The reasons of faults about break-glass sessions.
const (
	ReasonBreakGlassDenied = "BreakGlassDenied"    // the platform does not allow sessions
	ReasonNoSession        = "NoBreakGlassSession" // there is no session, or another one by now
	ReasonCommandBusy      = "CommandBusy"         // another command was requested and has not ended
	ReasonCommandFailed    = "CommandFailed"       // a command ran and did not succeed
)

// AllowedCommand is a command of the engine that a session can run, and its
// arguments.
type AllowedCommand struct {
	Words, Takes string
}

// AllowedCommands lists the commands that a session can run.
func AllowedCommands() []AllowedCommand {
	var out []AllowedCommand
	for _, c := range engine.BreakGlassCommands() {
		out = append(out, AllowedCommand{c.Words, c.Takes})
	}
	return out
}

// ChangesState reports whether a command of a session may change the state. One that
// is not allowed changes nothing.
func ChangesState(args []string) bool {
	c, err := engine.ParseBreakGlass(args)
	return err == nil && c.Writes && !slices.ContainsFunc(args, func(a string) bool { return strings.TrimLeft(a, "-") == "dry-run" })
}

// Sessions are the break-glass sessions of stacks.
type Sessions struct{ editor }

// BreakGlass opens a break-glass session: until it ends, Terrier plans and applies
// nothing for the stack. It returns the session, which may have begun before. A
// session has a maximum duration.
func (s *Sessions) BreakGlass(ctx context.Context, key query.Key) (stack.BreakGlass, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fresh := s.request()
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		if o.Deleting() {
			return fault.New(fault.Conflict, "Deleting", fmt.Errorf("the stack %s is being deleted", key))
		}
		if o.View.Suspended {
			return fault.New(fault.Invalid, "Suspended", fmt.Errorf("the stack %s is suspended", key))
		}
		if !s.open(o) && !asking(o) {
			o.View.Session, o.View.Command = fresh, nil
		}
		return nil
	})
	if err != nil {
		return stack.BreakGlass{}, err
	}
	for seen, err := range s.Changes(ctx, key.Filter()) {
		if err == nil && seen.Gone {
			err = gone(key)
		}
		if err != nil {
			return stack.BreakGlass{}, err
		}
		if seen.View.BreakGlassDenied {
			return stack.BreakGlass{}, errors.Join(fault.New(fault.Denied, ReasonBreakGlassDenied, fmt.Errorf("this platform does not allow break-glass sessions, so that there is none of %s", key)), s.EndBreakGlass(ctx, key))
		}
		if s.open(seen.Object) {
			return *seen.Status.BreakGlass, nil
		}
	}
	return stack.BreakGlass{}, Unanswered(ctx, key)
}

// open reports whether the session that o asks for has begun and not ended.
func (s *Sessions) open(o *query.Object) bool {
	g := o.Status.BreakGlass
	return g != nil && g.Session == o.Spec.BreakGlass && s.Now().Before(g.Until)
}

// asking reports whether a session was requested and has not begun.
func asking(o *query.Object) bool {
	g := o.Status.BreakGlass
	return o.Spec.BreakGlass != "" && (g == nil || g.Session != o.Spec.BreakGlass)
}

// EndBreakGlass ends the session, if there is one: Terrier reconciles the stack
// again. A running command ends first.
func (s *Sessions) EndBreakGlass(ctx context.Context, key query.Key) error {
	_, err := s.edit(ctx, key, func(o *query.Object) error {
		o.View.Session, o.View.Command = "", nil
		return nil
	})
	return err
}

// Runner runs commands in a break-glass session and shows their logs.
type Runner interface {
	Watcher
	OrderCommand(context.Context, query.Key, CommandOrder) (stack.Command, error)
	Log(ctx context.Context, key query.Key, run string, o query.LogOptions) (io.ReadCloser, error)
}

// RunCommand has one command run for a stack with a break-glass session, and copies
// what it prints to log while it runs, beginning with how its directory was
// prepared. Secrets that the platform knows are masked. Where the module or the
// inputs cannot be read, those that were applied last are used; instead says why.
func RunCommand(ctx context.Context, r Runner, key query.Key, order CommandOrder, log io.Writer) (instead string, err error) {
	c, err := r.OrderCommand(ctx, key, order)
	if err != nil {
		return "", err
	}
	h, err := followCommand(ctx, r, key, c.ID, log)
	if err == nil && h.Outcome != stack.Succeeded {
		err = fault.New(fault.Broken, ReasonCommandFailed, fmt.Errorf("%s ended: %s: %s", c, h.Outcome, h.Message))
	}
	return h.Instead, err
}

// followCommand copies the log of the command called id until it has ended.
func followCommand(ctx context.Context, r Runner, key query.Key, id string, log io.Writer) (stack.CommandResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shown := ""
	for c, err := range r.Watch(ctx, key.Filter()) {
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
		h := c.LastCommand
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
	r, err := from.Log(ctx, key, run, query.LogOptions{Follow: follow})
	if err != nil {
		return err
	}
	_, err = io.Copy(to, r)
	return errors.Join(err, r.Close())
}
