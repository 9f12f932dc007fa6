package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// states are the states of stacks, and what a user has done to them.
type states struct{ stackConn }

func (s *states) StateVersions(ctx context.Context, key query.Key) (query.KeptStates, error) {
	return getOf[query.KeptStates](ctx, s.stackConn, key, nil, "states")
}

func (s *states) StateOf(ctx context.Context, key query.Key, version string, reveal bool) (plan.StateView, error) {
	params := url.Values{}
	text(params, "version", version)
	flag(params, "reveal", reveal)
	return getOf[plan.StateView](ctx, s.stackConn, key, params, "state")
}

func (s *states) PlanRollback(ctx context.Context, key query.Key, version string, force bool) (c command.StateChange, err error) {
	order := command.RollbackOrder{Version: version, Force: force, Preview: true}
	err = s.do(ctx, key, order, &c, "state", "rollback")
	c.Key, c.Order = key, order
	return c, err
}

func (s *states) PlanPush(ctx context.Context, key query.Key, state []byte, force bool) (c command.StateChange, err error) {
	params := url.Values{"preview": {"true"}}
	flag(params, "force", force)
	err = s.push(ctx, key, state, params, &c)
	c.Key, c.State, c.Force = key, state, force
	return c, err
}

func (s *states) push(ctx context.Context, key query.Key, state []byte, params url.Values, out *command.StateChange) error {
	if err := key.Check(); err != nil {
		return err
	}
	return s.send(ctx, transferTime, http.MethodPost, s.at(params, object(key, "stacks", "state", "push")...), state, out)
}

// transferTime bounds a request that carries a state.
const transferTime = 15 * time.Minute

// WriteState implements command.StateCommands. What is written is what PlanRollback or
// PlanPush prepared: the server prepares it again, and refuses if it comes to
// something else by now.
func (s *states) WriteState(ctx context.Context, c command.StateChange) error {
	if c.State != nil {
		params := url.Values{"over": {c.Over}, "to": {c.To.Digest}}
		flag(params, "force", c.Force)
		return s.push(ctx, c.Key, c.State, params, &command.StateChange{})
	}
	if c.Order.Version == "" {
		return fault.New(fault.Invalid, query.ReasonNoState, fmt.Errorf("the change of the state of %s was not prepared by this server", c.Key))
	}
	order := c.Order
	order.Preview, order.Over, order.To = false, c.Over, c.To.Digest
	return s.do(ctx, c.Key, order, nil, "state", "rollback")
}

func (s *states) LockState(ctx context.Context, key query.Key, reason string) (query.StateLock, error) {
	return doOf[query.StateLock](ctx, s.stackConn, key, command.LockReason{Reason: reason}, "state", "lock")
}

func (s *states) UnlockState(ctx context.Context, key query.Key, id string) (query.StateLock, error) {
	return doOf[query.StateLock](ctx, s.stackConn, key, command.NamedLock{ID: id}, "state", "unlock")
}

func (s *states) AcceptState(ctx context.Context, key query.Key, reason string) (stack.StateID, error) {
	return doOf[stack.StateID](ctx, s.stackConn, key, command.AcceptReason{Reason: reason}, "state", "accept")
}

func (s *states) StateInfos(ctx context.Context, f query.Filter) ([]query.StateInfo, error) {
	params := url.Values{}
	text(params, "namespace", f.Namespace)
	text(params, "name", f.Name)
	text(params, "selector", f.Selector)
	if f.Kind != nil {
		params.Set("kind", *f.Kind)
	}
	return listed[query.StateInfo](ctx, s.conn, s.at(params, "states"))
}

func (s *states) PullState(ctx context.Context, key query.Key, version string) ([]byte, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	params := url.Values{}
	text(params, "version", version)
	return query.ReadState(s.open(ctx, transferTime, s.at(params, object(key, "stacks", "state", "file")...)))
}

func (s *states) StateKeys(ctx context.Context, key query.Key, reason string) (query.StateKeys, error) {
	return doOf[query.StateKeys](ctx, s.stackConn, key, query.KeyReason{Reason: reason}, "state", "keys")
}

func (s *states) RescuedState(ctx context.Context, key query.Key, run string) ([]byte, error) {
	if err := errors.Join(key.Check(), query.CheckStateName(query.RescuedName(run))); err != nil {
		return nil, err
	}
	return query.ReadState(s.open(ctx, transferTime, s.at(nil, object(key, "stacks", "states", query.RescuedName(run))...)))
}
