package client

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// List implements StackReader. The server knows stacks a moment later than the
// cluster does.
func (s *Stacks) List(ctx context.Context, f query.Filter) ([]query.Stack, error) {
	out := []query.Stack{}
	// All that somebody may see of all namespaces may be less than all; of one that
	// they name, it is all or it is Denied.
	parts := []string{"stacks"}
	if f.Namespace != "" {
		if err := (query.Key{Namespace: f.Namespace, Name: "any"}).Check(); err != nil {
			return nil, err
		}
		parts = []string{"namespaces", f.Namespace, "stacks"}
	}
	q := query.BoardQuery{Selector: f.Selector, Text: f.Name, Limit: boardPage}
	for {
		page, err := s.page(ctx, q, parts...)
		if err != nil {
			return nil, err
		}
		for _, row := range page.Items {
			if f.Name == "" || row.Name == f.Name {
				out = append(out, row.Stack)
			}
		}
		if q.Offset += len(page.Items); len(page.Items) == 0 || q.Offset >= page.Total {
			query.SortStacks(out)
			return out, nil
		}
	}
}

// boardPage is how many rows are asked for at once.
const boardPage = 1000

// Page returns the rows that q chooses of those that the caller may see.
func (s *Stacks) Page(ctx context.Context, q query.BoardQuery) (query.BoardPage, error) {
	return s.page(ctx, q, "stacks")
}

func (s *Stacks) page(ctx context.Context, q query.BoardQuery, parts ...string) (query.BoardPage, error) {
	var page query.BoardPage
	params := url.Values{}
	text(params, "q", q.Text)
	for _, status := range q.Statuses {
		params.Add("status", string(status))
	}
	text(params, "namespace", q.Namespace)
	text(params, "tenant", q.Tenant)
	text(params, "selector", q.Selector)
	text(params, "group", q.Group)
	text(params, "sort", q.Sort)
	if q.Offset > 0 {
		params.Set("offset", strconv.Itoa(q.Offset))
	}
	if q.Limit > 0 {
		params.Set("limit", strconv.Itoa(q.Limit))
	}
	err := s.r.json(ctx, &page, s.r.at(params, parts...))
	return page, err
}

// get reads what there is about one stack.
func (s *Stacks) get(ctx context.Context, key query.Key, out any, params url.Values, more ...string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return s.r.json(ctx, out, s.r.at(params, object(key, "stacks", more...)...))
}

func getOf[T any](ctx context.Context, s *Stacks, key query.Key, params url.Values, more ...string) (T, error) {
	var out T
	err := s.get(ctx, key, &out, params, more...)
	return out, err
}

// Get implements StackReader.
func (s *Stacks) Get(ctx context.Context, key query.Key) (query.Stack, error) {
	d, err := s.Describe(ctx, key)
	return d.Stack, err
}

// Describe implements StackReader.
func (s *Stacks) Describe(ctx context.Context, key query.Key) (query.Detail, error) {
	return getOf[query.Detail](ctx, s, key, nil)
}

// Explain implements StackReader.
func (s *Stacks) Explain(ctx context.Context, key query.Key) (query.Explanation, error) {
	return getOf[query.Explanation](ctx, s, key, nil, "explain")
}

// Runs implements StackReader.
func (s *Stacks) Runs(ctx context.Context, key query.Key) ([]query.Report, error) {
	var list struct {
		Items []query.Report `json:"items"`
	}
	err := s.get(ctx, key, &list, nil, "runs")
	return list.Items, err
}

// Run implements StackReader.
func (s *Stacks) Run(ctx context.Context, key query.Key, run string) (query.Report, error) {
	if err := checkRun(key, run); err != nil {
		return query.Report{}, err
	}
	return getOf[query.Report](ctx, s, key, nil, "runs", orNewest(run))
}

// checkRun refuses what would be cleaned away in an address before it is sent:
// then something else would be asked for.
func checkRun(key query.Key, run string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return query.CheckID(query.StackID{UID: "any"}, orNewest(run))
}

func orNewest(run string) string {
	if run == "" {
		return command.NewestRun
	}
	return run
}

// Log implements StackReader.
func (s *Stacks) Log(ctx context.Context, key query.Key, run string, follow bool) (io.ReadCloser, error) {
	if err := checkRun(key, run); err != nil {
		return nil, err
	}
	return s.r.Log(ctx, query.StackID{Key: key}, orNewest(run), follow)
}

// Plan implements StackReader.
func (s *Stacks) Plan(ctx context.Context, key query.Key, digest string) (query.PlanDocument, error) {
	params := url.Values{}
	text(params, "digest", digest)
	return getOf[query.PlanDocument](ctx, s, key, params, "plan")
}

// StateVersions implements StackReader.
func (s *Stacks) StateVersions(ctx context.Context, key query.Key) (query.KeptStates, error) {
	return getOf[query.KeptStates](ctx, s, key, nil, "states")
}

// StateOf implements StackReader.
func (s *Stacks) StateOf(ctx context.Context, key query.Key, version string, reveal bool) (plan.StateView, error) {
	params := url.Values{}
	text(params, "version", version)
	flag(params, "reveal", reveal)
	return getOf[plan.StateView](ctx, s, key, params, "state")
}

// do has one command carried out on a stack.
func (s *Stacks) do(ctx context.Context, key query.Key, in, out any, more ...string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return s.r.post(ctx, commandTime, in, out, object(key, "stacks", more...)...)
}

func doOf[T any](ctx context.Context, s *Stacks, key query.Key, in any, more ...string) (T, error) {
	var out T
	err := s.do(ctx, key, in, &out, more...)
	return out, err
}

