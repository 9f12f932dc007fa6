package client

import (
	"context"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// commands are what a user has done to stacks.
type commands struct{ stackConn }

func (s *commands) Approve(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error) {
	return doOf[query.Stack](ctx, s.stackConn, key, command.SeenPlan{Name: seen.Name, Digest: seen.Digest, Comment: comment}, "approve")
}

func (s *commands) OverrideWindow(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error) {
	return doOf[query.Stack](ctx, s.stackConn, key, command.SeenPlan{Name: seen.Name, Digest: seen.Digest, Comment: comment}, "override-window")
}

func (s *commands) Reject(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error) {
	return doOf[query.Stack](ctx, s.stackConn, key, command.SeenPlan{Name: seen.Name, Digest: seen.Digest, Comment: comment}, "reject")
}

func (s *commands) AcceptDrift(ctx context.Context, key query.Key, o command.AcceptDriftOrder) (command.AcceptedDrift, error) {
	var out command.AcceptedDrift
	err := key.Check()
	if err == nil {
		err = s.post(ctx, transferTime, o, &out, object(key, "stacks", "drift", "accept")...)
	}
	return out, err
}

func (s *commands) RollBack(ctx context.Context, key query.Key, o command.StackRollback) (command.RollbackTo, error) {
	var out command.RollbackTo
	err := s.do(ctx, key, o, &out, "rollback")
	return out, err
}

func (s *commands) Replan(ctx context.Context, key query.Key) (request string, err error) {
	var asked command.Requested
	err = s.do(ctx, key, struct{}{}, &asked, "replan")
	return asked.Request, err
}

func (s *commands) RerunSteps(ctx context.Context, key query.Key, seen string) (request string, err error) {
	var asked command.Requested
	err = s.do(ctx, key, command.SeenSteps{Digest: seen}, &asked, "rerun-steps")
	return asked.Request, err
}

func (s *commands) Suspend(ctx context.Context, key query.Key) error {
	return s.do(ctx, key, struct{}{}, nil, "suspend")
}

func (s *commands) Resume(ctx context.Context, key query.Key) error {
	return s.do(ctx, key, struct{}{}, nil, "resume")
}

func (s *commands) Unlock(ctx context.Context, key query.Key, id string) error {
	return s.do(ctx, key, command.NamedLock{ID: id}, nil, "unlock")
}

func (s *commands) Cancel(ctx context.Context, key query.Key, run string) (query.Stack, error) {
	var out query.Stack
	err := s.do(ctx, key, command.SeenRun{Run: run}, &out, "cancel")
	return out, err
}

// previewTime bounds a request that waits for a run.
const previewTime = 15 * time.Minute

func (s *commands) PreviewDestroy(ctx context.Context, key query.Key) (query.PlanDocument, error) {
	var doc query.PlanDocument
	err := key.Check()
	if err == nil {
		err = s.post(ctx, previewTime, struct{}{}, &doc, object(key, "stacks", "preview-destroy")...)
	}
	return doc, answered(ctx, key, err)
}

func (s *commands) PlanRepair(ctx context.Context, key query.Key, a command.RepairAnswers) (request string, err error) {
	var asked command.Requested
	err = s.do(ctx, key, a, &asked, "repair-plan")
	return asked.Request, err
}

func (s *commands) Repair(ctx context.Context, key query.Key, seen query.PlanInfo) error {
	return s.do(ctx, key, command.SeenRepair{Name: seen.Name, Digest: seen.Digest}, nil, "repair")
}
