package controller

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/asker"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// auditedRequests is what the audit log has of the requests of a stack, nil if it
// has none.
func (au *auditor) auditedRequests(ctx context.Context, e *entry) (*stack.Requests, error) {
	if e.audited != nil {
		return e.audited, nil
	}
	r, err := record.At[stack.Requests](record.Audited(e.id)).Read(ctx, au.blobs)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which requests are in the audit log: %w", err)
	}
	e.audited = &r
	return &r, nil
}

// auditRequests records what people asked for since the last pass. A request that
// cannot be recorded blocks the runs that write, and nothing else.
func (au *auditor) auditRequests(ctx context.Context, p *pass) {
	if p.unaudited = au.recordRequests(ctx, p); p.unaudited != nil {
		au.log.Warn("requests not in the audit log", "stack", client.ObjectKeyFromObject(p.obj).String(), "err", p.unaudited)
	}
}

func (au *auditor) recordRequests(ctx context.Context, p *pass) error {
	is := stack.RequestsOf(p.o, p.obj.GetGeneration())
	was, err := au.auditedRequests(ctx, p.entry)
	if err != nil || was != nil && *was == is {
		return err
	}
	if was == nil && (p.st.Status.LastRun != "" || p.st.Status.Created || is.Deleting) {
		p.entry.audited = &is // the stack is older than the audit log
		return nil
	}
	if err := takesTurn(p, is.Since(was)); err != nil {
		return err
	}
	believed, err := au.believes(ctx, p)
	if err != nil {
		return err
	}
	if !believed {
		is.Approvers, is.Overriders = "", ""
	}
	approvals := is.ApproversSince(was)
	for _, r := range is.Since(was) {
		e, once := requestEntry(p, r, is)
		a, err := asker.Of(ctx, au.live, p.obj, e.What)
		if err != nil {
			return err
		}
		if !believed {
			a = a.Unverified()
		}
		if r == stack.AskedToApprove || r == stack.AskedToConfirm {
			if err := au.recordApprovals(ctx, p, approvals, a, is); err != nil {
				return err
			}
			approvals = nil
			if is.HasApprover(approvedIn(r, is)) {
				continue // each user who approved is recorded, and was recorded once
			}
		}
		if by := is.OverridersSince(was); r == stack.AskedToOverride && len(by) > 0 {
			if err := au.recordOverrides(ctx, p, by, a, is); err != nil {
				return err
			}
			continue
		}
		a.In(&e)
		if r == stack.AskedToDelete {
			e.Who, e.Claimed, e.Via, e.Why, e.Details = "", "", "", "Kubernetes does not keep who deletes; the API server's own audit log does", nil
		}
		if err := au.record(ctx, p, e, once); err != nil {
			return err
		}
	}
	if err := record.At[stack.Requests](record.Audited(p.id)).Write(ctx, au.blobs, is); err != nil {
		return err
	}
	p.entry.audited = &is
	return nil
}

// How often requests of one stack are recorded that have a line each, however often they change. Those
// that came in between were never seen: the object has the newest ones alone.
const (
	turnsAtOnce = 60
	turnsEvery  = time.Minute
)

// takesTurn returns an error if requests of a stack have to wait until they are recorded. Until then no run
// begins that writes, so nothing comes of a request that is not in the audit log. Requests that the
// log counts by itself do not wait, and the first and the last of an object do not.
func takesTurn(p *pass, asked []stack.Request) error {
	if !slices.ContainsFunc(asked, hasALine) || slices.Contains(asked, stack.AskedToCreate) || slices.Contains(asked, stack.AskedToDelete) {
		return nil
	}
	if p.entry.turns == nil {
		p.entry.turns = rate.NewLimiter(rate.Every(turnsEvery), turnsAtOnce)
	}
	r := p.entry.turns.ReserveN(p.o.Now, 1)
	wait := r.DelayFrom(p.o.Now)
	if wait == 0 {
		return nil
	}
	r.CancelAt(p.o.Now)
	p.recheckIn(wait)
	return fault.Wait(wait, "TooManyRequests", fmt.Errorf("users approve, reject or decide about this stack more often than once in %s: the newest requests are recorded in %s", turnsEvery, wait.Round(time.Second)))
}

