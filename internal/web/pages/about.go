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
)

// checkTime is how long a part of the server may take to say that it works.
const checkTime = 5 * time.Second

// About shows what runs here, whether its parts work, who the visitor is and what
// they may do.
func About(v *Visit) (Page, error) {
	p := v.House.Platform
	d := aboutView{
		Now: v.Now, Version: v.House.Version, User: v.User, Platform: p, Groups: v.User.Groups,
		Namespace: rightsOf(v), Namespaces: visibleNamespaces(v), Docs: docs,
	}
	if !p.Started.IsZero() {
		d.Uptime = span(v.Now.Sub(p.Started))
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

// rightsOf is the namespace whose rights are shown, empty for all of them. Whoever
// has rights in some only has none everywhere, and begins with the first of his.
func rightsOf(v *Visit) string {
	if v.Query.Has("namespace") || v.Scope().All {
		return strings.TrimSpace(v.Query.Get("namespace"))
	}
	if mine := slices.Sorted(maps.Keys(v.Scope().In)); len(mine) > 0 {
		return mine[0]
	}
	return ""
}

const askOperator = "Ask whoever runs this server."

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
	Pill Pill
}

// healthRow is a part of the server.
type healthRow struct {
	Name string
	Pill Pill
	Text string
	Hint string
}

// rightRow is what the visitor may do with one kind of thing.
type rightRow struct {
	Name, Means, Role string // Role is the resource as roles have it
	May               []rightCell
}

// rightCell is one verb; nothing takes it if Asked is false.
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
	{"Commands", "everything the command line can do", manual + "cli.md"},
	{"Pages", "what a browser shows; keys", manual + "pages.md"},
	{"HTTP API", "asking and commanding with a token", manual + "api.md"},
	{"Roles", "who may do what, and roles to begin with", manual + "rbac.md"},
	{"Audit", "what the journal holds", manual + "audit.md"},
	{"Notifications", "by chat or webhook", manual + "notifications.md"},
	{"Metrics", "what to scrape and be woken by", manual + "metrics.md"},
	{"Tenants", "from rows of a table to objects", manual + "tenants.md"},
	{"Guards", "what keeps tenants from being deleted", manual + "tenant-guards.md"},
	{"Sources", "what modules come from", manual + "sources.md"},
	{"State", "where states are, and how to change one", manual + "state.md"},
	{"Controller of a cluster", "running it beside other controllers", manual + "controller.md"},
	{"Threat model", "what is defended, and against whom", manual + "threat-model.md"},
}

func seesText(s access.Scope) string {
	switch n := len(s.In); {
	case s.All:
		return "the stacks of all namespaces"
	case n == 0:
		return "no stacks: you may list terraforms in no namespace that has any"
	case n > 10:
		return "the stacks of " + query.Count(n, "namespace")
	default:
		return "the stacks of " + query.Count(n, "namespace") + ": " + strings.Join(slices.Sorted(maps.Keys(s.In)), ", ")
	}
}

// engines asks what runs can drive. Why one cannot be used names files of the
// server, and is for those who run it.
func (d *aboutView) engines(v *Visit) {
	if d.Platform.Engines == nil {
		return
	}
	for _, e := range d.Platform.Engines(v.Context) {
		row := engineRow{e, Pill{ToneOK, "check", "Works"}}
		switch {
		case e.Trouble != "":
			row.Pill = Pill{ToneBad, "cross", "Cannot be used"}
			if !v.Scope().All {
				row.Trouble = askOperator
			}
		case e.Advice != "":
			row.Pill = Pill{ToneWarn, "alert", "Works"}
		}
		d.Programs = append(d.Programs, row)
	}
}

// health asks each part. What goes wrong inside is for those who run the server:
// others learn that it does.
func (d *aboutView) health(v *Visit) {
	all := v.Scope().All
	for _, c := range d.Checks {
		ctx, cancel := context.WithTimeout(v.Context, checkTime)
		row := healthRow{Name: c.Name, Pill: Pill{ToneOK, "check", "Works"}}
		if err := c.Ask(ctx); err != nil {
			row.Pill = Pill{ToneBad, "cross", "Does not work"}
			if row.Text = askOperator; all {
				row.Text, row.Hint = err.Error(), command.Hint(err)
			}
		}
		cancel()
		d.Health = append(d.Health, row)
	}
	if v.House.Journal != nil && v.House.Checked != nil {
		d.Health = append(d.Health, journalHealth(v.House.Checked.Last(), v.Now, all))
	}
}

func journalHealth(f Found, now time.Time, all bool) healthRow {
	row := healthRow{Name: "Journal", Pill: Pill{ToneIdle, "clock", "Not verified yet"}, Text: "It is verified when somebody looks at the audit page."}
	if f.At.IsZero() {
		return row
	}
	c := chainOf(f)
	row.Pill, row.Text = Pill{c.Tone, c.Icon, "Verified"}, "Looked at "+age(now, f.At)+"."
	if c.Tone != ToneOK {
		row.Pill.Word, row.Text = "Not verified", askOperator
		if all {
			row.Text = c.Title + ": " + c.Problem
		}
	}
	return row
}

// aboutVerbs are those that anything here takes, as roles have them.
var aboutVerbs = []string{"get", "list", "patch", "update", "delete"}

// aboutRights are what can be asked for, in the order in which it matters to people.
var aboutRights = []struct {
	resource          access.Resource
	name, means, role string
	verbs             string
}{
	{access.ResourceStacks, "Stacks", "see them; approve, reject, suspend and the like take patch", "terraforms", "get list patch update delete"},
	{access.ResourceLog, "Runs and logs", "what runs did and said", "terraforms/log", "get"},
	{access.ResourcePlan, "Plans", "what a plan would change, values that are not sensitive included", "terraforms/plan", "get"},
	{access.ResourceOutputs, "Outputs", "values that an apply left, not sensitive ones", "terraforms/outputs", "get"},
	{access.ResourceState, "States", "the state with its secrets; to put one in its place takes update", "terraforms/state", "get update"},
	{access.ResourceAudit, "Journal", "who did what to stacks of the namespace", "terraforms/audit", "list"},
	{access.ResourceNotifications, "Notifications", "what was sent, and what became of it", "terraforms/notifications", "list"},
	{access.ResourceTenants, "Tenants", "see tenants and their objects", "tenants", "get list patch delete"},
	{access.ResourceRegistries, "Registries of tenants", "see rows' counts; allow, read now and suspend take patch", "tenantregistries", "get list patch"},
	{access.ResourceTemplates, "Templates of tenants", "see rollouts; going on takes patch, going back update", "tenanttemplates", "get list patch update"},
	{access.ResourceSources, "Sources", "see what modules come from", "gitrepositories", "get list"},
	{access.ResourceRegistry, "Artifacts", "pull what was pushed; to push takes update", "terraforms/registry", "get update"},
}

// rights asks what the visitor may do in one namespace, or everywhere.
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

// CheckOf makes a check of what says whether it is ready; of what has no say it
// makes none.
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
