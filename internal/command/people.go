package command

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// StackAPI is what can be asked of stacks, and done to them. Stacks is one, and
// so is whatever speaks to a server over the network: the suite in servicetest
// holds all of them to the same behaviour.
type StackAPI interface {
	query.StackReader
	StackCommands
}

// StackCommands are what a person has done to a stack.
type StackCommands interface {
	Approve(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error)
	Reject(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error)
	Replan(context.Context, query.Key) (request string, err error)
	Suspend(context.Context, query.Key) error
	Resume(context.Context, query.Key) error
	Unlock(ctx context.Context, key query.Key, id string) error

	BreakGlass(context.Context, query.Key) (stack.BreakGlass, error)
	OrderByHand(context.Context, query.Key, HandOrder) (stack.Command, error)
	EndGlass(context.Context, query.Key) error

	PreviewDestroy(context.Context, query.Key) (query.PlanDocument, error)
	PlanRepair(ctx context.Context, key query.Key, a RepairAnswers) (request string, err error)
	Repair(ctx context.Context, key query.Key, seen query.PlanInfo) error

	PlanRollback(ctx context.Context, key query.Key, version string, force bool) (StateChange, error)
	PlanPush(ctx context.Context, key query.Key, state []byte, force bool) (StateChange, error)
	WriteState(context.Context, StateChange) error
	LockState(ctx context.Context, key query.Key, reason string) (query.StateLock, error)
	UnlockState(ctx context.Context, key query.Key, id string) (query.StateLock, error)
	AcceptState(context.Context, query.Key) (stack.Known, error)
}

// TenantAPI is what can be asked of registries, templates and tenants, and done
// to them.
type TenantAPI interface {
	query.TenantReader
	TenantCommands
}

// TenantCommands are what a person has done to registries and templates.
type TenantCommands interface {
	Allow(ctx context.Context, key query.Key, token string) error
	ReadNow(context.Context, query.Key) (request string, err error)
	SuspendRegistry(context.Context, query.Key) error
	ResumeRegistry(context.Context, query.Key) error
	ResumeRollout(context.Context, query.Key) (int64, error)
	PlanUndo(ctx context.Context, key query.Key, to int64) (Undoing, error)
	Undo(context.Context, Undoing) error
}

// Person is somebody's own hands: what they command is done in their name, and
// the cluster says whether they may.
type Person struct {
	User    access.User
	Stacks  StackCommands
	Tenants TenantCommands
}

// People are the users that the server acts for.
type People struct {
	users   *access.Impersonation
	records query.Records
	now     func() time.Time
}

// NewPeople returns the People of the cluster of config, whose user must be
// allowed to impersonate every user that may sign in.
func NewPeople(config *rest.Config, records query.Records, now func() time.Time) (*People, error) {
	users, err := access.NewImpersonation(config, now)
	if err != nil {
		return nil, err
	}
	return &People{users: users, records: records, now: now}, nil
}

// As returns what u may ask and command: the cluster decides on each.
func (p *People) As(u access.User) (Person, error) {
	clients, err := p.users.As(u)
	if err != nil {
		return Person{}, err
	}
	stacks := New(clients.Kube, p.records, p.now)
	return Person{User: u, Stacks: stacks, Tenants: NewTenants(stacks, clients.Config)}, nil
}

var (
	_ StackAPI  = (*Stacks)(nil)
	_ TenantAPI = (*Tenants)(nil)
)
