package web

import (
	"context"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// commandAPI is the rows of actions.
type commandAPI struct {
	*gate
	streams *streams
}

// routes are the rows of actions on one stack. The permission of the row
// is checked first, so that a refusal names it. The action then uses the permissions
// of the caller, and the cluster decides again.
func (a commandAPI) routes() []route {
	patch := right("patch", access.ResourceStacks)
	op := func(id, summary string, fails ...fault.Kind) operation {
		return operation{id: id, area: "commands", summary: summary, fails: append(fails, fault.Missing, fault.Later)}
	}
	preview := op("previewDestroy", "Plans a destroy as a preview, waits for the plan, and returns it. The preview cannot be approved.", fault.Conflict)
	preview.also = right("get", access.ResourcePlan)
	override := op("overrideWindow", "Has exactly the given plan applied although policies withhold it now, by their windows and freezes, if they let the caller do so. A plan that needs an approval is approved as well.", fault.Conflict)
	override.also = right("update", access.ResourceWindows)
	accept := op("acceptDrift", "Accepts drift: Terrier does not enforce the configuration for a time, within which it is to be changed. With a branch, the change is committed and pushed.", fault.Conflict)
	accept.also = right("get", access.ResourcePlan)
	acceptDrift := acts(a.gate, oneStack+"/drift/accept", patch, accept,
		func(c call, p command.Person, b command.AcceptDriftOrder) (command.AcceptedDrift, error) {
			return p.Stacks.AcceptDrift(c.ctx(), c.key(), b)
		})
	acceptDrift.whole = true // it reads the document of the plan
	table := []route{
		acts(a.gate, oneStack+"/preview-destroy", patch, preview, a.previewDestroy),
		acts(a.gate, oneStack+"/approve", patch, op("approvePlan", "Approves exactly the given plan. The request can be repeated.", fault.Conflict),
			func(c call, p command.Person, b command.SeenPlan) (query.Stack, error) {
				return decided(p.Stacks.Approve, c, b)
			}),
		acts(a.gate, oneStack+"/override-window", patch, override,
			func(c call, p command.Person, b command.SeenPlan) (query.Stack, error) {
				return decided(p.Stacks.OverrideWindow, c, b)
			}),
		acts(a.gate, oneStack+"/reject", patch, op("rejectPlan", "Rejects exactly the given plan.", fault.Conflict),
			func(c call, p command.Person, b command.SeenPlan) (query.Stack, error) {
				return decided(p.Stacks.Reject, c, b)
			}),
		acceptDrift,
		acts(a.gate, oneStack+"/rollback", patch, op("rollBackStack", "Rolls a stack back: what the last good apply was made from is planned and applied in place of what the object asks for, until that changes. Or ends a rollback.", fault.Conflict),
			func(c call, p command.Person, b command.StackRollback) (command.RollbackTo, error) {
				return p.Stacks.RollBack(c.ctx(), c.key(), b)
			}),
		acts(a.gate, oneStack+"/replan", patch, op("replan", "Requests a new plan. Unanswered requests are answered together."),
			func(c call, p command.Person, _ none) (command.Requested, error) {
				request, err := p.Stacks.Replan(c.ctx(), c.key())
				return command.Requested{Request: request}, err
			}),
		acts(a.gate, oneStack+"/rerun-steps", patch, op("rerunSteps", "Has the steps after the apply run again. Where plans need an approval, this approves the steps of the given digest as well.", fault.Conflict),
			func(c call, p command.Person, b command.SeenSteps) (command.Requested, error) {
				request, err := p.Stacks.RerunSteps(c.ctx(), c.key(), b.Digest)
				return command.Requested{Request: request}, err
			}),
		acts(a.gate, oneStack+"/suspend", patch, op("suspendStack", "Suspends a stack. An active run ends first."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Stacks.Suspend(c.ctx(), c.key())
			}),
		acts(a.gate, oneStack+"/resume", patch, op("resumeStack", "Resumes a suspended stack."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Stacks.Resume(c.ctx(), c.key())
			}),
		acts(a.gate, oneStack+"/cancel", patch, op("cancelRun", "Cancels the given run: interrupts its engine once, which then may end its operations and write the state.", fault.Conflict),
			func(c call, p command.Person, b command.SeenRun) (query.Stack, error) {
				if b.Run == "" {
					return query.Stack{}, errField("run")
				}
				return p.Stacks.Cancel(c.ctx(), c.key(), b.Run)
			}),
		acts(a.gate, oneStack+"/unlock", patch, op("breakLock", "Breaks the lock with the given ID on the state.", fault.Conflict),
			func(c call, p command.Person, b command.NamedLock) (none, error) {
				if b.ID == "" {
					return none{}, errField("id")
				}
				return none{}, p.Stacks.Unlock(c.ctx(), c.key(), b.ID)
			}),
		acts(a.gate, oneStack+"/repair-plan", patch, op("planRepair", "Requests a repair plan, which imports the untracked resources of an interrupted apply.", fault.Conflict),
			func(c call, p command.Person, b command.RepairAnswers) (command.Requested, error) {
				request, err := p.Stacks.PlanRepair(c.ctx(), c.key(), b)
				return command.Requested{Request: request}, err
			}),
		acts(a.gate, oneStack+"/repair", patch, op("repairStack", "Applies exactly the given repair plan.", fault.Conflict),
			func(c call, p command.Person, b command.SeenRepair) (none, error) {
				if b.Name == "" {
					return none{}, errField("name")
				}
				return none{}, p.Stacks.Repair(c.ctx(), c.key(), query.PlanInfo{Name: b.Name, Digest: b.Digest})
			}),
	}
	for i := range table {
		if id := table[i].operation.id; id == "previewDestroy" || id == "acceptDrift" {
			table[i].within = func(l Limits) time.Duration { return l.Transfer }
		}
	}
	return append(append(table, a.breakGlassCommands(op)...), a.stateCommands(op)...)
}

// breakGlassCommands are the rows of break-glass sessions. The output of a command is in the log
// of its run, and its outcome in byHand of the stack.
func (a commandAPI) breakGlassCommands(op func(string, string, ...fault.Kind) operation) []route {
	patch := right("patch", access.ResourceStacks)
	return []route{
		acts(a.gate, oneStack+"/break-glass", patch, op("breakGlass", "Starts a break-glass session, during which Terrier plans and applies nothing. It ends at its timeout.", fault.Conflict),
			func(c call, p command.Person, _ none) (stack.BreakGlass, error) {
				return p.Stacks.BreakGlass(c.ctx(), c.key())
			}),
		acts(a.gate, oneStack+"/break-glass/run", patch, op("orderByHand", "Runs one command of the engine in a break-glass session. The caller chooses the ID: two requests with the same ID run one command.", fault.Conflict),
			func(c call, p command.Person, b command.CommandOrder) (stack.Command, error) {
				return p.Stacks.OrderCommand(c.ctx(), c.key(), b)
			}),
		acts(a.gate, oneStack+"/break-glass/end", patch, op("endGlass", "Ends the break-glass session. Terrier reconciles the stack again."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Stacks.EndBreakGlass(c.ctx(), c.key())
			}),
	}
}

// stateCommands are the rows of actions on a state.
func (a commandAPI) stateCommands(op func(string, string, ...fault.Kind) operation) []route {
	write := right("update", access.ResourceState)
	roll := acts(a.gate, oneStack+"/state/rollback", write,
		op("rollBackState", "Rolls a state back to an older version, or returns a preview of the changes.", fault.Conflict), rollBack)
	accept := acts(a.gate, oneStack+"/state/accept", write, op("acceptState", "Accepts an unexpected state: the stored state, although Terrier expected another one."),
		func(c call, p command.Person, b command.AcceptReason) (stack.StateID, error) {
			return p.Stacks.AcceptState(c.ctx(), c.key(), b.Reason)
		})
	roll.whole, accept.whole = true, true
	return []route{
		roll,
		a.pushing(op),
		acts(a.gate, oneStack+"/state/lock", write, op("lockState", "Locks a state until it is unlocked. Meanwhile no run writes it."),
			func(c call, p command.Person, b command.LockReason) (query.StateLock, error) {
				return p.Stacks.LockState(c.ctx(), c.key(), b.Reason)
			}),
		acts(a.gate, oneStack+"/state/unlock", write, op("unlockState", "Unlocks a state: releases the caller's own lock, or the lock with the given ID.", fault.Conflict),
			func(c call, p command.Person, b command.NamedLock) (query.StateLock, error) {
				return p.Stacks.UnlockState(c.ctx(), c.key(), b.ID)
			}),
		accept,
	}
}

func errField(name string) error {
	return fault.New(fault.Invalid, "BodyInvalid", fmt.Errorf("the field %q is missing", name))
}

// decision is to approve or to reject.
type decision func(context.Context, query.Key, query.PlanInfo, string) (query.Stack, error)

func decided(do decision, c call, b command.SeenPlan) (query.Stack, error) {
	if b.Name == "" {
		return query.Stack{}, errField("name")
	}
	return do(c.ctx(), c.key(), query.PlanInfo{Name: b.Name, Digest: b.Digest}, b.Comment)
}

// previewDestroy waits for a run, and counts as a stream meanwhile.
func (a commandAPI) previewDestroy(c call, p command.Person, _ none) (query.PlanDocument, error) {
	leave, ok := a.streams.enter(userOf(c.Context).Name)
	if !ok {
		return query.PlanDocument{}, errStreams
	}
	defer leave()
	return p.Stacks.PreviewDestroy(c.ctx(), c.key())
}

// rollBack returns the preview of a rollback, or carries it out if the preview is
// still valid.
func rollBack(c call, p command.Person, b command.RollbackOrder) (command.StateChange, error) {
	if b.Version == "" {
		return command.StateChange{}, errField("version")
	}
	change, err := p.Stacks.PlanRollback(c.ctx(), c.key(), b.Version, b.Force)
	if b.Preview {
		return change, err
	}
	if err := change.Still(err, b.Over, b.To); err != nil {
		return command.StateChange{}, err
	}
	return change, p.Stacks.WriteState(c.ctx(), change)
}
