package web

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// emptyBoard is the board of a cluster without stacks.
func emptyBoard() *query.Board {
	b := query.NewBoard(query.BoardOptions{Kinds: kinds.All(), Now: time.Now})
	b.Synced()
	return b
}

// idle is an empty queue.
type idle struct{}

func (idle) Backlog() schedule.Backlog           { return schedule.Backlog{MaxRuns: 4} }
func (idle) Line() schedule.Line                 { return schedule.Line{} }
func (idle) Place(string) (schedule.Place, bool) { return schedule.Place{}, false }

// blank is an empty audit log.
type blank struct{}

func (blank) Entries(context.Context, query.AuditSight, query.AuditQuery) (query.AuditPage, error) {
	return query.AuditPage{}, nil
}

func (blank) CheckAuditLog(context.Context) (query.AuditReport, error) {
	return query.AuditReport{}, nil
}

func (blank) VerifyAuditLog(context.Context) (query.AuditReport, error) {
	return query.AuditReport{}, nil
}

// ledger is a writable audit log.
type ledger struct {
	mu      sync.Mutex
	entries []query.AuditEntry
	err     error
}

func (l *ledger) Record(_ context.Context, e query.AuditEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.entries = append(l.entries, e)
	}
	return l.err
}

// what is who did what to which object.
func (l *ledger) what() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, e := range l.entries {
		out = append(out, string(e.What)+" "+e.Who+" "+e.Object.Namespace+"/"+e.Object.Name)
	}
	return out
}

// StateOf is a state of the version that is asked for.
func (e estate) StateOf(_ context.Context, key query.Key, _ string, _ bool) (plan.StateView, error) {
	_, err := e.id(key)
	return plan.StateView{Serial: 3}, err
}

// hands do nothing, and say what they were told to.
type hands struct{ command.StackCommands }

func (hands) Approve(_ context.Context, _ query.Key, seen query.PlanInfo, _ string) (query.Stack, error) {
	return query.Stack{Approved: seen.Name}, nil
}

func (hands) PlanRollback(_ context.Context, key query.Key, _ string, _ bool) (command.StateChange, error) {
	return command.StateChange{Key: key, Over: "sha256:now", To: stack.StateID{Digest: "sha256:then"}}, nil
}

func (hands) PlanPush(_ context.Context, key query.Key, state []byte, _ bool) (command.StateChange, error) {
	return command.StateChange{Key: key, Over: "sha256:now", To: stack.StateID{Digest: stack.Digest(string(state))}}, nil
}

func (hands) WriteState(context.Context, command.StateChange) error { return nil }

// stackObject is a stack as the cluster has it.
func stackObject(namespace, name string) *v1alpha2.Terraform {
	o := &v1alpha2.Terraform{}
	o.Namespace, o.Name, o.UID = namespace, name, types.UID(namespace+"-"+name)
	o.Spec.Path = "./" + name
	return o
}

// scopeFunc computes the scope of every user each time.
func scopeFunc(f func() access.Scope) func(context.Context, access.User) (access.Scope, error) {
	return func(context.Context, access.User) (access.Scope, error) { return f(), nil }
}
