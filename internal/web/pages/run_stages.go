package pages

import (
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// stage is one step in the history of a run, from its cause to its
// outcome.
type stage struct {
	ID    string
	Title string
	State string // done, failed, now, waits, later, skipped
	Icon  string
	Tone  ui.Tone
	Text  string
	Error string // whole; the page scrolls it
	Took  time.Duration
	CPU   time.Duration
	RSS   int64
	Exit  int
	At    time.Time
	Link  *runLink
	Says  []said
	Delta *stack.Changes
}

// stageStyles are the icon and the tone of each state of a stage.
var stageStyles = map[string]struct {
	icon string
	tone ui.Tone
}{
	"done": {"check", ui.ToneOK}, "failed": {"cross", ui.ToneBad}, "now": {"turn", ui.ToneBusy}, "waits": {"ask", ui.ToneWarn}, "later": {"dot", ui.ToneIdle}, "skipped": {"minus", ui.ToneIdle},
}

func (s stage) as(state string) stage {
	s.State, s.Icon, s.Tone = state, stageStyles[state].icon, stageStyles[state].tone
	return s
}

// with adds another process of the same step.
func (s stage) with(other stage) stage {
	s.Took += other.Took
	s.CPU += other.CPU
	s.RSS = max(s.RSS, other.RSS)
	s.Exit = other.Exit
	return s
}

// stepTitles are the engine's commands, in words.
var stepTitles = map[string]string{
	"init": "Init", "workspace": "Select the workspace", "unlock": "Break the lock", "plan": "Plan", "show": "Read the plan",
	"apply": "Apply", "destroy": "Destroy", "output": "Read the outputs", "inventory": "List what exists", "check-blocks": "Read the check blocks", "script": "Script", "post-deploy": "Post-deploy script", "health": "Health checks",
}

// expected are the steps of each kind of run.
var expected = map[stack.RunKind][]string{
	stack.PlanRun: {"init", "plan", "show"}, stack.CheckRun: {"init", "plan"}, stack.PreviewRun: {"init", "plan", "show"},
	stack.ApplyRun: {"init", "apply"}, stack.DestroyRun: {"init", "apply"}, stack.ScriptRun: {"init", "script"}, stack.HealthRun: {"health"},
}

// phases are the steps during which a supervisor names a phase.
var phases = map[string]string{
	"Initializing": "init", "Planning": "plan", "Showing": "show", "Applying": "apply", "CheckingHealth": "health",
}

// stagesOf are the stages of a run up to its end; apart from them the providers
// that were kept for all of it.
func stagesOf(r query.Report, took time.Duration, now time.Time) (stages, providers []stage) {
	goes := r.Finished.IsZero() && r.Outcome == ""
	rest := took
	var steps []stage
	seen := map[string]bool{}
	for _, s := range r.Steps {
		x := stage{ID: "step-" + s.Name, Title: s.Name, Took: s.Wall, CPU: s.CPU, RSS: s.MaxRSS, Exit: s.Exit}
		if name, ok := strings.CutPrefix(s.Name, "provider "); ok {
			x.Title = name
			providers = append(providers, x.as("done"))
			continue
		}
		rest -= s.Wall
		if t, ok := stepTitles[s.Name]; ok {
			x.Title = t
		}
		state := "done"
		if s.Name == r.Step && r.Outcome != stack.Succeeded && r.Outcome != "" {
			state = "failed"
		}
		if i := slices.IndexFunc(steps, func(was stage) bool { return was.ID == x.ID }); i >= 0 {
			steps[i] = steps[i].with(x).as(state) // a plan is read twice: for programs, and for people
			continue
		}
		seen[s.Name] = true
		steps = append(steps, x.as(state))
	}
	at := phases[string(r.Phase)]
	for _, name := range expected[r.Kind] {
		if seen[name] {
			continue
		}
		x := stage{ID: "step-" + name, Title: stepTitles[name]}
		switch {
		case name == "init" && r.InitSkipped:
			x.Text = "skipped: its inputs have not changed"
			steps = slices.Insert(steps, 0, x.as("skipped"))
		case name == "init" && r.NoInit:
			x.Text = "not needed: there is nothing to install, since the module calls no modules and needs no provider"
			steps = slices.Insert(steps, 0, x.as("skipped"))
		case goes && name == at:
			x.Took, x.At = max(0, now.Sub(r.Since)), r.Until
			rest -= x.Took
			steps = append(steps, x.as("now"))
		case goes:
			steps = append(steps, x.as("later"))
		}
	}
	return append([]stage{preparing(r, goes, max(0, rest))}, steps...), providers
}

// preparing is the work of the supervisor beside the engine's steps.
func preparing(r query.Report, goes bool, took time.Duration) stage {
	x := stage{ID: "step-prepare", Title: "Prepare and save", Took: took, Text: "the working directory, the sandbox, the providers, and the records"}
	switch {
	case goes && (len(r.Steps) == 0 && phases[string(r.Phase)] == "" || r.Phase == "Saving"):
		return x.as("now")
	case r.Outcome != "" && r.Outcome != stack.Succeeded && r.Step == "" && !severity(r.Diagnostics):
		return x.as("failed")
	default:
		return x.as("done")
	}
}

// onward adds the steps before and after the run itself: the approval of its plan,
// and the run that applies it.
func (p *runPage) onward(others []query.Report, now time.Time) {
	s := p.Head.Stack
	if c := p.Cause.Plan; c != nil {
		first := stage{ID: "approval", Title: "Plan", Text: ui.Visible(c.Name), Delta: &c.Changes}
		if c.Run != "" {
			first.Link = &runLink{c.Run, runPath(s.Key(), c.Run), "plan"}
		}
		p.Stages = slices.Insert(p.Stages, 0, first.as("done"))
		p.Stages = append(p.Stages, p.end()...)
		return
	}
	p.Stages = append(p.Stages, p.end()...)
	if p.Report.Kind != stack.PlanRun && p.Report.Kind != stack.CheckRun || p.Report.Outcome != stack.Succeeded {
		return
	}
	i := slices.IndexFunc(others, func(r query.Report) bool {
		c := noteOf(r).Cause
		return c.Plan != nil && c.Plan.Run == p.Report.ID
	})
	waits := s.Plan != nil && s.Plan.Run == p.Report.ID
	switch {
	case i >= 0:
		p.Stages = append(p.Stages, stage{ID: "approval", Title: "Approval"}.as("done"), appliedBy(s.Key(), others[i], now))
	case waits:
		p.Stages = append(p.Stages, p.waiting(s)...)
	case s.Applied != nil && s.Applied.Run == p.Report.ID:
		p.Stages = append(p.Stages, stage{ID: "approval", Title: "Approval"}.as("done"), stage{ID: "apply", Title: "Applied"}.as("done"))
	case !p.Report.Changes.None():
		p.Stages = append(p.Stages, stage{ID: "approval", Title: "Approval", Text: "the plan is no longer pending: another plan replaced it"}.as("skipped"))
	}
}

// before adds the cause of the run and its time in the queue.
func (p *runPage) before(waited time.Duration) {
	at := 0
	if p.Cause.Plan != nil {
		at = 1 // the plan that it applies comes first
	} else if p.Why != "" {
		p.Stages = slices.Insert(p.Stages, 0, stage{ID: "cause", Title: "Requested", Text: p.Why, At: p.Report.Started.Add(-waited)}.as("done"))
		at = 1
	}
	if waited > 0 {
		p.Stages = slices.Insert(p.Stages, at, stage{ID: "queued", Title: "Queued", Took: waited}.as("done"))
	}
}

// end is how the run itself ended.
func (p *runPage) end() []stage {
	r := p.Report
	if p.Goes {
		return nil
	}
	x := stage{ID: "outcome", Title: outcomePill(r.Outcome).Word, At: r.Finished}
	switch {
	case r.Outcome != stack.Succeeded:
		x.Error = lines(r.Message)
		return []stage{x.as("failed")}
	case r.Changes.None() && (r.Kind == stack.PlanRun || r.Kind == stack.CheckRun):
		x.Title, x.Text = "No changes", "the resources match the module"
	case r.Kind == stack.PlanRun, r.Kind == stack.CheckRun, r.Kind == stack.PreviewRun:
		x.Title, x.Delta = "Planned", &r.Changes
	case r.Kind.Writes() && r.Kind != stack.BreakGlassRun:
		x.Title, x.Delta = "Applied", &r.Changes
	}
	return []stage{x.as("done")}
}

// waiting is the steps between a plan and its apply.
func (p *runPage) waiting(s query.Stack) []stage {
	x := stage{ID: "approval", Title: "Approval", Delta: &s.Plan.Changes, At: s.Plan.At}
	later := stage{ID: "apply", Title: "Apply"}.as("later")
	switch {
	case s.Phase == string(stack.Reviewing) || s.Phase == string(stack.ReviewRefused):
		review := stage{ID: "review", Title: "Review", Text: ui.Visible(s.Message)}
		if s.Phase == string(stack.Reviewing) {
			return []stage{review.as("now"), x.as("later"), later}
		}
		return []stage{review.as("failed"), x.as("later"), later}
	case s.Mode == stack.PlanOnly || s.Mode == stack.DriftOnly:
		x.Text = undecidable(s)
		return []stage{x.as("skipped")}
	case s.Plan.Is(s.Approved) || s.Mode == stack.Auto && s.Undecidable != "":
		later.Text = ui.Visible(s.Message)
		return []stage{x.as("done"), later.as("waits")}
	default:
		x.Text = ui.Visible(s.Message)
		return []stage{x.as("waits"), later}
	}
}

// appliedBy is the run that applied the plan.
func appliedBy(k query.Key, r query.Report, now time.Time) stage {
	x := stage{ID: "apply", Title: "Apply", Link: &runLink{r.ID, runPath(k, r.ID), string(r.Kind)}, At: r.Started}
	switch {
	case r.Outcome == "":
		x.Took = max(0, now.Sub(r.Started))
		return x.as("now")
	case r.Outcome == stack.Succeeded:
		x.Took = r.Finished.Sub(r.Started)
		return x.as("done")
	default:
		x.Error = lines(r.Message)
		return x.as("failed")
	}
}

// lines is a text of several lines in which everything prints.
func lines(text string) string {
	all := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, l := range all {
		all[i] = ui.Visible(l)
	}
	return strings.Join(all, "\n")
}
