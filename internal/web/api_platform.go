package web

import (
	"errors"
	"reflect"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/situation"
	"github.com/terrier-iac/terrier/internal/schedule"
)

// errNoSuch is the answer of a server without a part that the request needs.
func errNoSuch(what string) error {
	return fault.New(fault.Later, "NotReady", errors.New("this server has no "+what))
}

// errNoRegistry is the answer of a server without a registry of modules and providers. It
// gets none while it runs.
func errNoRegistry() error {
	return fault.New(fault.Missing, "NoRegistry", errors.New("this server has no registry of modules and providers: its operator can start it with --registry, and with --registry-storage where several controllers share stacks"))
}

// platformAPI is the rows about the platform as a whole. A server may lack each of
// its fields.
type platformAPI struct {
	*gate
	board    Board
	queue    query.Queue
	sources  query.SourceReader
	auditLog query.AuditLog
	notices  query.Notices
	overview situation.Asked
	now      func() time.Time
}

func (a platformAPI) routes() []route {
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "platform", summary: summary, query: params, fails: []fault.Kind{fault.Later}}
	}
	namespace := word("namespace", "Only this namespace. Without it, the caller needs the permission in all namespaces.")
	several := func(name, about string) parameter {
		return parameter{name: name, about: about, kind: reflect.String, several: true}
	}
	return []route{
		reads(a.gate, api+"/queue", known, nil, op("getQueue", "Returns the running and the queued runs of the stacks that the caller may list."), a.listQueue),
		reads(a.gate, api+"/status", known, nil, op("getStatus", "Returns the status of everything that the caller may see: stacks, plans, Vault, the objects of Flux, the server, the controllers and the queue."), a.status),
		reads(a.gate, api+"/sources", guarded, rightIn("list", access.ResourceSources), op("listSources", "Lists the sources of modules, with the stacks that use them.", namespace), a.listSources),
		reads(a.gate, api+"/audit", known, nil, op("listAuditEntries", "Lists the entries of the audit log, newest first, in the namespaces where the caller may list terraforms/audit.",
			word("since", "Only entries since this time, in RFC 3339."), word("until", "Only entries before this time."), word("who", "Only entries of this user."),
			several("what", "Only this action; several match any of them."), word("via", "Only this interface: ui, api, cli, kubectl, git or controller."),
			word("namespace", "Only this namespace."), word("stack", "The name of an object."), word("kind", "The kind of the stack, as kind.group; empty for the first kind. Without it, objects of any kind."), word("q", "Words that must all occur."),
			number("before", "The value of next of the previous page."), number("limit", "Number of entries: 100 by default, at most 1000.")), a.listEntries),
		reads(a.gate, api+"/audit/verify", guarded, everywhere("list", access.ResourceAudit), op("verifyAudit", "Verifies the audit log."),
			func(c call) (query.AuditReport, error) {
				if a.auditLog == nil {
					return query.AuditReport{}, errNoSuch("audit log")
				}
				return a.auditLog.VerifyAuditLog(c.ctx())
			}),
		reads(a.gate, api+"/notifications", guarded, rightIn("list", access.ResourceNotifications), op("listNotifications", "Lists the notifications that were sent, newest first, and their outcome.",
			namespace, word("name", "The name of the object."), word("provider", "Only this provider."), word("event", "Only this event."),
			several("outcome", "failed, retrying, delivered or dropped; several match any of them."),
			number("offset", "Number of entries to skip."), number("limit", "Number of entries: 100 by default, at most 1000.")), a.listNotices),
	}
}

// status asks as the caller: without impersonation, the objects of Flux are left out.
func (a platformAPI) status(c call) (situation.Overview, error) {
	scope, err := c.scope()
	if err != nil {
		return situation.Overview{}, err
	}
	var flux situation.Objects
	if a.people != nil {
		p, err := c.person()
		if err != nil {
			return situation.Overview{}, err
		}
		flux = p.Flux
	}
	return situation.Of(c.ctx(), a.overview.For(scope, flux, a.now())), nil
}

// queueView is the queue as one caller sees it.
type queueView struct {
	AtWork   []schedule.Turn    `json:"atWork"`
	Waiting  []schedule.Turn    `json:"waiting"`
	Backlog  *schedule.Backlog  `json:"backlog,omitempty"` // only for those who may list all stacks
	Capacity query.CapacityInfo `json:"capacity"`
}

func (a platformAPI) listQueue(c call) (queueView, error) {
	if a.queue == nil || a.board == nil {
		return queueView{}, errNoSuch("queue")
	}
	scope, err := c.scope()
	if err != nil {
		return queueView{}, err
	}
	line, backlog := a.queue.Line(), a.queue.Backlog()
	v := queueView{AtWork: within(scope, line.Running), Waiting: within(scope, line.Waiting)}
	if scope.All {
		v.Backlog = &backlog
	}
	v.Capacity, err = a.board.Capacity(query.SlotsOf(backlog))
	return v, err
}

