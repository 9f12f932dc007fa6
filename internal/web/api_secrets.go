package web

import (
	"bytes"
	"io"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// secretAPI is the rows of what stands in Secrets of a namespace.
type secretAPI struct {
	*gate
	stacks Stacks
	audit  *auditor
	states stateSender
}

// routes are the rows of what stands in Secrets of a namespace, in clear or
// masked: outputs that a stack published, states, and the rows of tenants.
func (a secretAPI) routes() []route {
	op := func(id, area, summary string, params ...parameter) operation {
		return operation{id: id, area: area, summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	file := op("getStateFile", "states", "Returns the state of a stack as it is stored, with all its secrets.",
		word("version", "A serial, or the beginning of a digest; by default the current version."))
	file.gives = anyType
	table := []route{
		reads(a.gate, api+"/states", known, nil, op("listStates", "states", "Lists the states of stacks with serial, size and lock. The caller needs the permission to list terraforms/state.",
			word("namespace", "Only this namespace. Without it, the caller needs the permission in all namespaces."), word("name", "Only the stack of this name."), word("kind", "Only this kind of stack."),
			word("selector", "A label selector of stacks, as in kubectl.")),
			func(c call) (list[query.StateInfo], error) {
				return listed(a.stateInfos(c))
			}),
		a.raw(oneStack+"/state/file", right("get", access.ResourceState), file, a.stateFile),
		reads(a.gate, oneStack+"/outputs/secret", guarded, right("get", access.ResourceStacks), op("listPublishedOutputs", "stacks",
			"Lists the outputs in the Secret that a stack publishes them to. The caller needs the permission to read that Secret.",
			yes("reveal", "Show sensitive values.")), a.publishedOutputs),
		acts(a.gate, oneTemplate+"/render", right("get", access.ResourceTemplates), op("renderTemplate", "tenants",
			"Renders a template with a given row, or with the row of the tenant with the given UID. For that row, the caller needs the permission to read its Secret. Nothing is written."),
			func(c call, p command.Person, b command.RenderOrder) (query.Rendering, error) {
				return p.Secrets.Render(c.ctx(), c.key(), b.Row, b.UID)
			}),
	}
	for i := range table {
		table[i].within = func(l Limits) time.Duration { return l.Transfer }
		table[i].whole = slices.Contains([]string{"listStates", "getStateFile"}, table[i].operation.id)
	}
	return table
}

func (a secretAPI) stateFile(c *gin.Context) {
	version := c.Query("version")
	state, err := a.stacks.PullState(c.Request.Context(), keyOf(c), version)
	a.states.send(c, version, io.NopCloser(bytes.NewReader(state)), err)
}

func (a secretAPI) publishedOutputs(c call) (list[query.Output], error) {
	reveal, err := c.yes("reveal")
	if err != nil {
		return list[query.Output]{}, err
	}
	p, err := c.person()
	if err != nil {
		return list[query.Output]{}, err
	}
	all, err := p.Secrets.Outputs(c.ctx(), c.key(), reveal)
	if err == nil && reveal {
		err = a.audit.record(c.Context, query.AuditEntry{
			What: query.AuditOutputsRevealed, Object: query.AuditObjectOf(c.key()),
		})
	}
	return listed(all, err)
}

// stateInfos lists the states of the kinds of stack whose states the caller may list.
func (a secretAPI) stateInfos(c call) ([]query.StateInfo, error) {
	kinds, err := c.mayList(access.ResourceState)
	if err != nil {
		return nil, err
	}
	only, chosen := c.GetQuery("kind")
	if only != "" {
		key, err := query.Canonical(a.gate.scopes.kinds, query.Key{Kind: only})
		if err != nil {
			return nil, err
		}
		only = key.Kind
	}
	var out []query.StateInfo
	for _, kind := range kinds {
		if chosen && only != kind {
			continue
		}
		found, err := a.stacks.StateInfos(c.ctx(), query.Filter{Namespace: c.Query("namespace"), Name: c.Query("name"), Selector: c.Query("selector"), Kind: &kind})
		if err != nil && fault.Reason(err, "") != access.ReasonNotInstalled {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}
