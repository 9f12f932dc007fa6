package web

import (
	"bytes"
	"io"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// secretRoutes are the rows of what stands in Secrets of a namespace, in clear or
// masked: outputs that a stack published, states, and the rows of tenants.
func (s *server) secretRoutes() []route {
	op := func(id, area, summary string, params ...parameter) operation {
		return operation{id: id, area: area, summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	file := op("getStateFile", "states", "The state of a stack as it is stored, secrets and all.",
		word("version", "A serial, or the beginning of a digest; the newest if it is not there."))
	file.gives = anyType
	table := []route{
		asks(s, api+"/states", guarded, rightIn("list", access.ResourceState), op("listStates", "states", "Serial, size and lock of the states of stacks.",
			word("namespace", "Only this namespace; all of them take a right to all of them."), word("name", "Only the stack of this name."),
			word("selector", "Labels of stacks, as kubectl reads them.")),
			func(c call) (list[query.StateInfo], error) {
				return listed(s.Stacks.StateInfos(c.ctx(), query.Filter{Namespace: c.Query("namespace"), Name: c.Query("name"), Selector: c.Query("selector")}))
			}),
		s.raw(oneStack+"/state/file", right("get", access.ResourceState), file, s.stateFile),
		asks(s, oneStack+"/outputs/secret", guarded, right("get", access.ResourceStacks), op("listPublishedOutputs", "stacks",
			"The outputs in the Secret that a stack publishes them to, read with the caller's own right to that Secret.",
			yes("reveal", "Show sensitive values.")), publishedOutputs),
		tells(s, oneTemplate+"/render", right("get", access.ResourceTemplates), op("renderTemplate", "tenants",
			"What a template makes of a row, or of the row of the tenant with a uid, which is read with the caller's own right to its Secret. Nothing is written."),
			func(c call, p command.Person, b command.RenderOrder) (query.Rendering, error) {
				return p.Secrets.Render(c.ctx(), c.key(), b.Row, b.UID)
			}),
	}
	for i := range table {
		table[i].within = func(l Limits) time.Duration { return l.Transfer }
	}
	return table
}

func (s *server) stateFile(c *gin.Context) {
	version := c.Query("version")
	state, err := s.Stacks.PullState(c.Request.Context(), keyOf(c), version)
	s.sendState(c, version, io.NopCloser(bytes.NewReader(state)), err)
}

func publishedOutputs(c call) (list[query.Output], error) {
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
		err = c.server.audit(c.Context, query.AuditEntry{
			What: query.AuditOutputsRevealed, Object: query.AuditObject{Kind: "Terraform", Namespace: c.key().Namespace, Name: c.key().Name},
		})
	}
	return listed(all, err)
}
