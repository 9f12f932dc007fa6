package browse

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/web/pages"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// The tabs of a provider.
const (
	tabPackages = "packages"
	tabKeys     = "keys"
)

// providerView is what the page of a provider shows.
type providerView struct {
	catalog.Provider
	Now      time.Time
	Tab      string
	Tabs     ui.Tabs
	State    ui.Pill
	Newest   address.Version
	NewHref  string
	Block    string // that requires it
	Versions []providerRow
	Pager    ui.Pager
	Keys     keysView
	Signed   string // what is to be said of the signature of the version
	Uses     usesView
	Space    string
}

// providerRow is a version in the list.
type providerRow struct {
	catalog.ProviderVersion
	Href    string
	Current bool
	State   *ui.Pill
}

// keysView is the keys of a namespace, and how to add one.
type keysView struct {
	Namespace string
	Items     []catalog.Key
	Add       string
}

func keysOf(namespace string, all []catalog.Key) keysView {
	return keysView{namespace, all, "gpg --armor --export KEY | terrier provider keys add - --namespace " + namespace}
}

// Provider shows a provider: how to require it, its platforms, its versions, and the keys
// of its namespace.
func Provider(v *pages.Visit) (pages.Page, error) {
	if v.Backend.Catalog == nil {
		return pages.Page{}, errNone()
	}
	p, err := address.NewProvider("", v.Names["namespace"], v.Names["name"])
	if err != nil {
		return pages.Page{}, fault.New(fault.Missing, fault.Reason(err, ""), err)
	}
	found, err := v.Backend.Catalog.Provider(v.Context, p, v.Query.Get("version"))
	if err != nil {
		return pages.Page{}, err
	}
	d := providerView{Provider: found, Now: v.Now, Space: ui.With("/registry", nil, "namespace", p.Namespace), Keys: keysOf(p.Namespace, found.Keys)}
	d.state(v)
	d.Block = fmt.Sprintf("terraform {\n  required_providers {\n    %s = {\n      source  = %q\n      version = %q\n    }\n  }\n}\n", local(p.Type), v.Host+"/"+d.Address, string(d.Version.Version))
	if v.Backend.Uses != nil {
		used, err := v.Backend.Uses.OfProvider(v.Context, v.Scope(), p)
		d.Uses.fill(v, used, err, d.stateOf)
	}
	d.tabs(v)
	return pages.Page{Title: p.Type + " · provider", Section: section, Template: "catalog_provider", Live: pages.Live{Every: listEvery}, Data: d}, nil
}

// local is the local name of a provider in a configuration.
func local(typ string) string {
	if typ[0] >= '0' && typ[0] <= '9' {
		return "p" + typ
	}
	return typ
}

func (d *providerView) state(v *pages.Visit) {
	for _, one := range d.Provider.Versions {
		if one.Retracted == nil && (d.Newest == "" || d.Newest.Prerelease() && !one.Version.Prerelease()) {
			d.Newest = one.Version
		}
	}
	d.NewHref = ui.With(v.Path, v.Query, "version")
	d.State = ui.NewPill(ui.ToneOK, "check", "Newest")
	if pill := d.stateOf(string(d.Version.Version)); pill != nil {
		d.State = *pill
	}
	switch there := slices.ContainsFunc(d.Provider.Keys, func(k catalog.Key) bool { return strings.EqualFold(k.ID, d.Version.KeyID) }); {
	case d.Version.KeyID == "":
		d.Signed = "The key of the signature is not known: another program published this version."
	case !there:
		d.Signed = "The namespace no longer has the key that signed this version, and clients cannot install it. Add the key again, or publish a new version."
	}
}

func (d *providerView) stateOf(version string) *ui.Pill {
	return stateOf(version, d.Newest, func(v address.Version) (there, retracted bool) {
		i := slices.IndexFunc(d.Provider.Versions, func(one catalog.ProviderVersion) bool { return one.Version == v })
		return i >= 0, i >= 0 && d.Provider.Versions[i].Retracted != nil
	})
}

func (d *providerView) tabs(v *pages.Visit) {
	all := []string{tabPackages, tabVersions, tabKeys}
	if d.Uses.Known {
		all = append(all, tabUses)
	}
	d.Tab = chosen(v, all)
	names := map[string]string{tabPackages: "Platforms", tabVersions: "Versions", tabKeys: "Signing keys", tabUses: "Used by"}
	counts := map[string]int{tabPackages: len(d.Version.Packages), tabVersions: len(d.Provider.Versions), tabKeys: len(d.Provider.Keys), tabUses: d.Uses.Total + d.Uses.Hidden}
	for i, tab := range all {
		if i == 0 {
			tab = ""
		}
		d.Tabs.Items = append(d.Tabs.Items, ui.Tab{Name: names[all[i]], Href: ui.With(v.Path, ui.Without(v.Query, "offset"), "tab", tab), Count: counts[all[i]], Current: all[i] == d.Tab})
	}
	d.Tabs.Label = "Provider " + d.Address
	if d.Tab != tabVersions {
		return
	}
	from := min(ui.CountIn(v.Query.Get("offset")), max(0, len(d.Provider.Versions)-1)/rows*rows)
	for _, one := range d.Provider.Versions[from:min(len(d.Provider.Versions), from+rows)] {
		d.Versions = append(d.Versions, providerRow{one, ui.With(v.Path, url.Values{}, "version", string(one.Version)), one.Version == d.Version.Version, d.stateOf(string(one.Version))})
	}
	d.Pager = ui.NewPager(v.Path, v.Query, from, len(d.Versions), rows, len(d.Provider.Versions), "version")
}

// Keys shows the public keys that a namespace signs its providers with, and how to add one.
func Keys(v *pages.Visit) (pages.Page, error) {
	if v.Backend.Catalog == nil {
		return pages.Page{}, errNone()
	}
	p, err := address.NewProvider("", v.Names["namespace"], "any")
	if err != nil {
		return pages.Page{}, fault.New(fault.Missing, fault.Reason(err, ""), err)
	}
	all, err := v.Backend.Catalog.Keys(v.Context, p.Namespace)
	if err != nil {
		return pages.Page{}, err
	}
	return pages.Page{Title: p.Namespace + " · signing keys", Section: section, Template: "catalog_keys", Data: struct {
		Now   time.Time
		Space string
		Keys  keysView
	}{v.Now, ui.With("/registry", nil, "namespace", p.Namespace), keysOf(p.Namespace, all)}}, nil
}
