package service

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
)

// NewestRun stands for the newest run in an address.
const NewestRun = "newest"

// List implements StackReader. The server knows stacks a moment later than the
// cluster does.
func (s *RemoteStacks) List(ctx context.Context, f Filter) ([]Stack, error) {
	out := []Stack{}
	// All that somebody may see of all namespaces may be less than all; of one that
	// they name, it is all or it is Denied.
	parts := []string{"stacks"}
	if f.Namespace != "" {
		if err := (Key{f.Namespace, "any"}).check(); err != nil {
			return nil, err
		}
		parts = []string{"namespaces", f.Namespace, "stacks"}
	}
	q := BoardQuery{Selector: f.Selector, Text: f.Name, Limit: boardPage}
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
			sortStacks(out)
			return out, nil
		}
	}
}

// boardPage is how many rows are asked for at once.
const boardPage = 1000

// Page returns the rows that q chooses of those that the caller may see.
func (s *RemoteStacks) Page(ctx context.Context, q BoardQuery) (BoardPage, error) {
	return s.page(ctx, q, "stacks")
}

func (s *RemoteStacks) page(ctx context.Context, q BoardQuery, parts ...string) (BoardPage, error) {
	var page BoardPage
	query := url.Values{}
	text(query, "q", q.Text)
	for _, status := range q.Statuses {
		query.Add("status", string(status))
	}
	text(query, "namespace", q.Namespace)
	text(query, "tenant", q.Tenant)
	text(query, "selector", q.Selector)
	text(query, "group", q.Group)
	text(query, "sort", q.Sort)
	if q.Offset > 0 {
		query.Set("offset", strconv.Itoa(q.Offset))
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	err := s.r.json(ctx, &page, s.r.at(query, parts...))
	return page, err
}

// get reads what there is about one stack.
func (s *RemoteStacks) get(ctx context.Context, key Key, out any, query url.Values, more ...string) error {
	if err := key.check(); err != nil {
		return err
	}
	return s.r.json(ctx, out, s.r.at(query, object(key, "stacks", more...)...))
}

func getOf[T any](ctx context.Context, s *RemoteStacks, key Key, query url.Values, more ...string) (T, error) {
	var out T
	err := s.get(ctx, key, &out, query, more...)
	return out, err
}

// Get implements StackReader.
func (s *RemoteStacks) Get(ctx context.Context, key Key) (Stack, error) {
	d, err := s.Describe(ctx, key)
	return d.Stack, err
}

// Describe implements StackReader.
func (s *RemoteStacks) Describe(ctx context.Context, key Key) (Detail, error) {
	return getOf[Detail](ctx, s, key, nil)
}

// Explain implements StackReader.
func (s *RemoteStacks) Explain(ctx context.Context, key Key) (Explanation, error) {
	return getOf[Explanation](ctx, s, key, nil, "explain")
}

// Runs implements StackReader.
func (s *RemoteStacks) Runs(ctx context.Context, key Key) ([]Report, error) {
	var list struct {
		Items []Report `json:"items"`
	}
	err := s.get(ctx, key, &list, nil, "runs")
	return list.Items, err
}

// Run implements StackReader.
func (s *RemoteStacks) Run(ctx context.Context, key Key, run string) (Report, error) {
	if err := checkRun(key, run); err != nil {
		return Report{}, err
	}
	return getOf[Report](ctx, s, key, nil, "runs", orNewest(run))
}

// checkRun refuses what would be cleaned away in an address before it is sent:
// then something else would be asked for.
func checkRun(key Key, run string) error {
	if err := key.check(); err != nil {
		return err
	}
	return checkID(StackID{UID: "any"}, orNewest(run))
}

func orNewest(run string) string {
	if run == "" {
		return NewestRun
	}
	return run
}

// Log implements StackReader.
func (s *RemoteStacks) Log(ctx context.Context, key Key, run string, follow bool) (io.ReadCloser, error) {
	if err := checkRun(key, run); err != nil {
		return nil, err
	}
	return s.r.Log(ctx, StackID{Key: key}, orNewest(run), follow)
}

// Plan implements StackReader.
func (s *RemoteStacks) Plan(ctx context.Context, key Key, digest string) (PlanDocument, error) {
	query := url.Values{}
	text(query, "digest", digest)
	return getOf[PlanDocument](ctx, s, key, query, "plan")
}

// StateVersions implements StackReader.
func (s *RemoteStacks) StateVersions(ctx context.Context, key Key) (KeptStates, error) {
	return getOf[KeptStates](ctx, s, key, nil, "states")
}

// StateOf implements StackReader.
func (s *RemoteStacks) StateOf(ctx context.Context, key Key, version string, reveal bool) (plan.StateView, error) {
	query := url.Values{}
	text(query, "version", version)
	flag(query, "reveal", reveal)
	return getOf[plan.StateView](ctx, s, key, query, "state")
}

// do has one command carried out on a stack.
func (s *RemoteStacks) do(ctx context.Context, key Key, in, out any, more ...string) error {
	if err := key.check(); err != nil {
		return err
	}
	return s.r.post(ctx, commandTime, in, out, object(key, "stacks", more...)...)
}

func doOf[T any](ctx context.Context, s *RemoteStacks, key Key, in any, more ...string) (T, error) {
	var out T
	err := s.do(ctx, key, in, &out, more...)
	return out, err
}

// Approve implements StackCommands.
func (s *RemoteStacks) Approve(ctx context.Context, key Key, seen PlanInfo, comment string) (Stack, error) {
	return doOf[Stack](ctx, s, key, SeenPlan{seen.Name, seen.Digest, comment}, "approve")
}

// Reject implements StackCommands.
func (s *RemoteStacks) Reject(ctx context.Context, key Key, seen PlanInfo, comment string) (Stack, error) {
	return doOf[Stack](ctx, s, key, SeenPlan{seen.Name, seen.Digest, comment}, "reject")
}

// Replan implements StackCommands.
func (s *RemoteStacks) Replan(ctx context.Context, key Key) (request string, err error) {
	var asked Requested
	err = s.do(ctx, key, struct{}{}, &asked, "replan")
	return asked.Request, err
}

// Suspend implements StackCommands.
func (s *RemoteStacks) Suspend(ctx context.Context, key Key) error {
	return s.do(ctx, key, struct{}{}, nil, "suspend")
}

// Resume implements StackCommands.
func (s *RemoteStacks) Resume(ctx context.Context, key Key) error {
	return s.do(ctx, key, struct{}{}, nil, "resume")
}

// Unlock implements StackCommands.
func (s *RemoteStacks) Unlock(ctx context.Context, key Key, id string) error {
	return s.do(ctx, key, NamedLock{id}, nil, "unlock")
}

// glassTime bounds a request that waits for the controller.
const glassTime = 2 * time.Minute

// BreakGlass implements StackCommands.
func (s *RemoteStacks) BreakGlass(ctx context.Context, key Key) (stack.Glass, error) {
	var g stack.Glass
	err := key.check()
	if err == nil {
		err = s.r.post(ctx, glassTime, struct{}{}, &g, object(key, "stacks", "break-glass")...)
	}
	return g, err
}

// OrderByHand implements StackCommands.
func (s *RemoteStacks) OrderByHand(ctx context.Context, key Key, order HandOrder) (stack.Command, error) {
	return doOf[stack.Command](ctx, s, key, order, "break-glass", "run")
}

// EndGlass implements StackCommands.
func (s *RemoteStacks) EndGlass(ctx context.Context, key Key) error {
	return s.do(ctx, key, struct{}{}, nil, "break-glass", "end")
}

// previewTime bounds a request that waits for a run.
const previewTime = 15 * time.Minute

// PreviewDestroy implements StackCommands.
func (s *RemoteStacks) PreviewDestroy(ctx context.Context, key Key) (PlanDocument, error) {
	var doc PlanDocument
	err := key.check()
	if err == nil {
		err = s.r.post(ctx, previewTime, struct{}{}, &doc, object(key, "stacks", "preview-destroy")...)
	}
	return doc, err
}

// PlanRepair implements StackCommands.
func (s *RemoteStacks) PlanRepair(ctx context.Context, key Key, a RepairAnswers) (request string, err error) {
	var asked Requested
	err = s.do(ctx, key, a, &asked, "repair-plan")
	return asked.Request, err
}

// Repair implements StackCommands.
func (s *RemoteStacks) Repair(ctx context.Context, key Key, seen PlanInfo) error {
	return s.do(ctx, key, SeenRepair{seen.Name, seen.Digest}, nil, "repair")
}

// PlanRollback implements StackCommands.
func (s *RemoteStacks) PlanRollback(ctx context.Context, key Key, version string, force bool) (c StateChange, err error) {
	order := RollbackOrder{Version: version, Force: force, Preview: true}
	err = s.do(ctx, key, order, &c, "state", "rollback")
	c.Key, c.order = key, order
	return c, err
}

// PlanPush implements StackCommands.
func (s *RemoteStacks) PlanPush(ctx context.Context, key Key, state []byte, force bool) (c StateChange, err error) {
	query := url.Values{"preview": {"true"}}
	flag(query, "force", force)
	err = s.push(ctx, key, state, query, &c)
	c.Key, c.state, c.force = key, state, force
	return c, err
}

func (s *RemoteStacks) push(ctx context.Context, key Key, state []byte, query url.Values, out *StateChange) error {
	if err := key.check(); err != nil {
		return err
	}
	return s.r.send(ctx, pushTime, state, out, s.r.at(query, object(key, "stacks", "state", "push")...))
}

// pushTime bounds a request that carries a state.
const pushTime = 15 * time.Minute

// WriteState implements StackCommands. What is written is what PlanRollback or
// PlanPush prepared: the server prepares it again, and refuses if it comes to
// something else by now.
func (s *RemoteStacks) WriteState(ctx context.Context, c StateChange) error {
	if c.state != nil {
		query := url.Values{"over": {c.Over}, "to": {c.To.Digest}}
		flag(query, "force", c.force)
		return s.push(ctx, c.Key, c.state, query, &StateChange{})
	}
	if c.order.Version == "" {
		return fault.New(fault.Invalid, ReasonNoState, fmt.Errorf("the change of the state of %s was not prepared by this server", c.Key))
	}
	order := c.order
	order.Preview, order.Over, order.To = false, c.Over, c.To.Digest
	return s.do(ctx, c.Key, order, nil, "state", "rollback")
}

// LockState implements StackCommands.
func (s *RemoteStacks) LockState(ctx context.Context, key Key, reason string) (StateLock, error) {
	return doOf[StateLock](ctx, s, key, LockReason{reason}, "state", "lock")
}

// UnlockState implements StackCommands.
func (s *RemoteStacks) UnlockState(ctx context.Context, key Key, id string) (StateLock, error) {
	return doOf[StateLock](ctx, s, key, NamedLock{id}, "state", "unlock")
}

// AcceptState implements StackCommands.
func (s *RemoteStacks) AcceptState(ctx context.Context, key Key) (stack.Known, error) {
	return doOf[stack.Known](ctx, s, key, struct{}{}, "state", "accept")
}
