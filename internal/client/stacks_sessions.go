package client

import (
	"context"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// sessions are break-glass sessions.
type sessions struct{ stackConn }

// sessionTime bounds a request that waits for the controller.
const sessionTime = 2 * time.Minute

// BreakGlass implements command.SessionCommands.
func (s *sessions) BreakGlass(ctx context.Context, key query.Key) (stack.BreakGlass, error) {
	var g stack.BreakGlass
	err := key.Check()
	if err == nil {
		err = s.post(ctx, sessionTime, struct{}{}, &g, object(key, "stacks", "break-glass")...)
	}
	return g, answered(ctx, key, err)
}

// OrderByHand implements command.SessionCommands.
func (s *sessions) OrderByHand(ctx context.Context, key query.Key, order command.HandOrder) (stack.Command, error) {
	return doOf[stack.Command](ctx, s.stackConn, key, order, "break-glass", "run")
}

// EndGlass implements command.SessionCommands.
func (s *sessions) EndGlass(ctx context.Context, key query.Key) error {
	return s.do(ctx, key, struct{}{}, nil, "break-glass", "end")
}
