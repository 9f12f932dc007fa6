package pages

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Audit shows the audit log, and whether it verifies.
func Audit(v *Visit) (Page, error) {
	page := Page{Title: "Audit", Section: "audit", Template: "audit", Live: Live{Every: tenantsEvery}}
	if v.Backend.AuditLog == nil {
		page.Data = auditView{Now: v.Now, Empty: &ui.Empty{Title: "No audit log", Text: "This server keeps no audit log."}}
		return page, nil
	}
	sight := query.AuditSightOf(v.Can)
	q, wrong := AuditQuery(v.Query)
	found, err := v.Backend.AuditLog.Entries(v.Context, sight, q)
	if err != nil {
		return page, err
	}
	d := auditOf(v, q, found)
	d.Problem = problemOf("The filter by day was ignored", wrong)
	if sight.All {
		// Verifying reads all of the log, so not every visitor starts it.
		d.Chain = chainOf(v.Backend.Checked.Look(v.Context, v.Backend.AuditLog, v.Now))
		if d.Chain.Tone == ui.ToneBusy {
			page.Live.Every = checkEvery
		}
	}
	page.Data = d
	return page, nil
}

// checkEvery is how often the page refreshes while the log is verified part by part.
const checkEvery = 2 * time.Second

var _ = says(map[Said]string{"audit-log-verified": "The whole audit log was read. The result is below."})

// VerifyAuditLog verifies the whole audit log again.
func VerifyAuditLog(v *Visit) (Done, error) {
	if v.Backend.AuditLog != nil {
		v.Backend.Checked.again(v.Context, v.Backend.AuditLog, v.Now)
	}
	return Done{To: "/audit", Said: "audit-log-verified"}, nil
}

// auditPage is how many entries are shown at once.
const auditPage = 100

// AuditQuery reads the filters of the page and of its export. The error names the
// filters that are invalid.
func AuditQuery(from url.Values) (query.AuditQuery, error) {
	q := query.AuditQuery{
		Who: strings.TrimSpace(from.Get("who")), Via: query.AuditVia(from.Get("via")), Namespace: strings.TrimSpace(from.Get("namespace")),
		Stack: strings.TrimSpace(from.Get("stack")), Text: strings.TrimSpace(from.Get("q")), Limit: auditPage,
	}
	q.ByUsers = from.Get("all") == "" && from.Get("what") == "" && q.Via != viaController && q.Text == ""
	if what := from.Get("what"); what != "" {
		q.What = []query.AuditWhat{query.AuditWhat(what)}
	}
	q.Before, _ = strconv.ParseUint(from.Get("before"), 10, 64) // what is no number is the newest page
	var wrong []string
	day := func(name string, later int) (t time.Time) {
		text := strings.TrimSpace(from.Get(name))
		if text == "" {
			return t
		}
		t, err := time.Parse(time.DateOnly, text)
		if err != nil {
			wrong = append(wrong, name)
			return time.Time{}
		}
		return t.AddDate(0, 0, later)
	}
	q.Since, q.Until = day("from", 0), day("to", 1) // the last day counts, too
	if wrong == nil {
		return q, nil
	}
	return q, fault.New(fault.Invalid, "QueryInvalid", fmt.Errorf("%s takes a day as 2026-03-01, in UTC", strings.Join(wrong, " and ")))
}

// auditView is what the page shows.
type auditView struct {
	Now      time.Time
	Query    query.AuditQuery
	From, To string
	Ways     []wayChoice
	Actions  []actionGroup // that can be chosen
	Rows     []auditRow
	Older    string // address of the next page, empty if there is none
	Newest   string // address of the first, empty on it
	Export   string
	Chain    *chainView
	Filtered bool
	Whose    []planChip // the entries of users, and all
	Problem  *Problem
	Empty    *ui.Empty
}

// auditRow is one entry.
type auditRow struct {
	query.AuditEntry
	Pill     ui.Pill
	Who, Way string
	Verified string // whether the user was verified, in words; empty if Terrier acted by itself
	Href     string // of the object
	PlanHref string
	RunHref  string
	ByHref   string // the entries of the same person
	Facts    []fact
}

// fact is one detail of an entry.
type fact struct{ Name, Value string }

