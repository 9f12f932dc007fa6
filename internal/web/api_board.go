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
	"github.com/terrier-iac/terrier/internal/query/usedby"
)

// errNoBoard is the answer of a server that watches no stacks.
var errNoBoard = fault.New(fault.Later, "NotReady", errors.New("this server does not watch the stacks"))

// statusNames are the statuses that a query can filter by.
func statusNames() []string {
	names := make([]string, 0, 9)
	for _, s := range query.Statuses() {
		names = append(names, string(s))
	}
	return names
}

// boardQuery is the parameters of a list of stacks.
func boardQuery() []parameter {
	return []parameter{
		word("q", "Words that must all occur in the name, namespace, tenant, source, path, labels or message."),
		{name: "status", about: "One of " + strings.Join(statusNames(), ", ") + "; several match any of them.", kind: reflect.String, several: true},
		word("namespace", "Only this namespace."),
		word("tenant", "Only this tenant."),
		word("selector", "A label selector, as in kubectl."),
		word("group", "Count by namespace, tenant or label:KEY, and order by it first."),
		word("sort", "name, status, since or applied; a leading - reverses the order."),
		number("offset", "Number of rows to skip."),
		number("limit", "Number of rows: 100 by default, at most 1000."),
	}
}

// boardAPI is the rows about many stacks at once.
type boardAPI struct {
	*gate
	board Board  // nil if the server watches no stacks
	uses  UsedBy // likewise
}

// routes are the rows about many stacks at once. Every signed-in user may call
// them, and gets the stacks that the user may list.
func (a boardAPI) routes() []route {
	page := func(path, id, summary string, only ...query.Status) route {
		params := boardQuery()
		if only != nil {
			params = slices.DeleteFunc(params, func(p parameter) bool { return p.name == "status" })
		}
		return reads(a.gate, path, known, nil, operation{id: id, area: "stacks", summary: summary, query: params, fails: []fault.Kind{fault.Later}},
			func(c call) (query.BoardPage, error) {
				scope, err := c.scope()
				if err != nil {
					return query.BoardPage{}, err
				}
				return a.page(c, scope, only)
			})
	}
	within := boardQuery()
	within = slices.DeleteFunc(within, func(p parameter) bool { return p.name == "namespace" })
	return []route{
		page(api+"/stacks", "listStacks", "Lists the stacks that the caller may list, one page at a time."),
		page(api+"/approvals", "listApprovals", "Lists the stacks with a pending plan.", query.StatusPending),
		page(api+"/drift", "listDrift", "Lists the stacks with drifted resources.", query.StatusDrifted),
		reads(a.gate, inNamespace+"/stacks", known, nil, operation{id: "listStacksOfNamespace", area: "stacks",
			summary: "Lists the stacks of one namespace, one page at a time. The caller needs the permission to list terraforms in it.", query: within, fails: []fault.Kind{fault.Later}},
			func(c call) (query.BoardPage, error) {
				namespace := c.Param("namespace")
				if !dnsName.MatchString(namespace) {
					return query.BoardPage{}, errName("namespace", namespace)
				}
				scope, err := a.gate.scopes.in(c.ctx(), userOf(c.Context), namespace)
				if err != nil {
					return query.BoardPage{}, err
				}
				return a.page(c, scope, nil)
			}),
		reads(a.gate, oneStack+"/graph", guarded, right("get", access.ResourceStacks), operation{id: "getStackGraph", area: "stacks",
			summary: "Returns the dependencies and the dependents of a stack. A stack that the caller may not list has no name.",
			query:   []parameter{number("depth", "Maximum distance in steps; 0 means all.")},
			fails:   []fault.Kind{fault.Missing, fault.Later}}, a.graph),
		a.usedBy("/modules/uses", "listUsesOfModule", "Lists the stacks that use a module, and in which version.", "module",
			"namespace/name/system in any registry, the same after a host, or the URL of a repository."),
		a.usedBy("/providers/uses", "listUsesOfProvider", "Lists the stacks that use a provider, and in which version.", "provider",
			"namespace/type in any registry, or host/namespace/type."),
	}
}

// usedBy is a row about the stacks that use something.
func (a boardAPI) usedBy(path, id, summary, what, about string) route {
	params := []parameter{
		word(what, about),
		word("versions", "Only versions in this range, for instance \"< 2.0\"; or a git ref."),
		word("namespace", "Only stacks of this namespace."),
		number("offset", "Number of uses to skip."),
		number("limit", "Number of uses: 100 by default, at most 1000."),
	}
	return reads(a.gate, api+path, known, nil, operation{id: id, area: "stacks", summary: summary + " The answer has the stacks that the caller may list.", query: params, fails: []fault.Kind{fault.Later}},
		func(c call) (usedby.Answer, error) {
			if a.uses == nil {
				return usedby.Answer{}, errNoBoard
			}
			q := usedby.Question{Module: c.Query("module"), Provider: c.Query("provider"), Versions: c.Query("versions"), Namespace: c.Query("namespace")}
			if c.Query(what) == "" {
				return usedby.Answer{}, errQuery("%s is missing: %s", what, about)
			}
			var err, err2 error
			q.Offset, err = c.count("offset")
			q.Limit, err2 = c.count("limit")
			if err := errors.Join(err, err2); err != nil {
				return usedby.Answer{}, err
			}
			scope, err := c.scope()
			if err != nil {
				return usedby.Answer{}, err
			}
			return a.uses.Ask(scope, q)
		})
}

// page answers a query about rows; only fixes the statuses if it is not nil.
func (a boardAPI) page(c call, scope access.Scope, only []query.Status) (query.BoardPage, error) {
	if a.board == nil {
		return query.BoardPage{}, errNoBoard
	}
	q := query.BoardQuery{
		Text: c.Query("q"), Statuses: only, Namespace: c.Query("namespace"), Tenant: c.Query("tenant"),
		Selector: c.Query("selector"), Group: c.Query("group"), Sort: c.Query("sort"),
	}
	for _, text := range c.QueryArray("status") {
		for _, one := range strings.Split(text, ",") {
			if !slices.Contains(query.Statuses(), query.Status(one)) {
				return query.BoardPage{}, errQuery("status: %.80q is not one of %s", one, strings.Join(statusNames(), ", "))
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
	return a.board.Page(scope, q)
}

func (a boardAPI) graph(c call) (query.Graph, error) {
	if a.board == nil {
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
	return a.board.Graph(scope, c.key(), depth)
}

// mayList are the kinds of stack for which the caller may list a resource in the
// namespace of the query, or in all of them. It is Denied if there is none.
func (c call) mayList(r access.Resource) ([]string, error) {
	namespace := c.Query("namespace")
	if namespace != "" && !dnsName.MatchString(namespace) {
		return nil, errName("namespace", namespace)
	}
	return c.gate.scopes.kindsOf(c.ctx(), userOf(c.Context), "list", r, namespace)
}

// rightIn is the permission for the objects of the namespace in the query, or
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

// everywhere is the permission for the objects of all namespaces.
func everywhere(verb string, r access.Resource) requirement {
	return func(*gin.Context) (access.Request, error) { return access.Request{Verb: verb, Resource: r}, nil }
}
