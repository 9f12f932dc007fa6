package controller

import (
	"context"
	"fmt"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/asker"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// auditedRequests is what people asked of a stack, as far as the audit log has
// it. The record lies beside the status, and is written only when a person
// changed something.
type auditedRequests struct {
	Generation int64  `json:"generation"`
	Approved   string `json:"approved,omitempty"`
	Rejected   string `json:"rejected,omitempty"`
	Request    string `json:"request,omitempty"`
	Forgotten  string `json:"forgotten,omitempty"` // the run whose gap somebody dealt with
	Repair     string `json:"repair,omitempty"`    // digest
	Accepted   string `json:"accepted,omitempty"`
	Adopted    bool   `json:"adopted,omitempty"`
	Suspended  bool   `json:"suspended,omitempty"`
	Deleting   bool   `json:"deleting,omitempty"`
}

func requestsOf(p *pass) auditedRequests {
	s := p.st.Spec
	t := auditedRequests{
		Generation: p.obj.GetGeneration(), Approved: s.Approved, Rejected: s.Rejected, Request: p.st.Request, Forgotten: s.IgnoreUntracked,
		Accepted: s.AcceptState, Adopted: s.AdoptState, Suspended: s.Suspended, Deleting: !p.obj.GetDeletionTimestamp().IsZero(),
	}
	if s.Repair != nil {
		t.Repair = stack.Digest(s.Repair)
	}
	return t
}

// auditedRequests is what the audit log has of the requests of a stack, nil if it
// has none.
func (c *Stacks) auditedRequests(ctx context.Context, e *entry) (*auditedRequests, error) {
	if e.audited != nil {
		return e.audited, nil
	}
	t, err := record.At[auditedRequests](record.Audited(e.id)).Read(ctx, c.Blobs)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which requests are in the audit log: %w", err)
	}
	e.audited = &t
	return &t, nil
}

// auditRequests records what people asked for since the last pass. A request that
// cannot be recorded holds back the runs that write, and nothing else.
func (c *Stacks) auditRequests(ctx context.Context, p *pass) {
	if p.unaudited = c.recordRequests(ctx, p); p.unaudited != nil {
		c.Log.Warn("requests not in the audit log", "stack", client.ObjectKeyFromObject(p.obj).String(), "err", p.unaudited)
	}
}

func (c *Stacks) recordRequests(ctx context.Context, p *pass) error {
	is := requestsOf(p)
	was, err := c.auditedRequests(ctx, p.entry)
	if err != nil || was != nil && *was == is {
		return err
	}
	if was == nil && (p.st.Status.LastRun != "" || p.st.Status.Built || is.Deleting) {
		p.entry.audited = &is // the stack is older than the audit log
		return nil
	}
	for _, d := range newRequests(p, was, is) {
		a, err := asker.Of(ctx, c.Live, p.obj, d.What)
		if err != nil {
			return err
		}
		a.In(&d.Entry)
		if d.What == audit.DeletionAsked {
			d.Who, d.Via, d.Why, d.Details = "", "", "Kubernetes does not keep who deletes; the API server's own audit log does", nil
		}
		if err := c.record(ctx, p, d.Entry, d.once); err != nil {
			return err
		}
	}
	if err := record.At[auditedRequests](record.Audited(p.id)).Write(ctx, c.Blobs, is); err != nil {
		return err
	}
	p.entry.audited = &is
	return nil
}

// newRequests says what people ask for that the audit log does not have yet.
func newRequests(p *pass, was *auditedRequests, is auditedRequests) []deed {
	var out []deed
	generation := strconv.FormatInt(is.Generation, 10)
	add := func(e audit.Entry, once string) { out = append(out, deed{e, once}) }
	fresh := was == nil
	if fresh {
		add(audit.Entry{What: audit.Created}, "")
		was = &auditedRequests{Generation: is.Generation}
	}
	if is.Approved != was.Approved && is.Approved != "" {
		e := decision(p, is.Approved)
		add(e, is.Approved+"/"+generation)
	}
	if is.Rejected != was.Rejected && is.Rejected != "" {
		e := decision(p, is.Rejected)
		e.What = audit.Rejected
		add(e, is.Rejected)
	}
	if is.Suspended != was.Suspended {
		what := audit.Resumed
		if is.Suspended {
			what = audit.Suspended
		}
		add(audit.Entry{What: what}, generation)
	}
	if is.Request != was.Request && is.Request != "" && !fresh {
		add(audit.Entry{What: audit.ReplanAsked, Details: map[string]string{"request": is.Request}}, is.Request)
	}
	if is.Forgotten != was.Forgotten && is.Forgotten != "" {
		add(audit.Entry{What: audit.GapForgotten, Run: is.Forgotten}, is.Forgotten)
	}
	if is.Repair != was.Repair && is.Repair != "" {
		r := p.st.Spec.Repair
		add(audit.Entry{What: audit.RepairAsked, Run: r.Run, Plan: r.Plan, Details: map[string]string{"imports": strconv.Itoa(len(r.IDs)), "absent": strconv.Itoa(len(r.Absent))}}, is.Repair)
	}
	if is.Accepted != was.Accepted && is.Accepted != "" {
		add(audit.Entry{What: audit.StateAccepted, Details: map[string]string{"state": stack.AcceptedState(is.Accepted)}}, is.Accepted)
	}
	if is.Adopted && !was.Adopted {
		add(audit.Entry{What: audit.StateAccepted, Details: map[string]string{"state": "that of a former stack of this name"}}, "adopted/"+generation)
	}
	if is.Deleting && !was.Deleting {
		add(audit.Entry{What: audit.DeletionAsked}, "")
	}
	// The API server counts the deletion as a change of its own.
	if more := is.Generation - was.Generation; more > 1 || more == 1 && is.Approved == was.Approved && is.Suspended == was.Suspended && is.Deleting == was.Deleting {
		add(audit.Entry{What: audit.Changed, Details: map[string]string{"generation": generation}}, generation)
	}
	return out
}

// decision is an approval of what is called said, or of something else than the
// plan that waits.
func decision(p *pass, said string) audit.Entry {
	e := audit.Entry{What: audit.Approved, Comment: p.obj.GetAnnotations()[kube.Comment]}
	m := p.o.Status
	for _, plan := range []*stack.Plan{m.Pending, m.Applied} {
		if plan != nil && (said == plan.Name || said == plan.Digest) {
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
