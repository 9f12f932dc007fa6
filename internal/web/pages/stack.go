package pages

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/query/steps"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Stack shows the status of one stack, its reason and its history.
func Stack(v *Visit) (Page, error) {
	var rights sync.WaitGroup
	rights.Go(func() { v.askTogether(stackAsks(v.Key())) })
	var used usage.Record
	var usedErr error
	rights.Go(func() { used, usedErr = v.Backend.Stacks.Uses(v.Context, v.Key()) })
	e, err := v.Backend.Stacks.Explain(v.Context, v.Key())
	var moments []query.Moment
	var missingErr error
	if err == nil {
		moments, missingErr = query.ToldTimeline(v.Context, v.Backend.Details, v.Backend.AuditLog, auditSight(v), v.Key())
	}
	rights.Wait()
	if err != nil {
		return Page{}, err
	}
	view := overviewOf(e, headFor(v, e.Stack, tabOverview))
	missing := "The timeline cannot be shown"
	if len(moments) > 0 {
		missing = "The actions of users cannot be shown"
	}
	view.TimelineProblem = problemOf(missing, missingErr)
	view.fold(timeline(v.Key(), moments))
	view.Uses = usesOf(used, usedErr)
	view.Prerequisites, view.Steps = e.Prerequisites, e.Steps
	view.offerSteps(v)
	view.lost(v)
	view.failing(moments)
	return stackPage(v, "stack", "", view), nil
}

// auditSight is the namespaces whose audit log the visitor may read.
func auditSight(v *Visit) query.AuditSight {
	if v.Can == nil {
		return query.AuditSight{}
	}
	return query.AuditSight{In: func(namespace string) bool {
		return v.Can(access.Request{Verb: "list", Resource: access.ResourceAudit, Namespace: namespace})
	}}
}

// stackAsks are the permissions that the page of a stack asks for.
func stackAsks(k query.Key) []access.Request {
	asks := []access.Request{ofStack("patch", access.ResourceStacks, k)}
	for _, n := range stackTabNames {
		if n.right != access.ResourceStacks {
			asks = append(asks, ofStack("get", n.right, k))
		}
	}
	return asks
}

// stackPage is the frame of the pages below a stack.
func stackPage(v *Visit, template, tab string, data any) Page {
	title := v.Key().String()
	if tab != "" {
		title = tab + " · " + title
	}
	return Page{Title: title, Section: "stacks", Template: template, Live: Live{Stack: v.Key()}, Data: data}
}

// overview is the first tab of a stack.
type overview struct {
	Head            stackHead
	Means           meaning.Situation
	Message         string
	Whole           string // the error, or the message, where Message has only a part of it
	Failed          bool
	Waiting         string
	Facts           []string
	Rule            string // that fired
	RuleWhy         string
	Rules           []query.RuleOutcome
	Run             *runNow
	Labels          []field
	Timeline        []moment // its newest entries
	Earlier         []moment // the others
	TimelineProblem *Problem

	FailedLog string // of the run that failed last, if the stack fails
	DoBefore  string // the next step, up to the words that link to that log
	DoLog     string // these words; empty if there are none
	DoAfter   string

	Prerequisites []steps.Prerequisite
	Steps         *steps.Steps // after the apply; nil if there are none
	Rerun         ui.Button    // of them
	StepsRun      string       // the page of the run that carried them out last

	Uses *usesView // nil if it is not known what the stack uses, or if it uses nothing

	Applies    bool   // the plan is being applied
	SourcePage string // the page of the source
}

// messageLength is how much of a message heads the page.
const messageLength = 400

// headline is the first line of a message.
func headline(message string) string {
	first, _, _ := strings.Cut(message, "\n")
	return ui.Cut(messageLength, first)
}

// runNow is the active run.
type runNow struct {
	query.Running
	Href, Log string
}

