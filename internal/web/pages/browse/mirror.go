package browse

import (
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/web/pages"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// mirrorEvery is how often the page of the mirror refreshes.
const mirrorEvery = 30 * time.Second

// mirrorView is what the page of the mirror shows.
type mirrorView struct {
	catalog.Mirror
	Now       time.Time
	Tabs      ui.Tabs
	Text      string
	Operator  bool // the visitor may read all namespaces, and sees errors
	Upstreams []upstreamRow
	Sum       catalog.Figures // of all upstreams
	Part      string          // of what was served, that was stored before
	Keeps     string
	Rows      []mirroredRow
	Alarms    int
	Pager     ui.Pager
	Empty     *ui.Empty
	Client    clientView
}

// upstreamRow is a registry that is mirrored.
type upstreamRow struct {
	catalog.Upstream
	Pill ui.Pill
	Says string // in plain words
}

// mirroredRow is a provider in the mirror.
type mirroredRow struct {
	catalog.Mirrored
	Href     string
	Versions int // with a stored archive
	On       string
}

var upstreamPills = map[catalog.UpstreamState]struct {
	pill ui.Pill
	says string
}{
	catalog.UpstreamAnswers:   {ui.NewPill(ui.ToneOK, "check", "Answers"), ""},
	catalog.UpstreamRecovered: {ui.NewPill(ui.ToneWarn, "alert", "Answers again"), "It failed within the last hour, and answers now."},
	catalog.UpstreamFails:     {ui.NewPill(ui.ToneBad, "cross", "Fails"), "Stored archives are served. Other versions and platforms cannot be installed until it answers."},
	catalog.UpstreamLimited:   {ui.NewPill(ui.ToneWarn, "pause", "Limits requests"), "It answers with status 429. The mirror waits for as long as it asks. Stored archives are served."},
	catalog.UpstreamOffline:   {ui.NewPill(ui.ToneIdle, "pause", "Offline"), "The settings of the mirror say that it is not asked. Only stored and imported archives are served."},
	catalog.UpstreamUnasked:   {ui.NewPill(ui.ToneIdle, "dot", "Not asked yet"), "Nothing was asked of it since this server started."},
}

func mirrorQuery(v *pages.Visit) catalog.MirrorQuery {
	return catalog.MirrorQuery{Text: strings.TrimSpace(v.Query.Get("q")), All: mayAll(v.Can), Offset: ui.CountIn(v.Query.Get("offset")), Limit: rows}
}

// Mirror shows what the mirror of providers has, and whether its upstreams answer.
func Mirror(v *pages.Visit) (pages.Page, error) {
	if v.Backend.Catalog == nil {
		return pages.Page{}, errNone()
	}
	q := mirrorQuery(v)
	found, err := v.Backend.Catalog.Mirror(v.Context, q)
	if err != nil {
		return pages.Page{}, err
	}
	d := mirrorView{Mirror: found, Now: v.Now, Tabs: tabs("mirror"), Text: q.Text, Operator: q.All, Keeps: "They are never deleted.", Client: clientOf(v)}
	if found.Keep > 0 {
		d.Keeps = "They are deleted " + ui.Span(found.Keep) + " after their last use. Imported archives stay."
	}
	for _, u := range found.Upstreams {
		of := upstreamPills[u.State]
		d.Upstreams = append(d.Upstreams, upstreamRow{u, of.pill, of.says})
		d.Sum.Fetched, d.Sum.Served, d.Sum.Saved = d.Sum.Fetched+u.Fetched, d.Sum.Served+u.Served, d.Sum.Saved+u.Saved
	}
	if d.Sum.Served > 0 {
		d.Part = fmt.Sprintf("%d %%", d.Sum.Saved*100/d.Sum.Served)
	}
	for _, m := range found.Items {
		row := mirroredRow{Mirrored: m, Href: ui.PathOf("registry", "mirror", m.Of.Host, m.Of.Namespace, m.Of.Type), Versions: len(m.Stored()), On: strings.Join(m.Platforms(), ", ")}
		d.Alarms += len(m.Alarms)
		d.Rows = append(d.Rows, row)
	}
	d.Pager = ui.NewPager(v.Path, v.Query, found.Offset, len(d.Rows), rows, found.Total, "provider")
	switch {
	case len(d.Rows) > 0:
	case d.Text != "":
		d.Empty = &ui.Empty{Title: "No matching providers", Href: v.Path, Link: "Show all"}
	default:
		d.Empty = &ui.Empty{Title: "The mirror has no providers yet", Text: "It downloads and verifies a provider at the first request of an engine."}
	}
	return pages.Page{Title: "Mirror of providers", Section: section, Template: "catalog_mirror", Live: pages.Live{Every: mirrorEvery}, Data: d}, nil
}

// mirroredView is what the page of one provider of the mirror shows.
type mirroredView struct {
	catalog.Mirrored
	Now   time.Time
	Rows  []mirroringRow
	Pager ui.Pager
	Uses  usesView
}

// mirroringRow is a release in the mirror.
type mirroringRow struct {
	catalog.Mirroring
	Pill  ui.Pill
	Means string // how it was verified
}

// Mirrored shows the releases that the mirror has of a provider.
func Mirrored(v *pages.Visit) (pages.Page, error) {
	if v.Backend.Catalog == nil {
		return pages.Page{}, errNone()
	}
	p, err := address.NewProvider(v.Names["host"], v.Names["namespace"], v.Names["name"])
	if err != nil {
		return pages.Page{}, fault.New(fault.Missing, fault.Reason(err, ""), err)
	}
	found, err := v.Backend.Catalog.Mirrored(v.Context, p, mirrorQuery(v))
	if err != nil {
		return pages.Page{}, err
	}
	d := mirroredView{Mirrored: found, Now: v.Now}
	from := min(ui.CountIn(v.Query.Get("offset")), max(0, len(found.Releases)-1)/rows*rows)
	for _, r := range found.Releases[from:min(len(found.Releases), from+rows)] {
		d.Rows = append(d.Rows, mirroringOf(r))
	}
	d.Pager = ui.NewPager(v.Path, v.Query, from, len(d.Rows), rows, len(found.Releases), "release")
	if v.Backend.Uses != nil {
		used, err := v.Backend.Uses.OfProvider(v.Context, v.Scope(), p)
		d.Uses.fill(v, used, err, func(string) *ui.Pill { return nil })
	}
	return pages.Page{Title: p.Type + " · mirror", Section: section, Template: "catalog_mirrored", Live: pages.Live{Every: mirrorEvery}, Data: d}, nil
}

func mirroringOf(r catalog.Mirroring) mirroringRow {
	switch {
	case r.KeyID != "" && r.Expired:
		return mirroringRow{r, ui.NewPill(ui.ToneWarn, "alert", "Signed"), "by the key " + r.KeyID + ", which has expired"}
	case r.KeyID != "":
		return mirroringRow{r, ui.NewPill(ui.ToneOK, "check", "Signed"), "by the key " + r.KeyID}
	case r.Sums:
		return mirroringRow{r, ui.NewPill(ui.ToneWarn, "alert", "Checksums"), "of the upstream, without a signature"}
	default:
		return mirroringRow{r, ui.NewPill(ui.ToneWarn, "alert", "Imported"), "without checksums of the upstream"}
	}
}