// hasALine reports whether each request of a sort is recorded by itself, which decides what becomes of
// resources.
func hasALine(r stack.Request) bool {
	switch r {
	case stack.AskedToSuspend, stack.AskedToResume, stack.AskedToReplan, stack.AskedToCancel, stack.AskedToChange:
		return false
	default:
		return true
	}
}

// approvedIn is the plan that a request approves.
func approvedIn(r stack.Request, is stack.Requests) string {
	if r == stack.AskedToApprove {
		return is.Approved
	}
	plan, _, _ := strings.Cut(is.Confirmed, " ")
	return plan
}

// recordApprovals records the approvals of users, each once. The newest is that of a. The
// program by which the others wrote is not known.
func (au *auditor) recordApprovals(ctx context.Context, p *pass, given []policy.Given, a asker.Asker, is stack.Requests) error {
	for _, g := range given {
		e, by := decision(p, g.Plan), a
		if by.Who != g.By {
			by, e.Comment = asker.Asker{Who: g.By, Manager: a.Manager}, ""
		}
		by.In(&e)
		if err := au.record(ctx, p, e, g.Plan+"/"+g.By+"/"+is.Confirmed+"/"+strconv.FormatInt(is.Generation, 10)); err != nil {
			return err
		}
	}
	return nil
}

// recordOverrides records who wants a plan to be applied outside of windows, each user once.
func (au *auditor) recordOverrides(ctx context.Context, p *pass, given []policy.Given, a asker.Asker, is stack.Requests) error {
	for _, g := range given {
		e, by := override(p, g.Plan), a
		if by.Who != g.By {
			by, e.Comment = asker.Asker{Who: g.By, Manager: a.Manager}, ""
		}
		by.In(&e)
		if err := au.record(ctx, p, e, g.Plan+"/"+g.By+"/"+is.Overrides); err != nil {
			return err
		}
	}
	return nil
}

// override is the wish to have the plan called said applied outside of windows.
func override(p *pass, said string) audit.Entry {
	e := decision(p, said)
	e.What = audit.WindowOverridden
	return e
}

// believes reports whether the stamps on the object are the API server's, as far as that is
// known. An API server that does not answer now is asked again.
func (au *auditor) believes(ctx context.Context, p *pass) (bool, error) {
	if au.stamps == nil {
		return true, nil
	}
	epoch, err := au.stamps.Epoch(ctx)
	if fault.Of(err) == fault.Later {
		return false, err
	}
	return err == nil && epoch == p.st.Spec.Stamped, nil
}

