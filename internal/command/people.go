package command

import (
	"context"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/situation"
	"github.com/terrier-iac/terrier/internal/stack"
)

// StackAPI is what can be asked of stacks, and done to them. Stacks implements it,
// and so does the client of a server: the suite in clienttest holds both to the
// same behaviour.
type StackAPI interface {
	query.StackReader
	StackCommands
}

// StackCommands are what a user has done to a stack.
type StackCommands interface {
	Approve(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error)
	OverrideWindow(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error)
	Reject(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error)
	Replan(context.Context, query.Key) (request string, err error)
	Suspend(context.Context, query.Key) error
	Resume(context.Context, query.Key) error
	Unlock(ctx context.Context, key query.Key, id string) error
	Cancel(ctx context.Context, key query.Key, run string) (query.Stack, error)

	RerunSteps(ctx context.Context, key query.Key, seen string) (request string, err error)
	AcceptDrift(ctx context.Context, key query.Key, o AcceptDriftOrder) (AcceptedDrift, error)
	RollBack(ctx context.Context, key query.Key, o StackRollback) (RollbackTo, error)

	PreviewDestroy(context.Context, query.Key) (query.PlanDocument, error)
	PlanRepair(ctx context.Context, key query.Key, a RepairAnswers) (request string, err error)
	Repair(ctx context.Context, key query.Key, seen query.PlanInfo) error

	StateCommands
	SessionCommands
}

// StateCommands are what a user has done to the state of a stack.
type StateCommands interface {
	PlanRollback(ctx context.Context, key query.Key, version string, force bool) (StateChange, error)
	PlanPush(ctx context.Context, key query.Key, state []byte, force bool) (StateChange, error)
	WriteState(context.Context, StateChange) error
	LockState(ctx context.Context, key query.Key, reason string) (query.StateLock, error)
	UnlockState(ctx context.Context, key query.Key, id string) (query.StateLock, error)
	AcceptState(ctx context.Context, key query.Key, reason string) (stack.StateID, error)
}

// SessionCommands are what a user does in a break-glass session.
type SessionCommands interface {
	BreakGlass(context.Context, query.Key) (stack.BreakGlass, error)
	OrderCommand(context.Context, query.Key, CommandOrder) (stack.Command, error)
	EndBreakGlass(context.Context, query.Key) error
}

// TenantAPI is what can be asked of registries, templates and tenants, and done
// to them.
type TenantAPI interface {
	// Render renders a template with a row, or with that of the tenant with a uid.
	Render(ctx context.Context, key query.Key, row query.RowText, uid string) (query.Rendering, error)

	query.TenantReader
	TenantCommands
}

// TenantCommands are what a user has done to registries and templates.
type TenantCommands interface {
	Allow(ctx context.Context, key query.Key, token string) error
	ReadNow(context.Context, query.Key) (request string, err error)
	SuspendRegistry(context.Context, query.Key) error
	ResumeRegistry(context.Context, query.Key) error
	ResumeRollout(context.Context, query.Key) (int64, error)
	PlanUndo(ctx context.Context, key query.Key, to int64) (Undoing, error)
	Undo(context.Context, Undoing) error
}

// Person is a user that the server acts for: what is asked and commanded here is
// done in the name of that user, and the cluster says whether the user may.
type Person struct {
	User    access.User
	Stacks  StackCommands
	Tenants TenantCommands
	Secrets SecretReader
	Flux    situation.Objects // that the user may list
}

// SecretReader answers what is read in Secrets of a namespace, which takes the
// user's own right to them.
type SecretReader interface {
	Outputs(ctx context.Context, key query.Key, show bool) ([]query.Output, error)
	Render(ctx context.Context, key query.Key, row query.RowText, uid string) (query.Rendering, error)
}

// secrets is the SecretReader of a Person.
type secrets struct {
	*Stacks
	tenants *Tenants
}

func (s secrets) Render(ctx context.Context, key query.Key, row query.RowText, uid string) (query.Rendering, error) {
	return s.tenants.Render(ctx, key, row, uid)
}

// People are the users that the server acts for.
type People struct {
	users   *access.Impersonation
	kinds   query.Kinds
	records query.Records
	now     func() time.Time

	// Git makes the client by which changes of configurations are pushed; nil if none are.
	Git func() (*outbound.Client, error)
}

// NewPeople returns the People of the cluster of config, whose user must be
// allowed to impersonate every user that may sign in.
func NewPeople(config *rest.Config, kinds query.Kinds, records query.Records, now func() time.Time) (*People, error) {
	users, err := access.NewImpersonation(config, kinds, now)
	if err != nil {
		return nil, err
	}
	return &People{users: users, kinds: kinds, records: records, now: now}, nil
}

// As returns what u may ask and command: the cluster decides on each.
func (p *People) As(u access.User) (Person, error) {
	clients, err := p.users.As(u)
	if err != nil {
		return Person{}, err
	}
	stacks := New(clients.Kube, p.kinds, p.records, p.now)
	if p.Git != nil {
		stacks.Git = func(*url.URL) (*outbound.Client, error) { return p.Git() }
	}
	tenants := NewTenants(stacks, clients.Config)
	flux, err := situation.NewFluxObjects(clients.Config)
	return Person{User: u, Stacks: stacks, Tenants: tenants, Secrets: secrets{stacks, tenants}, Flux: flux}, err
}

var (
	_ StackAPI  = (*Stacks)(nil)
	_ TenantAPI = (*Tenants)(nil)
)
