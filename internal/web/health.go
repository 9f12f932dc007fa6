package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/fault"
)

func healthz(c *gin.Context) { c.String(http.StatusOK, "ok\n") }

// health reports whether the server is ready.
type health struct {
	ready   func(context.Context) error // nil is always ready
	replies *replies
	log     *slog.Logger
}

func (h health) routes() []route {
	request := func(l Limits) time.Duration { return l.Request }
	return []route{
		{method: http.MethodGet, path: "/healthz", door: open, within: request, handle: healthz},
		{method: http.MethodGet, path: "/readyz", door: open, within: request, handle: h.readyz},
	}
}

func (h health) readyz(c *gin.Context) {
	if h.ready != nil {
		if err := h.ready(c.Request.Context()); err != nil {
			h.log.Warn("not ready", "err", err)
			h.replies.refuse(c, fault.New(fault.Later, "NotReady", errors.New("the server is not ready")))
			return
		}
	}
	c.String(http.StatusOK, "ok\n")
}
