package web

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
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

const (
	keyUser    = "user"
	keyRequest = "request"
	keyBrowser = "browser" // the request is of a browser, for a page
)

// recovered turns a panic of a handler into an error. If the handler
// had begun to answer, the connection is closed, so that the answer does not look complete.
func (s *server) recovered(c *gin.Context) {
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
		s.Log.Error("request panicked", "request", c.GetString(keyRequest), "path", c.FullPath(), "panic", p, "stack", string(debug.Stack()))
		if c.Writer.Written() {
			panic(http.ErrAbortHandler)
		}
		s.refuse(c, errors.New("a panic"))
	}()
	c.Next()
}

// logged logs each request.
func (s *server) logged(c *gin.Context) {
	c.Next()
	level := slog.LevelDebug
	if c.Writer.Status() >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	s.Log.Log(c.Request.Context(), level, "request served", "request", c.GetString(keyRequest), "method", c.Request.Method,
		"path", c.FullPath(), "status", c.Writer.Status(), "user", userOf(c).Name)
}

// hardened sets the security headers of every answer, and removes request
// headers about the user: the user comes from the token alone.
func (s *server) hardened(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	for name := range c.Request.Header {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Forwarded-") {
			c.Request.Header.Del(name)
		}
	}
	c.Next()
}

// called refuses other host names, with which pages of other sites
// reach servers on this machine.
func (s *server) called(c *gin.Context) {
	host := c.Request.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if !slices.Contains(s.Hosts, host) {
		s.refuse(c, errHost)
		return
	}
	c.Next()
}

// sameOrigin refuses requests that pages of other sites cause. A request with the
// session cookie has to come from a page of ours even for reading, since a stream
// is a read, too.
func (s *server) sameOrigin(c *gin.Context) {
	err := http.NewCrossOriginProtection().Check(c.Request)
	if err != nil || s.sessions.shown(c.Request) && !fromOwnPage(c.Request) {
		s.refuse(c, errOrigin)
		return
	}
	c.Next()
}

// bounded sets the limits of time and size of a request.
func (s *server) bounded(r route) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Set(keyBrowser, r.browser)
		within := r.within(s.Limits)
		ctx, cancel := context.WithTimeout(c.Request.Context(), within)
		defer cancel()
		c.Request = c.Request.WithContext(access.Via(ctx, viaOf(c)))
		c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, r.body)
		control := http.NewResponseController(c.Writer)
		deadline := s.Now().Add(within)
		if err := errors.Join(control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			s.refuse(c, err)
			return
		}
		c.Next()
	}
}

// allowed checks the door and the permission of r.
func (s *server) allowed(r route) gin.HandlerFunc {
	return func(c *gin.Context) {
		if r.door == open {
			c.Next()
			return
		}
		user, err := s.identify(c.Request)
		if err != nil {
			s.challenge(c, err)
			return
		}
		c.Set(keyUser, user)
		s.renew(c)
		switch r.door {
		case known:
		case guarded:
			right, err := r.access(c)
			if err == nil {
				err = s.Auth.Authorize(c.Request.Context(), user, right)
			}
			if err != nil {
				s.refuse(c, err)
				return
			}
		default:
			s.refuse(c, errNoRoute)
			return
		}
		c.Next()
	}
}

// identify returns the user of a request: of its token, else of the session of
// its browser.
func (s *server) identify(r *http.Request) (access.User, error) {
	if s.sessions.shown(r) {
		return s.sessionUser(r)
	}
	return s.Auth.Authenticate(r.Context(), tokenOf(r))
}

// tokenOf reads the token of a request: a bearer token, or the password of
// registry clients, which support nothing else.
func tokenOf(r *http.Request) secret.Text {
	if _, password, ok := r.BasicAuth(); ok {
		return secret.New(password)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return secret.Text{}
	}
	return secret.New(strings.TrimSpace(token))
}

// challenge refuses a request without a user and asks for credentials.
func (s *server) challenge(c *gin.Context, err error) {
	if fault.Of(err) != fault.Denied {
		s.refuse(c, err)
		return
	}
	if c.GetBool(keyBrowser) {
		s.toSignIn(c)
		return
	}
	scheme := "Bearer"
	if strings.HasPrefix(c.FullPath(), registryPrefix+"/") {
		scheme = "Basic" // a Bearer challenge would send clients to look for a token server
	}
	c.Header("WWW-Authenticate", scheme+` realm="terrier"`)
	s.refuse(c, &httpError{http.StatusUnauthorized, err})
}

// refuse answers with an error. An internal error goes to the log: it may
// contain information that the caller may not see.
func (s *server) refuse(c *gin.Context, err error) {
	kind := fault.Of(err)
	s.refused(c, err)
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
		s.Log.Error("request failed", "request", c.GetString(keyRequest), "path", c.FullPath(), "err", err)
		answer.Error = "internal error of the server"
		answer.Hint = "The log of the server has details under the request ID " + c.GetString(keyRequest) + "."
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		c.Header("Retry-After", strconv.Itoa(retryAfter(err)))
	}
	if c.GetBool(keyBrowser) {
		s.problem(c, status, answer)
		return
	}
	c.AbortWithStatusJSON(status, answer)
}

// retryAfter is in seconds, at least one.
func retryAfter(err error) int {
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.After > time.Second {
		return int(f.After / time.Second)
	}
	return 5
}

func userOf(c *gin.Context) access.User {
	u, _ := c.Get(keyUser)
	user, _ := u.(access.User)
	return user
}
