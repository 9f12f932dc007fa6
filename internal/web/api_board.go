package web

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// errNoBoard is the answer of a server that watches no stacks.
var errNoBoard = fault.New(fault.Later, "NotReady", errors.New("this server does not watch the stacks"))

// statusNames are the statuses that a query may choose by.
func statusNames() []string {
	names := make([]string, 0, 9)
	for _, s := range query.Statuses() {
		names = append(names, string(s))
	}
	return names
}

// boardQuery is what a query may say about rows.
func boardQuery() []parameter {
	return []parameter{
		word("q", "Words that must all occur in the name, namespace, tenant, source, path, labels or message."),
		{name: "status", about: "One of " + strings.Join(statusNames(), ", ") + "; several choose any of them.", kind: reflect.String, several: true},
		word("namespace", "Only this namespace."),
		word("tenant", "Only this tenant."),
		word("selector", "Labels, as kubectl reads them."),
		word("group", "Count by namespace, tenant or label:KEY, and order by it first."),
		word("sort", "name, status, since or applied; with - before it the other way round."),
		number("offset", "How many rows to leave out."),
		number("limit", "How many rows to send: 100 if it is not there, 1000 at most."),
	}
}

// boardRoutes are the rows about many stacks at once. Everybody who is known may
// ask, and sees what they may list.
func (s *server) boardRoutes() []route {
	page := func(path, id, summary string, only ...query.Status) route {
		params := boardQuery()
		if only != nil {
			params = slices.DeleteFunc(params, func(p parameter) bool { return p.name == "status" })
		}
		return asks(s, path, known, nil, operation{id: id, area: "stacks", summary: summary, query: params, fails: []fault.Kind{fault.Later}},
			func(c call) (query.BoardPage, error) {
				scope, err := c.scope()
				if err != nil {
					return query.BoardPage{}, err
				}
				return c.page(scope, only)
			})
	}
	within := boardQuery()
	within = slices.DeleteFunc(within, func(p parameter) bool { return p.name == "namespace" })
	return []route{
		page(api+"/stacks", "listStacks", "The stacks that the caller may list, one page of them."),
		page(api+"/approvals", "listApprovals", "The stacks whose plan waits for somebody.", query.StatusPending),
		page(api+"/drift", "listDrift", "The stacks whose world is not what was applied.", query.StatusDrifted),
		asks(s, inNamespace+"/stacks", guarded, right("list", access.ResourceStacks), operation{id: "listStacksOfNamespace", area: "stacks",
			summary: "The stacks of one namespace, one page of them.", query: within, fails: []fault.Kind{fault.Later}},
			func(c call) (query.BoardPage, error) {
				return c.page(access.Scope{In: map[string]bool{c.Param("namespace"): true}}, nil)
			}),
		asks(s, oneStack+"/graph", guarded, right("get", access.ResourceStacks), operation{id: "getStackGraph", area: "stacks",
			summary: "What a stack depends on, and what depends on it. What the caller may not list has no name.",
			query:   []parameter{number("depth", "How many steps away to look; all of them if 0.")},
			fails:   []fault.Kind{fault.Missing, fault.Later}}, graph),
	}
}

// page answers a query about rows, of which only may have chosen the statuses.
func (c call) page(scope access.Scope, only []query.Status) (query.BoardPage, error) {
	if c.server.Board == nil {
		return query.BoardPage{}, errNoBoard
	}
	q := query.BoardQuery{
		Text: c.Query("q"), Statuses: only, Namespace: c.Query("namespace"), Tenant: c.Query("tenant"),
		Selector: c.Query("selector"), Group: c.Query("group"), Sort: c.Query("sort"),
	}
	for _, text := range c.QueryArray("status") {
		for _, one := range strings.Split(text, ",") {
			if !slices.Contains(query.Statuses(), query.Status(one)) {
				return query.BoardPage{}, errQuery("status: %.80q is none of %s", one, strings.Join(statusNames(), ", "))
			}
			q.Statuses = append(q.Statuses, query.Status(one))
		}
	}
	var err, err2 error
	q.Offset, err = c.count("offset")
	q.Limit, err2 = c.count("limit")
	if err := errors.Join(err, err2); err != nil {
		return query.BoardPage{}, err
	}
	return c.server.Board.Page(scope, q)
}

func graph(c call) (query.Graph, error) {
	if c.server.Board == nil {
		return query.Graph{}, errNoBoard
	}
	scope, err := c.scope()
	if err != nil {
		return query.Graph{}, err
	}
	depth, err := c.count("depth")
	if err != nil {
		return query.Graph{}, err
	}
	return c.server.Board.Graph(scope, c.key(), depth)
}

// rightIn is the right to the objects of the namespace that the query names, or
// of all namespaces.
func rightIn(verb string, r access.Resource) requirement {
	return func(c *gin.Context) (access.Request, error) {
		a := access.Request{Verb: verb, Resource: r, Namespace: c.Query("namespace")}
		if a.Namespace != "" && !dnsName.MatchString(a.Namespace) {
			return a, errName("namespace", a.Namespace)
		}
		return a, nil
	}
}

// everywhere is the right to the objects of all namespaces.
func everywhere(verb string, r access.Resource) requirement {
	return func(*gin.Context) (access.Request, error) { return access.Request{Verb: verb, Resource: r}, nil }
}
