package web

import (
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

const oneRetained = inNamespace + "/retained/:name"

// retainedAPI is the rows about deleted stacks with retained resources.
type retainedAPI struct {
	*gate
	stacks command.RetainedRecords // nil without records
	audit  *auditor
	states stateSender
}

// of are the records that the caller may have by a permission: in all namespaces it is one to
// the records of former namespaces, too.
func (a retainedAPI) of(c *gin.Context, verb string, r access.Resource) command.RetainedStacks {
	return a.stacks.For(func(kind string) error { return a.everywhere(c, verb, r, kind) })
}

// routes are the rows about deleted stacks with retained resources.
// Listing them needs the permission to list stacks, forgetting them the permission to delete
// stacks, and reading the last state the permission to read states.
func (a retainedAPI) routes() []route {
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "retained", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	state := op("getRetainedState", "Returns the copy of the last state of a deleted stack, with all its secrets.", word("uid", "The UID of the stack, if several had this name."))
	state.gives = anyType
	forget := op("forgetRetained", "Deletes the records of a deleted stack. Its resources stay, and so does the Secret with its state.")
	forget.fails = append(forget.fails, fault.Conflict)
	last := a.raw(oneRetained+"/state", right("get", access.ResourceState), state, a.state)
	last.whole = true
	return []route{
		reads(a.gate, api+"/retained", known, nil, op("listRetained", "Lists the retained resources of deleted stacks, and the resources that runs forgot: the resources, the time, the location of the state, and the next steps. The caller needs the permission to list terraforms. Records of a stack whose namespace was deleted, too, need it in all namespaces.",
			word("namespace", "Only this namespace. Without it, the caller needs the permission in all namespaces.")),
			func(c call) (list[command.Retained], error) {
				kinds, err := c.mayList(access.ResourceStacks)
				if err == nil && a.stacks == nil {
					err = errNoSuch("records of deleted stacks")
				}
				if err != nil {
					return list[command.Retained]{}, err
				}
				found, err := a.of(c.Context, "list", access.ResourceStacks).List(c.ctx(), c.Query("namespace"))
				return listed(slices.DeleteFunc(found, func(r command.Retained) bool { return !slices.Contains(kinds, r.Kind) }), err)
			}),
		last,
		acts(a.gate, oneRetained+"/forget", right("delete", access.ResourceStacks), forget, a.forgetRetained),
	}
}

func (a retainedAPI) state(c *gin.Context) {
	if a.stacks == nil {
		a.replies.refuse(c, errNoSuch("records of deleted stacks"))
		return
	}
	r, err := a.of(c, "get", access.ResourceState).State(c.Request.Context(), keyOf(c), c.Query("uid"))
	a.states.send(c, c.Query("uid"), r, err)
}

func (a retainedAPI) forgetRetained(c call, _ command.Person, b command.NamedRetained) (none, error) {
	switch {
	case a.stacks == nil:
		return none{}, errNoSuch("records of deleted stacks")
	case b.UID == "":
		return none{}, errField("uid")
	}
	return none{}, a.forget(c.Context, c.key(), b.UID)
}

// forget deletes a record, after the audit log names the user.
func (a retainedAPI) forget(c *gin.Context, key query.Key, uid string) error {
	of := query.AuditObjectOf(key)
	of.UID = uid
	if err := a.audit.record(c, query.AuditEntry{What: query.AuditForgotten, Object: of}); err != nil {
		return err
	}
	return a.of(c, "delete", access.ResourceStacks).Forget(c.Request.Context(), key, uid)
}
