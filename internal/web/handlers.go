package web

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

func keyOf(c *gin.Context) query.Key {
	return query.Key{Namespace: c.Param("namespace"), Name: c.Param("name")}
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
