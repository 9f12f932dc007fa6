package pages

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

var _ = says(map[Said]string{
	"rollout-resumed": "The rollout was resumed. Tenants that failed before no longer count against it.",
	"rollout-undone":  "The template was rolled back. The rollback is rolled out as a new generation. If you keep the template in Git, revert it there, too.",
})

// Template shows the rollout of a template, and how to resume or undo it.
func Template(v *Visit) (Page, error) {
	if v.Backend.Tenants == nil || v.Backend.Estate == nil {
		return Page{}, errNoTenants
	}
	r, err := v.Backend.Tenants.Rollout(v.Context, v.Key())
	if err != nil {
		return Page{}, err
	}
	d, err := v.Backend.Estate.TemplateDetail(v.Context, v.Key())
	if err != nil {
		return Page{}, err
	}
	view := templateOf(v, r, d)
	if to := v.Query.Get("undo"); to != "" {
		view.Undo = undoOf(v, to, view.Refused)
	}
	return Page{Title: d.Name + " · template", Section: "tenants", Template: "template", Live: Live{Every: tenantsEvery}, Data: view}, nil
}

// templateView is what the page shows.
type templateView struct {
	query.Rollout
	Of           query.TemplateDetail
	Now          time.Time
	Pill         ui.Pill
	RegistryHref string
	TenantsHref  string
	WaveRows     []waveRow
	Gens         []generationRow
	Held         []tenantRow // changed and not ready
	MoreHeld     int
	Buttons      []ui.Button
	Refused      string // why the visitor may not change the template; empty if they may
	Undo         *undoView
	Told         told
}

// waveRow is one wave of the rollout, or the rest after the last.
type waveRow struct {
	query.WaveInfo
	State ui.Pill
}

// generationRow is one generation of the template.
type generationRow struct {
	query.Generation
	Target, Good bool
	UndoHref     string // of the preview of the rollback; empty if there is none
}

// heldShown bounds how many tenants that block a rollout are listed.
const heldShown = 50

func templateOf(v *Visit, r query.Rollout, d query.TemplateDetail) templateView {
	key := d.Key()
	path := templatePath(key)
	view := templateView{
		Rollout: r, Of: d, Now: v.Now, Pill: rolloutPill(r.Phase), RegistryHref: registryPath(query.Key{Namespace: key.Namespace, Name: r.Registry}),
		TenantsHref: ui.With("/tenants", map[string][]string{"namespace": {key.Namespace}}, "template", key.Name), Told: toldOf(v.Now, d.Conditions, d.Events, d.Unseen),
	}
	if !v.Can(access.Request{Verb: "patch", Resource: access.ResourceTemplates, Namespace: key.Namespace, Name: key.Name}) {
		view.Refused = "You may not change this template. Ask for the permission to patch and update tenanttemplates in " + key.Namespace + "."
	}
	for _, t := range r.Holding[:min(heldShown, len(r.Holding))] {
		view.Held = append(view.Held, rowOfTenant(t))
	}
	view.MoreHeld = len(r.Holding) - len(view.Held)
	for _, g := range r.Generations {
		row := generationRow{Generation: g, Target: g.Number == r.Target, Good: r.Good != 0 && g.Number == r.Good}
		if g.Kept && g.Number != d.Generation && g.Number > 0 {
			row.UndoHref = path + "?undo=" + strconv.FormatInt(g.Number, 10) + "#undo"
		}
		view.Gens = append(view.Gens, row)
	}
	view.waves()
	if r.Phase == query.RolloutFailed {
		view.Buttons = append(view.Buttons, ui.Button{Label: "Resume rollout", To: path + "/resume", Why: view.Refused})
	}
	return view
}

// waves sets the status of each wave: done, in progress or pending.
func (d *templateView) waves() {
	if len(d.Of.Waves) == 0 {
		return
	}
	done, idle := ui.NewPill(ui.ToneOK, "check", "Done"), ui.NewPill(ui.ToneIdle, "dot", "Pending")
	under := ui.NewPill(ui.ToneBusy, "turn", "In progress")
	if d.Phase == query.RolloutFailed {
		under = ui.NewPill(ui.ToneBad, "cross", "Stopped here")
	}
	passed := d.Phase == query.RolloutComplete || d.Phase == query.RolloutIdle
	at := len(d.Of.Waves) // the rest
	for i, w := range d.Of.Waves {
		if w.Name == d.Wave {
			at = i
		}
	}
	for i, w := range append(d.Of.Waves[:len(d.Of.Waves):len(d.Of.Waves)], query.WaveInfo{Name: "the rest"}) {
		row := waveRow{w, idle}
		switch {
		case passed || i < at:
			row.State = done
		case i == at:
			row.State = under
		}
		d.WaveRows = append(d.WaveRows, row)
	}
}

// undoView is the changes of a rollback, and the form that carries it out.
type undoView struct {
	From, To int64
	Same     bool
	Lines    []diffLine
	Post     string // the address of the form
	Back     string
	Why      string // why the visitor may not roll back
	Trouble  *Problem
}

// diffLine is one line of what changes.
type diffLine struct {
	Sign, Text string
	Tone       ui.Tone
}

// undoOf plans the rollback with the permissions of the visitor.
func undoOf(v *Visit, to, refused string) *undoView {
	path := templatePath(v.Key())
	view := &undoView{Post: path + "/undo", Back: path, Why: refused}
	n, err := generationIn(to)
	if err == nil && v.Person.Tenants == nil {
		err = errors.New("this server cannot act on your behalf")
	}
	if err != nil {
		view.Trouble = problemOf("The template cannot be rolled back", err)
		return view
	}
	u, err := v.Person.Tenants.PlanUndo(v.Context, v.Key(), n)
	view.From, view.To, view.Same = u.From, u.To, u.Same
	if err == nil && !u.Same {
		var lines []command.DiffLine
		lines, err = u.Diff()
		for _, l := range lines {
			line := diffLine{Sign: string(rune(l.Sign)), Text: l.Text}
			switch l.Sign {
			case '+':
				line.Tone = ui.ToneOK
			case '-':
				line.Tone = ui.ToneBad
			}
			view.Lines = append(view.Lines, line)
		}
	}
	view.Trouble = problemOf("The template cannot be rolled back", err)
	return view
}

func generationIn(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.New(fault.Invalid, "GenerationInvalid", fmt.Errorf("%.40q is not a generation of a template", text))
	}
	return n, nil
}

// ResumeRollout resumes a stopped rollout.
func ResumeRollout(v *Visit) (Done, error) {
	_, err := v.Person.Tenants.ResumeRollout(v.Context, v.Key())
	return Done{To: templatePath(v.Key()), Said: "rollout-resumed"}, err
}

// UndoRollout rolls a template back to the generation that was shown,
// unless it has changed since.
func UndoRollout(v *Visit) (Done, error) {
	from, err := generationIn(v.Form.Get("from"))
	if err != nil {
		return Done{}, err
	}
	to, err := generationIn(v.Form.Get("to"))
	if err != nil {
		return Done{}, err
	}
	u, err := v.Person.Tenants.PlanUndo(v.Context, v.Key(), to)
	if err != nil {
		return Done{}, err
	}
	if u.From != from {
		return Done{}, fault.New(fault.Conflict, query.ReasonPlanChanged, fmt.Errorf("the template %s has changed since you opened the page: its generation is %d now", v.Key(), u.From))
	}
	done := Done{To: templatePath(v.Key()), Said: "rollout-undone"}
	if u.Same {
		return done, nil
	}
	return done, v.Person.Tenants.Undo(v.Context, u)
}
