package pages

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// tabBreakGlass is the last part of the address of the break-glass page, which is not a tab.
const tabBreakGlass = "break-glass"

// StackBreakGlass is the page of a break-glass session: Terrier plans and applies
// nothing meanwhile, and the user runs commands of the engine one by one.
// There is no shell, in a browser or elsewhere.
func StackBreakGlass(v *Visit) (Page, error) {
	head, err := headOf(v, tabOverview)
	if err != nil {
		return Page{}, err
	}
	s := head.Stack
	view := breakGlassView{
		Head: head, To: stackPath(v.Key(), tabBreakGlass), Commands: command.AllowedCommands(), Lasts: v.Backend.Platform.Glass,
		May: mayChange(v, v.Key()), Order: rand.Text(),
		Shell: fmt.Sprintf("terrier break-glass -n %s %s -- state list", v.Key().Namespace, v.Key().Argument()),
		Own: []string{
			fmt.Sprintf("terrier state lock -n %s %s --reason \"manual change\"", v.Key().Namespace, v.Key().Argument()),
			fmt.Sprintf("terrier state pull -n %s %s -o %s.tfstate", v.Key().Namespace, v.Key().Argument(), v.Key().Name),
			fmt.Sprintf("terrier state push -n %s %s %s.tfstate", v.Key().Namespace, v.Key().Argument(), v.Key().Name),
		},
	}
	view.Why = whyNoSession(v, s, view.May)
	if sessionOpen(s, v.Now) {
		view.Session, view.Commanded = s.BreakGlass, s.PendingCommand
	}
	if r := s.Run; r != nil && r.Kind == string(stack.BreakGlassRun) {
		view.Log = runPath(s.Key(), r.ID) + "/log"
	}
	if h := s.LastCommand; h != nil {
		view.Last = &lastCommand{*h, outcomePill(h.Outcome), runPath(s.Key(), h.Run) + "/log"}
	}
	return stackPage(v, "stack_break_glass", "Break-glass session", view), nil
}

type breakGlassView struct {
	Head      stackHead
	Session   *stack.BreakGlass // that is open
	Commanded *stack.Command
	Log       string // of the running command
	Last      *lastCommand
	Commands  []command.AllowedCommand
	Order     string // the id of the command that the form requests
	To        string
	Lasts     time.Duration
	May       string // why the visitor may not use the session
	Why       string // why no session can be started
	Shell     string
	Own       []string
}

type lastCommand struct {
	stack.CommandResult
	Pill ui.Pill
	Log  string
}

// sessionOpen reports whether a break-glass session is open.
func sessionOpen(s query.Stack, now time.Time) bool {
	return s.BreakGlass != nil && now.Before(s.BreakGlass.Until)
}

// breakGlassButton leads to the break-glass page.
func breakGlassButton(v *Visit, s query.Stack, may string) ui.Button {
	b := ui.Button{Label: "Break-glass session", Href: stackPath(s.Key(), tabBreakGlass)}
	if !sessionOpen(s, v.Now) {
		b.Why = whyNoSession(v, s, may)
	}
	return b
}

// whyNoSession says why no break-glass session can be started; empty if one can.
func whyNoSession(v *Visit, s query.Stack, may string) string {
	switch {
	case may != "":
		return may
	case v.Backend.Platform.Glass == 0:
		return "This server does not allow break-glass sessions. Ask the operator to start it with --allow-break-the-glass."
	case s.Suspended:
		return "The stack is suspended. Resume it first."
	case s.Deleting:
		return "The object is being deleted."
	default:
		return ""
	}
}

var _ = says(map[Said]string{
	"session-requested": "A break-glass session was requested. It starts as soon as the active run has ended.",
	"session-open":      "The break-glass session is open. Terrier plans and applies nothing until it ends.",
	"session-ended":     "The break-glass session ended. Terrier reconciles the stack again.",
	"commanded":         "The command was requested. This page links to its log as soon as it runs.",
})

// BreakGlass starts a break-glass session, or continues the open one.
func BreakGlass(v *Visit) (Done, error) {
	ctx, cancel := context.WithTimeout(v.Context, browserWaits)
	defer cancel()
	to := stackPath(v.Key(), tabBreakGlass)
	_, err := v.Person.Stacks.BreakGlass(ctx, v.Key())
	if err != nil && ctx.Err() != nil && v.Context.Err() == nil {
		return Done{To: to, Said: "session-requested"}, nil
	}
	return Done{To: to, Said: "session-open"}, err
}

// EndBreakGlass ends the session.
func EndBreakGlass(v *Visit) (Done, error) {
	return Done{To: stackPath(v.Key()), Said: "session-ended"}, v.Person.Stacks.EndBreakGlass(v.Context, v.Key())
}

// RunCommand requests one command: its words are selected, and each argument is
// on a line of its own, so that nothing needs quotes.
func RunCommand(v *Visit) (Done, error) {
	words := strings.Fields(v.Form.Get("command"))
	if len(words) == 0 {
		return Done{}, fault.New(fault.Invalid, "CommandInvalid", errors.New("no command was selected"))
	}
	for line := range strings.Lines(v.Form.Get("args")) {
		if line = strings.TrimSpace(line); line != "" {
			words = append(words, line)
		}
	}
	order := command.CommandOrder{ID: v.Form.Get("order"), Session: v.Form.Get("session"), Args: words}
	_, err := v.Person.Stacks.OrderCommand(v.Context, v.Key(), order)
	return Done{To: stackPath(v.Key(), tabBreakGlass), Said: "commanded"}, err
}
