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

func (s *sessions) BreakGlass(ctx context.Context, key query.Key) (stack.BreakGlass, error) {
	var g stack.BreakGlass
	err := key.Check()
	if err == nil {
		err = s.post(ctx, sessionTime, struct{}{}, &g, object(key, "stacks", "break-glass")...)
	}
	return g, answered(ctx, key, err)
}

func (s *sessions) OrderCommand(ctx context.Context, key query.Key, order command.CommandOrder) (stack.Command, error) {
	return doOf[stack.Command](ctx, s.stackConn, key, order, "break-glass", "run")
}

func (s *sessions) EndBreakGlass(ctx context.Context, key query.Key) error {
	return s.do(ctx, key, struct{}{}, nil, "break-glass", "end")
}
