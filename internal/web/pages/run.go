package pages

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/planview"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// runPage is one run: its cause, its steps and its outcome, and the runs before
// and after it.
type runPage struct {
	Head        stackHead
	Report      query.Report
	Kind        string
	Pill        ui.Pill
	Cause       stack.Cause
	Took        time.Duration
	Goes        bool // the run has not ended
	Why         string
	Asked       string // the request that caused it, if it is a time
	Isolation   string
	CPU         time.Duration
	RSS         int64
	Stages      []stage
	Diagnostics []planview.Diagnostic
	Failed      bool // the messages of the engine come first
	Providers   []stage
	Health      []healthCheck
	Verdict     *query.Verdict // what policies find in that plan
	Plan        string         // the address of the plan that it created or applies
	PlanName    string
	Log         string
	Newer       *runLink
	Older       *runLink
}

type runLink struct{ ID, Href, Kind string }

type healthCheck struct {
	Name string
	Pill ui.Pill
	Text string
}

// Run shows one run of a stack.
func Run(v *Visit) (Page, error) {
	head, err := headOf(v, tabRuns)
	if err != nil {
		return Page{}, err
	}
	report, err := v.Backend.Stacks.Run(v.Context, v.Key(), v.Names["run"])
	if err != nil {
		return Page{}, err
	}
	// The page is about one run. If the others cannot be listed, it only lacks the
	// links to them.
	others, _ := v.Backend.Stacks.Runs(v.Context, v.Key())
	p := runPageOf(head, report, others, v.Now)
	p.decided(v)
	if p.Verdict, err = verdictOn(v, p.Head.Stack, p.digest()); err != nil {
		return Page{}, err
	}
	page := stackPage(v, "run", report.ID, p)
	if p.Goes {
		page.Live.Every = liveRun
	}
	return page, nil
}

// liveRun is how often the page of an active run refreshes: not every step is
// a change of its stack.
const liveRun = 3 * time.Second

func runPageOf(head stackHead, r query.Report, others []query.Report, now time.Time) runPage {
	k := head.Stack.Key()
	p := runPage{Head: head, Report: r, Kind: turnWord(r.Kind), Pill: runPill(r, head.Stack), Cause: noteOf(r).Cause, Isolation: isolation(r.Level), Log: runPath(k, r.ID) + "/log"}
	p.Goes = r.Finished.IsZero() && r.Outcome == ""
	end := r.Finished
	if end.IsZero() {
		end = now
	}
	if !r.Started.IsZero() {
		p.Took = max(0, end.Sub(r.Started))
	}
	p.Why, p.Asked = whyOf(p.Cause), p.Cause.Replan
	if _, err := time.Parse(time.RFC3339Nano, p.Asked); err != nil {
		p.Asked = ""
	}
	p.plan(k)
	p.Diagnostics, p.Failed = planview.DiagnosticsOf(r.Diagnostics), severity(r.Diagnostics)
	p.Stages, p.Providers = stagesOf(r, p.Took, now)
	for _, s := range r.Steps {
		p.CPU += s.CPU
		p.RSS = max(p.RSS, s.MaxRSS)
	}
	p.onward(others, now)
	p.before(noteOf(r).Waited)
	p.beside(others)
	for _, h := range r.Health {
		c := healthCheck{Name: h.Name, Pill: ui.PillOf(ui.ToneOK, "Passed"), Text: h.Message}
		if !h.OK {
			c.Pill = ui.PillOf(ui.ToneBad, "Failed")
		}
		p.Health = append(p.Health, c)
	}
	return p
}

// note is what the controller recorded of a run when it started it. An older
// controller may have recorded less.
type note struct {
	Cause  stack.Cause   `json:"cause"`
	Waited time.Duration `json:"waited"` // for its turn
}

func noteOf(r query.Report) note {
	var n note
	if len(r.Note) > 0 && json.Unmarshal(r.Note, &n) != nil {
		return note{}
	}
	return n
}

// whyOf is the cause of a run as a sentence.
func whyOf(c stack.Cause) string {
	switch {
	case c.Instead != "":
		return ui.Visible(c.Why) + "; it uses the configuration that was applied last, because of: " + ui.Visible(c.Instead)
	case c.Plan != nil:
		return "applies the plan " + ui.Visible(c.Plan.Name)
	case c.Unlock != "":
		return ui.Visible(c.Why) + ", the lock " + ui.Visible(c.Unlock)
	default:
		return ui.Visible(c.Why)
	}
}

