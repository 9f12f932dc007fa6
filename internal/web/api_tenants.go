package web

import (
	"errors"
	"fmt"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// errNoTenants is the answer of a server that knows nothing of tenants.
var errNoTenants = fault.New(fault.Missing, query.ReasonNoTenants, errors.New("this server knows nothing of tenants"))

// tenantRoutes are the rows about registries, templates and tenants.
func (s *server) tenantRoutes() []route {
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "tenants", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	table := []route{
		asks(s, api+"/tenants", guarded, rightIn("list", access.ResourceTenants), op("listTenants", "Tenants, and what holds them up.",
			word("namespace", "Only this namespace; all of them take a right to all of them."),
			word("registry", "Only those of this registry."), word("template", "Only those of this template."),
			word("selector", "Labels, as kubectl reads them."), yes("notReady", "Only those that are not ready.")), listTenants),
		asks(s, inNamespace+"/tenants", guarded, right("list", access.ResourceTenants), op("listTenantsOfNamespace", "The tenants of one namespace, and what holds them up.",
			word("registry", "Only those of this registry."), word("template", "Only those of this template."),
			word("selector", "Labels, as kubectl reads them."), yes("notReady", "Only those that are not ready.")), listTenants),
		asks(s, oneTenant, guarded, right("get", access.ResourceTenants), op("getTenant", "All there is to know of a tenant."), tenant),
		asks(s, oneRegistry, guarded, right("get", access.ResourceRegistries), op("getRegistry", "What is known of the rows of a registry, and of what follows."),
			tenants(func(t query.TenantReader, c call) (query.Registry, error) { return t.Registry(c.ctx(), c.key()) })),
		asks(s, oneTemplate, guarded, right("get", access.ResourceTemplates), op("getRollout", "How far the last change of a template has come."),
			tenants(func(t query.TenantReader, c call) (query.Rollout, error) { return t.Rollout(c.ctx(), c.key()) })),
	}
	return append(append(table, s.registryCommands()...), s.templateCommands()...)
}

// tenants asks what this server may not have been given.
func tenants[A any](f func(query.TenantReader, call) (A, error)) func(call) (A, error) {
	return func(c call) (A, error) {
		if c.server.Tenants == nil {
			var nothing A
			return nothing, errNoTenants
		}
		return f(c.server.Tenants, c)
	}
}

func listTenants(c call) (query.TenantList, error) {
	if c.server.Tenants == nil {
		return query.TenantList{}, errNoTenants
	}
	notReady, err := c.yes("notReady")
	if err != nil {
		return query.TenantList{}, err
	}
	namespace := c.Param("namespace")
	if namespace == "" {
		namespace = c.Query("namespace")
	}
	return c.server.Tenants.List(c.ctx(), query.TenantFilter{
		Namespace: namespace, Registry: c.Query("registry"), Template: c.Query("template"),
		Selector: c.Query("selector"), NotReady: notReady,
	})
}

// tenant describes one tenant. The stacks among its objects are another right.
func tenant(c call) (query.TenantDetail, error) {
	if c.server.Tenants == nil {
		return query.TenantDetail{}, errNoTenants
	}
	d, err := c.server.Tenants.Describe(c.ctx(), c.key())
	if err != nil {
		return d, err
	}
	scope, err := c.scope()
	if err != nil {
		return query.TenantDetail{}, err
	}
	for i := range d.Objects {
		o := &d.Objects[i]
		if o.Stack != nil && !scope.Has(o.Stack.Namespace) {
			o.StackUnseen = fmt.Sprintf("you may not list the stacks of the namespace %s", o.Stack.Namespace)
			o.Stack = nil
		}
	}
	return d, nil
}

func tenantOp(id, summary string, fails ...fault.Kind) operation {
	return operation{id: id, area: "commands", summary: summary, fails: append(fails, fault.Missing, fault.Later)}
}

// registryCommands are the rows of what is done to a registry.
func (s *server) registryCommands() []route {
	patch := right("patch", access.ResourceRegistries)
	return []route{
		tells(s, oneRegistry+"/allow", patch, tenantOp("allowDeletions", "Lets exactly the deletions pass that the token stands for.", fault.Conflict),
			func(c call, p command.Person, b command.AllowedToken) (none, error) {
				if b.Token == "" {
					return none{}, errField("token")
				}
				return none{}, p.Tenants.Allow(c.ctx(), c.key(), b.Token)
			}),
		tells(s, oneRegistry+"/read-now", patch, tenantOp("readNow", "Asks for the rows to be read now."),
			func(c call, p command.Person, _ none) (command.Requested, error) {
				request, err := p.Tenants.ReadNow(c.ctx(), c.key())
				return command.Requested{Request: request}, err
			}),
		tells(s, oneRegistry+"/suspend", patch, tenantOp("suspendRegistry", "Leaves rows and tenants as they are."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Tenants.SuspendRegistry(c.ctx(), c.key())
			}),
		tells(s, oneRegistry+"/resume", patch, tenantOp("resumeRegistry", "Ends a suspension."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Tenants.ResumeRegistry(c.ctx(), c.key())
			}),
	}
}

// templateCommands are the rows of what is done to a template.
func (s *server) templateCommands() []route {
	return []route{
		tells(s, oneTemplate+"/rollout/resume", right("patch", access.ResourceTemplates),
			tenantOp("resumeRollout", "Goes on with a rollout that has stopped.", fault.Conflict),
			func(c call, p command.Person, _ none) (command.Resumed, error) {
				n, err := p.Tenants.ResumeRollout(c.ctx(), c.key())
				return command.Resumed{Generation: n}, err
			}),
		tells(s, oneTemplate+"/rollout/undo", right("update", access.ResourceTemplates),
			tenantOp("undoRollout", "Makes a template what it was in an older generation, or says which that would be.", fault.Conflict), undo),
	}
}

// undo says what an undo would do, or does it if that is still what was said.
func undo(c call, p command.Person, b command.UndoOrder) (command.UndoView, error) {
	u, err := p.Tenants.PlanUndo(c.ctx(), c.key(), b.To)
	view := command.UndoView{From: u.From, To: u.To, Same: u.Same}
	switch {
	case err != nil || b.Preview:
		return view, err
	case b.From == 0:
		return view, errField("from")
	case b.From != u.From:
		return view, fault.New(fault.Conflict, query.ReasonPlanChanged, fmt.Errorf("the template %s has changed since: it is in its generation %d now", c.key(), u.From))
	}
	return view, p.Tenants.Undo(c.ctx(), u)
}
