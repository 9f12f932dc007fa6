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
)

// tabGlass is the last part of the address of work by hand, which is no tab.
const tabGlass = "glass"

// StackGlass is where a person works on a stack by hand: nothing is planned or
// applied by itself meanwhile, and commands of the engine can be run one by one.
// No shell is given to anybody, in a browser or elsewhere.
func StackGlass(v *Visit) (Page, error) {
	head, err := headOf(v, tabOverview)
	if err != nil {
		return Page{}, err
	}
	s := head.Stack
	view := glassView{
		Head: head, To: stackPath(v.Key(), tabGlass), Commands: command.HandCommands(), Lasts: v.House.Platform.Glass,
		May: mayChange(v, v.Key()), Order: rand.Text(),
		Shell: fmt.Sprintf("terrier break-glass -n %s %s -- state list", v.Key().Namespace, v.Key().Name),
		Own: []string{
			fmt.Sprintf("terrier state lock -n %s %s --reason \"by hand\"", v.Key().Namespace, v.Key().Name),
			fmt.Sprintf("terrier state pull -n %s %s -o %[2]s.tfstate", v.Key().Namespace, v.Key().Name),
			fmt.Sprintf("terrier state push -n %s %s %[2]s.tfstate", v.Key().Namespace, v.Key().Name),
		},
	}
	view.Why = glassHindrance(v, s, view.May)
	if glassOpen(s, v.Now) {
		view.Session, view.Commanded = s.Glass, s.Commanded
	}
	if r := s.Run; r != nil && r.Kind == string(stack.GlassRun) {
		view.Log = runPath(s.Key(), r.ID) + "/log"
	}
	if h := s.ByHand; h != nil {
		view.Last = &handDone{*h, outcomePill(h.Outcome), runPath(s.Key(), h.Run) + "/log"}
	}
	return stackPage(v, "stack_glass", "By hand", view), nil
}

type glassView struct {
	Head      stackHead
	Session   *stack.Glass // that is open
	Commanded *stack.Command
	Log       string // of the command at work
	Last      *handDone
	Commands  []command.HandCommand
	Order     string // the id of the command that the form would ask for
	To        string
	Lasts     time.Duration
	May       string // why the visitor may not work on it
	Why       string // why the glass cannot be broken
	Shell     string
	Own       []string
}

// handDone is the command that was run last.
type handDone struct {
	stack.ByHand
	Pill Pill
	Log  string
}

// glassOpen reports whether somebody works on s by hand.
func glassOpen(s query.Stack, now time.Time) bool {
	return s.Glass != nil && now.Before(s.Glass.Until)
}

// glassButton leads to work by hand.
func glassButton(v *Visit, s query.Stack, may string) Button {
	b := Button{Label: "Work by hand", Href: stackPath(s.Key(), tabGlass)}
	if !glassOpen(s, v.Now) {
		b.Why = glassHindrance(v, s, may)
	}
	return b
}

// glassHindrance says why the glass of a stack cannot be broken; empty if it can.
func glassHindrance(v *Visit, s query.Stack, may string) string {
	switch {
	case may != "":
		return may
	case v.House.Platform.Glass == 0:
		return "This platform does not let people work by hand. The operator allows it with --allow-break-the-glass."
	case s.Suspended:
		return "The stack is suspended. Resume it first."
	case s.Deleting:
		return "The object is being deleted."
	default:
		return ""
	}
}

var _ = says(map[Said]string{
	"glass-breaking": "Asked for. The session begins as soon as a run that is at work has ended.",
	"glass-broken":   "The glass is broken: nothing is planned or applied by itself until the session ends.",
	"glass-mended":   "The session is over. The stack goes on by itself.",
	"commanded":      "The command is on its way. Its log is here as soon as it is at work.",
})

// BreakGlass begins a session of work by hand. What is open already goes on.
func BreakGlass(v *Visit) (Done, error) {
	ctx, cancel := context.WithTimeout(v.Context, browserWaits)
	defer cancel()
	to := stackPath(v.Key(), tabGlass)
	_, err := v.Person.Stacks.BreakGlass(ctx, v.Key())
	if err != nil && ctx.Err() != nil && v.Context.Err() == nil {
		return Done{To: to, Said: "glass-breaking"}, nil
	}
	return Done{To: to, Said: "glass-broken"}, err
}

// EndGlass ends the session.
func EndGlass(v *Visit) (Done, error) {
	return Done{To: stackPath(v.Key()), Said: "glass-mended"}, v.Person.Stacks.EndGlass(v.Context, v.Key())
}

// RunByHand asks for one command: its words were chosen, and what it takes stands
// on lines of its own, so that nothing in it has to be quoted.
func RunByHand(v *Visit) (Done, error) {
	words := strings.Fields(v.Form.Get("command"))
	if len(words) == 0 {
		return Done{}, fault.New(fault.Invalid, "CommandInvalid", errors.New("no command was chosen"))
	}
	for line := range strings.Lines(v.Form.Get("args")) {
		if line = strings.TrimSpace(line); line != "" {
			words = append(words, line)
		}
	}
	order := command.HandOrder{ID: v.Form.Get("order"), Session: v.Form.Get("session"), Args: words}
	_, err := v.Person.Stacks.OrderByHand(v.Context, v.Key(), order)
	return Done{To: stackPath(v.Key(), tabGlass), Said: "commanded"}, err
}