// isolation is the name of a level, and what it means.
func isolation(level int) string {
	switch level {
	case 1:
		return "basic: another user and limits"
	case 2:
		return "kernel: limits, Landlock and a system call filter"
	case 3:
		return "full: namespaces and a file system of its own"
	default:
		return "none"
	}
}

// plan finds the plan that a run created, if it still is the stack's, or that it
// applies.
func (p *runPage) plan(k query.Key) {
	if c := p.Cause.Plan; c != nil {
		p.Plan, p.PlanName = planPath(k, query.PlanInfo{Digest: c.Digest}), c.Name
		return
	}
	for _, info := range []*query.PlanInfo{p.Head.Stack.Plan, p.Head.Stack.Applied} {
		if info != nil && info.Run == p.Report.ID {
			p.Plan, p.PlanName = planPath(k, *info), info.Name
		}
	}
}

// beside finds the runs before and after.
func (p *runPage) beside(others []query.Report) {
	k := p.Head.Stack.Key()
	link := func(r query.Report) *runLink { return &runLink{r.ID, runPath(k, r.ID), string(r.Kind)} }
	others = slices.Clone(others)
	slices.SortStableFunc(others, func(a, b query.Report) int { return a.Started.Compare(b.Started) })
	for i, r := range others {
		if r.ID != p.Report.ID {
			continue
		}
		if i > 0 {
			p.Older = link(others[i-1])
		}
		if i+1 < len(others) {
			p.Newer = link(others[i+1])
		}
	}
}

// decided adds the approver to the approval, where the visitor may view it, and the
// place in the queue to an apply that is queued.
func (p *runPage) decided(v *Visit) {
	if i := slices.IndexFunc(p.Stages, func(s stage) bool { return s.ID == "approval" }); i >= 0 {
		p.Stages[i].Says = wordsOn(v, p.digest())
	}
	if last := len(p.Stages) - 1; last >= 0 && p.Stages[last].State == "waits" && p.Stages[last].ID == "apply" && v.Backend.Queue != nil {
		if place, ok := v.Backend.Queue.Place(p.Head.Stack.UID); ok {
			p.Stages[last].Text, p.Stages[last].At = place.Why, place.Since
		}
	}
}

// digest is that of the plan which the run made, if it still is the stack's, or applies.
func (p *runPage) digest() string {
	for _, info := range []*query.PlanInfo{p.Head.Stack.Plan, p.Head.Stack.Applied} {
		if info != nil && info.Run == p.Report.ID {
			return info.Digest
		}
	}
	if c := p.Cause.Plan; c != nil {
		return c.Digest
	}
	return ""
}

// verdictOn is what policies find in a plan, or found before it was applied; nil if nothing.
// Visitors who may not view plans do not see it.
func verdictOn(v *Visit, s query.Stack, digest string) (*query.Verdict, error) {
	switch {
	case digest == "":
		return nil, nil
	case s.Plan != nil && s.Plan.Digest == digest:
		return s.Verdict, nil
	case !v.Can(ofStack("get", access.ResourcePlan, s.Key())):
		return nil, nil
	}
	return v.Backend.Stacks.Verdict(v.Context, s.Key(), digest)
}

// said is an approval or a rejection of a plan.
type said struct {
	Who     string
	Word    string
	Comment string
	At      time.Time
}

// wordsOn are the approvals and rejections of a plan, oldest first, where the
// visitor may read the audit log.
func wordsOn(v *Visit, digest string) []said {
	k := v.Key()
	if digest == "" || v.Backend.AuditLog == nil {
		return nil
	}
	page, err := v.Backend.AuditLog.Entries(v.Context, query.AuditSightOf(v.Can),
		query.AuditQuery{What: []query.AuditWhat{"approved", "rejected"}, Namespace: k.Namespace, Stack: k.Name, Kind: &k.Kind, Limit: 50})
	if err != nil {
		return nil // the page is complete without the audit log
	}
	var out []said
	for _, e := range slices.Backward(page.Items) {
		if e.Digest == digest {
			out = append(out, said{query.AuditWho(e), string(e.What), e.Comment, e.At})
		}
	}
	return out
}

// severity reports whether any of list is an error.
func severity(list []plan.Diagnostic) bool {
	return slices.ContainsFunc(list, func(d plan.Diagnostic) bool { return d.Severity == "error" })
}
