package web

import (
	"errors"
	"fmt"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// errNoTenants is the answer of a server without tenants.
var errNoTenants = fault.New(fault.Missing, query.ReasonNoTenants, errors.New("this server does not manage tenants"))

// tenantAPI is the rows about registries, templates and tenants.
type tenantAPI struct {
	*gate
	tenants query.TenantReader // nil if the server manages no tenants
}

func (a tenantAPI) routes() []route {
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "tenants", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	table := []route{
		reads(a.gate, api+"/tenants", guarded, rightIn("list", access.ResourceTenants), op("listTenants", "Lists tenants, and the problems of registries and templates.",
			word("namespace", "Only this namespace. Without it, the caller needs the permission in all namespaces."),
			word("registry", "Only tenants of this registry."), word("template", "Only tenants of this template."),
			word("selector", "A label selector, as in kubectl."), yes("notReady", "Only tenants that are not ready.")), a.list),
		reads(a.gate, inNamespace+"/tenants", guarded, right("list", access.ResourceTenants), op("listTenantsOfNamespace", "Lists the tenants of one namespace, and the problems of its registries and templates.",
			word("registry", "Only tenants of this registry."), word("template", "Only tenants of this template."),
			word("selector", "A label selector, as in kubectl."), yes("notReady", "Only tenants that are not ready.")), a.list),
		reads(a.gate, oneTenant, guarded, right("get", access.ResourceTenants), op("getTenant", "Returns the details of a tenant."), a.one),
		reads(a.gate, oneRegistry, guarded, right("get", access.ResourceRegistries), op("getRegistry", "Returns the result of the last read of a registry, and its effect on tenants."),
			ofTenants(a, func(t query.TenantReader, c call) (query.Registry, error) { return t.Registry(c.ctx(), c.key()) })),
		reads(a.gate, oneTemplate, guarded, right("get", access.ResourceTemplates), op("getRollout", "Returns the rollout of a template."),
			ofTenants(a, func(t query.TenantReader, c call) (query.Rollout, error) { return t.Rollout(c.ctx(), c.key()) })),
	}
	return append(append(table, a.registryCommands()...), a.templateCommands()...)
}

// ofTenants calls the tenants, which a server may lack.
func ofTenants[A any](a tenantAPI, f func(query.TenantReader, call) (A, error)) func(call) (A, error) {
	return func(c call) (A, error) {
		if a.tenants == nil {
			var nothing A
			return nothing, errNoTenants
		}
		return f(a.tenants, c)
	}
}

func (a tenantAPI) list(c call) (query.TenantList, error) {
	if a.tenants == nil {
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
	return a.tenants.List(c.ctx(), query.TenantFilter{
		Namespace: namespace, Registry: c.Query("registry"), Template: c.Query("template"),
		Selector: c.Query("selector"), NotReady: notReady,
	})
}

// one describes one tenant. The stacks among its objects need another permission.
func (a tenantAPI) one(c call) (query.TenantDetail, error) {
	if a.tenants == nil {
		return query.TenantDetail{}, errNoTenants
	}
	d, err := a.tenants.Describe(c.ctx(), c.key())
	if err != nil {
		return d, err
	}
	scope, err := c.scope()
	if err != nil {
		return query.TenantDetail{}, err
	}
	for i := range d.Objects {
		o := &d.Objects[i]
		if o.Stack != nil && !scope.Of(o.Stack.Kind).Has(o.Stack.Namespace) {
			o.StackUnseen = fmt.Sprintf("you may not list the stacks of the namespace %s", o.Stack.Namespace)
			o.Stack = nil
		}
	}
	return d, nil
}

func tenantOp(id, summary string, fails ...fault.Kind) operation {
	return operation{id: id, area: "commands", summary: summary, fails: append(fails, fault.Missing, fault.Later)}
}

// registryCommands are the rows of actions on a registry.
func (a tenantAPI) registryCommands() []route {
	patch := right("patch", access.ResourceRegistries)
	return []route{
		acts(a.gate, oneRegistry+"/allow", patch, tenantOp("allowDeletions", "Allows exactly the blocked deletions of the token.", fault.Conflict),
			func(c call, p command.Person, b command.AllowedToken) (none, error) {
				if b.Token == "" {
					return none{}, errField("token")
				}
				return none{}, p.Tenants.Allow(c.ctx(), c.key(), b.Token)
			}),
		acts(a.gate, oneRegistry+"/read-now", patch, tenantOp("readNow", "Requests a read of the rows now."),
			func(c call, p command.Person, _ none) (command.Requested, error) {
				request, err := p.Tenants.ReadNow(c.ctx(), c.key())
				return command.Requested{Request: request}, err
			}),
		acts(a.gate, oneRegistry+"/suspend", patch, tenantOp("suspendRegistry", "Suspends a registry: its rows are not read, and its tenants do not change."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Tenants.SuspendRegistry(c.ctx(), c.key())
			}),
		acts(a.gate, oneRegistry+"/resume", patch, tenantOp("resumeRegistry", "Resumes a suspended registry."),
			func(c call, p command.Person, _ none) (none, error) {
				return none{}, p.Tenants.ResumeRegistry(c.ctx(), c.key())
			}),
	}
}

// templateCommands are the rows of actions on a template.
func (a tenantAPI) templateCommands() []route {
	return []route{
		acts(a.gate, oneTemplate+"/rollout/resume", right("patch", access.ResourceTemplates),
			tenantOp("resumeRollout", "Resumes a stopped rollout.", fault.Conflict),
			func(c call, p command.Person, _ none) (command.Resumed, error) {
				n, err := p.Tenants.ResumeRollout(c.ctx(), c.key())
				return command.Resumed{Generation: n}, err
			}),
		acts(a.gate, oneTemplate+"/rollout/undo", right("update", access.ResourceTemplates),
			tenantOp("undoRollout", "Rolls a template back to an older generation, or returns a preview.", fault.Conflict), undo),
	}
}

// undo returns the preview of a rollback, or carries it out if the preview is still valid.
func undo(c call, p command.Person, b command.UndoOrder) (command.UndoView, error) {
	u, err := p.Tenants.PlanUndo(c.ctx(), c.key(), b.To)
	view := command.UndoView{From: u.From, To: u.To, Same: u.Same}
	switch {
	case err != nil || b.Preview:
		return view, err
	case b.From == 0:
		return view, errField("from")
	case b.From != u.From:
		return view, fault.New(fault.Conflict, query.ReasonPlanChanged, fmt.Errorf("the template %s has changed since the preview: its generation is %d now", c.key(), u.From))
	}
	return view, p.Tenants.Undo(c.ctx(), u)
}