// ways are the interfaces through which a request comes, in words.
var ways = []struct {
	via  query.AuditVia
	word string
}{{query.ViaUI, "pages"}, {query.ViaAPI, "API"}, {query.ViaCLI, "command line"}, {"kubectl", "Kubernetes API"}, {"git", "Git"}, {viaController, "Terrier itself"}}

// viaController marks an action of the controller itself.
const viaController query.AuditVia = "controller"

func wayWord(via query.AuditVia) string {
	for _, w := range ways {
		if w.via == via {
			return w.word
		}
	}
	return string(via)
}

type wayChoice struct {
	Via, Word string
	Chosen    bool
}

// auditAction is a kind of entry of the audit log, and its tone.
type auditAction struct {
	what query.AuditWhat
	tone ui.Tone
}

// auditActions has all kinds, by subject. The kinds that an auditor looks for have a
// colour; the others are quiet.
var auditActions = []struct {
	about string
	of    []auditAction
}{
	{"Plans and runs", []auditAction{
		{"planned", ui.ToneIdle}, {"approved", ui.ToneOK}, {"approved-stale", ui.ToneWarn}, {"rejected", ui.ToneWarn}, {"rejected-late", ui.ToneWarn}, {"window-overridden", ui.ToneWarn}, {"cancel-asked", ui.ToneWarn}, {"plan-held", ui.ToneWarn}, {"plan-refused", ui.ToneBad}, {"plan-failed", ui.ToneBad},
		{"apply-started", ui.ToneIdle}, {"applied", ui.ToneOK}, {"apply-failed", ui.ToneBad}, {"steps-started", ui.ToneIdle}, {"steps-ended", ui.ToneIdle}, {"destroy-started", ui.ToneIdle}, {"destroyed", ui.ToneWarn}, {"destroy-failed", ui.ToneBad},
		{"recovered", ui.ToneOK}, {"drift", ui.ToneDrift}, {"drift-accepted", ui.ToneWarn}, {"drift-resolved", ui.ToneOK}, {"untracked-found", ui.ToneBad}, {"untracked-ignored", ui.ToneWarn}, {"retained-forgotten", ui.ToneWarn}, {"repair-asked", ui.ToneIdle}, {"replan-asked", ui.ToneIdle}, {"steps-rerun-asked", ui.ToneIdle},
		{"rollback-asked", ui.ToneWarn}, {"rolled-back", ui.ToneBad}, {"rollback-end-asked", ui.ToneIdle}, {"rollback-ended", ui.ToneIdle},
	}},
	{"Stacks", []auditAction{
		{"created", ui.ToneIdle}, {"changed", ui.ToneIdle}, {"suspended", ui.ToneIdle}, {"resumed", ui.ToneIdle}, {"deletion-asked", ui.ToneWarn}, {"deleted", ui.ToneIdle}, {"retained", ui.ToneIdle}, {"orphaned", ui.ToneBad},
	}},
	{"States and secrets", []auditAction{
		{"secret-read", ui.ToneIdle}, {"secret-renewed", ui.ToneIdle}, {"secret-revoked", ui.ToneIdle}, {"state-read", ui.ToneWarn}, {"state-key-read", ui.ToneWarn}, {"state-locked", ui.ToneIdle}, {"state-unlocked", ui.ToneIdle}, {"lock-broken", ui.ToneWarn}, {"state-accepted", ui.ToneWarn}, {"state-rolled-back", ui.ToneWarn}, {"identity-issued", ui.ToneIdle},
		{"state-pushed", ui.ToneWarn}, {"outputs-revealed", ui.ToneWarn}, {"break-glass-begun", ui.ToneWarn}, {"break-glass-command", ui.ToneWarn}, {"break-glass-command-ended", ui.ToneIdle}, {"break-glass-ended", ui.ToneIdle},
	}},
	{"Tenants", []auditAction{
		{"guard-tripped", ui.ToneBad}, {"guard-cleared", ui.ToneOK}, {"deletions-allowed", ui.ToneWarn}, {"rollout-started", ui.ToneIdle}, {"rollout-stopped", ui.ToneBad}, {"rollout-resumed", ui.ToneIdle},
		{"rollout-finished", ui.ToneOK}, {"rollout-undone", ui.ToneWarn}, {"registry-suspended", ui.ToneIdle}, {"registry-resumed", ui.ToneIdle},
	}},
	{"Registry", []auditAction{
		{"module-published", ui.ToneIdle}, {"module-retracted", ui.ToneWarn}, {"module-restored", ui.ToneIdle}, {"provider-published", ui.ToneIdle}, {"provider-retracted", ui.ToneWarn},
		{"provider-restored", ui.ToneIdle}, {"signing-key-added", ui.ToneWarn}, {"signing-key-removed", ui.ToneWarn},
	}},
	{"Platform", []auditAction{
		{"signed-in", ui.ToneIdle}, {"signed-out", ui.ToneIdle}, {"sign-in-refused", ui.ToneBad}, {"denied", ui.ToneBad},
		{"login-confirmed", ui.ToneIdle}, {"login-declined", ui.ToneWarn}, {"login-refused", ui.ToneBad}, {"token-created", ui.ToneIdle}, {"token-revoked", ui.ToneWarn},
		{"audit-log-opened", ui.ToneIdle}, {"audit-log-cut", ui.ToneWarn}, {"audit-log-damaged", ui.ToneBad}, {"summed-up", ui.ToneWarn}, {"unreadable", ui.ToneBad},
	}},
}

