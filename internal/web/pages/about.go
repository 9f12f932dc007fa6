package pages

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/situation"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// checkTime is how long a part of the server may take to say that it works.
const checkTime = 5 * time.Second

// About shows the server, the health of its parts, the signed-in user and the
// permissions of that user.
func About(v *Visit) (Page, error) {
	p := v.Backend.Platform
	d := aboutView{
		Now: v.Now, Version: v.Backend.Version, User: v.User, Platform: p, Groups: v.User.Groups,
		Namespace: rightsOf(v), Namespaces: visibleNamespaces(v), Docs: docs,
	}
	if !p.Started.IsZero() {
		d.Uptime = ui.Span(v.Now.Sub(p.Started))
	}
	d.Sees = seesText(v.Scope())
	if v.Unasked() > 0 {
		d.Sees += " (so far)"
	}
	d.engines(v)
	d.health(v)
	d.rights(v)
	return Page{Title: "About", Section: "about", Template: "about", Data: d, Live: Live{Every: time.Minute}}, nil
}

// rightsOf is the namespace whose permissions are shown, empty for all of them. A
// visitor with permissions in some namespaces only starts with the first of these.
func rightsOf(v *Visit) string {
	if v.Query.Has("namespace") || v.Scope().All {
		return strings.TrimSpace(v.Query.Get("namespace"))
	}
	if mine := slices.Sorted(maps.Keys(v.Scope().In)); len(mine) > 0 {
		return mine[0]
	}
	return ""
}

const askOperator = "Ask the operator of this server."

// aboutView is what the page shows.
type aboutView struct {
	Now     time.Time
	Version string
	Uptime  string // empty if it is not known
	Platform
	Programs []engineRow
	Health   []healthRow

	User       access.User
	Groups     []string
	Sees       string
	Namespace  string // whose rights are shown; empty is all of them
	Namespaces []string
	Rights     []rightRow
	Verbs      []string

	Docs []docLink
}

// engineRow is an engine, and whether it can be used.
type engineRow struct {
	Engine
	Pill ui.Pill
}

// healthRow is a part of the server.
type healthRow struct {
	Name string
	Pill ui.Pill
	Text string
	Hint string
}

// rightRow is the visitor's permissions on one resource.
type rightRow struct {
	Name, Means, Role string // Role is the resource as roles have it
	May               []rightCell
}

// rightCell is one verb; the resource has no such verb if Asked is false.
type rightCell struct {
	Verb       string
	Asked, May bool
}

// docLink leads to a part of the manual.
type docLink struct{ Name, About, Href string }

const manual = "https://github.com/terrier-iac/terrier/blob/main/docs/"

var docs = []docLink{
	{"Quick start", "the first stacks, step by step", manual + "quickstart.md"},
	{"States and reasons", "what each reason means, and what to do", manual + "states.md"},
	{"Commands", "reference of the command line", manual + "cli.md"},
	{"Pages", "the pages of the browser, and their keys", manual + "pages.md"},
	{"HTTP API", "using the API with a token", manual + "api.md"},
	{"Roles", "permissions, and example roles", manual + "rbac.md"},
	{"Audit", "the contents of the audit log", manual + "audit.md"},
	{"Notifications", "by chat or webhook", manual + "notifications.md"},
	{"Metrics", "metrics and alerts", manual + "metrics.md"},
	{"Tenants", "from rows of a table to objects", manual + "tenants.md"},
	{"Guards", "protection against unwanted deletions of tenants", manual + "tenant-guards.md"},
	{"Sources", "where modules come from", manual + "sources.md"},
	{"Vault", "secrets of OpenBao and Vault in stacks", manual + "vault.md"},
	{"Registry", "publishing modules and providers, and the mirror of providers", manual + "registry.md"},
	{"State", "where states are stored, and how to change one", manual + "state.md"},
	{"Controller of a cluster", "running Terrier beside other controllers", manual + "controller.md"},
	{"Threat model", "threats and defences", manual + "threat-model.md"},
}

func seesText(s access.Scope) string {
	switch n := len(s.In); {
	case s.All:
		return "the stacks of all namespaces"
	case n == 0:
		return "no stacks: you may not list terraforms in any namespace that has stacks"
	case n > 10:
		return "the stacks of " + query.Count(n, "namespace")
	default:
		return "the stacks of " + query.Count(n, "namespace") + ": " + strings.Join(slices.Sorted(maps.Keys(s.In)), ", ")
	}
}

