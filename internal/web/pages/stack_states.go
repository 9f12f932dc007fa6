package pages

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// StackStates lists the stored versions of a stack's state. With a
// version to roll back to in the address it asks for confirmation.
func StackStates(v *Visit) (Page, error) {
	head, err := headOf(v, tabStates)
	if err != nil {
		return Page{}, err
	}
	view := stateList{Head: head, May: mayWriteState(v), Name: v.Key().Name, Here: stackPath(v.Key(), tabStates)}
	switch stack.Reason(head.Stack.Phase) {
	case stack.StateTampered, stack.StateRegressed, stack.StateMissing:
		view.Refused, view.Missing = head.Stack.Message, stack.Reason(head.Stack.Phase) == stack.StateMissing
	}
	kept, err := v.Backend.Stacks.StateVersions(v.Context, v.Key())
	if fault.Reason(err, "") == query.ReasonStateForeign {
		view.Empty = &ui.Empty{Title: "No versions", Text: "The stack keeps its state in its own backend, not in Terrier. To download the state, run the engine in a directory that is initialised with that backend:", Command: "tofu state pull"}
	} else {
		view.Problem = problemOf("The versions cannot be shown", err)
	}
	view.fill(v.Key(), kept)
	if len(view.Rows) == 0 && view.Empty == nil && view.Problem == nil {
		view.Empty = &ui.Empty{Title: "No versions", Text: "No version is stored yet, because nothing was applied. To see what the stack waits for:", Command: head.Command("explain")}
	}
	if to := v.Query.Get("to"); to != "" {
		view.ask(v, to)
	}
	if token := v.Query.Get("push"); token != "" && view.May == "" {
		view.askPush(v, token)
	}
	return stackPage(v, "stack_states", "States", view), nil
}

type stateList struct {
	Head    stackHead
	Name    string
	Here    string
	Rows    []stateRow
	Rescued []rescuedState
	May     string // why the visitor may not change the state
	Refused string // why the stored state blocks runs
	Missing bool   // the last known state is missing
	Ask     *rollback
	Push    *pushed
	Empty   *ui.Empty
	Problem *Problem
}

type stateRow struct {
	stack.StateVersion
	Newest  bool
	Version string // its name in an address
	See     string
	File    string // the address of all of it, as a file
	Back    string // the address that asks whether to roll back to it
	Run     string // the address of the run that wrote it
	Size    string
}

// rescuedState is a state of a run that a backend rejected.
type rescuedState struct{ Run, File string }

// rollback is the question whether to roll back to an older version.
type rollback struct {
	Version string
	Row     stateRow
	Name    string // has to be typed
	To      string
	Change  command.StateChange // as shown; exactly this is carried out
	Force   bool
	Unseen  string // the address that asks to replace a state without a copy
	Problem *Problem
}

func mayWriteState(v *Visit) string {
	if v.Can == nil || !v.Can(ofStack("update", access.ResourceState, v.Key())) {
		return fmt.Sprintf("You may not change states. You need the permission to update %s/state in the namespace %s.", resourceOf(v, v.Key()), v.Key().Namespace)
	}
	return ""
}

func (l *stateList) fill(k query.Key, kept query.KeptStates) {
	for _, run := range kept.Rescued {
		l.Rescued = append(l.Rescued, rescuedState{run, stateFile(k, query.RescuedName(run))})
	}
	serials := map[uint64]int{}
	for _, s := range kept.Versions {
		serials[s.Serial]++
	}
	for _, s := range kept.Versions {
		r := stateRow{StateVersion: s, Newest: s.Digest == kept.Head.Digest, Version: fmt.Sprint(s.Serial), Size: query.Size(s.Bytes)}
		if digest := strings.TrimPrefix(s.Digest, "sha256:"); serials[s.Serial] > 1 && len(digest) >= 12 {
			r.Version = digest[:12] // one serial has several
		}
		r.File = stateFile(k, s.Key())
		r.See = ui.With(stackPath(k, tabResources), nil, "version", r.Version)
		if !r.Newest {
			r.Back = ui.With(stackPath(k, tabStates), nil, "to", r.Version) + "#rollback"
		}
		if s.By != stack.ByOutside && !strings.HasPrefix(s.By, "person ") {
			r.Run = runPath(k, s.By)
		}
		l.Rows = append(l.Rows, r)
	}
	slices.Reverse(l.Rows)
}