func toneOfAction(w query.AuditWhat) ui.Tone {
	for _, group := range auditActions {
		for _, d := range group.of {
			if d.what == w {
				return d.tone
			}
		}
	}
	return ui.ToneIdle
}

// actionGroup is one group of the filter.
type actionGroup struct {
	About string
	Of    []actionChoice
}

type actionChoice struct {
	What, Word string
	Chosen     bool
}

func actionChoices(chosen string) []actionGroup {
	var out []actionGroup
	for _, group := range auditActions {
		g := actionGroup{About: group.about}
		for _, d := range group.of {
			g.Of = append(g.Of, actionChoice{string(d.what), whatWord(d.what), string(d.what) == chosen})
		}
		out = append(out, g)
	}
	return out
}

// whatWord is an action in words.
func whatWord(w query.AuditWhat) string {
	return ui.Capital(strings.ReplaceAll(string(w), "-", " "))
}

func auditOf(v *Visit, q query.AuditQuery, found query.AuditPage) auditView {
	d := auditView{
		Now: v.Now, Query: q, From: v.Query.Get("from"), To: v.Query.Get("to"), Actions: actionChoices(v.Query.Get("what")),
		Export: ui.With("/audit/export", ui.Without(v.Query, "before"), "all", "yes"),
		Whose: []planChip{
			{Label: "By users", Tone: ui.ToneIdle, Href: ui.With(v.Path, ui.Without(v.Query, "before", "what", "via", "q"), "all"), Current: q.ByUsers},
			{Label: "All entries", Tone: ui.ToneIdle, Href: ui.With(v.Path, ui.Without(v.Query, "before"), "all", "yes"), Current: !q.ByUsers},
		},
	}
	for _, w := range ways {
		d.Ways = append(d.Ways, wayChoice{string(w.via), w.word, w.via == q.Via})
	}
	d.Filtered = len(ui.Without(v.Query, "done", "before", "all")) > 0
	for _, e := range found.Items {
		d.Rows = append(d.Rows, rowOfAudit(e))
	}
	if found.Next != 0 {
		d.Older = ui.With(v.Path, v.Query, "before", strconv.FormatUint(found.Next, 10))
	}
	if q.Before != 0 {
		d.Newest = ui.With(v.Path, v.Query, "before", "")
	}
	switch {
	case len(d.Rows) > 0 || found.Next != 0:
	case d.Filtered || q.Before != 0:
		d.Empty = &ui.Empty{Title: "No matching entries", Href: v.Path, Link: "Show the newest"}
	case q.ByUsers && sight(v):
		d.Empty = &ui.Empty{Title: "No entries by users yet", Text: "Terrier records what users do here. Entries that it makes by its own rules are under All entries.", Href: ui.With(v.Path, nil, "all", "yes"), Link: "Show all entries"}
	default:
		d.Empty = &ui.Empty{Title: "No entries that you may view", Text: "To view entries about a namespace, you need the permission to list terraforms/audit there. To view entries about the platform, you need it in all namespaces."}
	}
	return d
}

// sight reports whether the visitor may view entries of all namespaces.
func sight(v *Visit) bool { return query.AuditSightOf(v.Can).All }

