package clienttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// pushes uploads a state that follows the stored one, or is made to follow it.
func pushes(t *testing.T, w *World, s Subject) {
	now, behind, next := stateOf(7, "a", "b"), stateOf(5, "c"), stateOf(8, "b")
	w.stored(t, now, now)
	_, err := s.Stacks.PlanPush(t.Context(), w.key("net"), []byte("{}"), false)
	want(t, "what is no state", err, fault.Invalid, query.ReasonNoState)
	_, err = s.Stacks.PlanPush(t.Context(), w.key("net"), []byte(behind), false)
	want(t, "a state that is behind", err, fault.Conflict, query.ReasonStateBehind)

	change := must(s.Stacks.PlanPush(t.Context(), w.key("net"), []byte(next), false))(t)
	if d := change.Diff; fmt.Sprint(d.Gone, d.Added) != "[t.a] []" || change.From.Serial != 7 || change.To.Serial != 8 || change.Bytes() != len(next) {
		t.Errorf("PlanPush() = %+v, want a to go", change)
	}
	w.stored(t, stateOf(9, "d"), now)
	want(t, "something else is stored by now", s.Stacks.WriteState(t.Context(), change), fault.Conflict, command.ReasonStateConflict)

	change = must(s.Stacks.PlanPush(t.Context(), w.key("net"), []byte(behind), true))(t)
	done(t, "WriteState()", s.Stacks.WriteState(t.Context(), change))
	got := must(s.Stacks.StateOf(t.Context(), w.key("net"), "", false))(t)
	if got.Serial != 10 || len(got.Resources) != 1 || got.Resources[0].Address != "t.c" {
		t.Errorf("stored is %+v, want what was brought as serial 10", got)
	}
	want(t, "the same once more", s.Stacks.WriteState(t.Context(), change), fault.Conflict, kube.StateConflict)
	if after := must(s.Stacks.StateOf(t.Context(), w.key("net"), "", false))(t); after.Serial != 10 {
		t.Errorf("stored is serial %d after the same was sent twice, want 10", after.Serial)
	}
}

// runsBreakGlassCommands answers as the controller would.
func runsBreakGlassCommands(t *testing.T, w *World, s Subject) {
	order := command.CommandOrder{ID: "one", Args: []string{"state", "rm", "t.a"}}
	_, err := s.Stacks.OrderCommand(t.Context(), w.key("net"), order)
	want(t, "a command before whole glass", err, fault.Conflict, command.ReasonNoSession)
	_, err = s.Stacks.OrderCommand(t.Context(), w.key("net"), command.CommandOrder{ID: "one", Args: []string{"apply"}})
	want(t, "a command that may not be run", err, fault.Invalid, "CommandInvalid")
	_, err = s.Stacks.OrderCommand(t.Context(), w.key("net"), command.CommandOrder{ID: "../", Args: order.Args})
	want(t, "an id that is none", err, fault.Invalid, "OrderInvalid")

	glass := breaks(t, w, s)
	if again := must(s.Stacks.BreakGlass(t.Context(), w.key("net")))(t); again.Session != glass.Session {
		t.Errorf("to break what is broken is another session: %+v", again)
	}
	order.Session = "another"
	_, err = s.Stacks.OrderCommand(t.Context(), w.key("net"), order)
	want(t, "a command of another session", err, fault.Conflict, command.ReasonNoSession)
	order.Session = glass.Session
	c := must(s.Stacks.OrderCommand(t.Context(), w.key("net"), order))(t)
	if c.By != w.User(Boss).Name || c.Session != glass.Session || must(s.Stacks.Get(t.Context(), w.key("net")))(t).PendingCommand == nil {
		t.Errorf("OrderCommand() = %+v, want it on its way in the name of who asked", c)
	}
	if again := must(s.Stacks.OrderCommand(t.Context(), w.key("net"), order))(t); again.ID != c.ID {
		t.Errorf("the same order twice is %+v", again)
	}
	_, err = s.Stacks.OrderCommand(t.Context(), w.key("net"), command.CommandOrder{ID: "one", Args: []string{"state", "list"}})
	want(t, "another command of the same id", err, fault.Conflict, command.ReasonCommandBusy)
	second := command.CommandOrder{ID: "two", Args: []string{"state", "list"}}
	_, err = s.Stacks.OrderCommand(t.Context(), w.key("net"), second)
	want(t, "a second command while the first is on its way", err, fault.Conflict, command.ReasonCommandBusy)

	w.status(t, stack.Status{Answers: stack.Answers{BreakGlass: &glass, LastCommand: &stack.CommandResult{Command: c, Run: "glass-1", Outcome: stack.Succeeded, Moved: true}}}, nil)
	if again := must(s.Stacks.OrderCommand(t.Context(), w.key("net"), order))(t); again.ID != "one" {
		t.Errorf("the order that was carried out, sent again, is %+v", again)
	}
	if st := must(s.Stacks.Get(t.Context(), w.key("net")))(t); st.PendingCommand != nil || st.LastCommand == nil || !st.LastCommand.Moved || st.BreakGlass == nil {
		t.Errorf("the stack says %+v, %+v, %+v; want how the command ended", st.BreakGlass, st.PendingCommand, st.LastCommand)
	}
	must(s.Stacks.OrderCommand(t.Context(), w.key("net"), second))(t)

	done(t, "EndBreakGlass()", s.Stacks.EndBreakGlass(t.Context(), w.key("net")))
	done(t, "EndBreakGlass() once more", s.Stacks.EndBreakGlass(t.Context(), w.key("net")))
	if a := w.object(t, "net").Annotations; a[infra.BreakTheGlassAt] != "" || a[dialect.BreakGlassCommand] != "" {
		t.Errorf("after the end there is still %v", a)
	}
}

// breaks starts a break-glass session, twice at once as a double click does.
func breaks(t *testing.T, w *World, s Subject) stack.BreakGlass {
	t.Helper()
	type result struct {
		glass stack.BreakGlass
		err   error
	}
	answers := make(chan result, 2)
	ask := func() {
		g, err := s.Stacks.BreakGlass(t.Context(), w.key("net"))
		answers <- result{g, err}
	}
	session := func() string { return w.object(t, "net").Annotations[infra.BreakTheGlassAt] }
	go ask()
	testkit.Eventually(t, testkit.Patience, "a session is asked for", func(context.Context) error {
		if session() == "" {
			return errors.New("not yet")
		}
		return nil
	})
	asked := session()
	go ask()
	glass := stack.BreakGlass{Session: asked, At: w.Now(), Until: w.Now().Add(time.Hour)}
	w.status(t, stack.Status{Answers: stack.Answers{BreakGlass: &glass}}, nil)
	for range 2 {
		got := <-answers
		if got.err != nil || got.glass.Session != asked {
			t.Fatalf("BreakGlass() = %+v, %v; want the one session %s", got.glass, got.err, asked)
		}
	}
	return glass
}
