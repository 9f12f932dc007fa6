package web

import (
	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

const oneRetained = inNamespace + "/retained/:name"

// retainedRoutes are the rows about stacks that are gone and left something.
// Whoever may list stacks sees them, whoever may delete them has them forgotten;
// the last state is read by those who may read states.
func (s *server) retainedRoutes() []route {
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "retained", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	state := op("getRetainedState", "The copy of the last state of a stack that is gone, secrets and all.", word("uid", "Which one of that name."))
	state.gives = anyType
	forget := op("forgetRetained", "Drops what the records hold of a stack that is gone. What it built stays, and so does the Secret with its state.")
	forget.fails = append(forget.fails, fault.Conflict)
	return []route{
		asks(s, api+"/retained", guarded, rightIn("list", access.ResourceStacks), op("listRetained", "What stacks left that are gone: what, since when, where its state is, and what can be done about it.",
			word("namespace", "Only this namespace; all of them take a right to all of them.")),
			func(c call) (list[command.Retained], error) {
				if s.Retained == nil {
					return list[command.Retained]{}, errNoSuch("records of stacks that are gone")
				}
				return listed(s.Retained.List(c.ctx(), c.Query("namespace")))
			}),
		s.raw(oneRetained+"/state", right("get", access.ResourceState), state, s.retainedState),
		tells(s, oneRetained+"/forget", right("delete", access.ResourceStacks), forget, forgetRetained),
	}
}

func (s *server) retainedState(c *gin.Context) {
	if s.Retained == nil {
		s.refuse(c, errNoSuch("records of stacks that are gone"))
		return
	}
	r, err := s.Retained.State(c.Request.Context(), keyOf(c), c.Query("uid"))
	s.sendState(c, c.Query("uid"), r, err)
}

func forgetRetained(c call, _ command.Person, b command.NamedRetained) (none, error) {
	switch {
	case c.server.Retained == nil:
		return none{}, errNoSuch("records of stacks that are gone")
	case b.UID == "":
		return none{}, errField("uid")
	}
	return none{}, c.server.forget(c.Context, c.key(), b.UID)
}

// forget drops a record, once the journal says who had it dropped.
func (s *server) forget(c *gin.Context, key query.Key, uid string) error {
	err := s.audit(c, query.AuditEntry{
		What: query.AuditForgotten, Object: query.AuditObject{Kind: "Terraform", Namespace: key.Namespace, Name: key.Name, UID: uid},
	})
	if err != nil {
		return err
	}
	return s.Retained.Forget(c.Request.Context(), key, uid)
}