// Approve implements StackCommands.
func (s *Stacks) Approve(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error) {
	return doOf[query.Stack](ctx, s, key, command.SeenPlan{Name: seen.Name, Digest: seen.Digest, Comment: comment}, "approve")
}

// Reject implements StackCommands.
func (s *Stacks) Reject(ctx context.Context, key query.Key, seen query.PlanInfo, comment string) (query.Stack, error) {
	return doOf[query.Stack](ctx, s, key, command.SeenPlan{Name: seen.Name, Digest: seen.Digest, Comment: comment}, "reject")
}

// Replan implements StackCommands.
func (s *Stacks) Replan(ctx context.Context, key query.Key) (request string, err error) {
	var asked command.Requested
	err = s.do(ctx, key, struct{}{}, &asked, "replan")
	return asked.Request, err
}

// Suspend implements StackCommands.
func (s *Stacks) Suspend(ctx context.Context, key query.Key) error {
	return s.do(ctx, key, struct{}{}, nil, "suspend")
}

// Resume implements StackCommands.
func (s *Stacks) Resume(ctx context.Context, key query.Key) error {
	return s.do(ctx, key, struct{}{}, nil, "resume")
}

// Unlock implements StackCommands.
func (s *Stacks) Unlock(ctx context.Context, key query.Key, id string) error {
	return s.do(ctx, key, command.NamedLock{ID: id}, nil, "unlock")
}

// glassTime bounds a request that waits for the controller.
const glassTime = 2 * time.Minute

// BreakGlass implements StackCommands.
func (s *Stacks) BreakGlass(ctx context.Context, key query.Key) (stack.BreakGlass, error) {
	var g stack.BreakGlass
	err := key.Check()
	if err == nil {
		err = s.r.post(ctx, glassTime, struct{}{}, &g, object(key, "stacks", "break-glass")...)
	}
	return g, err
}

// OrderByHand implements StackCommands.
func (s *Stacks) OrderByHand(ctx context.Context, key query.Key, order command.HandOrder) (stack.Command, error) {
	return doOf[stack.Command](ctx, s, key, order, "break-glass", "run")
}

// EndGlass implements StackCommands.
func (s *Stacks) EndGlass(ctx context.Context, key query.Key) error {
	return s.do(ctx, key, struct{}{}, nil, "break-glass", "end")
}

// previewTime bounds a request that waits for a run.
const previewTime = 15 * time.Minute

// PreviewDestroy implements StackCommands.
func (s *Stacks) PreviewDestroy(ctx context.Context, key query.Key) (query.PlanDocument, error) {
	var doc query.PlanDocument
	err := key.Check()
	if err == nil {
		err = s.r.post(ctx, previewTime, struct{}{}, &doc, object(key, "stacks", "preview-destroy")...)
	}
	return doc, err
}

// PlanRepair implements StackCommands.
func (s *Stacks) PlanRepair(ctx context.Context, key query.Key, a command.RepairAnswers) (request string, err error) {
	var asked command.Requested
	err = s.do(ctx, key, a, &asked, "repair-plan")
	return asked.Request, err
}

// Repair implements StackCommands.
func (s *Stacks) Repair(ctx context.Context, key query.Key, seen query.PlanInfo) error {
	return s.do(ctx, key, command.SeenRepair{Name: seen.Name, Digest: seen.Digest}, nil, "repair")
}

// PlanRollback implements StackCommands.
func (s *Stacks) PlanRollback(ctx context.Context, key query.Key, version string, force bool) (c command.StateChange, err error) {
	order := command.RollbackOrder{Version: version, Force: force, Preview: true}
	err = s.do(ctx, key, order, &c, "state", "rollback")
	c.Key, c.Order = key, order
	return c, err
}

// PlanPush implements StackCommands.
func (s *Stacks) PlanPush(ctx context.Context, key query.Key, state []byte, force bool) (c command.StateChange, err error) {
	params := url.Values{"preview": {"true"}}
	flag(params, "force", force)
	err = s.push(ctx, key, state, params, &c)
	c.Key, c.State, c.Force = key, state, force
	return c, err
}

func (s *Stacks) push(ctx context.Context, key query.Key, state []byte, params url.Values, out *command.StateChange) error {
	if err := key.Check(); err != nil {
		return err
	}
	return s.r.send(ctx, pushTime, state, out, s.r.at(params, object(key, "stacks", "state", "push")...))
}

// pushTime bounds a request that carries a state.
const pushTime = 15 * time.Minute

// WriteState implements StackCommands. What is written is what PlanRollback or
// PlanPush prepared: the server prepares it again, and refuses if it comes to
// something else by now.
func (s *Stacks) WriteState(ctx context.Context, c command.StateChange) error {
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

// LockState implements StackCommands.
func (s *Stacks) LockState(ctx context.Context, key query.Key, reason string) (query.StateLock, error) {
	return doOf[query.StateLock](ctx, s, key, command.LockReason{Reason: reason}, "state", "lock")
}

// UnlockState implements StackCommands.
func (s *Stacks) UnlockState(ctx context.Context, key query.Key, id string) (query.StateLock, error) {
	return doOf[query.StateLock](ctx, s, key, command.NamedLock{ID: id}, "state", "unlock")
}

// AcceptState implements StackCommands.
func (s *Stacks) AcceptState(ctx context.Context, key query.Key) (stack.Known, error) {
	return doOf[stack.Known](ctx, s, key, struct{}{}, "state", "accept")
}