// requestEntry is one request as the audit log has it, and what tells it from
// others of its sort.
func requestEntry(p *pass, r stack.Request, is stack.Requests) (e audit.Entry, once string) {
	generation := strconv.FormatInt(is.Generation, 10)
	switch r {
	case stack.AskedToCreate:
		return audit.Entry{What: audit.Created}, ""
	case stack.AskedToApprove:
		return decision(p, is.Approved), is.Approved + "/" + generation
	case stack.AskedToConfirm:
		plan, _, _ := strings.Cut(is.Confirmed, " ")
		return decision(p, plan), is.Confirmed
	case stack.AskedToOverride:
		plan, _, _ := strings.Cut(is.Overrides, " ")
		return override(p, plan), is.Overrides
	case stack.AskedToReject:
		return rejection(p, is.Rejected), is.Rejected
	case stack.AskedToSuspend:
		return audit.Entry{What: audit.Suspended}, generation
	case stack.AskedToResume:
		return audit.Entry{What: audit.Resumed}, generation
	case stack.AskedToReplan:
		return audit.Entry{What: audit.ReplanAsked, Details: map[string]string{"request": is.Replan}}, is.Replan
	case stack.AskedToCancel:
		return audit.Entry{What: audit.CancelAsked, Run: is.Cancel}, is.Cancel
	case stack.AskedToIgnoreUntracked:
		return audit.Entry{What: audit.UntrackedIgnored, Run: is.Ignored}, is.Ignored
	case stack.AskedToRepair:
		r := p.o.Spec.Repair
		return audit.Entry{What: audit.RepairAsked, Run: r.Run, Plan: r.Plan, Details: map[string]string{"imports": strconv.Itoa(len(r.IDs)), "absent": strconv.Itoa(len(r.Absent))}}, is.Repair
	case stack.AskedToAcceptState:
		return audit.Entry{What: audit.StateAccepted, Why: stack.AcceptedWhy(is.Accepted), Details: map[string]string{"state": stack.AcceptedState(is.Accepted)}}, is.Accepted
	case stack.AskedToAcceptDrift:
		return acceptance(p, is.Drift), is.Drift
	case stack.AskedToRerunSteps:
		steps, _, _ := strings.Cut(is.Rerun, "@")
		e := audit.Entry{What: audit.StepsRerunAsked, Details: map[string]string{"request": is.Rerun}}
		if known := stack.KnownSteps(p.o.Status); known != nil && steps == stack.ShortSteps(known.Approvable()) {
			e.Details["steps"] = known.Approvable() // such a request approves them, too
		}
		return e, is.Rerun
	case stack.AskedToRollBack:
		names, why, _ := stack.ReadRollbackRequest(is.Rollback)
		e := audit.Entry{What: audit.RollbackAsked, Why: why, Details: map[string]string{"request": is.Rollback, "from": names}}
		if names == stack.EndRollback {
			e.What = audit.RollbackEndAsked
		}
		return e, is.Rollback
	case stack.AskedToAdoptState:
		return audit.Entry{What: audit.StateAccepted, Details: map[string]string{"state": "that of a former stack of this name"}}, "adopted/" + generation
	case stack.AskedToDelete:
		return audit.Entry{What: audit.DeletionAsked}, ""
	default: // AskedToChange
		return audit.Entry{What: audit.Changed, Details: map[string]string{"generation": generation}}, generation
	}
}

// acceptance is the acceptance of drift: the plan that would have enforced the configuration
// says which.
func acceptance(p *pass, said string) audit.Entry {
	a, _ := stack.ParseAcceptedDrift(said)
	e := audit.Entry{What: audit.DriftAccepted, Why: a.Why}
	if m := p.o.Status.Pending; m != nil && (m.Digest == a.Plan || m.Is(a.Plan)) {
		planIn(&e, m)
	}
	if e.Details == nil {
		e.Details = map[string]string{}
	}
	e.Details["drift"], e.Details["until"], e.Details["way"] = a.Plan, a.Until.UTC().Format(time.RFC3339), a.Way()
	return e
}

// rejection is a rejection of the plan called said. It is too late for one that is not
// pending, or whose run has begun.
func rejection(p *pass, said string) audit.Entry {
	e, m := decision(p, said), p.o.Status
	pending := m.Pending.Is(said)
	e.What = audit.Rejected
	switch r := p.o.Run; {
	case pending && r != nil && r.Kind.Applies():
		e.What, e.Run = audit.RejectedLate, r.ID
	case !pending:
		e.What = audit.RejectedLate
	}
	return e
}

// decision is an approval of the plan called said, which need not be the pending
// plan.
func decision(p *pass, said string) audit.Entry {
	e := audit.Entry{What: audit.Approved, Comment: p.obj.GetAnnotations()[kube.Comment]}
	m := p.o.Status
	if known := stack.KnownSteps(m); known != nil && said == stack.ShortSteps(known.Approvable()) {
		e.Details = map[string]string{"steps": known.Approvable()}
		return e
	}
	for _, plan := range []*stack.Plan{m.Pending, m.Applied} {
		if plan.Is(said) {
			planIn(&e, plan)
			return e
		}
	}
	e.What, e.Plan = audit.ApprovedStale, said
	if m.Pending != nil {
		e.Details = map[string]string{"waiting": m.Pending.Name}
	}
	return e
}
