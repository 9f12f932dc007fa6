package pages

import (
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Notifications shows the messages that were sent, and their outcome.
func Notifications(v *Visit) (Page, error) {
	page := Page{Title: "Notifications", Section: "notifications", Template: "notifications", Live: Live{Every: tenantsEvery}}
	d := noticesView{Now: v.Now}
	if v.Backend.Notices == nil {
		d.Empty = &ui.Empty{
			Title: "Notifications are off", Text: "This server sends no notifications. To follow stacks, use these pages, the events of Kubernetes, or /api/v1/events.",
		}
		page.Data = d
		return page, nil
	}
	q := noticeQuery(v)
	found, err := v.Backend.Notices.Deliveries(v.Context, noticeScope(v), q)
	if err != nil {
		return page, err
	}
	page.Data = noticesOf(v, q, found)
	return page, nil
}

// noticeScope is the namespaces whose notifications the visitor may view: a permission
// of its own, which is asked for all namespaces and then for each that they see.
func noticeScope(v *Visit) access.Scope {
	if v.Can(access.Request{Verb: "list", Resource: access.ResourceNotifications}) {
		return access.Everything
	}
	visible := visibleNamespaces(v)
	sees := sightOf(v, access.ResourceNotifications, visible)
	scope := access.Scope{In: map[string]bool{}}
	for _, namespace := range visible {
		if sees(namespace) {
			scope.In[namespace] = true
		}
	}
	return scope
}

// visibleNamespaces are those with stacks that the visitor may list.
func visibleNamespaces(v *Visit) []string {
	var out []string
	if v.Backend.Board == nil {
		return out
	}
	for _, n := range v.Backend.Board.Namespaces() {
		if v.Scope().HasAny(n) {
			out = append(out, n)
		}
	}
	return out
}

func noticeQuery(v *Visit) query.NoticeQuery {
	q := query.NoticeQuery{
		Namespace: v.Query.Get("namespace"), Name: v.Query.Get("name"), Provider: v.Query.Get("provider"), Event: v.Query.Get("event"),
		Limit: pageRows, Offset: ui.CountIn(v.Query.Get("offset")),
	}
	for _, o := range query.Outcomes() {
		if slices.Contains(v.Query["outcome"], string(o)) {
			q.Outcomes = append(q.Outcomes, o)
		}
	}
	return q
}

// noticesView is what the page shows.
type noticesView struct {
	Now        time.Time
	Query      query.NoticeQuery
	Outcome    string
	Chips      []stateChip
	Providers  []string
	Events     []string
	Namespaces []string
	Rows       []noticeRow
	Pager      ui.Pager
	Empty      *ui.Empty
	Filtered   bool
}

// noticeRow is one delivery.
type noticeRow struct {
	query.Delivery
	Pill ui.Pill
	Href string // of the object, empty if it has no page
}

var noticePills = map[query.Outcome]ui.Pill{
	query.NoticeFailed:    ui.NewPill(ui.ToneBad, "cross", "Failed"),
	query.NoticeRetrying:  ui.NewPill(ui.ToneWarn, "turn", "Retrying"),
	query.NoticeDelivered: ui.NewPill(ui.ToneOK, "check", "Delivered"),
	query.NoticeDropped:   ui.NewPill(ui.ToneIdle, "minus", "Dropped"),
}

func noticesOf(v *Visit, q query.NoticeQuery, found query.NoticePage) noticesView {
	d := noticesView{
		Now: v.Now, Query: q, Providers: found.Providers, Events: found.Events, Namespaces: visibleNamespaces(v),
		Filtered: q.Namespace != "" || q.Name != "" || q.Provider != "" || q.Event != "" || len(q.Outcomes) > 0,
	}
	for _, o := range query.Outcomes() {
		current := slices.Contains(q.Outcomes, o)
		to := string(o)
		if current {
			to = ""
			d.Outcome = string(o)
		}
		d.Chips = append(d.Chips, stateChip{noticePills[o], found.Counts[o], ui.With(v.Path, ui.Without(v.Query, "offset"), "outcome", to), current})
	}
	for _, n := range found.Items {
		pill, ok := noticePills[n.Outcome]
		if !ok {
			pill = ui.NewPill(ui.ToneIdle, "dot", string(n.Outcome))
		}
		d.Rows = append(d.Rows, noticeRow{n, pill, objectPath(n.Kind, n.Namespace, n.Name)})
	}
	d.Pager = ui.NewPager(v.Path, v.Query, q.Offset, len(d.Rows), pageRows, found.Total, "message")
	switch {
	case len(d.Rows) > 0:
	case d.Filtered:
		d.Empty = &ui.Empty{Title: "No matching deliveries", Href: v.Path, Link: "Show all"}
	default:
		d.Empty = &ui.Empty{
			Title:   "No notifications yet",
			Text:    "A Provider is the target of messages, and an Alert selects the events for it. Both are objects of notification.toolkit.fluxcd.io in the namespace of the stacks. To send failures to a webhook:",
			Command: firstAlert,
		}
	}
	return d
}

// firstAlert sends the failures of all stacks of a namespace to a webhook.
const firstAlert = `kubectl apply -n NAMESPACE -f - <<EOF
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata:
  name: webhook
spec:
  type: generic
  address: https://hooks.example.com/terrier
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata:
  name: failures
spec:
  providerRef:
    name: webhook
  eventSeverity: error
  eventSources:
  - kind: Terraform
    name: "*"
EOF`

// objectPath is the page of an object of one of the kinds that have one.
func objectPath(kind, namespace, name string) string {
	if namespace == "" || name == "" {
		return ""
	}
	k := query.Key{Namespace: namespace, Name: name}
	switch kind {
	case "Terraform":
		return ui.PathOf("stacks", namespace, name)
	case "Tenant":
		return tenantPath(k)
	case query.KindRegistry:
		return registryPath(k)
	case query.KindTemplate:
		return templatePath(k)
	default:
		return ""
	}
}
