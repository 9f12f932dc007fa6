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

// commandRoutes are the rows of what is done to one stack. The right of the row
// is asked for first, so that a refusal names it; then the caller's own hands do
// it, and the cluster decides again.
func (s *server) commandRoutes() []route {
	patch := right("patch", access.ResourceStacks)
	op := func(id, summary string, fails ...fault.Kind) operation {
		return operation{id: id, area: "commands", summary: summary, fails: append(fails, fault.Missing, fault.Later)}
	}
	preview := op("previewDestroy", "Plans what a destroy would take down, waits for it, and shows it. Nobody can approve it.", fault.Conflict)
	preview.also = right("get", access.ResourcePlan)
	table := []route{
		tells(s, oneStack+"/preview-destroy", patch, preview, previewDestroy),
		tells(s, oneStack+"/approve", patch, op("approvePlan", "Lets exactly the plan that was seen be applied. To say so again is no failure.", fault.Conflict),
			func(c call, p command.Person, b command.SeenPlan) (query.Stack, error) {
				return decided(p.Stacks.Approve, c, b)
			}),
		tells(s, oneStack+"/reject", patch, op("rejectPlan", "Says no to exactly the plan that was seen.", fault.Conflict),
			func(c call, p command.Person, b command.SeenPlan) (query.Stack, error) {
				return decided(p.Stacks.Reject, c, b)
			}),
		tells(s, oneStack+"/replan", patch, op("replan", "Asks for a new plan. Requests that were not answered yet are answered together."),
			func(c call, p command.Person, _ none) (command.Requested, error) {
				request, err := p.Stacks.Replan(c.ctx(), c.key())
				return command.Requested{Request: request}, err
			}),
		tells(s, oneStack+"/suspend", patch, op("suspendStack", "Leaves a stack alone from now on; a run in flight ends first."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Stacks.Suspend(c.ctx(), c.key())
			}),
		tells(s, oneStack+"/resume", patch, op("resumeStack", "Ends a suspension."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Stacks.Resume(c.ctx(), c.key())
			}),
		tells(s, oneStack+"/unlock", patch, op("breakLock", "Lets the one foreign state lock of that identifier be broken.", fault.Conflict),
			func(c call, p command.Person, b command.NamedLock) (none, error) {
				if b.ID == "" {
					return none{}, errField("id")
				}
				return none{}, p.Stacks.Unlock(c.ctx(), c.key(), b.ID)
			}),
		tells(s, oneStack+"/repair-plan", patch, op("planRepair", "Asks for a plan that brings what an apply left outside into the state.", fault.Conflict),
			func(c call, p command.Person, b command.RepairAnswers) (command.Requested, error) {
				request, err := p.Stacks.PlanRepair(c.ctx(), c.key(), b)
				return command.Requested{Request: request}, err
			}),
		tells(s, oneStack+"/repair", patch, op("repairStack", "Lets exactly the plan of a repair that was seen be carried out.", fault.Conflict),
			func(c call, p command.Person, b command.SeenRepair) (none, error) {
				if b.Name == "" {
					return none{}, errField("name")
				}
				return none{}, p.Stacks.Repair(c.ctx(), c.key(), query.PlanInfo{Name: b.Name, Digest: b.Digest})
			}),
	}
	table[0].within = func(l Limits) time.Duration { return l.Transfer }
	return append(append(table, s.handCommands(op)...), s.stateCommands(op)...)
}

// handCommands are the rows of work by hand. What a command prints is in the log
// of its run, and how it ended in byHand of the stack.
func (s *server) handCommands(op func(string, string, ...fault.Kind) operation) []route {
	patch := right("patch", access.ResourceStacks)
	return []route{
		tells(s, oneStack+"/break-glass", patch, op("breakGlass", "Has nothing planned or applied by itself, so that a person can work on the stack; it ends by itself.", fault.Conflict),
			func(c call, p command.Person, _ none) (stack.Glass, error) {
				return p.Stacks.BreakGlass(c.ctx(), c.key())
			}),
		tells(s, oneStack+"/break-glass/run", patch, op("orderByHand", "Has one command of the engine run behind broken glass. The id is the caller's choice: the same one twice is one command.", fault.Conflict),
			func(c call, p command.Person, b command.HandOrder) (stack.Command, error) {
				return p.Stacks.OrderByHand(c.ctx(), c.key(), b)
			}),
		tells(s, oneStack+"/break-glass/end", patch, op("endGlass", "Ends the session: the stack goes on by itself."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Stacks.EndGlass(c.ctx(), c.key())
			}),
	}
}

// stateCommands are the rows of what is done to a state by hand.
func (s *server) stateCommands(op func(string, string, ...fault.Kind) operation) []route {
	patch := right("patch", access.ResourceStacks)
	return []route{
		tells(s, oneStack+"/state/rollback", right("update", access.ResourceState),
			op("rollBackState", "Makes an older version of a state the newest, or says what that would do.", fault.Conflict), rollBack),
		s.pushing(op),
		tells(s, oneStack+"/state/lock", patch, op("lockState", "Keeps every run that writes off the state, until it is unlocked."),
			func(c call, p command.Person, b command.LockReason) (query.StateLock, error) {
				return p.Stacks.LockState(c.ctx(), c.key(), b.Reason)
			}),
		tells(s, oneStack+"/state/unlock", patch, op("unlockState", "Frees the lock on a state: the caller's own, or the one that is named.", fault.Conflict),
			func(c call, p command.Person, b command.NamedLock) (query.StateLock, error) {
				return p.Stacks.UnlockState(c.ctx(), c.key(), b.ID)
			}),
		tells(s, oneStack+"/state/accept", patch, op("acceptState", "Agrees to what is stored, although something else was expected."),
			func(c call, p command.Person, _ none) (stack.Known, error) {
				return p.Stacks.AcceptState(c.ctx(), c.key())
			}),
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

// previewDestroy waits for a run, and takes the place of a stream for as long.
func previewDestroy(c call, p command.Person, _ none) (query.PlanDocument, error) {
	leave, ok := c.server.streams.enter(userOf(c.Context).Name)
	if !ok {
		return query.PlanDocument{}, errStreams
	}
	defer leave()
	return p.Stacks.PreviewDestroy(c.ctx(), c.key())
}

// rollBack says what a rollback would do, or does it if that is still what was
// said.
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
