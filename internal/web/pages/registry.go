package pages

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

var _ = says(map[Said]string{
	"registry-allowed":   "Exactly these deletions are allowed. The next read begins them; they follow when the grace period ends. To read the rows now, choose Read now.",
	"registry-reading":   "The rows are being read. This page shows the result.",
	"registry-suspended": "Suspended. Rows are not read, and tenants do not change.",
	"registry-resumed":   "Resumed. The rows are read again.",
})

// Registry shows the last read of a database, and its effect on tenants.
func Registry(v *Visit) (Page, error) {
	if v.Backend.Estate == nil {
		return Page{}, errNoTenants
	}
	d, err := v.Backend.Estate.RegistryDetail(v.Context, v.Key())
	if err != nil {
		return Page{}, err
	}
	return Page{Title: d.Name + " · registry", Section: "tenants", Template: "registry", Live: Live{Every: tenantsEvery}, Data: registryOf(v, d)}, nil
}

// registryView is what the page shows.
type registryView struct {
	query.RegistryDetail
	Now         time.Time
	Pill        ui.Pill
	TenantsHref string
	NotReady    string // address of the tenants that are not ready
	LeavingHref string // address of those that will be deleted
	Unready     bool   // for another reason than blocked deletions
	Errors      []rowErrorView
	MoreErrors  int
	Blocked     *blockedView
	Would       []wouldView
	MoreWould   int
	Told        told
	Buttons     []ui.Button
}

// rowErrorView is an invalid row, and the next step.
type rowErrorView struct {
	query.RowError
	Means meaning.Situation
}

// blockedView are the deletions that a guard blocks, and the form that allows
// exactly these.
type blockedView struct {
	query.BlockedSet
	Means meaning.Situation
	More  int    // tenants that are not named
	To    string // the address of the form
	Why   string // why it cannot be allowed here; empty if it can
}

// wouldView is one tenant that a dry run would touch.
type wouldView struct {
	Tone     ui.Tone
	Sign     string
	Name     string
	WordHear string
}

func registryOf(v *Visit, d query.RegistryDetail) registryView {
	path := registryPath(d.Key())
	list := "/tenants?" + url.Values{"namespace": {d.Namespace}, "registry": {d.Name}}.Encode()
	view := registryView{
		RegistryDetail: d, Now: v.Now, Pill: registryPill(d.Registry), Told: toldOf(v.Now, d.Conditions, d.Events, d.Unseen),
		TenantsHref: list, NotReady: list + "&state=" + notReady, LeavingHref: list + "&state=" + query.TenantLeaving,
	}
	for _, e := range d.FirstErrors {
		view.Errors = append(view.Errors, rowErrorView{e, meaning.OfTenant(e.Reason)})
	}
	view.Unready = d.Reason != "" && d.Ready != "True" && (d.Registry.Blocked == nil || d.Registry.Blocked.Reason != d.Reason)
	view.MoreErrors = d.RowErrors - len(d.FirstErrors)
	may := v.Can(access.Request{Verb: "patch", Resource: access.ResourceRegistries, Namespace: d.Namespace, Name: d.Name})
	refused := ""
	if !may {
		refused = "You may not change this registry. Ask for the permission to patch tenantregistries in " + d.Namespace + "."
	}
	if b := d.Registry.Blocked; b != nil {
		view.Blocked = &blockedView{BlockedSet: *b, Means: meaning.OfTenant(b.Reason), More: b.Count - len(b.Tenants), To: path + "/allow", Why: refused}
		switch {
		case b.Allowed:
			view.Blocked.Why = "These deletions were allowed. The next read begins them; they follow when the grace period ends."
		case b.Token == "":
			view.Blocked.Why = "These deletions cannot be allowed together: " + b.Message
		}
	}
	view.would(d.WouldChange)
	view.buttons(path, refused)
	return view
}

func (d *registryView) would(w *query.WouldChange) {
	if w == nil {
		return
	}
	for _, name := range w.Tenants {
		of := wouldView{Tone: ui.ToneOK, Sign: "+", WordHear: "would be created", Name: strings.TrimSpace(name)}
		if rest, ok := strings.CutPrefix(of.Name, "+"); ok {
			of.Name = rest
		} else if rest, ok := strings.CutPrefix(of.Name, "~"); ok {
			of = wouldView{ui.ToneWarn, "~", rest, "would be updated"}
		} else if rest, ok := strings.CutPrefix(of.Name, "-"); ok {
			of = wouldView{ui.ToneBad, "-", rest, "would be deleted"}
		}
		of.Name = strings.TrimSpace(of.Name)
		d.Would = append(d.Would, of)
	}
	d.MoreWould = w.Create + w.Update + w.Delete - len(w.Tenants)
}

func (d *registryView) buttons(path, refused string) {
	read := ui.Button{Label: "Read now", To: path + "/read", Look: "primary", Why: refused}
	toggle := ui.Button{Label: "Suspend", To: path + "/suspend", Why: refused}
	if d.Suspended {
		toggle = ui.Button{Label: "Resume", To: path + "/resume", Look: "primary", Why: refused}
		read.Look = ""
		if refused == "" {
			read.Why = "The registry is suspended. Resume it first."
		}
	}
	d.Buttons = []ui.Button{read, toggle}
}

// AllowDeletions allows exactly the deletions that were shown. The user has
// typed their number, or the name of the registry: each deletion deletes all
// objects of a tenant.
func AllowDeletions(v *Visit) (Done, error) {
	token, typed := v.Form.Get("token"), strings.TrimSpace(v.Form.Get("confirm"))
	shown, err := strconv.Atoi(v.Form.Get("count"))
	if err != nil || shown <= 0 || token == "" {
		return Done{}, fault.New(fault.Invalid, "SetUnnamed", errors.New("the form does not name the deletions that were shown"))
	}
	if typed != v.Key().Name && typed != strconv.Itoa(shown) {
		return Done{}, fault.New(fault.Invalid, "NotConfirmed", fmt.Errorf("to allow %s, type %d or the name of the registry; nothing was allowed", query.Count(shown, "deletion"), shown))
	}
	if err := v.Person.Tenants.Allow(v.Context, v.Key(), token); err != nil {
		return Done{}, err
	}
	return Done{To: registryPath(v.Key()), Said: "registry-allowed"}, nil
}

// ReadRows reads the rows at once.
func ReadRows(v *Visit) (Done, error) {
	if _, err := v.Person.Tenants.ReadNow(v.Context, v.Key()); err != nil {
		return Done{}, err
	}
	return Done{To: registryPath(v.Key()), Said: "registry-reading"}, nil
}

// SuspendRegistry stops reading rows and changing tenants.
func SuspendRegistry(v *Visit) (Done, error) {
	return Done{To: registryPath(v.Key()), Said: "registry-suspended"}, v.Person.Tenants.SuspendRegistry(v.Context, v.Key())
}

// ResumeRegistry ends that.
func ResumeRegistry(v *Visit) (Done, error) {
	return Done{To: registryPath(v.Key()), Said: "registry-resumed"}, v.Person.Tenants.ResumeRegistry(v.Context, v.Key())
}
