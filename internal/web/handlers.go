package web

import (
	"errors"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/service"
)

func keyOf(c *gin.Context) service.Key {
	return service.Key{Namespace: c.Param("namespace"), Name: c.Param("name")}
}

// list is the shape of every list.
type list[T any] struct {
	Items []T `json:"items"`
}

func listOf[T any](items []T) list[T] {
	if items == nil {
		items = []T{} // null is no list
	}
	return list[T]{items}
}

// answer sends v, or err if there is one.
func answer[T any](s *server, c *gin.Context, v T, err error) {
	if err != nil {
		s.refuse(c, err)
		return
	}
	c.JSON(http.StatusOK, v)
}

func (s *server) healthz(c *gin.Context) { c.String(http.StatusOK, "ok\n") }

func (s *server) readyz(c *gin.Context) {
	if s.Ready != nil {
		if err := s.Ready(c.Request.Context()); err != nil {
			s.Log.Warn("not ready", "err", err)
			s.refuse(c, fault.New(fault.Later, "NotReady", errors.New("the server is not ready")))
			return
		}
	}
	c.String(http.StatusOK, "ok\n")
}

func (s *server) version(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"version": s.Version}) }

func (s *server) list(c *gin.Context) {
	items, err := s.Stacks.List(c.Request.Context(), service.Filter{Namespace: c.Param("namespace"), Selector: c.Query("selector")})
	answer(s, c, listOf(items), err)
}

func (s *server) describe(c *gin.Context) {
	d, err := s.Stacks.Describe(c.Request.Context(), keyOf(c))
	answer(s, c, d, err)
}

func (s *server) explain(c *gin.Context) {
	e, err := s.Stacks.Explain(c.Request.Context(), keyOf(c))
	answer(s, c, e, err)
}

func (s *server) runs(c *gin.Context) {
	items, err := s.Stacks.Runs(c.Request.Context(), keyOf(c))
	answer(s, c, listOf(items), err)
}

func (s *server) run(c *gin.Context) {
	report, err := s.Stacks.Run(c.Request.Context(), keyOf(c), c.Param("run"))
	answer(s, c, report, err)
}

// plan sends the document of a plan as it is kept, its sensitive values masked.
func (s *server) plan(c *gin.Context) {
	doc, err := s.Stacks.Plan(c.Request.Context(), keyOf(c), c.Query("digest"))
	if err != nil {
		s.refuse(c, err)
		return
	}
	c.Data(http.StatusOK, "application/json; charset=utf-8", doc.Document)
}

func (s *server) log(c *gin.Context) {
	if c.Query("follow") == "true" {
		s.follow(c)
		return
	}
	r, err := s.Stacks.Log(c.Request.Context(), keyOf(c), c.Param("run"), false)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer r.Close()
	c.Header("Content-Type", "text/plain; charset=utf-8")
	if _, err := io.Copy(c.Writer, r); err != nil {
		panic(http.ErrAbortHandler) // half a log must not look like a whole one
	}
}
