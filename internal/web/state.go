package web

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/service"
)

// States are the states of stacks. They hold secrets in clear, and have a right
// of their own.
type States interface {
	StateVersions(ctx context.Context, key service.Key) (service.KeptStates, error)
	ServerState(ctx context.Context, key service.Key, name string) (io.ReadCloser, error)
	ServerOutgrown(ctx context.Context, key service.Key, digest string) (io.ReadCloser, error)
	KeepOutgrown(ctx context.Context, key service.Key, state []byte) error
}

// stateRoutes are the rows about the states of one stack.
func (s *server) stateRoutes(one string, get func(string, door, func(*gin.Context) (service.Access, error), gin.HandlerFunc) route) []route {
	transfer := func(l Limits) time.Duration { return l.Transfer }
	read := right("get", service.ResourceState)
	table := []route{
		get(one+"/states", guarded, read, s.stateVersions),
		get(one+"/states/:version", guarded, read, s.stateVersion),
		get(one+"/outgrown", guarded, read, s.outgrown),
		{method: http.MethodPut, path: one + "/outgrown", door: guarded, access: right("update", service.ResourceState),
			body: stateBytes, handle: s.keepOutgrown},
	}
	for i := range table {
		table[i].within = transfer
	}
	return table
}

// stateBytes bounds a state, as a run does.
const stateBytes = 256 << 20

func (s *server) stateVersions(c *gin.Context) {
	kept, err := s.Stacks.StateVersions(c.Request.Context(), keyOf(c))
	answer(s, c, kept, err)
}

func (s *server) stateVersion(c *gin.Context) {
	r, err := s.Stacks.ServerState(c.Request.Context(), keyOf(c), c.Param("version"))
	s.sendState(c, r, err)
}

func (s *server) outgrown(c *gin.Context) {
	r, err := s.Stacks.ServerOutgrown(c.Request.Context(), keyOf(c), c.Query("digest"))
	s.sendState(c, r, err)
}

func (s *server) sendState(c *gin.Context, r io.ReadCloser, err error) {
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer r.Close()
	c.Header("Content-Type", "application/json; charset=utf-8")
	c.Header("Cache-Control", "no-store")
	if _, err := io.Copy(c.Writer, r); err != nil {
		panic(http.ErrAbortHandler) // half a state must not look like a whole one
	}
}

func (s *server) keepOutgrown(c *gin.Context) {
	state, err := io.ReadAll(c.Request.Body)
	if err == nil {
		err = s.Stacks.KeepOutgrown(c.Request.Context(), keyOf(c), state)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
