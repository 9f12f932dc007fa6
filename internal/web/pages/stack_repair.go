package pages

import (
	"errors"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// StackRepair asks for the import IDs of untracked resources, which an
// interrupted apply may have created.
func StackRepair(v *Visit) (Page, error) {
	head, err := headOf(v, tabOverview)
	if err != nil {
		return Page{}, err
	}
	view := repairView{Head: head, To: stackPath(v.Key(), "repair")}
	if g := head.Stack.Untracked; g != nil {
		view.Untracked = g
		for i, o := range g.Objects {
			view.Objects = append(view.Objects, repairObject{UntrackedResource: o, ID: "id-" + strconv.Itoa(i), Number: i})
		}
	}
	if s := head.Stack; s.Plan != nil && s.Pending != "" {
		view.Plan = s.Plan
		view.See = planPath(s.Key(), *s.Plan)
	}
	return stackPage(v, "stack_repair", "Repair", view), nil
}

type repairView struct {
	Head      stackHead
	Untracked *stack.Untracked
	Objects   []repairObject
	Plan      *query.PlanInfo // that is pending
	See       string
	To        string
}

type repairObject struct {
	stack.UntrackedResource
	ID     string // of its field
	Number int
}

// Repair requests a repair plan with the given import IDs; with a plan in the
// form it approves that plan.
func Repair(v *Visit) (Done, error) {
	if v.Form.Get("plan") != "" {
		seen, err := seenPlan(v)
		if err != nil {
			return Done{}, err
		}
		return Done{To: stackPath(v.Key()), Said: "repaired"}, v.Person.Stacks.Repair(v.Context, v.Key(), seen)
	}
	a, err := repairAnswers(v)
	if err != nil {
		return Done{}, err
	}
	_, err = v.Person.Stacks.PlanRepair(v.Context, v.Key(), a)
	return Done{To: stackPath(v.Key()), Said: "repairing"}, err
}

// repairAnswers reads the form: for the address number N, id-N is the import ID,
// and absent-N says that the resource does not exist.
func repairAnswers(v *Visit) (command.RepairAnswers, error) {
	a := command.RepairAnswers{IDs: map[string]string{}}
	for i, address := range v.Form["address"] {
		n := strconv.Itoa(i)
		id := strings.TrimSpace(v.Form.Get("id-" + n))
		absent := v.Form.Get("absent-"+n) != ""
		switch {
		case absent && id != "" && id != v.Form.Get("known-"+n):
			return a, fault.New(fault.Invalid, "RepairUnclear", errors.New(ui.Cut(200, address)+" has an import ID, and is marked as absent"))
		case absent:
			a.Absent = append(a.Absent, address)
		case id != "":
			a.IDs[address] = id
		}
	}
	return a, nil
}
