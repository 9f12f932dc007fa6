package stack

import (
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/policy"
)

// Requests is what people ask of a stack. It is kept as far as the audit log has
// it, so that each request is recorded once.
type Requests struct {
	Generation int64  `json:"generation"`
	Approved   string `json:"approved,omitempty"`
	Confirmed  string `json:"confirmed,omitempty"`  // another approval of a plan: see Spec.Confirms
	Approvers  string `json:"approvers,omitempty"`  // who approved which plan, a line each: see ApproversSince
	Overrides  string `json:"overrides,omitempty"`  // of windows: see Spec.OverridesWindow
	Overriders string `json:"overriders,omitempty"` // who wants to override them for which plan, likewise
	Rejected   string `json:"rejected,omitempty"`
	Replan     string `json:"request,omitempty"`
	Ignored    string `json:"forgotten,omitempty"` // the run whose untracked resources a person dealt with
	Repair     string `json:"repair,omitempty"`    // digest
	Accepted   string `json:"accepted,omitempty"`
	Drift      string `json:"drift,omitempty"`    // that is accepted: see AcceptedDrift
	Rerun      string `json:"rerun,omitempty"`    // of the steps after an apply
	Rollback   string `json:"rollback,omitempty"` // or its end: see RollbackRequest
	Adopted    bool   `json:"adopted,omitempty"`
	Cancel     string `json:"cancel,omitempty"`
	Suspended  bool   `json:"suspended,omitempty"`
	Deleting   bool   `json:"deleting,omitempty"`
}

// RequestsOf is what an object of this generation asks for.
func RequestsOf(o Observation, generation int64) Requests {
	s := o.Spec
	r := Requests{
		Generation: generation, Approved: s.Approved, Confirmed: s.Confirms, Rejected: s.Rejected, Replan: o.Replan, Ignored: s.IgnoreUntracked, Overrides: s.OverridesWindow,
		Accepted: s.AcceptState, Drift: s.AcceptsDrift, Rerun: s.Rerun, Rollback: s.RollBack, Adopted: s.AdoptState, Cancel: s.Cancel, Suspended: s.Suspended, Deleting: o.Deleting,
	}
	for _, g := range s.Approvals {
		r.Approvers += g.Plan + "\t" + g.By + "\n"
	}
	for _, g := range s.Overrides {
		r.Overriders += g.Plan + "\t" + g.By + "\n"
	}
	if s.Repair != nil {
		r.Repair = Digest(s.Repair)
	}
	return r
}

// ApproversSince are the approvals that were not there before, the oldest first.
func (r Requests) ApproversSince(before *Requests) []policy.Given {
	if before == nil {
		before = &Requests{}
	}
	return givenSince(r.Approvers, before.Approvers)
}

// OverridersSince are the users who want to override windows and did not before, likewise.
func (r Requests) OverridersSince(before *Requests) []policy.Given {
	if before == nil {
		before = &Requests{}
	}
	return givenSince(r.Overriders, before.Overriders)
}

func givenSince(is, was string) []policy.Given {
	var out []policy.Given
	known := strings.Split(was, "\n")
	for line := range strings.Lines(is) {
		line = strings.TrimSuffix(line, "\n")
		if plan, by, found := strings.Cut(line, "\t"); found && !slices.Contains(known, line) {
			out = append(out, policy.Given{Plan: plan, By: by})
		}
	}
	return out
}

// HasApprover reports whether the approval of a plan by some user is known.
func (r Requests) HasApprover(plan string) bool {
	return strings.HasPrefix(r.Approvers, plan+"\t") || strings.Contains(r.Approvers, "\n"+plan+"\t")
}

// Request names what a person asks for.
type Request string

const (
	AskedToCreate          Request = "Create"
	AskedToApprove         Request = "Approve"
	AskedToConfirm         Request = "Confirm" // the approval of another user
	AskedToOverride        Request = "OverrideWindow"
	AskedToReject          Request = "Reject"
	AskedToSuspend         Request = "Suspend"
	AskedToResume          Request = "Resume"
	AskedToReplan          Request = "Replan"
	AskedToCancel          Request = "Cancel"
	AskedToIgnoreUntracked Request = "IgnoreUntracked"
	AskedToRepair          Request = "Repair"
	AskedToAcceptState     Request = "AcceptState"
	AskedToAcceptDrift     Request = "AcceptDrift"
	AskedToRerunSteps      Request = "RerunSteps"
	AskedToRollBack        Request = "RollBack" // or to end a rollback
	AskedToAdoptState      Request = "AdoptState"
	AskedToDelete          Request = "Delete"
	AskedToChange          Request = "Change" // the spec, in another way than these
)

// Since says what is asked for that was not asked for before. Before is nil for a
// stack of which nothing is known: it was just created.
func (r Requests) Since(before *Requests) []Request {
	var out []Request
	was := Requests{Generation: r.Generation}
	if before != nil {
		was = *before
	}
	for _, one := range []struct {
		asked bool
		as    Request
	}{
		{before == nil, AskedToCreate},
		{r.Approved != was.Approved && r.Approved != "", AskedToApprove},
		{r.Confirmed != was.Confirmed && r.Confirmed != "", AskedToConfirm},
		{r.Overrides != was.Overrides && r.Overrides != "", AskedToOverride},
		{r.Rejected != was.Rejected && r.Rejected != "", AskedToReject},
		{r.Suspended && !was.Suspended, AskedToSuspend},
		{!r.Suspended && was.Suspended, AskedToResume},
		{r.Replan != was.Replan && r.Replan != "" && before != nil, AskedToReplan},
		{r.Cancel != was.Cancel && r.Cancel != "", AskedToCancel},
		{r.Ignored != was.Ignored && r.Ignored != "", AskedToIgnoreUntracked},
		{r.Repair != was.Repair && r.Repair != "", AskedToRepair},
		{r.Accepted != was.Accepted && r.Accepted != "", AskedToAcceptState},
		{r.Drift != was.Drift && r.Drift != "", AskedToAcceptDrift},
		{r.Rerun != was.Rerun && r.Rerun != "" && before != nil, AskedToRerunSteps},
		{r.Rollback != was.Rollback && r.Rollback != "", AskedToRollBack},
		{r.Adopted && !was.Adopted, AskedToAdoptState},
		{r.Deleting && !was.Deleting, AskedToDelete},
		{r.changes(was), AskedToChange},
	} {
		if one.asked {
			out = append(out, one.as)
		}
	}
	return out
}

// changes reports whether the spec changed by more than what was asked for. An
// approval, a suspension and a deletion each count as one change, the latter since
// the API server counts it.
func (r Requests) changes(was Requests) bool {
	more := r.Generation - was.Generation
	return more > 1 || more == 1 && r.Approved == was.Approved && r.Suspended == was.Suspended && r.Deleting == was.Deleting
}