func rowOfAudit(e query.AuditEntry) auditRow {
	row := auditRow{AuditEntry: e, Who: e.Who, Way: wayWord(e.Via), Href: objectPath(e.Object.Kind, e.Object.Namespace, e.Object.Name)}
	row.Pill = ui.PillOf(toneOfAction(e.What), whatWord(e.What))
	switch {
	case e.Who != "":
		row.ByHref, row.Verified = ui.With("/audit", nil, "who", e.Who), "verified"
	case e.Claimed != "":
		row.Who, row.Verified = e.Claimed, "said by the object, not verified"
	case e.Via == viaController || e.Via == "":
		row.Who, row.Way = wayWord(viaController), ""
	default:
		row.Who = "unknown user"
	}
	if key, ok := query.AuditedStack(e.Object); ok {
		row.Href = stackPath(key)
		if e.Digest != "" {
			row.PlanHref = ui.With(row.Href+"/plan", nil, "digest", e.Digest)
		}
		if e.Run != "" {
			row.RunHref = row.Href + "/runs/" + url.PathEscape(e.Run)
		}
	}
	if e.Plan != "" && e.Why == "plan "+e.Plan {
		row.Why = "" // the row names the plan already
	}
	for _, name := range slices.Sorted(maps.Keys(e.Details)) {
		row.Facts = append(row.Facts, fact{name, e.Details[name]})
	}
	return row
}

// AuditCheck keeps the last result of verifying the audit log, so that not every
// visit reads all of it. A visit verifies the log part by part: a page never waits
// for a log of a million entries.
type AuditCheck struct {
	reading sync.Mutex // held while the log is read

	mu    sync.Mutex
	found Found
}

// checkedFor is how long a result is shown before the log is verified again.
const checkedFor = 10 * time.Minute

// Found is a result of verifying the audit log.
type Found struct {
	At     time.Time // zero if it was never read
	Report query.AuditReport
	Err    error
}

// Look returns the last result, and verifies more of the log if the result is too
// old or not complete. While another visit verifies, Look returns at once.
func (c *AuditCheck) Look(ctx context.Context, j query.AuditLog, now time.Time) Found {
	if last := c.Last(); !last.At.IsZero() && last.Err == nil && last.Report.Until == 0 && now.Sub(last.At) < checkedFor || !c.reading.TryLock() {
		return last
	}
	defer c.reading.Unlock()
	report, err := j.CheckAuditLog(ctx)
	return c.keep(Found{now, report, err})
}

// Last returns the last result, and reads nothing.
func (c *AuditCheck) Last() Found {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

func (c *AuditCheck) again(ctx context.Context, j query.AuditLog, now time.Time) {
	c.reading.Lock()
	defer c.reading.Unlock()
	report, err := j.VerifyAuditLog(ctx)
	c.keep(Found{now, report, err})
}

func (c *AuditCheck) keep(f Found) Found {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = f
	return f
}

// chainView is the result of verifying the audit log.
type chainView struct {
	Tone    ui.Tone
	Icon    string
	Title   string
	Entries int
	Head    uint64
	HeadAt  time.Time
	Hash    string
	At      time.Time // of the verification
	Problem string
	Anchor  uint64 // up to which an anchor outside of the log covers it; 0 without one
	Until   uint64 // up to which there is more to read; 0 if all was read
	Begun   bool   // some of it was read
}

func chainOf(f Found) *chainView {
	c := &chainView{
		Tone: ui.ToneOK, Icon: "check", At: f.At, Entries: int(min(f.Report.Entries, 1<<53)), Head: f.Report.Head.Seq, HeadAt: f.Report.Head.At, Hash: f.Report.Head.Hash,
		Problem: f.Report.Problem, Title: "Verified", Until: f.Report.Until, Begun: !f.At.IsZero(),
	}
	if a := f.Report.Anchor; a != nil {
		c.Anchor = a.Seq
	}
	switch {
	case f.Err != nil:
		c.Tone, c.Icon, c.Title, c.Problem = ui.ToneWarn, "alert", "The audit log could not be read completely", f.Err.Error()
	case c.Problem != "" || f.Report.Bad != nil:
		c.Tone, c.Icon, c.Title = ui.ToneBad, "alert", "The audit log was modified or damaged"
		if c.Problem == "" {
			c.Problem = f.Report.Bad.Error()
		}
	case c.Until > 0 || !c.Begun:
		c.Tone, c.Icon, c.Title = ui.ToneBusy, "turn", "Being verified"
	}
	return c
}
