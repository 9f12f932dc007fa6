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
)

var _ = says(map[Said]string{
	"registry-allowed":   "Exactly these deletions may pass. They do with the next read: use Read now if that should be at once.",
	"registry-reading":   "The rows are being read. What they say shows up here.",
	"registry-suspended": "Suspended. Rows are not read, and tenants stay as they are.",
	"registry-resumed":   "Resumed. The rows are read again.",
})

// Registry shows what a database said last, and what follows from it.
func Registry(v *Visit) (Page, error) {
	if v.House.Estate == nil {
		return Page{}, errNoTenants
	}
	d, err := v.House.Estate.RegistryDetail(v.Context, v.Key())
	if err != nil {
		return Page{}, err
	}
	return Page{Title: d.Name + " · registry", Section: "tenants", Template: "registry", Live: Live{Every: tenantsEvery}, Data: registryOf(v, d)}, nil
}

// registryView is what the page shows.
type registryView struct {
	query.RegistryDetail
	Now         time.Time
	Pill        Pill
	TenantsHref string
	NotReady    string // address of those that are not
	Unready     bool   // and not for the reason that deletions are held back
	Errors      []rowErrorView
	MoreErrors  int
	Blocked     *blockedView
	Would       []wouldView
	MoreWould   int
	Told        told
	Buttons     []Button
}

// rowErrorView is a row that no tenant can be made of, and what to do about it.
type rowErrorView struct {
	query.RowError
	Means query.Situation
}

// blockedView are the deletions that a guard has stopped, and the form that lets
// exactly these pass.
type blockedView struct {
	query.BlockedSet
	Means query.Situation
	More  int    // tenants that are not named
	To    string // the address of the form
	Why   string // why it cannot be let pass from here; empty if it can
}

// wouldView is one tenant that a dry run would touch.
type wouldView struct {
	Tone     Tone
	Sign     string
	Name     string
	WordHear string
}

func registryOf(v *Visit, d query.RegistryDetail) registryView {
	path := registryPath(d.Key())
	list := "/tenants?" + url.Values{"namespace": {d.Namespace}, "registry": {d.Name}}.Encode()
	view := registryView{
		RegistryDetail: d, Now: v.Now, Pill: registryPill(d.Registry), Told: toldOf(v.Now, d.Conditions, d.Events, d.Unseen),
		TenantsHref: list, NotReady: list + "&state=" + notReady,
	}
	for _, e := range d.FirstErrors {
		view.Errors = append(view.Errors, rowErrorView{e, query.TenantSituation(e.Reason)})
	}
	view.Unready = d.Reason != "" && d.Ready != "True" && (d.Registry.Blocked == nil || d.Registry.Blocked.Reason != d.Reason)
	view.MoreErrors = d.RowErrors - len(d.FirstErrors)
	may := v.Can(access.Request{Verb: "patch", Resource: access.ResourceRegistries, Namespace: d.Namespace, Name: d.Name})
	refused := ""
	if !may {
		refused = "You may not change this registry: ask for the verb patch on tenantregistries in " + d.Namespace + "."
	}
	if b := d.Registry.Blocked; b != nil {
		view.Blocked = &blockedView{BlockedSet: *b, Means: query.TenantSituation(b.Reason), More: b.Count - len(b.Tenants), To: path + "/allow", Why: refused}
		switch {
		case b.Allowed:
			view.Blocked.Why = "Somebody has let them pass. They do with the next read."
		case b.Token == "":
			view.Blocked.Why = "These cannot be let pass at once: " + b.Message
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
		of := wouldView{Tone: ToneOK, Sign: "+", WordHear: "would be made", Name: strings.TrimSpace(name)}
		if rest, ok := strings.CutPrefix(of.Name, "+"); ok {
			of.Name = rest
		} else if rest, ok := strings.CutPrefix(of.Name, "~"); ok {
			of = wouldView{ToneWarn, "~", rest, "would be changed"}
		} else if rest, ok := strings.CutPrefix(of.Name, "-"); ok {
			of = wouldView{ToneBad, "-", rest, "would be deleted"}
		}
		of.Name = strings.TrimSpace(of.Name)
		d.Would = append(d.Would, of)
	}
	d.MoreWould = w.Create + w.Update + w.Delete - len(w.Tenants)
}

func (d *registryView) buttons(path, refused string) {
	read := Button{Label: "Read now", To: path + "/read", Look: "primary", Why: refused}
	toggle := Button{Label: "Suspend", To: path + "/suspend", Why: refused}
	if d.Suspended {
		toggle = Button{Label: "Resume", To: path + "/resume", Look: "primary", Why: refused}
		read.Look = ""
		if refused == "" {
			read.Why = "The registry is suspended: resume it first."
		}
	}
	d.Buttons = []Button{read, toggle}
}

// AllowDeletions lets exactly the deletions pass that were shown. Whoever does so
// has typed how many they are, or the registry's name: what is deleted here is
// all that tenants have.
func AllowDeletions(v *Visit) (Done, error) {
	token, typed := v.Form.Get("token"), strings.TrimSpace(v.Form.Get("confirm"))
	shown, err := strconv.Atoi(v.Form.Get("count"))
	if err != nil || shown <= 0 || token == "" {
		return Done{}, fault.New(fault.Invalid, "SetUnnamed", errors.New("the form does not say which deletions were shown"))
	}
	if typed != v.Key().Name && typed != strconv.Itoa(shown) {
		return Done{}, fault.New(fault.Invalid, "NotConfirmed", fmt.Errorf("to let %s pass, type %d or the name of the registry; nothing has been allowed", query.Count(shown, "deletion"), shown))
	}
	if err := v.Person.Tenants.Allow(v.Context, v.Key(), token); err != nil {
		return Done{}, err
	}
	return Done{To: registryPath(v.Key()), Said: "registry-allowed"}, nil
}

// ReadRows has the rows read at once.
func ReadRows(v *Visit) (Done, error) {
	if _, err := v.Person.Tenants.ReadNow(v.Context, v.Key()); err != nil {
		return Done{}, err
	}
	return Done{To: registryPath(v.Key()), Said: "registry-reading"}, nil
}

// SuspendRegistry leaves rows and tenants as they are.
func SuspendRegistry(v *Visit) (Done, error) {
	return Done{To: registryPath(v.Key()), Said: "registry-suspended"}, v.Person.Tenants.SuspendRegistry(v.Context, v.Key())
}

// ResumeRegistry ends that.
func ResumeRegistry(v *Visit) (Done, error) {
	return Done{To: registryPath(v.Key()), Said: "registry-resumed"}, v.Person.Tenants.ResumeRegistry(v.Context, v.Key())
}