func within(scope access.Scope, turns []schedule.Turn) []schedule.Turn {
	out := make([]schedule.Turn, 0, len(turns))
	for _, t := range turns {
		if scope.Of(t.StackKind).Has(t.Namespace) {
			out = append(out, t)
		}
	}
	return out
}

func (a platformAPI) listSources(c call) (list[query.Source], error) {
	if a.sources == nil {
		return list[query.Source]{}, errNoSuch("sources")
	}
	scope, err := c.scope()
	if err != nil {
		return list[query.Source]{}, err
	}
	all, err := a.sources.List(c.ctx(), scope)
	if err != nil {
		return list[query.Source]{}, err
	}
	var out []query.Source
	for _, one := range all {
		if ns := c.Query("namespace"); ns == "" || one.Namespace == ns {
			out = append(out, one)
		}
	}
	return listOf(out), nil
}

func (a platformAPI) listEntries(c call) (query.AuditPage, error) {
	if a.auditLog == nil {
		return query.AuditPage{}, errNoSuch("audit log")
	}
	q := query.AuditQuery{Who: c.Query("who"), Via: query.AuditVia(c.Query("via")), Namespace: c.Query("namespace"), Stack: c.Query("stack"), Text: c.Query("q")}
	if kind, ok := c.GetQuery("kind"); ok {
		if d := a.scopes.kinds.Named(kind); d != nil { // else it may be one that was reconciled before
			kind = a.scopes.kinds.Word(d)
		}
		q.Kind = &kind
	}
	for _, what := range c.QueryArray("what") {
		q.What = append(q.What, query.AuditWhat(what))
	}
	var errs [4]error
	q.Since, errs[0] = c.moment("since")
	q.Until, errs[1] = c.moment("until")
	q.Limit, errs[2] = c.count("limit")
	if text := c.Query("before"); text != "" {
		if q.Before, errs[3] = strconv.ParseUint(text, 10, 64); errs[3] != nil {
			errs[3] = errQuery("the parameter before takes a number, not %.80q", text)
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return query.AuditPage{}, err
	}
	page, err := sightedEntries(c.Context, a.auth, a.auditLog)(q)
	if page.Items == nil {
		page.Items = []query.AuditEntry{}
	}
	return page, err
}

// sightedEntries reads the entries of the audit log that the caller may see, page by page. A
// permission that could not be checked is an error: entries are not left out silently.
func sightedEntries(c *gin.Context, auth Auth, log query.AuditLog) func(query.AuditQuery) (query.AuditPage, error) {
	ctx, user := c.Request.Context(), userOf(c)
	var failed error
	sight := query.AuditSightOf(func(right access.Request) bool {
		err := auth.Authorize(ctx, user, right)
		if err != nil && fault.Of(err) != fault.Denied {
			failed = err
		}
		return err == nil
	})
	return func(q query.AuditQuery) (query.AuditPage, error) {
		page, err := log.Entries(ctx, sight, q)
		return page, errors.Join(err, failed)
	}
}

// moment reads a parameter that is a time.
func (c call) moment(name string) (time.Time, error) {
	text := c.Query(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, errQuery("the parameter %s takes a time as 2026-03-01T12:00:00Z, not %.80q", name, text)
	}
	return t, nil
}

func (a platformAPI) listNotices(c call) (query.NoticePage, error) {
	if a.notices == nil {
		return query.NoticePage{}, errNoSuch("notifications")
	}
	q := query.NoticeQuery{Namespace: c.Query("namespace"), Name: c.Query("name"), Provider: c.Query("provider"), Event: c.Query("event")}
	for _, o := range c.QueryArray("outcome") {
		q.Outcomes = append(q.Outcomes, query.Outcome(o))
	}
	var err, err2 error
	q.Offset, err = c.count("offset")
	q.Limit, err2 = c.count("limit")
	if err := errors.Join(err, err2); err != nil {
		return query.NoticePage{}, err
	}
	// The row has checked the permission for exactly these. With the permission in all namespaces
	// they are those of former namespaces of the name as well.
	scope := access.Everything
	if q.Namespace != "" {
		err := a.everywhere(c.Context, "list", access.ResourceNotifications, "")
		if err != nil && fault.Of(err) != fault.Denied {
			return query.NoticePage{}, err
		}
		if err != nil {
			scope = access.Scope{In: map[string]bool{q.Namespace: true}}
		}
	}
	return a.notices.Deliveries(c.ctx(), scope, q)
}
