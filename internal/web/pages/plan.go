package pages

import (
	"context"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/planview"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// changesShown is how many changes are on one page of a plan.
const changesShown = 200

// driftShown bounds what is listed of drift beside a plan.
const driftShown = 50

// planPage is a plan with everything that an approver needs to know.
type planPage struct {
	Head     stackHead
	Name     string
	Info     query.PlanInfo
	Pill     ui.Pill
	Means    string // its status, in a sentence
	Other    string // the address of the pending plan, if this is another one
	Decide   *Decide
	Verdict  *query.Verdict // what policies find in it, or found before it was applied
	Said     []said
	Summary  string
	Run      string // the address of the run that made it
	Tabs     ui.Tabs
	JSON     string
	Warnings []planview.Diagnostic
	Notes    []string

	Text    []template.HTML // of the tab Text, line by line
	Filter  planview.Filter
	Search  string // the address that the search is sent to
	Chips   []planChip
	Groups  []planview.Group
	Pager   *ui.Pager
	Outputs []planview.Attribute
	Checks  []planCheck // the check blocks that fail
	Failing int
	Drift   []planview.Group
	Drifted int
	Total   int
}

// planCheck is a check block that fails.
type planCheck struct{ Address, Message string }

type planChip struct {
	Label   string
	Mark    string
	Tone    ui.Tone
	Count   int
	Href    string
	Current bool
}

// Plan shows a plan: the one with the requested digest, else the pending one,
// else the one that was applied last.
func Plan(v *Visit) (Page, error) {
	head, err := headOf(v, tabRuns)
	if err != nil {
		return Page{}, err
	}
	p := planPage{Head: head, Info: wantedPlan(head.Stack, v.Query.Get("digest"))}
	parsed, err := readPlan(v, head.Stack, &p.Info)
	if err != nil {
		return Page{}, err
	}
	p.setStatus(head.Stack)
	if p.Verdict, err = verdictOn(v, head.Stack, p.Info.Digest); err != nil {
		return Page{}, err
	}
	if p.Decide != nil {
		p.Decide.shows(parsed)
	}
	p.fill(v, parsed)
	p.Said = wordsOn(v, p.Info.Digest)
	p.Warnings = warningsOf(v, p.Info.Run)
	return stackPage(v, "plan", p.Name, p), nil
}

// wantedPlan is what is known of the requested plan.
func wantedPlan(s query.Stack, digest string) query.PlanInfo {
	for _, p := range []*query.PlanInfo{s.Plan, s.Applied} {
		if p != nil && (digest == "" || digest == p.Digest) {
			return *p
		}
	}
	return query.PlanInfo{Digest: digest}
}

// readPlan reads a plan, or takes it from those that are kept.
func readPlan(v *Visit, s query.Stack, info *query.PlanInfo) (*planview.Plan, error) {
	if info.Digest == "" {
		// Nothing is known that could be kept: the service says why.
		doc, err := v.Backend.Stacks.Plan(v.Context, s.Key(), "")
		if err != nil {
			return nil, err
		}
		*info = doc.PlanInfo
		return planview.Parse(doc.Document)
	}
	return v.Backend.plans.get(v.Context, planID{s.UID, info.Digest}, func(ctx context.Context) ([]byte, error) {
		doc, err := v.Backend.Stacks.Plan(ctx, s.Key(), info.Digest)
		return doc.Document, err
	})
}

// setStatus fills in the status of the plan.
func (p *planPage) setStatus(s query.Stack) {
	p.Name = p.Info.Name
	if p.Name == "" {
		p.Name = ui.Cut(19, p.Info.Digest)
	}
	pending := s.Plan != nil && s.Plan.Digest == p.Info.Digest
	switch {
	case pending && p.Head.Decide != nil:
		d := decideOf(s, p.Head.mayNot(), "plan")
		d.Now = p.Head.Decide.Now
		p.Decide, p.Pill = &d, ui.NewPill(ui.ToneWarn, "ask", "Pending")
		p.Means = "The plan is pending."
		if s.Rejection != nil {
			p.Pill, p.Means = statusPill(query.StatusRejected), "The plan was "+s.Rejection.String()+"."
		}
	case s.Applied != nil && s.Applied.Digest == p.Info.Digest:
		p.Pill, p.Means = ui.PillOf(ui.ToneOK, "Applied"), "This plan was applied last."
		if approved := s.ApprovedBy(*s.Applied); approved != "" {
			p.Means = "This plan was " + approved + ", and was applied last."
		}
	default:
		p.Pill, p.Means = ui.NewPill(ui.ToneIdle, "clock", "Past"), "This plan cannot be approved. It was applied, replaced, or created as a preview only."
	}
	if !pending && s.Plan != nil {
		p.Other = planPath(s.Key(), *s.Plan)
	}
}

// mayNot is why the visitor cannot decide, as the head found out.
func (h stackHead) mayNot() string {
	if h.Decide == nil {
		return ""
	}
	return h.Decide.Why
}

// fill makes what the page shows of the document.
func (p *planPage) fill(v *Visit, doc *planview.Plan) {
	key, path := v.Key(), v.Path
	at := url.Values{}
	if d := v.Query.Get("digest"); d != "" {
		at.Set("digest", d)
	}
	text := v.Query.Get("view") == "text"
	p.Summary, p.Total, p.Search = plan.Summarize(doc.Counts), len(doc.Changes), path
	p.Tabs = ui.Tabs{Label: "Plan", Items: []ui.Tab{
		{Name: "Changes", Href: ui.With(path, at, "view"), Count: len(doc.Changes), Current: !text},
		{Name: "Text", Href: ui.With(path, at, "view", "text"), Current: text},
	}}
	p.JSON = ui.With(apiPath(key, "plan"), nil, "digest", p.Info.Digest)
	if p.Info.Run != "" {
		p.Run = runPath(key, p.Info.Run)
	}
	if doc.Document.Errored() {
		p.Notes = append(p.Notes, "Planning ended in an error. This is only a part of the plan.")
	}
	if cut := doc.Document.Truncated(); len(cut) > 0 {
		p.Notes = append(p.Notes, "The plan is too large to be stored completely. These parts are missing or cut: "+strings.Join(cut, ", ")+".")
	}
	p.Notes = append(p.Notes, p.Info.Besides()...)
	if text {
		p.Text = planview.Text(doc.Document)
		return
	}
	p.changes(v, doc, at)
	blocks := doc.Document.CheckBlocks()
	for _, b := range blocks.Failed {
		p.Checks = append(p.Checks, planCheck{ui.Visible(b.Address), ui.Visible(b.Message)})
	}
	p.Failing = len(blocks.Failed) + blocks.More
	for _, o := range doc.Outputs {
		a := planview.AttributeOf(o.Diff)
		a.ID, a.Name = "o-"+ui.Anchor(o.Name), ui.Visible(o.Name)
		p.Outputs = append(p.Outputs, a)
	}
	p.Drifted = len(doc.Drift)
	p.Drift = planview.Groups(doc.Drift[:min(len(doc.Drift), driftShown)], planview.Counts(doc.Drift), true, "d-", path)
}

// changes makes the part of the changes that is on this page.
func (p *planPage) changes(v *Visit, doc *planview.Plan, at url.Values) {
	p.Filter = planview.Filter{Text: ui.Cut(200, v.Query.Get("q")), Action: plan.Action(v.Query.Get("action"))}
	found, counts := p.Filter.Choose(doc.Changes)
	if p.Filter.Text != "" {
		at.Set("q", p.Filter.Text)
	}
	p.chips(v.Path, at, counts)
	if p.Filter.Action != "" {
		at.Set("action", string(p.Filter.Action))
	}
	offset, _ := strconv.Atoi(v.Query.Get("offset"))
	offset = min(max(0, offset), max(0, len(found)-1)) / changesShown * changesShown
	shown := found[offset:min(len(found), offset+changesShown)]
	p.Groups = planview.Groups(shown, counts, false, "r-", ui.With(v.Path, at, "offset", ui.OffsetText(offset)))
	if len(found) > changesShown {
		page := ui.NewPager(v.Path, at, offset, len(shown), changesShown, len(found), "change")
		p.Pager = &page
	}
}

func (p *planPage) chips(path string, at url.Values, counts map[plan.Action]int) {
	total := 0
	for _, n := range counts {
		total += n
	}
	p.Chips = append(p.Chips, planChip{Label: "All", Count: total, Tone: ui.ToneIdle, Href: ui.With(path, at, "action"), Current: p.Filter.Action == ""})
	for _, a := range planview.Kinds {
		if counts[a.Action] > 0 || p.Filter.Action == a.Action {
			p.Chips = append(p.Chips, planChip{a.Title, a.Mark, a.Tone, counts[a.Action], ui.With(path, at, "action", string(a.Action)), p.Filter.Action == a.Action})
		}
	}
}

// apiPath is the address of something of a stack in the JSON API.
func apiPath(k query.Key, below ...string) string {
	return ui.PathOf(slices.Concat([]string{"api", "v1", "namespaces", k.Namespace, "stacks", k.Address()}, below)...)
}

// warningsOf are the warnings of the run that made a plan, if it is kept and the
// visitor may view it.
func warningsOf(v *Visit, run string) []planview.Diagnostic {
	k := v.Key()
	if run == "" || !v.Can(ofStack("get", access.ResourceLog, k)) {
		return nil
	}
	r, err := v.Backend.Stacks.Run(v.Context, k, run)
	if err != nil {
		return nil // an old run is not recorded; the page is complete without it
	}
	return planview.DiagnosticsOf(r.Diagnostics)
}

// What is kept of plans between visits. A parsed document takes several times
// the bytes that it has as text.
const (
	plansKept      = 32
	planBytesKept  = 64 << 20 // of documents as text
	planBytesLarge = planBytesKept / 2
)

// keptPlans are the plans that were shown last, parsed and masked: turning pages
// and searching costs no parsing. The zero value is ready.
type keptPlans struct {
	ready sync.Once
	plans cache.Map[planID, *planview.Plan]
}

// planID names a plan: a digest alone may be that of another stack's.
type planID struct{ uid, digest string }

// get returns a plan, read by read if it is not kept. Visitors who ask at the same
// time wait for one reading, which does not end with the first of them.
func (k *keptPlans) get(ctx context.Context, id planID, read func(context.Context) ([]byte, error)) (*planview.Plan, error) {
	k.ready.Do(func() { k.plans.Size, k.plans.Weigh, k.plans.Weight = plansKept, weighPlan, planBytesKept })
	return k.plans.Load(ctx, id, func(ctx context.Context) (*planview.Plan, error) {
		raw, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return planview.Parse(raw)
	})
}

// weighPlan counts bytes. A plan that would take the place of all others is not
// kept.
func weighPlan(_ planID, p *planview.Plan) int {
	if p.Bytes > planBytesLarge {
		return planBytesKept + 1
	}
	return p.Bytes
}

// findingTone colours what a policy finds in a plan.
func findingTone(f policy.Finding) ui.Tone {
	switch f.Counts() {
	case policy.Deny:
		return ui.ToneBad
	case policy.Warn, policy.Hold:
		return ui.ToneWarn
	case policy.Allow:
		return ui.ToneOK
	default:
		return ui.ToneIdle
	}
}