// engines lists the engines of runs. The reason why an engine cannot be used names
// files of the server, and is shown to its operator only.
func (d *aboutView) engines(v *Visit) {
	if d.Platform.Engines == nil {
		return
	}
	for _, e := range d.Platform.Engines(v.Context) {
		row := engineRow{e, ui.NewPill(ui.ToneOK, "check", "Works")}
		switch {
		case e.Trouble != "":
			row.Pill = ui.NewPill(ui.ToneBad, "cross", "Cannot be used")
			if !v.Scope().All {
				row.Trouble = askOperator
			}
		case e.Advice != "":
			row.Pill = ui.NewPill(ui.ToneWarn, "alert", "Works")
		}
		d.Programs = append(d.Programs, row)
	}
}

// health asks each part. The operator of the server sees the error; other visitors
// learn that there is one.
func (d *aboutView) health(v *Visit) {
	all := v.Scope().All
	for _, c := range d.Checks {
		ctx, cancel := context.WithTimeout(v.Context, checkTime)
		row := healthRow{Name: c.Name, Pill: ui.NewPill(ui.ToneOK, "check", "Works")}
		if err := c.Ask(ctx); err != nil {
			row.Pill = ui.NewPill(ui.ToneBad, "cross", "Does not work")
			if row.Text = askOperator; all {
				row.Text, row.Hint = err.Error(), command.Hint(err)
			}
		}
		cancel()
		d.Health = append(d.Health, row)
	}
	if v.Backend.AuditLog != nil && v.Backend.Checked != nil {
		d.Health = append(d.Health, auditHealth(v.Backend.Checked.Last(), v.Now, all))
	}
}

func auditHealth(f Found, now time.Time, all bool) healthRow {
	row := healthRow{Name: "Audit log", Pill: ui.NewPill(ui.ToneIdle, "clock", "Not verified yet"), Text: "Opening the Audit page verifies it."}
	if f.At.IsZero() {
		return row
	}
	c := chainOf(f)
	row.Pill, row.Text = ui.NewPill(c.Tone, c.Icon, "Verified"), "Checked "+ui.Age(now, f.At)+"."
	if c.Tone != ui.ToneOK {
		row.Pill.Word, row.Text = "Not verified", askOperator
		if all {
			row.Text = c.Title + ": " + c.Problem
		}
	}
	return row
}

// aboutVerbs are all verbs that the rows below need, as roles name them.
var aboutVerbs = []string{"get", "list", "patch", "update", "delete"}

// aboutRights are the permissions that the page shows, the most important first.
var aboutRights = []struct {
	resource          access.Resource
	name, means, role string
	verbs             string
}{
	{access.ResourceStacks, "Stacks", "view stacks; approve, reject and suspend need patch", "terraforms", "get list patch update delete"},
	{access.ResourceLog, "Runs and logs", "view runs and their logs", "terraforms/log", "get"},
	{access.ResourcePlan, "Plans", "view the changes of a plan, with values that are not sensitive", "terraforms/plan", "get"},
	{access.ResourceOutputs, "Outputs", "view outputs that are not sensitive", "terraforms/outputs", "get"},
	{access.ResourceState, "States", "read the state with its secrets; replacing it needs update", "terraforms/state", "get update"},
	{access.ResourceWindows, "Windows", "have one plan applied outside of the windows of policies", "terraforms/windows", "update"},
	{access.ResourceAudit, "Audit log", "view who did what to the stacks of the namespace", "terraforms/audit", "list"},
	{access.ResourceNotifications, "Notifications", "view sent messages and their outcome", "terraforms/notifications", "list"},
	{access.ResourceTenants, "Tenants", "view tenants and their objects", "tenants", "get list patch delete"},
	{access.ResourceRegistries, "Registries of tenants", "view registries; allow deletions, read now and suspend need patch", "tenantregistries", "get list patch"},
	{access.ResourceTemplates, "Templates of tenants", "view rollouts; resume needs patch, undo needs update", "tenanttemplates", "get list patch update"},
	{access.ResourceSources, "Sources", "view the sources of modules", "gitrepositories", "get list"},
	{access.ResourceRegistry, "Artifacts", "pull artifacts, modules and providers; push needs update", "terraforms/registry", "get update"},
}

// rights asks for the visitor's permissions in one namespace, or in all.
func (d *aboutView) rights(v *Visit) {
	d.Verbs = aboutVerbs
	for _, r := range aboutRights {
		row := rightRow{Name: r.name, Means: r.means, Role: r.role}
		for _, verb := range aboutVerbs {
			cell := rightCell{Verb: verb}
			if cell.Asked = strings.Contains(" "+r.verbs+" ", " "+verb+" "); cell.Asked {
				cell.May = v.Can(access.Request{Verb: verb, Resource: r.resource, Namespace: d.Namespace})
			}
			row.May = append(row.May, cell)
		}
		d.Rights = append(d.Rights, row)
	}
}

