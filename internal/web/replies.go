package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// Errors whose status is not in the fault table.
var (
	errNoRoute  = &httpError{http.StatusNotFound, fault.New(fault.Missing, "NoRoute", errors.New("there is no page or API at this address"))}
	errNoMethod = &httpError{http.StatusMethodNotAllowed, fault.New(fault.Invalid, "NoMethod", errors.New("this address does not accept this method"))}
	errHost     = &httpError{http.StatusForbidden, fault.New(fault.Denied, "HostDenied", errors.New("the server does not have this host name"))}
	errOrigin   = &httpError{http.StatusForbidden, fault.New(fault.Denied, "OriginDenied", errors.New("requests of other origins are refused"))}
	errStreams  = &httpError{http.StatusTooManyRequests, fault.Wait(30*time.Second, "TooManyStreams", errors.New("too many streams are open"))}
)

// httpError is an error with a status of its own.
type httpError struct {
	status int
	err    error
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

func errName(what, value string) error {
	return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%.80q cannot be a %s", value, what))
}

// replies answer requests that are refused or fail: with a page for a browser, else
// with JSON.
type replies struct {
	audit  *auditor
	screen *screen
	log    *slog.Logger
}

// refuse answers with an error. An internal error goes to the log: it may
// contain information that the caller may not see.
func (r *replies) refuse(c *gin.Context, err error) {
	if c.GetBool(keyMoving) && fault.Of(err) == fault.Missing {
		err = errNoOwner // it may be with the former owner, or the next one
	}
	kind := fault.Of(err)
	r.audit.refused(c, err)
	status := kind.Meaning().HTTP
	if e, ok := errors.AsType[*httpError](err); ok {
		status = e.status
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		kind, status = fault.Invalid, http.StatusRequestEntityTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		kind, status = fault.Later, http.StatusServiceUnavailable
	}
	answer := command.Refusal{Error: err.Error(), Kind: kind, Reason: fault.Reason(err, ""), Hint: command.Hint(err)}
	if kind == fault.Broken {
		r.log.Error("request failed", "request", c.GetString(keyRequest), "path", askedPath(c), "err", err)
		answer.Error = "internal error of the server"
		answer.Hint = "The log of the server has details under the request ID " + c.GetString(keyRequest) + "."
	}
	if status == http.StatusServiceUnavailable {
		status = cmp.Or(c.GetInt(keyLater), status)
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		c.Header("Retry-After", strconv.Itoa(retryAfter(err)))
	}
	if c.GetBool(keyBrowser) {
		r.problem(c, status, answer)
		return
	}
	c.AbortWithStatusJSON(status, answer)
}

// problem shows a refusal as a page.
func (r *replies) problem(c *gin.Context, status int, answer command.Refusal) {
	v := r.screen.bare(c)
	if v.User.Name != "" {
		v.Can = r.screen.can(c, v.User)
	}
	p := pages.Failed(v, answer, c.GetString(keyRequest))
	if c.Request.Method != http.MethodGet {
		p.Live = pages.Live{} // an action is not retried automatically
	}
	r.screen.show(c, status, v, p)
	c.Abort()
}

// recovered turns a panic of a handler into an error. If the handler
// had begun to answer, the connection is closed, so that the answer does not look complete.
func (r *replies) recovered(c *gin.Context) {
	id := make([]byte, 9)
	rand.Read(id) // never fails
	c.Set(keyRequest, base64.RawURLEncoding.EncodeToString(id))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		r.log.Error("request panicked", "request", c.GetString(keyRequest), "path", askedPath(c), "panic", p, "stack", string(debug.Stack()))
		if c.Writer.Written() {
			panic(http.ErrAbortHandler)
		}
		r.refuse(c, errors.New("a panic"))
	}()
	c.Next()
}

// retryAfter is in seconds, at least one.
func retryAfter(err error) int {
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.After > time.Second {
		return int(f.After / time.Second)
	}
	return 5
}