// ask prepares the question. The changes are computed with the permissions of
// the visitor.
func (l *stateList) ask(v *Visit, version string) {
	for _, r := range l.Rows {
		if r.Version != version || r.Newest {
			continue
		}
		l.Ask = &rollback{Version: version, Row: r, Name: v.Key().Name, To: stackPath(v.Key(), tabStates, "rollback")}
		if l.May != "" || v.Person.Stacks == nil {
			return
		}
		l.Ask.Force = v.Query.Get("force") == "yes"
		var err error
		l.Ask.Change, err = v.Person.Stacks.PlanRollback(v.Context, v.Key(), version, l.Ask.Force)
		l.Ask.Problem = problemOf("The state cannot be rolled back", err)
		if fault.Reason(err, "") == query.ReasonStateUnseen {
			l.Ask.Unseen = ui.With(stackPath(v.Key(), tabStates), v.Query, "force", "yes") + "#rollback"
		}
		return
	}
	l.Problem = problemOf("There is no version to roll back to", fault.New(fault.Missing, query.ReasonNoVersion, fmt.Errorf("no older version %q is stored", ui.Cut(40, version))))
}

// confirmed is an error if the name of the stack was not typed.
func confirmed(v *Visit) error {
	if typed := strings.TrimSpace(v.Form.Get("name")); typed != v.Key().Name {
		return fault.New(fault.Invalid, "NotConfirmed", errors.New("the typed name is not the name of the stack; nothing was changed"))
	}
	return nil
}

// stateFile is the address of one version of a state as a file.
func stateFile(k query.Key, version string) string { return stackPath(k, tabStates, version, "file") }

// Rollback rolls back to an older version, if the name of the stack was typed
// and the change is still the one that was shown. If the version is current already,
// this is the second of two clicks.
func Rollback(v *Visit) (Done, error) {
	if err := confirmed(v); err != nil {
		return Done{}, err
	}
	done := Done{To: stackPath(v.Key(), tabStates), Said: "rolled-back"}
	to := v.Form.Get("to")
	change, err := v.Person.Stacks.PlanRollback(v.Context, v.Key(), v.Form.Get("version"), v.Form.Get("force") == "yes")
	if to != "" && change.From.Digest == to {
		return done, nil
	}
	if err := change.Still(err, v.Form.Get("over"), to); err != nil {
		return Done{}, err
	}
	return done, v.Person.Stacks.WriteState(v.Context, change)
}

// AcceptState accepts the stored state, although Terrier expected another one,
// if the name of the stack was typed.
func AcceptState(v *Visit) (Done, error) {
	if err := confirmed(v); err != nil {
		return Done{}, err
	}
	_, err := v.Person.Stacks.AcceptState(v.Context, v.Key(), ui.Cut(200, strings.TrimSpace(v.Form.Get("reason"))))
	return Done{To: stackPath(v.Key(), tabStates), Said: "state-accepted"}, err
}

// LockState locks the state until it is unlocked.
func LockState(v *Visit) (Done, error) {
	_, err := v.Person.Stacks.LockState(v.Context, v.Key(), ui.Cut(200, strings.TrimSpace(v.Form.Get("reason"))))
	return Done{To: stackPath(v.Key(), tabStates), Said: "state-locked"}, err
}

// UnlockState releases the visitor's own lock, or the named one.
func UnlockState(v *Visit) (Done, error) {
	_, err := v.Person.Stacks.UnlockState(v.Context, v.Key(), strings.TrimSpace(v.Form.Get("lock")))
	return Done{To: stackPath(v.Key(), tabStates), Said: "state-unlocked"}, err
}