// CheckOf makes a check of a function that reports readiness. For nil it makes
// none.
func CheckOf(name string, ask func(context.Context) error) []Check {
	if ask == nil {
		return nil
	}
	return []Check{{name, func(ctx context.Context) error {
		err := ask(ctx)
		if ctx.Err() != nil {
			return fault.New(fault.Later, "NoAnswer", ctx.Err())
		}
		return err
	}}}
}

// Platform describes the server and its settings. The wiring of the server
// fills it in; the page leaves out what is not known.
type Platform struct {
	Started   time.Time
	Isolation Isolation
	Engines   func(context.Context) []Engine // asked for each visit
	Mirror    Mirror
	Settings  []Setting
	Addresses []Address
	Checks    []Check
	MaxRuns   int           // runs at once
	Glass     time.Duration // the longest break-glass session; 0 if none is allowed
}

// Isolation is how well a run is confined on this machine.
type Isolation struct {
	Level   string // full, kernel or basic
	Least   string // at which runs are allowed
	Reasons []string
}

// Engine is a program that runs drive.
type Engine struct {
	Name    string // as stacks choose it; empty for the one they get by themselves
	Version string
	Trouble string // why it cannot be used
	Advice  string // about its version
}

// Mirror is where providers come from; the zero Mirror is their registries.
type Mirror struct {
	Dir       string
	Providers int
}

// Setting is one limit or switch, and the flag that sets it.
type Setting struct {
	Name, Value, Flag string
}

// DurationSetting is the Setting of a duration.
func DurationSetting(name string, d time.Duration, flag string) Setting {
	return Setting{Name: name, Value: ui.Whole(d), Flag: flag}
}

// Address is where something of this server answers.
type Address struct {
	Name, URL string
}

// Check asks a part of the server whether it works.
type Check struct {
	Name string
	Ask  func(context.Context) error
}

// statusEvery is how often the page of the status refreshes.
const statusEvery = 15 * time.Second

// Status shows the status of everything that the visitor may view, the worst first.
func Status(v *Visit) (Page, error) {
	o := situation.Of(v.Context, v.Backend.Overview.For(v.Scope(), v.Person.Flux, v.Now))
	d := statusView{Now: v.Now, Pill: pillOfLevel(o.Level)}
	for _, p := range o.Parts {
		d.Parts = append(d.Parts, statusPart{Part: p, Title: partTitles[p.Name], Pill: pillOfLevel(p.Level), Href: partPages[p.Name]})
	}
	return Page{Title: "Status", Section: "status", Template: "status", Data: d, Live: Live{Every: statusEvery}}, nil
}

// statusView is what the page shows.
type statusView struct {
	Now   time.Time
	Pill  ui.Pill
	Parts []statusPart
}

type statusPart struct {
	situation.Part
	Title string
	Pill  ui.Pill
	Href  string // of the page about the part; empty without one
}

// Rows are the items of the part.
func (p statusPart) Rows() []statusRow {
	var rows []statusRow
	for _, i := range p.Items {
		row := statusRow{Item: i, Pill: pillOfLevel(i.Level)}
		row.Pill.Word = i.Status
		if i.Stack != nil {
			row.Href = stackPath(*i.Stack)
		}
		rows = append(rows, row)
	}
	return rows
}

type statusRow struct {
	situation.Item
	Pill ui.Pill
	Href string
}

var (
	partTitles = map[string]string{situation.Stacks: "Stacks", situation.Plans: "Plans", situation.Vault: "Vault", situation.Flux: "Flux", situation.Server: "Server", situation.Controllers: "Controllers", situation.Queue: "Queue"}
	partPages  = map[string]string{situation.Stacks: "/stacks", situation.Plans: "/approvals", situation.Flux: "/sources", situation.Server: "/about", situation.Queue: "/queue"}
)

func pillOfLevel(l situation.Level) ui.Pill {
	switch l {
	case situation.Bad:
		return ui.PillOf(ui.ToneBad, "Bad")
	case situation.Attention:
		return ui.PillOf(ui.ToneWarn, "Needs attention")
	case situation.Good:
		return ui.PillOf(ui.ToneOK, "Good")
	default:
		return ui.PillOf(ui.ToneIdle, "Not used")
	}
}
