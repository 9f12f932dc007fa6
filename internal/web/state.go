package web

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

// States are the states of stacks. They contain plain secrets, and have a permission
// of their own.
type States interface {
	StateVersions(ctx context.Context, key query.Key) (query.KeptStates, error)
	ServerState(ctx context.Context, key query.Key, name string) (io.ReadCloser, error)
	ServerOutgrown(ctx context.Context, key query.Key, digest string) (io.ReadCloser, error)
	KeepOutgrown(ctx context.Context, key query.Key, state []byte) error
}

// stateRoutes are the rows about the states of one stack.
func (s *server) stateRoutes() []route {
	transfer := func(l Limits) time.Duration { return l.Transfer }
	read := right("get", access.ResourceState)
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "states", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	file := op("getStateVersion", "Returns one version of a state as it was stored, with all its secrets.")
	file.gives = anyType
	outgrown := op("getOutgrownState", "Returns a state that is too large for a Secret, by its digest.", word("digest", "The digest of its bytes."))
	outgrown.gives = anyType
	keep := op("keepOutgrownState", "Stores a state that is too large for a Secret.")
	keep.takes = anyType
	table := []route{
		asks(s, oneStack+"/states", guarded, read, op("listStateVersions", "Lists the stored versions of a state."),
			func(c call) (query.KeptStates, error) { return s.Stacks.StateVersions(c.ctx(), c.key()) }),
		asks(s, oneStack+"/state", guarded, read, op("getState", "Returns the resources and outputs of a state.",
			word("version", "A serial, or the beginning of a digest; by default the current version."), yes("reveal", "Show sensitive values.")), stateView),
		asks(s, oneStack+"/resources", guarded, read, op("listResources", "Lists the resource instances in the current state, with sensitive attributes masked."),
			func(c call) (list[plan.StateResource], error) {
				v, err := s.Stacks.StateOf(c.ctx(), c.key(), "", false)
				return listed(v.Resources, err)
			}),
		s.raw(oneStack+"/states/:version", read, file, s.stateVersion),
		s.raw(oneStack+"/outgrown", read, outgrown, s.outgrown),
		{method: http.MethodPut, path: oneStack + "/outgrown", door: guarded, access: right("update", access.ResourceState),
			body: stateBytes, operation: keep, handle: s.keepOutgrown},
	}
	for i := range table {
		table[i].within = transfer
	}
	return table
}

func stateView(c call) (plan.StateView, error) {
	reveal, err := c.yes("reveal")
	if err == nil && reveal {
		err = c.server.stateRead(c.Context, c.Query("version"))
	}
	if err != nil {
		return plan.StateView{}, err
	}
	return c.server.Stacks.StateOf(c.ctx(), c.key(), c.Query("version"), reveal)
}

// anyType is the type of any JSON value in the document.
var anyType = reflect.TypeFor[any]()

// stateBytes bounds a state, as a run does.
const stateBytes = 256 << 20

func (s *server) stateVersion(c *gin.Context) {
	r, err := s.Stacks.ServerState(c.Request.Context(), keyOf(c), c.Param("version"))
	s.sendState(c, c.Param("version"), r, err)
}

func (s *server) outgrown(c *gin.Context) {
	r, err := s.Stacks.ServerOutgrown(c.Request.Context(), keyOf(c), c.Query("digest"))
	s.sendState(c, c.Query("digest"), r, err)
}

// stateRead records that a user reads a state with its secrets.
func (s *server) stateRead(c *gin.Context, version string) error {
	key := keyOf(c)
	return s.audit(c, query.AuditEntry{
		What: query.AuditStateRead, Object: query.AuditObject{Kind: "Terraform", Namespace: key.Namespace, Name: key.Name},
		Details: map[string]string{"version": cmp.Or(version, "newest")},
	})
}

// sendState sends a state, after the access was recorded.
func (s *server) sendState(c *gin.Context, version string, r io.ReadCloser, err error) {
	if err == nil {
		if err = s.stateRead(c, version); err != nil {
			err = errors.Join(err, r.Close())
		}
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer r.Close()
	c.Header("Content-Type", "application/json; charset=utf-8")
	c.Header("Cache-Control", "no-store")
	if _, err := io.Copy(c.Writer, r); err != nil {
		panic(http.ErrAbortHandler) // an incomplete state must not look complete
	}
}

func (s *server) keepOutgrown(c *gin.Context) {
	err := s.admitted(c, operation{takes: anyType})
	var state []byte
	if err == nil {
		state, err = io.ReadAll(c.Request.Body)
	}
	if err == nil {
		err = s.Stacks.KeepOutgrown(c.Request.Context(), keyOf(c), state)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
