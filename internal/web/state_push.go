package web

import (
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
)

// pushing is the row of uploading a state. The body is the state, byte for
// byte, since its digest counts; all parameters are in the query.
func (a commandAPI) pushing(op func(string, string, ...fault.Kind) operation) route {
	o := op("pushState", "Stores the state in the body, which must follow the stored state, or returns a preview of the changes.", fault.Conflict)
	o.takes, o.gives = anyType, reflect.TypeFor[command.StateChange]()
	o.query = []parameter{
		yes("preview", "Only return a preview."), yes("force", "Rewrite lineage and serial so that the state follows the stored one."),
		word("over", "The digest of the stored state, from the preview."), word("to", "The digest of the state to store, from the preview."),
	}
	r := route{method: http.MethodPost, path: oneStack + "/state/push", door: guarded, access: right("update", access.ResourceState),
		within: func(l Limits) time.Duration { return l.Transfer }, body: stateBytes, whole: true, operation: o}
	r.handle = func(c *gin.Context) {
		var change command.StateChange
		err := a.admitted(c, r.operation)
		if err == nil {
			change, err = call{c, a.gate}.push()
		}
		answer(a.gate, c, change, err)
	}
	return r
}

// push returns the changes of an uploaded state, or stores it if the preview is
// still valid.
func (c call) push() (command.StateChange, error) {
	preview, err := c.yes("preview")
	if err != nil {
		return command.StateChange{}, err
	}
	force, err := c.yes("force")
	if err != nil {
		return command.StateChange{}, err
	}
	if !preview && c.Query("to") == "" {
		return command.StateChange{}, errQuery("the parameter to is missing: request a preview with preview=true first, and pass its digests")
	}
	p, err := c.person()
	if err != nil {
		return command.StateChange{}, err
	}
	state, err := io.ReadAll(c.Request.Body)
	if err != nil {
		return command.StateChange{}, err
	}
	change, err := p.Stacks.PlanPush(c.ctx(), c.key(), state, force)
	if preview {
		return change, err
	}
	if err := change.Still(err, c.Query("over"), c.Query("to")); err != nil {
		return command.StateChange{}, err
	}
	return change, p.Stacks.WriteState(c.ctx(), change)
}