func overviewOf(e query.Explanation, head stackHead) overview {
	s := e.Stack
	o := overview{Head: head, Means: inBrowser(s, e.Means), Waiting: s.WaitingFor, Facts: e.Facts, Rule: s.Rule, Rules: e.Rules}
	o.Message = headline(s.Message)
	switch {
	case s.Failures > 0 && s.FailedWith != "" && !strings.Contains(o.Message, s.FailedWith):
		o.Whole = s.FailedWith
	case o.Message != s.Message:
		o.Whole = s.Message
	}
	if o.Waiting == s.Message {
		o.Waiting = "" // the message says it already
	}
	o.Failed = s.Stalled || s.Failures > 0
	for _, r := range e.Rules {
		if r.Fires {
			o.RuleWhy = r.Why
		}
	}
	if r := s.Run; r != nil {
		o.Run = &runNow{*r, runPath(s.Key(), r.ID), runPath(s.Key(), r.ID) + "/log"}
	}
	o.Applies = s.Phase == string(stack.Applying)
	if parts := strings.Split(s.Source, "/"); len(parts) > 1 {
		namespace := s.Namespace
		if len(parts) == 3 {
			namespace = parts[1]
		}
		o.SourcePage = sourcePath(query.Source{Kind: parts[0], Namespace: namespace, Name: parts[len(parts)-1]})
	}
	for k, value := range s.Labels {
		o.Labels = append(o.Labels, field{k, value})
	}
	slices.SortFunc(o.Labels, func(a, b field) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return o
}

// offerSteps lets the visitor have the steps run again that the page shows.
func (o *overview) offerSteps(v *Visit) {
	o.Facts = slices.DeleteFunc(o.Facts, func(f string) bool {
		return strings.HasPrefix(f, query.FactOfStep) || strings.HasPrefix(f, query.FactOfPrerequisite) // they have a table
	})
	if o.Steps == nil {
		return
	}
	s := o.Head.Stack
	o.StepsRun = runPath(s.Key(), o.Steps.Run)
	o.Rerun = ui.Button{Label: "Run again", To: stackPath(s.Key(), "rerun-steps"), Fields: map[string]string{"steps": o.Steps.Digest}, Why: mayChange(v, s.Key())}
	if o.Steps.State == steps.Held {
		o.Rerun.Label = "Approve and run"
	}
	switch {
	case o.Rerun.Why != "":
	case s.Suspended:
		o.Rerun.Why = "The stack is suspended. Resume it first."
	case o.Steps.Digest == "" || o.Steps.BeforeApply:
		o.Rerun.Why = "The stack was not applied yet. The steps run after the apply by themselves."
	}
}

// stepPill is the state of steps.
func stepPill(state stack.StepState) ui.Pill {
	tone := ui.ToneIdle
	switch state {
	case stack.StepSucceeded:
		tone = ui.ToneOK
	case stack.StepFailed:
		tone = ui.ToneBad
	case steps.Held, stack.StepInterrupted:
		tone = ui.ToneWarn
	case stack.StepRunning, stack.StepPending:
	}
	return ui.PillOf(tone, string(state))
}

// gatePill says whether a prerequisite is met.
func gatePill(p steps.Prerequisite) ui.Pill {
	switch {
	case p.Met:
		return ui.PillOf(ui.ToneOK, "Met")
	case p.Reason == "":
		return ui.PillOf(ui.ToneIdle, "Not checked yet")
	default:
		return ui.PillOf(ui.ToneWarn, p.Reason)
	}
}

// logWords are the words of a next step that become a link to a log.
const logWords = "log of the run"

// failing finds the run that failed.
func (o *overview) failing(moments []query.Moment) {
	s := o.Head.Stack
	if s.Failures == 0 {
		return
	}
	i := slices.IndexFunc(moments, func(m query.Moment) bool { return m.Kind == query.MomentRun && m.Bad })
	if i < 0 {
		return
	}
	o.FailedLog = runPath(s.Key(), moments[i].Run) + "/log"
	if before, after, found := strings.Cut(o.Means.Do, logWords); found {
		o.DoBefore, o.DoLog, o.DoAfter = before, logWords, after
	}
}

func runPath(k query.Key, run string) string { return stackPath(k, "runs", run) }

// moment is one line of a timeline.
type moment struct {
	query.Moment
	Icon string
	Tone ui.Tone
	Href string
	Took time.Duration
	Pill *ui.Pill
}

// momentIcons are the glyphs of entries; a failure has its own.
var momentIcons = map[query.MomentKind]string{
	query.MomentCreated: "plus", query.MomentRun: "play", query.MomentDecision: "chevron", query.MomentEvent: "dot", query.MomentDeed: "person",
}

// Bounds of the timeline on one page: the pages of runs and events show all of it.
const (
	timelineShown = 100
	timelineText  = 400
	timelineOpen  = 8 // entries that are not folded
	timelineBad   = 3 // the same of a stack that fails: its error comes first
)

// fold shows the newest entries, and the others on demand.
func (o *overview) fold(all []moment) {
	open := timelineOpen
	if o.Failed {
		open = timelineBad
	}
	o.Timeline, o.Earlier = all, nil
	if len(all) > open+1 { // one entry takes no more room than the words that hide it
		o.Timeline, o.Earlier = all[:open], all[open:]
	}
}

// lost names what the pending plan destroys, if the visitor may view the plan.
func (o *overview) lost(v *Visit) {
	d := o.Head.Decide
	if d == nil || !d.Confirm || o.Applies || d.Plan.Digest == "" || v.Can == nil ||
		!v.Can(ofStack("get", access.ResourcePlan, d.Key)) {
		return
	}
	if doc, err := readPlan(v, o.Head.Stack, &d.Plan); err == nil {
		d.shows(doc) // without the plan, the page leads to it
	}
}

func timeline(k query.Key, moments []query.Moment) []moment {
	var out []moment
	for _, m := range moments[:min(len(moments), timelineShown)] {
		x := moment{Moment: m, Icon: momentIcons[m.Kind], Tone: ui.ToneIdle, Took: m.Took}
		x.Text = ui.Cut(timelineText, m.Text)
		if m.Bad {
			x.Icon, x.Tone = "cross", ui.ToneBad
		}
		if m.Run != "" {
			x.Href = runPath(k, m.Run)
		}
		if m.Outcome != "" {
			p := outcomePill(m.Outcome)
			x.Pill, x.Tone = &p, p.Tone
			if m.Outcome == stack.Succeeded {
				x.Icon, x.Pill = "play", nil // the title says what the run found or did
			}
		}
		out = append(out, x)
	}
	return out
}

// usesView is the modules and providers that a stack uses.
type usesView struct {
	Modules, Providers []useRow // the first ones
	More               int      // entries that are not shown
	Problems           []string
	Trouble            *Problem
}

// useRow is one call of a module, or one provider.
type useRow struct {
	Name       string
	Address    string
	Version    string
	Commit     string
	Constraint string
	Since      time.Time
}

// usesShown bounds the modules, and the providers, on one page: the API has all of them.
const usesShown = 200

func usesOf(r usage.Record, err error) *usesView {
	if fault.Reason(err, "") == query.ReasonNoUses {
		return nil
	}
	u := &usesView{Problems: r.Problems, Trouble: problemOf("The modules and providers cannot be shown", err)}
	for _, m := range r.Modules[:min(len(r.Modules), usesShown)] {
		row := useRow{Name: m.Path, Address: m.Address, Version: m.Version, Commit: m.Commit[:min(len(m.Commit), 12)], Constraint: m.Constraint, Since: m.Since}
		switch {
		case m.Kind == usage.Local, m.Address == "":
			row.Address = m.Declared
		case m.Directory != "":
			row.Address += "//" + m.Directory
		}
		u.Modules = append(u.Modules, row)
	}
	for _, p := range r.Providers[:min(len(r.Providers), usesShown)] {
		u.Providers = append(u.Providers, useRow{Name: p.Source, Version: p.Version, Constraint: p.Constraint, Since: p.Since})
	}
	u.More = len(r.Modules) + len(r.Providers) - len(u.Modules) - len(u.Providers)
	if len(u.Modules)+len(u.Providers)+len(u.Problems) == 0 && u.Trouble == nil {
		return nil
	}
	return u
}

// StackEvents lists the Kubernetes events of a stack, and its conditions.
func StackEvents(v *Visit) (Page, error) {
	d, err := v.Backend.Stacks.Describe(v.Context, v.Key())
	if err != nil {
		return Page{}, err
	}
	return stackPage(v, "stack_events", "Events", struct {
		Head   stackHead
		Detail query.Detail
	}{headFor(v, d.Stack, tabEvents), d}), nil
}
