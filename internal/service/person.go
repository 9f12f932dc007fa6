package service

import (
	"context"
	"io"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
)

// StackAPI is what can be asked of stacks, and done to them. Stacks is one, and
// so is whatever speaks to a server over the network: the suite in servicetest
// holds all of them to the same behaviour.
type StackAPI interface {
	StackReader
	StackCommands
}

// StackReader answers questions about stacks.
type StackReader interface {
	List(context.Context, Filter) ([]Stack, error)
	Get(context.Context, Key) (Stack, error)
	Describe(context.Context, Key) (Detail, error)
	Explain(context.Context, Key) (Explanation, error)

	Runs(context.Context, Key) ([]Report, error)
	Run(ctx context.Context, key Key, run string) (Report, error)
	Log(ctx context.Context, key Key, run string, follow bool) (io.ReadCloser, error)
	Plan(ctx context.Context, key Key, digest string) (PlanDocument, error)

	StateVersions(context.Context, Key) (KeptStates, error)
	StateOf(ctx context.Context, key Key, version string, reveal bool) (plan.StateView, error)
}

// StackCommands are what a person has done to a stack.
type StackCommands interface {
	Approve(ctx context.Context, key Key, seen PlanInfo, comment string) (Stack, error)
	Reject(ctx context.Context, key Key, seen PlanInfo, comment string) (Stack, error)
	Replan(context.Context, Key) (request string, err error)
	Suspend(context.Context, Key) error
	Resume(context.Context, Key) error
	Unlock(ctx context.Context, key Key, id string) error

	BreakGlass(context.Context, Key) (stack.Glass, error)
	OrderByHand(context.Context, Key, HandOrder) (stack.Command, error)
	EndGlass(context.Context, Key) error

	PreviewDestroy(context.Context, Key) (PlanDocument, error)
	PlanRepair(ctx context.Context, key Key, a RepairAnswers) (request string, err error)
	Repair(ctx context.Context, key Key, seen PlanInfo) error

	PlanRollback(ctx context.Context, key Key, version string, force bool) (StateChange, error)
	PlanPush(ctx context.Context, key Key, state []byte, force bool) (StateChange, error)
	WriteState(context.Context, StateChange) error
	LockState(ctx context.Context, key Key, reason string) (StateLock, error)
	UnlockState(ctx context.Context, key Key, id string) (StateLock, error)
	AcceptState(context.Context, Key) (stack.Known, error)
}

// TenantAPI is what can be asked of registries, templates and tenants, and done
// to them.
type TenantAPI interface {
	TenantReader
	TenantCommands
}

// TenantReader answers questions about registries, templates and tenants.
type TenantReader interface {
	List(context.Context, TenantFilter) (TenantList, error)
	Describe(context.Context, Key) (TenantDetail, error)
	Registry(context.Context, Key) (Registry, error)
	Rollout(context.Context, Key) (Rollout, error)
}

// TenantCommands are what a person has done to registries and templates.
type TenantCommands interface {
	Allow(ctx context.Context, key Key, token string) error
	ReadNow(context.Context, Key) (request string, err error)
	SuspendRegistry(context.Context, Key) error
	ResumeRegistry(context.Context, Key) error
	ResumeRollout(context.Context, Key) (int64, error)
	PlanUndo(ctx context.Context, key Key, to int64) (Undoing, error)
	Undo(context.Context, Undoing) error
}

// Person is somebody's own hands: what they command is done in their name, and
// the cluster says whether they may.
type Person struct {
	User    User
	Stacks  StackCommands
	Tenants TenantCommands
}

var (
	_ StackAPI  = (*Stacks)(nil)
	_ TenantAPI = (*Tenants)(nil)
)
